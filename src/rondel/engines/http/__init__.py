"""The engine that asks a model over HTTP: an endpoint, a dialect, and one pooled client.

`engine` makes requests, `fitting` asks of a model only what it has; `body` reads answers, `relayed` passes them on,
`headers` says what of headers travels, `faults` what went wrong. What the bytes mean is the dialect's; connections are
`rondel.http`'s.
"""

from .engine import HttpEngine
from .headers import retry_after_s

__all__ = ["HttpEngine", "retry_after_s"]
