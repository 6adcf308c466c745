"""A server's questions in the middle of a call: a form or a link for a person (elicitation), or a model (sampling).

Each becomes a question of the turn that made the call. The call is abandoned meanwhile, and repeated with the answers:
the protocol of 2026-07-28 is designed for that (the server gives a state to come back with), and an older server gets
the same answers when it asks the same again. So a question costs nothing while it waits, and survives a restart.
"""

from __future__ import annotations

import hashlib
from typing import Any, cast

import msgspec

from ..engine import ask
from ..errors import RondelError
from ..prompt import Prompt
from ..question import NO, NOT_A_PERSON, QUOTE_BAR, YES, Answer, Hold, Question, is_yes
from ..text.printable import visible_line, visible_lines
from ..tool import CallContext
from ..values import Message, Options, Text
from .spec import ServerSpec

NAMESPACE = "mcp-calls"
KEPT_S = 30 * 86_400.0  # how long a call that waits for an answer can be repeated
ROUNDS_MAX = 20  # questions of one call
FIELDS_MAX = 20
ATTEMPTS_MAX = 3  # at one field
SHOWN_CHARS_MAX = 8_000
SAMPLED_CHARS_MAX = 32_000
TOKENS_MAX = 8_192
DECLINE = ("decline", "cancel")
LEAVE_OUT = "-"

Json = dict[str, Any]


class ServerRequest(msgspec.Struct):
    """A request of the server: `elicitation/create` or `sampling/createMessage`."""

    method: str
    params: Json

    @property
    def digest(self) -> str:
        given = {key: value for key, value in self.params.items() if key not in ("_meta", "elicitationId")}
        return hashlib.sha256(msgspec.json.encode((self.method, given), order="deterministic")).hexdigest()


class Given(msgspec.Struct):
    """The response to a request of an older server, in case it asks the same again."""

    digest: str
    response: Json


class Waiting(msgspec.Struct):
    """What is needed to repeat a call that waits for a person. Stored with the call's key."""

    round: int = 0
    state: str | None = None
    requests: dict[str, ServerRequest] = {}
    given: list[Given] = []


class Declined(Exception):
    """The request cannot be answered; the message says why, for the server."""


