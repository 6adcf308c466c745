"""Image engines: over HTTP against a server on loopback, and charged by the ledger. No server is trusted."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engines.scripted_http import ScriptedServer, Silence, answer

from rondel.charge import Scope
from rondel.contracts.images import COUNT_MAX, PROMPT_CHARS_MAX, GeneratedImages, ImageEngine, ImageRequest, image_name
from rondel.contracts.ledger import Rule
from rondel.errors import ConfigError, EngineDenied, EngineError, EngineGarbled, PromptRejected, TokenLimitError
from rondel.ledger.ledger import Ledger
from rondel.ledger.prices import Price, Prices
from rondel.machine.images import Images
from rondel.project.images import make_image_engine
from rondel.project.settings import Config, EngineSettings, RetrySettings
from rondel.stores.memory import MemoryStore
from rondel.testing import Pause, ScriptedImages
from rondel.testing.png import draw_png
from rondel.text.multipart import FormPart, read_form, write_form
from rondel.values import Media, Usage

PNG = draw_png("8x8")
PICTURE = Media("image", "image/png", PNG, name="old.png")


def drawn(*pictures: bytes, **more: Any) -> bytes:
    data = [{"b64_json": base64.b64encode(picture).decode()} for picture in pictures]
    return answer(json.dumps({"created": 1, "data": data, **more}))


def at(server: ScriptedServer, model: str = "gpt-image-1", **settings: Any) -> ImageEngine:
    given = {"retry": RetrySettings(attempts=1), **settings}
    engine = EngineSettings(base_url=server.url, key="secret-key-1", **given)
    return make_image_engine(f"mine:{model}", Config(engines={"mine": engine}))


async def test_a_prompt_becomes_pictures() -> None:
    """A06: an engine makes pictures, and reports what they used."""
    usage = {
        "input_tokens": 50,
        "output_tokens": 1_056,
        "input_tokens_details": {"image_tokens": 40, "text_tokens": 10},
    }
    async with ScriptedServer([drawn(PNG, PNG, usage=usage, model="gpt-image-1-2025")]) as server:
        engine = at(server)
        made = await engine.generate(ImageRequest("a Red fox!", 2, "1024x1024", options={"quality": "low"}))
        assert engine.name == "mine:gpt-image-1"
    assert [image.data for image in made.images] == [PNG, PNG]
    assert [image.name for image in made.images] == ["a-red-fox.png", "a-red-fox-1.png"]
    assert (made.usage, made.image_tokens_in, made.model) == (Usage(50, 1_056), 40, "gpt-image-1-2025")
    (asked,) = server.requests
    assert asked.target == "/v1/images/generations"
    assert asked.headers["authorization"] == "Bearer secret-key-1"
    wanted = {"model": "gpt-image-1", "prompt": "a Red fox!", "n": 2, "size": "1024x1024", "quality": "low"}
    assert asked.body == wanted


async def test_a_model_that_may_answer_with_addresses_is_asked_for_data() -> None:
    async with ScriptedServer([drawn(PNG)]) as server:
        await at(server, "flux").generate(ImageRequest("x"))
    assert server.requests[0].body["response_format"] == "b64_json"


async def test_pictures_are_edited_with_a_form() -> None:
    second = Media("image", "image/jpeg", b"\xff\xd8\xff\xe0 not the end \r\n--", name='a"\r\nb.jpg')
    async with ScriptedServer([drawn(PNG)], [drawn(PNG)]) as server:
        engine = at(server)
        await engine.generate(ImageRequest("add a hat", sources=(PICTURE,), mask=PICTURE))
        await engine.generate(ImageRequest("join them", sources=(PICTURE, second)))
    one, two = (read_form(asked.headers["content-type"], asked.body) for asked in server.requests)
    assert {asked.target for asked in server.requests} == {"/v1/images/edits"}
    assert [part.name for part in one] == ["model", "prompt", "n", "image", "mask"]
    assert one[3] == FormPart("image", PNG, "old.png", "image/png")
    assert [(part.name, part.data) for part in two[3:]] == [("image[]", PNG), ("image[]", second.data)]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (answer("<html><body>hi", content_type="text/html"), "web page"),
        (answer("<html><body>hi", content_type="application/json"), "web page"),
        (answer("{}"), "not a list of pictures"),
        (drawn(), "sent no picture"),
        (answer('{"data": [{}]}'), "without data"),
        (answer('{"data": [{"b64_json": "?"}]}'), "not a list of pictures"),
        (drawn(b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"), "not a picture"),
        (drawn(b"\x00" * 100), "not a picture"),
        (drawn(PNG + bytes(20_000_000)), "at most 20 MB"),
        (answer('{"data": [{"url": "file:///etc/passwd"}]}'), "was not fetched"),
        (answer('{"data": [{"url": "http://127.0.0.1:1/x.png"}]}'), "loopback address"),
        (answer('{"data": [{"url": "http://localhost:1/x.png"}]}'), "was not fetched"),
        (answer('{"data": [{"url": "http://169.254.169.254/latest"}]}'), "metadata address"),
    ],
)
async def test_what_is_not_a_picture_is_an_error_that_says_so(body: bytes, said: str) -> None:
    async with ScriptedServer([body]) as server:
        with pytest.raises(EngineGarbled, match=said):
            await at(server).generate(ImageRequest("a fox"))


async def test_a_picture_may_come_from_a_network_that_the_settings_allow() -> None:
    async with ScriptedServer([answer(PNG, content_type="text/html")]) as files:
        body = answer(json.dumps({"data": [{"url": f"{files.url}/fox.png"}]}))
        async with ScriptedServer([body]) as server:
            made = await at(server, image_networks=("127.0.0.1",)).generate(ImageRequest("a fox"))
    assert made.images[0].data == PNG  # its type is told by its bytes, not by its header
    assert made.images[0].mime == "image/png"


async def test_only_what_cannot_have_been_charged_is_tried_again() -> None:
    retry = RetrySettings(attempts=3, base_s=0.0)
    busy = answer(json.dumps({"error": {"message": "busy"}}), 429)
    async with ScriptedServer([busy], [drawn(PNG)]) as server:
        assert (await at(server, retry=retry).generate(ImageRequest("a fox"))).images
    async with ScriptedServer([answer("nonsense")]) as server:
        with pytest.raises(EngineGarbled):
            await at(server, retry=retry).generate(ImageRequest("a fox"))
        assert len(server.requests) == 1


async def test_an_error_of_the_server_says_what_it_was_and_shows_no_key() -> None:
    refusal = answer(json.dumps({"error": {"message": "bad key secret-key-1"}}), 401)
    broken = answer("oh no", 500, "text/plain")
    async with ScriptedServer([refusal], [broken]) as server:
        with pytest.raises(EngineDenied) as caught:
            await at(server).generate(ImageRequest("a fox"))
        with pytest.raises(EngineError, match=r"500|oh no"):
            await at(server).generate(ImageRequest("a fox"))
    assert "secret-key-1" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"prompt": " "}, "the prompt is empty"),
        ({"prompt": "x" * 1_000_000}, f"at most {PROMPT_CHARS_MAX:,}"),
        ({"count": 0}, f"ask for 1 to {COUNT_MAX}"),
        ({"size": "big"}, "'big' is not a size"),
        ({"size": "99999x1"}, "is not a size"),
        ({"mask": PICTURE}, "no picture to edit"),
        ({"sources": (PICTURE,) * 17}, "too many to edit"),
        ({"sources": (Media("image", "image/png", b"<svg/>", name="x.png"),)}, "'x.png' is not a picture"),
    ],
)
def test_a_request_that_no_engine_can_answer_is_refused_in_one_sentence(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(PromptRejected, match=said):
        ImageRequest(**{"prompt": "a fox", **fields})


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("anthropic:claude", "'anthropic' makes no pictures"),
        ("local:smollm2-135m", "'local' makes no pictures"),
        ("echo", "'echo' makes no pictures"),
        ("openai", "no model is set"),
        ("opnai:x", "no image engine 'opnai:x'; did you mean 'openai'"),
    ],
)
def test_a_wrong_name_is_one_sentence(name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make_image_engine(name, Config(), env={})


@pytest.mark.parametrize("prompt", ["../../etc/passwd", "", "Ünï\x1b[31m\x00", "a" * 500, "con"])
def test_the_name_of_a_picture_is_a_plain_file_name(prompt: str) -> None:
    name = image_name(prompt, "image/png")
    assert len(name) < 60
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789-.")
    assert not name.startswith(("-", "."))


# --- forms ------------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.text('ab[]"\\ é', min_size=1), st.binary(), st.sampled_from(["", "x.png", 'q".png']))))
def test_a_form_is_read_as_it_was_written(fields: list[tuple[str, bytes, str]]) -> None:
    parts = [FormPart(name.replace("\\", "/"), data, filename) for name, data, filename in fields]
    read = read_form("multipart/form-data; boundary=b-0123456789", write_form(parts, "b-0123456789")) if parts else []
    assert read == parts


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/json", b"{}"),
        ("multipart/form-data", b"--x--"),
        ("multipart/form-data; boundary=x", b""),
        ("multipart/form-data; boundary=x", b"--x\r\n\r\n"),
        ("multipart/form-data; boundary=x", b"--x\r\nnothing\r\n--x--"),
        ("multipart/form-data; boundary=x", b"--x\r\nContent-Disposition: form-data\r\n\r\nv\r\n--x--"),
        ("multipart/form-data; boundary=x", b"--x\r\na: b\r\n\r\nv\r\n" * 200 + b"--x--"),
    ],
)
def test_what_is_no_form_is_a_sentence(kind: str, body: bytes) -> None:
    with pytest.raises(ValueError, match="form"):
        read_form(kind, body)


# --- the ledger -------------------------------------------------------------------------------------------------------


def ledger_with(*rules: Rule, **prices: Price) -> Ledger:
    own = {"test": {name.replace("_", "-"): price for name, price in prices.items()}}
    return Ledger(MemoryStore().ledger_store, rules=rules, prices=Prices(own))


async def test_every_call_is_charged_as_an_image() -> None:
    """L05: the kind `image`, by what the upstream reports."""
    ledger = ledger_with()
    images = Images(ScriptedImages(), ledger.charge_images)
    picture = await images.generate("a fox", person="ada")
    assert picture.data.startswith(b"\x89PNG")
    totals = await ledger.totals(by="kind", value="image")
    assert (totals.calls, totals.tokens_in, totals.tokens_out, totals.estimated) == (1, 10, 1_056, 0)
    assert (await ledger.totals(by="person", value="ada")).calls == 1
    assert (await ledger.totals(by="model", value="images")).calls == 1


async def test_a_picture_has_a_price_of_its_own() -> None:
    ledger = ledger_with(images=Price(image=0.04))
    images = Images(ScriptedImages(usage=Usage()), ledger.charge_images)
    await images.make(ImageRequest("a fox", 3))
    totals = await ledger.totals(by="kind", value="image")
    assert (totals.cost_nanousd, totals.estimated) == (120_000_000, 1)  # the server reported no tokens


def test_tokens_of_pictures_have_the_prices_of_the_lists() -> None:
    from rondel.charge import ImageUsage

    prices = Prices()
    prices.load()
    used, at = Usage(1_100, 1_000), 1_790_000_000.0
    text = prices.charged("openai", "gpt-image-1", Usage(1_100), at)[0]
    assert text is not None
    assert prices.charged("openai", "gpt-image-1", used, at, ImageUsage(1))[0] == text + 40_000_000
    # 1,000 of the tokens are pictures, which cost 10 dollars for a million instead of 5
    assert prices.charged("openai", "gpt-image-1", used, at, ImageUsage(1, 1_000))[0] == text + 45_000_000
    drawn, said = (prices.charged("openai", "gpt-image-1.5", used, at, i)[0] for i in (ImageUsage(1), None))
    assert drawn is not None
    assert said is not None
    assert drawn > said


@pytest.mark.parametrize("rule", [Rule({"kind": "image"}, tokens=2_500, mode="block"), Rule(money=0.1, mode="block")])
async def test_a_limit_holds_before_the_call(rule: Rule) -> None:
    """L05: what does not fit into a budget is not drawn, and a refused call costs nothing."""
    ledger = ledger_with(rule, images=Price(image=0.04))
    engine = ScriptedImages()
    images = Images(engine, ledger.charge_images)
    await images.generate("a fox")
    await images.generate("a fox")
    with pytest.raises(TokenLimitError):
        await images.generate("a fox")
    assert len(engine.requests) == 2
    assert (await ledger.totals(by="kind", value="image")).calls == 2


async def test_what_was_refused_is_free_and_what_broke_off_is_not() -> None:
    ledger = ledger_with()
    for error, calls in ((PromptRejected("no foxes"), 0), (EngineGarbled("nonsense"), 1)):
        with pytest.raises(EngineError):
            await Images(ScriptedImages(error), ledger.charge_images).generate("a fox")
        assert (await ledger.totals(by="kind", value="image")).calls == calls


async def test_who_leaves_while_a_picture_is_drawn_pays_for_it_and_closes_the_request() -> None:
    ledger = ledger_with()
    pause = Pause()
    async with ScriptedServer([Silence()]) as server:
        engines = {"quick": ScriptedImages(pause), "slow": at(server)}
        for name, asked in (("quick", pause.reached), ("slow", server.asked)):
            drawing = asyncio.ensure_future(Images(engines[name], ledger.charge_images).generate("a fox"))
            await asked.wait()
            drawing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await drawing
        await server.left.wait()
    totals = await ledger.totals(by="kind", value="image")
    assert (totals.calls, totals.estimated) == (2, 2)


async def test_the_next_engine_is_asked_if_one_fails_and_each_is_charged() -> None:
    ledger = ledger_with()
    first, second = ScriptedImages(EngineGarbled("nonsense"), name="test:one"), ScriptedImages(name="test:two")
    images = Images([first, second], ledger.charge_images, {"size": "32x16", "quality": "low"})
    picture = await images.generate("a fox")
    assert picture.data[16:24] == b"\x00\x00\x00\x20\x00\x00\x00\x10"
    assert second.requests[0].options == {"quality": "low"}
    assert (await ledger.totals(by="kind", value="image")).calls == 2
    with pytest.raises(EngineDenied, match="may not use 'test:one'"):
        await images.allowed(lambda name: False).generate("a fox")
    both = Images(
        [ScriptedImages(PromptRejected("one")), ScriptedImages(EngineGarbled("two"), name="test:b")],
        ledger.charge_images,
    )
    with pytest.raises(PromptRejected, match="one") as caught:
        await both.generate("a fox")
    assert caught.value.__notes__ == ["then test:b failed too: two"]


class Drawing:
    """The least that an image engine has."""

    name = "mine:pencil"

    async def generate(self, request: ImageRequest) -> GeneratedImages:
        return GeneratedImages((PICTURE,))


async def test_an_engine_needs_a_name_and_one_method() -> None:
    assert isinstance(Drawing(), ImageEngine)
    ledger = ledger_with()
    made = await ledger.charge_images(Drawing(), Scope(person="ada")).generate(ImageRequest("a fox"))
    assert made.images == (PICTURE,)
    assert (await ledger.totals(by="person", value="ada")).estimated == 1
