"""What people attach to their messages."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rondel import Agent, App, Prompt
from rondel.errors import RondelError
from rondel.plugins.attachments import Attachments
from rondel.prompt import Node
from rondel.stores.sqlite import SqliteStore
from rondel.testing import Scripted
from rondel.values import Media, Message, Text
from tests.helpers import talking

from ..helpers import play

PNG = Media("image", "image/png", b"\x89PNG", name="picture.png")


def notes(data: bytes = b"Buy milk.\n", mime: str = "text/plain", name: str = "notes.txt") -> Media:
    return Media("file", mime, data, name=name)


def ask(plugin: Attachments, *content: str | Text | Media, says: int = 1) -> list[Prompt]:
    engine = Scripted(*["Read."] * says)

    async def scene(app: App) -> None:
        conversation = app.conversation()
        await (await conversation.send(content)).result()
        for _ in range(says - 1):
            await (await conversation.send("And?")).result()

    play(scene, Agent("helper", "Be brief.", engine, plugins=[plugin]))
    return engine.prompts


def heard(plugin: Attachments, *content: str | Text | Media) -> Message:
    return ask(plugin, *content)[0].messages[-1]


def file_url(path: Path) -> str:
    return path.as_uri()


def test_the_text_of_a_file_is_appended_under_a_heading():
    """P14"""
    message = heard(Attachments(), "What is this?", notes())
    assert message.parts == (Text('What is this?\n\n---\n**Attachment "notes.txt":**\nBuy milk.'),)
    assert message.role == "user"


def test_several_files_follow_each_other_and_the_heading_can_be_set():
    """P14"""
    message = heard(Attachments(heading="Note"), "Compare.", notes(), notes(b"a,b", "text/csv", "table.csv"))
    assert message.text == ('Compare.\n\n---\n**Note "notes.txt":**\nBuy milk.\n\n---\n**Note "table.csv":**\na,b')


def test_an_image_stays_an_image():
    """P14: a part of its own, beside the text."""
    message = heard(Attachments(), PNG, "What is this?", notes())
    assert message.parts[0] == PNG
    assert len(message.parts) == 2
    assert message.text.startswith("What is this?\n\n---")


def test_an_attachment_without_a_word_is_the_message():
    assert heard(Attachments(), notes()).text == '---\n**Attachment "notes.txt":**\nBuy milk.'


@pytest.mark.parametrize(
    ("mime", "name", "is_text"),
    [
        ("text/markdown; charset=utf-8", "a", True),
        ("application/json", "a", True),
        ("application/ld+json", "a", True),
        ("IMAGE/SVG+XML", "a", True),
        ("", "script.PY", True),
        ("application/octet-stream", "a.toml", True),
        ("", "a", False),
        ("application/pdf", "a.txt", False),
    ],
)
def test_what_is_text_the_type_says_or_the_name(mime: str, name: str, is_text: bool):
    media = notes(b"x", mime, name)
    parts = heard(Attachments(), "Look", media).parts
    assert (media not in parts) == is_text


def test_a_file_that_is_no_text_after_all_is_a_sentence():
    """P14: unreadable -> text only."""
    for data in (b"\xff\xfe\xfa", b"a\0b", b"caf\xe9"):
        message = heard(Attachments(), "Look", notes(data))
        assert message.parts == (
            Text("Look\n\n(The attachment 'notes.txt' could not be read: it is not text in UTF-8.)"),
        )


@pytest.mark.parametrize("data", ["naïve".encode(), b"\xef\xbb\xbfna\xc3\xafve", "naïve".encode("utf-16")])
def test_marks_of_byte_order_are_understood(data: bytes):
    assert heard(Attachments(), notes(data)).text.endswith("\nnaïve")


def test_a_long_file_is_cut_and_the_cut_is_stated():
    message = heard(Attachments(chars_max=10), notes(b"0123456789abc"))
    assert message.text.endswith("\n0123456789\n\n[... cut: the attachment has 13 characters, the first 10 are shown]")
    with pytest.raises(RondelError, match="chars_max is 0; it must be at least 1"):
        Attachments(chars_max=0)


def test_a_name_cannot_break_out_of_its_heading():
    assert '**Attachment "a b":**' in heard(Attachments(), notes(name="a\n\nb")).text


# --- files on disk ----------------------------------------------------------------------------------------------------


def test_a_file_below_a_named_folder_is_read(tmp_path: Path):
    """P14: text is appended, an image becomes a part with its bytes."""
    text, image = tmp_path / "to do.txt", tmp_path / "p.png"
    text.write_text("Buy milk.")
    image.write_bytes(b"\x89PNG")
    message = heard(
        Attachments(folders=[str(tmp_path)]),
        "Look",
        Media("file", "text/plain", url=file_url(text)),
        Media("image", "image/png", url=file_url(image)),
    )
    assert message.text == 'Look\n\n---\n**Attachment "to do.txt":**\nBuy milk.'
    assert message.parts[1] == Media("image", "image/png", b"\x89PNG", name="p.png")


async def test_a_database_in_use_is_not_read_by_hand(path: Path, tmp_path: Path):
    """Trust 1: reading the store's own file in this process would release the store's locks on it."""
    async with SqliteStore(path) as store, App(Agent("helper", engine=Scripted("x")), store=store) as app:
        await (await app.conversation().send("Hi.")).result()
        for name in ("rondel.db", "rondel.db-wal", "rondel.db-shm"):
            media = Media("file", "text/plain", url=file_url(tmp_path / name))
            told = await asyncio.to_thread(heard, Attachments(folders=[str(tmp_path)]), "Look", media)
            assert told.text == (
                f"Look\n\n(The attachment {name!r} could not be read: it is a database that is in use.)"
            )


@pytest.mark.parametrize("kind", ["file", "image"])
def test_a_file_that_cannot_be_read_is_a_sentence(tmp_path: Path, kind: str):
    """P14: unreadable file -> text only."""
    gone = Media("image" if kind == "image" else "file", url=file_url(tmp_path / "gone.txt"))
    message = heard(Attachments(folders=[str(tmp_path)]), "Look", gone)
    assert message.parts == (Text("Look\n\n(The attachment 'gone.txt' could not be read: there is no such file.)"),)


def test_no_file_outside_the_named_folders_is_read(tmp_path: Path):
    """A message may come from anybody: neither a path, nor one with dots, nor a link leads out of the folder."""
    inside, secret = tmp_path / "inside", tmp_path / "secret.txt"
    inside.mkdir()
    secret.write_text("secret")
    (inside / "link.txt").symlink_to(secret)
    urls = [file_url(secret), f"{file_url(inside)}/../secret.txt", file_url(inside / "link.txt"), "file:%00"]
    for folders in ([], [str(inside)]):
        for url in urls:
            message = heard(Attachments(folders=folders), "Look", Media("file", "text/plain", url=url))
            assert "could not be read: " in message.text
            assert "secret\n" not in message.text
            assert "**Attachment" not in message.text


async def test_what_a_message_brought_stays_the_same(tmp_path: Path):
    """A file that changes later does not change what was said, nor what a prompt begins with."""
    file = tmp_path / "notes.txt"
    file.write_text("first")
    engine = Scripted("One.", "Two.", "Three.")
    attached = Media("file", "text/plain", url=file_url(file))
    async with talking(Agent("helper", "", engine, plugins=[Attachments(folders=[str(tmp_path)])])) as conversation:
        await (await conversation.send(["Look", attached])).result()
        file.write_text("second")
        await (await conversation.send("And now?")).result()
        await (await conversation.send(["Look again", attached])).result()
    texts = [message.text for message in engine.prompts[2].messages if "---" in message.text]
    assert [text.splitlines()[-1] for text in texts] == ["first", "second"]
    assert engine.prompts[1].messages[0] == engine.prompts[0].messages[0]


async def test_the_transcript_keeps_the_attachment_itself():
    async with talking(Agent("helper", "", Scripted("Read."), plugins=[Attachments()])) as conversation:
        await (await conversation.send(["Look", notes()])).result()
        kept = (await conversation.transcript()).messages[0]
    assert kept.parts == (Text("Look"), notes())


def test_a_message_without_attachments_is_not_touched():
    prompt = ask(Attachments(), "Look", PNG, says=2)[1]
    assert prompt.messages[1].parts == (Text("Look"), PNG)
    assert isinstance(prompt.nodes[-1], Node)
