"""What a provider's refusal means, and how ours looks in each dialect."""

from __future__ import annotations

import pytest

from rondel.dialects import DIALECTS
from rondel.errors import (
    EngineDenied,
    EngineError,
    EngineGarbled,
    EngineOverloaded,
    EngineTimeout,
    EngineUnreachable,
    PromptRejected,
)
from rondel.values import PartDelta, PartStarted, ReplyStarted, Text

from .helpers import NAMES

ANTHROPIC_BODY = b'{"type":"error","error":{"type":"invalid_request_error","message":"max_tokens: too big"}}'
OPENAI_BODY = b'{"error":{"message":"Incorrect API key","type":"invalid_request_error","code":"invalid_api_key"}}'


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, PromptRejected),
        (401, EngineDenied),
        (403, EngineDenied),
        (404, PromptRejected),
        (402, EngineDenied),
        (408, EngineTimeout),
        (413, PromptRejected),
        (422, PromptRejected),
        (429, EngineOverloaded),
        (500, EngineOverloaded),
        (503, EngineOverloaded),
        (529, EngineOverloaded),
        (302, EngineGarbled),
    ],
)
def test_a_status_means_an_error(name: str, status: int, kind: type[EngineError]) -> None:
    error = DIALECTS[name]().reply_reader().read_error(status, b"", provider="acme", model="m")
    assert type(error) is kind
    assert str(error).startswith("acme ")
    assert str(status) in str(error)
    assert (error.provider, error.model) == ("acme", "m")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (500, b"", "acme had an internal error (status 500)"),
        (502, b"", "acme had an internal error (status 502)"),
        (503, b"", "acme has no capacity now (status 503)"),
        (529, b"", "acme has no capacity now (status 529)"),
        (429, b"", "acme refused the request (429); try again later"),
        (
            500,
            b'{"error":{"type":"overloaded_error","message":"Busy."}}',
            "acme has no capacity now (status 500): Busy",
        ),
        (404, b"", "acme rejected the request (status 404); check the name of the model 'm', and the base URL"),
    ],
)
def test_a_fault_is_told_as_what_it_was(name: str, status: int, body: bytes, said: str) -> None:
    """Trust 9: a server that fails by itself is not one without capacity."""
    assert str(DIALECTS[name]().reply_reader().read_error(status, body, provider="acme", model="m")).startswith(said)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("body", "said", "code"),
    [
        (ANTHROPIC_BODY, "max_tokens: too big", "invalid_request_error"),
        (OPENAI_BODY, "Incorrect API key", "invalid_api_key"),
        (b'{"error":"model not loaded"}', "model not loaded", "400"),
        (b'{"detail":[{"loc":["body"],"msg":"wrong"}]}', '"msg":"wrong"', "400"),
        (b'[{"error":{"code":400,"message":"Bad","status":"INVALID_ARGUMENT"}}]', "Bad", "400"),
        (b"upstream connect error", "upstream connect error", "400"),
        (b"\xff\xfe", "\N{REPLACEMENT CHARACTER}", "400"),
        (b"", "status 400", "400"),
        (b"null", "status 400", "400"),
    ],
)
def test_the_providers_own_words_are_quoted(name: str, body: bytes, said: str, code: str) -> None:
    error = DIALECTS[name]().reply_reader().read_error(400, body)
    assert said in str(error)
    assert error.code == code


def test_long_words_are_cut() -> None:
    error = DIALECTS["anthropic"]().reply_reader().read_error(500, b"x" * 100_000)
    assert len(str(error)) < 700
    assert "xxx..." in str(error)


def test_a_page_is_told_from_an_api() -> None:
    page = b"\n <!DOCTYPE html><html><head><title>404 - nginx</title></head><body>" + b"x" * 10_000
    error = DIALECTS["openai-chat"]().reply_reader().read_error(404, page)
    assert "answered an HTML page, not JSON; is the base URL right?" in str(error)
    assert "404 - nginx" in str(error)
    assert len(str(error)) < 300


def with_status(error: EngineError, status: int) -> EngineError:
    error.status = status
    return error


