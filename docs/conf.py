"""Sphinx's settings; docs/site.py builds the site."""

project = "Rondel"
author = "the Rondel developers"
extensions = ["myst_parser"]
myst_heading_anchors = 4
html_theme = "furo"
html_title = "Rondel"
html_copy_source = False
html_show_sphinx = False
highlight_language = "text"
