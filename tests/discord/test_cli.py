"""`rondel discord` as a person uses it, and what `rondel doctor` checks."""

from __future__ import annotations

import base64
import re

import discord
import pytest

from rondel.errors import ConfigError
from rondel.surfaces.discord.check import Checked, client_id_in, examine
from rondel.testing.discord import LoopbackDiscord
from tests.cli.conftest import Place, place, server
from tests.cli.model_server import ModelServer

from .harness import loopback

__all__ = ["place", "server"]

TOKEN = base64.b64encode(b"123456789012345678").decode().rstrip("=") + ".x.y"


@pytest.mark.slow
def test_the_sandbox_answers_shows_private_answers_and_explains_mistakes(place: Place):
    place.write("rondel.toml", 'engine = "echo"\n')
    typed = (
        b"@bot hello there\n/ai chat message=psst private=true\n/as bob\n/ai usage\n/ai nonsense\n/go nowhere\n"
        b"/reply\n/file\n/edit\n/ai chat message=what is 2+2? private=maybe\n/ai chat message=hi private=maybe\n"
        b"/ai imagine prompt=cat\n/quit\n"
    )
    shown = place.spawn("discord", "--sandbox", stdin=typed)
    assert shown.code == 0, shown.err
    for expected in (
        "Ann: hello there",
        "only you can see this",
        "psst",
        "This needs the permission Manage Server.",
        "there is no command '/ai nonsense'",
        "there is no channel 'nowhere'; there are general, help, dm",
        "put a text of several words in quotes: /ai chat message='what is 2+2?'",
        "option 'private' of /ai chat must be true or false, not 'maybe'",
        "/ai imagine needs an image engine: [images] in rondel.toml",
        "something is missing: /reply TEXT\nsomething is missing: /file PATH TEXT\nsomething is missing: /edit TEXT\n",
    ):
        assert expected in shown.out


@pytest.mark.slow
def test_the_sandbox_says_once_why_the_bot_is_silent(place: Place):
    place.write("rondel.toml", 'engine = "echo"\n')
    shown = place.spawn("discord", "--sandbox", stdin=b"@bot first\nhello\nhello?\n/go help\nanyone?\n/quit\n")
    assert shown.out.count("The bot only answers here if you mention it: @bot hello") == 1
    assert "Ann: anyone?" in shown.out
    assert "Ann: hello" not in shown.out


@pytest.mark.slow
def test_a_wrong_model_is_refused_at_once_and_the_models_are_listed(place: Place):
    engine = '[engines.lab]\nbase_url = "http://127.0.0.1:9"\ndialect = "openai-chat"\nmodel = "big"\n'
    place.write("rondel.toml", f'engine = "echo"\n{engine}')
    typed = b"/ai model name=foo\n@bot hello there\n/ai model\n/ai model name=lab:big\n/quit\n"
    shown = place.spawn("discord", "--sandbox", stdin=typed)
    assert "There is no engine 'foo'" in shown.out
    assert "Ann: hello there" in shown.out
    lines = [line.strip() for line in shown.out.splitlines()]
    start = lines.index("echo answers here.")
    assert lines[start : start + 4] == ["echo answers here.", "Models:", "· lab lab:big", "▸ echo"]
    assert "lab:big answers here from the next message on." in shown.out


@pytest.mark.slow
def test_what_is_logged_is_shown_whole_above_the_prompt(place: Place, server: ModelServer):
    place.uses(server)
    server.fails(400, f"The first word, {'and more, ' * 12}\x1b[31mand the last word.")
    with place.terminal("discord", "--sandbox") as terminal:
        terminal.wait_for("Ann in #general")
        terminal.type("@bot hello", until="Sorry, I could not answer that.")
        shown = " ".join(terminal.all_text.split())
        assert f"The first word, {'and more, ' * 12}" in shown
        assert "and the last word; change the request" in shown
        assert b"\x1b[31mand" not in terminal.raw
        terminal.type("/quit")
        assert terminal.wait_end() == 0


@pytest.mark.slow
@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_lets_the_sandbox_finish_the_answer_and_twice_ends_it_at_once(
    place: Place, server: ModelServer, presses: int
):
    place.uses(server)
    held = server.holds("I begin ", "and I end.")
    with place.terminal("discord", "--sandbox") as terminal:
        terminal.wait_for("Ann in #general")
        terminal.type("@bot talk", until="I begin")
        terminal.press("\x03", until="once.")
        assert "has up to 20 seconds" in " ".join(terminal.all_text.split())
        terminal.wait_for("I begin")
        if presses == 1:
            held.release()
            terminal.wait_for("I begin and I end.")
        else:
            terminal.press("\x03")
        assert terminal.wait_end() == 130
        held.release()
        assert "Unclosed" not in terminal.all_text


@pytest.mark.slow
def test_ctrl_c_ends_a_sandbox_that_is_being_left(place: Place):
    """Here, an extension takes its time at the end, and the person loses patience."""
    slow = """
import asyncio, os, signal


async def setup(bot):
    pass


async def teardown(bot):
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.sleep(5)
    print("It took too long.")
"""
    place.write("slow.py", slow)
    place.write("rondel.toml", 'engine = "echo"\n[discord]\nextensions = ["slow"]\n')
    shown = place.spawn("discord", "--sandbox", stdin=b"/quit\n")
    assert shown.code == 130
    assert not [word for word in ("Traceback", "RuntimeError", "Unclosed", "too long") if word in shown.out + shown.err]


