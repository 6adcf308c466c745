"""The front ends: IO plus a list of plugins. None of them runs a tool or holds policy."""
