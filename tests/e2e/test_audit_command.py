"""`acp-coder audit` as a user uses it, after a real agent has written the log."""

import json

from acp_agent.client.permissions import allow_once
from acp_agent.testing.fake_model import Answer, Call
from tests.forked import forked_command

from .kit import configured, spawned
from .test_cli import run


async def test_a_changed_log_is_named_with_its_line_and_can_be_accepted(tmp_path):
    assert run(tmp_path, "audit", "verify").stdout.endswith("nothing has been logged yet\n")
    call = Answer(tool_calls=(Call("bash", {"command": "touch a"}),))
    async with spawned(tmp_path, [call, call, "done"], command=forked_command(), otherwise=allow_once) as (editor, _):
        await editor.prompt("go")
    log = tmp_path / ".local/state/acp-coder/audit.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    good = run(tmp_path, "audit", "verify")
    assert (good.returncode, good.stdout) == (0, f"{log}: ok, {len(lines)} lines\n")
    number = next(i for i, line in enumerate(lines) if json.loads(line).get("decision") == "allowed_by_person")
    log.write_text("".join([*lines[:number], lines[number].replace("_by_person", ""), *lines[number + 1 :]]))
    bad = run(tmp_path, "audit", "verify")
    assert bad.returncode == 1 and bad.stdout.startswith(f"{log}:{number + 1} was changed\n")
    assert run(tmp_path, "audit", "accept").returncode == 0
    again = run(tmp_path, "audit", "verify")
    assert (again.returncode, again.stdout.partition("\n")[0]) == (
        0, f"{log}: ok, 1 lines from number {len(lines) + 1} on",
    )  # fmt: skip
    assert f"{log}:{number + 1} was changed" in json.loads(log.read_text().splitlines()[-1])["reason"]
    log.write_text("")
    assert run(tmp_path, "audit", "verify").returncode == 1


def test_without_a_log_there_is_nothing_to_check(tmp_path):
    done = run(tmp_path, "audit", "verify", **configured(tmp_path, "[audit]\nenabled = false\n"))
    assert done.returncode == 2 and "`audit.enabled` is off" in done.stderr
