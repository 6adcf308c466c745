"""Prompts and replies that a dialect can carry without loss, for hypothesis.

What no wire format carries is left at its default: a message's id, author and duration, a call's `parallel`, a result's
name and `final`. What each one cannot carry besides is said at its strategy.
"""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from rondel.prompt import Prompt
from rondel.values import (
    Citation,
    Delta,
    Foreign,
    Media,
    Message,
    Opaque,
    Options,
    OutputSchema,
    Part,
    PartDelta,
    PartFinished,
    PartStarted,
    Reply,
    ReplyFinished,
    ReplyStarted,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    ToolSpec,
    Usage,
)

CHAT, RESPONSES, ANTHROPIC = "openai-chat", "openai-responses", "anthropic"
QUICK = settings(
    derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)

words = st.text('ab \n"\\{}<:é世🌍\u2028\0', min_size=1, max_size=12)
ids = st.text("abcXYZ019_-", min_size=1, max_size=8)
names = st.text("abcxyz_", min_size=1, max_size=8)
urls = st.sampled_from(["https://example.com/a.png", "https://example.com/ü?b=1", "http://127.0.0.1/x"])
blobs = st.binary(min_size=1, max_size=12)
counts = st.integers(0, 10**9)
scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | words | st.floats(-1e6, 1e6)
values = st.recursive(scalars, lambda v: st.lists(v, max_size=2) | st.dictionaries(words, v, max_size=2), max_leaves=2)
json_objects = st.dictionaries(words, values, max_size=2)
schemas = st.fixed_dictionaries(
    {"type": st.just("object"), "properties": st.dictionaries(names, json_objects, max_size=2)}
)
broken = st.sampled_from(["{oops", "[1]", '"text"', "nul"])
fractions = st.none() | st.floats(0, 1, width=16)


def kept(dialect: str, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Opaque]:
    """Opaque data of this dialect, or none."""
    some = st.fixed_dictionaries({}, optional=fields)
    return some.map(lambda kept: {dialect: kept} if kept else {})


def marks(dialect: str) -> st.SearchStrategy[Opaque]:
    """A cache mark, or a field that nobody knows yet."""
    return kept(dialect, cache_control=st.just({"type": "ephemeral"}), x_new=words | st.integers(0, 9))


def media(*shapes: st.SearchStrategy[Media]) -> st.SearchStrategy[Media]:
    return st.one_of(*shapes)


def calls(dialect: str, opaque: st.SearchStrategy[Opaque], *, may_break: bool) -> st.SearchStrategy[ToolCall]:
    whole = st.builds(ToolCall, ids, names, json_objects, opaque=opaque)
    return whole | st.builds(ToolCall, ids, names, broken=broken, opaque=opaque) if may_break else whole


CUSTOM_SCHEMA = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "The input, as plain text."}},
    "required": ["input"],
}


def tool_specs(dialect: str, server: dict[str, Any]) -> st.SearchStrategy[tuple[ToolSpec, ...]]:
    """Responses knows no tool that leaves strict mode open: none and False are the same there."""
    strict = st.none() | (st.just(True) if dialect == "openai-responses" else st.booleans())
    plain = st.builds(ToolSpec, names, st.just("") | words, schemas, strict, marks(dialect))
    schema = CUSTOM_SCHEMA if server["type"] == "custom" else {}
    foreign = st.just(ToolSpec(server.get("name", server["type"]), schema=schema, opaque={dialect: server}))
    return st.lists(plain | foreign, max_size=2).map(tuple)


@st.composite
def options(draw: st.DrawFn, **fields: st.SearchStrategy[Any]) -> Options:
    return Options(**{name: draw(strategy) for name, strategy in fields.items()})


choices = st.sampled_from([None, "auto", "none", "required", "tool:f"])
named_output = st.none() | st.builds(OutputSchema, schemas, names, st.just("") | words, st.none() | st.booleans())


