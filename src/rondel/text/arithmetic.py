"""Computes arithmetic expressions with a small parser of its own, so no code is ever evaluated."""

from __future__ import annotations

import math
import operator
import re
from typing import Any

from ..errors import ToolError

CHARS_MAX = 1_000
DEPTH_MAX = 50
BITS_MAX = 14_000  # larger integers are refused: a short expression must not take minutes

_TOKEN = re.compile(r"\s*(?:(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)|([A-Za-z_]\w*)|(\*\*|//|[-+*/%^(),]))")
_CONSTANTS = {"pi": math.pi, "e": math.e, "tau": math.tau}
_MATH = ("ceil", "cos", "exp", "floor", "log", "log10", "log2", "sin", "sqrt", "tan")
_OTHERS = {"abs": abs, "ln": math.log, "max": max, "min": min, "round": round}
_FUNCTIONS: dict[str, Any] = _OTHERS | {name: getattr(math, name) for name in _MATH}
_OPERATORS = {"+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod"}


def evaluate(expression: str) -> str:
    """Only for arithmetic with numbers: compute an expression exactly.

    Args:
        expression: such as "(2 + 40) * 1.19" or "sqrt(2) ** 3"; + - * / // % ** and sqrt, round, sin, log, min, max, pi
    """
    if len(expression) > CHARS_MAX:
        raise ToolError(f"the expression has {len(expression)} characters; at most {CHARS_MAX} are allowed")
    try:
        return _written(_Parser(_tokens(expression)).value())
    except ZeroDivisionError:
        raise ToolError(f"{expression!r} divides by zero") from None
    except (ArithmeticError, ValueError, TypeError) as error:
        raise ToolError(f"{expression!r} cannot be computed: {error}") from None


def _written(value: float) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value) if isinstance(value, int) else f"{value:.15g}"


def _tokens(expression: str) -> list[str]:
    tokens, at = list[str](), 0
    text = expression.replace("×", "*").replace("÷", "/").replace("−", "-").rstrip()
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            odd = text[at:].strip()[:20]
            raise ToolError(f"{odd!r} in {expression!r} is not arithmetic; use numbers and + - * / ( )")
        tokens.append(found[0].strip())
        at = found.end()
    return tokens


class _Parser:
    def __init__(self, tokens: list[str]) -> None:
        self._tokens, self._at, self._depth = tokens, 0, 0

    def value(self) -> float:
        value = self._sum()
        if self._at < len(self._tokens):
            raise ToolError(f"{self._tokens[self._at]!r} was not expected there; check the brackets and operators")
        return value

    def _take(self, *wanted: str) -> str:
        if self._at < len(self._tokens) and self._tokens[self._at] in wanted:
            self._at += 1
            return self._tokens[self._at - 1]
        return ""

    def _sum(self) -> float:
        value = self._product()
        while sign := self._take("+", "-"):
            value = _combined(sign, value, self._product())
        return value

    def _product(self) -> float:
        value = self._signed()
        while sign := self._take("*", "/", "//", "%"):
            value = _combined(sign, value, self._signed())
        return value

    def _signed(self) -> float:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise ToolError(f"the expression is nested more than {DEPTH_MAX} levels deep; compute it in steps")
        sign = self._take("+", "-")
        value = -self._signed() if sign == "-" else self._signed() if sign else self._power()
        self._depth -= 1
        return value

    def _power(self) -> float:
        base = self._unit()
        return _power(base, self._signed()) if self._take("**", "^") else base

    def _unit(self) -> float:
        if self._at >= len(self._tokens):
            raise ToolError("the expression ends where a number was expected")
        token = self._tokens[self._at]
        self._at += 1
        if token == "(":
            value = self._sum()
            self._close()
            return value
        if token[0].isdigit() or token[0] == ".":
            return _sized(int(token) if token.isdigit() else float(token))
        if token in _FUNCTIONS:
            return self._call(token)
        if token in _CONSTANTS:
            return _CONSTANTS[token]
        known = ", ".join((*sorted(_FUNCTIONS), *_CONSTANTS))
        raise ToolError(f"{token!r} is not known here; available: {known}")

    def _call(self, name: str) -> float:
        if not self._take("("):
            raise ToolError(f"write {name}(…) with its brackets")
        values = [self._sum()]
        while self._take(","):
            values.append(self._sum())
        self._close()
        return _sized(_FUNCTIONS[name](*values))

    def _close(self) -> None:
        if not self._take(")"):
            raise ToolError("a closing bracket is missing")


def _combined(sign: str, left: float, right: float) -> float:
    return _sized(getattr(operator, _OPERATORS[sign])(left, right))


def _power(base: float, exponent: float) -> float:
    if isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * abs(exponent) > BITS_MAX:
        raise ToolError("the power is too large to write out; use smaller numbers")
    value: object = base**exponent
    if not isinstance(value, (int, float)):
        raise ToolError(f"{base} ** {exponent} is not a real number")
    return value


def _sized(value: float) -> float:
    if value.bit_length() > BITS_MAX if isinstance(value, int) else math.isinf(value):
        raise ToolError("the number is too large to write out; use smaller numbers")
    return value
