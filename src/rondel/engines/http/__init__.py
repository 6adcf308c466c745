"""The engine that asks a model over HTTP: an endpoint, a dialect, and one pooled client.

`engine` makes requests, `encoder` writes prompts, `body` reads answers, `relayed` passes them on, `headers` filters
headers, and `faults` makes errors. A dialect gives the bytes their meaning; `rondel.http` owns the connections.
"""

from .engine import HttpEngine
from .headers import retry_after_s

__all__ = ["HttpEngine", "retry_after_s"]
