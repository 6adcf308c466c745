"""The embedded engine: llama.cpp in this process, with no key and no server.

A model's file is loaded once, at its first use, and asked on a thread of its own, one request after the other. The
templates of small models know no tools, so tools are offered in the system message and the decoder is held to one JSON
object: `{"say": …}` or `{"tool": …, "arguments": …}`. Without tools the answer is plain text. Knows no network and no
catalogue of tools; `weights.py` knows where files come from.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from ..errors import EngineError, EngineGarbled, PromptRejected
from ..prompt import Prompt
from ..values import (
    Delta,
    Media,
    Message,
    ModelFacts,
    Notice,
    Options,
    PartDelta,
    PartFinished,
    PartStarted,
    ReplyFinished,
    ReplyStarted,
    StopReason,
    Text,
    ToolCall,
    ToolResult,
    ToolSpec,
    Usage,
)
from ..weights import CATALOG, Card, Weights, path_of

Json = dict[str, Any]

TOKENS_MAX = 512
STRING_CHARS_MAX = 2000
"""The limit on every string of constrained output: small models do not always find the closing quote."""
ITEMS_MAX = 64
PROMPT_CACHE_MIB = 128
"""What the runtime may keep of other conversations' prefixes while one is asked; its own default is 8 GB."""
NO_LOOPS: Json = {"dry_multiplier": 2.0, "dry_base": 1.75, "dry_allowed_length": 20, "dry_penalty_last_n": 64}
"""What would repeat more than 20 of the last 64 tokens gets ever less likely; a name or an address that is copied from
the prompt is shorter than that."""
BATCH_TOKENS = 256
"""A prompt is read in batches of this size; between two of them a request can be stopped."""


class LocalEngine:
    """A model's file as an engine. Engines of the same file and settings share one loaded model."""

    def __init__(
        self,
        path: Path | str,
        *,
        name: str = "",
        context_tokens: int = 4096,
        threads: int | None = None,
        card: Card | None = None,
    ) -> None:
        path = Path(path)
        weights = next((w for w in CATALOG if w.file == path.name), None)
        self._name = name or f"local:{weights.name if weights else path.stem}"
        self._card = card or (weights.card if weights else Card())
        self._settings = _Settings(str(path.absolute()), context_tokens, threads or _usable_threads())
        self._model: _Model | None = None

    @classmethod
    def of(cls, weights: Weights, *, context_tokens: int = 4096, threads: int | None = None) -> LocalEngine:
        """The engine of weights that `weights.pull` has fetched."""
        return cls(path_of(weights), context_tokens=context_tokens, threads=threads, card=weights.card)

    @property
    def name(self) -> str:
        return self._name

    @property
    def facts(self) -> ModelFacts:
        return ModelFacts(window_tokens=self._settings.context_tokens, tools=True, output_schema=True)

    async def load(self) -> None:
        """Load the model now; its first use would. It takes up to some seconds."""
        model = self._shared()
        await model.run(model.server)

    async def aclose(self) -> None:
        """Let go of the model; the last engine that does frees its memory, after the requests under way."""
        if self._model is not None:
            model, self._model = self._model, None
            if _release(model):
                await model.run(model.free)

    def _shared(self) -> _Model:
        if self._model is None:
            self._model = _acquire(self._settings)
        return self._model

    async def stream(self, prompt: Prompt) -> AsyncIterator[Delta]:
        question = _question(prompt, self._card)
        reader, usage, finish_reason, started = question.reader, Usage(), "", False
        model, request = self._shared(), _Request(question)
        if not model.is_loaded:
            yield Notice(f"loading {self._name}")
        model.submit(lambda: request.answer(model))
        try:
            async for chunk in request.chunks():
                if error := chunk.get("error"):
                    raise self._refused(error)
                if not started:
                    started = True
                    yield ReplyStarted(self._name, chunk.get("id", ""))
                usage = _usage(chunk, usage)
                for choice in chunk["choices"]:
                    finish_reason = choice.get("finish_reason") or finish_reason
                    for delta in reader.feed(choice["delta"].get("content") or ""):
                        yield delta
                if reader.stop_hit:
                    break
        finally:
            request.stop()
        for delta in reader.finish(cut=finish_reason == "length"):
            yield delta
        yield ReplyFinished(_stop_reason(reader, finish_reason), usage)

    def _refused(self, error: Json) -> EngineError:
        where: Json = {"provider": "local", "model": self._name}
        if error.get("type") == "exceed_context_size_error":
            return PromptRejected(
                f"the prompt has {error.get('n_prompt_tokens')} tokens and {self._name!r} takes "
                f"{self._settings.context_tokens}; send less of the history, or raise context_tokens",
                code="context_length_exceeded",
                **where,
            )
        rejected = error.get("code") == 400
        return (PromptRejected if rejected else EngineError)(f"{self._name!r}: {error.get('message')}", **where)


