"""Decides which engine answers a request, and why: routes, names, tags, kinds, token counts and outages.

Chooses an engine and never calls one.
"""