class Asker:
    """Answers a server's requests during one call, or returns the question that a person must answer first."""

    def __init__(self, spec: ServerSpec, context: CallContext, waiting: Waiting) -> None:
        self.spec, self._context, self.waiting = spec, context, waiting
        self._replayed = set(range(len(waiting.given)))  # the indexes of the responses that the server has got

    @classmethod
    async def open(cls, spec: ServerSpec, context: CallContext) -> Asker:
        kept = await context.turn.services.store.get(NAMESPACE, context.key) if context.answer is not None else None
        return cls(spec, context, msgspec.json.decode(kept, type=Waiting) if kept else Waiting())

    async def save(self) -> None:
        turn = self._context.turn
        data = msgspec.json.encode(self.waiting)
        await turn.services.store.put(NAMESPACE, self._context.key, data, until=turn.now() + KEPT_S)

    async def close(self) -> None:
        if self._context.answer is not None:
            await self._context.turn.services.store.remove(NAMESPACE, self._context.key)

    def next_round(self, requests: dict[str, ServerRequest], state: str | None) -> None:
        self.waiting.round += 1
        if self.waiting.round > ROUNDS_MAX:
            raise RondelError(f"the MCP server {self.spec.name!r} asked more than {ROUNDS_MAX} times in one call")
        self.waiting.requests, self.waiting.state = requests, state

    @property
    def conversation(self) -> str:
        return self._context.turn.conversation

    def begin_again(self) -> None:
        """Give every earlier response once more."""
        self._replayed.clear()
        self.waiting.requests = {}

    async def respond(self, request: ServerRequest) -> Json | Hold:
        """Return the response to a request, or the question that a person must answer first. Raises Declined."""
        if request.method == "elicitation/create":
            return self._elicited(request)
        return await self._sampled(request)

    def replay(self, request: ServerRequest) -> Json | None:
        """Return the earlier response to the same request; each is used once."""
        for index, given in enumerate(self.waiting.given):
            if given.digest == request.digest and index not in self._replayed:
                self._replayed.add(index)
                return given.response
        return None

    def remember(self, request: ServerRequest, response: Json) -> None:
        self._replayed.add(len(self.waiting.given))
        self.waiting.given.append(Given(request.digest, response))

    # --- elicitation --------------------------------------------------------------------------------------------------

    def _elicited(self, request: ServerRequest) -> Json | Hold:
        params = request.params
        message = str(params.get("message", ""))
        if params.get("mode") == "url":
            return self._link(request, message, str(params.get("url", "")))
        schema = params.get("requestedSchema")
        fields = cast("Json", schema).get("properties") if isinstance(schema, dict) else None
        if not isinstance(fields, dict) or len(cast(Json, fields)) > FIELDS_MAX:
            return {"action": "cancel"}
        required = cast("list[Any]", cast(Json, schema).get("required") or [])
        content: Json = {}
        for name, field in cast("Json", fields).items():
            known = cast(Json, field) if isinstance(field, dict) else {}
            value = self._field(request, message, name, known, name in required)
            if isinstance(value, Hold):
                return value
            if value is _REFUSED:
                return {"action": "decline"}
            if value is _GONE:
                return {"action": "cancel"}
            if value is not _LEFT_OUT:
                content[name] = value
        if not fields:
            return self._confirm(request, message)
        return {"action": "accept", "content": content}

    def _field(self, request: ServerRequest, message: str, name: str, field: Json, needed: bool) -> Any:
        options = _options(field)
        wrong = ""
        for attempt in range(ATTEMPTS_MAX):
            id = self._id(request, f"{name}:{attempt}")
            answer = self._answer(id)
            if answer is None:
                return self._ask(id, message, _wanted(name, field, needed), wrong, options)
            if answer.by in NOT_A_PERSON:
                return _GONE
            text = answer.text.strip()
            if text.casefold() in DECLINE:
                return _REFUSED
            if not needed and text in ("", LEAVE_OUT):
                return _LEFT_OUT
            try:
                return _parsed(text, field)
            except ValueError as error:
                wrong = f"{visible_line(text[:80])!r} is not possible: {error}. "
        return _GONE

    def _confirm(self, request: ServerRequest, message: str) -> Json | Hold:
        id = self._id(request, "confirm")
        answer = self._answer(id)
        if answer is None:
            return self._ask(id, message, "Do you agree?", "", (YES, NO))
        if answer.by in NOT_A_PERSON:
            return {"action": "cancel"}
        return {"action": "accept", "content": {}} if is_yes(answer.text) else {"action": "decline"}

    def _link(self, request: ServerRequest, message: str, url: str) -> Json | Hold:
        if not url.startswith(("https://", "http://127.0.0.1", "http://localhost")):
            return {"action": "decline"}
        id = self._id(request, "link")
        answer = self._answer(id)
        if answer is None:
            wanted = f"It wants you to open this address, outside of this chat: {visible_line(url[:2_000])}\nAgree?"
            return self._ask(id, message, wanted, "", (YES, NO))
        if answer.by in NOT_A_PERSON:
            return {"action": "cancel"}
        return {"action": "accept"} if is_yes(answer.text) else {"action": "decline"}

    def _ask(self, id: str, message: str, wanted: str, wrong: str, options: tuple[str, ...]) -> Hold:
        # With the bar, no text of the server can look like a sentence of ours.
        said = "\n".join(f"{QUOTE_BAR}{line}" for line in visible_lines(message[:SHOWN_CHARS_MAX]))
        text = f"The MCP server {self.spec.name} asks:\n{said}\n{wrong}{wanted} (answer 'decline' to refuse)"
        options = tuple(option for option in options if option == visible_line(option))
        return Hold(
            Question(id, "choose" if options else "ask", text, options, True, self._context.call.id, None, "cancel")
        )

    def _id(self, request: ServerRequest, step: str) -> str:
        return f"mcp:{self._context.call.id}:{self.waiting.round}:{request.digest[:12]}:{step}"

    def _answer(self, id: str) -> Answer | None:
        return self._context.turn.answer_to(self._context.call.id, id)

    # --- sampling -----------------------------------------------------------------------------------------------------

    async def _sampled(self, request: ServerRequest) -> Json | Hold:
        if not self.spec.sampling:
            raise Declined("sampling is turned off for this server")
        prompt, shown = _prompt_of(request.params)
        id = self._id(request, "sample")
        answer = self._answer(id)
        if answer is None:
            lines = "\n".join(f"{QUOTE_BAR}{line}" for line in visible_lines(shown))
            engine = visible_line(self._context.turn.engine.name)
            text = f"May the MCP server {self.spec.name} ask {engine} this, at your cost?\n{lines}"
            call = self._context.call.id
            return Hold(Question(id, "approve", text, (YES, NO), False, call, None, NO))
        if answer.by in NOT_A_PERSON or not is_yes(answer.text):
            raise Declined("the user refused the request")
        return await self._complete(prompt)

    async def _complete(self, prompt: Prompt) -> Json:
        reply = await ask(self._context.turn.engine_named("", kind="sampling"), prompt)
        return {
            "role": "assistant",
            "content": {"type": "text", "text": reply.text},
            "model": reply.model or "unknown",
            "stopReason": "maxTokens" if reply.stop == "length" else "endTurn",
        }


