"""Tools: what a model may call. One object has the schema, the description, the validation and the handler.

A plain function becomes a tool: the schema comes from its signature, the descriptions from its docstring. Knows no
engine, no store and no plugin; machine/calls.py runs calls.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, Unpack, cast, overload

import msgspec

from .errors import RondelError, ToolError, nearest
from .events import CallProgressed, JobMode
from .question import Answer, Hold
from .values import Example, Handoff, Media, Text, ToolCall, ToolResult, ToolSpec, Value

if TYPE_CHECKING:
    from .machine.turn import Turn
    from .text.rules import Rule

NO_RESULT = "%no-result%"  # the answer of a tool or an agent that ran and found nothing: a soft failure

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class NoResult(Value, frozen=True):
    """A soft failure: why there is no result, and what the model could try instead."""

    reason: str = ""
    suggestion: str = ""

    def __str__(self) -> str:
        return " ".join(("No useful result.", *(text for text in (self.reason, self.suggestion) if text)))


class Approval(Value, frozen=True):
    """When a person is asked before a call runs. A call that matches `deny` is refused, one that `allow` covers runs; a
    rule is a pattern for all arguments, or a mapping of arguments to patterns (see text/rules.py)."""

    mode: Literal["auto", "confirm"] = "confirm"
    allow: tuple[str | dict[str, str], ...] = ()
    deny: tuple[str | dict[str, str], ...] = ()
    timeout_s: float = 60.0
    chars_max: int = 32_000
    """A call whose arguments need more characters to show is refused, because no person would read them all."""

    def __post_init__(self) -> None:
        for rule in cast("tuple[Rule | None, ...]", self.rules):
            if rule is not None:  # None replaces a wrong rule of a file, which was already reported
                from .text.rules import check_rule

                check_rule(rule)

    @property
    def rules(self) -> tuple[Rule, ...]:
        """All rules, those that allow before those that deny."""
        return (*self.allow, *self.deny)


class CallContext:
    """A tool's view of its call. A parameter that is annotated with this class gets it."""

    def __init__(self, call: ToolCall, turn: Turn, answer: Answer | None = None) -> None:
        self.call = call
        self.turn = turn
        self.answer = answer
        """The person's answer, if this call was held."""

    @property
    def key(self) -> str:
        """An idempotency key for other systems: the same for every attempt at this call."""
        return f"{self.turn.conversation}:{self.call.id}"

    def progress(self, text: str, progress: float | None = None) -> None:
        """Show watchers the progress of this call; `progress` is from 0 to 1, if it is known."""
        self.turn.emit(CallProgressed(self.call.id, text, progress))


Returned: TypeAlias = "str | bytes | Media | ToolResult | Hold | Handoff | NoResult | Any"
ToolFunction: TypeAlias = Callable[[dict[str, Any], CallContext], Awaitable[Returned]]


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a model may call. `run` gets the validated arguments."""

    name: str
    run: ToolFunction
    description: str = ""
    schema: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "object", "properties": {}})
    validate: Callable[[dict[str, Any]], dict[str, Any]] = dict
    timeout_s: float | None = None
    """None means `limits.call_s`; 0 means no limit, for a tool that has its own (an agent)."""
    idempotent: bool = False
    """Whether running it twice does no harm: after a crash it is run again."""
    approval: Approval | None = None
    parallel: bool = True
    """Whether it may run in parallel with other calls of the same round."""
    repeatable: bool = False
    """Repeating a call with the same result is normal, for example to poll: `limits.repeated_calls` does not apply."""
    tags: tuple[str, ...] = ()
    examples: tuple[dict[str, Any] | Example, ...] = ()
    """Example calls: arguments, or an Example that also has the question, the result and the answer."""
    origin: str = ""
    """Where its code comes from. Tools of the same name but different origins are different tools."""
    background: JobMode | None = None
    """If set, a call is answered at once with the id of a job that does the work; see jobs/background/."""

    @property
    def spec(self) -> ToolSpec:
        """What a model is told about this tool."""
        return ToolSpec(self.name, self.description, self.schema, examples=self._examples)

    @property
    def _examples(self) -> tuple[Example, ...]:
        return tuple([each if isinstance(each, Example) else Example(each) for each in self.examples])


class ToolOptions(TypedDict, total=False):
    """The options of `tool`; the fields of `Tool` say what they mean."""

    name: str
    description: str
    timeout_s: float | None
    idempotent: bool
    approval: Approval | Literal["auto", "confirm"] | None
    parallel: bool
    repeatable: bool
    tags: Sequence[str]
    examples: Sequence[dict[str, Any] | Example]
    background: bool | JobMode


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None, /, **options: Unpack[ToolOptions]
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Make a tool from a function, sync or async. Sync functions run in a thread, so they may block."""
    for option in options:
        if option not in ToolOptions.__annotations__:
            raise RondelError(f"tool has no option {option!r}{nearest(option, list(ToolOptions.__annotations__))}")
    return _made(function, options) if function is not None else lambda function: _made(function, options)


