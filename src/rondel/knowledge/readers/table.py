"""CSV and TSV: each row with the names of its columns, so that it can be understood on its own."""

from __future__ import annotations

import csv
from io import StringIO

from ...contracts.knowledge import Document, Section, Unreadable
from ._decode import decoded

CELL_CHARS_MAX = 20_000
ROWS_MAX = 500_000


def read(data: bytes, name: str) -> Document:
    text = decoded(data)
    delimiter = "\t" if name.lower().endswith(".tsv") else _delimiter(text)
    reader = csv.reader(StringIO(text, newline=""), delimiter=delimiter)
    sections: list[Section] = []
    try:
        columns = [column.strip() for column in next(reader, list[str]())]
        line = reader.line_num + 1
        for row in reader:
            if any(cell.strip() for cell in row):
                sections.append(Section(_row(columns, row), line=line))
            if len(sections) > ROWS_MAX:
                raise Unreadable(f"has more than {ROWS_MAX:,} rows")
            line = reader.line_num + 1
    except csv.Error as error:
        raise Unreadable(f"is not a table: {error} (line {reader.line_num})") from error
    if not sections and any(columns):
        sections.append(Section(", ".join(columns), line=1))
    return Document("", tuple(sections))


def _delimiter(text: str) -> str:
    """Return the delimiter of the columns: the most frequent of the usual characters in the first line."""
    first = text[:10_000].partition("\n")[0]
    return max(",;\t|", key=first.count)


def _row(columns: list[str], row: list[str]) -> str:
    cells: list[str] = []
    for index, cell in enumerate(row):
        if value := " ".join(cell.split())[:CELL_CHARS_MAX]:
            column = columns[index] if index < len(columns) else ""
            cells.append(f"{column}: {value}" if column else value)
    return "; ".join(cells)
