"""`multipart/form-data` (RFC 7578): the fields and files of a form as bytes, and back. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

PARTS_MAX = 100
HEAD_BYTES_MAX = 8_192
_BOUNDARY = re.compile(r'boundary=(?:"([^"\r\n]{1,70})"|([^\s;"]{1,70}))', re.I)
_PARAMETER = re.compile(r'(?<![\w*])(name|filename)="((?:[^"\\\r\n]|\\.)*)"', re.I)


class FormPart(NamedTuple):
    """A field, or a file if it has a `filename`."""

    name: str
    data: bytes
    filename: str = ""
    mime: str = ""


def write_form(parts: Iterable[FormPart], boundary: str) -> bytes:
    """Return the body of a form. The boundary must not occur in the data: make it of random characters."""
    pieces: list[bytes] = []
    for part in parts:
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="{_quoted(part.name)}"'
        if part.filename:
            head += f'; filename="{_quoted(part.filename)}"'
        if part.mime:
            head += f"\r\nContent-Type: {part.mime}"
        pieces += (f"{head}\r\n\r\n".encode(), part.data, b"\r\n")
    return b"".join((*pieces, f"--{boundary}--\r\n".encode()))


def read_form(content_type: str, body: bytes) -> list[FormPart]:
    """Return the parts of a form's body. Raises ValueError with a sentence if it is not one."""
    found = _BOUNDARY.search(content_type)
    if not content_type.lower().startswith("multipart/form-data") or found is None:
        raise ValueError("the body is not a form; send multipart/form-data with a boundary")
    mark = b"--" + (found[1] or found[2]).encode("latin-1", "replace")
    # Each part begins with the boundary at the start of a line; a line break before it belongs to the boundary.
    pieces = (b"\r\n" + body).split(b"\r\n" + mark)
    if len(pieces) < 3 or not pieces[-1].startswith(b"--"):
        raise ValueError("the form is incomplete: its last boundary is missing")
    if len(pieces) - 2 > PARTS_MAX:
        raise ValueError(f"the form has more than {PARTS_MAX} fields")
    return [_part(piece) for piece in pieces[1:-1]]


def _part(piece: bytes) -> FormPart:
    head, blank, data = piece.partition(b"\r\n\r\n")
    if not blank or len(head) > HEAD_BYTES_MAX:
        raise ValueError("a field of the form has no head")
    lines = (line.partition(":") for line in head.decode("utf-8", "replace").split("\r\n"))
    headers = {name.strip().lower(): value.strip() for name, _, value in lines}
    given: list[tuple[str, str]] = _PARAMETER.findall(headers.get("content-disposition", ""))
    about = {name.lower(): re.sub(r"\\(.)", r"\1", value).replace("%22", '"') for name, value in given}
    if not about.get("name"):
        raise ValueError("a field of the form has no name")
    return FormPart(about["name"], data, about.get("filename", ""), headers.get("content-type", ""))


def _quoted(text: str) -> str:
    """Return a name as browsers write it: without anything that could end the line or the quotes."""
    return text.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
