"""Readers: what each kind of file says, and where; and files that are wrong, hostile or something else."""

from __future__ import annotations

import os
import sys
import zipfile
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import pytest

from rondel.contracts.knowledge import Document, Section, Unreadable
from rondel.knowledge import readers
from rondel.knowledge.base import KnowledgeBase, SyncReport
from rondel.knowledge.chunks import chunks_of
from rondel.knowledge.readers import docx, read
from rondel.knowledge.scan import pattern_of
from rondel.knowledge.settings import KnowledgeSettings
from rondel.machine.tokens import estimate_tokens
from rondel.stores.sqlite.knowledge import SqliteKnowledge

FILES = Path(__file__).parent / "files"


def sections(data: bytes | str, name: str) -> list[tuple[str, tuple[str, ...], int | None]]:
    found = read(data.encode() if isinstance(data, str) else data, name)
    return [(" ".join(section.text.split()), section.headings, section.line) for section in found.sections]


def test_markdown_is_known_by_its_headings_and_lines() -> None:
    front = "---\ntitle: The guide\n---\n"
    text = f"{front}Intro.\n\n# One\n\nFirst.\n\n## Two ##\n```\n# not a heading\n```\n\nUnder\n-----\nLast."
    assert read(text.encode(), "a.md").title == "The guide"
    assert sections(text, "a.md") == [
        ("Intro.", (), 4),
        ("First.", ("One",), 7),
        ("``` # not a heading ```", ("One", "Two"), 11),
        ("Last.", ("One", "Under"), 17),
    ]
    assert sections("Top\n===\nBody", "a.md") == [("Body", ("Top",), 3)]


def test_html_is_its_visible_text() -> None:
    page = (
        "<html><head><title>Shop &amp; help</title><style>p{}</style></head><body><nav>Menu</nav>"
        "<h1>Refunds¶</h1><p>Within <b>14</b> days.</p><script>alert(1)</script>"
        "<h2>How</h2><ul><li>Write to us<li>Wait</ul></body></html>"
    )
    assert read(page.encode(), "a.html").title == "Shop & help"
    assert read(b"<title>Shop</title><svg><title>Icon</title></svg><p>x", "a.html").title == "Shop"
    assert [found[:2] for found in sections(page, "a.html")] == [
        ("Within 14 days.", ("Refunds",)),
        ("Write to us Wait", ("Refunds", "How")),
    ]
    assert sections("<p>Grüße</p>".encode("latin-1"), "a.html")[0][0] == "Grüße"


def test_a_pdf_is_known_by_its_pages() -> None:
    document = read((FILES / "manual.pdf").read_bytes(), "manual.pdf")
    assert document.title == "Espresso machine manual"
    assert [section.page for section in document.sections] == [1, 2]
    assert "citric acid" in document.sections[1].text


def test_a_word_document_is_known_by_its_headings() -> None:
    document = read((FILES / "travel.docx").read_bytes(), "travel.docx")
    assert document.title == "Travel policy"
    assert [(section.headings, section.text) for section in document.sections] == [
        (("Travel policy",), "This policy is for all employees."),
        (("Trains",), "First class is allowed on journeys of more than four hours."),
        (("Trains", "Reservations"), "Reserve a seat at least two days before."),
        (("Hotels",), "City | Limit\n\nZürich | 180 francs"),
    ]


def test_a_row_of_a_table_says_what_its_columns_are() -> None:
    table = 'name;price\nEspresso;2\n"Big; latte";4\n'
    assert sections(table, "a.csv") == [("name: Espresso; price: 2", (), 2), ("name: Big; latte; price: 4", (), 3)]
    assert sections("a\tb\n1\t2\n", "a.tsv") == [("a: 1; b: 2", (), 2)]


def test_json_is_a_line_for_each_value() -> None:
    assert sections('{"shop": {"open": [9, 17], "name": "Bean"}, "x": null}', "a.json") == [
        ("shop.open[0]: 9 shop.open[1]: 17 shop.name: Bean", ("shop",), None)
    ]
    assert sections('{"a": 1}\n\n{"a": 2}\n', "a.jsonl") == [("a: 1", (), 1), ("a: 2", (), 3)]


