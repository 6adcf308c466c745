"""Answers a request with a turn of the loop: injects tools, merges the rounds into one reply, forwards questions.

Does not know sockets or configuration.
"""
