"""Names that callers and servers choose: bounded wherever they are kept, and never more than a name."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from rondel.charge import Scope
from rondel.dialects import DIALECTS as FORMATS
from rondel.errors import PromptRejected
from rondel.gateway.relay.request import MODEL_CHARS_MAX, GatewayRequest
from rondel.gateway.server.exchange import _header_value  # pyright: ignore[reportPrivateUsage]
from rondel.ledger.ledger import Ledger
from rondel.stores.memory import MemoryStore
from rondel.values import Usage
from tests.helpers import rest_slow

from .raw import error_of, post_of
from .served import SHORT, Served, engines
from .speech import DIALECTS, PATHS, body, says, whole_of
from .test_endless import MB
from .upstream import Upstream

BAD = {"CR": "c:a\rb", "LF": "c:a\nx-rondel-rule: mine", "CRLF": "c:a\r\n\r\nHTTP/1.1 200 OK", "NUL": "c:a\0b"}
LONG = "m" * (2 * MB)


@pytest.fixture(scope="module")
def served(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    config = '[gateway.routes]\ndefault = "echo"\n' + engines(upstream)
    with Served(tmp_path_factory.mktemp("names"), config) as served:
        yield served


def resident_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS"))


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("model", [*BAD.values(), f"c:{LONG}", LONG], ids=[*BAD, "long", "long and bare"])
def test_what_is_no_name_of_a_model_is_refused_in_the_callers_dialect(dialect: str, model: str, web: httpx2.Client):
    """Trust 17: a line break in a model's name was a 500, and megabytes of it stayed."""
    for streams in (False, True):
        answer = web.post(**post_of(dialect, model, streams=streams))
        assert answer.status_code == 400
        assert "`model` is not a valid name" in error_of(dialect, answer.json())[1]
        assert len(answer.content) < 1_000
        assert all(len(value) < 300 for value in answer.headers.values())


def test_counting_refuses_it_too(web: httpx2.Client) -> None:
    """Trust 17."""
    post = post_of("anthropic", BAD["CRLF"])
    assert web.post("/v1/messages/count_tokens", json=post["json"]).status_code == 400


@pytest.mark.parametrize("name", ["a\nb", "a\0b", "x" * 90 + "\r\n" + "y" * 90])
def test_a_tag_is_no_way_around(name: str, web: httpx2.Client) -> None:
    """Trust 17: the sub-agent tag names a model, too."""
    text = f"<RONDEL-SUBAGENT-MODEL>c:{name}</RONDEL-SUBAGENT-MODEL> Hi"
    answer = web.post(**post_of("openai-chat", "gpt", streams=False, text=text))
    assert (answer.status_code, answer.headers["x-rondel-model"]) == (200, "echo")
    assert all("\n" not in value and len(value) < 600 for value in answer.headers.values())


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read in /proc")
@pytest.mark.parametrize("where", rest_slow(["metadata", "prompt_cache_key", "user", "model"]))
def test_names_of_megabytes_do_not_stay(where: str, served: Served, web: httpx2.Client) -> None:
    """Trust 17: forty of them, each another one, neither in memory nor in the log."""

    def ask(number: int) -> int:
        text = f"{number}-" + "s" * (2 * MB)
        fields: dict[str, Any] = (
            {"metadata": {"user_id": f"user_session_{text}"}} if where == "metadata" else {where: text}
        )
        post = post_of("openai-chat", "gpt", streams=False)
        return web.post(post["url"], json=post["json"] | fields).status_code

    for number in range(5):
        ask(-number)
    before = resident_bytes(served.pid)
    answers = {ask(number) for number in range(40)}
    assert answers == ({400} if where == "model" else {200})
    assert resident_bytes(served.pid) < before + 45 * MB
    logs = [path for path in served.folder.rglob("*") if path.is_file() and path.stat().st_size > 20 * MB]
    assert logs == []


def test_headers_of_many_kilobytes_are_known_by_their_hash(served: Served, web: httpx2.Client) -> None:
    """Trust 17: sessions and projects that headers name."""
    post = post_of("openai-chat", "gpt", streams=False)
    for number in range(20):
        headers = {"x-session-id": f"{number}" * 20_000, "x-rondel-project": "p" * 20_000, "x" * 5_000: "y"}
        assert web.post(**post, headers=headers).status_code == 200
    logged = "".join(path.read_text(errors="replace") for path in served.folder.rglob("*.log*") if path.is_file())
    assert "s" * 1_000 not in logged
    assert "p" * 1_000 not in logged


def test_a_host_of_many_kilobytes_is_refused_shortly(web: httpx2.Client) -> None:
    """Trust 17: what is refused is repeated in part."""
    answer = web.post(**post_of("openai-chat", "gpt"), headers={"host": "h" * 20_000})
    assert (answer.status_code, len(answer.content) < 1_000) == (403, True)
    lost = web.get("/v1/" + "p" * 20_000)
    assert (lost.status_code, len(lost.content) < 1_000) == (404, True)


def request(**fields: Any) -> GatewayRequest:
    dialect = FORMATS["openai-chat"]()
    return GatewayRequest("r", dialect, json.dumps({"model": "m", "messages": [], **fields}).encode(), {})


def test_a_long_name_of_a_session_stays_one_name():
    """Trust 17: the same name is the same session, another one is another."""
    first, again = request(prompt_cache_key="k" * 5_000).session, request(prompt_cache_key="k" * 5_000).session
    assert first == again != request(prompt_cache_key="k" * 5_001).session
    assert len(first) < 50
    assert request(prompt_cache_key="work on the kettle").session == "work on the kettle"
    assert request(prompt_cache_key="two\nlines").session.isprintable()


def test_the_longest_name_of_a_model_is_one():
    """Trust 17: nobody honest is refused."""
    assert request(model="m" * MODEL_CHARS_MAX).model == "m" * MODEL_CHARS_MAX
    assert request(model="accounts/ünï/models/模型@2026-01-01").model
    with pytest.raises(PromptRejected):
        request(model="m" * (MODEL_CHARS_MAX + 1))


@pytest.mark.parametrize("text", ["a\r\nb", "a\0b", "a\x85b\u2028c", "x" * 5_000, "plain"])
def test_no_text_breaks_out_of_a_header(text: str):
    """Trust 17: also what a project's own router says."""
    line = _header_value(text)
    assert len(line) <= 500
    assert not any(byte < 32 or byte == 127 for byte in line)


def test_a_model_that_names_itself_with_megabytes_is_charged_under_a_short_name(
    upstream: Upstream, served: Served, web: httpx2.Client
) -> None:
    """Trust 17: the other side chooses names, too."""
    before = resident_bytes(served.pid)
    for number in range(20):
        said = whole_of("openai-chat", says("Hello")) | {"model": f"{number}{LONG}"}
        name = upstream.plays([body(said)])
        answer = web.post(
            PATHS["openai-chat"],
            json=post_of("openai-chat", f"{SHORT['openai-chat']}:{name}")["json"] | {"stream": False},
        )
        assert answer.status_code == 200
    assert resident_bytes(served.pid) < before + 40 * MB


async def test_the_ledger_keeps_no_scope_of_megabytes():
    """Trust 17: what it knows of scopes is bounded in number and in size."""
    ledger = Ledger(MemoryStore().ledger_store)
    tracemalloc.start()
    for number in range(50):
        scope = Scope("chat", f"{number}" + LONG, conversation=LONG)
        ledger.settle(await ledger.reserve(scope, tokens=lambda: (1, 1)), Usage(1, 1), model=f"x{number}{LONG}")
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 5 * MB
