"""`math.evaluate`: computes an arithmetic expression. No code is ever evaluated."""

from __future__ import annotations

from ..tools.calculate import evaluate

AGENTS = (evaluate,)