@pytest.mark.slow
def test_the_sandbox_renders_nothing_of_a_call_that_is_approved(place: Place, server: ModelServer):
    """Trust 12: it shows a card as Discord does."""
    place.uses(server)
    place.write("rondel.toml", (place.project / "rondel.toml").read_text() + '[discord]\nagent = "helper"\n')
    place.write("agents/helper.md", "---\ntools: [run_shell]\n---\nYou help.\n")
    command = "ls **b** [docs](https://evil.example) <@1> ```\n-# small\n# Fine"
    server.calls("run_shell", command=command)
    server.says("I did not.")
    shown = place.spawn("discord", "--sandbox", stdin=b"@bot list\n/click No\n/quit\n")
    for line in ("  │ ls **b** [docs](https://evil.example) <@1> ⟨3 backticks⟩", "  │ -# small", "  │ # Fine"):
        assert line in shown.out
    assert "@Ann May I?" in shown.out  # what is not code is rendered
    assert "I did not." in shown.out


@pytest.mark.slow
def test_files_of_the_bot_can_be_opened_while_the_sandbox_runs(place: Place):
    place.write("rondel.toml", 'engine = "echo"\n')
    with place.terminal("discord", "--sandbox", columns=200, TMPDIR=str(place.folder)) as terminal:
        terminal.wait_for("Ann in #general")
        terminal.type("@bot hello there", until="Ann: hello there")
        terminal.type("/ai trace", until="trace.html (")
        (path,) = place.folder.glob("rondel-*/*")
        terminal.wait_for(f"bytes)\n    {path}\n")
        assert "hello there" in path.read_text()
        assert path.parent.stat().st_mode & 0o777 == 0o700
        terminal.type("/quit")
        assert terminal.wait_end() == 0
    assert not path.parent.exists()


@pytest.mark.slow
def test_the_sandbox_leaves_the_store_alone_and_says_so(place: Place):
    place.write("rondel.toml", 'engine = "echo"\n[store]\npath = "real.db"\n')
    place.spawn("of my own")
    kept, listed = (place.project / "real.db").read_bytes(), place.spawn("conversations").out
    assert "of my own" in listed
    shown = place.spawn("discord", "--sandbox", stdin=b"@bot hello there\n/quit\n")
    assert "Ann: hello there" in shown.out
    assert "gone when you leave" in shown.out
    assert (place.project / "real.db").read_bytes() == kept
    assert place.spawn("conversations").out == listed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (
            '[[ledger.limits]]\nscope = {role = "100000000000000004"}\ntokens = 1\nmode = "block"\nmessage = "Enough."',
            1,
        ),
        ("[[discord.rules]]\nrole = 100000000000000004\nenabled = false", 0),
    ],
)
def test_bob_has_the_roles_of_rules_and_limits_in_the_sandbox(place: Place, rule: str, said: int):
    place.write("rondel.toml", f'engine = "echo"\n{rule}\n')
    shown = place.spawn("discord", "--sandbox", stdin=b"@bot hello\n/as bob\n@bot hello\n/quit\n")
    assert shown.code == 0, shown.err
    assert "Ann: hello" in shown.out
    assert "Bob: hello" not in shown.out
    assert shown.out.count("Enough.") == said


def test_without_a_token_the_way_to_one_is_said(place: Place):
    place.env.pop("DISCORD_TOKEN", None)
    missing = place.rondel("discord")
    assert missing.code == 2
    assert "set DISCORD_TOKEN" in missing.err
    assert "--sandbox" in missing.err
    with pytest.raises(ConfigError, match="not a bot's token"):
        client_id_in("nonsense")
    assert client_id_in(TOKEN) == 123456789012345678
    place.env["DISCORD_TOKEN"] = "abc"
    refused = place.spawn("discord", "-e", "echo")
    assert refused.code == 2
    assert "this is not a bot's token" in refused.err
    assert "Using" not in refused.err


def test_the_invitation_asks_for_no_more_than_is_needed(place: Place, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DISCORD_TOKEN", TOKEN)
    link = place.rondel("discord", "invite").out.strip()
    assert link.startswith("https://discord.com/oauth2/authorize?client_id=123456789012345678")
    (permissions,) = re.findall(r"[?&]permissions=(\d+)", link)
    asked = [name for name, value in discord.Permissions(int(permissions)) if value]
    assert sorted(asked) == [
        *("attach_files", "create_public_threads", "embed_links", "read_message_history"),
        *("read_messages", "send_messages", "send_messages_in_threads"),
    ]
    assert re.findall(r"[?&]scope=([^&]+)", link) == ["bot+applications.commands"]


async def test_doctor_checks_the_token_the_intents_and_the_permissions():
    async with loopback() as world:
        found = [one async for one in examine("wrong", world.discord.connector())]
        assert [one.verdict for one in found] == ["broken"]
        assert "Reset Token" in found[0].remedy
        world.discord.gateway.privileged = 0
        world.guild.everyone.permissions &= ~(1 << 15)
        found = [one async for one in examine(world.discord.token, world.discord.connector())]
        said = [(one.verdict, one.text) for one in found]
        assert said == [
            ("ok", "the token is that of rondel"),
            ("broken", "the intent Message Content is off"),
            ("broken", "the intent Server Members is off"),
            ("missing", "Community: the bot lacks Attach Files"),
        ]
        assert "Privileged Gateway Intents" in found[1].remedy
    async with LoopbackDiscord() as empty:
        found = [one async for one in examine(empty.token, empty.connector())]
        assert found[1] == Checked("ok", "the intents Message Content and Server Members are on")
        assert found[2].verdict == "missing"
        assert "invite it: https://discord.com/oauth2" in found[2].remedy
