"""Builds the documentation as a site: `make docs`, or `python docs/site.py`, writes it into build/site.

The pages are those of docs/, ARCHITECTURE.md and its neighbours, and the READMEs of the examples. In the repository
they link to each other and to source files by path; on the site, links to pages lead to pages, and links to source
files become plain text. Every page must be in NAV, and a link or a heading that does not exist is an error. The site
loads nothing from the internet, and its search works without a server.
"""

from __future__ import annotations

import posixpath
import re
import shutil
import sys
from pathlib import Path

from sphinx.cmd.build import build_main

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "build"
NAV: dict[str, tuple[str, ...]] = {
    "Tutorial": ("tutorial",),
    "How to": (
        "agents",
        "tools",
        "prompt",
        "templates",
        "libraries",
        "plugins",
        "knowledge",
        "images",
        "mcp",
        "skills",
        "jobs",
        "page",
        "api",
        "protocols",
        "gateway",
        "gateway-agents",
        "routing",
        "ledger",
        "trace",
        "testing",
        "surfaces",
        "discord",
        "examples/index",
    ),
    "Reference": (
        "commands-and-terminal",
        "reference/commands",
        "configuration",
        "reference/plugins",
        "reference/python",
        "reference/tools",
        "engines",
        "dialects",
    ),
    "Explanation": (
        "project/architecture",
        "stores",
        "security",
        "invariants",
        "performance",
        "project/contributing",
        "project/style",
        "project/changelog",
    ),
    "Coming from other tools": ("coming-from",),
}
PROJECT = {
    "ARCHITECTURE.md": "project/architecture.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "STYLE.md": "project/style.md",
    "README.md": "index.md",
    "examples/README.md": "examples/index.md",
}
_LINK = re.compile(r"(?<!!)\[((?:[^\]\[]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^( *)(`{3,}).*?^\1\2 *$", re.M | re.S)


def build() -> int:
    """Write the site, and return Sphinx's exit code; warnings are errors."""
    source, site = BUILD / "docs", BUILD / "site"
    for folder in (source, site):
        shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "docs", source, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    shutil.copy(ROOT / "docs" / "conf.py", source)
    sites = _sites()
    for name, path in sites.items():
        if name != "README.md":
            target = source / path
            target.parent.mkdir(exist_ok=True)
            target.write_text(_on_site((ROOT / name).read_text(encoding="utf-8"), name, path, sites), encoding="utf-8")
    with (source / "index.md").open("a", encoding="utf-8") as index:
        index.write(_toctrees(sites))
    return build_main(["-q", "-W", "--keep-going", "-b", "html", str(source), str(site)])


def _sites() -> dict[str, str]:
    """The path on the site of each page of the repository."""
    docs = [path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")]
    examples = [path.relative_to(ROOT).as_posix() for path in (ROOT / "examples").glob("*/README.md")]
    return (
        {name: name.removeprefix("docs/") for name in docs}
        | {name: f"{posixpath.dirname(name)}.md" for name in sorted(examples)}
        | PROJECT
    )


def _toctrees(sites: dict[str, str]) -> str:
    examples = [site.removesuffix(".md") for site in sites.values() if site.startswith("examples/")]
    text = ""
    for caption, pages in NAV.items():
        named = [page for one in pages for page in (sorted(examples, key=_index_first) if one == _EXAMPLES else [one])]
        text += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(named) + "\n```\n"
    return text


_EXAMPLES = "examples/index"


def _index_first(page: str) -> tuple[bool, str]:
    return page != _EXAMPLES, page


def _on_site(text: str, name: str, site: str, sites: dict[str, str]) -> str:
    """A page's text with the links that it needs on the site. What looks like a link in a block of code stays."""

    def fixed(link: re.Match[str]) -> str:
        shown, target = link.groups()
        path, hash_, anchor = target.partition("#")
        if re.match(r"\w+:", target) or not path:
            return link[0]
        other = sites.get(posixpath.normpath(posixpath.join(posixpath.dirname(name), path)))
        if other is None:
            return shown
        if other == PROJECT["README.md"]:  # the site's first page has other headings
            hash_ = anchor = ""
        return f"[{shown}]({posixpath.relpath(other, posixpath.dirname(site) or '.')}{hash_}{anchor})"

    parts, end = list[str](), 0
    for fence in _FENCE.finditer(text):
        # The file's name behind the language is for the tests.
        language = re.sub(r"^( *`+)(markdown|text|toml|yaml|python) \S+$", r"\1\2", fence[0], count=1, flags=re.M)
        parts += [_LINK.sub(fixed, text[end : fence.start()]), language]
        end = fence.end()
    return "".join((*parts, _LINK.sub(fixed, text[end:])))


if __name__ == "__main__":
    sys.exit(build())
