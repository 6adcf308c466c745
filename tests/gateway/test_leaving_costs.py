"""A caller that leaves pays for what it made a provider do: whatever it asked for, and whenever it left."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from .raw import Line, error_of, post_of
from .served import SHORT, Served, engines
from .speech import DIALECTS, Spent, beginning_of, head, played, says, silent_beginning_of
from .upstream import WAIT_S, Mark, Script, Silence, Upstream

PHASES = ("before_headers", "before_the_first_token", "in_mid_stream", "whole_before_headers", "whole_in_the_body")
PAIRS = (*((dialect, dialect) for dialect in DIALECTS), ("anthropic", "openai-chat"), ("openai-chat", "anthropic"))
BUDGET = 100_000
LONG = "word " * 32_000  # About 40,000 tokens: two fit into the budget, a third does not.
SPENT = Spent(fresh=40_000)  # What an upstream says of it that tells its usage at the beginning


def key_of(phase: str, caller: str, model: str) -> str:
    return f"{phase}-{SHORT[caller]}{SHORT[model]}"


def auth(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}-{'x' * 20}"}


@pytest.fixture(scope="module")
def metered(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    keys = [key_of(phase, *pair) for phase, pair in itertools.product(PHASES, PAIRS)]
    tables = [f'[gateway.keys.{key}]\nkey = "{key}-{"x" * 20}"\nbudget = {{tokens = {BUDGET}}}\n' for key in keys]
    tables.append(f'[gateway.keys.small]\nkey = "small-{"x" * 20}"\nbudget = {{tokens = 1000}}\n')
    config = '[gateway.routes]\ndefault = "c"\n' + engines(upstream) + "".join(tables)
    with Served(tmp_path_factory.mktemp("costs"), config) as served:
        yield served


def script(phase: str, caller: str, model: str, mark: Mark) -> Script:
    if phase.endswith("headers"):
        return [mark, Silence()]
    if phase == "before_the_first_token":
        return [*silent_beginning_of(model, spent=SPENT), mark, Silence()]
    if phase == "whole_in_the_body" and caller == model:
        return [head(200, "application/json"), b'{"id": "x", ', mark, Silence()]
    return [*beginning_of(model, spent=SPENT), mark, Silence()]


def leave(phase: str, caller: str, model: str, upstream: Upstream, port: int) -> None:
    mark = Mark()
    name = upstream.plays(script(phase, caller, model, mark))
    post = post_of(caller, f"{SHORT[model]}:{name}", streams=not phase.startswith("whole"), text=LONG)
    with Line(port) as line:
        line.post(**post, headers=auth(key_of(phase, caller, model)))
        mark.wait_reached()
        if phase == "in_mid_stream":
            assert b"200 OK" in line.read_until(b"H")
    upstream.visit(name).wait_left()


@pytest.mark.parametrize("phase", PHASES)
def test_who_leaves_early_has_spent_its_budget(phase: str, upstream: Upstream, metered: Served) -> None:
    """Trust 11: callers who leave early pay: in every phase, streamed or whole, relayed or through the loop."""

    def spend(pair: tuple[str, str]) -> None:
        for _ in range(2):
            leave(phase, *pair, upstream, metered.port)
        caller, model = pair
        name = upstream.plays(played(model, says("Hello"), False))
        post = post_of(caller, f"{SHORT[model]}:{name}", streams=False, text=LONG)
        with httpx2.Client(base_url=metered.base_url, timeout=WAIT_S) as web:
            answer = web.post(**post, headers=auth(key_of(phase, *pair)))
        assert (pair, answer.status_code, upstream.count(name)) == (pair, 429, 0)
        assert "token limit of 100,000" in error_of(caller, answer.json())[1]

    with ThreadPoolExecutor(len(PAIRS)) as pool:
        list(pool.map(spend, PAIRS))


@pytest.mark.parametrize(("caller", "model"), [("openai-chat", "openai-chat"), ("openai-chat", "anthropic")])
def test_a_request_that_does_not_fit_into_what_is_left_is_not_sent(
    caller: str, model: str, upstream: Upstream, metered: Served
) -> None:
    """Trust 11: 50,000 tokens under a budget of 1,000 reach no provider, and the caller is told why."""
    name = upstream.plays()
    with httpx2.Client(base_url=metered.base_url, timeout=WAIT_S) as web:
        answer = web.post(**post_of(caller, f"{SHORT[model]}:{name}", text="word " * 40_000), headers=auth("small"))
        assert (answer.status_code, upstream.count(name)) == (429, 0)
        said = error_of(caller, answer.json())[1]
        assert "The month token limit of 1,000 for key small has " in said
        assert "about 50," in said
        small = upstream.plays(played(model, says("Hello"), False))
        short = post_of(caller, f"{SHORT[model]}:{small}", streams=False)
        assert web.post(**short, headers=auth("small")).status_code == 200  # what fits is answered
