"""Questions and approvals as cards with buttons, and forms. They survive a restart: the ids of the buttons name the
question, and the store knows the rest."""

from __future__ import annotations

import io
import logging
from collections.abc import Sequence
from hashlib import blake2s
from typing import TYPE_CHECKING, Any

import discord

from ...errors import RondelError
from ...question import ALWAYS, NO, YES, Answer, Question
from ...text.printable import visible_block
from .cards import AMBER, CARD_CHARS_MAX, GREY, Control, card, text_of
from .chunks import LIMIT, chunks, sentence_of
from .fold import QuestionPiece
from .outlet import NOBODY, Extras
from .pending import OpenQuestion

if TYPE_CHECKING:
    from .bot import DiscordBot
    from .delivery import Delivery

log = logging.getLogger("rondel.discord")

PREFIX = "rondel"
ID_CHARS_MAX = 20
NOT_HERE = -1  # instead of the id of a person who is not on Discord
BUTTONS_MAX = 20
MENU_OPTIONS_MAX, MENUS_MAX = 25, 4  # the fifth row is for "Answer…"
LABEL_CHARS_MAX = 80
ANSWER_CHARS_MAX = 4_000
ANSWERED_CHARS_MAX = 70
WHOLE = "question.md"  # the file with a question that is too long for a card
EXPIRED = "This question has expired."
LABELS = {YES: "Yes", NO: "No", ALWAYS: "Always"}


class Questions:
    def __init__(self, bot: DiscordBot) -> None:
        self._bot = bot

    async def show(self, delivery: Delivery, key: str, piece: QuestionPiece) -> None:
        """Show a question with its buttons, or how it was answered."""
        question, id = piece.question, _key(delivery.pending.conversation, piece.question.id)
        person = _person_id(question.person or delivery.pending.person.id)
        whole = _text(question, person, private=delivery.pending.is_private)
        parts = chunks(whole, CARD_CHARS_MAX)
        text, is_cut = parts[0], len(parts) > 1
        file = WHOLE if is_cut else ""
        if piece.answer is not None:
            answered = f"{text}\n{_answered(piece.answer)}"
            await delivery.show_card(key, answered, Extras(view=card(answered, colour=GREY, file=file)))
            await self._bot.records.close_question(id)
            return
        if key in delivery.pending.posted:
            return
        open_question = OpenQuestion(
            delivery.pending.conversation,
            question.id,
            delivery.channel.id,
            person=person,
            pending=delivery.pending.message,
        )
        await self._bot.records.ask(id, open_question)  # before the buttons can be clicked
        # The person who approves must see all of it: what does not fit is in a file.
        files = (discord.File(io.BytesIO(whole.encode()), WHOLE),) if is_cut else ()
        view = card(text, colour=AMBER, controls=_controls(question, id), file=file)
        await delivery.show_card(key, text, Extras(view=view, files=files))

    # --- what people do -----------------------------------------------------------------------------------------------

    async def on_interaction(self, interaction: discord.Interaction[Any]) -> bool:
        """Handle a click or a form. Returns False if it is not about a question of ours."""
        data: dict[str, Any] = dict(interaction.data or {})  # type: ignore[arg-type]
        words = str(data.get("custom_id", "")).split(":")
        if len(words) < 3 or words[0] != PREFIX:
            return False
        action, key = words[1], words[2]
        found = await self._find(interaction, key)
        if found is None:
            return True
        opened, question = found
        if action == "form":
            await interaction.response.send_modal(_form(question, key))
        elif action == "text":
            await self._answer(interaction, opened, question, _meant(question, _typed(data)))
        elif action == "menu":
            await self._answer(interaction, opened, question, question.options[int(data["values"][0])])
        else:
            await self._answer(interaction, opened, question, question.options[int(words[3])])
        return True

    async def _find(self, interaction: discord.Interaction[Any], key: str) -> tuple[OpenQuestion, Question] | None:
        opened = await self._bot.records.question(key)
        if opened is None:
            await self._expire(interaction)
            return None
        if not self._may_answer(interaction.user, opened):
            who = f"<@{opened.person}>" if opened.person > 0 else "the person who was asked"
            text = f"Only {who} can answer this."
            await interaction.response.send_message(text, ephemeral=True, allowed_mentions=NOBODY)
            return None
        conversation = self._bot.app.conversation(opened.conversation)
        for question in await conversation.questions():
            if question.id == opened.question:
                return opened, question
        await self._expire(interaction)
        await self._bot.records.close_question(key)
        return None

    def _may_answer(self, user: discord.User | discord.Member, opened: OpenQuestion) -> bool:
        if not opened.person or user.id == opened.person:
            return True
        approvers = set(map(int, self._bot.settings.approvers))
        return any(role.id in approvers for role in getattr(user, "roles", ()))

    async def _expire(self, interaction: discord.Interaction[Any]) -> None:
        message = interaction.message
        if message is None or not message.components:
            await interaction.response.send_message(EXPIRED, ephemeral=True, allowed_mentions=NOBODY)
            return
        view = card(f"{text_of(message)}\n*{EXPIRED}*", colour=GREY)
        await interaction.response.edit_message(view=view, attachments=[], allowed_mentions=NOBODY)

    async def _answer(
        self, interaction: discord.Interaction[Any], opened: OpenQuestion, question: Question, text: str
    ) -> None:
        await interaction.response.defer()  # Discord gives three seconds
        conversation = self._bot.app.conversation(opened.conversation)
        try:
            by = str(interaction.user.id)
            view = await conversation.answer(question.id, text, by=by, instead_of=question.person)
            view.close()  # the delivery shows what follows
        except RondelError as error:
            await interaction.followup.send(sentence_of(error)[:LIMIT], ephemeral=True, allowed_mentions=NOBODY)