def _stop_reason(reader: _Reader, finish_reason: str) -> StopReason:
    if reader.stop_hit:
        return "stop_sequence"
    if finish_reason == "length":
        return "length"
    return "calls" if reader.called else "end"


def _usage(chunk: Json, known: Usage) -> Usage:
    """The runtime's own counts: the last chunk has the sums, each one before it has them so far."""
    if sums := chunk.get("usage"):
        details: Json = sums.get("prompt_tokens_details") or {}
        return Usage(sums["prompt_tokens"], sums["completion_tokens"], details.get("cached_tokens", 0))
    if timings := chunk.get("timings"):
        cached = timings["cache_n"]
        return Usage(cached + timings["prompt_n"], timings["predicted_n"], cached)
    return known


# --- the runtime ------------------------------------------------------------------------------------------------------


class _Settings(NamedTuple):
    path: str
    context_tokens: int
    threads: int


class _Model:
    """One loaded model and the thread that asks it, first come first served. The thread lives while there is work, so
    nothing keeps the interpreter from ending."""

    def __init__(self, settings: _Settings) -> None:
        self.settings, self.engines = settings, 0
        self._lock = threading.Lock()
        self._jobs = deque[Callable[[], object]]()
        self._busy = False
        self._server: Any = None

    @property
    def is_loaded(self) -> bool:
        return self._server is not None

    def submit(self, job: Callable[[], object]) -> None:
        """Run a job on the model's thread. It must not raise."""
        with self._lock:
            self._jobs.append(job)
            if not self._busy:
                self._busy = True
                threading.Thread(target=self._work, name="rondel-local").start()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._jobs:
                    self._busy = False
                    return
                job = self._jobs.popleft()
            job()

    async def run(self, job: Callable[[], object]) -> None:
        """Run a job on the model's thread and wait for its end."""
        future = Future[None]()

        def work() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                job()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(None)

        self.submit(work)
        await asyncio.wrap_future(future)

    def server(self) -> Any:
        """The runtime with the model in it, loaded if need be. Only for the model's thread, as `free` is."""
        if self._server is None:
            self._server = _load(self.settings)
        return self._server

    def free(self) -> None:
        self._server = None


_models: dict[_Settings, _Model] = {}
"""What is loaded, for the whole process: a second copy of the same file would cost its memory again."""
_models_lock = threading.Lock()


def _acquire(settings: _Settings) -> _Model:
    with _models_lock:
        model = _models.setdefault(settings, _Model(settings))
        model.engines += 1
        return model


def _release(model: _Model) -> bool:
    """Whether that was the last engine of this model."""
    with _models_lock:
        model.engines -= 1
        if not model.engines:
            del _models[model.settings]
        return not model.engines


