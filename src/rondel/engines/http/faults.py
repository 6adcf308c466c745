"""Makes the errors of a connection to a model's server: they name the provider and the model, and show no secret.

Knows no wire format, and only the errors of the HTTP client.
"""

from __future__ import annotations

from collections.abc import Callable

from ...contracts.endpoint import Endpoint
from ...errors import EngineError, EngineGarbled, EngineTimeout, EngineUnreachable
from ...http import Broken, HttpError, NoAddress, NotHttp, ProxyFailed, Refused, TlsFailed
from ...text.redaction import Redactor


class Faults:
    """Makes the errors of one endpoint and model."""

    def __init__(self, endpoint: Endpoint, model: str) -> None:
        self._endpoint, self._model = endpoint, model
        self.redactor = Redactor(endpoint.secrets)
        self.where = f"{endpoint.provider} at {endpoint.address}"

    def error(self, kind: Callable[..., EngineError], code: str, message: str) -> EngineError:
        return self.owned(kind(message, code=code))

    def owned(self, error: EngineError) -> EngineError:
        """Add provider, model and code to an error, and remove secrets that the server may have repeated."""
        error.provider = error.provider or self._endpoint.provider
        error.model = error.model or self._model
        error.code = error.code or type(error).__name__
        return self.redactor.error(error)

    def of_answer(self, error: Exception, dialect: str) -> EngineError:
        if isinstance(error, EngineError):
            return self.owned(error)
        return self.garbled(f"the answer is not {dialect}: {type(error).__name__}: {error}")

    def garbled(self, message: str, code: str = "garbled") -> EngineError:
        return self.error(EngineGarbled, code, message)

    def no_model(self, code: str, message: str) -> EngineError:
        """Return an error for an answer that is not a model server's: nothing was spent."""
        error = self.error(EngineGarbled, code, message)
        error.may_have_spent = False
        return error

    def too_long(self, bytes_max: int) -> EngineError:
        size = bytes_max >> 20
        return self.error(
            EngineGarbled, "too_long", f"{self.where} sent more than {size} MiB without an answer; it was cut off"
        )

    def endless(self, bytes_max: int) -> EngineError:
        size = bytes_max >> 20
        error = self.error(
            EngineGarbled, "too_long", f"the answer of {self.where} did not end within {size} MiB; it was cut off"
        )
        error.retryable = False
        return error

    def timeout(self, which: str, what: str) -> EngineError:
        setting = f"{which}_s"
        seconds: float = getattr(self._endpoint, setting)
        error = self.error(
            EngineTimeout, f"timeout_{which}", f"{self.where} {what} within {seconds:g} s (the endpoint's {setting})"
        )
        error.may_have_spent = which != "connect"
        return error

    def connection(self, error: HttpError) -> EngineError:
        """Return the error for a connection that failed or broke."""
        where = self.where
        if isinstance(error, ProxyFailed):
            code, text = "proxy", f"the proxy in the environment did not connect to {where}; check HTTPS_PROXY"
        elif isinstance(error, NotHttp):
            return self.no_model("not_http", f"{where} did not answer in HTTP; check its base URL")
        elif isinstance(error, NoAddress):
            code, text = "dns", f"{where} cannot be found; check the network and its base URL"
        elif isinstance(error, TlsFailed):
            code, text = "tls", f"the TLS connection to {where} is not trusted: {error}"
        elif isinstance(error, Refused):
            address, provider = self._endpoint.address, self._endpoint.provider
            code, text = "refused", f"Nothing is listening at {address} ({provider}). Is the server running?"
        elif isinstance(error, Broken):
            code, text = "broken", f"{where} closed the connection before its answer had ended"
        else:
            code, text = "broken", f"the connection to {where} broke: {error}"
        failure = self.error(EngineUnreachable, code, text)
        failure.may_have_spent = code == "broken"  # all others happen before anything is sent
        return failure
