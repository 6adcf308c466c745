"""Resolves the names that callers write for engines: `provider,model`, `provider/model`, `provider:model`, or a model.

Case does not matter. A caller's text never opens a file: of the embedded models, a caller can only name those in the
configuration. Knows the configuration and which providers have a key; calls no provider.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...contracts.endpoint import PROVIDERS
from ...errors import near_word, nearest
from ...project.settings import Config, EngineSettings


class Names:
    """What a caller may ask for: configured engines, providers with a key, and listed models."""

    def __init__(self, config: Config, env: Mapping[str, str]) -> None:
        self._engines = config.engines
        reachable = [
            name
            for name, provider in PROVIDERS.items()
            if provider.is_local or any(env.get(variable, "").strip() for variable in provider.key_variables)
        ]
        self.heads = {name.lower(): name for name in ("echo", *reachable, *config.engines)}
        self._listed: dict[str, list[str]] = {}
        for name, engine in config.engines.items():
            for model in dict.fromkeys((*engine.models, *((engine.model,) if engine.model else ()))):
                self._listed.setdefault(model.lower(), []).append(f"{name}:{model}")

    def find(self, text: str) -> tuple[str, str]:
        """Return the engine, or what is wrong with a text that names one; both are empty for an unknown model."""
        text = text.strip()
        if head := self.heads.get(text.lower()):
            return head, ""
        if "," in text:
            head, _, model = text.partition(",")
            return self._of(head, model, text)
        if found := self._listed.get(text.lower()):
            if len(found) == 1:
                return found[0], ""
            return "", f"several engines have it; write {' or '.join(found)}"
        for mark in ":/":
            head, marked, model = text.partition(mark)
            if marked and head.strip().lower() in self.heads:
                return self._of(head, model, text)
        # Many models have a colon or a slash in their own names, so an unknown head is an error only if it is a typo.
        head, marked, _ = text.replace("/", ":").partition(":")
        near = near_word(head.lower(), self.heads) if marked else ""
        return "", f"there is no engine {head!r}; did you mean {near!r}?" if near else ""

    def _of(self, head: str, model: str, text: str) -> tuple[str, str]:
        head, model = head.strip(), model.strip()
        name = self.heads.get(head.lower())
        if name is None:
            return "", f"there is no engine {head!r}{nearest(head.lower(), tuple(self.heads))}"
        if not model:
            return "", f"{text!r} names no model"
        settings = self._engines.get(name, EngineSettings())
        listed = {listed.lower(): listed for listed in (settings.model, *settings.models) if listed}
        is_embedded = (settings.provider or name) == "local" and not settings.base_url
        if (settings.models or is_embedded) and model.lower() not in listed:
            return "", f"the engine {name!r} has no model {model!r}{nearest(model, tuple(listed.values()))}"
        return f"{name}:{listed.get(model.lower(), model)}", ""

    def unknown(self, text: str) -> str:
        return f"there is no engine {text!r}{nearest(text.lower(), tuple(self.heads))}"
