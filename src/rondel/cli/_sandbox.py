"""`rondel discord --sandbox`: the same bot in a Discord on this machine, with a terminal as the client."""

from __future__ import annotations

import asyncio
import contextlib
import io
import itertools
import mimetypes
import os
import re
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Group, RenderableType
from rich.markdown import Markdown
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from ..contracts.command import Models
from ..errors import RondelError, nearest
from ..files.regular import read_regular
from ..project.settings import DiscordSettings
from ..surfaces.terminal.console import SafeConsole
from ..surfaces.terminal.reader import LineReader, PlainReader, TerminalReader, is_interactive
from ..surfaces.terminal.signals import signals
from ..text.printable import one_line
from ._project import Opened

if TYPE_CHECKING:
    from ..surfaces.discord.bot import DiscordBot
    from ..testing.discord import Json, LoopbackDiscord, User

FILE_BYTES_MAX = 8_000_000
FILE_NAME_CHARS_MAX = 60
GATEWAY_S = 0.05
ANSWER_S = 600.0
LIVE_LINES_MAX = 12
CODE = re.compile(r"(```.*?```)", re.DOTALL)
HELP = (
    ("some text", "say it in this channel; @bot mentions the bot"),
    ("/ai …", "a slash command: /ai chat message='how are you?' private=true, /ai usage, /ai mode, /ai stop"),
    ("/go NAME", "go to another channel: general, help (the bot answers everything there) or dm"),
    ("/as NAME", "be somebody else: ann (owns the server) or bob (has the roles that rondel.toml names)"),
    ("/reply TEXT", "reply to the last message of the bot"),
    ("/click LABEL", "click a button of the last message that has it"),
    ("/file PATH TEXT", "send a file"),
    ("/edit TEXT, /delete", "change or remove your last message"),
    ("/quit", "leave; Ctrl-D and Ctrl-C do, too, and Ctrl-C while an answer is being finished ends at once"),
)
COMMANDS = ("/help", "/go", "/dm", "/as", "/reply", "/click", "/file", "/edit", "/delete", "/quit")


async def play(opened: Opened, settings: DiscordSettings, models: Models, roles: Iterable[int]) -> bool:
    """Run the sandbox until the person leaves; return whether that was with Ctrl-C. Bob has the roles, so that rules
    and limits of roles can be tried."""
    from ..surfaces.discord.mounting import RondelClient, attach, connect
    from ..testing.discord import LoopbackDiscord

    async with LoopbackDiscord() as discord:
        sandbox = Sandbox(discord, opened, roles)
        opens = (*settings.whitelist, sandbox.help.id)
        own = msgspec.structs.replace(settings, token="", whitelist=opens, restrict=())
        client = RondelClient(
            extensions=settings.extensions, connector=discord.connector(), guild_ready_timeout=0.05, shard_count=1
        )
        sandbox.bot = attach(client, opened.app, own)
        sandbox.bot.models = models
        async with asyncio.TaskGroup() as group:
            connecting = group.create_task(connect(client, discord.token, asyncio.Event()))
            try:
                await sandbox.bot.connected.wait()
                with signals(sandbox.on_signal, "SIGINT"):
                    await sandbox.run(group)
                    await sandbox.unless_interrupted(client.close(), None)
            finally:
                if not client.is_closed():
                    await client.close()
                await client.http.close()  # also if Ctrl-C has cut that off
                connecting.cancel()
    return sandbox.was_interrupted


