"""The entry point: runs the command and turns its result or error into an exit code.

Imports nothing heavy before it is needed: `rondel --version` takes hardly longer than Python itself.
"""

from __future__ import annotations

import errno
import gc
import io
import os
import shlex
import sys
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Sequence

COMPLETE = "_RONDEL_COMPLETE"  # set by the shell code of `rondel completion`
DONE, FAILED, USAGE, NOT_TRUSTED, INTERRUPTED = 0, 1, 2, 77, 130
GARBAGE_MAX = 150_000
"""How many new objects start a garbage collection. Objects made during start-up stay alive, and scanning them again and
again takes a tenth of the start-up time."""


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments in (["--version"], ["-V"]):
        from .. import __version__

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
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]  # closed, as by `>&-`
        from ..errors import RondelError

        raise RondelError("stdout is closed; `> /dev/null` discards what is printed")
    from ..text.printable import guard_streams

    for stream in (sys.stdin, sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # bytes that are not text must not end the program
    guard_streams()
    _quiet_logs()
    code = _parse(arguments)
    sys.stdout.flush()
    return code


def _parse(arguments: list[str]) -> int:
    from click.exceptions import Exit

    from .program import program

    if instruction := os.environ.get(COMPLETE):
        return _complete(program, instruction)
    try:
        with program.make_context("rondel", arguments) as context:
            code: Any = program.invoke(context)
    except Exit as end:
        code = end.exit_code
    return code if isinstance(code, int) else DONE


def _complete(program: Any, instruction: str) -> int:
    """Answer the shell that completes a line. It shows what is printed, so errors print nothing."""
    from .completion import completer

    try:
        kind = completer(instruction.removesuffix("_complete"))
        if kind is None:
            return FAILED
        sys.stdout.write(kind(program, {}, "rondel", COMPLETE).complete() + "\n")
        return DONE
    except Exception:
        if os.environ.get("RONDEL_DEBUG"):
            raise
        return FAILED


def _explain(error: Exception) -> int:
    """Print one clear sentence on stderr, and with RONDEL_DEBUG=1 the traceback. Return the exit code."""
    from ..errors import ConfigError, NotTrusted, RondelError
    from ._output import installer_hint, path_hint, tell

    if os.environ.get("RONDEL_DEBUG"):
        import traceback

        traceback.print_exception(error)
    inner = _first(error)
    if isinstance(inner, (KeyboardInterrupt, BrokenPipeError)):
        return INTERRUPTED if isinstance(inner, KeyboardInterrupt) else DONE
    if (sentence := _usage_sentence(inner)) is not None:
        tell(f"rondel: {sentence}")
        return USAGE
    if isinstance(inner, RondelError):
        tell(f"rondel: {inner}")
        hints = path_hint() if "`rondel" in str(inner) and sys.stderr.isatty() else []
        for hint in (*hints, *installer_hint(str(inner))):
            tell(hint)
        return NOT_TRUSTED if isinstance(inner, NotTrusted) else USAGE if isinstance(inner, ConfigError) else FAILED
    if isinstance(inner, OSError) and inner.errno == errno.ENOSPC and inner.filename is None:
        _forget_stdout()
        tell(f"rondel: the output could not be written: {inner.strerror}")
        return FAILED
    tell(f"rondel: unexpected error: {type(inner).__name__}: {inner} (RONDEL_DEBUG=1 shows where)")
    return FAILED


def _first(error: BaseException) -> BaseException:
    """Return the first error inside the groups that tasks wrap around it."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def _usage_sentence(error: BaseException) -> str | None:
    """Return on one line what is wrong with the command line, or None for any other error."""
    parser = sys.modules.get("click.exceptions")  # if click was not loaded, it did not fail
    if parser is None or not isinstance(error, parser.ClickException):
        return None
    unknown: Any = error
    if isinstance(error, parser.NoSuchOption):
        from ..errors import nearest

        # Click compares names with their dashes, so that any short option seems near.
        known = unknown.possibilities or ()
        unknown.possibilities = [one for one in known if "did you mean" in nearest(unknown.option_name, (one,))]
    if isinstance(error, parser.BadParameter):
        unknown.message = _range_in_words(unknown)
    message = getattr(error, "format_message", lambda: str(error))()
    sentence = " ".join(str(message).split()).replace(". Did you mean", "; did you mean")
    sentence = sentence if sentence.endswith("...") else sentence.removesuffix(".")
    return f"{sentence[:1].lower()}{sentence[1:]}{_usage_hint(sentence, getattr(error, 'ctx', None))}"


def _range_in_words(error: Any) -> str:
    """Return what click says of a wrong value, with the numbers that an option takes."""
    kind = getattr(error.param, "type", None)
    if kind is None or "is not a valid integer range" not in error.message:
        return error.message
    numbers = f"a number from {kind.min} to {kind.max}" if kind.max is not None else f"a number, {kind.min} or more"
    return error.message.replace("a valid integer range", numbers)


def _usage_hint(sentence: str, context: Any) -> str:
    """Return what to do about it, unless the sentence already says so."""
    if "unexpected extra argument" in sentence:
        extra = sentence.partition("(")[2].removesuffix(")")
        takes_files = context is not None and any(one.name == "file" for one in context.command.params)
        if takes_files and os.path.isfile(extra):
            return f"; attach it with -f {shlex.quote(extra)}"
        return "; put text of several words in quotes"
    if sentence.endswith(("?", ")")):
        return ""
    if context is None or context.parent is None:
        return "; `rondel help` lists the commands"
    return f"; see `{context.command_path} --help`"


def _forget_stdout() -> None:
    """Keep the interpreter from complaining when it closes stdout, because the reader of stdout has gone."""
    import contextlib

    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _quiet_logs() -> None:
    """Hide the log: people get sentences instead. RONDEL_DEBUG=1 shows both."""
    import logging

    log = logging.getLogger("rondel")
    if os.environ.get("RONDEL_DEBUG"):
        logging.basicConfig(level=logging.DEBUG, format="%(name)s: %(message)s")
    else:
        log.addHandler(logging.NullHandler())
        log.propagate = False
        if logging.lastResort is not None:  # errors that happen when no turn is left to report them
            for name in ("rondel.telemetry", "rondel.store.charges", "rondel.web"):
                logging.getLogger(name).addHandler(logging.lastResort)
