"""What a person sees of a turn: events in, lines out. Finished things are printed once and scroll away; what is still
running is `live`, a few lines that the surface redraws.

Writes only to a rich console. Text from a model or a tool is cleaned before it is printed, and never read as markup.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeAlias, get_args

import msgspec
from rich.console import Console, RenderableType
from rich.text import Text

from ...charge import Charge
from ...events import (
    CallFinished,
    CallHeld,
    CallProgressed,
    CallStarted,
    Event,
    HandedOff,
    JobChanged,
    JobFinished,
    JobStarted,
    LimitHit,
    MessageAdded,
    MessageQueued,
    Nested,
    Outcome,
    PluginFailed,
    QuestionAnswered,
    RoundFinished,
    RoundStarted,
    SpendingWarned,
    Trimmed,
    TurnFinished,
    TurnStarted,
    TurnsUndone,
    UsageRecorded,
    Warned,
)
from ...files.media import image_type
from ...ledger.spending import cost_line
from ...text.citations import label_of, source_key, sources_of
from ...text.printable import clean, one_line
from ...values import Citation, Media, Notice, PartDelta, PartFinished, PartStarted, Thinking, ToolCall, ToolResult
from ...values import Text as TextPart
from .markdown import MarkdownStream, split

BlockKind: TypeAlias = Literal["", "text", "call", "note", "person"]

RESULT_LINES_MAX = 4
RESULT_CHARS_MAX = 1_000  # the most of one line of a result; the console cuts it to its own width
LINK_CHARS_MAX = 2_000
LIVE_LINES_MAX = 80  # a longer block is shown as plain text while it grows, because redrawing must stay cheap
SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
SPINS_PER_S = 8
SHOWN: tuple[type[Event], ...] = get_args(Event)
"""The screen gets every event, and ignores those that change nothing on it."""


class _Running(msgspec.Struct):
    name: str
    arguments: Mapping[str, Any]
    agent: str
    depth: int
    started_at: float
    progress: str = ""


class Screen:
    def __init__(self, console: Console, *, now: Callable[[], float], rich: bool = True, person: str = "") -> None:
        self.console = console
        self.thinking = False  # show the model's thinking; otherwise one line says how long it took
        self.costs = False  # print tokens and cost after each turn
        self.working = False
        self._working_since: float | None = None
        self._charges: list[Charge] = []
        self._now = now
        self._rich = rich
        self._person = person
        self._last: BlockKind = ""
        self._line_open = False
        self._calls: dict[str, ToolCall] = {}
        self._interrupted = ""
        """The start of a sentence that a call interrupted. It is not shown again when the sentence continues."""
        self._reset_turn()

    def _reset_turn(self) -> None:
        self._running: dict[str, _Running] = {}
        self._reset_reply()

    def _reset_reply(self) -> None:
        self._text = MarkdownStream()
        self._streamed: list[str] = []
        self._cited: list[TextPart] = []
        self._parts: dict[int, object] = {}
        self._part_chars: dict[int, int] = {}
        self._thoughts: list[str] = []
        self._thinking_since: float | None = None

    # --- events -------------------------------------------------------------------------------------------------------

    def show(self, event: Event) -> None:
        if type(event) is PartDelta:
            self._part_delta(event)
        elif (charge := charge_in(event)) is not None:
            self._charges.append(charge)
        elif isinstance(event, (PartStarted, PartFinished)):
            self._part_changed(event)
        elif isinstance(event, Nested):
            self._nested(event, 1)
        elif isinstance(event, (CallStarted, CallFinished, CallProgressed, CallHeld)):
            self._call_changed(event, "", 0)
        elif isinstance(event, (TurnStarted, RoundStarted, RoundFinished, TurnFinished)):
            self._progressed(event)
        else:
            self._noted(event)

    def _progressed(self, event: TurnStarted | RoundStarted | RoundFinished | TurnFinished) -> None:
        match event:
            case TurnStarted():
                self._reset_turn()
                self.working, self._working_since = True, self._now()
            case RoundStarted():
                self._reset_reply()
            case RoundFinished():
                self._round_finished(event)
            case TurnFinished():
                self._turn_finished(event)

    def _round_finished(self, event: RoundFinished) -> None:
        self._finish_thinking()
        self._print_blocks(self._text.finish())
        if event.next == "again":
            self._end_line()
            self._reset_reply()
            self.note("The reply was discarded; asking the model again.")
            return
        streamed, said = "".join(self._streamed), event.message.text
        self._interrupted = "" if said else streamed
        if said and said != streamed:
            if streamed:
                self.note("A plugin changed the reply to:")
            self._print_text(clean(said))
        self._end_line()
        self._reset_reply()
        self._print_sources(sources_of(event.message.parts))
        self.learn(event.message.calls)
        if not event.ran:
            self.note("The prompt was empty, so no model was called.")
        elif event.stop == "length":
            self.note("The model reached its token limit and stopped.", "yellow")
        elif event.stop == "refusal" and not said:
            self.note("The model refused to answer.", "yellow")

    def learn(self, calls: Iterable[ToolCall]) -> None:
        """Remember the arguments of calls: a denied call never starts, but is shown."""
        self._calls.update({call.id: call for call in calls})

    def _turn_finished(self, event: TurnFinished) -> None:
        self._finish_thinking()
        self._print_blocks(self._text.finish())
        self._end_line()
        self._reset_turn()
        self.working = False
        if event.outcome is Outcome.FAILED:
            failure = event.failure
            self.note(f"✗ {failure.message if failure else 'The turn failed.'}", "red")
        elif event.outcome is Outcome.STOPPED:
            self.note("Stopped.", "yellow")
        if self.costs and (line := cost_line(self._charges)):
            self.note(line)
        self._charges.clear()

    def _noted(self, event: Event) -> None:
        match event:
            case Notice(text=text):
                self.note(text)
            case LimitHit(message=message):
                self.note(f"Limit reached: {message}", "yellow")
            case PluginFailed(plugin=plugin, hook=hook, message=message):
                self.note(f"The plugin {plugin} failed in {hook} and was skipped: {message}", "yellow")
            case Trimmed(messages=count):
                self.note(f"Left out the oldest {count} messages, which exceed the model's context window.")
            case HandedOff(agent=agent, reason=reason):
                self.note(f"→ {agent} takes over{f': {reason}' if reason else ''}")
            case QuestionAnswered(answer=answer) if answer.by == "deadline":
                self.note(f"No answer in time; it counts as {answer.text or 'no answer'!r}.", "yellow")
            case JobStarted(job=job, name=name):
                self.note(f"{one_line(name, 64)} is running in the background as job {job}.")
            case JobChanged(job=job, status="running", text=text) if text:
                self.note(f"{job}: {one_line(text, 200)}")
            case JobFinished(digest=digest):
                self.note(one_line(digest.line, 200), "" if digest.success else "yellow")
            case SpendingWarned(message=message):
                self.note(message, "yellow")
            case TurnsUndone(by=by) if by != self._person:
                self.note("The last turn was undone elsewhere and no longer counts.", "yellow")
            case Warned(plugin=plugin, message=message):
                self.note(f"{plugin}: {message}", "yellow")
            case MessageAdded(message=message) | MessageQueued(message=message) if (
                message.role == "user" and message.shown and message.author not in ("", self._person)
            ):
                self.note(f"{message.author.removeprefix('plugin:')}: {one_line(message.text, 400)}")
            case _:
                pass

    # --- a reply while it streams -------------------------------------------------------------------------------------

    def _part_changed(self, event: PartStarted | PartFinished) -> None:
        part = event.part
        if isinstance(event, PartStarted):
            self._parts[event.index] = part
            self._part_chars[event.index] = 0
            if isinstance(part, Thinking):
                self._thinking_since = self._now()
            elif isinstance(part, TextPart):
                self._finish_thinking()
            if isinstance(part, TextPart) and part.text and part.text == self._interrupted:
                self._part_chars[event.index] = len(part.text)
                self._streamed.append(part.text)
            elif isinstance(part, (Thinking, TextPart)) and part.text:
                self._part_delta(PartDelta(event.index, part.text))
            return
        if isinstance(part, (Thinking, TextPart)):
            self._part_delta(PartDelta(event.index, part.text[self._part_chars.get(event.index, 0) :]))
        if isinstance(part, Thinking):
            self._finish_thinking()
        elif isinstance(part, TextPart):
            if marks := self._marks(part):
                self._print_blocks(self._text.feed(marks)) if self._rich else self._write(marks)
            self._print_blocks(self._text.finish())
            self._end_line()

    def _marks(self, part: TextPart) -> str:
        """Return the markers of a provider's citations, whose text has none."""
        if not any(not citation.number for citation in part.citations):
            return ""
        self._cited.append(part)
        own = {source_key(citation) for citation in part.citations if not citation.number}
        numbers = [source.number for source in sources_of(self._cited) if source_key(source) in own]
        return "".join(f" [{number}]" for number in numbers)

    def _print_sources(self, sources: tuple[Citation, ...]) -> None:
        if not sources:
            return
        self._gap("note")
        for source in sources:
            line = Text.assemble((f"[{source.number}] ", "dim"), (clean(label_of(source)), _link(source.url)))
            if source.address:
                line.append(f"  {one_line(source.address, 200)}", "dim")
            self.console.print(line)

    def _part_delta(self, event: PartDelta) -> None:
        part, text = self._parts.get(event.index), clean(event.text)
        self._part_chars[event.index] = self._part_chars.get(event.index, 0) + len(event.text)
        if isinstance(part, Thinking):
            self._thoughts.append(text)
        elif isinstance(part, TextPart):
            self._streamed.append(event.text)
            if self._rich:
                self._print_blocks(self._text.feed(text))
            else:
                self._write(text)

    def _finish_thinking(self) -> None:
        if self._thinking_since is None:
            return
        seconds, text = self._now() - self._thinking_since, "".join(self._thoughts).strip()
        self._thinking_since, self._thoughts = None, []
        if self.thinking and text:
            self.note(text)
        elif text or seconds >= 1:
            words = f", {len(text.split()):,} words" if text else ""
            self.note(f"Thought for {_seconds(seconds)}{words}.")

    def _print_text(self, text: str) -> None:
        if self._rich:
            self._print_blocks(split(text))
        elif text.strip():
            self._write(text)

    def _print_blocks(self, blocks: list[str]) -> None:
        for block in blocks:
            self._gap("text")
            self.console.print(_block(block), end="")

    def _write(self, text: str) -> None:
        if not self._line_open:
            self._gap("text")
        self._line_open = not text.endswith("\n")
        self.console.print(Text(text), end="", soft_wrap=True)

    def _end_line(self) -> None:
        if self._line_open:
            self.console.print()
            self._line_open = False

    # --- calls --------------------------------------------------------------------------------------------------------

    def _nested(self, nested: Nested, depth: int) -> None:
        """Show the calls of an agent that runs inside a call. Its text is the call's result."""
        event = nested.event
        if isinstance(event, Nested):
            self._nested(event, depth + 1)
        elif isinstance(event, RoundFinished):
            self.learn(event.message.calls)
        elif isinstance(event, (CallStarted, CallFinished, CallProgressed)):
            self._call_changed(event, nested.agent, depth)
        elif isinstance(event, (Notice, LimitHit, PluginFailed)):
            self._noted(event)

    def _call_changed(
        self, event: CallStarted | CallFinished | CallProgressed | CallHeld, agent: str, depth: int
    ) -> None:
        if isinstance(event, CallStarted):
            self._running[event.call_id] = _Running(event.name, event.arguments, agent, depth, self._now())
        elif isinstance(event, CallFinished):
            self._call_finished(event, agent, depth)
        elif isinstance(event, CallProgressed):
            if running := self._running.get(event.call_id):
                running.progress = one_line(event.text, 200)
        else:
            self._running.pop(event.question.call_id, None)

    def _call_finished(self, event: CallFinished, agent: str, depth: int) -> None:
        result = event.result
        running = self._running.pop(result.call_id, None)
        call = self._calls.pop(result.call_id, None)
        name = running.name if running else call.name if call else result.name
        arguments = running.arguments if running else call.arguments if call else {}
        mark, style = ("✗", "red") if result.is_error else ("✓", "green")
        head = Text.assemble((f"{mark} ", style), self._call_text(name, arguments, agent, depth + 1))
        head.append(f" · {_seconds(event.seconds)}", "dim")
        self._end_line()
        self._gap("call")
        self._indented(head, depth)
        if result.final and not result.is_error:
            self._print_text(clean(result.text))
            self._end_line()
        elif shown := self._result_text(result):
            self._indented(Text(shown, "red" if result.is_error else "dim"), depth + 1)
        for part in result.parts:
            if isinstance(part, Media) and part.kind == "image" and part.data:
                self._picture(part, depth + 1)

    def _picture(self, picture: Media, depth: int) -> None:
        """Show a picture; where the terminal cannot, save it and show a link to the file."""
        from .pictures import picture_for, protocol_of, save_picture

        if not image_type(picture.data):
            return
        if self.console.is_terminal and (shown := picture_for(picture.data, protocol_of(os.environ))) is not None:
            self.console.print(shown)
            return
        try:
            path = save_picture(picture)
        except OSError as error:
            self._indented(Text(clean(f"The picture could not be saved: {error}"), "yellow"), depth)
            return
        self._indented(Text("Saved ", "dim").append(str(path), f"link {path.as_uri()}"), depth)

    def _result_text(self, result: ToolResult) -> str:
        lines = [line.expandtabs(4) for line in clean(result.text).strip().split("\n") if line.strip()]
        shown = [line[:RESULT_CHARS_MAX] for line in lines[:RESULT_LINES_MAX]]
        if len(lines) > RESULT_LINES_MAX:
            shown.append(f"… {len(lines) - RESULT_LINES_MAX:,} more lines")
        media = sum(not isinstance(part, TextPart) for part in result.parts)
        return "\n".join((*shown, *((f"({media} file(s) or image(s))",) if media else ())))

    def _call_text(self, name: str, arguments: Mapping[str, Any], agent: str, depth: int) -> Text:
        """Return `name(a=1, b="x")`, cut to the line."""
        written = ", ".join(
            f"{key}={msgspec.json.encode(value, enc_hook=str).decode()}" for key, value in arguments.items()
        )
        room = max(24, self.console.width - 2 * depth - len(name) - len(agent) - 18)
        text = Text(f"{one_line(agent, 30)} › " if agent else "", "dim")
        text.append(one_line(name, 70), "bold")
        return text.append(f"({one_line(written, room)})")

    def _indented(self, text: Text, depth: int) -> None:
        for line in text.split("\n"):
            self.console.print(Text("  " * depth).append_text(line), no_wrap=True, overflow="ellipsis")

    # --- other lines --------------------------------------------------------------------------------------------------

    def note(self, text: str, style: str = "dim") -> None:
        self._end_line()
        self._gap("note")
        self.console.print(Text(clean(text), style))

    def echo(self, text: str) -> None:
        self._end_line()
        self._gap("person")
        self.console.print(Text.assemble(("› ", "bold cyan"), (clean(text), "bold")))

    def print(self, renderable: RenderableType) -> None:
        self._end_line()
        self._gap("note")
        self.console.print(renderable)

    def _gap(self, kind: BlockKind) -> None:
        """Print an empty line between different kinds of things, and around every block of text."""
        if self._last and (self._last != kind or kind in ("text", "person")):
            self.console.print()
        self._last = kind

    # --- what is still running ----------------------------------------------------------------------------------------

    def live(self) -> list[RenderableType]:
        """Return what is not finished: the open block, running calls, or a sign that the agent is working."""
        if not self.working:
            return []
        shown: list[RenderableType] = []
        if self._thinking_since is not None:
            shown.append(self._live_thinking(self._thinking_since))
        if open_text := self._text.open.strip("\n"):
            lines = open_text.split("\n")
            shown.append(
                _block(open_text) if len(lines) <= LIVE_LINES_MAX else Text("\n".join(lines[-LIVE_LINES_MAX:]))
            )
        shown += [self._live_call(running) for running in self._running.values()]
        return shown or [Text(f"{self._spin()} working … {self.elapsed}".rstrip(), "dim")]

    @property
    def elapsed(self) -> str:
        """How long the turn has been working, such as `12 s`; empty during the first second."""
        seconds = 0 if self._working_since is None else int(self._now() - self._working_since)
        return "" if seconds < 1 else f"{seconds} s" if seconds < 60 else f"{seconds // 60} min {seconds % 60} s"

    def _live_thinking(self, since: float) -> Text:
        text = "".join(self._thoughts)
        if self.thinking and text.strip():
            return Text(text, "dim")
        return Text(f"{self._spin()} thinking … {len(text.split()):,} words, {self._now() - since:.0f} s", "dim")

    def _live_call(self, running: _Running) -> Text:
        text = Text.assemble("  " * running.depth, (f"{self._spin()} ", "cyan"))
        text.append_text(self._call_text(running.name, running.arguments, running.agent, running.depth + 1))
        text.append(f" {self._now() - running.started_at:.0f} s", "dim")
        if running.progress:
            text.append(f" {running.progress}", "dim")
        return text

    def _spin(self) -> str:
        return SPINNER[int(self._now() * SPINS_PER_S) % len(SPINNER)]


def _block(text: str) -> RenderableType:
    from .block import Block

    return Block(text)


def _link(url: str) -> str:
    """Return a style that makes a text clickable where the terminal can; plain for an unsafe address."""
    safe = url.startswith(("http://", "https://")) and url.isascii() and url.isprintable() and " " not in url
    return f"link {url}" if safe and len(url) < LINK_CHARS_MAX else ""


def _seconds(seconds: float) -> str:
    from ...trace.text import seconds_text  # not needed to start a chat

    return seconds_text(seconds)


def charge_in(event: Event) -> Charge | None:
    while isinstance(event, Nested):
        event = event.event
    return event.charge if isinstance(event, UsageRecorded) else None
