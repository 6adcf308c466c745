"""A request and its response as bytes: read, searched, recorded and sent; and noticing that a caller has left.

Knows no route, no plugin and no turn.
"""
