"""Questions and approvals as buttons and forms."""

from __future__ import annotations

import asyncio
import re
from functools import partial

import pytest

from rondel import Agent, CallContext, Hold, Question, tool
from rondel.events import QuestionAnswered
from rondel.testing import VirtualClock, call
from rondel.testing.discord import text_of
from rondel.testing.discord.world import COMPONENTS_V2, EPHEMERAL
from rondel.tools.ask_user import ask_user
from rondel.trace import read

from .harness import World, loopback

done: list[str] = []
MARKUP = "ls ||; rm -rf ~|| [docs](https://evil.example) <t:0:R> **b** `c` @everyone"


@tool(approval="confirm")
async def book(hotel: str) -> str:
    "Book a room."
    done.append(hotel)
    return f"booked {hotel}"


def agents(world: World) -> list[Agent]:
    return [Agent("guide", engine=world.engine, tools=[ask_user, book])]


async def test_only_the_person_who_was_asked_or_an_approver_may_click():
    done.clear()
    async with loopback() as world:
        eve = world.discord.person("eve")
        await world.discord.join(world.guild, eve)
        boss = world.discord.role(world.guild, "boss", eve)
        steps = [
            call("book", "c1", hotel="Ritz", saying="One moment."),
            "Have fun.",
            call("book", "c2", hotel="Lux"),
            "No.",
        ]
        async with world.running(*steps, agents=agents(world), approvers=[boss.id]) as bot:
            await world.say("@bot book", world.bob)
            await world.discord.said(world.general, 2)
            await world.idle()
            said, asked = world.discord.bot_messages(world.general)
            assert said["content"] == "One moment."
            assert text_of(asked).startswith(f"<@{world.bob.id}> **May I?**")
            assert "Ritz" in text_of(asked)
            styles = re.findall(r"'style': (\d), .*?'label': '(\w+)'", str(asked["components"]))
            assert styles == [("3", "Yes"), ("4", "No"), ("3", "Always")]  # green, red, green
            refused = await world.discord.answered(await world.discord.click(world.ann, asked, "Yes"))
            assert (refused.text, refused.is_private) == (f"Only <@{world.bob.id}> can answer this.", True)
            assert done == []
            await world.discord.click(world.bob, asked, "Yes")
            assert (await world.answers(3))[-1] == "Have fun."
            assert done == ["Ritz"]
            assert text_of(asked).endswith(f"*<@{world.bob.id}> answered: Yes*")
            assert "custom_id" not in str(asked["components"])
            await world.say("@bot book", world.bob)
            await world.discord.said(world.general, 4)
            await world.idle()
            question = world.discord.bot_messages(world.general)[-1]
            await world.discord.click(eve, question, "No")  # has the role
            assert (await world.answers(5))[-1] == "No."
            assert done == ["Ritz"]
            talks = [world.app.conversation(id) for id in await bot.records.conversations_of(str(world.bob.id))]
            events = [entry.event for talk in talks for entry in await talk.entries()]
            given = {(e.answer.text, e.answer.by) for e in events if isinstance(e, QuestionAnswered)}
            assert given == {("yes", str(world.bob.id)), ("no", str(eve.id))}  # the transcript says who clicked


@pytest.mark.parametrize("person", ["bob", "bob@work", "0", "9" * 5_000])
async def test_an_approver_may_answer_for_the_person_who_was_asked_and_is_named(person: str):
    """Also for one who is not on Discord."""
    async with loopback() as world:
        eve = world.discord.person("eve")
        await world.discord.join(world.guild, eve)
        boss = world.discord.role(world.guild, "boss", eve)
        asked_for, who = (
            (str(world.bob.id), f"<@{world.bob.id}>") if person == "bob" else (person, "the person who was asked")
        )

        @tool
        async def sign(context: CallContext) -> Hold | str:
            "Sign a contract."
            if context.answer is not None:
                return context.answer.text
            return Hold(Question("sign", "ask", "Sign?", ("yes", "no"), call_id=context.call.id, person=asked_for))

        guide = Agent("guide", engine=world.engine, tools=[sign])
        async with world.running(call("sign"), "Signed.", agents=[guide], approvers=[boss.id]) as bot:
            await world.say("@bot sign", world.ann)
            (asked,) = await world.discord.said(world.general)
            await world.idle()
            refused = await world.discord.answered(await world.discord.click(world.ann, asked, "Yes"))
            assert refused.text == f"Only {who} can answer this."
            await world.discord.click(eve, asked, "Yes")
            assert (await world.answers(2))[-1] == "Signed."
            assert text_of(asked).endswith(f"*<@{eve.id}> answered: Yes*")
            (id,) = await bot.records.conversations_of(str(world.ann.id))
            assert f"yes (by {eve.id})" in "\n".join((await read(world.app.store, id)).lines())


