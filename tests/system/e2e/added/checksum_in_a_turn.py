"""`checksum` in a turn of the agent."""

from hashlib import sha256

from acp_agent.testing.fake_model import Answer, Call
from tests.agent.kit import went


async def test_the_checksum_of_a_file_reaches_the_model(tmp_path):
    calls = (Call("checksum", {"path": "a.txt"}), Call("sha256", {"path": "b.txt"}))
    async with went(tmp_path, [Answer(tool_calls=calls), "Done."], files={"a.txt": "hello\n"}) as r:
        first, second = (message["content"] for message in r.messages(2)[-2:])
        assert first == sha256(b"hello\n").hexdigest() + "  a.txt"
        assert "b.txt does not exist." in second
