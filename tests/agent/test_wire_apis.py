"""A turn with a call of a tool, through each wire API that `FakeModel` speaks."""

import pytest

from acp_agent.config.wire_apis import WIRE_APIS
from acp_agent.testing.fake_model import Answer, Call

from .kit import went


@pytest.mark.parametrize("api", [api for api, row in WIRE_APIS.items() if row.fake])
async def test_a_turn_goes_through_each_api(api, tmp_path):
    script = [Answer(text="Looking.", tool_calls=(Call("read", {"path": "a.txt"}),)), "It says hello."]
    environ = {"ACP_CODER_API": api, "OPENAI_API_KEY": "sk-test"}
    async with went(tmp_path, script, environ=environ, files={"a.txt": "hello\n"}) as r:
        r.editor.tool_call().assert_finished("completed")
        assert r.editor.text() == "Looking.It says hello."
        assert len(r.model.requests) == 2 and "hello" in str(r.model.requests[1].body)
