"""The embedded engine: llama.cpp in this process, with no key and no server.

`engine` asks, `question` makes a request of a prompt (`words`: what the model reads; `schema`: what it may write),
`request` takes it to the model's thread and brings the chunks back, `answer` makes deltas of them. `model` is a loaded
model and its thread, `llama` the library. Knows no network; `weights` knows where a model's file comes from.
"""

from .engine import LocalEngine

__all__ = ["LocalEngine"]
