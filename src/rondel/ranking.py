"""Words, and which of many texts fit them best: Okapi BM25. Pure; knows no file, no store and no model."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from heapq import nlargest
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")

_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]+|[^\W_]+")
_SPACELESS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]")


def words_of(text: str) -> list[str]:
    """The words of a text, whatever their case. English plurals are cut (Harman's S stemmer); scripts without spaces
    give every pair of neighbouring characters."""
    words: list[str] = []
    for run in _WORD.findall(unicodedata.normalize("NFKC", text).casefold()):
        if not _SPACELESS.match(run):
            words.append(_singular(run))
        elif len(run) == 1:
            words.append(run)
        else:
            words += (run[at : at + 2] for at in range(len(run) - 1))
    return words


def _singular(word: str) -> str:
    if len(word) < 4 or not word.endswith("s"):
        return word
    if word.endswith("ies"):
        return word if word.endswith(("eies", "aies")) else word[:-3] + "y"
    if word.endswith("es"):
        return word if word.endswith(("aes", "ees", "oes")) else word[:-1]
    return word if word.endswith(("us", "ss")) else word[:-1]


class Counted(msgspec.Struct, Generic[T], frozen=True, gc=False):
    """Something with how often each word stands in its text, and how many words those are."""

    item: T
    counts: dict[str, int]
    words: int


def counted(item: T, text: str) -> Counted[T]:
    """Something with the words of its text."""
    words = words_of(text)
    return Counted(item, dict(Counter(words)), len(words))


class Ranking(Generic[T]):
    """BM25 with the usual constants. Frozen once it is made: searches may go on in it while a new one is made."""

    K1, B = 1.2, 0.75

    def __init__(self, pieces: Iterable[Counted[T]]) -> None:
        self._pieces = tuple(pieces)
        self._mean_words = sum(piece.words for piece in self._pieces) / max(1, len(self._pieces))
        self._holders: dict[str, list[int]] = {}
        for number, piece in enumerate(self._pieces):
            for word in piece.counts:
                self._holders.setdefault(word, []).append(number)

    def best(self, words: Iterable[str], limit: int) -> list[tuple[T, float]]:
        """Those that hold some of the words, the best first, each with its score."""
        scores: dict[int, float] = {}
        for word in dict.fromkeys(words):  # in their order: sums of the same numbers are the same
            holders = self._holders.get(word, ())
            rarity = math.log(1 + (len(self._pieces) - len(holders) + 0.5) / (len(holders) + 0.5))
            for number in holders:
                piece = self._pieces[number]
                count, share = piece.counts[word], piece.words / self._mean_words
                weight = count * (self.K1 + 1) / (count + self.K1 * (1 - self.B + self.B * share))
                scores[number] = scores.get(number, 0.0) + rarity * weight
        best = nlargest(limit, scores.items(), key=lambda item: (item[1], -item[0]))
        return [(self._pieces[number].item, score) for number, score in best]
