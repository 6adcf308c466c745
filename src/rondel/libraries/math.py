"""`math.evaluate`: computes an arithmetic expression. No code is ever evaluated."""

from __future__ import annotations

from ..text.arithmetic import evaluate

AGENTS = (evaluate,)
