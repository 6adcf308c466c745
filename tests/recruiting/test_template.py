"""Directives in texts: found exactly, filled in in one pass, and wrong ones told with their place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rondel import Agent, RondelError
from rondel.text.template import TemplateError, escape, may_begin, parse, scan


def test_directives_have_their_arguments_and_their_places():
    """S06."""
    template = parse('Dear {{ .Input "name" "guest" }},\n  {{.Get "weather"}} and {{ .Options "Tea?" "yes" "no" }}')
    assert [(d.name, d.arguments, d.line, d.column) for d in template.directives] == [
        ("Input", ("name", "guest"), 1, 6),
        ("Get", ("weather",), 2, 3),
        ("Options", ("Tea?", "yes", "no"), 2, 26),
    ]


def test_a_text_is_filled_in_in_one_pass():
    """S06: what is inserted is never expanded again."""
    template = parse('{{ .Get "a" }} {{ .Get "b" }} {{ .Get "a" }}')
    values = {("Get", "a"): '{{ .Get "b" }}', ("Get", "b"): "B"}
    assert template.fill(values) == '{{ .Get "b" }} B {{ .Get "b" }}'


@pytest.mark.parametrize(
    "text",
    [
        "{{ x }}",
        "{{ .Name }}",
        '{{ .get "a" }}',
        "{ .Get }",
        '{{ "text" }}',
        "{{ INPUT name }}",
        "{% for %} ${x}",
        "{{",
        "}}",
    ],
)
def test_everything_else_between_braces_stays_as_it_was_written(text: str):
    assert parse(text).directives == ()
    assert parse(text).fill({}) == text


def test_a_backslash_keeps_a_directive_from_being_one():
    template = parse('Write \\{{ .Get "almanac" }} when you do not know. {{ .Get "tone" }}')
    assert template.fill({("Get", "tone"): "Be brief."}) == 'Write {{ .Get "almanac" }} when you do not know. Be brief.'


def test_texts_in_quotes_may_have_quotes_and_line_breaks():
    assert parse('{{ .AskUser "Say \\"yes\\"\\nor \\\\ no" }}').directives[0].arguments == ('Say "yes"\nor \\ no',)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('a\nb {{ .Get "x"', "line 2, column 3: {{ .Get is cut off; end it with }}"),
        ('{{ .Get "x" {{ .Get "y" }}', "line 1, column 1: {{ .Get is cut off; end it with }}"),
        ("{{ .Get }}", "{{ .Get }} takes an agent and, if you like, its input; it has no arguments"),
        ('{{ .AskUser "a" "b" }}', "{{ .AskUser }} takes a question; it has 2 arguments"),
        ('{{ .Options "q" "a" }}', "takes a question and two or more options; it has 2 arguments"),
        ('{{ .Get "" }}', "{{ .Get }} takes an agent and, if you like, its input; the first argument is blank"),
        ('{{ .AskUser " " }}', "{{ .AskUser }} takes a question; the first argument is blank"),
        ("{{ .Get weather }}", "only texts in double quotes and directives in parentheses may follow .Get"),
        ("{{ .Input.city }}", "'{{ .Input.city }}' is not a directive"),
    ],
)
def test_a_wrong_directive_is_one_sentence_with_its_line_and_column(text: str, told: str):
    with pytest.raises(TemplateError) as caught:
        parse(text)
    assert told in str(caught.value)


@pytest.mark.parametrize("field", ["template", "prompt"])
def test_an_agent_with_a_wrong_directive_is_refused_with_its_name(field: str):
    with pytest.raises(RondelError, match=r"agent 'greeter', (template|prompt 'instructions'), line 1, column 7: "):
        Agent("greeter", **{field: 'Hello {{ .Get "x"'})


def test_an_agent_is_of_one_kind():
    """S01: the error names the agent."""
    with pytest.raises(RondelError, match=r"agent 'both' must be one of .*; it has prompt and template"):
        Agent("both", "Be brief.", template="Hello.")


def test_what_looks_like_a_directive_is_told_with_the_nearest_right_word():
    suspects = parse('{{ .Gett "x" }} {{ .askuser "y" }} {{ .Values }}').suspects
    assert [(s.word, s.hint) for s in suspects] == [
        ("Gett", "; did you mean 'Get'?"),
        ("askuser", "; did you mean 'AskUser'?"),
        ("Values", ""),
    ]


def test_a_text_that_nobody_checked_keeps_its_wrong_directives():
    text = 'a {{ .Get }} {{ .Get "x" b {{ .AskUser "q" }} {{ .Get "'
    assert [d.name for d in scan(text).directives] == ["AskUser"]
    assert scan(text).fill({}) == text


WRITTEN = ['{{ .Get "a b" "c\\"d\\\\" }}', '{{.AskUser "x"}}', '{{  .Options\t"a" "b" "c"  }}', "{{ .Input }}"]


@pytest.mark.parametrize("written", WRITTEN)
def test_every_beginning_of_a_directive_is_held_back(written: str):
    for length in range(1, len(written)):
        assert may_begin("ab " + written[:length]) == 3


@given(st.text(alphabet='{}. "\\GetAskUserInput\nx', max_size=60), st.integers(0, 60))
def test_what_is_settled_stays_settled_whatever_comes_next(text: str, cut: int):
    """A text that streams is shown as far as no directive can begin before: what comes later changes none of it."""
    settled = may_begin(text[:cut])
    assert all(d.end <= settled or d.start >= settled or d.end <= cut for d in scan(text).directives)


@given(st.text(alphabet='{}. "\\GetAskUser\nx', max_size=60))
def test_a_text_without_values_loses_nothing_but_escapes(text: str):
    template = scan(text)
    kept = "".join(char for place, char in enumerate(text) if place not in template.escapes)
    assert template.fill({}) == kept


@given(st.text(alphabet='{}. "\\GetAskUser\nx', max_size=60))
def test_escaped_text_has_no_directives_and_says_the_same(text: str):
    assert scan(escape(text)).directives == ()
    assert scan(escape(text)).fill({}) == scan(text).fill({}) or "\\" in text
