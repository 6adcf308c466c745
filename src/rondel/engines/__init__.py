"""Engines that call a model, and wrappers around them. Importing this package imports none of them."""