ERRORS = [
    (PromptRejected("bad"), 400, "invalid_request_error"),
    (EngineDenied("bad"), 401, "authentication_error"),
    (EngineDenied("bad", code="permission_error"), 403, "permission_error"),
    (EngineOverloaded("bad", code="429"), 429, "rate_limit_error"),
    (EngineError("bad"), 500, None),
    (EngineUnreachable("bad"), 502, None),
    (EngineGarbled("bad"), 502, None),
    (EngineOverloaded("bad"), 503, None),
    (EngineTimeout("bad"), 504, None),
    (EngineDenied("bad", code="401", provider="acme"), 502, None),
    (EngineDenied("bad", code="permission_error", provider="acme"), 502, None),
    (with_status(PromptRejected("bad", code="odd"), 413), 413, None),
    (with_status(PromptRejected("bad", code="odd"), 422), 422, "invalid_request_error"),
    (with_status(EngineOverloaded("bad", code="odd"), 429), 429, "rate_limit_error"),
    (with_status(EngineOverloaded("bad", code="odd"), 500), 500, None),
    (with_status(EngineOverloaded("bad", code="odd"), 529), 529, None),
    (with_status(EngineTimeout("bad", code="odd"), 408), 504, None),
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("error", "status", "kind"), ERRORS)
def test_an_error_has_the_envelope_of_its_dialect(name: str, error: EngineError, status: int, kind: str | None) -> None:
    """A provider's refusal of our key is no 401 for the caller, whose own key is good; other statuses are kept."""
    got, body = DIALECTS[name]().reply_writer().write_error(error)
    assert got == ((529 if name == "anthropic" else 503) if status in (503, 529) else status)
    assert body["error"]["message"] == "bad"
    assert kind is None or body["error"]["type"] == kind
    assert body.get("type") == ("error" if name == "anthropic" else None)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("error", [error for error, _, _ in ERRORS])
def test_an_error_in_a_stream_is_read_as_an_error(name: str, error: EngineError) -> None:
    """X04: a stream that fails ends with an error, also for a reader of the same dialect."""
    dialect = DIALECTS[name]()
    raw = dialect.reply_writer(model="m", id="i").fail(error)
    with pytest.raises(EngineError, match="bad"):
        dialect.reply_reader().feed(raw)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("nonsense", [b"", b"data: {not json\n\n"])
def test_words_that_come_in_one_piece_with_an_error_are_not_lost(name: str, nonsense: bytes) -> None:
    """X04: what was said is kept, and then the stream fails."""
    dialect = DIALECTS[name]()
    writer, reader = dialect.reply_writer(model="m", id="i"), dialect.reply_reader()
    said = (ReplyStarted("m", "i"), PartStarted(0, Text("")), PartDelta(0, "Hel"), PartDelta(0, "lo"))
    deltas = reader.feed(b"".join(map(writer.feed, said)) + (nonsense or writer.fail(EngineOverloaded("bad"))))
    assert [delta.text for delta in deltas if isinstance(delta, PartDelta)] == ["Hel", "lo"]
    assert isinstance(reader.failure, EngineGarbled if nonsense else EngineOverloaded)
    with pytest.raises(EngineError) as raised:
        reader.finish()
    assert raised.value is reader.failure


@pytest.mark.parametrize("name", NAMES)
def test_an_error_in_a_whole_reply_is_raised(name: str) -> None:
    dialect = DIALECTS[name]()
    _, body = dialect.reply_writer().write_error(EngineOverloaded("bad"))
    with pytest.raises(EngineError, match="bad"):
        dialect.reply_reader().read_whole(body)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "body", [{"choices": []}, {"content": 5, "output": 5}, {"output": [{"type": 5}], "content": [5]}]
)
def test_a_whole_reply_that_is_nonsense_is_garbled(name: str, body: dict[str, object]) -> None:
    if name != "openai-chat" and "choices" in body:
        return
    with pytest.raises(EngineGarbled, match=f"does not follow the {name} protocol"):
        DIALECTS[name]().reply_reader().read_whole(body)


def test_keys_travel_as_each_dialect_wants() -> None:
    assert DIALECTS["anthropic"]().headers == {"x-api-key": "{key}", "anthropic-version": "2023-06-01"}
    assert DIALECTS["openai-chat"]().headers == {"authorization": "Bearer {key}"}
    assert DIALECTS["openai-responses"]().headers == {"authorization": "Bearer {key}"}
