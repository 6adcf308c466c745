"""Models that take images as data only: what is fetched for them, within which bounds, and what a failure becomes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
import pytest

from rondel import Agent, Prompt, ask
from rondel.contracts.endpoint import PROVIDERS, facts_of
from rondel.dialects import DIALECTS
from rondel.errors import ConfigError, PromptRejected
from rondel.fetching import FetchError
from rondel.fetching.engine import Bounds, FetchImages, fetch_all
from rondel.project.config import load
from rondel.project.engines import make_engine
from rondel.project.settings import Config, EngineSettings, FactSettings
from rondel.testing import Scripted
from rondel.values import Delta, Media, ModelFacts, Notice, Text, ToolResult, user

PNG = b"\x89PNG\r\n\x1a\n"
CAT, DOG, GONE = (f"https://a.example/{name}.png" for name in ("cat", "dog", "gone"))


class Host:
    """Has every image but the one that is gone, and says how many were fetched at once."""

    def __init__(self, size: int = 8) -> None:
        self.asked: list[str] = []
        self.most = self._now = 0
        self._image = Media("image", "image/png", PNG.ljust(size, b"."))

    async def image(self, url: str) -> Media:
        self.asked.append(url)
        self._now += 1
        self.most = max(self.most, self._now)
        await asyncio.sleep(0)
        self._now -= 1
        if url == GONE:
            raise FetchError(f"the image at {url!r} was not fetched: its server answered 404")
        return self._image


class Silent:
    """A host that never answers."""

    async def image(self, url: str) -> Media:
        await asyncio.Event().wait()
        raise AssertionError


class Seeing:
    """A model that keeps what it is shown, streamed or passed on."""

    name, facts, dialect = "seeing:1", ModelFacts(images=True, image_urls=False), "openai-chat"

    def __init__(self) -> None:
        self.shown: list[Prompt] = []
        self.passed: list[Mapping[str, msgspec.Raw]] = []

    async def stream(self, prompt: Prompt) -> AsyncIterator[Delta]:
        self.shown.append(prompt)
        async for delta in Scripted("Nice.").stream(prompt):
            yield delta

    async def relay(self, fields: Mapping[str, msgspec.Raw], headers: Mapping[str, str], *, path: str = "") -> Any:
        self.passed.append(fields)


def at(url: str) -> Media:
    return Media("image", url=url, opaque={"openai-chat": {"image_url": {"detail": "low"}}})


async def heard(engine: FetchImages, prompt: Prompt) -> list[Delta]:
    return [delta async for delta in engine.stream(prompt)]


def around(model: Seeing, host: Host, bounds: Bounds | None = None) -> FetchImages:
    return FetchImages(model, DIALECTS["openai-chat"](), host, bounds)


def fields(*parts: dict[str, Any]) -> dict[str, msgspec.Raw]:
    messages = [{"role": "user", "content": list(parts)}]
    return {"messages": msgspec.Raw(msgspec.json.encode(messages)), "model": msgspec.Raw(b'"m"')}


def image_part(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, "detail": "low"}}


# --- conversations ----------------------------------------------------------------------------------------------------


def test_a_model_sees_the_image_and_the_rest_of_the_prompt_is_the_same():
    model, host = Seeing(), Host()
    plain = user("hello")
    prompt = Prompt.of(plain, user("look", at(CAT)), user(ToolResult("c1", (at(CAT), at(DOG)))))
    asyncio.run(heard(around(model, host), prompt))
    (shown,) = model.shown
    assert shown.messages[0] is plain
    seen = shown.messages[1].parts[1]
    assert isinstance(seen, Media)
    assert (seen.url, seen.data[:8], seen.opaque) == ("", PNG, at(CAT).opaque)
    assert host.asked == [CAT, DOG]


def test_a_prompt_without_addresses_is_given_on_as_it_is():
    model, host = Seeing(), Host()
    prompt = Prompt.of(user("look", Media("image", "image/png", PNG), Media("file", url="https://a.example/a.pdf")))
    asyncio.run(heard(around(model, host), prompt))
    assert model.shown[0] is prompt
    assert host.asked == []


def test_a_conversation_goes_on_with_a_sentence_in_the_place_of_an_image_that_is_gone():
    model = Seeing()
    deltas = asyncio.run(heard(around(model, Host()), Prompt.of(user("look", at(GONE), at(CAT)))))
    said = f"the image at {GONE!r} was not fetched: its server answered 404"
    assert deltas[0] == Notice(said)
    assert model.shown[0].messages[0].parts[1] == Text(f"(There was an image here: {said}.)")
    assert model.shown[0].messages[0].parts[2].data  # pyright: ignore


def test_an_agent_answers_although_an_image_is_gone():
    model = Seeing()
    result = asyncio.run(ask(Agent("helper", engine=around(model, Host())), user("look", at(GONE))))
    assert (result.output, result.error) == ("Nice.", "")
    assert "There was an image here" in model.shown[0].messages[-1].text


def test_a_foreign_program_is_told_of_an_image_that_is_gone_and_the_model_is_not_asked():
    model = Seeing()
    with pytest.raises(PromptRejected, match=r"answered 404; seeing:1 takes images as data only") as raised:
        asyncio.run(heard(around(model, Host()), Prompt.of(user("look", at(GONE))).replace(model="theirs")))
    assert (raised.value.code, raised.value.retryable) == ("invalid_image_url", False)
    assert model.shown == []


# --- requests that are passed on --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "parts",
    [
        [{"type": "text", "text": '{"image_url": {"url": "https://a.example/cat.png"}}'}],
        [image_part("data:image/png;base64,iVBORw0KGgo=")],
        [{"type": "image_url", "image_url": CAT}, {"type": "image_url", "image_url": {"url": 7}}],
        [{"type": "of_tomorrow", "url": CAT}],
    ],
)
def test_a_body_without_images_to_fetch_is_passed_on_byte_for_byte(parts: list[dict[str, Any]]):
    model, host = Seeing(), Host()
    sent = fields(*parts)
    asyncio.run(around(model, host).relay(sent, {}))
    assert model.passed[0]["messages"] is sent["messages"]
    assert host.asked == []


@pytest.mark.parametrize("raw", [b'[{"image_url":"x"', b"7", b'"image_url"', b'{"image_url":"http"}', b"[[]]"])
def test_a_body_that_is_no_messages_is_passed_on_for_the_models_server_to_refuse(raw: bytes):
    model = Seeing()
    asyncio.run(around(model, Host()).relay({"messages": msgspec.Raw(raw)}, {}))
    assert model.passed == [{"messages": msgspec.Raw(raw)}]
    asyncio.run(around(model, Host()).relay({}, {}))


def test_an_address_with_escaped_slashes_is_an_address():
    model, host = Seeing(), Host()
    raw = msgspec.json.encode([{"role": "user", "content": [image_part(CAT)]}]).replace(b"/", b"\\/")
    asyncio.run(around(model, host).relay({"messages": msgspec.Raw(raw)}, {}))
    assert host.asked == [CAT]
    assert b"data:image/png;base64," in bytes(model.passed[0]["messages"])


# --- bounds -----------------------------------------------------------------------------------------------------------


def test_several_are_fetched_at_once_and_never_too_many():
    host = Host()
    urls = [f"https://a.example/{n}.png" for n in range(20)]
    found = asyncio.run(fetch_all([*urls, *urls], host))
    assert all(isinstance(found[url], Media) for url in urls)
    assert (sorted(host.asked), host.most) == (sorted(urls), 8)


def test_of_too_many_images_the_last_are_fetched():
    found = asyncio.run(fetch_all([CAT, DOG, GONE], Host(), Bounds(images=2)))
    assert list(found) == [CAT, DOG, GONE]
    assert "this request has 3 images as addresses, and at most 2 are fetched" in str(found[CAT])
    assert isinstance(found[DOG], Media)


def test_images_that_are_too_large_together_are_refused_and_no_more_are_asked_for():
    host = Host(size=600)
    urls = [f"https://a.example/{n}.png" for n in range(6)]
    found = asyncio.run(fetch_all(urls, host, Bounds(size_bytes=1_000, at_once=1)))
    assert isinstance(found[urls[0]], Media)
    assert all("larger than 1,000 bytes" in str(found[url]) for url in urls[1:])
    assert len(host.asked) == 2


def test_a_host_that_never_answers_is_left_after_the_time_for_all():
    found = asyncio.run(fetch_all([CAT], Silent(), Bounds(seconds=0.01)))
    assert "took longer than 0.01 seconds" in str(found[CAT])


# --- which models -----------------------------------------------------------------------------------------------------


def test_the_servers_that_take_only_data_are_known():
    assert {name for name in PROVIDERS if not facts_of(name, "some-model").image_urls} == {"ollama", "lmstudio"}
    assert facts_of("a-server-of-mine", "some-model").image_urls


@pytest.mark.parametrize(
    ("provider", "told", "fetches"),
    [("ollama", None, True), ("ollama", True, False), ("anthropic", None, False), ("anthropic", False, True)],
)
def test_a_person_may_know_better_which_server_takes_addresses(provider: str, told: bool | None, fetches: bool):
    settings = EngineSettings(provider=provider, model="m", key="k", facts=FactSettings(image_urls=told))
    engine = make_engine("mine", Config(engines={"mine": settings}), env={})
    assert isinstance(engine, FetchImages) is fetches


@pytest.mark.parametrize("network", ["10.1.2.3/16", "inside.example", "10.0.0.0/99", ""])
def test_a_network_that_is_none_is_a_mistake_with_its_line(network: str, tmp_path: Any):
    file = tmp_path / "rondel.toml"
    file.write_text(f'[engines.ollama]\nmodel = "m"\nimage_networks = [\n  "10.0.0.0/8",\n  "{network}",\n]\n')
    file.chmod(0o600)
    with pytest.raises(ConfigError, match=r"rondel.toml:5: .* is not a network"):
        load(file, env={})
