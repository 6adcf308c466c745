"""The web surface: an API for programs, and the page for people, on the same server as the gateway.

`server.py` is the ASGI application. Each other module has the routes of one kind of thing. The journal's entries and
the live events are the only source of what happens in a conversation: there is no second event model.
"""
