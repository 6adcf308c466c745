"""HTTP/1.1 as a client, as small as what models' servers need: one request, one answer while it comes. `server` is the
other side of it.

Parsing is httptools', the C parser that the gateway's server has too. Connections are kept and used again; proxies, TLS
and several addresses are `dialing`'s. There are no cookies, no redirects and no compression: nobody here wants them.
Knows no model and no wire format above HTTP.
"""

from .client import Client, Head
from .connection import Answer
from .errors import Broken, ConnectTimeout, HttpError, NoAddress, NotHttp, ProxyFailed, Refused, Silence, TlsFailed

__all__ = [
    "Answer",
    "Broken",
    "Client",
    "ConnectTimeout",
    "Head",
    "HttpError",
    "NoAddress",
    "NotHttp",
    "ProxyFailed",
    "Refused",
    "Silence",
    "TlsFailed",
]
