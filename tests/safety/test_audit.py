"""The audit log: private, whole lines, rotated, without credentials, and honest about failing."""

import json
import os
import stat
from pathlib import Path

import jsonschema_rs
import msgspec
import pytest

from acp_agent.config.safety_settings import AuditConfig
from acp_agent.credentials.redactor import Redactor
from acp_agent.safety.deciding.audit import AuditEntry, AuditLog

TOKEN = "ghp_" + "a1B2" * 9


def made(path: Path | None, told: list[str] | None = None, **config: object) -> AuditLog:
    said: list[str] = [] if told is None else told
    return AuditLog(path, AuditConfig(**config), Redactor().redact, said.append)  # type: ignore[arg-type]


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_line_is_json_of_the_published_schema_and_leaves_out_what_is_not_known(tmp_path: Path) -> None:
    path = tmp_path / "deep/audit.jsonl"
    made(path).write("decision", tool="bash", arguments='{"command":"ls"}', decision="allow", exit_code=None, rule="")
    (line,) = lines(path)
    assert line.pop("time").endswith("+00:00")
    assert (line.pop("seq"), line.pop("prev")) == (1, "0" * 64)
    assert line == {
        "schema": "acp_coder.audit.v1", "event": "decision", "tool": "bash", "arguments": '{"command":"ls"}',
        "decision": "allow",
    }  # fmt: skip
    schema = json.loads((Path(__file__).parents[2] / "schemas/audit-entry.schema.json").read_text(encoding="utf-8"))
    assert jsonschema_rs.is_valid(schema, lines(path)[0]) and not jsonschema_rs.is_valid(schema, {"event": "other"})


def test_the_file_is_its_owners_only_and_no_link_is_followed(tmp_path: Path) -> None:
    (path := tmp_path / "audit.jsonl").write_text("")
    path.chmod(0o666)
    log = made(path)
    assert log.write("notice", reason="x")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.unlink()
    (target := tmp_path / "target").write_text("")
    path.symlink_to(target)
    assert not log.write("notice", reason="x")
    assert target.read_text() == ""
    path.unlink()
    os.mkfifo(path)
    assert not log.write("notice", reason="x")


def test_credentials_are_taken_out_before_texts_are_cut(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = made(path, argument_chars=100, result_chars=10)
    log.write("decision", arguments=f"{'x' * 80} {TOKEN}", reason=f"for {TOKEN}", output="o" * 50, tool="a\ud800")
    assert TOKEN[:12] not in path.read_text(encoding="utf-8")
    assert lines(path)[0]["output"] == "o" * 10 + "… [40 characters more]"


def test_a_file_that_grows_too_long_is_moved_aside(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = made(path, max_bytes=10_000, backups=2)
    for number in range(120):
        log.write("notice", reason=f"{number} " + "x" * 300)
    assert path.stat().st_size <= 10_000
    kept = [line for name in (".2", ".1", "") for line in lines(Path(f"{path}{name}"))]
    numbers = [int(line["reason"].split()[0]) for line in kept]
    assert numbers == list(range(numbers[0], 120))
    assert not Path(f"{path}.3").exists()


@pytest.mark.parametrize("required", [False, True])
def test_a_write_that_fails_is_told_once_and_refuses_tools_where_the_log_is_required(tmp_path, required: bool) -> None:
    told: list[str] = []
    (tmp_path / "file").write_text("")
    path = tmp_path / "file/audit.jsonl"
    log = made(path, told, required=required)
    assert not log.write("notice", reason="x") and not log.write("notice", reason="x")
    assert len(told) == 1 and str(path) in told[0]
    assert log.refuses is required
    (tmp_path / "file").unlink()
    assert log.write("notice", reason="x") and not log.refuses


def test_where_the_log_is_off_nothing_is_written() -> None:
    assert made(None).write("notice", reason="x")


def test_every_field_is_of_the_entry() -> None:
    assert {field.name for field in msgspec.structs.fields(AuditEntry)} >= {
        *("time", "caller_id", "turn", "tool", "arguments", "decision", "policy_match", "sandbox", "exit_code"),
        *("truncated", "duration_ms", "result"),
    }
