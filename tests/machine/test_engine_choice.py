"""Another engine for a conversation than its agent's own: from when on, for whom, and how long it holds."""

from __future__ import annotations

import pytest

from rondel import Agent, App
from rondel.errors import ConfigError
from rondel.stores.memory import MemoryStore
from rondel.testing import Scripted, call


def engines(**scripts: Scripted) -> tuple[dict[str, Scripted], App]:
    scripts.setdefault("expert", Scripted())
    helper = Agent("helper", engine="own", listeners=["expert"])
    expert = Agent("expert", "You know.", engine="expert", description="knows")

    def make(name: str) -> Scripted:
        if name not in scripts:
            raise ConfigError(f"there is no engine {name!r}")
        return scripts[name]

    return scripts, App(helper, expert, make_engine=make, store=MemoryStore())


async def said(app: App, id: str, text: str) -> str:
    return (await (await app.conversation(id).send(text)).result()).output


async def test_a_chosen_engine_answers_in_its_conversation_and_in_no_other():
    _, app = engines(own=Scripted("own", "own"), other=Scripted("other"))
    async with app:
        assert await said(app, "a", "hi") == "own"
        await app.conversation("a").use_engine("other")
        assert await said(app, "a", "hi") == "other"
        assert await said(app, "b", "hi") == "own"
        assert (app.conversation("a").chosen_engine, app.conversation("b").chosen_engine) == ("other", "")


async def test_an_agent_that_works_for_a_call_asks_its_own():
    scripts, app = engines(
        own=Scripted(),
        other=Scripted(call("expert", "c", input="why?"), "because of that"),
        expert=Scripted("that is why"),
    )
    async with app:
        await app.conversation("a").use_engine("other")
        assert await said(app, "a", "hi") == "because of that"
        assert len(scripts["expert"].prompts) == 1


async def test_without_a_name_the_agent_asks_its_own_again_and_the_same_choice_twice_is_one_entry():
    _, app = engines(own=Scripted("own"), other=Scripted())
    async with app:
        conversation = app.conversation("a")
        for name in ("", "other", "other", "", ""):
            await conversation.use_engine(name)
        assert len(await conversation.entries()) == 2
        assert await said(app, "a", "hi") == "own"


async def test_a_wrong_name_is_told_to_whoever_gave_it_and_changes_nothing():
    _, app = engines(own=Scripted("own"))
    async with app:
        with pytest.raises(ConfigError, match="no engine 'nobody'"):
            await app.conversation("a").use_engine("nobody")
        assert await said(app, "a", "hi") == "own"
