"""Puts the parts together: `App` owns agents, engines, plugins, a store and a runtime, and `registry` resolves names.

Knows no terminal and no gateway.
"""