def _made(function: Callable[..., Any], options: ToolOptions) -> Tool:
    name, approval = options.get("name") or function.__name__, options.get("approval")
    if not NAME.fullmatch(name):
        raise RondelError(f"{name!r} is not a valid tool name: use 1 to 64 letters, digits, '_' or '-'")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise RondelError(f"tool {name!r} yields; return one value, and report progress with `CallContext.progress`")
    summary, about = _read_docstring(inspect.getdoc(function) or "")
    arguments = _Arguments(function, name, about)
    approval = Approval(mode=approval) if isinstance(approval, str) else approval
    if approval is not None and approval.rules:
        from .text.rules import check_names

        check_names(approval.rules, arguments.schema, name)
    given: dict[str, Any] = {
        **options,
        "name": name,
        "description": options.get("description") or summary,
        "approval": approval,
        "tags": tuple(options.get("tags", ())),
        "examples": tuple(options.get("examples", ())),
        "background": job_mode(options.get("background")),
    }
    origin = f"{function.__module__}:{function.__qualname__}"
    run, schema = _runner(function, arguments.context), arguments.schema
    return Tool(run=run, schema=schema, validate=arguments.validate, origin=origin, **given)


def job_mode(background: bool | JobMode | None) -> JobMode | None:
    """Return how a job reports: `background` (short: True) with a digest, `inline` with a turn of its own."""
    if background not in (True, False, None, "background", "inline"):
        raise RondelError(f"background={background!r} is unknown{nearest(str(background), ['background', 'inline'])}")
    return "background" if background is True else background or None


def _runner(function: Callable[..., Any], context: str) -> ToolFunction:
    if inspect.iscoroutinefunction(function):

        async def run(arguments: dict[str, Any], call: CallContext) -> Any:
            return await function(**arguments, **({context: call} if context else {}))

    else:

        async def run(arguments: dict[str, Any], call: CallContext) -> Any:
            from .calling.threads import in_thread  # here, because asyncio is not needed to define a tool

            value = await in_thread(function, **arguments, **({context: call} if context else {}))
            return await value if inspect.isawaitable(value) else value

    return run


class _Arguments:
    """A function's parameters as a msgspec struct, which gives the schema and validates arguments."""

    def __init__(self, function: Callable[..., Any], name: str, about: dict[str, str]) -> None:
        try:
            hints = typing.get_type_hints(function, include_extras=True)
        except NameError as error:
            raise RondelError(
                f"tool {name!r}: the type {error.name!r} of a parameter is not known where the function is defined; "
                f"import it at the top of the module"
            ) from error
        self.context = ""
        fields: list[Any] = []
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
                raise RondelError(
                    f"tool {name!r}: parameter {parameter.name!r} cannot be part of a schema; name each one"
                )
            hint = hints.get(parameter.name, Any)
            if hint is CallContext:
                self.context = parameter.name
            elif parameter.default is parameter.empty:
                fields.append((parameter.name, hint))
            else:
                fields.append((parameter.name, hint, _default(parameter.default)))
        self._type = msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)
        self._fields = tuple(field[0] for field in fields)
        self.schema = self._make_schema(name, about)

    def _make_schema(self, name: str, about: dict[str, str]) -> dict[str, Any]:
        try:
            _, components = msgspec.json.schema_components(
                [self._type], schema_hook=_foreign_schema, ref_template="#/$defs/{name}"
            )
        except (TypeError, NotImplementedError) as error:
            raise RondelError(f"tool {name!r}: a parameter's type has no JSON schema: {error}") from error
        schema = components.pop(self._type.__name__)
        properties = schema.setdefault("properties", {})
        for field, text in about.items():
            if field in properties:
                properties[field].setdefault("description", text)
        schema.pop("title", None)
        return {**schema, "$defs": components} if components else schema

    def validate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        try:
            struct = msgspec.convert(arguments, self._type, strict=False, dec_hook=_foreign_value)
        except msgspec.ValidationError as error:
            raise ToolError(_name_the_field(str(error), self._fields)) from None
        return msgspec.structs.asdict(struct)


def _default(value: Any) -> Any:
    if isinstance(value, (list, dict, set, bytearray)):
        kept: Any = cast(Any, value)
        return msgspec.field(default_factory=kept.copy)
    return value


def _foreign_schema(kind: Any) -> dict[str, Any]:
    """Return the schema that a Pydantic model brings."""
    if hasattr(kind, "model_json_schema"):
        return kind.model_json_schema()
    raise NotImplementedError(f"{kind!r} is not a type that JSON can carry")


