"""What a prompt asks of a model that is known not to have it, brought down to what it has.

Programs ask every model for what their own has: more tokens than it can write, and thinking. A server refuses the whole
request for that. Of a model of which nothing is known, nothing is left out but a foreign program's wish that it should
not think: its own model can be told so, and many servers refuse the very word. Knows no wire format.
"""

from __future__ import annotations

import msgspec

from ...prompt import Prompt
from ...values import ModelFacts, Options


def fitted(prompt: Prompt, facts: ModelFacts, dialect: str) -> Prompt:
    """`dialect` is the model's: what was said in it is what its server expects."""
    options, most = prompt.options, facts.output_tokens_max
    thinks = facts.thinking
    if thinks is None and options.thinking == "off" and prompt.model and dialect not in prompt.opaque:
        thinks = False
    if thinks is False and (options.thinking or options.thinking_tokens_max):
        options = msgspec.structs.replace(options, thinking=None, thinking_tokens_max=None)
    if most is not None and options.tokens_max is not None and options.tokens_max > most:
        options = _capped(options, most)
    return prompt if options is prompt.options else prompt.replace(options=options)


def _capped(options: Options, most: int) -> Options:
    """Thinking is a part of the answer, and has at most half of what is left."""
    budget = options.thinking_tokens_max
    if budget is not None and budget >= most:
        budget = most // 2
    return msgspec.structs.replace(options, tokens_max=most, thinking_tokens_max=budget)
