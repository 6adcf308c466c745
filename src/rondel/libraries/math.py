"""`math.evaluate`: an arithmetic expression, read by a parser of its own; no code is ever evaluated."""

from __future__ import annotations

from ..tools.calculate import evaluate

AGENTS = (evaluate,)
