"""What parts implement: store, runtime, dialect, source, command, ledger and clock, with the values that they exchange;
and tables and algorithms that several parts share (endpoint.py, fitting.py, window.py, deadline.py).

Knows no store, runtime or dialect of its own, and opens no file and no connection.
"""
