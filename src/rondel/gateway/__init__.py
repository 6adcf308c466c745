"""Serves the dialects to other programs, on the same loop."""
