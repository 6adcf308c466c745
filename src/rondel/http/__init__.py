"""The only HTTP client: HTTP/1.1, one request, and its answer while it arrives.

httptools parses. Connections are kept and reused; `dialing` handles proxies, TLS and hosts with several addresses.
There are no cookies, no redirects and no compression: no caller needs them. Knows no model and no wire format above
HTTP.
"""

from .client import Client, Head, get
from .connection import Answer
from .dialing import environment_proxy
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
    "environment_proxy",
    "get",
]
