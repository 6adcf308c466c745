"""A folder of text files as a source: what is found, what is read, and what never is."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rondel.contracts.source import Passage, Source
from rondel.errors import RondelError
from rondel.knowledge import folder, scan
from rondel.knowledge.folder import FolderSource
from rondel.knowledge.ranking import words_of


def found(source: Source, query: str, limit: int = 3) -> list[Passage]:
    return list(asyncio.run(source.search(query, limit)))


def files_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are read from now on."""
    monkeypatch.setattr(scan, "FRESH_NS", 0)  # else files that were just written are read again
    names: list[str] = []
    plain = folder.read_file
    monkeypatch.setattr(folder, "read_file", lambda path, *more: (names.append(path), plain(path, *more))[1])
    return names


def test_the_passage_that_fits_best_comes_first(docs: Path):
    source = FolderSource(docs)
    best = found(source, "How do I get a refund?")
    assert (best[0].title, best[0].where) == ("Refunds", "money/refunds.md")
    assert "14 days" in best[0].text
    assert found(source, "when does my PARCEL leave?")[0].where == "shipping.txt"
    assert found(source, "gift card", 1)[0].headings == "Gift cards"


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
    read = files_read(monkeypatch)
    source = FolderSource(docs)
    found(source, "parcels")
    found(source, "parcels")
    assert sorted(read) == ["money/refunds.md", "shipping.txt"]
    (docs / "shipping.txt").write_text("Parcels stay where they are, from now on.")
    found(source, "parcels")
    assert sorted(read) == ["money/refunds.md", "shipping.txt", "shipping.txt"]


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


def test_a_thousand_files_are_searched(tmp_path: Path):
    for number in range(1_000):
        (tmp_path / f"file{number:04}.md").write_text(f"# Topic {number}\n\nAll about the number{number} of things.")
    source = FolderSource(tmp_path)
    assert [passage.where for passage in found(source, "number777", 2)] == ["file0777.md"]
    assert len(found(source, "things", 5)) == 5


async def test_searches_at_the_same_time_read_each_file_once(docs: Path, monkeypatch: pytest.MonkeyPatch):
    read = files_read(monkeypatch)
    source = FolderSource(docs)
    async with asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(source.search("parcels", 3))
    assert sorted(read) == ["money/refunds.md", "shipping.txt"]


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
