"""Fills in an agent's directives during a turn, and extracts inputs and facts from a text with a model."""