async def test_clicks_that_come_twice_at_once_count_once():
    done.clear()
    async with loopback() as world:
        steps = [call("book", "c1", hotel="Ritz"), "Have fun."]
        async with world.running(*steps, agents=agents(world)):
            await world.say("@bot book", world.bob)
            await world.discord.said(world.general)
            await world.idle()
            (asked,) = world.discord.bot_messages(world.general)
            async with asyncio.TaskGroup() as group:
                for who, what in ((world.bob, "Yes"), (world.bob, "Yes"), (world.bob, "No"), (world.ann, "Yes")):
                    group.create_task(world.discord.click(who, asked, what))
            assert (await world.answers(2))[-1] == "Have fun."
            await world.idle()
            assert done == ["Ritz"]
            assert text_of(asked).endswith(f"*<@{world.bob.id}> answered: Yes*")


async def test_a_question_survives_a_restart_and_a_form_answers_it():
    async with loopback() as world:
        steps = [
            call("ask_user", "q", question="Which colour?", options=["red", "blue"], free_text=True),
            "Green it is.",
        ]
        async with world.running(*steps, agents=agents(world)):
            await world.say("@bot paint", world.bob)
            await world.discord.said(world.general)
            await world.idle()
        (asked,) = world.discord.bot_messages(world.general)
        async with world.running(agents=agents(world)) as bot:
            while not bot.has_recovered:
                await asyncio.sleep(0.001)
            buttons = asked["components"]
            form = await world.discord.click(world.bob, asked, "Answer…")
            await world.discord.submit(form, "green")
            assert (await world.answers(2))[-1] == "Green it is."
            assert len(world.discord.bot_messages(world.general)) == 2  # it was not asked again
            assert f"*<@{world.bob.id}> answered: green*" in text_of(asked)
            results = world.engine.prompts[-1].messages[-1].parts
            assert "green" in str(results)
            asked["components"] = buttons  # somebody's client still shows them
            await world.discord.answered(await world.discord.click(world.bob, asked, "red"))
            assert text_of(asked).endswith("*This question has expired.*")


async def test_a_private_question_stays_private():
    """A11: before and after its answer, and as a card, which is an edit of the answer that says 'thinking'."""
    async with loopback() as world:
        steps = [call("ask_user", "q", question="Which colour?", options=["red", "blue"]), "It is red."]
        async with world.running(*steps, agents=agents(world)):
            made = await world.discord.command(world.ann, world.general, "ai chat", message="paint", private=True)
            await world.discord.until(lambda: "Which colour?" in made.text)
            (asked,) = made.answers
            assert asked["flags"] == EPHEMERAL | COMPONENTS_V2
            await world.idle()
            await world.discord.click(world.ann, asked, "red")
            await world.discord.until(lambda: made.text.endswith("It is red."))
            await world.idle()
            assert text_of(asked).endswith(f"*<@{world.ann.id}> answered: red*")
            assert [message["flags"] for message in made.answers] == [EPHEMERAL | COMPONENTS_V2, EPHEMERAL]
            assert world.discord.bot_messages(world.general) == []


async def test_a_question_that_nobody_answers_in_time_says_so():
    clock = VirtualClock()
    async with loopback() as world:
        guide = agents(world)
        async with world.running(call("book", hotel="Ritz"), "Too late.", agents=guide, clock=clock):
            await world.say("@bot book")
            await world.discord.said(world.general)
            await world.idle()
            clock.advance(61)
            assert (await world.answers(2))[-1] == "Too late."
            (asked, _) = world.discord.bot_messages(world.general)
            assert text_of(asked).endswith("*No answer in time.*")
            assert "custom_id" not in str(asked["components"])


