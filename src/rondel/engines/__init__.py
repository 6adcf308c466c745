"""Engines: ways to ask a model, and wrappers around them. Nothing is imported until its own module is."""