def _usable_threads() -> int:
    """The cores that this process may use; of many, half, because a core's second thread does not help."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return usable if usable <= 4 else usable // 2


def _runtime() -> Any:
    """The llama.cpp module. Its threads would spin between requests if this were not set before its import."""
    from importlib import import_module

    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        return import_module("xllamacpp")
    except ImportError as error:
        raise EngineError(
            "the embedded model needs the extra: pip install 'rondel[local]'", provider="local"
        ) from error


def _load(settings: _Settings) -> Any:
    import shutil
    from tempfile import mkdtemp

    runtime = _runtime()
    _require_model_file(Path(settings.path))
    folder = mkdtemp(prefix="rondel-")
    try:
        return runtime.Server(_params(runtime, settings, folder))
    except RuntimeError as error:
        raise EngineError(
            f"{settings.path!r} could not be loaded: {_why(settings) or error}; `rondel model pull` fetches it again",
            provider="local",
        ) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _params(runtime: Any, settings: _Settings, folder: str) -> Any:
    params = runtime.CommonParams()
    params.model.path = settings.path
    params.n_ctx = settings.context_tokens
    params.n_parallel = 1
    params.n_batch = params.n_ubatch = BATCH_TOKENS
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings.threads
    params.cache_ram_mib = PROMPT_CACHE_MIB
    params.no_extra_bufts = True  # repacked weights would be a second copy in memory
    params.warmup = False
    params.prefill_assistant = False
    params.verbosity = -1
    # The runtime always listens. A socket in a private folder that is removed at once is a door that nobody finds;
    # where there are no such sockets, a random key shuts the port.
    if sys.platform != "win32":
        params.hostnames = [f"{folder}/s.sock"]
    params.api_keys = [secrets.token_hex(16)]
    params.ui = params.endpoint_slots = params.endpoint_props = False
    params.n_threads_http = 1
    return params


def _require_model_file(path: Path) -> None:
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise EngineError(
            f"the model's file {str(path)!r} cannot be read ({error.strerror}); `rondel model pull` fetches it",
            provider="local",
        ) from error
    if magic != b"GGUF":
        raise EngineError(
            f"{str(path)!r} is not a GGUF file; remove it and fetch it again with `rondel model pull`", provider="local"
        )


def _why(settings: _Settings) -> str:
    """Why the runtime does not load a file: it says so only on stderr, so another process is asked to try aloud."""
    import subprocess

    code = "import sys; from rondel.engines import local; local.load_aloud(sys.argv[1], int(sys.argv[2]))"
    command = [sys.executable, "-c", code, settings.path, str(settings.context_tokens)]
    try:
        tried = subprocess.run(command, capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError):
        return ""
    lines = [line.strip() for line in tried.stderr.decode(errors="replace").splitlines()]
    return next((line for line in lines if "error" in line.lower() and not line.startswith("RuntimeError")), "")


def load_aloud(path: str, context_tokens: int) -> None:
    """Try to load a model's file with the runtime's own words on stderr."""
    from tempfile import TemporaryDirectory

    runtime = _runtime()
    with TemporaryDirectory(prefix="rondel-") as folder:
        params = _params(runtime, _Settings(path, context_tokens, 1), folder)
        params.verbosity = 1
        runtime.Server(params)


class _Request:
    """One question on its way: asked on the model's thread, its chunks read on the loop's."""

    def __init__(self, question: _Question) -> None:
        self._question = question
        self._loop = asyncio.get_running_loop()
        self._arrived = asyncio.Event()
        self._lock = threading.Lock()
        self._chunks = list[bytes]()
        self._stopped = self._ended = False
        self._error: BaseException | None = None

    def stop(self) -> None:
        """No more is wanted: the model stops at its next token, or batch of the prompt."""
        self._stopped = True

    async def chunks(self) -> AsyncIterator[Json]:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            with self._lock:
                chunks, ended = self._chunks, self._ended
                self._chunks = []
            for chunk in chunks:
                yield msgspec.json.decode(chunk)
            if self._error is not None:
                raise self._error
            if ended:
                return

    def answer(self, model: _Model) -> None:
        """On the model's thread: ask, and hand over what comes."""
        error: BaseException | None = None
        try:
            if not self._unwanted():
                body = self._question.body
                if self._question.schema is not None:
                    body = body | {"grammar": _runtime().json_schema_to_grammar(self._question.schema)}
                model.server().handle_chat_completions(msgspec.json.encode(body), self._take)
        except EngineError as failed:
            error = failed
        except ValueError as failed:
            error = PromptRejected(f"the model's template does not take this prompt: {failed}", provider="local")
        except BaseException as failed:
            error = EngineError(f"the embedded model failed: {failed!r}", provider="local")
        with self._lock:
            self._ended, self._error = True, error
        self._wake()

    def _take(self, chunk: bytes) -> bool:
        """The runtime's callback: true stops it."""
        if self._unwanted():
            return True
        with self._lock:
            self._chunks.append(chunk)
            first = len(self._chunks) == 1
        if first:  # the loop takes all that has come when it gets round to it
            self._wake()
        return self._stopped

    def _unwanted(self) -> bool:
        return self._stopped or not threading.main_thread().is_alive()

    def _wake(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._arrived.set)
        except RuntimeError:  # the loop has been closed
            self._stopped = True


