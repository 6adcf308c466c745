"""What goes wrong between a client and a server. No message holds a header, because one of them may be a key."""

from __future__ import annotations


class HttpError(Exception):
    """Something that went wrong on the way to a server, or back."""


class NoAddress(HttpError):
    """The server's name stands for no address."""


class Refused(HttpError):
    """Nothing listens there, or nobody may go there."""


class ConnectTimeout(HttpError):
    """No connection came about in time."""


class TlsFailed(HttpError):
    """The server showed no certificate that is trusted, or does not speak TLS."""


class ProxyFailed(HttpError):
    """The proxy is not there, or does not let us through."""


class Broken(HttpError):
    """The connection ended before the answer did."""


class NotHttp(HttpError):
    """What came is no answer in HTTP."""


class Silence(HttpError):
    """Nothing came for too long."""
