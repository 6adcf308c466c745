"""Functions on text that people and models write: templates, inputs, schedules, approval rules, lenient JSON, TOML
and YAML documents, printable text and redaction.

Nothing here opens a file or a connection.
"""
