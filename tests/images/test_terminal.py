"""Pictures in terminals: shown where that works, saved otherwise; and `rondel imagine`."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path

import pytest

from rondel import CallFinished, Media, Text, ToolResult
from rondel.cli.main import main
from rondel.surfaces.terminal.console import SafeConsole
from rondel.surfaces.terminal.pictures import protocol_of
from rondel.surfaces.terminal.screen import Screen
from rondel.testing.png import draw_png
from tests.engines.scripted_http import ScriptedServer, answer

PNG = draw_png("200x200", "a fox")


@pytest.mark.parametrize(
    ("env", "protocol"),
    [
        ({"TERM": "xterm-kitty"}, "kitty"),
        ({"TERM_PROGRAM": "iTerm.app"}, "iterm2"),
        ({"TERM_PROGRAM": "iTerm.app", "TMUX": "/tmp/x"}, ""),
        ({"TERM": "xterm-256color"}, ""),
        ({"TERM": "xterm-kitty", "RONDEL_PICTURES": "none"}, ""),
        ({"RONDEL_PICTURES": "iterm2"}, "iterm2"),
    ],
)
def test_a_terminal_is_recognised(env: dict[str, str], protocol: str) -> None:
    assert protocol_of(env) == protocol


def shown(*parts: Text | Media) -> str:
    written = io.StringIO()
    console = SafeConsole(written, force_terminal=True, width=200)
    Screen(console, now=lambda: 0.0).show(CallFinished(ToolResult("c1", parts, "generate_image")))
    return written.getvalue()


def test_a_picture_of_a_call_is_shown_where_the_terminal_can(monkeypatch: pytest.MonkeyPatch) -> None:
    picture = Media("image", "image/png", PNG, name="fox.png")
    monkeypatch.setenv("RONDEL_PICTURES", "iterm2")
    assert f":{base64.b64encode(PNG).decode()}\x07" in shown(Text("made"), picture)
    monkeypatch.setenv("RONDEL_PICTURES", "kitty")
    assert "\x1b_Ga=T,f=100" in shown(Text("made"), picture)


def test_a_picture_that_cannot_be_shown_is_saved_once_for_this_user_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("RONDEL_PICTURES", "none")
    picture = Media("image", "image/png", PNG, name="../../x\x1b[31m.png")
    for _ in range(2):
        written = shown(picture, Media("image", "image/svg+xml", b"<svg><script/></svg>", name="x.svg"))
    (path,) = (tmp_path / "rondel" / "pictures").iterdir()
    assert path.read_bytes() == PNG
    assert path.stat().st_mode & 0o077 == 0
    assert str(path) in written
    assert "\x1b[31m.png" not in written


async def test_imagine_writes_a_file_and_replaces_none_without_being_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import asyncio

    data = [{"b64_json": base64.b64encode(PNG).decode()}]
    body = answer(json.dumps({"data": data, "usage": {"input_tokens": 3, "output_tokens": 4}, "model": "m"}))
    async with ScriptedServer(*[[body]] * 4) as server:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("RONDEL_CONFIG", str(tmp_path / "rondel.toml"))
        text = f'[store]\npath = ":memory:"\n[images]\nengine = "up:m"\n[engines.up]\nbase_url = "{server.url}"\n'
        (tmp_path / "rondel.toml").write_text(text)

        async def run(*arguments: str) -> tuple[int, str, str]:
            code = await asyncio.to_thread(main, ["imagine", *arguments])
            said = capsys.readouterr()
            return code, said.out, said.err

        await asyncio.to_thread(main, ["trust"])
        capsys.readouterr()
        assert (await run("a red fox"))[:2] == (0, "a-red-fox.png\n")
        assert (await run("a red fox"))[:2] == (0, "a-red-fox-2.png\n")
        code, said, _ = await run("a hat", "--edit", "a-red-fox.png", "--out", "hat.png", "--json")
        assert (code, json.loads(said)["files"]) == (0, ["hat.png"])
        code, _, told = await run("a hat", "--out", "hat.png")
        assert (code, "already exists" in told) == (2, True)
        assert (await run("a hat", "--out", "hat.png", "--force"))[0] == 0
        code, _, told = await run("a hat", "--edit", "rondel.toml")
        assert (code, "is not a picture" in told) == (1, True)
        assert (await run("x" * 1_000_000))[0] == 1
    assert (tmp_path / "a-red-fox.png").read_bytes() == PNG
    assert [request.target.rpartition("/")[2] for request in server.requests] == [
        "generations",
        "generations",
        "edits",
        "generations",
    ]