@pytest.mark.parametrize("kind", ["approval", "question", "choice"])
async def test_an_edit_closes_the_questions_of_the_old_text_and_the_model_asks_again(kind: str):
    done.clear()
    first = {
        "approval": call("book", "c1", hotel="Ritz"),
        "question": call("ask_user", "c1", question="The Ritz?"),
        "choice": call("ask_user", "c1", question="The Ritz?", options=["single", "double"], free_text=False),
    }
    async with loopback() as world:
        steps = [first[kind], call("book", "c2", hotel="Lux"), "Have fun."]
        async with world.running(*steps, agents=agents(world), conversation="channel") as bot:
            said = await world.say("@bot book the Ritz", world.bob)
            (old,) = await world.discord.said(world.general)
            await world.idle()
            buttons = old["components"]
            await world.discord.edit(said, "@bot book the Lux instead")
            asked = (await world.discord.said(world.general, 2))[1]
            await world.idle()
            assert text_of(old).endswith("*The message was edited.*")
            assert "custom_id" not in str(old["components"])
            assert "Lux" in text_of(asked)
            sent = world.engine.prompts[-1].messages
            assert "(I have edited my message. It now says:)\nBob: book the Lux instead" in sent[-1].text
            assert "edited" in str(sent[-2].parts)
            # Discord sends the same event for a preview that it adds to a link.
            await world.discord.gateway.dispatch("MESSAGE_UPDATE", world.discord.world.as_event(said), world.guild)
            old["components"] = buttons  # somebody's client still shows them
            label = {"approval": "Yes", "question": "Answer…", "choice": "single"}[kind]
            await world.discord.answered(await world.discord.click(world.bob, old, label))
            assert text_of(old).endswith("*This question has expired.*")
            assert done == []
            await world.discord.click(world.bob, asked, "Yes")
            assert (await world.answers(3))[-1] == "Have fun."
            assert done == ["Lux"]
            talk = world.app.conversation(next(iter(await bot.records.conversations_of(str(world.bob.id)))))
            answers = [one.event.answer for one in await talk.entries() if isinstance(one.event, QuestionAnswered)]
            assert [answer.by for answer in answers] == ["edit", str(world.bob.id)]


async def test_an_edit_leaves_the_questions_of_others_open():
    """Bob's message waits behind Ann's question; he edits it."""
    done.clear()
    async with loopback() as world:
        steps = [call("book", "c1", hotel="Ritz"), "Booked."]
        async with world.running(*steps, agents=agents(world), conversation="channel") as bot:
            await world.say("@bot book the Ritz")
            (asked,) = await world.discord.said(world.general)
            await world.idle()
            second = await world.say("@bot and for me?", world.bob)
            while int(second["id"]) not in bot.deliveries:
                await asyncio.sleep(0.001)
            await world.idle()
            await world.discord.edit(second, "@bot and for me the Lux?")
            talk = world.app.conversation(bot.deliveries[int(second["id"])].pending.conversation)
            while not (await talk.transcript()).inbox:
                await asyncio.sleep(0.001)
            assert len(await talk.questions()) == 1
            await world.discord.click(world.ann, asked, "Yes")
            await world.discord.until(lambda: "Booked." in str(world.discord.bot_messages(world.general)))
            await world.idle()
            assert done == ["Ritz"]
            assert "and for me the Lux?" in str(world.engine.prompts[-1].messages)


def choosing(world: World, count: int, *, free_text: bool) -> Agent:
    """An agent that asks which of so many options it is."""

    @tool
    async def choose(context: CallContext) -> Hold | str:
        "Ask the person to choose."
        if context.answer is not None:
            return f"It is {context.answer.text}."
        options = tuple(f"option {number}" for number in range(1, count + 1))
        return Hold(Question("choose", "choose", "Which?", options, free_text, context.call.id))

    return Agent("guide", engine=world.engine, tools=[choose])


@pytest.mark.parametrize("free_text", [False, True])
@pytest.mark.parametrize("count", [22, 30, 100])
async def test_many_options_are_menus_of_25_each(count: int, free_text: bool):
    async with loopback() as world:
        guide = choosing(world, count, free_text=free_text)
        async with world.running(call("choose"), "Noted.", agents=[guide]):
            await world.say("@bot ask me")
            (asked,) = await world.discord.said(world.general)
            await world.idle()
            rows = [row["components"] for row in asked["components"][0]["components"] if row["type"] == 1]
            menus = [row[0]["options"] for row in rows if row[0]["type"] == 3]
            assert [one["label"] for menu in menus for one in menu] == [f"option {n}" for n in range(1, count + 1)]
            assert len(rows) - len(menus) == free_text  # "Answer…"
            await world.discord.click(world.ann, asked, f"option {count}")
            assert (await world.answers(2))[-1] == "Noted."
            assert f"*<@{world.ann.id}> answered: option {count}*" in text_of(asked)


@pytest.mark.parametrize(
    ("typed", "free_text", "expected"),
    [
        ("137", False, "option 137"),
        (" 137. ", False, "option 137"),
        ("Option 200", False, "Option 200"),
        ("137", True, "option 137"),
        ("none of them", True, "none of them"),
        ("201", True, "201"),
    ],
)
async def test_more_options_than_menus_hold_are_listed_and_typed_by_number_or_text(
    typed: str, free_text: bool, expected: str
):
    async with loopback() as world:
        guide = choosing(world, 200, free_text=free_text)
        async with world.running(call("choose"), "Noted.", agents=[guide]):
            await world.say("@bot ask me")
            (asked,) = await world.discord.said(world.general)
            await world.idle()
            assert [f"{n}. option {n}" for n in range(1, 201)] == text_of(asked).splitlines()[2:]
            for wrong in ("0", "201", "nonsense") if not free_text else ():
                form = await world.discord.click(world.ann, asked, "Answer…")
                refused = await world.discord.submit(form, wrong)
                await world.discord.until(partial(getattr, refused, "is_private"))
                assert f"'{wrong}' is not one of: option 1, option 2" in refused.answers[0]["content"]
            form = await world.discord.click(world.ann, asked, "Answer…")
            await world.discord.submit(form, typed)
            assert (await world.answers(2))[-1] == "Noted."
            assert f"It is {expected}." in str(world.engine.prompts[-1].messages[-1].parts)