class Sandbox:
    """A person at a terminal in the loopback Discord."""

    def __init__(self, discord: LoopbackDiscord, opened: Opened, roles: Iterable[int]) -> None:
        self._discord, self._opened = discord, opened
        self.bot: DiscordBot | None = None
        ann, bob = discord.person("ann", "Ann"), discord.person("bob", "Bob")
        self._people: dict[str, User] = {"ann": ann, "bob": bob}
        self._guild = discord.guild("Sandbox", ann, bob)
        for role in roles:
            discord.role(self._guild, f"role {role}", bob, id=role)
        self._general, self.help = discord.channel(self._guild, "general"), discord.channel(self._guild, "help")
        self._me, self._here = ann, self._general
        self._printed: dict[int, str] = {}
        self._mine: Json | None = None
        self._folder: TemporaryDirectory[str] | None = None
        self._files: dict[str, Path] = {}  # by their addresses
        self._until: asyncio.Timeout | None = None
        """What the person waits for now: the next line or, at the end, the answers and the bot. Ctrl-C ends it."""
        self.was_interrupted = self._has_explained = False
        interactive = is_interactive(sys.stdin, sys.stdout, os.environ.get)
        self._reader: LineReader = TerminalReader(self) if interactive else PlainReader(sys.stdin, sys.stdout)
        self._is_interactive = interactive

    # --- its life -----------------------------------------------------------------------------------------------------

    async def run(self, group: asyncio.TaskGroup) -> None:
        with contextlib.ExitStack() as stack:
            if self._is_interactive and sys.stderr.isatty():
                stack.enter_context(contextlib.redirect_stderr(LinesAbove(self._print)))
            await self._run(group)

    async def _run(self, group: asyncio.TaskGroup) -> None:
        self._reader.start(group)
        self._print(Text(f"{self._opened.model_line}", "dim"))
        about = "Nothing leaves it except requests to a hosted model."
        self._print(Text(f"This is a simulated Discord on your machine. {about}", "dim"))
        self._print(Text("Conversations, usage and the files of the bot are gone when you leave.", "dim"))
        self._print(
            Text("Mention the bot with @bot, or type /go help for the channel where it answers everything.", "dim")
        )
        self._print(Text("/help lists what you can do.\n", "dim"))
        self._print(self._place())
        watching = group.create_task(self._watch())
        try:
            await self.unless_interrupted(self._read_lines(), None)
            if self.bot is not None and self._is_busy():
                drain_s = self.bot.settings.drain_s
                about = f"the answer that is being written has up to {drain_s:g} seconds"
                self._print(Text(f"Stopping; {about}. Ctrl-C ends at once.", "yellow"))
                await self.unless_interrupted(self.bot.settled(), drain_s)
                self._show_new()
        finally:
            if self.bot is not None:  # it has waited here, where the person sees the answer
                self.bot.settings = msgspec.structs.replace(self.bot.settings, drain_s=0)
            watching.cancel()
            self._reader.close()
            if self._folder is not None:
                self._folder.cleanup()

    async def _read_lines(self) -> None:
        """Do what the person types, until they leave."""
        while True:
            if self._reader.waits_for_rest:
                await self._quiet()
            try:
                line = (await self._reader.read()).strip()
            except EOFError:
                break
            if line in ("/quit", "/exit"):
                break
            await self._handle(line)
        if self._reader.waits_for_rest:
            await self._quiet()

    async def unless_interrupted(self, work: Coroutine[Any, Any, None], within_s: float | None) -> None:
        with contextlib.suppress(TimeoutError):
            try:
                async with asyncio.timeout(within_s) as self._until:
                    await work
            finally:
                self._until = None

    def on_signal(self, number: int) -> None:
        self.was_interrupted = True
        if self._until is not None and not self._until.expired():
            self._until.reschedule(asyncio.get_running_loop().time())

    async def _handle(self, line: str) -> None:
        if not line:
            return
        try:
            if line.startswith("/"):
                await self._command(line)
            else:
                self._mine = await self._discord.say(self._me, self._here, line)
                self._explain_silence(line)
        except (LookupError, PermissionError, RondelError, TimeoutError, ValueError) as error:
            self._print(Text(str(error), "yellow"))
        self._show_new()

    def _explain_silence(self, line: str) -> None:
        """Say once why the bot does not answer: on Discord, too, people forget to mention it."""
        if self._here is self._general and "@bot" not in line and not self._has_explained:
            self._has_explained = True
            self._print(Text("The bot only answers here if you mention it: @bot hello", "dim"))

    async def _quiet(self) -> None:
        """Wait until the bot has nothing more to say: the next line of a pipe may depend on it."""
        await asyncio.sleep(GATEWAY_S)  # the bot hears it through its socket
        if self.bot is not None:
            await self.bot.settled()
        self._show_new()

    def _is_busy(self) -> bool:
        return self.bot is not None and any(one.fold.state != "waiting" for one in self.bot.deliveries.values())

    # --- what the person does -----------------------------------------------------------------------------------------

    async def _command(self, line: str) -> None:
        word, _, rest = line[1:].partition(" ")
        usage = next((name for name, _ in HELP if name.startswith(f"/{word} ")), "")
        if usage and word != "ai" and not rest.strip():
            raise LookupError(f"something is missing: {usage.partition(',')[0]}")
        match word:
            case "help" | "?":
                table = Table.grid(padding=(0, 2))
                for name, about in HELP:
                    table.add_row(Text(f"  {name}", "cyan", no_wrap=True), about)
                self._print(Group(table, Text("")))
            case "go" | "join":
                self._go(rest.strip().lstrip("#"))
            case "dm":
                self._go("dm")
            case "as":
                self._become(rest.strip().casefold())
            case "reply":
                last = self._discord.bot_messages(self._here)
                if not last:
                    raise LookupError("the bot has said nothing here that you could reply to")
                self._mine = await self._discord.say(self._me, self._here, rest, reply_to=last[-1])
            case "click":
                await self._click(rest.strip())
            case "file":
                await self._send_file(rest)
            case "edit" | "delete":
                if self._mine is None:
                    raise LookupError("you have said nothing yet")
                await (self._discord.edit(self._mine, rest) if word == "edit" else self._discord.delete(self._mine))
            case _:
                await self._slash(line[1:])

    def _go(self, name: str) -> None:
        places = {"general": self._general, "help": self.help, "dm": self._discord.dm(self._me)}
        if name not in places:
            raise LookupError(f"there is no channel {name!r}; there are {', '.join(places)}")
        self._here = places[name]
        self._print(self._place())

    def _become(self, name: str) -> None:
        if name not in self._people:
            raise LookupError(f"there is no person {name!r}; there are {', '.join(self._people)}")
        self._me = self._people[name]
        if self._here.guild is None:
            self._here = self._discord.dm(self._me)
        self._print(self._place())

    async def _click(self, label: str) -> None:
        known: list[str] = []
        for message in reversed(self._discord.world.messages_in(self._here)):
            known += (labels := _labels(message))
            exact = [one for one in labels if one.casefold() == label.casefold()]
            exact += [one for one in labels if _plain(one).startswith(_plain(label))]
            if _plain(label) and exact:
                await self._settled(await self._discord.click(self._me, message, exact[0]))
                return
        raise LookupError(f"no message here has a button {label!r}{nearest(label, known)}")

    async def _slash(self, line: str) -> None:
        words = shlex.split(line)
        names = [word for word in words if "=" not in word]
        options = dict(word.split("=", 1) for word in words if "=" in word)
        known = self._slash_commands()
        if not any(" ".join(names) == one or " ".join(names).startswith(f"{one} ") for one in known):
            is_group = any(one.startswith(f"{names[0]} ") for one in known) if names else False
            typed = f"/{' '.join(names[: 2 if is_group else 1])}"
            if typed == "/ai imagine" and self.bot is not None and "imagine" in self.bot.settings.slash:
                raise LookupError("/ai imagine needs an image engine: [images] in rondel.toml")
            raise LookupError(
                f"there is no command {typed!r}{nearest(typed, [*COMMANDS, *(f'/{one}' for one in known)])}"
            )
        extra = next(one for one in sorted(known, key=len, reverse=True) if " ".join(names).startswith(one))
        if rest := names[len(extra.split()) :]:
            at = words.index(rest[0], len(extra.split()))
            option, is_option, begin = words[at - 1].partition("=")
            if is_option:
                more = itertools.takewhile(lambda word: "=" not in word, words[at:])
                whole = shlex.quote(" ".join((begin, *more)))
                raise ValueError(f"put a text of several words in quotes: /{extra} {option}={whole}")
            first = next(iter(known[extra]), "option")
            raise ValueError(f"write options with their names: /{extra} {first}={shlex.quote(' '.join(rest))}")
        interaction = await self._discord.command(
            self._me, self._here, " ".join(names), **_typed(options, known[extra])
        )
        await self._settled(interaction)

    def _slash_commands(self) -> dict[str, dict[str, int]]:
        """Return the bot's slash commands, each with the types of its options."""
        found: dict[str, dict[str, int]] = {}
        pending = [(command["name"], command) for command in self._discord.world.commands.get(0, ())]
        while pending:
            name, level = pending.pop(0)
            options: list[Json] = level.get("options") or []
            below = [(f"{name} {option['name']}", option) for option in options if option["type"] in (1, 2)]
            pending += below
            if not below:
                found[name] = {option["name"]: option["type"] for option in options}
        return found

    async def _settled(self, interaction: Any) -> None:
        """Show what only this person sees of an answer, or the form that it opens."""
        await self._discord.until(lambda: interaction.kind)
        if interaction.modal is not None:
            self._print(Text("A form opens. Type your answer:", "cyan"))
            text = await self._reader.read()
            await self._discord.submit(interaction, text)
            return
        await self._discord.answered(interaction, within_s=ANSWER_S)
        for message in interaction.answers:
            if message["flags"] & (1 << 6) and int(message["id"]) not in self._printed:
                self._printed[int(message["id"])] = _signature(message)
                self._print(self._message(message, note="only you can see this"))

    async def _send_file(self, rest: str) -> None:
        path, *words = shlex.split(rest) or [""]
        data = read_regular(Path(path), FILE_BYTES_MAX)
        mime = mimetypes.guess_type(path)[0] or "application/octet-stream"
        files = {Path(path).name: (data, mime)}
        self._mine = await self._discord.say(self._me, self._here, " ".join(words) or "@bot", files=files)

    # --- what is shown ------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            self._show_new()
            self._reader.refresh()
            await asyncio.sleep(0.05)

    def _show_new(self) -> None:
        """Print messages that are complete. Those that are being written are in the live lines."""
        for message in self._discord.world.messages_in(self._here):
            id, text = int(message["id"]), _signature(message)
            if message["flags"] & (1 << 6) or self._printed.get(id) == text or self._is_live(message):
                continue
            if id in self._printed and not message["author"]["bot"]:
                continue
            if not self._is_interactive and not message["author"]["bot"]:
                continue  # a pipe's own lines need not be repeated
            note = "edited" if id in self._printed else ""
            self._printed[id] = text
            self._print(self._message(message, note=note))

    def _is_live(self, message: Json) -> bool:
        if self.bot is None or not message["author"]["bot"]:
            return False
        return any(
            one.is_under_way and any(int(message["id"]) in ids for ids in one.pending.posted.values())
            for one in self.bot.deliveries.values()
        )

    def _message(self, message: Json, note: str = "") -> RenderableType:
        author = message["author"]
        name = Text(
            one_line(author["global_name"] or author["username"], 40), "bold green" if author["bot"] else "bold cyan"
        )
        if author["bot"]:
            name.append(" BOT ", "black on blue")
        if above := message.get("referenced_message"):
            name.append(f"  ↳ {one_line(self._readable(above['content']), 50)}", "dim")
        if note:
            name.append(f"  ({note})", "dim italic")
        parts: list[RenderableType] = [name]
        if text := self._readable(message["content"]):
            parts.append(Padding(_markdown(text), (0, 0, 0, 2)))
        elif text := self._readable(_text_of(message)):  # a card
            shown = _markdown(_outside_code(text, lambda part: part.replace("\n-# ", "\n")))
            parts.append(Padding(Panel(shown, border_style="blue", expand=False), (0, 0, 0, 2)))
        for embed in message["embeds"]:
            parts.append(Padding(_embed(embed), (0, 0, 0, 2)))
        for file in message["attachments"]:
            parts.append(Text(f"  ▤ {one_line(file['filename'], 60)} ({file['size']:,} bytes)", "magenta"))
            if author["bot"]:
                parts.append(Text(f"    {self._saved(file)}", "magenta", no_wrap=True, overflow="ignore"))
        if labels := _labels(message):
            buttons = Text("  ")
            for label in labels:
                buttons.append(f" {one_line(label, 40)} ", "reverse").append("  ")
            parts.append(buttons.append("/click NAME", "dim"))
        return Group(*parts, Text(""))

    def _saved(self, file: Json) -> str:
        """Save a file that the bot has sent, once; return its path. The folder is for this user only."""
        if (saved := self._files.get(file["url"])) is None:
            if self._folder is None:
                self._folder = TemporaryDirectory(prefix="rondel-", ignore_cleanup_errors=True)
            name = re.sub(r"[^\w.-]+", "_", file["filename"])[-FILE_NAME_CHARS_MAX:].lstrip(".-")
            saved = Path(self._folder.name, f"{len(self._files) + 1}-{name or 'file'}")
            saved.write_bytes(self._discord.data_of(file))
            self._files[file["url"]] = saved
        return str(saved)

    def _readable(self, text: str) -> str:
        return _outside_code(text, self._with_names)

    def _with_names(self, text: str) -> str:
        for user in self._discord.world.users.values():
            text = text.replace(f"<@{user.id}>", f"@{user.display}")
        for channel in self._guild.channels:
            text = text.replace(f"<#{channel.id}>", f"#{channel.name}")
        return text

    def _place(self) -> RenderableType:
        where = f"#{self._here.name}" if self._here.guild else "direct messages"
        about = "  the bot answers everything here" if self._here is not self._general else ""
        return Text.assemble((f"── {where} ", "bold"), (f"as {self._me.display}{about}\n", "dim"))

    def _print(self, shown: RenderableType) -> None:
        self._reader.write(self._rendered(shown))

    def _rendered(self, shown: RenderableType) -> str:
        target = io.StringIO()
        console = SafeConsole(
            target,
            force_terminal=self._is_interactive,
            width=self._width,
            no_color=bool(os.environ.get("NO_COLOR")) or None,
        )
        console.print(shown, crop=False)  # a path stays whole, so that it can be copied
        return target.getvalue()

    @property
    def _width(self) -> int:
        try:
            return min(os.get_terminal_size().columns, 110)
        except OSError:
            return 100

    # --- for the reader -----------------------------------------------------------------------------------------------

    def live(self) -> str:
        """Return the messages that are being written, and who is typing."""
        parts = [
            self._rendered(self._message(message)).rstrip("\n")
            for message in self._discord.world.messages_in(self._here)
            if self._is_live(message)
        ]
        if self._is_busy():
            parts.append(self._rendered(Text("Rondel is typing…", "dim italic")).rstrip("\n"))
        return "\n".join("\n".join(parts).splitlines()[-LIVE_LINES_MAX:])

    def status(self) -> str:
        where = f"#{self._here.name}" if self._here.guild else "dm"
        return f"\x1b[2m{self._me.display} in {where}\x1b[0m"

    def completions(self, text: str) -> Iterable[tuple[str, str]]:
        if not text.startswith("/"):
            return []
        known = [(name.split(",")[0].split()[0], about) for name, about in HELP if name.startswith("/")]
        known += [
            (f"/{name}", " ".join(f"{one}=…" for one in options)) for name, options in self._slash_commands().items()
        ]
        return [(name, about) for name, about in known if name.startswith(text)]

    def interrupted(self, has_text: bool) -> None:
        if has_text and isinstance(self._reader, TerminalReader):
            self._reader.clear()
        else:
            self.on_signal(signal.SIGINT)

    def moved(self, step: int) -> bool:
        return False


