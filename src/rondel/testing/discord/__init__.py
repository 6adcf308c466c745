"""A Discord on this machine, for the tests of bots: REST, gateway, interactions, rate limits, permissions, threads.

Needs `rondel[discord]`. `rondel.testing` itself does not import it.
"""

from __future__ import annotations

from .server import Interaction, LoopbackDiscord, connector_to, text_of
from .world import Channel, Guild, Json, Role, User, permission_bits

__all__ = [
    "Channel",
    "Guild",
    "Interaction",
    "Json",
    "LoopbackDiscord",
    "Role",
    "User",
    "connector_to",
    "permission_bits",
    "text_of",
]
