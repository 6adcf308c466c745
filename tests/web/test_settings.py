"""What `rondel serve` serves: settings that an admin changes, in rondel.toml or not at all; the gateway's requests."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.async_api import Browser, expect

from rondel.cli._gateway import open_gateway, open_page
from rondel.cli._project import load_project
from rondel.gateway.server.serving import Server, address_of, bind
from tests.web.served import WAIT_S

FILE = """\
# Who answers.
engine = "echo"  # repeats what you say

[gateway]
# Wait for slow callers.
drain_s = 5.0

[gateway.keys.ann]
key = "${ANN}"
budget = { tokens = 1000, window = "day" }

[gateway.keys.root]
key = "root-secret"
roles = ["admin"]

[[ledger.limits]]
scope = { person = "*" }
tokens = 500 # each
"""
ROOT, ANN = {"authorization": "Bearer root-secret"}, {"authorization": "Bearer ann-secret"}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for kind in ("CONFIG", "DATA", "STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))
    monkeypatch.setenv("ANN", "ann-secret")
    path = tmp_path / "here" / "rondel.toml"
    path.parent.mkdir()
    path.write_text(FILE)
    path.chmod(0o600)
    monkeypatch.setenv("RONDEL_TRUST", str(path.parent))
    monkeypatch.chdir(path.parent)
    return path


@contextlib.asynccontextmanager
async def served(told: list[str] | None = None) -> AsyncGenerator[httpx2.AsyncClient]:
    """What `rondel serve` serves in this folder, and an admin."""
    listening = bind("127.0.0.1", 0)
    say = (told if told is not None else []).append
    async with (
        open_gateway(load_project(), "127.0.0.1", listening, say, has_page=True) as running,
        open_page(running) as application,
        asyncio.TaskGroup() as group,
    ):
        server = Server(application, listening)
        task = group.create_task(server.run())
        async with httpx2.AsyncClient(base_url=address_of(listening), timeout=WAIT_S, headers=ROOT) as client:
            yield client
        server.stop(at_once=True)
        await task


async def setting(client: httpx2.AsyncClient, key: str) -> dict[str, Any]:
    return next(one for one in (await client.get("/api/settings")).json() if one["key"] == key)


async def change(client: httpx2.AsyncClient, key: str, was: str, value: Any = None, **options: Any) -> Any:
    return await client.patch("/api/settings", json={"key": key, "was": was, "value": value}, **options)


async def test_a_setting_is_changed_in_the_file_used_at_once_and_reset(file: Path):
    async with served() as client:
        changed = await change(client, "gateway.routes.background", "(none)", "echo")
        assert changed.status_code == 200, changed.text
        assert changed.json()["value"] == "echo"
        assert "rondel.toml" in changed.json()["source"]
        assert (await change(client, "gateway.drain_s", "5.0", 7)).json()["value"] == "7.0"
        assert (await change(client, "ledger.limits[0].tokens", "500", 600)).status_code == 200
        assert (await change(client, "ledger.limits[0].mode", "warn", "block")).status_code == 200
        assert (await change(client, "gateway.keys.ann.budget.tokens", "1000", 2000)).status_code == 200
        limits = (await client.get("/api/usage")).json()["limits"]
        assert [limit["rule"]["tokens"] for limit in limits] == [2000]
        text = file.read_text()
        assert file.stat().st_mode & 0o777 == 0o600
        expected = FILE.replace("drain_s = 5.0", "drain_s = 7").replace("= 500 #", "= 600 #")
        expected = expected.replace("tokens = 1000", "tokens = 2000")
        expected = expected.replace("[[ledger.limits]]\n", '[[ledger.limits]]\nmode = "block"\n')
        assert text == f'{expected}\n[gateway.routes]\nbackground = "echo"\n'
        assert (await change(client, "gateway.routes.background", "echo")).json()["value"] == "(none)"
        assert (await change(client, "gateway.drain_s", "7.0")).json()["source"] == "default"
        assert "# Wait for slow callers." in file.read_text()
        assert os.listdir(file.parent) == ["rondel.toml"]


async def test_the_default_engine_is_changed_for_the_page_and_for_programs(file: Path):
    async with served() as client:
        file.write_text(FILE + '\n[engines.other]\nprovider = "ollama"\nmodel = "tiny"\n')
        assert (await change(client, "engine", "echo", "other")).status_code == 409  # the file was just changed
        async with asyncio.timeout(WAIT_S):
            while (await change(client, "engine", "echo", "other")).status_code == 409:
                await asyncio.sleep(0.1)
        assert (await client.get("/api/me")).json()["engine"] == "other"
        (agent,) = (await client.get("/api/agents")).json()
        assert agent["engine"] == "ollama:tiny"
        assert 'engine = "other"  # repeats what you say' in file.read_text()


@pytest.mark.parametrize(
    ("key", "was", "value", "status", "said"),
    [
        ("gateway.keys.root.key", "***", "mine", 400, "cannot be changed at run time"),
        ("gateway.host", "127.0.0.1", "0.0.0.0", 400, "cannot be changed at run time"),
        ("gateway.routes.custom", "(none)", "os:system", 400, "cannot be changed at run time"),
        ("store.path", "x", "/tmp/x", 400, "cannot be changed at run time"),
        ("nonsense", "x", "y", 400, "cannot be changed at run time"),
        ("gateway.drain_s", "5.0", "soon", 400, "must be a number"),
        ("gateway.drain_s", "5.0", -1, 400, "must be 0 or more"),
        ("ledger.limits[0].tokens", "500", 1.5, 400, "whole number"),
        ("ledger.unknown_price", "block", "guess", 400, "must be one of 'block', 'estimate', 'allow'"),
        ("engine", "echo", "nonsense", 400, "nonsense"),
        ("engine", "echo", "${ANN}", 400, "a text without variables"),
        ("engine", "echo", None, 400, ""),
        ("gateway.drain_s", "4.0", 3, 409, "has changed to '5.0' (you saw"),
    ],
)
async def test_a_wrong_change_is_one_sentence_and_changes_nothing(
    file: Path, monkeypatch: pytest.MonkeyPatch, key: str, was: str, value: Any, status: int, said: str
):
    async with served() as client:
        before = (await client.get("/api/settings")).json()
        if (key, value) == ("engine", None):
            monkeypatch.setattr("rondel.cli._gateway.pick", _nothing)  # no engine is found without the setting
        answer = await change(client, key, was, value)
        assert (answer.status_code, said in answer.json()["error"]) == (status, True), answer.text
        assert file.read_text() == FILE
        assert (await client.get("/api/settings")).json() == before
        assert os.listdir(file.parent) == ["rondel.toml"]
        assert (await client.get("/api/me")).json()["engine"] == "echo"


async def _nothing(*_: object, **__: object) -> None:
    from rondel.errors import ConfigError

    raise ConfigError("there is no engine")


async def test_who_may_change_settings_and_what_happens_to_two_at_once(file: Path):
    async with served() as client:
        assert (await change(client, "gateway.drain_s", "5.0", 6, headers=ANN)).status_code == 403
        other_site = {"sec-fetch-site": "cross-site"}
        assert (await change(client, "gateway.drain_s", "5.0", 6, headers=other_site)).status_code == 403
        async with asyncio.TaskGroup() as group:
            both = [group.create_task(change(client, "gateway.drain_s", "5.0", value)) for value in (6, 7)]
        answers = sorted(one.result().status_code for one in both)
        assert answers == [200, 409]
        file.write_text("engine = [")
        async with asyncio.timeout(WAIT_S):
            while (refused := await change(client, "gateway.ping_s", "15.0", 6)).status_code == 409:
                await asyncio.sleep(0.1)
        assert "correct this first" in refused.json()["error"]
        assert file.read_text() == "engine = ["


async def test_a_file_keeps_its_line_ends_and_a_link_stays_a_link(file: Path):
    target = file.rename(file.parent.parent / "elsewhere.toml")
    target.write_bytes(b"\xef\xbb\xbf" + FILE.replace("\n", "\r\n").encode())
    file.symlink_to(target)
    async with served() as client:
        assert (await change(client, "gateway.drain_s", "5.0", 6)).status_code == 200
    assert file.is_symlink()
    expected = FILE.replace("drain_s = 5.0", "drain_s = 6").replace("\n", "\r\n").encode()
    assert target.read_bytes() == b"\xef\xbb\xbf" + expected


async def test_requests_of_the_gateway_are_listed_with_their_program(file: Path):
    async with served() as client:
        asked = {"model": "echo", "messages": [{"role": "user", "content": "secret words"}]}
        headers = {"user-agent": "my-editor/2.1 (linux)"}
        assert (await client.post("/v1/chat/completions", json=asked, headers=headers)).status_code == 200
        listed = await client.get("/api/requests")
        (one,) = listed.json()["requests"]
        assert (one["client"], one["key"], one["asked"], one["outcome"]) == ("my-editor/2.1", "root", "echo", "done")
        assert "secret words" not in listed.text
        assert (await change(client, "gateway.trace", "false", True)).json()["value"] == "true"
        await client.post("/v1/chat/completions", json=asked, headers=headers)
        one, _ = (await client.get("/api/requests")).json()["requests"]
        trace = await client.get(f"/api/conversations/{one['trace']}/trace")
        assert "secret words" in trace.text
        assert (await client.get(f"/api/conversations/{one['trace']}/trace", headers=ANN)).status_code == 404
        assert (await client.get("/api/conversations")).json()["conversations"] == []


async def test_without_a_file_there_is_nothing_to_change(file: Path):
    file.unlink()
    (file.parent / "agents").mkdir()
    async with served() as client:
        answer = await change(client, "gateway.drain_s", "30.0", 6)
        assert answer.status_code == 400
        assert "there is no rondel.toml to change; `rondel init` writes one" in answer.json()["error"]


async def test_an_admin_changes_a_setting_on_the_page(browser: Browser, file: Path):
    file.write_text(FILE.partition("[gateway.keys")[0])  # no keys: the one person of this machine is an admin
    async with served() as client:
        context = await browser.new_context(locale="en-US")
        context.set_default_timeout(WAIT_S * 1000)
        page = await context.new_page()
        await page.goto(f"{client.base_url}/#/settings")
        row = page.get_by_role("row", name="gateway.drain_s")
        await row.get_by_role("button", name="Change").click()
        field = page.get_by_label("gateway.drain_s")
        await field.fill("-3")
        await field.press("Enter")
        await expect(page.get_by_role("alert")).to_contain_text("must be 0 or more")
        await field.fill("8")
        await page.get_by_role("button", name="Save").click()
        await expect(row).to_contain_text("8.0")
        assert "drain_s = 8\n" in file.read_text()
        choice = page.get_by_role("row", name="ledger.unknown_price")
        await choice.get_by_role("button", name="Change").click()
        await page.get_by_label("ledger.unknown_price").select_option("allow")
        await page.get_by_role("button", name="Save").click()
        await expect(choice).to_contain_text("rondel.toml")
        await row.get_by_role("button", name="Change").click()
        await page.get_by_role("button", name="Use the default").click()
        await expect(row).to_contain_text("30.0")
        assert "drain_s" not in file.read_text()
        assert await page.get_by_role("row", name="gateway.host").get_by_role("button").count() == 0
        await context.close()
