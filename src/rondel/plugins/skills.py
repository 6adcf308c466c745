"""Offers skills: folders with a `SKILL.md` (the open Agent Skills format), and `AGENTS.md` files.

    plugins: [{skills: {folders: [skills, ~/.config/rondel/skills]}}]

The prompt has only their names and descriptions. The model reads the text of a skill when it needs it, and other files
of its folder on request: never one outside of it. Nothing in a skill runs by itself.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..calling.threads import in_thread
from ..errors import ConfigError, RondelError, ToolError, nearest
from ..files.regular import read_regular
from ..machine.turn import Turn
from ..plugin import Plugin
from ..prompt import Prompt
from ..text.printable import visible_line
from ..text.yaml import read_markdown
from ..tool import Tool, tool
from ..values import Value

SKILL, AGENTS = "SKILL.md", "AGENTS.md"
NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
NAME_CHARS_MAX, DESCRIPTION_CHARS_MAX = 64, 1_024
SKILLS_MAX = 200
FILE_BYTES_MAX = 256 * 1024
FILES_LISTED = 50
LEVELS_MAX = 4  # folders below a configured one in which skills are looked for
TOOL = "read_skill"
BODY = "body"  # the text below the head


class Skill(Value, frozen=True):
    name: str
    description: str
    folder: str
    file: str = SKILL
    allowed: str = ""  # the tools that it names: shown to the model, but not a permission


class Skills(Plugin):
    """Tells the model which skills there are, and lets it read them.

    Args:
        folders: where skills are, each a folder with a `SKILL.md`, or an `AGENTS.md`; relative to the project
    """

    name = "skills"

    def __init__(self, folders: Sequence[str] = ("skills",), *, project: str = "") -> None:
        if isinstance(folders, str):
            raise RondelError(f"folders is a list of folders, such as [{folders}]")
        self._folders = [Path(project, os.path.expanduser(folder)) for folder in folders]
        self.problems: list[str] = []
        self._skills: dict[str, Skill] | None = None
        self._told = False
        self.tools: Sequence[Tool] = (self._reader(),)

    def skills(self) -> dict[str, Skill]:
        """Return the skills by name. They are searched once; of two with the same name, the first counts."""
        if self._skills is None:
            self._skills = {}
            for skill in _find(self._folders, self.problems):
                if self._skills.setdefault(skill.name, skill) is not skill:
                    self.problems.append(f"there are two skills named {skill.name!r}; {skill.folder!r} is left out")
        return self._skills

    async def on_prompt(self, turn: Turn, prompt: Prompt) -> Prompt:
        skills = self._skills if self._skills is not None else await in_thread(self.skills)
        if not self._told:
            self._told = True
            for problem in self.problems[:10]:
                await turn.warn(self.name, problem)
        if not skills:
            kept = tuple(spec for spec in prompt.tools if spec.name != TOOL)
            return prompt.replace(tools=kept)
        lines = (f"- {skill.name}: {visible_line(skill.description)}" for skill in skills.values())
        head = f"These skills are available. Before you do what one is for, read it with {TOOL}:"
        return prompt.instruct("\n".join((head, *lines)), id="skills")

    def _reader(self) -> Tool:
        @tool(name=TOOL, idempotent=True, repeatable=True)
        async def read_skill(skill: str, file: str = "") -> str:
            """Read a skill: how to do something. Other files of its folder are read by their names.

            Args:
                skill: the skill's name
                file: a file of its folder, such as references/forms.md; without it, the skill itself
            """
            return await in_thread(self._read, skill, file)

        return read_skill

    def _read(self, name: str, file: str) -> str:
        skills = self.skills()
        if name not in skills:
            raise ToolError(f"there is no skill {name!r}{nearest(name, tuple(skills))}")
        skill = skills[name]
        folder = Path(skill.folder).resolve()
        path = (folder / (file or skill.file)).resolve()
        if not path.is_relative_to(folder):
            raise ToolError(f"{file!r} is outside of the folder of the skill {name!r}")
        if skill.file == AGENTS and path != folder / AGENTS:
            raise ToolError(f"{name!r} is a single file; it has no others")
        if not path.is_file():
            raise ToolError(f"the skill {name!r} has no file {file!r}{nearest(file, tuple(_files(folder)))}")
        try:
            text = read_regular(path, FILE_BYTES_MAX).decode("utf-8")
        except ConfigError as error:
            raise ToolError(f"the skill {name!r} cannot be read: {str(error).removeprefix(f'{path}: ')}") from None
        except UnicodeDecodeError:
            raise ToolError(f"{file!r} is not a text, so it cannot be read here") from None
        if file:
            return text
        document = read_markdown(path, BODY) if skill.file == SKILL else None
        text = str(document.data.get(BODY, "")) if document is not None else text
        others = [one for one in _files(folder) if one != skill.file] if skill.file == SKILL else []
        listed = f"\n\nOther files of this skill: {', '.join(others)}" if others else ""
        allowed = f"\n\nThe skill was written for these tools: {skill.allowed}" if skill.allowed else ""
        return f"{text.strip()}{listed}{allowed}"


def _files(folder: Path) -> list[str]:
    found: list[str] = []
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(one for one in folders if not one.startswith("."))
        found += (str((Path(parent) / one).relative_to(folder)) for one in sorted(names) if not one.startswith("."))
        if len(found) >= FILES_LISTED:
            break
    return found[:FILES_LISTED]


def _find(folders: Sequence[Path], problems: list[str]) -> Iterator[Skill]:
    count = 0
    for top in folders:
        if not top.is_dir():
            problems.append(f"there is no folder {str(top)!r}, so it has no skills")
            continue
        for path in _skill_files(top):
            count += 1
            if count > SKILLS_MAX:
                problems.append(f"there are more than {SKILLS_MAX} skills; the rest is left out")
                return
            try:
                yield _skill(path) if path.name == SKILL else _agents_file(path)
            except (RondelError, UnicodeDecodeError) as error:
                said = "is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
                problems.append(f"{path}: {said}")


def _skill_files(top: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(top):
        folders[:] = sorted(one for one in folders if not one.startswith("."))
        here = Path(parent)
        if len(here.relative_to(top).parts) >= LEVELS_MAX:
            folders.clear()
        if SKILL in names:
            folders.clear()  # everything below belongs to the skill
            yield here / SKILL
        elif AGENTS in names:
            yield here / AGENTS


def _skill(path: Path) -> Skill:
    document = read_markdown(path, BODY)
    if document is None:
        raise RondelError("it does not begin with a head between two lines of '---', with its name and description")
    name, description = document.data.get("name"), document.data.get("description")
    if not isinstance(name, str) or not NAME.fullmatch(name) or len(name) > NAME_CHARS_MAX:
        raise RondelError(f"its name {name!r} is not valid; use up to {NAME_CHARS_MAX} of a-z, 0-9 and single hyphens")
    if name != path.parent.name:
        raise RondelError(f"its name {name!r} is not that of its folder, {path.parent.name!r}; make them the same")
    if not isinstance(description, str) or not description.strip():
        raise RondelError("it has no description; write one: what it does, and when to use it")
    allowed = document.data.get("allowed-tools", "")
    shown = " ".join(description.split())[:DESCRIPTION_CHARS_MAX]
    return Skill(name, shown, str(path.parent), SKILL, str(allowed)[:500] if allowed else "")


def _agents_file(path: Path) -> Skill:
    """Return an `AGENTS.md` as a skill. It has no head: its first lines say what it is about."""
    text = read_regular(path, FILE_BYTES_MAX).decode("utf-8")
    first = next((line.strip("# \t") for line in text.splitlines() if line.strip("# \t")), "instructions")
    name = re.sub(r"[^a-z0-9]+", "-", path.resolve().parent.name.lower()).strip("-") or "project"
    about = f"How to work in {path.parent.name}: {first}"[:300]
    return Skill(f"{name}-agents"[:NAME_CHARS_MAX], about, str(path.parent), AGENTS)
