"""Turns the files of a project into what an app needs: configuration, agents, engines, plugins, trust and lint.

Writes nothing into a project. Does not know the command line or the gateway.
"""
