"""Reads the answer to `GET /models`, in the formats servers use."""

from __future__ import annotations

from typing import Any

from acp_agent.llm.base import ModelInfo
from acp_agent.llm.provider_errors import ErrorInAnswer

_WINDOW_NAMES = ("max_model_len", "context_length", "context_window", "max_context_length", "n_ctx", "n_ctx_train")
"""vLLM; OpenRouter, Together; Groq; LM Studio; llama.cpp, the last two in `meta`."""


def read_model_list(body: object) -> list[ModelInfo]:
    """Reads `{"data": [...]}` and a bare list; entries that are not models are left out.

    Context windows are included if the server reports them. Raises `ErrorInAnswer` for anything else.
    """
    entries = body.get("data") if isinstance(body, dict) else body
    if not isinstance(entries, list):
        raise ErrorInAnswer("the response is not a list of models")
    models: list[ModelInfo] = []
    for entry in entries:
        if isinstance(entry, str):
            models.append(ModelInfo(entry))
        elif isinstance(entry, dict) and isinstance(entry.get("id"), str):
            models.append(ModelInfo(entry["id"], _context_window(entry)))
    return models


def _context_window(entry: dict[str, Any]) -> int | None:
    meta = entry.get("meta")
    places = [entry, meta] if isinstance(meta, dict) else [entry]
    for place in places:
        for key in _WINDOW_NAMES:
            value = place.get(key)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
    return None
