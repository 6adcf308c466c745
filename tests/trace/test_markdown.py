"""A trace as Markdown: cards of agents in the seed's form, and text that cannot break out of it."""

from __future__ import annotations

from markdown_it import MarkdownIt

from rondel.trace import build, markdown
from rondel.values import ToolCall
from tests.trace.journals import called, journal, said, turn


def nested():
    entries = turn(
        said("Let me ask.", ToolCall("c", "weather", {"input": "in Paris?"}), tokens=10),
        *called("c", "weather", "sunny"),
        said("It is sunny."),
        instructions="You help.",
        text="What is the weather?",
    )
    inner = turn(said("sunny"), id="t1/c", agent="weather", text="in Paris?")
    return build(journal(*entries), {"talk/c": journal(*inner)}, conversation="talk")


def test_the_long_form_has_a_card_for_each_agent_with_all_that_it_did():
    """O01: Markdown, long: `# Agent Trace: X`, `## level.index: name From: parent`."""
    lines = markdown(nested()).splitlines()
    assert lines[0] == "# Agent Trace: helper"
    assert [line for line in lines if line.startswith("## ")] == [
        "## 1.1: helper From: a person",
        "## 2.1: weather From: helper",
    ]
    text = "\n".join(lines)
    assert "Instructions:\n\n```text\nYou help.\n```" in text
    assert '- `Depth 1: called tool weather with args {"input":"in Paris?"}` (250 ms)' in text
    assert "  Output:\n\n  ```text\n  sunny\n  ```" in text
    assert text.count("No error.") == 2


def test_the_short_form_has_a_few_lines_for_each_agent():
    """O01: Markdown, short: Level, Agent, From, Input, Output, no error."""
    short = markdown(nested(), short=True)
    assert short.split("```text\n")[1].split("\n```")[0].splitlines() == [
        "Level: 1.1",
        "Agent: helper",
        "From: a person",
        "Input: What is the weather?",
        "Output: It is sunny.",
        "no error",
        'Depth 1: called tool weather with args {"input":"in Paris?"}',
    ]
    assert "You help." not in short
    assert len(short) < len(markdown(nested()))


def test_no_text_of_others_is_read_as_markdown():
    evil = "``` \n````\n# a heading\n[click](http://x.invalid) <b>bold</b> `tick"
    name = "a`b *c* [d](e) # <i>"
    entries = journal(
        *turn(
            said(evil, ToolCall("c", name, {"x": evil})),
            *called("c", name, evil, error=True),
            agent=name,
            text=evil,
            instructions=evil,
        )
    )
    for short in (False, True):
        tokens = MarkdownIt("commonmark").parse(markdown(build(entries, {}, conversation=name), short=short))
        inline = [child.type for token in tokens for child in token.children or ()]
        assert not {"link_open", "html_inline", "image", "strong_open"} & set(inline)
        assert "html_block" not in {token.type for token in tokens}
        headings = [tokens[i + 1].children for i, token in enumerate(tokens) if token.type == "heading_open"]
        assert len(headings) == 2
        assert all({part.type for part in parts or ()} <= {"text", "text_special"} for parts in headings)


def test_what_a_model_says_cannot_command_the_terminal_that_shows_it():
    evil = "\x1b]0;owned\x07\x1b[2J \x9b31m \u202e gone\r\n\ud800"
    for short in (False, True):
        text = markdown(build(journal(*turn(said(evil), text=evil, agent=evil)), {}, conversation=evil), short=short)
        assert not {"\x1b", "\x07", "\x9b", "\u202e", "\r", "\ud800"} & set(text)
        assert "␛]0;owned␇" in text
