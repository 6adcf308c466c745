"""What programs ask of every model, and what is asked of one that is known not to have it."""

from __future__ import annotations

import pytest

from rondel.contracts.endpoint import facts_of
from rondel.contracts.fitting import fitted
from rondel.prompt import Prompt
from rondel.values import ModelFacts, Options, user

EAGER = Options(tokens_max=64_000, thinking="high", temperature=0.5)


def fit(facts: ModelFacts, options: Options = EAGER) -> Options:
    return fitted(Prompt.of(user("Hi"), options=options), facts, "openai-chat").options


def test_a_model_that_is_known_to_have_less_is_asked_for_less() -> None:
    assert fit(facts_of("openai", "gpt-4o-mini")) == Options(tokens_max=16_384, temperature=0.5)


@pytest.mark.parametrize("facts", [ModelFacts(), facts_of("openai", "gpt-5.4"), facts_of("mine", "qwen-coder")])
def test_a_model_that_has_it_or_that_nothing_is_known_of_is_asked_for_all(facts: ModelFacts) -> None:
    prompt = Prompt.of(user("Hi"), options=EAGER)
    assert fitted(prompt, facts, "openai-chat") is prompt


def test_thinking_leaves_room_for_the_answer() -> None:
    facts = ModelFacts(output_tokens_max=8_000, thinking=True)
    assert fit(facts, Options(tokens_max=64_000, thinking_tokens_max=32_000)).thinking_tokens_max == 4_000
    assert fit(facts, Options(tokens_max=64_000, thinking_tokens_max=2_000)).thinking_tokens_max == 2_000


def test_who_asks_for_little_or_says_nothing_is_left_alone() -> None:
    facts = ModelFacts(output_tokens_max=8_000, thinking=False)
    for options in (Options(), Options(tokens_max=8_000), Options(tokens_max=1)):
        assert fit(facts, options) is options


def test_a_foreign_program_that_wants_no_thinking_does_not_tell_a_model_so_that_may_not_know_the_word() -> None:
    """An author's word goes on as it is, and so does one in the model's own dialect."""
    off = Options(thinking="off")
    foreign = Prompt.of(user("Hi"), options=off).replace(model="claude", opaque={"anthropic": {"x": 1}})
    assert fitted(foreign, ModelFacts(), "openai-chat").options == Options()
    assert fitted(foreign, ModelFacts(thinking=True), "openai-chat") is foreign
    assert fitted(foreign, ModelFacts(), "anthropic") is foreign
    assert fit(ModelFacts(), off) is off
