"""The gateway as an ASGI application on a socket: paths, access, setup and reload, the request log.

It runs each request; which engine answers is decided in `routing`.
"""
