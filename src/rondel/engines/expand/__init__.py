"""Speaks an agent's own words: a directive in them is a call, and the transcript says how far a sentence has come.

A round of an agent whose words have directives answers with their calls; the loop carries them out, beside each other
and durably, as it does with any call. The next round finds the results and goes on with the sentence. So a template
needs no model, a prompt is filled in before its model is asked, and what a model or a function says goes on where a
directive interrupted it, without asking again. Knows no store and no surface.
"""

from .script import Script
from .speaking import Expanding

__all__ = ["Expanding", "Script"]
