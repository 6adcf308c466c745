"""The calculator tool."""

from __future__ import annotations

from ..text.arithmetic import evaluate
from ..tool import tool
from ..values import Example

_EXAMPLES = (
    Example({"expression": "80 * 15 / 100"}, "What is 15% of 80?", "12", "15% of 80 is 12."),
    Example({"expression": "(125 + 75) / 4"}, "Add 125 and 75 and divide that by 4.", "50", "The result is 50."),
)
calculate = tool(name="calculate", idempotent=True, examples=_EXAMPLES)(evaluate)
