"""What parts implement: store, runtime, dialect, source, command, ledger and clock, with the values that they exchange.

Knows no store, runtime or dialect of its own, and opens no file and no connection.
"""