async def test_options_that_are_too_long_for_a_card_are_in_a_file():
    async with loopback() as world:
        guide = choosing(world, 1_000, free_text=False)
        async with world.running(call("choose"), agents=[guide]):
            await world.say("@bot ask me")
            (asked,) = await world.discord.said(world.general)
            (file,) = asked["attachments"]
            assert world.discord.data_of(file).decode().endswith("\n1000. option 1000")


@pytest.mark.parametrize(
    ("hotel", "shown"),
    [
        (f"{MARKUP} ```py", f'{{"hotel":"{MARKUP} ⟨3 backticks⟩py"}}'),
        (f"```\n# Fine\n-# {MARKUP}\n````", f"  │ ⟨3 backticks⟩\n  │ # Fine\n  │ -# {MARKUP}\n  │ ⟨4 backticks⟩"),
        ("a\u202eb ⟨3 backticks⟩", '{"hotel":"a⟨U+202E⟩b ⟨U+27E8⟩3 backticks⟨U+27E9⟩"}'),
    ],
)
async def test_discord_renders_nothing_of_a_call_that_is_approved(hotel: str, shown: str):
    """Trust 12: `||; rm -rf ~||` was a closed spoiler, and three backticks ended what was shown as code."""
    async with loopback() as world, world.running(call("book", "c1", hotel=hotel), "Done.", agents=agents(world)):
        await world.say("@bot book")
        (asked,) = await world.discord.said(world.general)
        await world.idle()
        before, block, after = text_of(asked).split("```")  # Discord begins and ends code at each of them
        assert (before, after) == (f"<@{world.ann.id}> **May I?**\n", "")
        assert shown in block
        assert block.startswith("\nAllow book to run with")
        await world.discord.click(world.ann, asked, "No")
        await world.answers(2)
        assert text_of(asked).split("```")[1:] == [block, f"\n*<@{world.ann.id}> answered: No*"]


async def test_an_approval_that_a_tool_words_itself_is_shown_as_it_is_too():
    """Trust 12: the text of an author's own question may quote what a model wrote."""
    async with loopback() as world:

        @tool
        async def wipe(path: str, context: CallContext) -> Hold:
            "Wipe a disk."
            return Hold(Question("wipe", "approve", f"Wipe {path}?", ("yes", "no"), False, context.call.id))

        steps = call("wipe", path="\t||/dev/sda||\u200b```")
        async with world.running(steps, agents=[Agent("guide", engine=world.engine, tools=[wipe])]):
            await world.say("@bot wipe")
            (asked,) = await world.discord.said(world.general)
            assert text_of(asked).endswith("```\nWipe ⇥   ||/dev/sda||⟨U+200B⟩⟨3 backticks⟩?\n```")


async def test_whoever_approves_sees_all_of_a_call_however_long_it_is():
    done.clear()
    hotel = "Ritz " * 2_000 + "and the bar"
    steps = [call("book", "c1", hotel=hotel), "Done."]
    async with loopback() as world, world.running(*steps, agents=agents(world)) as bot:
        await world.say("@bot book")
        (asked,) = await world.discord.said(world.general)
        (file,) = asked["attachments"]
        data = world.discord.world.files[file["url"].removeprefix("https://cdn.discordapp.com")][0]
        assert "and the bar" in data.decode()
        assert "attachment://question.md" in str(asked["components"])
        await world.discord.click(world.ann, asked, "Yes")
        assert (await world.answers(2))[-1] == "Done."
        assert done == [hotel]
        assert text_of(asked).endswith(f"*<@{world.ann.id}> answered: Yes*")
        assert not bot.client.persistent_views  # nothing is remembered for a click that may never come


async def test_a_long_answer_with_markdown_is_cut_before_it_is_escaped():
    steps = [call("ask_user", "q", question="Which?", free_text=True), "Noted."]
    async with loopback() as world, world.running(*steps, agents=agents(world)):
        await world.say("@bot ask me")
        (asked,) = await world.discord.said(world.general)
        await world.idle()
        form = await world.discord.click(world.ann, asked, "Answer…")
        await world.discord.submit(form, "a" + "*" * 200)
        await world.answers(2)
        shown = text_of(asked).splitlines()[-1]
        assert re.fullmatch(rf"\*<@{world.ann.id}> answered: a(\\\*){{10,100}}\*", shown)
