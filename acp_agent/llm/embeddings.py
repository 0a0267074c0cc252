"""Text embeddings from a provider's embeddings endpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any

import anyio
import msgspec

from acp_agent.config.model import ProviderOptions
from acp_agent.limits.decoding import read_json
from acp_agent.llm.choose import complete_base_url, is_loopback, key_headers, shown_url
from acp_agent.llm.provider_errors import error_from_object, error_from_status, network_error
from acp_agent.llm.transport.http_client import FAILURES, HttpClient

TIMEOUT = 20.0
"""Timeout in seconds; choosing tools is not worth a longer wait."""

MAX_CHARS = 8_000
"""Characters sent of each text."""

BATCH = 96

LONGEST_ANSWER = 64 * 1024 * 1024


class Embedder:
    """`POST /embeddings` in OpenAI's format, which local servers support, too."""

    def __init__(self, options: ProviderOptions) -> None:
        self._options = options
        self._model = options.embedding_model
        self._base_url = complete_base_url(options.base_url)

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Returns one vector for each text, in the same order. Raises only ProviderError."""
        vectors: list[list[float]] = []
        for start in range(0, len(texts), BATCH):
            vectors += await self._batch([text[:MAX_CHARS] or " " for text in texts[start : start + BATCH]])
        return vectors

    async def _batch(self, texts: list[str]) -> list[list[float]]:
        headers = {**self._options.headers, **key_headers(self._base_url, self._options.api_key)}
        url, question, query = self._base_url.partition("?")
        headers["Content-Type"] = "application/json"
        body = msgspec.json.encode({"model": self._model, "input": texts})
        try:
            with anyio.fail_after(TIMEOUT):
                status, answered, content = await self._post(f"{url}/embeddings{question}{query}", headers, body)
        except (*FAILURES, TimeoutError, ValueError) as error:
            words = str(error) or type(error).__name__
            raise network_error(self._options.name, shown_url(self._base_url), words) from error
        if status != 200:
            raise error_from_status(self._options.name, status, content, answered, model=self._model)
        try:
            return _vectors(read_json(content), len(texts))
        except (msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
            words = f"the embeddings are malformed: {error}"
            raise error_from_object(self._options.name, words, model=self._model) from error

    async def _post(self, url: str, headers: dict[str, str], body: bytes) -> tuple[int, Mapping[str, str], bytes]:
        proxied = not is_loopback(self._base_url)
        client = HttpClient(self._base_url, connect_timeout=TIMEOUT, idle_timeout=TIMEOUT, proxied=proxied)
        async with aclosing(client), aclosing(await client.send("POST", url, headers, body)) as response:
            return response.status, response.headers, await response.read(LONGEST_ANSWER)


def _vectors(body: Any, count: int) -> list[list[float]]:
    data = sorted(body["data"], key=lambda item: item.get("index", 0))
    vectors = [[float(number) for number in item["embedding"]] for item in data]
    if len(vectors) != count or not all(vectors):
        raise ValueError(f"{len(vectors)} vectors for {count} texts")
    return vectors
