"""The command line: one file per command with its options, imported when that command runs; `_name.py` is shared.

Parses arguments and prints results. Code that other programs need, too, belongs in a lower folder.
"""
