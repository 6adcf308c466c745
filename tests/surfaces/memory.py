"""The smallest surface: it keeps what it shows as lines of text."""

from __future__ import annotations

from collections.abc import Sequence

from rondel import App
from rondel.contracts.command import Command, Output
from rondel.contracts.surface import Level, Surface
from rondel.events import CallFinished, Event, TurnFinished
from rondel.question import Question
from rondel.surfaces.session import Session
from rondel.values import Message, PartFinished, Person, Text, ToolCall


class MemorySurface(Surface):
    person = Person("ann", "Ann", origin="test")
    shows = (PartFinished, CallFinished, TurnFinished)
    commands: Sequence[Command] = ()
    tips = (("in memory", "everything is forgotten"),)

    def __init__(self, app: App) -> None:
        self.session = Session(app, self)
        self.lines: list[str] = []
        self.events: list[Event] = []
        self.outputs: list[Output] = []
        self.working = False

    def show(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, PartFinished) and isinstance(event.part, Text):
            self.lines.append(event.part.text)
        elif isinstance(event, CallFinished):
            self.lines.append(event.result.text)
        elif isinstance(event, TurnFinished):
            self.lines.append(event.failure.message if event.failure is not None else event.reason)

    def show_output(self, output: Output) -> None:
        self.outputs.append(output)
        self.lines.append(str(output))

    def show_note(self, text: str, level: Level = "info") -> None:
        self.lines.append(text)

    def show_message(self, text: str) -> None:
        self.lines.append(text)

    def show_history(self, messages: Sequence[Message], open_calls: Sequence[ToolCall]) -> None:
        self.lines += [message.text for message in messages]

    def ask(self, question: Question) -> None:
        self.lines.append(question.text)

    def show_working(self, working: bool) -> None:
        self.working = working
