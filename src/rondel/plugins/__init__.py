"""The plugins that come with Rondel. Each stands alone; `default_plugins()` in app.py is their order."""
