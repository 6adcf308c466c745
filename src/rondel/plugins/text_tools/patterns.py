"""The forms of calls in text that models were trained on, and how the inside of each is parsed. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeAlias, cast

import msgspec

from ...text.lenient import parse_object, parse_parameters, relaxed

ReadBody: TypeAlias = Callable[[str, str], "tuple[str, dict[str, Any]] | None"]
"""Takes the name in the opening, if any, and the body; returns the tool's name and arguments, or None."""


class Pattern(msgspec.Struct, frozen=True):
    """What opens a call in text (with a group `name`, or `attributes` that contain one) and what closes it. Without a
    `closing`, `opening` matches the whole call and may have a group `body`."""

    name: str
    opening: re.Pattern[str]
    closing: re.Pattern[str] | None = None
    read: ReadBody = lambda name, body: (name, parse_parameters(body))
    body_is_json: bool = False  # the body must be a JSON object


_NAME = re.compile(r"""(?:^|[\s"'])name\s*+=\s*+(?:"([^"]*+)"|'([^']*+)')""", re.IGNORECASE)


def name_in(match: re.Match[str]) -> str:
    groups = match.groupdict()
    if (name := groups.get("name")) is not None:
        return name.strip()
    attribute = _NAME.search(groups.get("attributes") or "")
    return (attribute[1] or attribute[2] or "").strip() if attribute else ""


def closes_itself(opening: re.Match[str]) -> bool:
    return (opening.groupdict().get("attributes") or "").endswith("/")


_PARAMETER = re.compile(
    r"""<parameter\s++name\s*+=\s*+["']([^"'<>]++)["']\s*+>(.*?)</parameter>""", re.IGNORECASE | re.DOTALL
)
_PARAMETER_END = re.compile(r"</parameter>", re.IGNORECASE)


def _tag(name: str) -> Pattern:
    return Pattern(
        name,
        re.compile(rf"<{name}(?P<attributes>\s[^<>]*+)>", re.IGNORECASE),
        re.compile(rf"</{name}\s*+>", re.IGNORECASE),
        read=_read_tag_body,
    )


def _read_tag_body(name: str, body: str) -> tuple[str, dict[str, Any]] | None:
    """Parse JSON, or `<parameter name="…">` elements, which some models were trained on."""
    ends = [tag.end() for tag in _PARAMETER_END.finditer(body)]
    if ends and (found := _PARAMETER.findall(body, 0, ends[-1])):  # every opening before the last end is closed
        return name, {key: _plain_or_json(text) for key, text in found}
    return name, parse_parameters(body)


def _plain_or_json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return text.strip("\n")


def _read_named_json(_: str, body: str) -> tuple[str, dict[str, Any]] | None:
    """Parse `{"function": …, "parameters": {…}}`, also with `name` and `arguments`. Other JSON is not a call."""
    value = object_in(body) or {}
    if isinstance(inner := value.get("function"), dict):
        value = cast("dict[str, Any]", inner)
    name = value.get("function", value.get("name"))
    arguments = value.get("parameters", value.get("arguments"))
    if isinstance(arguments, str):
        arguments = parse_parameters(arguments)
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return None
    return name, cast("dict[str, Any]", arguments)


def object_in(text: str) -> dict[str, Any] | None:
    return found if (found := parse_object(text)) is not None else relaxed(text)


DEFAULT_PATTERNS: tuple[Pattern, ...] = (
    _tag("tool_use"),
    _tag("function_call"),
    _tag("invoke"),
    Pattern(
        "json_fence",
        re.compile(r"```json\b", re.IGNORECASE),
        re.compile(r"```"),
        read=_read_named_json,
        body_is_json=True,
    ),
    Pattern(
        "bracket", re.compile(r"\[TOOL:(?P<name>[^\[\]\n]++)\]", re.IGNORECASE), re.compile(r"\[/TOOL\]", re.IGNORECASE)
    ),
)