def test_code_is_known_by_its_functions_and_classes() -> None:
    python = '"""Doc."""\nimport os\n\n@cache\ndef one():\n    return 1\n\nclass Two:\n    def m(self): ...\n\nX = 1\n'
    assert [(headings, line) for _, headings, line in sections(python, "a.py")] == [
        ((), 1),
        (("one",), 4),
        (("Two",), 8),
        ((), 11),
    ]
    assert sections("def broken(:\n  pass", "a.py")[0][1:] == (("broken",), 1)
    rust = "use std;\n\npub fn run(a: u8) -> u8 {\n    a\n}\n\nimpl Thing {\n}\n"
    assert [headings for _, headings, _ in sections(rust, "a.rs")] == [(), ("run",), ("Thing",)]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("Grüße".encode(), "Grüße"),
        ("Grüße".encode("utf-8-sig"), "Grüße"),
        ("Grüße".encode("utf-16"), "Grüße"),
        ("Grüße – ja".encode("cp1252"), "Grüße – ja"),
        (b"a\r\nb\rc", "a b c"),
    ],
)
def test_encodings_are_recognised(data: bytes, text: str) -> None:
    assert sections(data, "a.txt")[0][0] == text


def bomb() -> bytes:
    """A ZIP file of a few kilobytes that unpacks to more than any document has."""
    buffer = BytesIO()
    with (
        zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("word/document.xml", "w", force_zip64=True) as member,
    ):
        for _ in range(docx.XML_BYTES_MAX // 1_000_000 + 2):
            member.write(b" " * 1_000_000)
    return buffer.getvalue()


def zipped(**members: str | bytes) -> bytes:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in members.items():
            archive.writestr(name.replace("__", "/").replace("_", "."), text)
    return buffer.getvalue()


def locked_pdf() -> bytes:
    from pypdf import PdfReader, PdfWriter

    writer, buffer = PdfWriter(clone_from=PdfReader(FILES / "manual.pdf")), BytesIO()
    writer.encrypt("secret", algorithm="RC4-128")
    writer.write(buffer)
    return buffer.getvalue()


def word(body: str) -> bytes:
    names = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
    return zipped(word__document_xml=f"<w:document {names}><w:body>{body}</w:body></w:document>")


def test_tables_in_tables_are_read_once() -> None:
    said = "<w:p><w:r><w:t>deep</w:t></w:r></w:p>"
    nested = "<w:tbl><w:tr><w:tc>" * 300 + said + "</w:tc></w:tr></w:tbl>" * 300
    assert sections(word(nested), "a.docx") == [("deep", (), None)]
    row = f"<w:tr><w:tc>{said}</w:tc><w:tc>{said}</w:tc></w:tr>"
    assert sections(word(f"<w:tbl>{row}<w:sdt><w:sdtContent>{row}</w:sdtContent></w:sdt></w:tbl>"), "a.docx") == [
        ("deep | deep deep | deep", (), None)
    ]


def test_a_file_that_is_made_to_be_read_slowly_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    for reader in ("html", "pdf"):
        monkeypatch.setattr(f"rondel.knowledge.readers.{reader}.SECONDS_MAX", 0.1)
    for name, data in (("a.html", b"<p>a" * 2_000_000), ("a.pdf", forms(12))):
        with pytest.raises(Unreadable, match=r"took more than 0\.1 seconds to read"):
            read(data, name)


@pytest.mark.parametrize("size", [200_000, 2_000_000])
@pytest.mark.parametrize("markup", ["<!--", "<![CDATA[", "<!x ", "<?x ", "<a ", "<a b='", "</a ", "<plaintext>a<b "])
def test_html_whose_markup_never_ends_is_read_in_time(markup: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rondel.knowledge.readers.html.SECONDS_MAX", 3.0)  # these take a tenth of a second
    page = "<p>before</p>" + markup * (size // len(markup))
    assert "before" in sections(page, "a.html")[0][0]


def test_html_that_hides_elements_in_elements_is_read_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rondel.knowledge.readers.html.SECONDS_MAX", 10.0)
    page = "<body><p>before" + "<svg>" * 200_000 + "</p>" * 200_000 + "<body><p>after"
    assert sections(page, "a.html") == [("before after", (), 1)]


@pytest.mark.parametrize("long", ["<!-- {} -->", "<script>{}</script>", "<a b='{}'>", "<?x {}>", "<!x {}>"])
def test_html_after_long_markup_is_read_and_its_lines_are_counted(long: str) -> None:
    page = "<p>before" + long.format("word\n" * 200_000) + "<h1>After</h1><p>the end"
    assert [(text, line) for text, _, line in sections(page, "a.html")] == [("before", 1), ("the end", 200_001)]


def test_html_that_was_cut_off_ends_with_its_last_text() -> None:
    for cut in ("<!-- a", "<a href='b", "</p", "<![CDATA[ a", "<?a", "<!doctype"):
        assert sections(f"<p>before {cut}", "a.html") == [("before", (), 1)]
    assert sections("<p>1 <", "a.html") == [("1 <", (), 1)]


@pytest.mark.parametrize("comment", ["<!-->", "<!--->", "<!-- x --!>", "<!----!>", "<![CDATA[ x >", "<!-- a -- b -->"])
def test_html_comments_end_where_browsers_end_them(comment: str) -> None:
    assert sections(f"<p>before {comment} after", "a.html") == [("before after", (), 1)]


@pytest.mark.parametrize("odd", ["<![odd x>", "<![ %>", "<![endif]>", "<![CDATA[a]]>", "&#" + "9" * 5_000 + ";"])
def test_html_with_what_no_browser_understands_is_read(odd: str) -> None:
    assert sections(f"<p>before {odd} after", "a.html")[0][0].replace("\ufffd ", "") == "before after"


@pytest.mark.parametrize("zeros", [0, 30, 5_000])
def test_html_numbers_with_zeros_before_them_are_read_or_replaced(zeros: int) -> None:
    shown = "\ufffd" if zeros > 4_000 else "A"
    assert sections(f"<p>&#{'0' * zeros}65; after", "a.html") == [(f"{shown} after", (), 1)]


def forms(depth: int) -> bytes:
    """A PDF of a few kilobytes whose page draws a form that draws ten forms, each of which draws ten, and so on."""
    from pypdf import PdfWriter
    from pypdf.generic import DictionaryObject, NameObject, StreamObject

    writer, buffer = PdfWriter(), BytesIO()
    page = writer.add_blank_page(9, 9)
    inner = DictionaryObject()
    for _ in range(depth):
        form = StreamObject()
        form.update({NameObject("/Subtype"): NameObject("/Form"), NameObject("/Resources"): inner})
        form.set_data(b"/X Do " * 10)
        inner = DictionaryObject(
            {NameObject("/XObject"): DictionaryObject({NameObject("/X"): writer._add_object(form)})}
        )
    content = StreamObject()
    content.set_data(b"/X Do")
    page[NameObject("/Resources")], page[NameObject("/Contents")] = inner, writer._add_object(content)
    writer.write(buffer)
    return buffer.getvalue()


LAUGHS = '<!DOCTYPE a [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]><a>&b;</a>'


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("a.md", b"\x7fELF\0\0\0\1", "is not text"),
        ("a.txt", bytes(range(1, 32)) * 30 + b"\xff", "is not text"),
        ("a.pdf", locked_pdf(), "protected by a password"),
        ("a.pdf", b"%PDF-1.7\nnonsense", "is not a PDF"),
        ("a.pdf", (FILES / "manual.pdf").read_bytes()[:700], "(is not a PDF|has no text)"),
        ("a.docx", bomb(), "unpacks to more than 50 MB"),
        ("a.docx", b"PK\3\4 broken", "is not a Word document"),
        ("a.docx", zipped(a_txt="x"), "but not a Word document"),
        ("a.docx", zipped(word__document_xml=LAUGHS), "has a document type"),
        ("a.docx", zipped(word__document_xml=LAUGHS.encode("utf-16")), "has a document type"),
        ("a.docx", zipped(word__document_xml="<a><b></a>"), "is not a Word document"),
        ("a.json", b'{"a": ', "is not JSON"),
        ("a.json", b"[" * 100_000, "(is not JSON|nested too deeply)"),
        ("a.jsonl", b'{"a": 1}\n{"a"', "is not JSON in line 2"),
        ("a.csv", b'a,b\n"' + b"x" * 200_000, "is not a table"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_file_that_cannot_be_read_is_one_sentence(name: str, data: bytes, said: str) -> None:
    with pytest.raises(Unreadable, match=said):
        read(data, name)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.json", b"[" + b"1," * 1_000 + b"1]"),
        ("a.json", b"[" + b"[]," * 1_000 + b"[]]"),
        ("a.json", b'{"a": [' + b"1," * 1_000 + b"1]}"),
        ("a.jsonl", b"1\n" * 1_001),
    ],
)
def test_all_values_of_a_document_are_counted(name: str, data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rondel.knowledge.readers.json_text.VALUES_MAX", 1_000)
    with pytest.raises(Unreadable, match="has more than 1,000 values"):
        read(data, name)


def test_a_huge_python_file_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rondel.knowledge.readers.code.PARSED_CHARS_MAX", 40)
    assert [found[1] for found in sections(b"def a(): pass\n", "a.py")] == [("a",)]
    decorated = b"@b\ndef a(): pass\n" + b"x = 1\n" * 9  # its first line would belong to the function
    assert sections(decorated, "a.py")[0][:2] == ("@b", ())


def test_an_installed_reader_is_found_by_its_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "reads_foo.py").write_text(
        "from rondel.contracts.knowledge import Document, Section\n"
        "class Foo:\n"
        "    suffixes = ('.foo',)\n"
        "    def read(self, data, name):\n"
        "        return Document('Foo', (Section(data.decode().upper()),))\n"
    )
    info = tmp_path / "reads_foo-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: reads-foo\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[rondel.readers]\nfoo = reads_foo:Foo\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    caches = (readers._installed, readers.suffixes)  # type: ignore[reportPrivateUsage]
    for cache in caches:
        cache.cache_clear()
    try:
        assert ".foo" in readers.suffixes()
        assert read(b"hi", "a.foo") == Document("Foo", (Section("HI"),))
    finally:
        for cache in caches:
            cache.cache_clear()
        sys.modules.pop("reads_foo", None)


# --- chunks -----------------------------------------------------------------------------------------------------------


def test_chunks_follow_headings_and_have_a_limit() -> None:
    text = "# A\n\n" + "\n\n".join(f"Paragraph {n}. " + "word " * 30 for n in range(10)) + "\n\n## B\n\nShort.\n"
    document = read(text.encode(), "a.md")
    chunks = chunks_of(document, 100)
    assert all(estimate_tokens(chunk.text) <= 100 for chunk in chunks)
    assert [chunk.headings for chunk in chunks] == [""] * 5 + ["B"]  # the title is not repeated
    assert [chunk.line for chunk in chunks] == [3, 7, 11, 15, 19, 25]
    assert "".join(chunk.text for chunk in chunks).count("Paragraph") == 10


@pytest.mark.parametrize("text", ["x" * 5_000, "東京" * 2_000, "One sentence. " * 400, "a\n" * 3_000])
def test_a_long_paragraph_is_split_and_nothing_is_lost(text: str) -> None:
    chunks = chunks_of(Document("", (Section(text, line=1),)), 50)
    assert all(estimate_tokens(chunk.text) <= 60 for chunk in chunks)
    assert "".join("".join(chunk.text.split()) for chunk in chunks) == "".join(text.split())


def test_patterns_match_within_a_folder_or_across() -> None:
    assert pattern_of(("docs/*.md",))("docs/a.md")
    assert not pattern_of(("docs/*.md",))("docs/b/a.md")
    assert pattern_of(("docs/**/*.md",))("docs/b/c/a.md")
    assert pattern_of(("docs/**/*.md",))("docs/a.md")
    assert pattern_of(("drafts/",))("drafts/x/y.txt")
    assert not pattern_of(("a.md",))("xa.md")


# --- folders ----------------------------------------------------------------------------------------------------------


async def synced(folder: Path, **settings: object) -> SyncReport:
    store = SqliteKnowledge(folder / "knowledge.db")
    try:
        given = KnowledgeSettings(**{"folders": ("docs",), **settings})  # type: ignore[arg-type]
        return await KnowledgeBase("docs", given, store, project=str(folder)).sync()
    finally:
        await store.aclose()


async def test_one_bad_file_does_not_stop_the_rest(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "good.md").write_text("Fine.")
    (docs / "binary.md").write_bytes(b"\0\1\2\3")
    (docs / "huge.txt").touch()
    os.truncate(docs / "huge.txt", 2_000_000_000)  # sparse: 2 GB that take no space
    (tmp_path / "secret.txt").write_text("Not yours.")
    (docs / "out.txt").symlink_to(tmp_path / "secret.txt")
    (docs / "inside.md").symlink_to(docs / "good.md")
    (docs / "nowhere.txt").symlink_to(docs / "missing.txt")
    os.mkfifo(docs / "pipe.txt")
    (docs / "loop").symlink_to(docs)
    (docs / ".hidden.md").write_text("Hidden.")
    (docs / "photo.jpg").write_bytes(b"\xff\xd8")
    report = await synced(tmp_path)
    assert sorted(report.added) == ["docs/good.md", "docs/inside.md"]
    assert report.problems == {
        "docs/binary.md": "is not text",
        "docs/huge.txt": "is larger than 50 MB",
        "docs/nowhere.txt": "is a link that leads nowhere: No such file or directory",
        "docs/out.txt": "is a link that leads out of the folder; it was not followed",
        "docs/pipe.txt": "is not a regular file",
    }
    assert report.skipped == 2  # the photo and the link to the folder
    again = await synced(tmp_path)
    assert (again.added, again.changed, again.unchanged >= 2) == ((), (), True)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
async def test_a_name_that_is_not_utf_8_does_not_stop_the_rest(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    (docs / os.fsdecode(b"caf\xe9")).mkdir(parents=True)
    (docs / os.fsdecode(b"caf\xe9") / "a.md").write_text("Not read.")
    (docs / os.fsdecode(b"x\x1b[2J\xff.md")).write_text("Not read.")
    (docs / "größe.md").write_text("Fine.")
    why = "has a name that is not UTF-8; rename it"
    for added in (("docs/größe.md",), ()):
        report = await synced(tmp_path)
        assert report.added == added
        assert report.problems == {"docs/caf?": why, "docs/x\x1b[2J?.md": why}


async def test_a_folder_of_mixed_encodings_is_read(tmp_path: Path) -> None:
    """Each file in its own; one that mixes them is read as well as it can be."""
    (tmp_path / "docs").mkdir()
    texts = {"a.txt": "Grüße".encode(), "b.txt": "Grüße".encode("cp1252"), "c.txt": "Grüße".encode("utf-16")}
    for name, data in {**texts, "mixed.md": "Grüße ".encode() + "Grüße".encode("cp1252")}.items():
        (tmp_path / "docs" / name).write_bytes(data)
    store = SqliteKnowledge(tmp_path / "knowledge.db")
    base = KnowledgeBase("docs", KnowledgeSettings(folders=("docs",)), store, project=str(tmp_path))
    report = await base.sync()
    found = sorted(passage.where for passage in await base.search("Grüße", 10))
    await store.aclose()
    assert (len(report.added), report.problems) == (4, {})
    assert found[:3] == ["docs/a.txt", "docs/b.txt", "docs/c.txt"]


async def test_an_empty_folder_is_an_empty_base(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    assert await synced(tmp_path) == SyncReport("docs")


async def test_files_patterns_and_exclusions_decide_what_belongs_to_a_base(tmp_path: Path) -> None:
    for path in ("docs/a.md", "docs/drafts/b.md", "notes/x/c.py", "notes/d.weird", "README", "other.md"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(f"Text of {path}.")
    report = await synced(tmp_path, files=("notes/**/*.py", "notes/*.weird", "README"), exclude=("**/drafts/**",))
    assert sorted(report.added) == ["README", "docs/a.md", "notes/d.weird", "notes/x/c.py"]


async def test_a_missing_folder_or_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r"there is no folder .*docs"):
        await synced(tmp_path)
    with pytest.raises(Exception, match=r"there is no file .*x\.md"):
        await synced(tmp_path, folders=(), files=("x.md",))


async def test_a_file_that_changes_while_it_is_read_is_read_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "busy.txt").write_text("x")
    fstat, count = os.fstat, iter(range(1, 1_000))

    def restless(handle: int) -> object:
        real = fstat(handle)
        names = ("st_mode", "st_mtime_ns", "st_size", "st_ino")
        return SimpleNamespace(st_ctime_ns=next(count), **{name: getattr(real, name) for name in names})

    monkeypatch.setattr("rondel.knowledge.scan.os.fstat", restless)
    report = await synced(tmp_path)
    assert report.problems == {"docs/busy.txt": "changes while it is read; the next sync reads it again"}
    monkeypatch.undo()
    assert (await synced(tmp_path)).changed == ("docs/busy.txt",)


@pytest.fixture
def many_files(tmp_path: Path) -> Path:
    for folder in range(100):
        (tmp_path / "docs" / str(folder)).mkdir(parents=True)
        for number in range(1_000):
            (tmp_path / "docs" / str(folder) / f"{number}.txt").write_text(f"File {folder} {number}.")
    return tmp_path


@pytest.mark.slow
async def test_a_hundred_thousand_files_are_synced(many_files: Path) -> None:
    assert len((await synced(many_files)).added) == 100_000
    assert (await synced(many_files)).unchanged == 100_000
