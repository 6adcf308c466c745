"""The tool that makes a picture with the engine in `[images]`. The picture is part of its result."""

from __future__ import annotations

from ..contracts.images import ImageRequest
from ..errors import ToolError
from ..machine.images import NOT_CONFIGURED
from ..machine.spending import make_images
from ..tool import CallContext, tool
from ..values import Media, Text

TIMEOUT_S = 300.0


@tool(name="generate_image", timeout_s=TIMEOUT_S)
async def generate_image(prompt: str, context: CallContext, size: str = "") -> tuple[Text | Media, ...]:
    """Make a picture from a description. The user sees it at once, so do not describe it at length or link to it.

    Args:
        prompt: what the picture shows, and in which style
        size: width and height in pixels, such as 1024x1024; the usual size by default
    """
    if not context.turn.services.images:
        raise ToolError(NOT_CONFIGURED)
    made = await make_images(context.turn, ImageRequest(prompt, size=size))
    return Text(f"The picture {made.images[0].name!r} was made, and the user sees it."), *made.images
