"""The commands that a person types into the chat, and how an unknown one is answered. Knows no key and no event."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol, TypeAlias

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from ...app import App
from ...command import Command
from ...conversation import Conversation
from ...engine import EngineFace
from ...errors import RondelError, nearest
from ...store import ConversationInfo, Store
from ...trace import read as read_trace
from ...trace import tokens_text
from .clean import clean
from .listing import Listing
from .views import conversations_table, jobs_view, plugins_table, tools_table, trace_tree

Shown: TypeAlias = "RenderableType | None"

LISTED_MAX = 20


class Models(msgspec.Struct, frozen=True):
    """The models that a person may choose from: those to offer, each with what it is, and who says what is wrong with
    another name by raising a RondelError."""

    offered: Mapping[str, str] = {}
    check: Callable[[str], object] | None = None


class Chat(Protocol):
    """What commands ask of the chat that they are typed into."""

    app: App
    conversation: Conversation
    model_line: str
    models: Models
    recent: list[ConversationInfo]

    @property
    def engine(self) -> EngineFace: ...
    @property
    def chosen(self) -> str: ...
    async def use_engine(self, name: str) -> None: ...

    async def switch(self, conversation: Conversation, *, go_on: bool = False) -> None: ...
    async def stop(self) -> bool: ...
    def quit(self) -> None: ...
    def show_thinking(self, on: bool) -> None: ...


class Slash(msgspec.Struct, frozen=True):
    name: str
    usage: str
    description: str
    run: Callable[[Chat, str], Awaitable[Shown]]


async def find_conversation(store: Store, wanted: str) -> str:
    """The id of a conversation: whole, its first or last characters, or `last` for the newest."""
    if await store.info(wanted) is not None:
        return wanted
    infos = await store.conversations(limit=10_000)
    if not infos:
        raise RondelError("there are no conversations yet; `rondel` starts one")
    if wanted == "last":
        return infos[0].id
    found = [info.id for info in infos if info.id.startswith(wanted) or info.id.endswith(wanted)]
    if not wanted or not found:
        raise RondelError(f"there is no conversation {wanted!r}; `rondel conversations` lists them")
    if len(found) > 1:
        raise RondelError(f"{wanted!r} fits {len(found)} conversations; give more characters of the id")
    return found[0]


async def open_conversation(app: App, id: str, agent: str = "") -> Conversation:
    """A conversation from before, with the agent that was named, else with the one that it began with."""
    home = (await app.journal(id)).transcript.home
    return app.conversation(id, agent=agent or (home if app.knows_agent(home) else ""))


def who_answers(conversation: Conversation, engine: EngineFace, chosen: str, model_line: str) -> str:
    """Which model answers in this conversation, and why. `model_line` says it of the agent that the app begins with."""
    agent = conversation.agent
    if model_line and not chosen and agent == conversation.app.agent().name:
        return model_line
    body = conversation.app.crew(agent).agent
    says = "speaks its own words, and where they need a model asks" if body.template or body.function else "talks to"
    return f"{agent} {says} {engine.name}{' – chosen for this conversation' if chosen else ''}"


# --- the commands -----------------------------------------------------------------------------------------------------


async def _help(chat: Chat, rest: str) -> Shown:
    made = Listing()
    for command in COMMANDS:
        made.add_row(f"/{command.name} {command.usage}".strip(), command.description)
    for command in plugin_commands(chat):
        made.add_row(f"/{command.name} {command.usage}".strip(), command.description)
    made.add_row("", "")
    made.add_row("Ctrl-C", "stop the turn; at an empty line twice: quit")
    made.add_row("Alt-Enter", "a new line in what you type")
    made.add_row("while it works", "what you type steers it: it is heard between two steps")
    return made


async def _new(chat: Chat, rest: str) -> Shown:
    await chat.switch(chat.app.conversation(agent=chat.conversation.agent))
    return Text("A new conversation.")


async def _conversations(chat: Chat, rest: str) -> Shown:
    chat.recent = await chat.app.store.conversations(limit=LISTED_MAX)
    at_work = chat.conversation.id if chat.app.running_turn(chat.conversation.id) else ""
    return conversations_table(chat.recent, chat.app.clock.now(), at_work=at_work)


async def _resume(chat: Chat, rest: str) -> Shown:
    id = await find_conversation(chat.app.store, rest) if rest else chat.conversation.id
    await chat.switch(await open_conversation(chat.app, id), go_on=True)
    return None


async def _agent(chat: Chat, rest: str) -> Shown:
    if rest:
        chat.app.crew(rest)
        await chat.switch(chat.app.conversation(chat.conversation.id, agent=rest))
        return Text(f"{rest} answers from now on.")
    made = Listing()
    for agent in chat.app.agents:
        mark = "›" if agent.name == chat.conversation.agent else ""
        made.add_row(mark, agent.name, Text(clean(agent.description)))
    return made


async def _model(chat: Chat, rest: str) -> Shown:
    if not rest:
        return _models(chat)
    if chat.models.check is not None:
        chat.models.check(rest)
    await chat.use_engine(rest)
    return Text(f"{chat.engine.name} answers from the next message on.")


def _models(chat: Chat) -> RenderableType:
    made = Listing()
    for name, about in chat.models.offered.items():
        mark = "›" if chat.engine.name in (name, about) else ""
        made.add_row(mark, clean(name), Text(clean(about)))
    line = who_answers(chat.conversation, chat.engine, chat.chosen, chat.model_line)
    return Group(
        Text(f"{line}."), made, Text("/model NAME takes another one: provider:model, or an engine of rondel.toml.")
    )


async def _tools(chat: Chat, rest: str) -> Shown:
    return tools_table(chat.app.crew(chat.conversation.agent).tools)


async def _plugins(chat: Chat, rest: str) -> Shown:
    return plugins_table(chat.app.crew(chat.conversation.agent).chain.plugins)


async def _trace(chat: Chat, rest: str) -> Shown:
    if rest not in ("", "short"):
        raise RondelError(f"/trace takes nothing or 'short', not {rest!r}")
    root = await read_trace(chat.app.store, chat.conversation.id, price=chat.app.ledger.paid)
    return trace_tree(root, short=rest == "short")


async def _jobs(chat: Chat, rest: str) -> Shown:
    verb, _, id = rest.partition(" ")
    if verb == "cancel" and id.strip():
        return Text(await _cancel_job(chat, id.strip()))
    if rest:
        raise RondelError(f"/jobs takes nothing or 'cancel ID', not {rest!r}")
    place = chat.conversation.id
    return jobs_view(await chat.app.background.jobs(place), await chat.app.timetable.schedules(place))


async def _cancel_job(chat: Chat, id: str) -> str:
    if id.startswith("s_") and await chat.app.timetable.cancel(id):
        return f"{id} is cancelled."
    cancelled = await chat.app.background.cancel(chat.conversation.id, id)
    return f"{id} is being cancelled." if cancelled else f"{id} is over already."


async def _stop(chat: Chat, rest: str) -> Shown:
    return None if await chat.stop() else Text("Nothing is at work.")


async def _thinking(chat: Chat, rest: str) -> Shown:
    if rest not in ("on", "off"):
        raise RondelError(f"/thinking takes 'on' or 'off', not {rest!r}")
    chat.show_thinking(rest == "on")
    return Text(f"What the model thinks is {'shown' if rest == 'on' else 'one line'} from now on.")


async def _tokens(chat: Chat, rest: str) -> Shown:
    usage = (await chat.conversation.transcript()).usage
    return Text(f"This conversation used {tokens_text(usage) or 'no tokens that anybody counted'}.")


async def _quit(chat: Chat, rest: str) -> Shown:
    chat.quit()
    return None


COMMANDS: tuple[Slash, ...] = (
    Slash("help", "", "this list", _help),
    Slash("new", "", "begin a new conversation", _new),
    Slash("conversations", "", "the newest conversations", _conversations),
    Slash("resume", "[ID]", "go on with a conversation, also where a crash cut it off", _resume),
    Slash("agent", "[NAME]", "the agents, or talk to another one", _agent),
    Slash("model", "[NAME]", "which model answers, and why, or let another one answer", _model),
    Slash("tools", "", "what the agent can do", _tools),
    Slash("plugins", "", "the plugins in their order", _plugins),
    Slash("trace", "[short]", "what happened in this conversation", _trace),
    Slash("jobs", "[cancel ID]", "work in the background and what is scheduled", _jobs),
    Slash("stop", "", "stop what is at work", _stop),
    Slash("thinking", "on|off", "show what the model thinks", _thinking),
    Slash("tokens", "", "how many tokens this conversation used", _tokens),
    Slash("quit", "", "leave the chat", _quit),
)
ALIASES = {"exit": "quit", "cost": "tokens", "?": "help"}


def plugin_commands(chat: Chat) -> list[Command]:
    """The commands of the agent's plugins, but those that bear the name of one of the chat's own."""
    own = {command.name for command in COMMANDS}
    plugins = chat.app.crew(chat.conversation.agent).chain.plugins
    return [command for plugin in plugins for command in plugin.commands if command.name not in own]


def is_command(line: str) -> bool:
    """`/help` is one; `/etc/hosts is wrong` is something to say."""
    word = line.partition(" ")[0]
    return word.startswith("/") and len(word) > 1 and "/" not in word[1:] and "\n" not in line


async def run_command(chat: Chat, line: str) -> Shown:
    """Run what was typed. Raises RondelError with the nearest command when there is none of that name."""
    word, _, rest = line[1:].partition(" ")
    name = ALIASES.get(word.lower(), word.lower())
    for command in COMMANDS:
        if command.name == name:
            return await command.run(chat, rest.strip())
    theirs = plugin_commands(chat)
    for command in theirs:
        if command.name == name:
            return Text(clean(await command.run(chat.conversation, rest.strip())))
    known = [f"/{command.name}" for command in (*COMMANDS, *theirs)]
    near = nearest(f"/{word}", known)
    raise RondelError(f"there is no command {f'/{word}'!r}{near if 'did you mean' in near else '; /help lists them'}")


def completions(chat: Chat, text: str) -> Iterable[tuple[str, str]]:
    """What a command that is being typed may become."""
    if not text.startswith("/"):
        return
    word, space, rest = text.partition(" ")
    if not space:
        for command in (*COMMANDS, *plugin_commands(chat)):
            if f"/{command.name}".startswith(word.lower()):
                yield f"/{command.name}", command.description
    elif word == "/agent":
        yield from ((f"/agent {a.name}", a.description) for a in chat.app.agents if a.name.startswith(rest))
    elif word == "/model":
        yield from ((f"/model {n}", about) for n, about in chat.models.offered.items() if n.startswith(rest))
    elif word == "/thinking":
        yield from ((f"/thinking {way}", "") for way in ("on", "off") if way.startswith(rest))
    elif word == "/resume":
        yield from ((f"/resume {info.id}", info.title) for info in chat.recent if info.id.startswith(rest))
