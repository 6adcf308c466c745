"""Fakes for tests: an engine that plays a script, one that echoes, an embedder that compares words, an image
engine that draws, and a clock that tests move.

`Scripted` fails if it is called too often and, when checked, if steps are left. Nothing here uses the network or time.
"""

from __future__ import annotations

import asyncio
import math
import re
import zlib
from array import array
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeAlias, cast

from ..contracts.embedder import Embedded, Vector
from ..contracts.images import GeneratedImages, ImageRequest, image_name
from ..errors import RondelError, nearest
from ..files.media import image_type
from ..files.regular import read_regular
from ..prompt import Prompt
from ..stores.memory import MemoryStore
from ..text.attached import as_text
from ..values import (
    Delta,
    Media,
    Message,
    ModelFacts,
    PartDelta,
    PartFinished,
    PartStarted,
    Reply,
    ReplyFinished,
    ReplyStarted,
    Text,
    Thinking,
    ToolCall,
    Usage,
    deltas_of,
)
from .clock import VirtualClock
from .png import draw_png

__all__ = [
    "Echo",
    "MemoryStore",
    "Pause",
    "ScriptError",
    "Scripted",
    "ScriptedImages",
    "VirtualClock",
    "WordEmbedder",
    "call",
    "calls",
    "load_scripts",
    "say",
]

SCRIPT_BYTES_MAX = 10_000_000


class ScriptError(AssertionError):
    """The script and what happened differ."""


class Pause:
    """A step that says `before`, then waits for `release()`, or until the request is closed."""

    def __init__(self, before: str = "", after: str = "") -> None:
        self.before, self.after = before, after
        self.reached = asyncio.Event()
        self.closed = False
        self._go = asyncio.Event()

    def release(self) -> None:
        self._go.set()

    async def wait(self) -> None:
        self.reached.set()
        try:
            await self._go.wait()
        except (asyncio.CancelledError, GeneratorExit):
            self.closed = True
            raise


Step: TypeAlias = "str | Reply | Message | Exception | Pause | list[Delta] | Callable[[Prompt], Step]"


def say(text: str, *, usage: Usage | None = None, thinking: str = "") -> Reply:
    parts = (*((Thinking(thinking),) if thinking else ()), Text(text))
    return Reply(Message("assistant", parts), usage=usage or Usage())


def call(name: str, id: str = "", *, saying: str = "", parallel: bool = True, **arguments: object) -> Reply:
    """A reply that calls one tool. Join several with `calls`."""
    parts = (*((Text(saying),) if saying else ()), ToolCall(id or f"call-{name}", name, arguments, parallel=parallel))
    return Reply(Message("assistant", parts), stop="calls")


def calls(*replies: Reply) -> Reply:
    """One reply that makes the calls of several."""
    parts = tuple(part for reply in replies for part in reply.message.parts)
    return Reply(Message("assistant", parts), stop="calls")


class Scripted:
    """Answers with its steps, in order. `prompts` keeps what it was asked."""

    def __init__(self, *steps: Step, name: str = "scripted:test", facts: ModelFacts | None = None) -> None:
        self._steps = list(steps)
        self._next = 0
        self.name = name
        self.facts = facts or ModelFacts(images=True)
        self.prompts: list[Prompt] = []

    async def stream(self, prompt: Prompt) -> AsyncIterator[Delta]:
        self.prompts.append(prompt)
        if self._next >= len(self._steps):
            raise ScriptError(f"{self.name} was asked {self._next + 1} times, the script has {len(self._steps)} steps")
        step = self._steps[self._next]
        self._next += 1
        while callable(step) and not isinstance(step, (Pause, Reply, Message)):
            step = cast("Callable[[Prompt], Step]", step)(prompt)
        if isinstance(step, Pause):
            async for delta in _paused(step):
                yield delta
            return
        for delta in _deltas(step):
            yield delta

    def add(self, *steps: Step) -> None:
        self._steps.extend(steps)

    @property
    def left(self) -> int:
        return len(self._steps) - self._next

    def check_done(self) -> None:
        """Raises when steps are left over."""
        if self.left:
            raise ScriptError(f"{self.name} was asked {self._next} times, the script has {len(self._steps)} steps")


async def _paused(step: Pause) -> AsyncIterator[Delta]:
    yield ReplyStarted("scripted")
    yield PartStarted(0, Text(""))
    yield PartDelta(0, step.before)
    await step.wait()
    yield PartDelta(0, step.after)
    yield PartFinished(0, Text(step.before + step.after))
    yield ReplyFinished()


def _deltas(step: Step) -> Iterable[Delta]:
    if isinstance(step, Exception):
        raise step
    if isinstance(step, list):
        return cast("list[Delta]", step)
    if isinstance(step, str):
        step = say(step)
    if isinstance(step, Message):
        step = Reply(step, stop="calls" if step.calls else "end")
    return deltas_of(cast(Reply, step))


