"""The embedded embedding model: all-MiniLM-L6-v2 with int8 weights on onnxruntime, with no key and no server.

`wordpiece` splits texts into the model's tokens; `vocab.txt` is BERT's vocabulary (Apache-2.0), whose line numbers are
the tokens' ids. `model` loads the file and runs it.
"""

from .embedder import LocalEmbedder

__all__ = ["LocalEmbedder"]
