"""A folder of text files as a source: what is found, what is read, and what never is."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from rondel.contracts.source import Passage, Source
from rondel.errors import RondelError
from rondel.knowledge.folder import FILE_BYTES_MAX, FolderSource, passages_of
from rondel.knowledge.ranking import words_of


def found(source: Source, query: str, limit: int = 3) -> list[Passage]:
    return list(asyncio.run(source.search(query, limit)))


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    (folder / "money").mkdir(parents=True)
    (folder / "money" / "refunds.md").write_text(
        "# Refunds\n\nMoney comes back within 14 days.\n\n## Gift cards\n\nThey are never paid back.\n"
    )
    (folder / "shipping.txt").write_text("Parcels leave the house every morning.\n\nThey take three days.")
    (folder / "code.py").write_text("refund = parcels = 'not a document'")
    return folder


def test_the_passage_that_fits_best_comes_first(docs: Path):
    source = FolderSource(docs)
    best = found(source, "How do I get a refund?")
    assert (best[0].title, best[0].where) == ("Refunds", "money/refunds.md")
    assert "14 days" in best[0].text
    assert found(source, "when does my PARCEL leave?")[0].where == "shipping.txt"
    assert found(source, "gift card", 1)[0].title == "Gift cards"
    scores = [passage.score for passage in best]
    assert scores == sorted(scores, reverse=True)


def test_nothing_fits_a_query_without_a_known_word(docs: Path):
    assert found(FolderSource(docs), "zygote") == []
    assert found(FolderSource(docs), "?!") == []


def test_only_the_files_with_the_right_suffixes_are_read(docs: Path):
    assert {passage.where for passage in found(FolderSource(docs), "parcels", 10)} == {"shipping.txt"}
    assert {p.where for p in found(FolderSource(docs, suffixes=[".py"]), "parcels", 10)} == {"code.py"}


def test_a_file_that_changes_comes_or_goes_is_seen_by_the_next_search(docs: Path):
    source = FolderSource(docs)
    assert found(source, "unicorn") == []
    (docs / "new.md").write_text("A unicorn.")
    assert [passage.where for passage in found(source, "unicorn")] == ["new.md"]
    (docs / "new.md").write_text("A plain horse.")
    assert found(source, "unicorn") == []
    (docs / "new.md").unlink()
    assert found(source, "horse") == []


def test_only_what_changed_is_read_again(docs: Path, monkeypatch: pytest.MonkeyPatch):
    import rondel.knowledge.folder as module

    read: list[str] = []
    plain: Callable[[Path], bytes] = module._bytes_of  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(module, "_bytes_of", lambda path: (read.append(path.name), plain(path))[1])
    source = FolderSource(docs)
    found(source, "parcels")
    found(source, "parcels")
    assert sorted(read) == ["refunds.md", "shipping.txt"]
    (docs / "shipping.txt").write_text("Parcels stay where they are, from now on.")
    found(source, "parcels")
    assert sorted(read) == ["refunds.md", "shipping.txt", "shipping.txt"]


def test_links_are_not_followed_and_hidden_files_are_left_out(docs: Path, tmp_path: Path):
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "keys.md").write_text("The password is swordfish.")
    (docs / "link.md").symlink_to(secret / "keys.md")
    (docs / "linked").symlink_to(secret)
    (docs / "loop").symlink_to(docs)
    (docs / ".hidden.md").write_text("swordfish")
    (docs / ".git").mkdir()
    (docs / ".git" / "notes.md").write_text("swordfish")
    assert found(FolderSource(docs), "swordfish") == []


def test_a_link_to_the_folder_itself_is_the_folder(docs: Path, tmp_path: Path):
    (tmp_path / "manual").symlink_to(docs)
    assert found(FolderSource(tmp_path / "manual"), "parcels")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with names")
def test_a_pipe_is_no_document(docs: Path):
    os.mkfifo(docs / "pipe.md")
    assert found(FolderSource(docs), "parcels")


def test_bytes_that_are_no_text_are_replaced(docs: Path):
    (docs / "latin.txt").write_bytes("Ein Käfer auf der Straße, ein Maulwurf".encode("latin-1"))
    (docs / "wide.txt").write_bytes("An axolotl".encode("utf-16"))
    (docs / "marked.txt").write_bytes("\ufeffcapybara".encode())
    source = FolderSource(docs)
    assert "\ufffd" in found(source, "maulwurf")[0].text
    assert found(source, "axolotl")[0].text == "An axolotl"
    assert found(source, "capybara")[0].text == "capybara"


def test_of_a_huge_file_only_the_beginning_is_read(docs: Path, caplog: pytest.LogCaptureFixture):
    (docs / "huge.txt").write_text("early words\n\n" + "x" * FILE_BYTES_MAX + "\n\nlate words")
    source = FolderSource(docs)
    assert found(source, "early")
    assert found(source, "late") == []
    assert [record.getMessage() for record in caplog.records] == [
        f"'huge.txt' in the folder 'docs' is longer than {FILE_BYTES_MAX:,} bytes; the rest is left out"
    ]


def test_a_thousand_files_are_searched(tmp_path: Path):
    for number in range(1_000):
        (tmp_path / f"file{number:04}.md").write_text(f"# Topic {number}\n\nAll about the number{number} of things.")
    source = FolderSource(tmp_path)
    assert [passage.where for passage in found(source, "number777", 2)] == ["file0777.md"]
    assert len(found(source, "things", 5)) == 5


def test_a_search_reads_off_the_loop(docs: Path, monkeypatch: pytest.MonkeyPatch):
    import rondel.knowledge.folder as module

    threads: list[threading.Thread] = []
    plain: Callable[[Path], bytes] = module._bytes_of  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(module, "_bytes_of", lambda path: (threads.append(threading.current_thread()), plain(path))[1])
    found(FolderSource(docs), "parcels")
    assert threads
    assert threading.main_thread() not in threads


async def test_searches_at_the_same_time_read_each_file_once(docs: Path, monkeypatch: pytest.MonkeyPatch):
    import rondel.knowledge.folder as module

    read: list[str] = []
    plain: Callable[[Path], bytes] = module._bytes_of  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(module, "_bytes_of", lambda path: (read.append(path.name), plain(path))[1])
    source = FolderSource(docs)
    async with asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(source.search("parcels", 3))
    assert sorted(read) == ["refunds.md", "shipping.txt"]


def test_a_file_that_may_not_be_read_is_left_out(docs: Path, monkeypatch: pytest.MonkeyPatch):
    import rondel.knowledge.folder as module

    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(module, "_bytes_of", refuse)
    assert found(FolderSource(docs), "parcels") == []


def test_paragraphs_are_packed_and_never_longer_than_a_passage():
    text = "# One\n\n" + "\n\n".join(f"Paragraph {number}. " + "word " * 20 for number in range(20))
    passages = list(passages_of(text, where="x", chars_max=300))
    assert len(passages) > 5
    assert all(len(passage.text) <= 310 and passage.title == "One" for passage in passages)
    assert "".join("".join(p.text for p in passages).split()) == "".join(text.split())


def test_a_paragraph_without_an_end_is_cut():
    assert [len(p.text) for p in passages_of("x" * 1000, where="", chars_max=300)] == [300, 300, 300, 100]
    cut = list(passages_of("A sentence that ends here. " * 30, where="", chars_max=200))
    assert all(passage.text.endswith(".") for passage in cut)


def test_headings_that_follow_each_other_make_no_empty_passages():
    passages = list(passages_of("# Guide #\n\n## Install ##\n\nPip it.\n\n## Use\nRun it.", where="", chars_max=300))
    assert [(p.title, p.text) for p in passages] == [
        ("Install", "# Guide #\n\n## Install ##\n\nPip it."),
        ("Use", "## Use\nRun it."),
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Refunds, policies & glasses", ["refund", "policy", "glasse"]),
        ("a_b ＦＵＬＬ width", ["a", "b", "full", "width"]),
        ("退款政策", ["退款", "款政", "政策"]),
        ("是 v2", ["是", "v2"]),
        ("", []),
    ],
)
def test_words_are_what_people_search_for(text: str, words: list[str]):
    assert words_of(text) == words


def test_a_language_without_spaces_can_be_searched(docs: Path):
    (docs / "zh.md").write_text("# 退款\n\n十四天内可以退款。\n\n# 配送\n\n三天送达。")
    assert found(FolderSource(docs), "怎么退款?")[0].title == "退款"


def test_a_folder_that_is_missing_in_code_is_said_when_it_is_made(tmp_path: Path):
    with pytest.raises(RondelError, match=r"there is no folder .*missing"):
        FolderSource(tmp_path / "missing")
