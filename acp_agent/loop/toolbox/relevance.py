"""How relevant each of several texts is to a query: by embeddings if a server provides them, else by shared words."""

from __future__ import annotations

import logging
import math
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache

from acp_agent.errors import ProviderError

log = logging.getLogger(__name__)

Embed = Callable[[Sequence[str]], Awaitable[list[list[float]]]]

WORD = re.compile(r"[^\W_]+")
COMMON = frozenset(
    "a an and are as at be by can do for from has how i in into is it its me my not of on or please that the them then "
    "this to use using was what when where which will with you your".split()
)
MOST_VECTORS = 2_000
"""Texts whose vectors, or words, are cached."""
LONGEST_QUERY = 8_000
"""Characters of a prompt that are used."""


class Relevance:
    """Without embeddings, or if they fail, words are compared."""

    def __init__(self) -> None:
        self._embed: Embed | None = None
        self._vectors: dict[str, list[float]] = {}

    def use(self, embed: Embed | None) -> None:
        """`embed` makes vectors of texts from now on; `None`: words are compared."""
        if embed != self._embed:
            self._embed, self._vectors = embed, {}

    async def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """One number from 0 to 1 for each text."""
        query = query[:LONGEST_QUERY]
        if not texts or not query.strip():
            return [0.0] * len(texts)
        if self._embed is not None:
            try:
                return await self._by_vectors(self._embed, query, texts)
            except ProviderError as error:
                log.warning("comparing words instead, since embeddings failed: %s", error)
        return lexical_scores(query, texts)

    async def _by_vectors(self, embed: Embed, query: str, texts: Sequence[str]) -> list[float]:
        if len(self._vectors) > MOST_VECTORS:
            self._vectors = {}
        new = [text for text in dict.fromkeys(texts) if text not in self._vectors]
        vectors = await embed([query, *new])
        self._vectors.update(zip(new, vectors[1:], strict=True))
        return [max(0.0, _cosine(vectors[0], self._vectors[text])) for text in texts]


def lexical_scores(query: str, texts: Sequence[str]) -> list[float]:
    """Cosine similarity of shared words, rare ones weighted more (TF-IDF)."""
    documents = [_counted(text) for text in texts]
    asked = Counter(_words(query))
    frequency = Counter(word for document in documents for word in document)
    weight = {word: math.log(1 + len(documents) / count) for word, count in frequency.items()}

    def vector(words: Counter[str]) -> dict[str, float]:
        return {word: (1 + math.log(count)) * weight[word] for word, count in words.items() if word in weight}

    wanted = vector(asked)
    return [_sparse_cosine(wanted, vector(document)) for document in documents]


@lru_cache(MOST_VECTORS)
def _counted(text: str) -> Counter[str]:
    """Not to be changed: hundreds of tools of MCP servers have the same texts at every prompt."""
    return Counter(_words(text))


def _words(text: str) -> list[str]:
    found = (word.lower() for word in WORD.findall(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text)))
    return [_stem(word) for word in found if word not in COMMON]


def _stem(word: str) -> str:
    """Good enough to match `issues` with `issue`, `searching` with `search`."""
    for ending in ("ing", "ies", "es", "ed", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)] + ("y" if ending == "ies" else "")
    return word[:-1] if word.endswith("e") and len(word) > 4 else word


def _sparse_cosine(one: dict[str, float], other: dict[str, float]) -> float:
    shared = sum(value * other[word] for word, value in one.items() if word in other)
    norms = math.sqrt(sum(v * v for v in one.values())) * math.sqrt(sum(v * v for v in other.values()))
    return min(1.0, shared / norms) if norms else 0.0


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    norms = math.hypot(*one) * math.hypot(*other)
    return sum(a * b for a, b in zip(one, other, strict=True)) / norms if norms else 0.0
