"""What goes wrong between us and a model's server, as errors that say whose it is and never show the key.

Knows no wire format; of the HTTP client only its errors.
"""

from __future__ import annotations

from collections.abc import Callable

from ...endpoint import Endpoint
from ...errors import EngineError, EngineGarbled, EngineTimeout, EngineUnreachable
from ...http import Broken, HttpError, NoAddress, NotHttp, ProxyFailed, Refused, TlsFailed


class Faults:
    """Says what went wrong, for whom, and never with the key in it."""

    def __init__(self, endpoint: Endpoint, model: str) -> None:
        self._endpoint, self._model = endpoint, model
        self.where = f"{endpoint.provider} at {endpoint.address}"

    def error(self, kind: Callable[..., EngineError], code: str, message: str) -> EngineError:
        return self.owned(kind(message, code=code))

    def owned(self, error: EngineError) -> EngineError:
        """The error with its provider, model and a code, and without the key should the server have repeated it."""
        error.provider = error.provider or self._endpoint.provider
        error.model = error.model or self._model
        error.code = error.code or type(error).__name__
        if (key := self._endpoint.key) and key in str(error):
            error.args = (str(error).replace(key, "[key]"),)
        error.body = self.without_key(error.body)
        return error

    def without_key(self, data: bytes) -> bytes:
        key = self._endpoint.key.encode()
        return data.replace(key, b"[key]") if key and key in data else data

    def of_answer(self, error: Exception, dialect: str) -> EngineError:
        """What a dialect stumbled over in an answer: an error that it raised on purpose, or the answer's fault."""
        if isinstance(error, EngineError):
            return self.owned(error)
        return self.garbled(f"the answer is not {dialect}: {type(error).__name__}: {error}")

    def garbled(self, message: str, code: str = "garbled") -> EngineError:
        return self.error(EngineGarbled, code, message)

    def too_long(self, bytes_max: int) -> EngineError:
        size = bytes_max >> 20
        return self.error(
            EngineGarbled, "too_long", f"{self.where} sent more than {size} MiB without one whole event; it was cut off"
        )

    def timeout(self, which: str, what: str) -> EngineError:
        setting = f"{which}_s"
        seconds: float = getattr(self._endpoint, setting)
        return self.error(
            EngineTimeout, f"timeout_{which}", f"{self.where} {what} within {seconds:g} s (the endpoint's {setting})"
        )

    def connection(self, error: HttpError) -> EngineError:
        """Why there is no connection, or no longer."""
        where = self.where
        if isinstance(error, ProxyFailed):
            code, text = "proxy", f"the proxy in the environment did not connect to {where}; check HTTPS_PROXY"
        elif isinstance(error, NotHttp):
            return self.error(EngineGarbled, "not_http", f"{where} did not answer in HTTP; check its base URL")
        elif isinstance(error, NoAddress):
            code, text = "dns", f"{where} has no address; check its base URL and the network"
        elif isinstance(error, TlsFailed):
            code, text = "tls", f"there is no trusted connection to {where}: {error}"
        elif isinstance(error, Refused):
            code, text = "refused", f"nothing listens for {where}; is the server running?"
        elif isinstance(error, Broken):
            code, text = "broken", f"{where} closed the connection before its answer had ended"
        else:
            code, text = "broken", f"the connection to {where} broke: {error}"
        return self.error(EngineUnreachable, code, text)
