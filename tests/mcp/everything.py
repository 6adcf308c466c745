"""A real MCP server, made with the SDK, over stdio or HTTP: what the client's tests drive."""

from __future__ import annotations

import asyncio
import base64
import os
import sys
import time
from typing import Annotated

from mcp.server.mcpserver import Context, Elicit, Image, MCPServer, Resolve, Sample
from mcp_types import CreateMessageResult, SamplingMessage, TextContent
from pydantic import BaseModel

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
server = MCPServer("everything", version="1.0")


class Name(BaseModel):
    name: str
    age: int


@server.tool()
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool()
def environment(name: str) -> str:
    """Tell a variable of the server's environment."""
    return os.environ.get(name, "(not set)")


@server.tool()
def where() -> str:
    """Tell the server's process and folder."""
    return f"{os.getpid()} {os.getcwd()}"


@server.tool()
def picture() -> Image:
    """Return an image."""
    return Image(data=PNG, format="png")


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("the disk is full")


@server.tool()
async def slow(ctx: Context, seconds: float) -> str:
    """Take some time, and say how far it is."""
    for step in range(3):
        await ctx.report_progress(step + 1, 3, f"step {step + 1}")
    await asyncio.sleep(seconds)
    return "done"


def ask_name() -> Elicit[Name]:
    return Elicit("Who are you?", Name)


@server.tool()
async def greet(person: Annotated[Name, Resolve(ask_name)]) -> str:
    """Ask the user's name and age, and greet them."""
    return f"Hello {person.name}, {person.age}"


def ask_model(topic: str) -> Sample:
    message = SamplingMessage(role="user", content=TextContent(type="text", text=f"A poem about {topic}"))
    return Sample([message], max_tokens=50)


@server.tool()
async def write_poem(topic: str, poem: Annotated[CreateMessageResult, Resolve(ask_model)]) -> str:
    """Have the client's model write a poem."""
    return f"The model {poem.model} wrote: {poem.content.text}"


@server.tool()
async def grow(ctx: Context) -> str:
    """Add a tool to this server."""

    def grown() -> str:
        """A new tool."""
        return "I am new"

    server.add_tool(grown)
    await ctx.notify_tools_changed()
    return "grown"


@server.prompt()
def review(code: str) -> str:
    """Review some code."""
    return f"Please review this code: {code}"


@server.resource("notes://today", description="What happened today")
def today() -> str:
    return "It rained today."


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "http":
        server.run("streamable-http", port=int(sys.argv[2]))
    elif len(sys.argv) > 1 and sys.argv[1] == "late":
        time.sleep(float(sys.argv[2]))
        server.run("stdio")
    else:
        server.run("stdio")
