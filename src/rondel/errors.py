"""What can go wrong, as one tree.

    RondelError
    ├── ConfigError            a file that a person wrote is wrong: which, on which line, and the nearest right word
    │   └── NotTrusted             code of a project that the user has not trusted would have to run
    ├── EngineError            a model could not be asked, or answered nonsense
    │   ├── EngineUnreachable      no connection, or it broke
    │   ├── EngineTimeout          connected, but silent for too long
    │   ├── EngineDenied           401, 402, 403: a missing or wrong key, or an account without permission
    │   ├── EngineOverloaded       429, 5xx: no capacity, or a fault of its own; try later (retry_after_s when it
    │   │                          said so)
    │   ├── PromptRejected         4xx: this prompt will never be accepted
    │   ├── EngineGarbled          an answer that is not what its protocol says
    │   └── ReplyTooLong           an answer that did not end within a limit. Also a LimitReached: it ends the turn
    ├── ToolError              raised by a tool to tell the model what it could do better
    ├── AgentFailed            an agent that works for another one failed: its turn cannot continue
    │   └── InputError             what it was given is not what it takes: which inputs are missing or wrong
    ├── TurnFailed             a turn failed, or a limit ended it; it has the result
    ├── PluginError            a plugin broke its contract, with its name and the hook
    ├── LimitReached           a limit with a name was reached
    │   └── TokenLimitError        of the ledger: so many tokens, or so much money. Also an EngineOverloaded: a gateway
    │                              answers 429, and says when to come back
    ├── QuestionError          an answer to a question that is closed, expired, unknown or somebody else's
    └── StoreError             the journal could not be read or written
        ├── StoreConflict          another worker appended first: this one is fenced
        ├── StoreBusy              another process holds the file
        ├── StoreDamaged           the file is not a healthy database
        ├── StoreTooNew            written by a newer Rondel
        └── StoreFull              no space left

Each message says what happened, with the value, and what to do. Knows nothing of how errors are shown.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .values import AgentResult

NEAR, VERY_NEAR = 0.6, 0.85
"""How alike two words must be, from 0 to 1, for one to be suggested for the other: with the same first letter, and
without."""


class RondelError(Exception):
    """The base of all errors that Rondel raises on purpose."""


class ConfigError(RondelError):
    """A file or a setting is wrong. `path` and `line` say where, if that is known."""

    def __init__(self, message: str, *, path: str = "", line: int | None = None) -> None:
        self.path, self.line = path, line
        where = f"{path}:{line}: " if path and line else f"{path}: " if path else ""
        super().__init__(where + message)


class NotTrusted(ConfigError):
    """A project's code would have to run, or data be sent to an address that the project names, but its folder is not
    trusted."""


class EngineError(RondelError):
    """A model could not be asked. `retryable` says whether the same request may work later."""

    retryable = False
    status = 0
    """The HTTP status of the provider's answer, if there was one."""
    body = b""
    """That answer, unchanged, for callers of the same dialect: a JSON object, or empty if it was anything else or does
    not concern them, such as the refusal of a key that is not theirs."""
    may_have_spent = False
    """The request may have reached the model before this happened, so the provider may charge for it."""
    lost: tuple[str, ...] = ()
    """The engines of earlier attempts that failed after they may have reached a model, one name per attempt."""

    def __init__(
        self, message: str, *, provider: str = "", model: str = "", code: str = "", retry_after_s: float | None = None
    ) -> None:
        self.provider, self.model, self.code, self.retry_after_s = provider, model, code, retry_after_s
        super().__init__(message)

    def attempts_of(self, engine: str) -> tuple[str, ...]:
        """Return the engines of all attempts that may have spent something. `engine` made this one."""
        return (*self.lost, engine) if self.may_have_spent else self.lost


class EngineUnreachable(EngineError):
    """There is no connection to the provider, or it broke."""

    retryable = True


class EngineTimeout(EngineError):
    """The provider was silent for too long."""

    retryable = True
    may_have_spent = True


class EngineDenied(EngineError):
    """The provider refused the key, or the account may not use this model."""


class EngineOverloaded(EngineError):
    """The provider has no capacity, or a fault of its own; try again later."""

    retryable = True


class PromptRejected(EngineError):
    """The provider will never accept this prompt."""


class EngineGarbled(EngineError):
    """The provider's answer does not follow its protocol."""

    retryable = True
    may_have_spent = True


class ToolError(RondelError):
    """Raise this in a tool: its message goes to the model as an error result."""


