"""Ranks texts by words with Okapi BM25, and merges rankings. Pure."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from heapq import nlargest
from typing import Generic, TypeVar

import msgspec

T = TypeVar("T")
K = TypeVar("K", int, str)

RANK_OFFSET = 5  # of reciprocal rank fusion: how little the first ranks differ; small, because few results are wanted
WORDS_WEIGHT = 2.0  # how much more a rank by words counts than one by meaning; bench/knowledge.py compares values
NEAR_MIN = 0.1  # texts with a smaller cosine are unrelated, whatever the model


def fused(words: Sequence[K], near: Sequence[K], *, words_weight: float = WORDS_WEIGHT) -> list[tuple[K, float]]:
    """Merge rankings by reciprocal rank: items that both of them found come first, whatever their scores mean."""
    scores: dict[K, float] = {}
    for ranking, weight in ((words, words_weight), (near, 1.0)):
        for rank, item in enumerate(ranking, 1):
            scores[item] = scores.get(item, 0.0) + weight / (RANK_OFFSET + rank)
    return sorted(scores.items(), key=lambda found: (-found[1], found[0]))


_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]+|[^\W_]+")
_SPACELESS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]")


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case. English plurals become singular (Harman's S stemmer); scripts without
    spaces give every pair of neighbouring characters."""
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
    """An item with the number of times that each word occurs in its text, and the total."""

    item: T
    counts: dict[str, int]
    words: int


def counted(item: T, text: str) -> Counted[T]:
    words = words_of(text)
    return Counted(item, dict(Counter(words)), len(words))


class Ranking(Generic[T]):
    """BM25 with the usual constants. Immutable, so that searches can use it while a new one is built."""

    K1, B = 1.2, 0.75

    def __init__(self, pieces: Iterable[Counted[T]]) -> None:
        self._pieces = tuple(pieces)
        self._mean_words = sum(piece.words for piece in self._pieces) / max(1, len(self._pieces))
        self._holders: dict[str, list[int]] = {}
        for number, piece in enumerate(self._pieces):
            for word in piece.counts:
                self._holders.setdefault(word, []).append(number)

    def best(self, words: Iterable[str], limit: int) -> list[tuple[T, float]]:
        """Return the items that contain any of the words, best first, with their scores."""
        scores: dict[int, float] = {}
        for word in dict.fromkeys(words):  # a fixed order, so that sums of floats are reproducible
            holders = self._holders.get(word, ())
            rarity = math.log(1 + (len(self._pieces) - len(holders) + 0.5) / (len(holders) + 0.5))
            for number in holders:
                piece = self._pieces[number]
                count, share = piece.counts[word], piece.words / self._mean_words
                weight = count * (self.K1 + 1) / (count + self.K1 * (1 - self.B + self.B * share))
                scores[number] = scores.get(number, 0.0) + rarity * weight
        best = nlargest(limit, scores.items(), key=lambda item: (item[1], -item[0]))
        return [(self._pieces[number].item, score) for number, score in best]
