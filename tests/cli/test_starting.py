"""How a gateway starts: what it loads, and what it does not do on the way."""

from __future__ import annotations

import re

from tests.cli.conftest import Place
from tests.cli.model_server import ModelServer
from tests.cli.serving import Serving

HEAVY = {
    "pydantic": "some vendors' types",
    "rich": "draws",
    "prompt_toolkit": "reads lines in a terminal",
    "markdown_it": "shows Markdown",
    "yaml": "reads agents, and there are none",
    "genai_prices": "knows prices, and nobody has asked for any",
    "opentelemetry": "sends spans, and nothing is set up for them",
    "xllamacpp": "runs embedded models",
    "aiohttp": "another HTTP client",
    "uvicorn": "another HTTP server",
    "urllib.request": "finds proxies, and nobody is asked through one",
    "http.client": "another HTTP client",
    "email.utils": "reads dates of servers that want to be left alone",
    "multiprocessing": "starts processes",
    "shutil": "copies files",
    "difflib": "finds the nearest word for one that is wrong",
    "rondel.trace": "draws what happened",
    "rondel.weights.fetch": "fetches embedded models",
    "rondel.dialects.openai_responses": "nobody speaks it here",
}


def loaded(serving: Serving) -> set[str]:
    """All that a process has imported so far, as the interpreter itself says it."""
    return set(re.findall(r"^import time:.*\| +([\w.]+)$", "".join(serving.err), re.MULTILINE))


def test_a_gateway_has_loaded_nothing_that_its_first_answer_does_not_need(place: Place, server: ModelServer):
    place.uses(server)
    server.says("Hello.")
    with Serving(place, "serve", "--port", "0", PYTHONPROFILEIMPORTTIME="1") as serving:
        assert serving.ask("Hello?").end() == 200
        modules = loaded(serving)
    assert "rondel.gateway.server" in modules
    assert {name: why for name, why in HEAVY.items() if name in modules} == {}


WATCH = """
import gc, sys
gc.callbacks.append(lambda *_: "rondel.cli" in sys.modules and print("looks for garbage", flush=True))
"""


def test_nobody_looks_for_garbage_while_a_gateway_starts(place: Place, server: ModelServer):
    place.uses(server)
    place.write("watching/sitecustomize.py", WATCH)
    with Serving(place, "serve", "--port", "0", PYTHONPATH=str(place.project / "watching")) as serving:
        assert serving.port
        assert serving.out == []