def load_scripts(path: str | Path) -> dict[str, Scripted]:
    """Answers per agent from a YAML file: `{agent: [answer, …]}`, as an engine for each agent."""
    import yaml

    data = yaml.safe_load(read_regular(Path(path), SCRIPT_BYTES_MAX).decode("utf-8"))
    if not isinstance(data, dict):
        raise RondelError(f"{path}: expected a mapping of agents to lists of answers")
    scripts: dict[str, Scripted] = {}
    for agent, answers in cast("dict[str, object]", data).items():
        steps = [_step_from(item, str(path)) for item in cast("list[object]", answers)]
        scripts[agent] = Scripted(*steps, name=f"scripted:{agent}")
    return scripts


def _step_from(item: object, path: str) -> Step:
    if isinstance(item, str):
        return item
    if isinstance(item, dict):
        fields = cast("dict[str, object]", item)
        unknown = set(fields) - {"call", "arguments", "say"}
        if unknown:
            raise RondelError(
                f"{path}: unknown key {min(unknown)!r}{nearest(min(unknown), ['call', 'arguments', 'say'])}"
            )
        if "call" in fields:
            arguments = cast("dict[str, object]", fields.get("arguments") or {})
            message = call(str(fields["call"])).message
            tool_call = ToolCall(message.calls[0].id, message.calls[0].name, dict(arguments))
            return Message("assistant", (*((Text(str(fields["say"])),) if "say" in fields else ()), tool_call))
        return str(fields.get("say", ""))
    raise RondelError(f"{path}: an answer is a text, or {{call: name, arguments: {{…}}}}; found {item!r}")


def _told(message: Message) -> Iterable[str]:
    """What a message says, with its attachments: as text where they are text, else by their names."""
    if message.text or all(not isinstance(part, Media) for part in message.parts):
        yield message.text
    for part in message.parts:
        if isinstance(part, Media):
            yield as_text(part) or f"[{part.kind} {part.name or part.url or part.mime}]"


class Echo:
    """Repeats the last message, word by word, and counts only the words of that one. Needs no model, no key and no
    network."""

    def __init__(self, name: str = "echo") -> None:
        self.name = name
        self.facts = ModelFacts(tools=True)

    async def stream(self, prompt: Prompt) -> AsyncIterator[Delta]:
        asked = next((message for message in prompt.newest_first() if message.role == "user"), None)
        text = "\n".join(_told(asked)) if asked else ""
        yield ReplyStarted("echo")
        yield PartStarted(0, Text(""))
        words = text.split(" ")
        for index, word in enumerate(words):
            yield PartDelta(0, word if index == len(words) - 1 else word + " ")
        yield PartFinished(0, Text(text))
        yield ReplyFinished("end", Usage(tokens_in=len(words), tokens_out=len(words)))


class WordEmbedder:
    """An embedder whose texts are near each other if they share words. `texts` are those that it was given."""

    def __init__(self, dimensions: int = 64, *, name: str = "test:words") -> None:
        self.name, self.dimensions = name, dimensions
        self.texts: list[str] = []

    async def embed(self, texts: Sequence[str]) -> Embedded:
        self.texts += texts
        words = [re.findall(r"\w+", text.lower()) for text in texts]
        return Embedded([self._vector(found) for found in words], Usage(tokens_in=sum(map(len, words))), self.name)

    def _vector(self, words: list[str]) -> Vector:
        counts = [0.0] * self.dimensions
        for word in words:
            counts[zlib.crc32(word.encode()) % self.dimensions] += 1.0
        length = math.sqrt(sum(count * count for count in counts)) or 1.0
        return array("f", [count / length for count in counts])


ImageStep: TypeAlias = "Exception | Pause | bytes | None"
"""An error to raise, a pause to wait for, the bytes of a picture, or None to draw one."""


class ScriptedImages:
    """An image engine that plays its steps, and then draws real PNG files, whose colours come from the prompts.
    `requests` keeps what it was asked; `usage` is what each call reports."""

    def __init__(self, *steps: ImageStep, name: str = "test:images", usage: Usage | None = None) -> None:
        self.name, self.usage = name, Usage(10, 1_056) if usage is None else usage
        self.requests: list[ImageRequest] = []
        self._steps = list(steps)

    async def generate(self, request: ImageRequest) -> GeneratedImages:
        self.requests.append(request)
        step = self._steps.pop(0) if self._steps else None
        if isinstance(step, Exception):
            raise step
        if isinstance(step, Pause):
            await step.wait()
        drawn = step if isinstance(step, bytes) else draw_png(request.size, request.prompt)
        mime = image_type(drawn)
        names = (image_name(request.prompt, mime, number) for number in range(request.count))
        images = tuple(Media("image", mime, drawn, name=name) for name in names)
        return GeneratedImages(images, self.usage, self.name.partition(":")[2])
