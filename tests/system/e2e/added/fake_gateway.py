"""A gateway before chat completions, as `FakeModel` speaks it."""

from __future__ import annotations

from acp_agent.testing import fake_answers as fake
from acp_agent.testing.fake_openai import ChatCompletions


class Gateway(ChatCompletions):
    paths = ("/gateway/answers",)
    key_header = ("x-gateway-key", "{key}")

    def refused(self, request: fake.FakeRequest, path: str) -> fake.Failure | None:
        """A gateway knows its callers by their key alone."""
        wrong = "authorization" in request.headers and "x-gateway-key" in request.headers
        return fake.Failure(400, {"error": {"message": "two keys", "type": "invalid_request_error"}}) if wrong else None