class LinesAbove(io.TextIOBase):
    """Replaces stderr while there is a prompt: what is logged is printed above it, whole, and not over it."""

    def __init__(self, show: Callable[[Text], None]) -> None:
        self._show, self._rest = show, ""
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()

    def write(self, text: str, /) -> int:
        whole, _, self._rest = (self._rest + text).rpartition("\n")
        if whole and threading.get_ident() == self._thread:
            self._show(Text(whole, "yellow"))
        elif whole:
            with contextlib.suppress(RuntimeError):  # the loop ended first
                self._loop.call_soon_threadsafe(self._show, Text(whole, "yellow"))
        return len(text)


def _markdown(text: str) -> Markdown:
    """Return a text in which every line stays on a line of its own, as in Discord."""
    return Markdown(_outside_code(text, lambda part: part.replace("\n", "  \n")))


def _outside_code(text: str, edit: Callable[[str], str]) -> str:
    """Edit what is not in a block of code, as Discord renders it."""
    parts = CODE.split(text)
    return "".join(part if index % 2 else edit(part) for index, part in enumerate(parts))


def _labels(message: Json) -> list[str]:
    pending, found = list(message["components"]), list[str]()
    while pending:
        part = pending.pop(0)
        pending[:0] = part.get("components") or []
        if part.get("label") and "custom_id" in part and not part.get("disabled"):
            found.append(part["label"])
        found += [option["label"] for option in part.get("options") or ()]
    return found


