"""The embedded engine: llama.cpp on this machine, with no key and no server.

`engine` asks. `model_input` makes a request from a prompt: `words` is what the model reads, `examples` the turns that
show it how, `steps` what it may do next, `schema` what it may write. `request` takes it to the model's thread and
brings the chunks back, or `background` takes it to the process that keeps the model loaded (`resident`, in `frames`);
`answer` turns the chunks into deltas. `model` is a loaded model and its thread, `prefix` its state on disk, `llama` the
library. Knows no network; `weights` knows where a model's file comes from.
"""

from .engine import LocalEngine

__all__ = ["LocalEngine"]