@st.composite
def prompts_of(
    draw: st.DrawFn,
    dialect: str,
    messages: st.SearchStrategy[list[Message]],
    tools: st.SearchStrategy[tuple[ToolSpec, ...]],
    asked: st.SearchStrategy[Options],
) -> Prompt:
    """A prompt of plain messages. Without tools nobody chooses one."""
    offered, wanted = draw(tools), draw(asked)
    if not offered:
        wanted = msgspec.structs.replace(wanted, tool_choice=None, parallel_calls=None)
    opaque = draw(kept(dialect, service_tier=st.just("auto"), x_top=json_objects))
    return Prompt(tuple(draw(messages)), offered, wanted, draw(names), opaque)


def without_neighbours(messages: list[Message], *roles: str) -> list[Message]:
    """Messages of these roles that follow each other are one on the wire: only the first stays."""
    return [m for i, m in enumerate(messages) if i == 0 or m.role != messages[i - 1].role or m.role not in roles]


# --- Anthropic: no seed, no audio, no `minimal`, no name of an output; a limit of tokens; system messages have one text
# and lead, or were in the messages of a request; a url has no type, an image no name; texts are not blank.

A_TEXT = st.builds(Text, words.filter(str.strip), opaque=marks(ANTHROPIC))
A_MEDIA = media(
    st.builds(Media, st.just("image"), st.just("image/png"), blobs, opaque=marks(ANTHROPIC)),
    st.builds(Media, st.just("image"), url=urls),
    st.builds(Media, st.just("image"), file_id=ids),
    st.builds(Media, st.just("file"), st.just("application/pdf"), blobs, name=words, opaque=marks(ANTHROPIC)),
    st.builds(Media, st.just("file"), st.just("text/plain"), words.map(str.encode)),
    st.builds(Media, st.just("file"), url=urls, name=words),
    st.builds(Media, st.just("file"), file_id=ids),
)
A_THINKING = st.builds(Thinking, words, st.builds(lambda s: {ANTHROPIC: {"signature": s}}, words)) | st.builds(
    lambda data: Thinking(opaque={ANTHROPIC: {"type": "redacted_thinking", "data": data}}), words
)
A_SEARCH = st.builds(
    lambda text: Foreign({ANTHROPIC: {"type": "search_result", "source": "s", "title": text, "content": []}}), words
)
A_SERVER_CALL = st.builds(
    lambda i: Foreign({ANTHROPIC: {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": i}}),
    st.fixed_dictionaries({"query": words}),
)
A_CALL = calls(ANTHROPIC, kept(ANTHROPIC, caller=st.just({"type": "direct"})), may_break=False)
A_RESULT = st.builds(
    ToolResult,
    ids,
    st.lists(A_TEXT | A_MEDIA, max_size=2).map(tuple),
    is_error=st.booleans(),
    opaque=kept(ANTHROPIC, cache_control=st.just({"type": "ephemeral"})),
)
A_USER = st.builds(Message, st.just("user"), st.lists(A_TEXT | A_MEDIA | A_SEARCH, min_size=1, max_size=3).map(tuple))
A_ASSISTANT = st.builds(
    Message,
    st.just("assistant"),
    st.lists(A_THINKING | A_TEXT | A_CALL | A_SERVER_CALL, min_size=1, max_size=4).map(tuple),
)
A_TOOL = st.builds(Message, st.just("tool"), st.lists(A_RESULT, min_size=1, max_size=3).map(tuple))
A_LEADING = st.builds(Message, st.just("system"), A_TEXT.map(lambda t: (t,)))
A_IN_PLACE = st.builds(
    Message, st.just("system"), A_TEXT.map(lambda t: (t,)), opaque=st.just({ANTHROPIC: {"role": "system"}})
)
A_MESSAGES = st.builds(
    lambda leading, rest: leading + rest,
    st.lists(A_LEADING, max_size=2),
    st.lists(A_USER | A_ASSISTANT | A_TOOL | A_IN_PLACE, max_size=5),
)


@st.composite
def _anthropic_options(draw: st.DrawFn) -> Options:
    thinking = draw(st.sampled_from([None, "off", "low", "medium", "high"]))
    choice = draw(choices)
    return Options(
        tokens_max=draw(st.integers(1, 10**6)),
        temperature=draw(fractions),
        top_p=draw(fractions),
        top_k=draw(st.none() | st.integers(1, 100)),
        stop=tuple(draw(st.lists(words, max_size=2))),
        thinking=thinking,
        thinking_tokens_max=None if thinking == "off" else draw(st.none() | st.integers(1024, 9999)),
        tool_choice=choice,
        parallel_calls=None if choice in (None, "none") else draw(st.none() | st.booleans()),
        output=draw(st.none() | st.builds(OutputSchema, schemas)),
        user=draw(st.just("") | words),
    )


# --- OpenAI Chat: no thinking budget; results hold text only; no name of an image; at most one thought to a message,
# before its texts, before its calls; a message of results has no neighbour like it.

C_TEXT = st.builds(Text, words, opaque=marks(CHAT))
C_MEDIA = media(
    st.builds(
        Media, st.just("image"), st.just("image/png"), blobs, opaque=kept(CHAT, image_url=st.just({"detail": "low"}))
    ),
    st.builds(Media, st.just("image"), url=urls, opaque=marks(CHAT)),
    st.builds(Media, st.just("audio"), st.sampled_from(["audio/wav", "audio/mpeg"]), blobs),
    st.builds(Media, st.just("file"), st.just("application/pdf"), blobs, name=words),
    st.builds(Media, st.just("file"), file_id=ids, name=st.just("") | words),
)
C_FOREIGN = st.builds(lambda text: Foreign({CHAT: {"type": "x_new_part", "x": text}}), words)
C_THINKING = st.builds(
    lambda text, name, details: Thinking(
        text, opaque={CHAT: {"field": name, **({"details": details} if details else {})}}
    ),
    words,
    st.sampled_from(["reasoning_content", "reasoning"]),
    st.just([]) | st.just([{"type": "reasoning.text", "text": "t", "index": 0}]),
)
C_CUSTOM = st.builds(lambda i, n, t: ToolCall(i, n, {"input": t}, opaque={CHAT: {"type": "custom"}}), ids, names, words)
C_CALL = calls(CHAT, kept(CHAT, extra_content=json_objects), may_break=True)
C_SYSTEM = st.builds(
    Message,
    st.just("system"),
    st.lists(C_TEXT, min_size=1, max_size=2).map(tuple),
    opaque=kept(CHAT, role=st.just("developer"), name=names),
)
C_USER = st.builds(
    Message,
    st.just("user"),
    st.lists(C_TEXT | C_MEDIA | C_FOREIGN, min_size=1, max_size=3).map(tuple),
    opaque=kept(CHAT, name=names),
)
C_RESULT = st.builds(ToolResult, ids, st.lists(C_TEXT, max_size=2).map(tuple), opaque=marks(CHAT))
C_TOOL = st.builds(Message, st.just("tool"), st.lists(C_RESULT, min_size=1, max_size=3).map(tuple))
C_REFUSAL = st.builds(Text, words, st.just(True))


@st.composite
def _chat_assistant(draw: st.DrawFn) -> Message:
    thoughts = draw(st.lists(C_THINKING, max_size=1))
    texts = draw(st.lists(C_TEXT | C_REFUSAL | C_FOREIGN, max_size=2))
    held = draw(st.lists(C_CALL | C_CUSTOM, min_size=0 if texts else 1, max_size=2))
    return Message("assistant", (*thoughts, *texts, *held), opaque=draw(kept(CHAT, name=names)))


C_MESSAGES = st.lists(C_SYSTEM | C_USER | _chat_assistant() | C_TOOL, max_size=6).map(
    lambda messages: without_neighbours(messages, "tool")
)
C_OPTIONS = options(
    tokens_max=st.none() | st.integers(1, 10**6),
    temperature=fractions,
    top_p=fractions,
    top_k=st.none() | st.integers(1, 100),
    stop=st.lists(words, max_size=2).map(tuple),
    seed=st.none() | st.integers(0, 2**31),
    thinking=st.sampled_from([None, "off", "minimal", "low", "medium", "high"]),
    tool_choice=choices,
    parallel_calls=st.none() | st.booleans(),
    output=named_output,
    user=st.just("") | words,
)


# --- OpenAI Responses: no thinking budget, no top_k, no stop, no seed; a refusal and citations need the id of their
# item; reasoning needs its content; neighbours of the assistant, and of results, are one message.

R_TEXT = st.builds(Text, words, opaque=marks(RESPONSES))
R_MEDIA = media(
    st.builds(Media, st.just("image"), st.just("image/png"), blobs, opaque=kept(RESPONSES, detail=st.just("low"))),
    st.builds(Media, st.just("image"), url=urls),
    st.builds(Media, st.just("image"), file_id=ids),
    st.builds(Media, st.just("file"), st.just("application/pdf"), blobs, name=words),
    st.builds(Media, st.just("file"), url=urls, opaque=marks(RESPONSES)),
    st.builds(Media, st.just("file"), file_id=ids, name=st.just("") | words),
)
R_FOREIGN = st.builds(lambda text: Foreign({RESPONSES: {"type": "x_new_part", "x": text}}), words)
R_AUDIO = st.builds(
    Media,
    st.just("audio"),
    st.sampled_from(["audio/wav", "audio/mpeg"]),
    blobs,
    opaque=st.just({RESPONSES: {"type": "input_audio"}}),
)
R_SEARCH = st.just(
    Foreign(
        {
            RESPONSES: {
                "type": "web_search_call",
                "id": "ws_1",
                "status": "completed",
                "action": {"type": "search", "query": "q"},
            }
        }
    )
)
CITED = st.builds(Citation, urls, words, start=st.integers(0, 9), end=st.integers(0, 9))


@st.composite
def _reasoning(draw: st.DrawFn) -> list[Part]:
    texts = draw(st.lists(words, max_size=2))
    raw: dict[str, Any] = {"id": f"rs_{draw(ids)}", "summary": [{"type": "summary_text", "text": t} for t in texts]}
    return [Thinking("\n\n".join(texts), opaque={RESPONSES: {**raw, "encrypted_content": draw(words)}})]


@st.composite
def _message_item(draw: st.DrawFn) -> list[Part]:
    item: dict[str, Any] = {"id": f"msg_{draw(ids)}"}
    item |= draw(st.fixed_dictionaries({}, optional={"phase": st.just("commentary"), "status": st.just("incomplete")}))
    opaque = {RESPONSES: {"item": item}}
    text = st.builds(Text, words, st.just(False), st.lists(CITED, max_size=2).map(tuple), st.just(opaque))
    refusal = st.builds(Text, words, st.just(True), opaque=st.just(opaque))
    return draw(st.lists(text | refusal, min_size=1, max_size=2))


R_CALL_KEPT = kept(RESPONSES, namespace=names)
R_CALL = calls(RESPONSES, st.builds(lambda i: {RESPONSES: {"id": f"fc_{i}"}}, ids), may_break=True)
R_CUSTOM = st.builds(
    lambda i, n, t: ToolCall(i, n, {"input": t}, opaque={RESPONSES: {"type": "custom_tool_call", "id": f"ctc_{i}"}}),
    ids,
    names,
    words,
)
R_ITEM = _reasoning() | _message_item() | (R_CALL | R_CUSTOM | R_SEARCH).map(lambda part: [part])


def _distinct_items(items: list[list[Part]]) -> tuple[Part, ...]:
    """Two items with the same id would be one: the later one stays out."""
    seen: set[str] = set()
    parts: list[Part] = []
    for item in items:
        held: Any = item[0].opaque.get(RESPONSES, {})  # type: ignore[union-attr]
        id = held.get("item", held).get("id", "")
        if id and id in seen:
            continue
        seen.add(id)
        parts += item
    return tuple(parts)


R_PARTS = st.lists(R_ITEM, min_size=1, max_size=4).map(_distinct_items)
R_PROMPT_PARTS = st.lists(
    R_ITEM | st.builds(lambda t: [Text(t)], words) | calls(RESPONSES, R_CALL_KEPT, may_break=True).map(lambda c: [c]),
    min_size=1,
    max_size=4,
).map(_distinct_items)
R_ROLE = kept(RESPONSES, role=st.just("developer"))
R_SYSTEM = st.builds(Message, st.just("system"), st.lists(R_TEXT, min_size=1, max_size=2).map(tuple), opaque=R_ROLE)
R_USER = st.builds(
    Message, st.just("user"), st.lists(R_TEXT | R_MEDIA | R_AUDIO | R_FOREIGN, min_size=1, max_size=3).map(tuple)
)
R_REFERENCE = st.just(Message("user", (Foreign({RESPONSES: {"type": "item_reference", "id": "msg_9"}}),)))
R_ASSISTANT = st.builds(Message, st.just("assistant"), R_PROMPT_PARTS)
R_RESULT = st.builds(ToolResult, ids, st.lists(R_TEXT | R_MEDIA, max_size=2).map(tuple))
R_TOOL = st.builds(Message, st.just("tool"), st.lists(R_RESULT, min_size=1, max_size=3).map(tuple))
R_INSTRUCTIONS = st.builds(
    lambda text: Message("system", (Text(text),), opaque={RESPONSES: {"instructions": True}}), words
)
R_MESSAGES = st.builds(
    lambda first, rest: first + without_neighbours(rest, "assistant", "tool"),
    st.lists(R_INSTRUCTIONS, max_size=1),
    st.lists(R_SYSTEM | R_USER | R_REFERENCE | R_ASSISTANT | R_TOOL, max_size=6),
)
R_OPTIONS = options(
    tokens_max=st.none() | st.integers(1, 10**6),
    temperature=fractions,
    top_p=fractions,
    thinking=st.sampled_from([None, "off", "minimal", "low", "medium", "high"]),
    tool_choice=choices,
    parallel_calls=st.none() | st.booleans(),
    output=named_output,
    user=st.just("") | words,
)

PROMPTS: dict[str, st.SearchStrategy[Prompt]] = {
    ANTHROPIC: prompts_of(
        ANTHROPIC,
        A_MESSAGES,
        tool_specs(ANTHROPIC, {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}),
        _anthropic_options(),
    ),
    CHAT: prompts_of(
        CHAT, C_MESSAGES, tool_specs(CHAT, {"type": "custom", "custom": {"name": "x"}, "name": "x"}), C_OPTIONS
    ),
    RESPONSES: prompts_of(RESPONSES, R_MESSAGES, tool_specs(RESPONSES, {"type": "web_search"}), R_OPTIONS),
}


# --- replies: only Responses has a word for `interrupted`, only Anthropic has words for `stop_sequence` and `pause`.


@st.composite
def _usage(draw: st.DrawFn) -> Usage:
    cached, written, rest = draw(counts), draw(counts), draw(counts)
    return Usage(cached + written + rest, draw(counts), cached, written, draw(counts))


def _reply(parts: tuple[Part, ...], stop: Any, usage: Usage, model: str, id: str, opaque: Opaque) -> Reply:
    return Reply(Message("assistant", parts), stop, usage, model, id, opaque)


A_CITED = st.builds(
    lambda url, title, quote: Citation(
        url,
        title,
        quote,
        opaque={
            ANTHROPIC: {
                "type": "web_search_result_location",
                "url": url,
                "title": title,
                "cited_text": quote,
                "encrypted_index": "Eo8B",
            }
        },
    ),
    urls,
    words,
    words,
)
A_ENDS = st.sampled_from(
    [
        ("end", {}),
        ("calls", {}),
        ("length", {}),
        ("refusal", {}),
        ("pause", {}),
        ("stop_sequence", {"stop_sequence": "###"}),
        ("length", {"stop_reason": "model_context_window_exceeded"}),
        ("end", {"usage": {"service_tier": "standard"}}),
    ]
)


@st.composite
def _anthropic_reply(draw: st.DrawFn) -> Reply:
    text = st.builds(Text, words, citations=st.lists(A_CITED, max_size=2).map(tuple))
    parts = draw(st.lists(A_THINKING | text | A_CALL | A_SERVER_CALL, max_size=4).map(tuple))
    stop, opaque = draw(A_ENDS)
    return _reply(parts, stop, draw(_usage()), draw(names), draw(ids), {ANTHROPIC: opaque} if opaque else {})


def _stops(parts: tuple[Part, ...]) -> st.SearchStrategy[str]:
    """The reasons that OpenAI's dialects can tell apart in a reply of these parts."""
    if any(isinstance(part, ToolCall) for part in parts):
        return st.sampled_from(["calls", "length", "refusal"])
    refused = any(isinstance(part, Text) and part.refusal for part in parts)
    return st.sampled_from(["refusal", "length"] if refused else ["end", "length", "refusal"])


@st.composite
def _chat_reply(draw: st.DrawFn) -> Reply:
    text = st.builds(Text, words, citations=st.lists(CITED, max_size=2).map(tuple))
    audio = st.just(Foreign({CHAT: {"audio": {"id": "a", "data": "AA", "expires_at": 1, "transcript": "t"}}}))
    lists = [C_THINKING, text, C_REFUSAL]
    parts: list[Part] = [part for one in lists for part in draw(st.lists(one, max_size=1))]
    parts += draw(st.lists(C_CALL | C_CUSTOM, max_size=3)) + draw(st.lists(audio, max_size=1))
    opaque = draw(kept(CHAT, system_fingerprint=st.just("fp_1"), usage=st.just({"x_price": 5})))
    return _reply(tuple(parts), draw(_stops(tuple(parts))), draw(_usage()), draw(names), draw(ids), opaque)


@st.composite
def _responses_reply(draw: st.DrawFn) -> Reply:
    parts = draw(R_PARTS)
    stop = draw(_stops(parts) | st.just("interrupted"))
    opaque = draw(kept(RESPONSES, service_tier=st.just("default"), usage=st.just({"x_price": 5})))
    return _reply(parts, stop, draw(_usage()), draw(names), draw(ids), opaque)


REPLIES: dict[str, st.SearchStrategy[Reply]] = {
    ANTHROPIC: _anthropic_reply(),
    CHAT: _chat_reply(),
    RESPONSES: _responses_reply(),
}


@st.composite
def streams(draw: st.DrawFn, reply: Reply) -> list[Delta]:
    """The deltas of a reply, in random pieces; calls that follow each other may overlap."""
    deltas: list[Delta] = [ReplyStarted(reply.model, reply.id)]
    waiting: list[list[Delta]] = []
    for index, part in enumerate(reply.message.parts):
        if not isinstance(part, ToolCall) or not isinstance(reply.message.parts[index - 1], ToolCall):
            deltas += [delta for queue in waiting for delta in queue]
            waiting = []
        waiting.append(draw(_pieces(index, part)))
        deltas.append(waiting[-1].pop(0))  # parts begin in the order of their numbers
        while waiting and draw(st.booleans()):
            queue = waiting[draw(st.integers(0, len(waiting) - 1))]
            deltas.append(queue.pop(0))
            waiting = [queue for queue in waiting if queue]
    deltas += [delta for queue in waiting for delta in queue]
    return [*deltas, ReplyFinished(reply.stop, reply.usage, reply.opaque)]


@st.composite
def _pieces(draw: st.DrawFn, index: int, part: Part) -> list[Delta]:
    """A part begins, comes in at most two pieces, and ends."""
    first, text = part, ""
    if isinstance(part, (Text, Thinking)):
        first, text = msgspec.structs.replace(part, text=""), part.text
    elif isinstance(part, ToolCall):
        first = msgspec.structs.replace(part, arguments={}, broken="")
        if not any("type" in fields for fields in part.opaque.values()):  # a custom tool's input is no JSON
            text = part.broken or msgspec.json.encode(part.arguments).decode()
    cut = draw(st.integers(0, len(text)))
    pieces = [PartDelta(index, piece) for piece in (text[:cut], text[cut:]) if piece]
    return [PartStarted(index, first), *pieces, PartFinished(index, part)]
