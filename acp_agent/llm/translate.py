"""A history begun with one server goes on with another: what each of them takes of it is decided here.

* Ids of calls, which servers form in their own ways and others refuse.
* Items that only the server that made them understands (signed or encrypted reasoning): each has its origin, and goes
  back there alone.
* Arguments that are not an object, and names that are none.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Any

import msgspec

from acp_agent.limits.decoding import read_json
from acp_agent.llm.base import AssistantMessage
from acp_agent.llm.streamed_text import clean

FROM = "_from"
"""Key of an opaque item: who made it. Never sent."""

ANTHROPIC_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
MISTRAL_ID = re.compile(r"[a-zA-Z0-9]{9}")
RESPONSES_ID = re.compile(r".{1,64}", re.DOTALL)
"""The ids of calls that a server takes."""

EXTRA = "extra_content"
"""Type of an opaque item: what Gemini signs a call with, in chat completions."""

DETAILS = "reasoning_details"
"""Type of an opaque item: a thought as OpenRouter wants it back with the calls that followed from it."""

ODD_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
LONGEST_NAME = 64


def call_id(given: str, taken: re.Pattern[str]) -> str:
    """`given`, or one that the server takes: always the same for the same."""
    if taken.fullmatch(given):
        return given
    digest = hashlib.sha256(given.encode("utf-8", "replace")).hexdigest()
    return digest[:9] if taken is MISTRAL_ID else f"call_{digest[:24]}"


def tool_name(given: str) -> str:
    """A name that every server takes; the model may have made one up."""
    return ODD_IN_NAMES.sub("_", given)[:LONGEST_NAME] or "_"


def arguments_object(arguments: str) -> dict[str, Any]:
    """The model's arguments if they are a JSON object, else an object that holds their text."""
    if not arguments.strip():
        return {}
    try:
        found = read_json(clean(arguments))
    except msgspec.DecodeError:
        found = None
    return found if isinstance(found, dict) else {"_invalid": arguments}


def signed(items: Iterable[dict[str, Any]], origin: str) -> tuple[dict[str, Any], ...]:
    """Items for `Finished.opaque`, with who made them."""
    return tuple({**item, FROM: origin} for item in items)


def returned(message: AssistantMessage, origin: str, *kinds: str) -> list[dict[str, Any]]:
    """The items of these types that `origin` made. Items of older sessions do not say who made them."""
    return [
        {key: value for key, value in item.items() if key != FROM}
        for item in message.opaque
        if item.get("type") in kinds and item.get(FROM, origin) == origin
    ]