def _foreign_value(kind: Any, value: Any) -> Any:
    if hasattr(kind, "model_validate"):
        try:
            return kind.model_validate(value)
        except ValueError as error:
            raise ValueError(str(error)) from None
    raise NotImplementedError(f"{kind!r} is not a type that JSON can carry")


def _name_the_field(message: str, fields: Sequence[str]) -> str:
    """Rewrite an error of msgspec, such as ``Expected `int`, got `str` - at `$.a` ``, in a form that a model
    understands: ``argument 'a': expected …``."""
    if found := re.search(r"^(.*) - at `\$\.?(.*)`$", message, re.S):
        what, where = found.groups()
        return f"argument {where!r}: {what[0].lower()}{what[1:]}"
    if found := re.search(r"missing required field `(.*)`", message):
        return f"argument {found[1]!r} is missing"
    if found := re.search(r"unknown field `(.*)`", message):
        return f"argument {found[1]!r} is not known{nearest(found[1], list(fields))}"
    return message


def _read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Return a docstring's description and its text about each parameter, in Google's, NumPy's or Sphinx's form."""
    about = {m[1]: " ".join(m[2].split()) for m in re.finditer(r":param (?:\w+ )?(\w+):((?:.|\n(?!\s*:))*)", text)}
    summary = re.split(r"\n\s*:(?:param|returns?|raises|type|rtype)\b", text, maxsplit=1)[0]
    sections = re.split(r"(?:^|\n)(?:(Args|Arguments|Parameters|Params):?\n(?:-+\n)?)", summary, maxsplit=1)
    if len(sections) == 3:
        summary, _, block = sections
        block = re.split(r"\n(?=\w+:?\n)", block, maxsplit=1)[0]
        for found in re.finditer(r"^ *(\w+)[^:\n]*:[ \t]*(.*(?:\n {6,}.+)*)", block, re.M):
            about.setdefault(found[1], " ".join(found[2].split()))
    summary = re.split(r"\n\s*(?:Returns|Raises|Yields|Examples?|Notes?):?\n", summary, maxsplit=1)[0]
    return summary.strip(), about


# --- results ----------------------------------------------------------------------------------------------------------


def result_of(call: ToolCall, value: Any, *, chars_max: int = 32_000) -> ToolResult:
    """Return what a tool returned as a result that a model can read."""
    if isinstance(value, ToolResult):
        parts = _cut(value.parts, chars_max)
        return ToolResult(call.id, parts, call.name, value.is_error, value.final, handoff=value.handoff)
    if isinstance(value, Handoff):
        return ToolResult(call.id, (Text(f"The agent {value.agent} takes over."),), call.name, handoff=value)
    parts: tuple[Text | Media, ...]
    if isinstance(value, (Text, Media)):
        parts = (value,)
    elif isinstance(value, (list, tuple)) and value and all(isinstance(item, (Text, Media)) for item in value):  # pyright: ignore[reportUnknownVariableType]
        parts = tuple(cast("Sequence[Text | Media]", value))
    else:
        parts = (Text(_text_of(value)),)
    return ToolResult(call.id, _cut(parts, chars_max), call.name)


def error_of(call: ToolCall, message: str, *, chars_max: int = 32_000) -> ToolResult:
    """Return an error as the result of a call, which the model reads."""
    return ToolResult(call.id, _cut((Text(message),), chars_max), call.name, is_error=True)


def explain(call: ToolCall, error: Exception) -> str:
    return str(error) if isinstance(error, RondelError) else f"{call.name!r} failed: {type(error).__name__}: {error}"


def _text_of(value: Any) -> str:
    if value is None:
        return "(done, nothing to show)"
    if isinstance(value, str):
        return value
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(cast(bytes, value)).decode("utf-8", errors="replace")
    if isinstance(value, NoResult):
        return str(value)
    try:
        text = msgspec.json.encode(value, enc_hook=_plain).decode()
        return msgspec.json.decode(text) if text.startswith('"') else text
    except (TypeError, ValueError, RecursionError):
        return _str_of(value)


def _str_of(value: Any) -> str:
    try:
        return str(value)
    except RecursionError:
        raise ToolError("its return value is nested too deeply to be encoded; return something flatter") from None
    except Exception as error:
        raise ToolError(f"its return value cannot be encoded ({type(error).__name__}: {error})") from error


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else str(value)


_WAS_CUT = re.compile(r"\n\n\[\.\.\. cut: the result had [\d,]+ characters, the first [\d,]+ are shown\]\Z")


def _cut(parts: tuple[Text | Media, ...], chars_max: int) -> tuple[Text | Media, ...]:
    """Cut the text to this many characters, with a note. Lone surrogates are replaced: no wire format can carry
    them."""
    kept: list[Text | Media] = []
    left, is_cut = chars_max, False
    for part in parts:
        if isinstance(part, Media):
            kept.append(part)
            continue
        if is_cut:
            continue
        if left < len(part.text) <= left + 120 and _WAS_CUT.search(part.text):
            kept.append(part)  # an agent's answer was already cut, and says so
            is_cut = True
            continue
        text, length = part.text[:left], len(part.text)
        if not text.isascii():
            text = text.encode("utf-8", errors="replace").decode()
        if NO_RESULT in text:
            text = text.replace(NO_RESULT, str(NoResult()))
        if is_cut := length > left:
            total = sum(len(part.text) for part in parts if isinstance(part, Text))
            text += f"\n\n[... cut: the result had {total:,} characters, the first {chars_max:,} are shown]"
        left = max(0, left - length)
        kept.append(part if text == part.text else msgspec.structs.replace(part, text=text))
    return tuple(kept)


# --- the text of a tool, for models that have no tools of their own ------------------------------------------------


def describe(spec: ToolSpec) -> str:
    """Return a description of a tool: heading, description, parameters with type and required or optional, enum values,
    examples as calls."""
    lines = [f"## {spec.name}", f"**Description**: {spec.description or '(none)'}", "**Parameters**:"]
    required = set(cast("list[str]", spec.schema.get("required", ())))
    properties = cast("dict[str, dict[str, Any]]", spec.schema.get("properties", {}))
    for name, field in properties.items():
        choices = cast("list[Any]", field.get("enum", []))
        kind = "enum" if choices else _type_name(field)
        need = "required" if name in required else "optional"
        about = field.get("description")
        line = f"- {name} ({kind}, {need})" + (f": {about}" if about else "")
        if choices:
            line += " (" + ", ".join(msgspec.json.encode(choice).decode() for choice in choices) + ")"
        lines.append(line)
    if not properties:
        lines.append("- (none)")
    if spec.examples:
        lines.append("**Examples**:")
        calls = [msgspec.json.encode(example.arguments).decode() for example in spec.examples]
        lines += [f'- <tool_use name="{spec.name}">{call}</tool_use>' for call in calls]
    return "\n".join(lines)


def _type_name(field: dict[str, Any]) -> str:
    kind = field.get("type")
    if isinstance(kind, str):
        items = cast("dict[str, Any]", field.get("items", {}))
        return f"array of {_type_name(items)}" if kind == "array" and items else kind
    if options := cast("list[dict[str, Any]]", field.get("anyOf") or field.get("oneOf") or []):
        return " or ".join(_type_name(option) for option in options)
    return "object" if "$ref" in field else "any"


# --- the registry -----------------------------------------------------------------------------------------------------


class Toolbox:
    """Tools by name: register, get, list, by tag, enable and disable, unregister. In the order of registration."""

    def __init__(self, tools: Sequence[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self._disabled: set[str] = set()
        for item in tools:
            self.register(item)

    def register(self, item: Tool) -> None:
        """Add a tool. Raises RondelError if its name is taken."""
        if item.name in self._tools:
            raise RondelError(f"there are two tools named {item.name!r}; rename one, or unregister the first")
        self._tools[item.name] = item

    def unregister(self, name: str) -> Tool:
        """Remove a tool and return it."""
        self._disabled.discard(name)
        return self._tools.pop(self._known(name))

    def get(self, name: str) -> Tool | None:
        """Return the tool of this name, or None if there is none or it is disabled."""
        return None if name in self._disabled else self._tools.get(name)

    def by_tag(self, tag: str) -> tuple[Tool, ...]:
        """Return the enabled tools with this tag."""
        return tuple(item for item in self if tag in item.tags)

    def enable(self, name: str) -> None:
        """Offer a disabled tool again."""
        self._disabled.discard(self._known(name))

    def disable(self, name: str) -> None:
        """Keep a tool, but do not offer it."""
        self._disabled.add(self._known(name))

    def _known(self, name: str) -> str:
        if name not in self._tools:
            raise RondelError(f"no tool is named {name!r}{nearest(name, list(self._tools))}")
        return name

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the enabled tools."""
        return tuple(item.name for item in self)

    def __iter__(self) -> Iterator[Tool]:
        return (item for name, item in self._tools.items() if name not in self._disabled)

    def __contains__(self, name: object) -> bool:
        return name in self._tools and name not in self._disabled

    def __len__(self) -> int:
        return len(self._tools) - len(self._disabled)


def is_function(value: object) -> bool:
    return isinstance(value, (types.FunctionType, types.MethodType, types.BuiltinFunctionType))
