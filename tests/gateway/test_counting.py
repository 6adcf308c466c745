"""How many tokens a request has, and what is learned from how providers count."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import pytest

from rondel.gateway.routing.counting import (
    CALIBRATED,
    IMAGE_TOKENS_MAX,
    RATIO_MAX,
    TOKENIZER,
    Calibration,
    estimate,
    image_size,
    tokens_at_most,
)
from rondel.machine.tokens import MEDIA_TOKENS

from .asking import ALL, request, says

dialects = pytest.mark.parametrize("dialect", ALL)


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 16)) + chunk(b"IEND", b"")


def media(dialect: str, mime: str, data: bytes) -> dict[str, Any]:
    encoded = base64.b64encode(data).decode()
    url = f"data:{mime};base64,{encoded}"
    is_image = mime.startswith("image/")
    if dialect == "anthropic":
        source = {"type": "base64", "media_type": mime, "data": encoded}
        return {"type": "image" if is_image else "document", "source": source}
    if dialect == "openai-chat":
        file = {"type": "file", "file": {"file_data": url, "filename": "a"}}
        return {"type": "image_url", "image_url": {"url": url}} if is_image else file
    file = {"type": "input_file", "file_data": url, "filename": "a"}
    return {"type": "input_image", "image_url": url} if is_image else file


def shows(dialect: str, *blocks: dict[str, Any], **more: Any):
    field = "input" if dialect == "openai-responses" else "messages"
    return request(dialect, **{field: [{"role": "user", "content": list(blocks)}]}, **more)


@dialects
def test_texts_are_counted_by_their_characters(dialect: str):
    """R12: the same text has the same tokens in every dialect."""
    assert estimate(says(dialect, "word " * 400)) == 500
    assert estimate(says(dialect, "猫" * 30)) == 30


@dialects
def test_an_image_costs_what_its_size_says(dialect: str):
    """R12: about one token for 750 pixels, within limits; one whose size nobody can see costs the usual."""
    assert estimate(shows(dialect, media(dialect, "image/png", png(750, 300)))) == 300
    assert estimate(shows(dialect, media(dialect, "image/png", png(9_000, 9_000)))) == IMAGE_TOKENS_MAX
    assert estimate(shows(dialect, media(dialect, "image/png", b"no image"))) == MEDIA_TOKENS


@dialects
def test_a_document_costs_what_is_in_it(dialect: str):
    """R12: two pages of a PDF cost more than one."""
    pages = b"%PDF-1.4 /Type /Pages " + b"/Type /Page \n"
    one, two = (estimate(shows(dialect, media(dialect, "application/pdf", pages + b"/Type/Page " * n))) for n in (0, 1))
    assert one > 0
    assert two == 2 * one


def test_text_documents_are_read():
    assert estimate(shows("anthropic", media("anthropic", "text/plain", b"word " * 400))) == 500


def test_documents_of_text_and_of_blocks_are_counted_by_their_words():
    plain = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "word " * 400}}
    block = {"type": "text", "text": "word " * 400}
    blocks = {"type": "document", "title": "abcd", "source": {"type": "content", "content": [block, block]}}
    assert estimate(shows("anthropic", plain)) == 500
    assert estimate(shows("anthropic", blocks)) == 1_001


@dialects
def test_calls_and_their_results_are_counted(dialect: str):
    words = "word " * 400
    items: dict[str, list[dict[str, Any]]] = {
        "anthropic": [
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "t", "input": {"x": words}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": words}]},
        ],
        "openai-chat": [
            {"role": "assistant", "tool_calls": [_call("c", words)]},
            {"role": "tool", "tool_call_id": "c", "content": words},
        ],
        "openai-responses": [
            {"type": "function_call", "call_id": "c", "name": "t", "arguments": f'{{"x": "{words}"}}'},
            {"type": "function_call_output", "call_id": "c", "output": words},
        ],
    }
    field = "input" if dialect == "openai-responses" else "messages"
    assert estimate(request(dialect, **{field: items[dialect]})) == pytest.approx(1_000, abs=10)


def _call(id: str, words: str) -> dict[str, Any]:
    return {"type": "function", "id": id, "function": {"name": "t", "arguments": f'{{"x": "{words}"}}'}}


def test_data_inside_something_unknown_is_no_text():
    picture = "data:image/png;base64," + base64.b64encode(png(750, 300) + b"x" * 40_000).decode()
    strange = {"type": "hologram", "front": picture, "back": "data:,plain words"}
    assert estimate(shows("openai-responses", strange)) == 300 + 5


def test_a_body_may_be_nested_as_deep_as_its_sender_likes():
    deep: Any = "word"
    for _ in range(300):
        deep = {"x": [deep]}
    assert estimate(request("anthropic", messages=[{"role": "user", "content": [deep]}])) == 1


def test_what_only_one_dialect_knows_costs_something_too():
    found = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "word " * 200}}
    hidden = {"type": "redacted_thinking", "data": "x" * 800}
    said = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": [found, hidden]}]
    assert estimate(request("anthropic", messages=said)) > 400


@dialects
def test_a_schema_of_the_answer_is_counted(dialect: str):
    schema = {"type": "object", "properties": {"x": {"type": "string", "description": "word " * 200}}}
    fields: dict[str, Any] = {
        "anthropic": {"output_config": {"format": {"type": "json_schema", "schema": schema}}},
        "openai-chat": {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}},
        "openai-responses": {"text": {"format": {"type": "json_schema", "name": "x", "schema": schema}}},
    }[dialect]
    assert estimate(request(dialect, **fields)) > 250


@dialects
def test_the_estimate_is_never_above_its_bound(dialect: str):
    blocks = [media(dialect, "image/png", png(9_000, 9_000))] * 3
    asked = [says(dialect, text * 500) for text in ("word ", "猫", "ü", "😀", "\\", "\x01")] + [shows(dialect, *blocks)]
    for one in asked:
        most = tokens_at_most(one)
        assert most is not None
        assert estimate(one) <= most
    assert tokens_at_most(shows(dialect, media(dialect, "application/pdf", b"%PDF"))) is None


def test_the_sizes_of_images_are_read_from_their_heads():
    jpeg = b"\xff\xd8\xff\xe0\x00\x10JFIF\0\1\1\0\0\1\0\1\0\0\xff\xc0\x00\x11\x08\x00\x40\x00\x80\x03"
    lossy = b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0\0\0\0\x9d\x01\x2a\x80\x00\x40\x00"
    extended = b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0\x7f\0\0\x3f\0\0"
    lossless = b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f" + (127 | 63 << 14).to_bytes(4, "little") + b"\0" * 8
    gif = b"GIF89a\x80\x00\x40\x00"
    assert {image_size(data) for data in (jpeg, lossy, extended, lossless, gif, png(128, 64))} == {(128, 64)}
    for data in (b"", b"\xff\xd8", b"\xff\xd8\xff\xe0\x00\x00", b"GIF89a", b"RIFF\0\0\0\0WEBPVP8?" + b"\0" * 20):
        assert image_size(data) is None


# --- what is learned --------------------------------------------------------------------------------------------------


def test_counts_are_corrected_by_what_an_engine_counted_before():
    """R12: the answer names how it was counted."""
    calibration, asked = Calibration(), says("anthropic", "word " * 400)
    assert calibration.count(asked, "main") == (500, TOKENIZER)
    calibration.observe("main", 1_000, 1_200)
    assert calibration.count(asked, "main") == (600, CALIBRATED)
    assert calibration.count(asked, "other") == (500, TOKENIZER)


def test_the_ratio_follows_slowly_and_stays_within_bounds():
    calibration = Calibration()
    calibration.observe("main", 1_000, 1_000)
    calibration.observe("main", 1_000, 2_000)
    assert calibration.ratio("main") == pytest.approx(1.2)
    calibration.observe("broken", 1_000, 1_000_000)
    assert calibration.ratio("broken") == RATIO_MAX
    calibration.observe("short", 10, 500)
    calibration.observe("silent", 1_000, 0)
    assert (calibration.ratio("short"), calibration.ratio("silent")) == (1.0, 1.0)


def test_only_so_many_engines_are_remembered():
    calibration = Calibration()
    for number in range(300):
        calibration.observe(f"e-{number}", 1_000, 2_000)
    assert (calibration.ratio("e-0"), calibration.ratio("e-299")) == (1.0, 2.0)