# --- the question -----------------------------------------------------------------------------------------------------


class _Question(NamedTuple):
    body: Json
    schema: Json | None
    reader: _Reader


def _question(prompt: Prompt, card: Card) -> _Question:
    options = prompt.options
    tools = _offered(prompt)
    if tools:
        schema, note = _union(tools, options), _note(tools, options)
        reader: _Reader = _UnionReader(options.stop)
    else:
        output = options.output
        schema, note = (_document(output.schema) if output else None), ""
        reader = _TextReader(options.stop, is_json=output is not None)
    body: Json = {
        "messages": _messages(prompt.messages, note),
        "max_tokens": options.tokens_max or TOKENS_MAX,
        "seed": -1 if options.seed is None else options.seed,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_progress": True,
        "timings_per_token": True,
        "cache_prompt": True,
    }
    return _Question(body | _sampling(options, card, choosing=bool(tools)), schema, reader)


def _sampling(options: Options, card: Card, *, choosing: bool) -> Json:
    """What people asked for, else what the model's card says.

    Chance and penalties help words and harm choices (with them the 1.5B model chose 9 of 12 tools right, without them
    12 of 12), so where there is a choice only loops are kept off.
    """
    settings: Json = {}
    if choosing:
        settings |= {"temperature": 0.0, **NO_LOOPS}
    elif options.output is None:
        settings["repeat_penalty"] = card.repeat_penalty
    for key in ("temperature", "top_p", "top_k"):
        value = getattr(options, key)
        if value is None and key not in settings:
            value = getattr(card.options, key)
        if value is not None:
            settings[key] = value
    return settings


def _offered(prompt: Prompt) -> Sequence[ToolSpec]:
    choice = prompt.options.tool_choice or "auto"
    if choice == "none":
        return ()
    if not choice.startswith("tool:"):
        return prompt.tools
    name = choice.removeprefix("tool:")
    tools = [tool for tool in prompt.tools if tool.name == name]
    if not tools:
        known = ", ".join(tool.name for tool in prompt.tools) or "none"
        raise PromptRejected(f"tool_choice names {name!r}, which is not among the tools on offer ({known})")
    return tools


def _must_call(options: Options) -> bool:
    return (options.tool_choice or "auto") not in ("auto", "none")


def _note(tools: Iterable[ToolSpec], options: Options) -> str:
    """How a model is told of its tools. Of several wordings this one chose best in trials with both small models."""
    lines = ["You have these tools:", *(_described(tool) for tool in tools), "", "Reply with one JSON object:"]
    if not _must_call(options):
        words = "<the answer as JSON>" if options.output is not None else '"..."'
        lines.append(
            f'- {{"say": {words}}} for a conversation (greetings, thanks, questions about you, jokes, explanations), '
            "and when you have the result of a tool"
        )
    lines.append(
        '- {"tool": "<name>", "arguments": {...}} whenever a tool fits the request: '
        "you cannot do what a tool does by yourself"
    )
    return "\n".join(lines)


def _described(tool: ToolSpec) -> str:
    required = tool.schema.get("required", ())
    fields: dict[str, Any] = tool.schema.get("properties", {})
    arguments = ", ".join(f"{key}{'' if key in required else '?'}: {_type(field)}" for key, field in fields.items())
    head = f"- {tool.name}({arguments}): {' '.join(tool.description.split())}"
    notes = [f"    {key}: {field['description']}" for key, field in fields.items() if _field(field, "description")]
    return "\n".join((head, *notes))


def _field(schema: Any, key: str) -> Any:
    return schema.get(key) if isinstance(schema, dict) else None  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType]


def _type(schema: Any) -> str:
    if values := _field(schema, "enum"):
        return "|".join(msgspec.json.encode(value).decode() for value in values)
    kind = _field(schema, "type")
    if kind == "array":
        return f"list of {_type(_field(schema, 'items'))}"
    return kind if isinstance(kind, str) else "any"


