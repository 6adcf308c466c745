"""Errors of the HTTP client. No message contains a header, because one of them may be a key."""

from __future__ import annotations


class HttpError(Exception):
    """A request failed without an answer that could be read."""


class NoAddress(HttpError):
    """The URL is invalid, or its host has no address."""


class Refused(HttpError):
    """The server does not accept connections."""


class ConnectTimeout(HttpError):
    """Connecting took too long."""


class TlsFailed(HttpError):
    """The server's certificate is not trusted, or it does not speak TLS."""


class ProxyFailed(HttpError):
    """The proxy cannot be reached, or refused."""


class Broken(HttpError):
    """The connection was closed before the answer was complete."""


class NotHttp(HttpError):
    """The server's answer is not valid HTTP."""


class Silence(HttpError):
    """No data arrived for too long."""
