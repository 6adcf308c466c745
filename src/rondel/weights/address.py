"""Content from an address: the rest of what is there, over as many connections as it takes.

Knows no weights and no hash.
"""

from __future__ import annotations

from typing import Any

from .part import CHUNK_BYTES, Part, PlaceFailed

ANSWER_TIMEOUT_S = 8.0
"""How long a place may take to answer at all: a machine without internet goes on to the next place soon."""
SILENCE_TIMEOUT_S = 30.0


def download(url: str, part: Part) -> None:
    """Append the rest of what is at this address. A connection that breaks is made again as long as bytes come."""
    from http.client import HTTPException
    from urllib.error import HTTPError

    while True:
        start = part.size
        try:
            total = _read_once(url, part)
        except HTTPError as error:
            error.close()
            if error.code == 416 and start:  # it has no more than what is here, so what is here is not its content
                part.restart()
                continue
            raise PlaceFailed(f"it answered {error.code} {error.reason}") from error
        except (OSError, HTTPException) as error:
            if part.size == start:
                raise PlaceFailed(str(getattr(error, "reason", error)) or repr(error), unreachable=True) from error
            continue
        if total is None or part.size >= total:
            return
        if part.size == start:
            raise PlaceFailed(f"it ended after {part.size} of {total} bytes", unreachable=True)


def _read_once(url: str, part: Part) -> int | None:
    """Read one answer to its end into the part; the size of the whole, where the answer says so."""
    with _open(url, part.size) as answer:
        if part.size and getattr(answer, "status", None) != 206:
            part.restart()
        left = answer.headers.get("Content-Length")
        total = part.size + int(left) if left and left.isdigit() else None
        if None not in (total, part.size_bytes) and total != part.size_bytes:
            raise PlaceFailed(f"it offers {total} bytes instead of {part.size_bytes}")
        while chunk := answer.read(CHUNK_BYTES):
            part.append(chunk)
        return total


def _open(url: str, start: int) -> Any:
    """Open an address, or fail after ANSWER_TIMEOUT_S, however many addresses its name has and however slow DNS is."""
    from queue import Empty, SimpleQueue
    from threading import Thread
    from urllib.request import Request, urlopen

    request = Request(url, headers={"User-Agent": "rondel", **({"Range": f"bytes={start}-"} if start else {})})
    answers = SimpleQueue[Any]()

    def ask() -> None:
        try:
            answers.put(urlopen(request, timeout=SILENCE_TIMEOUT_S))
        except Exception as error:
            answers.put(error)

    Thread(target=ask, daemon=True, name="rondel-weights").start()
    try:
        answer = answers.get(timeout=ANSWER_TIMEOUT_S)
    except Empty:
        raise TimeoutError(f"no answer in {ANSWER_TIMEOUT_S:g} s") from None
    if isinstance(answer, Exception):
        raise answer
    return answer