def _messages(messages: Iterable[Message], note: str) -> list[Json]:
    """What every chat template knows: one system message first, then user and assistant in turns."""
    instructions, rest, names = list[str](), list[tuple[str, str]](), dict[str, str]()
    for message in messages:
        names |= {call.id: call.name for call in message.calls}
        role = "assistant" if message.role == "assistant" else "user"
        text = _written(message, names, as_json=bool(note))
        if message.role == "system" and not rest:
            instructions.append(text)
        elif text and rest and rest[-1][0] == role:
            rest[-1] = (role, f"{rest[-1][1]}\n{text}")
        elif text:
            rest.append((role, text))
    system = "\n\n".join(filter(None, (*instructions, note)))
    return [
        *([{"role": "system", "content": system}] if system else []),
        *({"role": role, "content": text} for role, text in rest),
    ]


def _written(message: Message, names: dict[str, str], *, as_json: bool) -> str:
    """A message as the text that this model reads, and would have written: the same bytes keep its prefix cache."""
    lines = list[str]()
    if message.text:
        said = as_json and message.role == "assistant"
        lines.append(_line({"say": message.text}) if said else message.text)
    for part in message.parts:
        if isinstance(part, ToolCall):
            lines.append(_line({"tool": part.name, "arguments": part.arguments}))
        elif isinstance(part, ToolResult):
            name = part.name or names.get(part.call_id, "the tool")
            lines.append(f"{'Error' if part.is_error else 'Result'} of {name}: {part.text}")
        elif isinstance(part, Media):
            lines.append(f"[{part.kind}{f' {part.name}' if part.name else ''}: this model cannot see it]")
    return "\n".join(lines)


def _line(value: Json) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)


# --- the schema -------------------------------------------------------------------------------------------------------

_STRING: Json = {"type": "string", "maxLength": STRING_CHARS_MAX}
_SCALAR: Json = {"anyOf": [_STRING, {"type": "number"}, {"type": "boolean"}, {"type": "null"}]}
_ANY: Json = {
    "anyOf": [
        *_SCALAR["anyOf"],
        {"type": "array", "items": _SCALAR, "maxItems": ITEMS_MAX},
        {"type": "object", "additionalProperties": _SCALAR},
    ]
}
_STYLE: Json = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": ", "lenient": True}
"""Written as `json.dumps` writes: no tokens for white space, and the same bytes when it comes back as history."""
_TYPES = frozenset({"string", "number", "integer", "boolean", "null", "array", "object"})


def _document(schema: Json) -> Json:
    return {"x-guidance": _STYLE, "$defs": {"output": _bounded(schema, "#/$defs/output")}, "$ref": "#/$defs/output"}


def _union(tools: Sequence[ToolSpec], options: Options) -> Json:
    """One JSON object: say something, or call one of the tools."""
    defs, cases = dict[str, Json](), list[Json]()
    if not _must_call(options):
        say = _STRING
        if options.output is not None:
            defs["output"], say = _bounded(options.output.schema, "#/$defs/output"), {"$ref": "#/$defs/output"}
        cases.append(_object({"say": say}))
    for number, tool in enumerate(tools):
        key = f"tool{number}"
        defs[key] = _bounded({"type": "object", "properties": {}, **tool.schema}, f"#/$defs/{key}")
        cases.append(_object({"tool": {"const": tool.name}, "arguments": {"$ref": f"#/$defs/{key}"}}))
    return {"x-guidance": _STYLE, "$defs": defs, "anyOf": cases}


def _object(properties: Json) -> Json:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _bounded(schema: Any, base: str) -> Json:
    """The schema with an end to every string and list, and only with what the decoder knows: it drops a grammar with
    anything else in it, without a word. `base` is where the schema stands in the whole document."""
    if not isinstance(schema, dict):
        return _ANY
    known: Json = schema  # pyright: ignore[reportUnknownVariableType]
    if "$ref" in known:
        ref = str(known["$ref"])
        return {"$ref": base + ref[1:]} if ref.startswith("#") else _ANY
    kept: Json = {key: known[key] for key in ("enum", "const") if key in known}
    for key in ("$defs", "definitions"):
        if key in known:
            kept[key] = {name: _bounded(each, base) for name, each in known[key].items()}
    if "enum" in known or "const" in known:
        return kept
    for key, ours in (("anyOf", "anyOf"), ("oneOf", "anyOf"), ("allOf", "allOf")):
        if key in known:
            return kept | {ours: [_bounded(each, base) for each in known[key]]}
    kind: Any = known.get("type", "object" if "properties" in known else None)
    kinds: list[Any] = kind if isinstance(kind, list) else [kind]  # pyright: ignore[reportUnknownVariableType]
    if not _TYPES.issuperset(kinds):
        return kept | _ANY
    cases = [_typed(each, known, base) for each in kinds]
    return kept | (cases[0] if len(cases) == 1 else {"anyOf": cases})


