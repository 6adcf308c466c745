"""The engine that asks a model over HTTP: an endpoint, a dialect, and one pooled client.

`engine` opens, times, bounds and closes requests; `body` reads answers against the clock, `relayed` passes them on,
`headers` says what of headers travels, `faults` what went wrong. What the bytes mean is the dialect's. The HTTP client
is aiohttp, the fastest on streams (`python -m bench.http_clients`); it is imported with the first prompt, because its
import takes longer than everything else at start-up.
"""

from .engine import HttpEngine
from .headers import retry_after_s

__all__ = ["HttpEngine", "retry_after_s"]