_REFUSED, _GONE, _LEFT_OUT = object(), object(), object()


def _wanted(name: str, field: Json, needed: bool) -> str:
    title = visible_line(str(field.get("title") or name)[:100])
    about = visible_line(str(field.get("description") or "")[:500])
    kind = str(field.get("type", "text")).replace("string", "text")
    optional = "" if needed else f"; optional, '{LEAVE_OUT}' leaves it out"
    return f"{title}{f': {about}' if about else ''} [{visible_line(kind[:20])}{optional}]"


def _options(field: Json) -> tuple[str, ...]:
    if field.get("type") == "boolean":
        return (YES, NO)
    if field.get("type") == "array":
        return ()
    found = field.get("enum")
    if not isinstance(found, list):
        choices = cast("list[Any]", field.get("oneOf") or [])
        found = [cast(Json, one).get("const") for one in choices if isinstance(one, dict)]
    return tuple(str(one)[:200] for one in cast("list[Any]", found)[:50])


def _parsed(text: str, field: Json) -> Any:
    """Return an answer as the field's type. Raises ValueError that says what would be right."""
    match field.get("type"):
        case "boolean":
            return is_yes(text)
        case "integer":
            return _in_range(_number(text, int, "a whole number"), field)
        case "number":
            return _in_range(_number(text, float, "a number"), field)
        case "array":
            return [part.strip() for part in text.split(",") if part.strip()]
        case _:
            options = _options(field)
            if options and text not in options:
                near = {option.casefold(): option for option in options}
                if text.casefold() not in near:
                    raise ValueError(f"choose one of: {', '.join(options)}")
                return near[text.casefold()]
            low, high = field.get("minLength"), field.get("maxLength")
            if isinstance(low, int) and len(text) < low:
                raise ValueError(f"give at least {low} characters")
            if isinstance(high, int) and len(text) > high:
                raise ValueError(f"give at most {high} characters")
            return text


def _number(text: str, kind: type[int] | type[float], what: str) -> int | float:
    try:
        return kind(text)
    except (ValueError, OverflowError):
        raise ValueError(f"give {what}") from None


def _in_range(value: float, field: Json) -> float:
    low, high = field.get("minimum"), field.get("maximum")
    if isinstance(low, (int, float)) and value < low:
        raise ValueError(f"give at least {low}")
    if isinstance(high, (int, float)) and value > high:
        raise ValueError(f"give at most {high}")
    return value


def _prompt_of(params: Json) -> tuple[Prompt, str]:
    """Return the prompt of a sampling request, and all of it as a text for the person who decides."""
    if params.get("tools"):
        raise Declined("tools in sampling are not supported")
    messages: list[Message] = []
    shown: list[str] = []
    if system := str(params.get("systemPrompt") or ""):
        messages.append(Message("system", (Text(system),)))
        shown.append(f"system: {system}")
    for item in cast("list[Json]", params.get("messages") or []):
        content = item.get("content")
        blocks = cast("list[Json]", content if isinstance(content, list) else [content])
        texts = [str(block.get("text", "")) for block in blocks if block.get("type") == "text"]
        if len(texts) != len(blocks):
            raise Declined("sampling supports text only")
        role = "assistant" if item.get("role") == "assistant" else "user"
        messages.append(Message(role, (Text("\n".join(texts)),)))
        shown.append(f"{role}: " + "\n".join(texts))
    text = "\n".join(shown)
    if not messages or len(text) > SAMPLED_CHARS_MAX:
        raise Declined(
            f"the request is empty, or longer than the {SAMPLED_CHARS_MAX:,} characters a person can approve"
        )
    wanted, heat = params.get("maxTokens"), params.get("temperature")
    tokens_max = min(wanted, TOKENS_MAX) if isinstance(wanted, int) and wanted > 0 else TOKENS_MAX
    temperature = float(heat) if isinstance(heat, (int, float)) else None
    return Prompt.of(*messages, options=Options(tokens_max=tokens_max, temperature=temperature)), text
