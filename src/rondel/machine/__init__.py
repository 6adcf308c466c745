"""Runs conversations: the loop, the turn, the transcript, the journal, and the conversation that a surface talks to.

Knows no wire format, no database and no surface. Policy belongs in plugins.
"""
