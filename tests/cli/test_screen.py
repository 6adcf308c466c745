"""What a person sees of events, without a terminal: lines on a console, and what is live."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from rondel.events import (
    CallFinished,
    CallHeld,
    CallProgressed,
    CallStarted,
    Event,
    Failure,
    HandedOff,
    LimitHit,
    MessageAdded,
    Nested,
    Outcome,
    PluginFailed,
    QuestionAnswered,
    RoundFinished,
    RoundStarted,
    Trimmed,
    TurnFinished,
    TurnStarted,
    Warned,
)
from rondel.question import Answer, Question
from rondel.surfaces.terminal.markdown import MarkdownStream, split
from rondel.surfaces.terminal.screen import Screen
from rondel.testing import call, say
from rondel.text.printable import clean
from rondel.values import (
    Message,
    Notice,
    PartDelta,
    PartFinished,
    PartStarted,
    Reply,
    Text,
    ToolResult,
    deltas_of,
    user,
)

START = TurnStarted("t", "helper")
ROUND = RoundStarted(1, "helper", "scripted:test")
DONE = TurnFinished("t", Outcome.DONE)


class Paper:
    """A screen on paper, with a clock that stands still until it is moved."""

    def __init__(self, *, rich: bool = True, columns: int = 80) -> None:
        self.now = 0.0
        self._file = io.StringIO()
        console = Console(file=self._file, width=columns, force_terminal=False, markup=False, highlight=False)
        self.screen = Screen(console, now=lambda: self.now, rich=rich)

    def show(self, *events: Event) -> str:
        for event in events:
            self.screen.show(event)
        return self.text

    @property
    def text(self) -> str:
        return self._file.getvalue()

    @property
    def live(self) -> str:
        console = Console(file=io.StringIO(), width=80, force_terminal=False)
        with console.capture() as captured:
            for renderable in self.screen.live():
                console.print(renderable)
        return captured.get()


def streamed(reply: Reply) -> list[Event]:
    return [ROUND, *deltas_of(reply), RoundFinished(reply.message)]


def test_finished_blocks_are_printed_once_and_the_open_one_is_live():
    paper = Paper()
    paper.show(START, ROUND, PartStarted(0, Text("")), PartDelta(0, "First.\n\nSecond *bl"))
    assert paper.text == "First.\n"
    assert "Second *bl" in paper.live
    paper.show(PartDelta(0, "ock*."))
    assert "Second block." in paper.live
    text = "First.\n\nSecond *block*."
    paper.show(PartFinished(0, Text(text)), RoundFinished(say(text).message), DONE)
    assert paper.text == "First.\n\nSecond block.\n"
    assert paper.live == ""


def test_a_long_block_of_code_grows_cheaply_and_is_printed_once():
    paper = Paper()
    paper.show(START, ROUND, PartStarted(0, Text("")), PartDelta(0, "```python\n"))
    for number in range(3000):
        paper.show(PartDelta(0, f"x{number} = '"), PartDelta(0, "~~~'\n"))
    assert paper.text == ""
    assert "x2999 = '~~~'" in paper.live
    assert "x2900" not in paper.live
    paper.show(PartDelta(0, "``"), PartDelta(0, "`\nBehind it.\n"))
    assert paper.text.splitlines()[:2] == [" x0 = '~~~'", " x1 = '~~~'"]
    assert "Behind it." in paper.live


def test_a_long_line_of_a_result_is_cut_to_the_window():
    paper = Paper(columns=40)
    result = ToolResult("c", (Text("界" * 100),), "look")
    paper.show(START, ROUND, RoundFinished(call("look", "c").message), CallFinished(result))
    assert paper.text.splitlines()[1] == "  " + "界" * 18 + " …"


def test_piped_text_comes_as_it_is_and_at_once():
    paper = Paper(rich=False)
    paper.show(START, ROUND, PartStarted(0, Text("")), PartDelta(0, "**as it "))
    assert paper.text == "**as it "
    paper.show(
        PartDelta(0, "is**"), PartFinished(0, Text("**as it is**")), RoundFinished(say("**as it is**").message), DONE
    )
    assert paper.text == "**as it is**\n"


def test_a_reply_that_nobody_streamed_is_shown_and_an_edited_one_is_said_to_be():
    paper = Paper()
    paper.show(START, ROUND, RoundFinished(say("Whole.").message))
    assert paper.text == "Whole.\n"
    paper.show(ROUND, *deltas_of(say("Before.")), RoundFinished(say("After.").message))
    assert paper.text.endswith("Before.\n\nA plugin changed the reply to:\n\nAfter.\n")


def test_thinking_is_one_line_unless_it_is_wanted():
    paper = Paper()
    reply = say("So.", thinking="one two three")
    assert paper.show(START, *streamed(reply)) == "Thought for 0 ms, 3 words.\n\nSo.\n"
    wanted = Paper()
    wanted.screen.thinking = True
    assert wanted.show(START, *streamed(reply)) == "one two three\n\nSo.\n"


def test_a_call_is_live_with_its_time_and_then_one_line_with_its_result():
    paper = Paper()
    message = call("look", "c", place="here", deep=True).message
    paper.show(START, ROUND, RoundFinished(message), CallStarted("c", "look", {"place": "here", "deep": True}))
    paper.now = 3.0
    paper.show(CallProgressed("c", "half\nway"))
    assert 'look(place="here", deep=true) 3 s half way' in paper.live
    lines = "\n".join(f"line {n}" for n in range(20))
    paper.show(CallFinished(ToolResult("c", (Text(lines),), "look"), 3.2))
    assert paper.text == (
        '✓ look(place="here", deep=true) · 3.2 s\n  line 0\n  line 1\n  line 2\n  line 3\n  … 16 more lines\n'
    )


def test_a_denied_call_shows_what_it_wanted_also_after_a_question():
    paper = Paper()
    question = Question("approve:c", "approve", "May it?", call_id="c")
    paper.show(START, ROUND, RoundFinished(call("wipe", "c", path="/").message), CallHeld(question))
    paper.show(TurnFinished("t", Outcome.WAITING), START)
    paper.show(CallFinished(ToolResult("c", (Text("denied by user"),), "wipe", is_error=True), 0.0))
    assert paper.text == '✗ wipe(path="/") · 0 ms\n  denied by user\n'


def test_the_calls_of_agents_inside_are_indented():
    paper = Paper()
    inner = [
        RoundFinished(call("add", "k", a=1).message),
        CallStarted("k", "add", {"a": 1}),
        CallFinished(ToolResult("k", (Text("1"),), "add"), 0.1),
    ]
    paper.show(START, ROUND, RoundFinished(call("adder", "c").message), CallStarted("c", "adder", {}))
    paper.show(*(Nested("c", "adder", event) for event in inner))
    paper.show(*(Nested("c", "adder", Nested("k", "deeper", event)) for event in inner))
    paper.show(CallFinished(ToolResult("c", (Text("one"),), "adder"), 0.2))
    assert paper.text.splitlines() == [
        "  ✓ adder › add(a=1) · 100 ms",
        "    1",
        "    ✓ deeper › add(a=1) · 100 ms",
        "      1",
        "✓ adder() · 200 ms",
        "  one",
    ]


def test_the_result_of_a_finishing_tool_is_the_answer():
    paper = Paper()
    result = ToolResult("c", (Text("**All** done."),), "finish", final=True)
    paper.show(START, ROUND, RoundFinished(call("finish", "c").message), CallFinished(result))
    assert paper.text.endswith("\n\nAll done.\n")


def test_what_goes_wrong_is_a_sentence():
    paper = Paper()
    paper.show(
        START,
        Notice("trying again in 2 s"),
        Trimmed(3, 100, 50),
        HandedOff("expert", reason="too hard"),
        PluginFailed("mine", "on_reply", "ValueError: no"),
        MessageAdded(user("go on", author="plugin:auto_reply")),
        QuestionAnswered(Answer("q", "no", by="deadline")),
        LimitHit("limits.rounds", "the turn used its 40 rounds"),
        RoundFinished(Message("assistant"), ran=False),
        RoundFinished(say("cut").message, stop="length"),
        TurnFinished("t", Outcome.FAILED, failure=Failure("EngineDenied", "the key is wrong")),
        TurnFinished("t", Outcome.STOPPED),
    )
    assert paper.text.replace("\n\n", "\n").splitlines() == [
        "trying again in 2 s",
        "Left out the oldest 3 messages, which exceed the model's context window.",
        "→ expert takes over: too hard",
        "The plugin mine failed in on_reply and was skipped: ValueError: no",
        "auto_reply: go on",
        "No answer in time; it counts as 'no'.",
        "Limit reached: the turn used its 40 rounds",
        "The prompt was empty, so no model was called.",
        "cut",
        "The model reached its token limit and stopped.",
        "✗ the key is wrong",
        "Stopped.",
    ]


def test_html_and_markup_are_text():
    paper = Paper()
    text = "List<String> and [bold]this[/bold]\n\n<script>alert(1)</script>"
    assert paper.show(START, *streamed(say(text))) == (
        "List<String> and [bold]this[/bold]\n\n<script>alert(1)</script>\n"
    )


def test_a_link_shows_where_it_goes():
    assert (
        Paper().show(START, *streamed(say("[your bank](https://evil.example)"))) == "your bank (https://evil.example)\n"
    )


@given(st.text())
def test_no_text_keeps_a_character_that_a_terminal_obeys(text: str):
    cleaned = clean(text)
    assert all(char in "\n\t" or (char >= " " and not "\x7f" <= char <= "\x9f") for char in cleaned)
    assert clean(cleaned) == cleaned


def test_whole_escape_sequences_go_without_a_trace():
    assert clean("a\x1b[31mb\x1b[0m\x1b]0;title\x07c\x1b]8;;http://x\x1b\\d\r\ne\x08") == "abcd\ne"


@given(st.lists(st.sampled_from(["# a\n", "text ", "\n", "- b\n", "  c\n", "```\n", "> d\n", "| e |\n", "---\n"])))
def test_pieces_of_markdown_give_the_blocks_of_the_whole(pieces: list[str]):
    stream, blocks = MarkdownStream(), list[str]()
    for piece in pieces:
        blocks += stream.feed(piece)
    blocks += stream.finish()
    whole = split("".join(pieces))
    assert [block.strip("\n") for block in blocks] == [block.strip("\n") for block in whole]


def test_what_people_should_not_see_is_not_shown_and_a_warning_is():
    hidden = Message("user", (Text("for the model only"),), author="plugin:retrieve", shown=False)
    text = Paper().show(START, MessageAdded(hidden), Warned("position", "there is no node 'tone'"), DONE)
    assert "for the model only" not in text
    assert "position: there is no node 'tone'" in text


def test_a_reply_that_was_thrown_away_is_not_shown_as_an_answer():
    thrown = RoundFinished(Message("assistant", (Text("as an AI"),)), next="again")
    text = Paper().show(START, ROUND, thrown, ROUND, RoundFinished(Message("assistant", (Text("Sure."),))), DONE)
    assert "as an AI" not in text
    assert "asking the model again" in text
    assert "Sure." in text
