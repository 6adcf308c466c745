"""Answers with an agent's own text: a directive in it is a call, and the transcript shows how much of the text was
sent.

If the text has directives, a round answers with their calls, which the loop runs like any call. The next round finds
the results and continues the sentence, without another call of the model.
"""

from .engine import TemplateEngine
from .script import Script

__all__ = ["Script", "TemplateEngine"]
