"""The commands that a person types in a session, such as the terminal's. They return values; the surface shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from ..app.app import App
from ..contracts.command import Chat, Choices, Clip, Command, Draft, Option, Output, Table
from ..contracts.store import ConversationInfo, Store
from ..errors import RondelError, near_word
from ..machine.conversation import Conversation
from ..text.printable import one_line
from .views import conversations_table, jobs_table, plugins_table, short_id, tools_table

LISTED_MAX = 20


async def find_conversation(store: Store, wanted: str, *, knows_agent: Callable[[str], bool] | None = None) -> str:
    """Return the id of a conversation, given the id, its first or last characters, the beginning of what lists show of
    it, or `last` for the newest. With `knows_agent`, `last` is the newest whose agent is known."""
    if await store.info(wanted) is not None:
        return wanted
    infos = await store.conversations(limit=10_000)
    if not infos:
        raise RondelError("there are no conversations yet; `rondel` starts one")
    if wanted == "last":
        return _newest(infos, knows_agent)
    found = [
        info.id
        for info in infos
        if info.id.startswith(wanted) or info.id.endswith(wanted) or short_id(info.id).startswith(wanted)
    ]
    if not wanted or not found:
        raise RondelError(f"there is no conversation {wanted!r}; `rondel conversations` lists them")
    if len(found) > 1:
        raise RondelError(f"{wanted!r} matches {len(found)} conversations; give more characters of the id")
    return found[0]


def _newest(infos: Sequence[ConversationInfo], knows_agent: Callable[[str], bool] | None) -> str:
    for info in infos:
        if knows_agent is None or not info.agent or knows_agent(info.agent):
            return info.id
    raise RondelError(
        "there is no conversation with an agent of this project yet; `rondel` starts one, and `rondel conversations` "
        "lists those of other projects"
    )


async def open_conversation(app: App, id: str, agent: str = "") -> Conversation:
    """Open a stored conversation with the named agent, or with the one that it started with. Raises RondelError if that
    one is not known here: another agent must not get what was said to it."""
    first = (await app.journals.open(id)).transcript.starting_agent
    if first and not agent and not app.registry.knows_agent(first):
        raise RondelError(
            f"this conversation is with the agent {first!r}, which is not in this project; continue it in the "
            "folder of its project"
        )
    return app.conversation(id, agent=agent or first)


def model_line(conversation: Conversation, engine: str, chosen: str, first_line: str) -> str:
    """Return a sentence: which model answers in this conversation, and why. `first_line` is that of the app's first
    agent. `chosen` is the engine that was chosen for the conversation, if any."""
    agent = conversation.agent
    if first_line and not chosen and agent == conversation.app.registry.agent().name:
        return first_line
    why = ", chosen for this conversation" if chosen else ""
    return f"{agent} uses {engine}{'' if needs_model(conversation) else ' if it needs a model'}{why}."


def needs_model(conversation: Conversation) -> bool:
    """Return whether a model answers here, and not only a text or a function of the author."""
    body = conversation.app.registry.resolve(conversation.agent).agent
    return not (body.template or body.function)


# --- the commands -----------------------------------------------------------------------------------------------------


async def _help(chat: Chat, rest: str) -> Output:
    rows = [(f"/{command.name} {command.usage}".strip(), command.description) for command in chat.commands]
    return Table((*rows, ("", ""), *chat.tips))


async def _new(chat: Chat, rest: str) -> Output:
    await chat.switch(chat.app.conversation(agent=chat.conversation.agent))
    return "Started a new conversation."


async def _conversations(chat: Chat, rest: str) -> Output:
    chat.recent = await chat.app.store.conversations(limit=LISTED_MAX)
    return conversations_table(chat.recent, chat.app.clock.now())


async def _resume(chat: Chat, rest: str) -> Output | None:
    id = chat.conversation.id
    if rest:
        id = await find_conversation(chat.app.store, rest, knows_agent=chat.app.registry.knows_agent)
    await chat.switch(await open_conversation(chat.app, id), resumes=True)
    return None


async def _agent(chat: Chat, rest: str) -> Output:
    if rest:
        chat.app.registry.resolve(rest)
        await chat.switch(chat.app.conversation(chat.conversation.id, agent=rest))
        return f"{rest} answers from now on."
    agents = (Option(a.name, a.description, a.name == chat.conversation.agent) for a in chat.app.registry.agents)
    return Choices("agent", tuple(agents))


async def _model(chat: Chat, rest: str) -> Output:
    if rest:
        if chat.models.check is not None:
            chat.models.check(rest)
        await chat.use_engine(rest)
        return f"{chat.engine.name} answers from the next message on."
    offered = chat.models.offered.items()
    return Choices(
        "model",
        tuple(Option(name, about, chat.engine.name in (name, about)) for name, about in offered),
        model_line(chat.conversation, chat.engine.name, chat.chosen_engine, chat.model_line),
        "/model NAME switches to another: provider:model, or an engine in rondel.toml.",
    )


async def _set(chat: Chat, rest: str) -> Output:
    key, _, written = rest.partition(" ")
    if not key:
        settings = await chat.settings()
        rows = [(name, msgspec.json.encode(value, enc_hook=str).decode()) for name, value in settings.items()]
        rows += [("model", chat.chosen_engine)] if chat.chosen_engine else []
        return Table(tuple(rows), ("setting", "value")) if rows else "This conversation uses its agent's own settings."
    if key == "model":
        return await _model(chat, written.strip() or chat.app.registry.resolve(chat.conversation.agent).engine.name)
    await chat.set(key, _value(written.strip()))
    return f"{key} is set for this conversation." if written.strip() else f"{key} is the agent's own again."


def _value(written: str) -> Any:
    """Return a typed value: JSON, or else the text itself; None if nothing was typed."""
    if not written:
        return None
    try:
        return msgspec.json.decode(written)
    except (msgspec.DecodeError, RecursionError):
        return written


async def _tools(chat: Chat, rest: str) -> Output:
    return tools_table(chat.app.registry.resolve(chat.conversation.agent).tools)


async def _plugins(chat: Chat, rest: str) -> Output:
    return plugins_table(chat.app.registry.resolve(chat.conversation.agent).chain.plugins)


async def _trace(chat: Chat, rest: str) -> Output:
    if rest not in ("", "short"):
        raise RondelError(f"/trace takes nothing or 'short', not {rest!r}")
    from ..trace import read as read_trace
    from .outline import trace_outline

    root = await read_trace(chat.app.store, chat.conversation.id, price=chat.app.ledger.paid)
    return trace_outline(root, short=rest == "short")


async def _jobs(chat: Chat, rest: str) -> Output:
    verb, _, id = rest.partition(" ")
    if verb == "cancel" and id.strip():
        return await _cancel_job(chat, id.strip())
    if rest:
        raise RondelError(f"/jobs takes nothing or 'cancel ID', not {rest!r}")
    conversation = chat.conversation.id
    jobs = await chat.app.background.jobs(conversation)
    return jobs_table(jobs, await chat.app.timetable.schedules(conversation))


async def _cancel_job(chat: Chat, id: str) -> str:
    if id.startswith("s_") and await chat.app.timetable.cancel(id):
        return f"Cancelled {id}."
    cancelled = await chat.app.background.cancel(chat.conversation.id, id)
    return f"Cancelling {id}." if cancelled else f"{id} is already over."


async def _stop(chat: Chat, rest: str) -> Output | None:
    return None if await chat.stop() else "Nothing is running."


async def _tokens(chat: Chat, rest: str) -> Output:
    from ..trace import tokens_text

    usage = (await chat.conversation.transcript()).usage
    unit = "token" if usage.tokens_in == 1 else "tokens"
    used = tokens_text(usage).replace(" in", f" {unit} in", 1) or "no tokens that could be counted"
    return f"This conversation used {used}."


async def _retry(chat: Chat, rest: str) -> None:
    if rest:
        raise RondelError(f"/retry takes nothing, not {rest!r}; /edit sends another text")
    await chat.retry()


async def _undo(chat: Chat, rest: str) -> Output:
    turns = int(rest) if rest.isascii() and rest.isdigit() and len(rest) < 9 else 0 if rest else 1
    if turns < 1:
        raise RondelError(f"/undo takes the number of turns to undo, not {rest!r}")
    undone = await chat.conversation.undo(turns, by=chat.person.id)
    said = next((one_line(message.text, 60) for message in undone if message.role == "user"), "")
    which = "The last turn" if turns == 1 else f"The last {turns} turns"
    return f"{which} no longer count{'s' if turns == 1 else ''}{f': {said}' if said else '.'}"


async def _edit(chat: Chat, rest: str) -> Output | None:
    if rest:
        await chat.edit(rest)
        return None
    transcript = await chat.conversation.transcript()
    start = transcript.start_of()
    said = transcript.messages[start.messages :] if start else []
    return Draft(f"/edit {said[0].text}" if said and said[0].role == "user" else "/edit ")


async def _copy(chat: Chat, rest: str) -> Output:
    if rest:
        raise RondelError(f"/copy takes nothing, not {rest!r}")
    messages = (await chat.conversation.transcript()).messages
    text = next((m.text for m in reversed(messages) if m.role == "assistant" and m.text.strip()), "")
    if not text:
        raise RondelError("there is no answer to copy yet")
    return Clip(text)


async def _export(chat: Chat, rest: str) -> Output:
    from .export import export

    return await export(chat.app.store, chat.conversation.id, rest or "markdown")


COMMANDS: tuple[Command, ...] = (
    Command("help", "show this list", _help),
    Command("new", "start a new conversation", _new),
    Command("conversations", "list the newest conversations", _conversations),
    Command("resume", "continue a conversation, also one that a crash interrupted", _resume, "[ID]"),
    Command("retry", "undo the last turn and send its message again", _retry),
    Command("undo", "take back the last turn, or several", _undo, "[NUMBER]"),
    Command("edit", "undo the last turn and send another text instead of its message", _edit, "[TEXT]"),
    Command("copy", "copy the last answer", _copy),
    Command("export", "save this conversation as Markdown or JSON", _export, "[markdown|json]"),
    Command("agent", "list the agents, or switch to another", _agent, "[NAME]"),
    Command("model", "show which model answers and why, or switch to another", _model, "[NAME]"),
    Command("set", "list the settings that this conversation overrides, or change one", _set, "[KEY [VALUE]]"),
    Command("tools", "list what the agent can do", _tools),
    Command("plugins", "list the plugins in order", _plugins),
    Command("trace", "show what happened in this conversation", _trace, "[short]"),
    Command("jobs", "list background jobs and schedules, or cancel one", _jobs, "[cancel ID]"),
    Command("stop", "stop what is running, also in another terminal", _stop),
    Command("tokens", "show how many tokens this conversation used", _tokens),
)
ALIASES = {"exit": "quit", "cost": "tokens", "?": "help"}


def is_command(line: str) -> bool:
    """`/help` is a command; `/etc/hosts is wrong` is a message, and so are several lines unless they edit one."""
    word = line.partition(" ")[0]
    return word.startswith("/") and len(word) > 1 and "/" not in word[1:] and ("\n" not in line or word == "/edit")


async def run_command(chat: Chat, line: str) -> Output | None:
    """Run a command. Raises RondelError with the nearest name if it is unknown."""
    word, _, rest = line[1:].partition(" ")
    name = ALIASES.get(word.lower(), word.lower())
    commands = chat.commands
    for command in commands:
        if command.name == name:
            return await command.run(chat, rest.strip())
    near = near_word(f"/{word}", [f"/{command.name}" for command in commands])
    hint = f"did you mean {near!r}?" if near else "/help lists them"
    raise RondelError(f"there is no command {f'/{word}'!r}; {hint}")


def completions(chat: Chat, text: str) -> Iterator[tuple[str, str]]:
    """Yield lines that a command being typed may become, each with its description."""
    if not text.startswith("/"):
        return
    word, space, rest = text.partition(" ")
    known: dict[str, dict[str, str]] = {
        "/agent": {agent.name: agent.description for agent in chat.app.registry.agents},
        "/model": dict(chat.models.offered),
        "/thinking": {"on": "", "off": ""},
        "/export": {"markdown": "", "json": ""},
        "/resume": {info.id: info.title for info in chat.recent},
    }
    if space:
        found = known.get(word, {}).items()
        yield from ((f"{word} {name}", about) for name, about in found if name.startswith(rest))
    else:
        yield from ((f"/{c.name}", c.description) for c in chat.commands if f"/{c.name}".startswith(word.lower()))
