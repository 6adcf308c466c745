"""What holds for every page: links lead somewhere, nothing is left to do, and nobody's own machine is in it."""

from __future__ import annotations

import re
import runpy
from collections import Counter
from pathlib import Path
from urllib.parse import unquote

import pytest
from bench.local_questions import QUESTIONS

from rondel.engines.local.weights import RECOMMENDED
from tests.docs.pages import PAGES, ROOT, blocks_of, name_of, text_of, without_blocks
from tests.docs.runner import check_prints, script

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
SLOW = ("mcp_client.py",)  # two processes import the MCP SDK
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def _anchors(page: Path) -> set[str]:
    """The names that a page's headings have in links."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_every_link_leads_somewhere(path: Path):
    for link in _LINK.findall(without_blocks(path)):
        if re.match(r"\w+:", link):
            assert link.startswith("https://"), link
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / unquote(file)).resolve() if file else path
        assert target.exists(), f"{name_of(path)}: {link} leads nowhere"
        assert target.is_relative_to(ROOT), f"{name_of(path)}: {link} leads out of the repository"
        assert not anchor or anchor in _anchors(target), f"{name_of(path)}: {link} names no heading"


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_nothing_is_left_to_do_and_no_machine_is_named(path: Path):
    text = path.read_text(encoding="utf-8")
    for word in ("TODO", "FIXME", "XXX", "/home/"):
        assert word not in text, f"{name_of(path)} says {word!r}"


PUBLIC = (
    "rondel",
    "rondel.discord",
    "rondel.knowledge",
    "rondel.mcp",
    "rondel.plugins",
    "rondel.stores.sqlite.knowledge",
    "rondel.testing",
    "rondel.testing.discord",
    "rondel.trace",
)


def test_what_is_shown_is_imported_from_public_modules_only():
    texts = [(block.where, block.text) for path in PAGES for block in blocks_of(path) if block.language == "python"]
    texts += [(name_of(path), path.read_text()) for path in (ROOT / "examples").rglob("*.py")]
    for where, text in texts:
        for module in re.findall(r"^ *(?:from|import) (rondel[\w.]*)", text, re.M):
            assert module in PUBLIC, f"{where} imports from {module}"


def test_every_page_can_be_reached_from_the_readme():
    reached, waiting = set[Path](), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        links = (link.partition("#")[0] for link in _LINK.findall(page.read_text()) if "://" not in link)
        waiting += [(page.parent / link).resolve() for link in links if link]
    assert set(PAGES) <= reached


def test_the_hello_of_the_readme_is_the_example():
    first = next(block for block in blocks_of(ROOT / "README.md") if block.language == "python")
    assert first.text == text_of("examples/hello.py")


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=pytest.mark.slow) if path.name in SLOW else path for path in EXAMPLES],
    ids=name_of,
)
def test_every_example_runs_and_is_listed(path: Path):
    check_prints(path.read_text(), script(name_of(path)), name_of(path))
    assert f"({path.name})" in text_of("examples/README.md")


def test_the_picture_of_the_page_is_small():
    picture = (ROOT / "docs" / "page.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert len(picture) <= 150_000


@pytest.mark.slow
def test_the_picture_of_the_page_is_taken_in_a_real_browser(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RONDEL_ENGINE", "echo")
    module = runpy.run_path(str(ROOT / "docs" / "page.py"))
    module["main"](str(tmp_path / "page.png"), "Is anybody there?")
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_picture_is_drawn_from_a_real_terminal():
    module = runpy.run_path(str(ROOT / "docs" / "terminal.py"))
    session = module["talk"](["Is anybody there?"], engine="echo")
    drawn = module["picture"](session.screen, "rondel").replace("&#160;", " ")
    assert "Using echo" in drawn
    assert drawn.count("Is anybody there?") == 2  # what was typed, and what came back
    kept = text_of("docs/terminal.svg").replace("&#160;", " ")
    assert "Using local:" in kept
    assert "Allow run_shell to run with" in kept


def test_the_score_of_the_recommended_model_is_the_same_wherever_it_is_named():
    """What the banner, the README and the page say was measured once, by bench/local_agent.py."""
    found = re.match(r"\d+ of \d+", RECOMMENDED.description)
    assert found, RECOMMENDED.description
    for page in ("README.md", "docs/engines.md"):
        said = " ".join((ROOT / page).read_text(encoding="utf-8").split())
        assert f"{RECOMMENDED.name}` answered {found[0]}" in said.replace("` (1.1 GB)", "`"), page


def test_the_scores_of_the_kinds_of_questions_add_up():
    said = " ".join(text_of("docs/engines.md").split())
    found = re.search(rf"{re.escape(RECOMMENDED.name)}` answered (\d+) of (\d+) right: (.*?)\. ", said)
    assert found
    kinds = [(int(right), int(asked)) for right, asked in re.findall(r"(\d+) of (\d+)", found[3])]
    assert (int(found[1]), int(found[2])) == (sum(right for right, _ in kinds), sum(asked for _, asked in kinds))
    assert sorted(asked for _, asked in kinds) == sorted(Counter(each.kind for each in QUESTIONS).values())
