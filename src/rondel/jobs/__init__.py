"""Runs work now, later and in the background: the local runtime, background jobs and schedules.

Knows no surface and no model: a job starts a turn, and the turn does the work.
"""
