"""The observation envelope and the profile for small models."""

import json

from acp_agent.output.observation import Observation, ObservedResult, ObservedSession, ObservedTool, observation_text
from acp_agent.output.profile import STREAM_CHARS, TEXT_CHARS, keeps, shortened, shortened_streams


def observation(output: str, raw: str = "{}") -> Observation:
    return Observation(
        schema="acp_coder.tool_observation.v1", timestamp="2026-01-01T00:00:00Z",
        session=ObservedSession("2026-01-01T00:00:00Z", 5, 3, 3),
        tool=ObservedTool("bash", "call_1", "echo ü", "/p", raw),
        result=ObservedResult("completed", 0, False, False, output),
    )  # fmt: skip


def test_the_envelope_has_every_field_with_output_and_arguments_cut_in_the_middle() -> None:
    seen = json.loads(observation_text(observation("hi"), output_chars=6000, raw_chars=2000))
    assert seen == {
        "schema": "acp_coder.tool_observation.v1", "timestamp": "2026-01-01T00:00:00Z",
        "session": {"started_at": "2026-01-01T00:00:00Z", "steps": 5, "executed_commands": 3, "observations": 3},
        "tool": {"tool": "bash", "call_id": "call_1", "command": "echo ü", "workdir": "/p", "raw": "{}"},
        "result": {"status": "completed", "exit_code": 0, "timed_out": False, "interactive": False, "output": "hi"},
    }  # fmt: skip
    seen = json.loads(observation_text(observation("a" * 9000 + "z", "b" * 9000), output_chars=6000, raw_chars=2000))
    assert 6000 <= len(seen["result"]["output"]) < 6060
    assert seen["result"]["output"].endswith("z")
    assert 2000 <= len(seen["tool"]["raw"]) < 2060


def test_the_short_profile_cuts_what_a_tool_can_miss_but_a_note_on_how_to_go_on() -> None:
    assert shortened("x" * TEXT_CHARS) == "x" * TEXT_CHARS
    assert shortened("x" * 9000) == "x" * 8000 + "\n...[truncated 1000 chars]"
    assert shortened("a" + "x" * 9000, keep="tail") == "[truncated 1001 chars from start]\n" + "x" * 8000
    assert (keeps("bash"), keeps("bash_output")) == ("head", "tail")
    text = shortened("line\n" * 3000 + "[lines 1 to 3000 of 5000; give offset 3001 for more]")
    assert text.endswith("chars]\n[lines 1 to 3000 of 5000; give offset 3001 for more]")
    text = shortened_streams("o" * 5000 + "END", "e" * 5000)
    out, _, err = text.partition("\n[stderr]\n")
    assert out == "o" * 3000 + "\n...[truncated 1003 chars]\n" + "o" * 997 + "END"
    assert len(err) == STREAM_CHARS + len("\n...[truncated 1000 chars]\n")
    assert shortened_streams("", "e") == "[stderr]\ne" and shortened_streams("o", " ") == "o"
    assert shortened_streams("o" * 8000, "") == "o" * 8000, "twice as much where a terminal joins the streams"
