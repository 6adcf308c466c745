"""Splits texts into the tokens of BERT's uncased vocabulary. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files

START, END, UNKNOWN = 101, 102, 100  # [CLS], [SEP] and [UNK]
WORD_CHARS_MAX = 100  # a longer word is unknown
CACHE_MAX = 50_000
_DROPPED = frozenset(("Mn", "Cc", "Cf", "Co", "Cs"))  # accents and control characters

_ASCII = re.compile(r"[a-z0-9]+|[!-/:-@\[-`{-~]")
_ASCII_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


@cache
def vocabulary() -> Mapping[str, int]:
    text = files("rondel.engines.local.minilm").joinpath("vocab.txt").read_text("utf-8")
    return {token: id for id, token in enumerate(text.split("\n")) if token}


class WordPiece:
    """Tokenizes texts, and caches words."""

    def __init__(self) -> None:
        self._ids = vocabulary()
        self._words: dict[str, tuple[int, ...]] = {}

    def tokens(self, text: str, tokens_max: int) -> list[int]:
        """Return the ids of a text's tokens between START and END, no more than `tokens_max` in all."""
        ids = [START]
        for word in _words(text):
            ids += self._word(word)
            if len(ids) >= tokens_max:
                break
        return [*ids[: tokens_max - 1], END]

    def _word(self, word: str) -> tuple[int, ...]:
        known = self._words.get(word)
        if known is None:
            known = self._split(word)
            if len(self._words) < CACHE_MAX:
                self._words[word] = known
        return known

    def _split(self, word: str) -> tuple[int, ...]:
        """Split a word, each time after its longest known beginning. A word that cannot be split completely is
        unknown."""
        if len(word) > WORD_CHARS_MAX:
            return (UNKNOWN,)
        ids: list[int] = []
        start = 0
        while start < len(word):
            prefix = "##" if start else ""
            for end in range(len(word), start, -1):
                if (id := self._ids.get(prefix + word[start:end])) is not None:
                    ids.append(id)
                    start = end
                    break
            else:
                return (UNKNOWN,)
        return tuple(ids)


def _words(text: str) -> Iterator[str]:
    """Yield words in lower case and without accents; each punctuation mark and Chinese character is a word."""
    if text.isascii():
        for found in _ASCII.finditer(_ASCII_CONTROLS.sub("", text).lower()):
            yield found[0]
        return
    word = ""
    for char in unicodedata.normalize("NFD", text).lower():
        category = unicodedata.category(char)
        if char.isspace() and (char in " \t\n\r" or category[0] == "Z"):
            if word:
                yield word
            word = ""
        elif category in _DROPPED or char == "\ufffd":
            continue
        elif category[0] == "P" or _is_symbol(char) or _is_chinese(ord(char)):
            if word:
                yield word
            word = ""
            yield char
        else:
            word += char
    if word:
        yield word


def _is_symbol(char: str) -> bool:
    return char.isascii() and not char.isalnum()


def _is_chinese(code: int) -> bool:
    return (
        0x4E00 <= code <= 0x9FFF
        or 0x3400 <= code <= 0x4DBF
        or 0xF900 <= code <= 0xFAFF
        or 0x20000 <= code <= 0x2CEAF
        or 0x2F800 <= code <= 0x2FA1F
    )