def _typed(kind: str, schema: Json, base: str) -> Json:
    kept: Json = {"type": kind}
    if kind == "string":
        kept["maxLength"] = min(schema.get("maxLength", STRING_CHARS_MAX), STRING_CHARS_MAX)
        kept["minLength"] = min(schema.get("minLength", 0), kept["maxLength"])
    elif kind in ("number", "integer"):
        limits = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
        kept |= {key: schema[key] for key in limits if key in schema}
    elif kind == "array":
        if "prefixItems" in schema:
            kept["prefixItems"] = [_bounded(each, base) for each in schema["prefixItems"]]
        kept["items"] = False if schema.get("items") is False else _bounded(schema.get("items"), base)
        kept["maxItems"] = min(schema.get("maxItems", ITEMS_MAX), ITEMS_MAX)
        kept["minItems"] = min(schema.get("minItems", 0), kept["maxItems"])
    elif kind == "object":
        properties: Json = schema.get("properties", {})
        others = schema.get("additionalProperties", "properties" not in schema)
        kept["properties"] = {key: _bounded(each, base) for key, each in properties.items()}
        kept["required"] = [key for key in schema.get("required", ()) if key in properties]
        kept["additionalProperties"] = (
            _bounded(others, base) if isinstance(others, dict) else _SCALAR if others and not properties else False
        )
    return kept


# --- the answer -------------------------------------------------------------------------------------------------------


class _Reader(Protocol):
    """Makes deltas of the text that the model writes."""

    @property
    def stop_hit(self) -> bool: ...

    @property
    def called(self) -> bool: ...

    def feed(self, text: str) -> list[Delta]: ...

    def finish(self, *, cut: bool) -> list[Delta]: ...


class _TextReader:
    """Plain text, or a JSON document, up to a stop sequence. What may become one is held back."""

    def __init__(self, stop: Sequence[str] = (), *, is_json: bool = False) -> None:
        self.stop_hit = self.called = False
        self._stop = tuple(filter(None, stop))
        self._is_json, self._shown, self._held = is_json, list[str](), ""

    def feed(self, text: str) -> list[Delta]:
        if self.stop_hit or not text:
            return []
        self._held += text
        ends = [at for word in self._stop if (at := self._held.find(word)) >= 0]
        if ends:
            self.stop_hit, safe = True, min(ends)
        else:
            safe = len(self._held) - max((_overlap(self._held, word) for word in self._stop), default=0)
        shown, self._held = self._held[:safe], "" if ends else self._held[safe:]
        return self._show(shown)

    def _show(self, text: str) -> list[Delta]:
        if not text:
            return []
        first = not self._shown
        self._shown.append(text)
        return [*([PartStarted(0, Text(""))] if first else []), PartDelta(0, text)]

    def finish(self, *, cut: bool) -> list[Delta]:
        deltas = self._show(self._held)
        text = "".join(self._shown)
        if self._is_json and not (cut or self.stop_hit):
            _require_json(text)
        return [*deltas, PartFinished(0, Text(text))] if text else deltas


def _overlap(text: str, word: str) -> int:
    """How many of the last characters of the text are the first ones of the word."""
    return next((n for n in range(min(len(word) - 1, len(text)), 0, -1) if text.endswith(word[:n])), 0)


def _require_json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise EngineGarbled(
            f"the embedded model did not write JSON: {text[:200]!r} ({error})", provider="local"
        ) from error


_SAY = re.compile(r'\s*\{\s*"say"\s*:\s*(?=[^\s])')
_CALL = re.compile(r'\s*\{\s*"tool"\s*:\s*"((?:[^"\\]|\\.)*)"\s*,\s*"arguments"\s*:\s*(?=\{)')