def _plain(label: str) -> str:
    """Return the letters and digits of a label: arrows and dots are hard to type."""
    return "".join(filter(str.isalnum, label.casefold()))


def _text_of(message: Json) -> str:
    from ..testing.discord import text_of

    return text_of(message)


def _signature(message: Json) -> str:
    """Return the parts of a message that make it worth showing again when they change."""
    return f"{_text_of(message)}\x00{_labels(message)}\x00{len(message['embeds'])}{len(message['attachments'])}"


def _typed(options: dict[str, str], types: dict[str, int]) -> dict[str, Any]:
    """Return what was typed as the options' own types; a value that does not fit stays a text, and is refused."""
    words: dict[str, Any] = {"true": True, "false": False}
    return {
        name: words.get(value.casefold(), value)
        if types.get(name) == 5
        else int(value)
        if types.get(name) == 4 and value.lstrip("-").isdigit()
        else value
        for name, value in options.items()
    }


def _embed(embed: Json) -> RenderableType:
    lines = [Text(embed["title"], "bold")] if embed.get("title") else []
    lines += [Text(embed["description"])] if embed.get("description") else []
    lines += [Text.assemble((f"{one['name']}: ", "bold"), one["value"]) for one in embed.get("fields") or ()]
    footer: Json = embed.get("footer") or {}
    lines += [Text(footer["text"], "dim")] if footer.get("text") else []
    return Group(*(Text("▌ ", "blue").append_text(line) for line in lines))
