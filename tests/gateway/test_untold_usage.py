"""Relayed answers of servers that do not tell what they spent: they are measured."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from rondel.machine.tokens import event_tokens, json_tokens

from .raw import error_of, post_of
from .served import SHORT, Served, engines
from .speech import (
    DIALECTS,
    END,
    STREAM,
    Answer,
    Call,
    Say,
    Spent,
    Think,
    beginning_of,
    body,
    chunk,
    events_of,
    played,
    says,
    whole_of,
)
from .upstream import WAIT_S, Upstream

WORDS = "words " * 20_000  # 120,000 characters: about 30,000 tokens.
BUDGET = 20_000
WAYS = ("streamed", "in one read", "whole")
KEYS = [f"{SHORT[dialect]}-{way.replace(' ', '-')}" for dialect in DIALECTS for way in WAYS]


@pytest.fixture(scope="module")
def budgeted(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    keys = [f'[gateway.keys.{key}]\nkey = "{key}-{"x" * 20}"\nbudget = {{tokens = {BUDGET}}}\n' for key in KEYS]
    keys.append(f'[gateway.keys.breaks]\nkey = "breaks-{"x" * 20}"\nbudget = {{tokens = 500}}\n')
    config = '[gateway.routes]\ndefault = "c"\n' + engines(upstream) + "".join(keys)
    with Served(tmp_path_factory.mktemp("untold"), config) as served:
        yield served


def without_usage(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_usage(inner) for key, inner in value.items() if key != "usage"}
    return [without_usage(inner) for inner in value] if isinstance(value, list) else value


def untold(dialect: str, answer: Answer) -> list[bytes]:
    """The events of an answer, with no usage in them."""
    events: list[bytes] = []
    for event in events_of(dialect, answer):
        head, _, data = event.partition(b"data: ")
        if b"[DONE]" in data:
            events.append(event)
        elif (told := json.loads(data)) and told.get("choices", True):
            events.append(head + b"data: " + json.dumps(without_usage(told)).encode() + b"\n\n")
    return events


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_20_000_words_without_usage_are_not_three_tokens(dialect: str, way: str, upstream: Upstream, budgeted: Served):
    """Trust 9: counted by their text, streamed in a few events or in one read, or whole."""
    answer, streams = says(WORDS), way != "whole"
    events = untold(dialect, answer)
    script = {
        "streamed": [STREAM, *map(chunk, events), END],
        "in one read": [STREAM, chunk(b"".join(events)), END],
        "whole": [body(without_usage(whole_of(dialect, answer)))],
    }[way]
    name = upstream.plays(script, played(dialect, says("Hello"), False))
    key = f"{SHORT[dialect]}-{way.replace(' ', '-')}"
    headers = {"authorization": f"Bearer {key}-{'x' * 20}"}
    with httpx2.Client(base_url=budgeted.base_url, timeout=WAIT_S) as web:
        first = web.post(**post_of(dialect, f"{SHORT[dialect]}:{name}", streams=streams), headers=headers)
        assert first.status_code == 200
        assert WORDS[:5_000] in first.text
        second = web.post(**post_of(dialect, f"{SHORT[dialect]}:{name}", streams=False), headers=headers)
    assert second.status_code == 429
    assert "token limit of 20,000" in error_of(dialect, second.json())[1]


def test_an_answer_that_breaks_off_costs_what_came_of_it(upstream: Upstream, budgeted: Served):
    """The usage at the beginning of an Anthropic answer tells of one token out."""
    broken = [*beginning_of("anthropic", "x" * 3_000, spent=Spent(fresh=10)), END]
    name = upstream.plays(broken, played("anthropic", says("Hello"), False))
    headers = {"authorization": f"Bearer breaks-{'x' * 20}"}
    with httpx2.Client(base_url=budgeted.base_url, timeout=WAIT_S) as web:
        first = web.post(**post_of("anthropic", f"a:{name}", streams=True), headers=headers)
        assert "event: error" in first.text
        second = web.post(**post_of("anthropic", f"a:{name}", streams=False), headers=headers)
    assert second.status_code == 429


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("answer", "tokens"),
    [
        (says("x" * 4_000), 1_000),
        (Answer((Think("y" * 4_000), Say("x" * 400))), 1_100),
        (Answer((Call("c", "look", {"at": "z" * 4_000}),)), 1_000),
        (says('"quoted" \\ and\n' * 400), 1_500),
        (says("ü" * 1_000), 1_500),
        (says("字" * 1_000), 1_500),
    ],
)
def test_what_is_measured_is_near_what_was_said(dialect: str, answer: Answer, tokens: int) -> None:
    """Trust 9: in all dialects; what comes again at the end is not counted again."""
    events = untold(dialect, answer)
    for measured in (sum(map(event_tokens, events)), event_tokens(b"".join(events))):
        assert tokens * 0.8 < measured < tokens * 1.25 + 50


def test_an_image_in_a_body_does_not_count_by_its_size() -> None:
    """Trust 11: or a limit would refuse what costs little."""
    image = json.dumps({"image_url": {"url": "data:image/png;base64," + "A" * 400_000}}).encode()
    source = json.dumps({"source": {"type": "base64", "data": "A" * 400_000}}).encode()
    assert json_tokens(image) < 1_100
    assert json_tokens(source) < 1_100
    assert json_tokens(json.dumps({"text": "word " * 1_000}).encode()) > 1_200


@pytest.mark.parametrize("way", WAYS)
def test_the_log_says_what_was_charged(way: str, upstream: Upstream, tmp_path: Path) -> None:
    """Trust 9: and not that nothing was spent, when the upstream does not tell."""
    events = untold("openai-chat", says(WORDS))
    script = {
        "streamed": [STREAM, *map(chunk, events), END],
        "in one read": [STREAM, chunk(b"".join(events)), END],
        "whole": [body(without_usage(whole_of("openai-chat", says(WORDS))))],
    }[way]
    name = upstream.plays(script)
    with Served(tmp_path, engines(upstream)) as served:
        with httpx2.Client(base_url=served.base_url, timeout=WAIT_S) as web:
            assert web.post(**post_of("openai-chat", f"c:{name}", streams=way != "whole")).status_code == 200
        served.stop()
    (log,) = (tmp_path / "state" / "rondel" / "logs").glob("*.jsonl")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    (told,) = [line["tokens_out"] for line in lines if line.get("engine") == f"c:{name}"]
    assert 25_000 < told < 40_000
