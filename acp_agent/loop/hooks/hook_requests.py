"""Hooks at a URL. Loaded with the first of them: it brings an HTTP client."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import httpx2

from acp_agent.errors import HookFailed


async def post(url: str, headers: Mapping[str, str], facts: Mapping[str, Any], limit: int) -> str:
    """The body of the response to `facts` as JSON, of at most `limit` bytes. Redirects are not followed.

    Raises HookFailed for another status than 2xx and if the server cannot be reached; the caller bounds the time.
    """
    body = json.dumps(facts, default=str).encode()
    sent = {"content-type": "application/json", **headers}
    found = bytearray()
    try:
        async with (
            httpx2.AsyncClient(timeout=None) as client,
            client.stream("POST", url, content=body, headers=sent) as response,
        ):
            if not response.is_success:
                raise HookFailed(f"its server answered {response.status_code}")
            async for chunk in response.aiter_bytes():
                found += chunk
                if len(found) > limit:
                    raise HookFailed(f"its answer has more than {limit} bytes")
    except (httpx2.InvalidURL, httpx2.LocalProtocolError, UnicodeError) as error:  # Their words may have a password.
        raise HookFailed("its `url` or `headers` cannot be sent") from error
    except httpx2.HTTPError as error:
        raise HookFailed(f"its server cannot be reached: {error or type(error).__name__}") from error
    return found.decode("utf-8", "replace")
