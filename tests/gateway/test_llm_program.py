"""The real `llm` program: tools of its own, an image, an answer in one piece, and what it says when that fails."""

from __future__ import annotations

import base64
import sys
from pathlib import Path

import pytest

from .asked import asked
from .callers import PNG
from .programs import Ended, Programs, streams
from .served import SHORT, Served
from .speech import Call, Spent, calls, error, says, whole
from .upstream import Upstream

MODELS = """
- model_id: work
  model_name: {model}
  api_base: {url}/v1
  supports_tools: true
  vision: true
"""
ADD = "def add(a: int, b: int) -> int:\n    return a + b\n"


class Llm(Programs):
    """`llm` with one model of its own, which is asked through the gateway."""

    def __init__(self, folder: Path, base_url: str, model: str) -> None:
        super().__init__(folder, base_url)
        self.env["LLM_USER_PATH"] = str(folder)
        (folder / "extra-openai-models.yaml").write_text(MODELS.format(model=model, url=base_url))

    def ask(self, *arguments: str | Path, well: bool = True) -> Ended:
        return self.run(sys.executable, "-m", "llm", "-m", "work", *arguments, well=well)


@pytest.mark.slow
@pytest.mark.parametrize("dialect", ["anthropic", "openai-chat"])
def test_it_asks_and_its_own_tools_run(dialect: str, upstream: Upstream, served: Served, tmp_path: Path) -> None:
    both = calls(Call("c1", "add", {"a": 2, "b": 3}), Call("c2", "add", {"a": 20, "b": 30}), interleaved=True)
    name = upstream.plays(*streams(dialect, both, says("Five and fifty.")))
    llm = Llm(tmp_path, served.base_url, f"{SHORT[dialect]}:{name}")
    told = llm.ask("--functions", ADD, "--td", "How much?")
    assert told.out == "Five and fifty.\n"
    assert told.err.count("Tool call: add(") == 2
    first, second = (asked(dialect, visit.body) for visit in upstream.visits(name, 2))
    assert (first.texts, first.tools) == (("How much?",), ("add",))
    assert second.results == (("c1", "5"), ("c2", "50"))


@pytest.mark.slow
def test_it_sends_an_image_and_gets_an_answer_in_one_piece(upstream: Upstream, served: Served, tmp_path: Path) -> None:
    name = upstream.plays(whole("anthropic", says("A pixel.", spent=Spent(fresh=7, out=3))))
    llm = Llm(tmp_path, served.base_url, f"a:{name}")
    image = tmp_path / "pixel.png"
    image.write_bytes(base64.b64decode(PNG))
    told = llm.ask("--no-stream", "--usage", "What is it?", "-a", image)
    assert told.out == "A pixel.\n"
    assert "7 input, 3 output" in told.err
    seen = asked("anthropic", upstream.visit(name).body)
    assert (seen.texts, seen.images) == (("What is it?",), (PNG,))


@pytest.mark.slow
def test_it_tells_what_went_wrong_in_the_providers_words(upstream: Upstream, served: Served, tmp_path: Path) -> None:
    name = upstream.plays(error("anthropic", 400, "invalid_request_error", "It is too long."))
    told = Llm(tmp_path, served.base_url, f"a:{name}").ask("Hi", well=False)
    assert told.err.startswith("Error: Error code: 400 - ")
    assert "It is too long;" in told.err
