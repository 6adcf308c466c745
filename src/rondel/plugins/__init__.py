"""The plugins that come with Rondel. `default_plugins()` in app/registry.py has their order."""