def _key(conversation: str, question: str) -> str:
    return blake2s(f"{conversation}\x1f{question}".encode(), digest_size=8).hexdigest()


def _person_id(person: str) -> int:
    """Return the id of a person on Discord, `NOT_HERE` for anybody else, or 0 for nobody."""
    if not person:
        return 0
    is_id = person.isascii() and person.isdecimal() and len(person) <= ID_CHARS_MAX
    return (int(person) if is_id else 0) or NOT_HERE


def _text(question: Question, person: int, *, private: bool) -> str:
    to = f"<@{person}> " if person > 0 and not private else ""
    if question.kind == "approve":  # it quotes a call, and whoever allows that must see what it is
        return f"{to}**May I?**\n{visible_block(question.text)}"
    numbered = enumerate(question.options if _is_listed(question) else (), 1)
    lines = [f"{number}. {' '.join(option.split())}" for number, option in numbered]
    return "\n".join((f"{to}**A question**", question.text, *lines))


def _is_listed(question: Question) -> bool:
    """Whether there are more options than menus hold: then they are numbered, and the answer is typed."""
    return len(question.options) > MENU_OPTIONS_MAX * MENUS_MAX


def _meant(question: Question, typed: str) -> str:
    """Return the option whose number was typed, or else what was typed."""
    number = typed.strip().rstrip(".")
    is_text = typed.strip().casefold() in map(str.casefold, question.options)
    if not _is_listed(question) or is_text or not (number.isascii() and number.isdecimal()):
        return typed
    return dict(enumerate(question.options, 1)).get(int(number[:ID_CHARS_MAX]), typed)


def _answered(answer: Answer) -> str:
    if answer.by == "deadline":
        return "*No answer in time.*"
    if answer.by == "stop":
        return "*Stopped.*"
    if answer.by == "edit":
        return "*The message was edited.*"
    # A card has room for this: it may have 200 characters more than CARD_CHARS_MAX.
    shown = discord.utils.escape_markdown(LABELS.get(answer.text, answer.text)[:ANSWERED_CHARS_MAX])
    id = _person_id(answer.by)
    return f"*<@{id}> answered: {shown}*" if id > 0 else f"*Answered: {shown}*"


def _controls(question: Question, key: str) -> list[Control]:
    options, controls = question.options, list[Control]()
    if _is_listed(question):
        pass
    elif len(options) > BUTTONS_MAX:
        controls += (_menu(options, start, key) for start in range(0, len(options), MENU_OPTIONS_MAX))
    else:
        for index, option in enumerate(options):
            style = discord.ButtonStyle.secondary
            if question.kind == "approve":
                style = discord.ButtonStyle.danger if option == NO else discord.ButtonStyle.success
            controls.append(_button(LABELS.get(option, option), f"pick:{key}:{index}", style))
    if question.free_text or not controls:
        controls.append(_button("Answer…", f"form:{key}", discord.ButtonStyle.primary))
    return controls


def _menu(options: Sequence[str], start: int, key: str) -> discord.ui.Select[Any]:
    """Return a menu of the options from `start` on."""
    end = min(start + MENU_OPTIONS_MAX, len(options))
    shown = "Choose" if len(options) <= MENU_OPTIONS_MAX else f"Choose: {start + 1} to {end} of {len(options)}"
    menu: discord.ui.Select[Any] = discord.ui.Select(custom_id=f"{PREFIX}:menu:{key}:{start}", placeholder=shown)
    for index in range(start, end):
        menu.add_option(label=_label(options[index]), value=str(index))
    return menu


def _button(label: str, id: str, style: discord.ButtonStyle) -> discord.ui.Button[Any]:
    return discord.ui.Button(label=_label(label), custom_id=f"{PREFIX}:{id}", style=style)


def _label(text: str) -> str:
    line = " ".join(text.split()) or "…"
    return line if len(line) <= LABEL_CHARS_MAX else line[: LABEL_CHARS_MAX - 1] + "…"


def _form(question: Question, key: str) -> discord.ui.Modal:
    form = discord.ui.Modal(title="Your answer", custom_id=f"{PREFIX}:text:{key}", timeout=None)
    about = " ".join(question.text.split())
    form.add_item(
        discord.ui.TextInput(
            label=about if len(about) <= 45 else about[:44] + "…",
            style=discord.TextStyle.paragraph,
            max_length=ANSWER_CHARS_MAX,
        )
    )
    return form


def _typed(data: dict[str, Any]) -> str:
    """Return the text of a form with one field."""
    pending: list[Any] = list(data.get("components", ()))
    while pending:
        part = pending.pop(0)
        if "value" in part:
            return str(part["value"])
        pending += [*part.get("components", ()), *([part["component"]] if "component" in part else [])]
    return ""
