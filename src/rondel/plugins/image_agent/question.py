"""The schema of `analyzeImage`, and a tolerant parser for its arguments. Pure."""

from __future__ import annotations

import re
from typing import Any, Literal, cast

import msgspec

from ...errors import ToolError, nearest
from ...values import Value

NAME = "analyzeImage"
IMAGES_MAX, REGIONS_MAX, TASK_CHARS_MAX = 20, 50, 10_000

_NUMBER = re.compile(r"\s*+\[?\s*+(?:image)?\s*+(?:id)?\s*+#?\s*+(\d{1,9})\s*+\]?\s*+", re.IGNORECASE)
_SIDE = {"type": "number"}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "imageId": {
            "type": "array",
            "items": {"type": "string"},
            "description": 'The numbers of the images to look at: ["1"] for [Image #1].',
        },
        "task": {
            "type": "string",
            "description": "What you need to know. The model that looks knows only the user's last message.",
        },
        "regions": {
            "type": "array",
            "description": "Parts of an image to look at closely; leave it out for the whole.",
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "description": "What you call it."},
                    "x": {**_SIDE, "description": "The left edge."},
                    "y": {**_SIDE, "description": "The top edge."},
                    "w": {**_SIDE, "description": "The width."},
                    "h": {**_SIDE, "description": "The height."},
                    "units": {"type": "string", "enum": ["px", "pct"], "description": "Pixels, or percent."},
                },
                "required": ["x", "y", "w", "h", "units"],
            },
        },
    },
    "required": ["imageId", "task"],
}


class Region(Value, frozen=True, omit_defaults=True):
    x: float
    y: float
    w: float
    h: float
    units: Literal["px", "pct"]
    name: str = ""


class ImageQuestion(Value, frozen=True, omit_defaults=True):
    imageId: tuple[str, ...]
    task: str
    regions: tuple[Region, ...] = ()


def question_of(arguments: dict[str, Any]) -> ImageQuestion:
    """Parse the arguments of a call, or raise a ToolError that says what is wrong with them."""
    for name in arguments:
        if name not in SCHEMA["properties"]:
            raise ToolError(f"argument {name!r} is not known{nearest(name, tuple(SCHEMA['properties']))}")
    ids = arguments.get("imageId")
    ids = cast("list[object]", ids) if isinstance(ids, list) else [] if ids is None else [ids]
    try:
        question = msgspec.convert({**arguments, "imageId": list(map(str, ids))}, ImageQuestion, strict=False)
    except msgspec.ValidationError as error:
        raise ToolError(f"the arguments of {NAME!r} do not fit: {error}") from None
    if not question.imageId:
        raise ToolError("argument 'imageId' is empty; write the number of at least one image, such as [\"1\"]")
    if len(question.imageId) > IMAGES_MAX:
        raise ToolError(f"{len(question.imageId)} images are too many at once; look at {IMAGES_MAX} at most")
    if len(question.regions) > REGIONS_MAX:
        raise ToolError(f"{len(question.regions)} regions are too many at once; name at most {REGIONS_MAX}")
    if not question.task.strip():
        raise ToolError("argument 'task' is blank; say what you need to know about the image")
    if len(question.task) > TASK_CHARS_MAX:
        raise ToolError(f"the task has {len(question.task):,} characters; write at most {TASK_CHARS_MAX:,}")
    for id in question.imageId:
        number_of(id)
    return question


def number_of(id: str) -> int:
    found = _NUMBER.fullmatch(id)
    if found is None:
        raise ToolError(f'{id[:80]!r} is not the number of an image; write "1" for [Image #1]')
    return int(found[1])
