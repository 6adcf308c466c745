"""The command line: which command was given, and how its end becomes an exit code. What commands do is in commands/.

Nothing heavy is imported before it is needed: `rondel --version` costs hardly more than Python itself.
"""

from __future__ import annotations

import gc
import io
import os
import sys
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Sequence

DONE, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130
GARBAGE_MAX = 150_000
"""So many new objects before somebody looks for garbage among them: what a program makes until it has started stays for
good, and to look at it again and again takes a tenth of the start."""


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments in (["--version"], ["-V"]):
        from . import __version__

        sys.stdout.write(f"rondel {__version__}\n")
        return DONE
    try:
        return _dispatch(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _forget_stdout()
        return DONE
    except Exception as error:
        return _explain(error)


def _dispatch(arguments: list[str]) -> int:
    gc.set_threshold(GARBAGE_MAX)
    _quiet_logs()
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a byte that is no text is no reason to end
    code = _parse(arguments)
    sys.stdout.flush()
    return code


def _parse(arguments: list[str]) -> int:
    from click.exceptions import Exit

    from .commands.program import program

    try:
        with program.make_context("rondel", arguments) as context:
            code: Any = program.invoke(context)
    except Exit as end:
        code = end.exit_code
    return code if isinstance(code, int) else DONE


def _explain(error: Exception) -> int:
    """One clear sentence on stderr; with RONDEL_DEBUG=1, all of the traceback."""
    from .errors import ConfigError, RondelError

    if os.environ.get("RONDEL_DEBUG"):
        import traceback

        traceback.print_exception(error)
    inner = _first(error)
    if isinstance(inner, (KeyboardInterrupt, BrokenPipeError)):
        return INTERRUPTED if isinstance(inner, KeyboardInterrupt) else DONE
    if (sentence := _usage_sentence(inner)) is not None:
        sys.stderr.write(f"rondel: {sentence}\n")
        return USAGE
    if isinstance(inner, RondelError):
        sys.stderr.write(f"rondel: {inner}\n")
        return USAGE if isinstance(inner, ConfigError) else FAILED
    sys.stderr.write(
        f"rondel: something unexpected happened: {type(inner).__name__}: {inner} (RONDEL_DEBUG=1 shows where)\n"
    )
    return FAILED


def _first(error: BaseException) -> BaseException:
    """The error itself, taken out of the groups that tasks wrap around it."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def _usage_sentence(error: BaseException) -> str | None:
    """What is wrong with the command line itself, on one line."""
    parser = sys.modules.get("click.exceptions")  # who did not load it has not failed in it
    if parser is None or not isinstance(error, parser.ClickException):
        return None
    message = getattr(error, "format_message", lambda: str(error))()
    sentence = " ".join(str(message).split())
    sentence = sentence if sentence.endswith("...") else sentence.removesuffix(".")
    return f"{sentence[:1].lower()}{sentence[1:]}{_usage_hint(sentence, getattr(error, 'ctx', None))}"


def _usage_hint(sentence: str, context: Any) -> str:
    """What to do about it, where the sentence does not say so itself."""
    if "unexpected extra argument" in sentence:
        return "; a text of several words stands in quotes"
    if sentence.endswith(("?", ")")):
        return ""
    if context is None or context.parent is None:
        return "; `rondel help` lists the commands"
    return f"; `{context.command_path} --help` says what it takes"


def _forget_stdout() -> None:
    """Nobody reads any more: the interpreter must not complain when it closes stdout."""
    import contextlib

    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _quiet_logs() -> None:
    """What the log says is for programs; people get sentences. RONDEL_DEBUG=1 shows both."""
    import logging

    log = logging.getLogger("rondel")
    if os.environ.get("RONDEL_DEBUG"):
        logging.basicConfig(level=logging.DEBUG, format="%(name)s: %(message)s")
    else:
        log.addHandler(logging.NullHandler())
        log.propagate = False
        if logging.lastResort is not None:  # for what is found out when no turn is left to say it in
            logging.getLogger("rondel.telemetry").addHandler(logging.lastResort)
