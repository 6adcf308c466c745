"""What a bot is working on, for people and for models."""

from __future__ import annotations

from collections.abc import Mapping

from ...values import Person, Value
from .delivery import REQUEST, Delivery
from .mentions import tidy_name


class ActiveTask(Value, frozen=True):
    """Work in progress in a channel. `subject` describes it in words that everyone may read."""

    message: int
    person: Person
    subject: str
    is_private: bool
    started_at: float
    state: str


class Active:
    def __init__(self, deliveries: Mapping[int, Delivery]) -> None:
        self._deliveries = deliveries

    def tasks(self, channel: int = 0) -> list[ActiveTask]:
        """Return what is being worked on, in one channel or in all."""
        return [
            ActiveTask(
                one.pending.message,
                one.pending.person,
                one.subject,
                one.pending.is_private,
                one.started_at,
                one.fold.state,
            )
            for one in self._deliveries.values()
            if channel in (0, one.channel.id)
        ]

    def lines(self, channel: int, person: int) -> list[str]:
        """Return what a model is told about the work in a channel when this person speaks."""
        lines: list[str] = []
        for task in self.tasks(channel):
            name, about = tidy_name(task.person.name), task.subject
            if task.is_private:
                lines.append(f"Working on a private request for {name}.")
            elif task.person.id != str(person):
                lines.append(f"Working on {'a request' if about == REQUEST else about} for {name}.")
            elif task.state == "waiting":
                lines.append("Your request waits for an answer to a question.")
            else:
                lines.append("Your request is still running" + ("." if about == REQUEST else f": {about}."))
        return lines