class AgentFailed(RondelError):
    """A hard failure: raised in a tool, it stops the handling of all calls at once and names the agent."""

    def __init__(self, agent: str, message: str) -> None:
        self.agent = agent
        super().__init__(f"agent {agent!r} failed: {message}")


class InputError(AgentFailed):
    """An agent cannot run with the given inputs. Its message is the whole sentence."""

    def __init__(self, agent: str, message: str) -> None:
        self.agent = agent
        RondelError.__init__(self, message)


class TurnFailed(RondelError):
    """A turn has no answer: it failed, or a limit ended it. `result` says more; the error behind it is the cause."""

    def __init__(self, message: str, result: AgentResult) -> None:
        self.result = result
        super().__init__(message)


class PluginError(RondelError):
    """A required plugin raised. `plugin` and `hook` say which and where."""

    def __init__(self, plugin: str, hook: str, message: str) -> None:
        self.plugin, self.hook = plugin, hook
        super().__init__(f"plugin {plugin!r}, {hook}: {message}")


class LimitReached(RondelError):
    """A limit was reached. `name` is its setting, such as `limits.rounds`."""

    def __init__(self, name: str, message: str) -> None:
        self.name = name
        super().__init__(message)


class TokenLimitError(LimitReached, EngineOverloaded):
    """A limit of the ledger. `window` is `day`, `week`, `month` or `lifetime`, `window_key` is which one, `rule` is the
    limit that was reached, `kind` what the call was for; the message is a sentence for people."""

    retryable = False
    status = 429

    def __init__(
        self,
        message: str,
        *,
        model: str = "",
        window: str = "",
        window_key: str = "",
        kind: str = "",
        rule: object = None,
        retry_after_s: float | None = None,
    ) -> None:
        EngineError.__init__(self, message, model=model, code="token_limit_reached", retry_after_s=retry_after_s)
        self.name = "ledger.limits"
        self.window, self.window_key, self.kind, self.rule = window, window_key, kind, rule


class ReplyTooLong(LimitReached, EngineError):
    """An answer did not end within a limit. `name` is its setting; the text so far counts."""

    may_have_spent = True

    def __init__(self, name: str, message: str) -> None:
        EngineError.__init__(self, message, code="reply_too_long")
        self.name = name


class QuestionError(RondelError):
    """The question is closed, expired, unknown, or for someone else."""


class StoreError(RondelError):
    """The journal could not be read or written."""


class StoreConflict(StoreError):
    """Another process appended first, so nothing was written."""


class StoreBusy(StoreError):
    """Another process holds the file."""


class StoreDamaged(StoreError):
    """The file is not a healthy database."""


class StoreTooNew(StoreError):
    """A newer Rondel wrote the file."""


class StoreFull(StoreError):
    """There is no space left."""


def install_extra(name: str) -> str:
    """Return how to install an extra of this installation. An editable one stays editable."""
    return f"pip install {'-e ' if _is_editable() else ''}'.[{name}]' in a checkout"


def _is_editable() -> bool:
    import json
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        origin = json.loads(distribution("rondel").read_text("direct_url.json") or "{}")
        return origin.get("dir_info", {}).get("editable", False) is True
    except (PackageNotFoundError, OSError, ValueError, AttributeError):
        return False


def near_word(word: str, known: Iterable[str], cutoff: float = NEAR) -> str:
    """Return the known word that was probably meant; empty if none is similar enough."""
    from difflib import get_close_matches

    bare = {name.lstrip("/-"): name for name in known}  # a common prefix would make all words look similar
    typed = word.lstrip("/-")
    alike = [name for name in bare if name[:1].casefold() == typed[:1].casefold()]  # the first letter is rarely wrong
    swapped = [name for name in alike if sorted(name) == sorted(typed)]  # short words have a low ratio then
    close = (
        swapped
        or get_close_matches(typed, alike, n=1, cutoff=cutoff)
        or get_close_matches(typed, bare, n=1, cutoff=VERY_NEAR)
    )
    return bare[close[0]] if close else ""


def nearest(word: str, known: list[str] | tuple[str, ...]) -> str:
    """Return `; did you mean 'x'?` for the nearest known word, or a list of what is known, or nothing."""
    if near := near_word(word, known):
        return f"; did you mean {near!r}?"
    return f"; available: {', '.join(sorted(set(known)))}" if known else ""


def cut(value: object) -> str:
    """Return a value for an error message, shortened."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