class _UnionReader:
    """`{"say": …}` or `{"tool": …, "arguments": …}` as it is written: words are shown as they come."""

    def __init__(self, stop: Sequence[str] = ()) -> None:
        self.called = False
        self._text = _TextReader(stop)
        self._words: _StringDecoder | None = None
        self._call: ToolCall | None = None
        self._head, self._rest, self._shown = "", "", 0

    @property
    def stop_hit(self) -> bool:
        return self._text.stop_hit

    def feed(self, text: str) -> list[Delta]:
        if self._words is not None:
            return self._text.feed(self._words.feed(text))
        if self._call is not None:
            return self._arguments(text)
        self._head += text
        if match := _CALL.match(self._head):
            return self._begin_call(match)
        if (match := _SAY.match(self._head)) and self._head[match.end()] == '"':
            self._words = _StringDecoder()
            return self._text.feed(self._words.feed(self._head[match.end() + 1 :]))
        return []

    def _begin_call(self, match: re.Match[str]) -> list[Delta]:
        self.called = True
        name = msgspec.json.decode(f'"{match[1]}"', type=str)
        self._call = ToolCall(f"call_{secrets.token_hex(12)}", name)
        return [PartStarted(0, self._call), *self._arguments(self._head[match.end() :])]

    def _arguments(self, text: str) -> list[Delta]:
        """The last brace is the union's own, so one is always held back."""
        self._rest += text
        safe = self._rest.rfind("}")
        safe = len(self._rest) if safe < 0 or self._rest[safe + 1 :].strip() else safe
        shown, self._shown = self._rest[self._shown : safe], max(self._shown, safe)
        return [PartDelta(0, shown)] if shown else []

    def finish(self, *, cut: bool) -> list[Delta]:
        if self._call is not None:
            return self._finish_call(cut)
        if self._words is None and self._head.strip():
            return [*self._text.feed(self._other(cut)), *self._text.finish(cut=cut)]
        return self._text.finish(cut=cut)

    def _finish_call(self, cut: bool) -> list[Delta]:
        assert self._call is not None
        raw = self._rest.rstrip().removesuffix("}") if not cut else self._rest
        try:
            arguments = msgspec.json.decode(raw, type=dict[str, Any])
        except msgspec.DecodeError:
            return [PartFinished(0, msgspec.structs.replace(self._call, broken=raw))]
        return [PartFinished(0, msgspec.structs.replace(self._call, arguments=arguments))]

    def _other(self, cut: bool) -> str:
        """An answer that is a document, or free text where the runtime did not hold to the schema."""
        match = _SAY.match(self._head)
        if match is None:
            return "" if cut and self._head.lstrip().startswith("{") else self._head
        document = self._head[match.end() :].rstrip()
        return document if cut else document.removesuffix("}")


class _StringDecoder:
    """Decodes the inside of a JSON string that comes in pieces; the closing quote ends it."""

    def __init__(self) -> None:
        self._held, self._ended = "", False

    def feed(self, text: str) -> str:
        if self._ended:
            return ""
        self._held += text
        words = list[str]()
        while self._held and not self._ended:
            word, used = self._next()
            if not used:
                break
            words.append(word)
            self._held = self._held[used:]
        return "".join(words)

    def _next(self) -> tuple[str, int]:
        """The next decoded piece and how many characters it took; none when more must come first."""
        held = self._held
        if held[0] == '"':
            self._ended = True
            return "", 1
        if held[0] != "\\":
            plain = re.match(r'[^"\\]+', held)
            assert plain is not None
            return plain[0], plain.end()
        if len(held) < 2:
            return "", 0
        if held[1] != "u":
            return _ESCAPES.get(held[1], held[1]), 2
        return self._unicode()

    def _unicode(self) -> tuple[str, int]:
        held = self._held
        if len(held) < 6:
            return "", 0
        code = int(held[2:6], 16)
        if not 0xD800 <= code < 0xE000:
            return chr(code), 6
        if code < 0xDC00:
            if len(held) < 12 and "\\u".startswith(held[6:8]):
                return "", 0
            low = re.match(r"\\u([dD][c-fC-F][0-9a-fA-F]{2})", held[6:12])
            if low:
                return chr(0x10000 + ((code - 0xD800) << 10) + int(low[1], 16) - 0xDC00), 12
        return "\ufffd", 6


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
