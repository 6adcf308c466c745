"""Reads and writes files safely: regular files of bounded size, and files that only their owner can read."""
