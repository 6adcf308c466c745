"""Skills: names in the prompt, texts on request, and no file outside of a skill's folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from rondel import Agent, App
from rondel.errors import RondelError
from rondel.events import Event, Warned
from rondel.plugins.skills import Skills
from rondel.testing import Scripted, call, say
from rondel.values import ToolResult

HEAD = "---\nname: {name}\ndescription: {description}\n---\n{body}\n"


def write(folder: Path, name: str, body: str = "Do it well.", description: str = "Fills in forms.") -> Path:
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    (place / "SKILL.md").write_text(HEAD.format(name=name, description=description, body=body))
    return place


async def played(plugin: Skills, *steps: object) -> tuple[Scripted, list[Event], list[str]]:
    model = Scripted(*steps)  # type: ignore[arg-type]
    async with App(Agent("helper", engine=model, plugins=[plugin])) as app:
        events = [event async for event in await app.conversation().send("go")]
    results = [
        part.text for message in model.prompts[-1].messages for part in message.parts if isinstance(part, ToolResult)
    ]
    return model, events, results


async def test_names_are_in_the_prompt_and_the_text_comes_when_the_model_asks(tmp_path: Path) -> None:
    place = write(tmp_path / "skills", "pdf-forms", 'Use the {{ .Get "secret" }} template.')
    (place / "references").mkdir()
    (place / "references" / "fields.md").write_text("All fields.")
    steps = (
        call("read_skill", id="1", skill="pdf-forms"),
        call("read_skill", id="2", skill="pdf-forms", file="references/fields.md"),
    )
    model, _, results = await played(Skills(project=str(tmp_path)), *steps, say("ok"))
    first = model.prompts[0].messages[0].text
    assert "- pdf-forms: Fills in forms." in first
    assert "Use the" not in first
    assert results[0] == 'Use the {{ .Get "secret" }} template.\n\nOther files of this skill: references/fields.md'
    assert results[1] == "All fields."


async def test_no_file_outside_of_the_folder_is_read(tmp_path: Path) -> None:
    place = write(tmp_path / "skills", "one")
    write(tmp_path / "skills", "two", "Another's text.")
    (tmp_path / "secret.txt").write_text("a secret")
    (place / "link.txt").symlink_to(tmp_path / "secret.txt")
    (place / "large.txt").write_bytes(b"x" * 300_000)
    (place / "picture.png").write_bytes(b"\x89PNG\xff\xfe")
    files = [
        "../../secret.txt",
        str(tmp_path / "secret.txt"),
        "link.txt",
        "../two/SKILL.md",
        "large.txt",
        "picture.png",
        "nope",
        "..",
    ]
    steps = [call("read_skill", id=str(number), skill="one", file=file) for number, file in enumerate(files)]
    _, _, results = await played(
        Skills(project=str(tmp_path)), *steps, call("read_skill", id="x", skill="on"), say("ok")
    )
    assert all("is outside of the folder" in result for result in results[:4])
    assert "is longer than" in results[4]
    assert "is not a text" in results[5]
    assert "has no file 'nope'" in results[6]
    assert "a secret" not in "".join(results)
    assert "there is no skill 'on'; did you mean 'one'" in results[-1]


async def test_a_broken_skill_is_named_and_the_others_work(tmp_path: Path) -> None:
    skills = tmp_path / "skills"
    write(skills, "good")
    for name, text in {
        "no-head": "Just text.",
        "Bad_Name": HEAD.format(name="Bad_Name", description="x", body=""),
        "other": HEAD.format(name="another", description="x", body=""),
        "mute": "---\nname: mute\n---\nx",
        "broken": "---\nname: [\n---\n",
    }.items():
        (skills / name).mkdir()
        (skills / name / "SKILL.md").write_text(text)
    (skills / "binary").mkdir()
    (skills / "binary" / "SKILL.md").write_bytes(b"\xff\xfe\x00")
    model, events, _ = await played(Skills(project=str(tmp_path)), say("ok"))
    warnings = [event.message for event in events if isinstance(event, Warned)]
    assert len(warnings) == 6
    assert "- good:" in model.prompts[0].messages[0].text
    assert "no-head" not in model.prompts[0].messages[0].text


async def test_an_agents_file_is_offered_like_a_skill(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "AGENTS.md").write_text("# The web site\n\nRun the tests first.")
    plugin = Skills(["site"], project=str(tmp_path))
    model, _, results = await played(plugin, call("read_skill", skill="site-agents"), say("ok"))
    assert "- site-agents: How to work in site: The web site" in model.prompts[0].messages[0].text
    assert results == ["# The web site\n\nRun the tests first."]


async def test_without_skills_nothing_is_offered(tmp_path: Path) -> None:
    (tmp_path / "skills").mkdir()
    model, _, _ = await played(Skills(project=str(tmp_path)), say("ok"))
    assert model.prompts[0].tools == ()
    assert "skills" not in "".join(message.text for message in model.prompts[0].messages)


def test_a_folder_that_is_not_a_list_is_one_sentence() -> None:
    with pytest.raises(RondelError, match="folders is a list"):
        Skills("skills")
