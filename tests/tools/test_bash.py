"""bash: what the model and the user learn about a command."""

from pathlib import Path
from typing import Any

import pytest

from acp_agent.config.model import BashConfig, ToolsConfig
from acp_agent.errors import ExecutorError, ToolError
from acp_agent.executors.base import NO_NETWORK, OutputChunk
from acp_agent.safety.access import ExecuteAccess
from acp_agent.safety.folders.paths import Roots
from acp_agent.tools.kit.sandbox_limits import was_forbidden
from tests.tables import table
from tests.tools.kit import REGISTRY, Bench, bench

BASH = REGISTRY.tool("bash")


LIMITS = f"The command ran in a sandbox. {NO_NETWORK} Repeat it with `outside_sandbox`."

FORBIDDEN = [
    ("bash: line 1: /usr/out: Read-only file system", True), ("touch: cannot touch '/srv/x': Permission denied", True),
    ("bash: .git/hooks/a: Permission denied", True), ("curl: (6) Could not resolve host: pypi.org", True),
    ("getaddrinfo EAI_AGAIN registry.npmjs.org", True), ("cat: /home/other/f: No such file or directory", True),
    ("dial unix:///var/run/docker.sock: connect: no such file or directory", True),
    ("unshare: unshare failed: Operation not permitted", True), ("cat: f: No such file or directory", False),
    ("cat: ./sub/f: No such file or directory", False), ("cat: {cwd}/f: No such file or directory", False),
    ("cat: /usr/include/f.h: No such file or directory", False),
    ("/usr/bin/bash: line 1: ./f: Permission denied", False), ("bash: {cwd}/f: Permission denied", False),
    ("git@host: Permission denied (publickey).", False), ("E   AssertionError: assert 1 == 2", False),
]  # fmt: skip


def test_the_sandbox_is_named_where_it_is_the_likely_cause(tmp_path: Path) -> None:
    roots = Roots(tmp_path)
    for line, forbidden in FORBIDDEN:
        output = f"some output\n{line.format(cwd=tmp_path)}\nmore\n"
        assert was_forbidden(output, LIMITS, tmp_path, roots) == forbidden, line
        assert not was_forbidden(output, "", tmp_path, roots), line
    assert not was_forbidden("Could not resolve host: x", "The command ran in a sandbox.", tmp_path, roots)


async def test_output_goes_to_the_model_the_person_and_the_envelope(on: Bench) -> None:
    result = await on.call("bash", command="echo out; echo err >&2")
    assert sorted(result.text.splitlines()) == ["err", "out"]
    assert result.raw_output == {"stdout": "out\n", "stderr": "err\n", "exit_code": 0, "truncated": False}
    assert not result.failed
    assert {OutputChunk("stdout", "out\n"), OutputChunk("stderr", "err\n")} == set(on.the_call.chunks)


@pytest.mark.parametrize(("command", "text", "exit_code"), [
    ("echo x; exit 3", "x\n[exit code 3]", 3), ("printf x; false", "x\n[exit code 1]", 1),
    ("exit 2", "[exit code 2]", 2), ("true", "[no output, exit code 0]", 0), ("echo x", "x\n", 0), ("printf x", "x", 0),
    ("kill -9 $$", "[killed by SIGKILL]", None),
])  # fmt: skip
async def test_the_exit_code_is_told_when_it_matters(on: Bench, command: str, text: str, exit_code: int | None) -> None:
    result = await on.call("bash", command=command)
    assert result.text == text and result.raw_output["exit_code"] == exit_code
    assert result.failed == (exit_code != 0)


async def test_a_timeout_keeps_the_output_and_says_what_to_do(on: Bench) -> None:
    result = await on.call("bash", command="echo before; sleep 600", timeout=0.5)
    assert result.text.startswith("before\n[killed: the command ran longer than 0.5 s.")
    assert "Give a longer `timeout`" in result.text
    assert result.raw_output["exit_code"] is None and result.failed


async def test_the_configured_timeouts_bound_what_is_asked(tmp_path: Path) -> None:
    async with bench(tmp_path, bash=BashConfig(timeout=0.2, max_timeout=0.4)) as on:
        assert "longer than 0.2 s" in (await on.call("bash", command="sleep 600")).text
        assert "longer than 0.4 s" in (await on.call("bash", command="sleep 600", timeout=500)).text


async def test_the_next_command_goes_on_where_the_last_one_ended(on: Bench) -> None:
    (on.folder / "sub").mkdir()
    await on.call("bash", command="cd sub; export X=1")
    assert on.access("bash", command="ls") == [ExecuteAccess("ls", on.folder / "sub")]
    assert (await on.call("bash", command="pwd; echo $X")).text == f"{on.folder / 'sub'}\n1\n"


async def test_big_output_is_marked_as_truncated(tmp_path: Path) -> None:
    async with bench(tmp_path, bash=BashConfig(output_limit=1024)) as on:
        result = await on.call("bash", command="seq 1 10000")
        assert result.raw_output["truncated"] is True and "characters omitted" in result.raw_output["stdout"]
        assert len(result.text) < 1200


@pytest.mark.parametrize(("command", "words"), [("  \n", "empty"), ("ls\0", "NUL"), ("ls \ud800", "unicode")])
async def test_commands_that_cannot_run_are_refused(on: Bench, command: str, words: str) -> None:
    with pytest.raises(ToolError, match=words):
        on.access("bash", command=command)


async def test_a_folder_that_is_gone_is_told_in_words(on: Bench) -> None:
    on.folder.rmdir()
    with pytest.raises(ExecutorError, match="does not exist"):
        await on.call("bash", command="ls")


# --- how it is called --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["command", "cmd", "script", "shell_command", "bash", "sh"])
def test_the_command_line_has_many_names(name: str) -> None:
    assert BASH.parse({name: "ls", "timeout": 5}) == BASH.parse({"command": "ls", "timeout": 5})


@table(("text", "command"), [
    *((text, {"command": text}) for text in ("ls -l", "[ -f x ] && ls", "[[ -f x ]]", "true")),
    *((text, None) for text in ("", "  ", '{"command": "ls', '["ls", "-l"]', "[[1]]", "null")),
])  # fmt: skip
def test_bare_text_is_a_command_line_but_for_broken_json(text: str, command: dict[str, str] | None) -> None:
    assert BASH.from_text(text) == command


@pytest.mark.parametrize(("wait", "background", "patience"), [
    (True, False, None), ("true", False, None), (False, True, None), ("false", True, None), (0, True, None),
    ("0s", True, None), (1, False, 1.0), (2.5, False, 2.5), ("7", False, 7.0), ("30s", False, 30.0),
    (" 10m ", False, 600.0), ("1h", False, 3600.0), ("1.5 min", False, 90.0),
])  # fmt: skip
def test_wait_is_a_choice_or_a_duration(wait: object, background: bool, patience: float | None) -> None:
    params = BASH.parse({"command": "ls", "wait": wait})
    assert (params.in_background, params.patience) == (background, patience)


@pytest.mark.parametrize("wait", ["soon", "", "-5", -1, "5 days", float("inf"), float("nan"), "m"])
def test_a_wait_that_is_none_is_refused_with_words(wait: object) -> None:
    with pytest.raises(ToolError, match="(?s)- wait: .*(such as `30s`|number of seconds)") as error:
        BASH.parse({"command": "ls", "wait": wait})
    assert error.value.category == "invalid_parameters"


def test_background_and_wait_exclude_each_other_as_two_command_lines_do_and_their_schema_is_simple() -> None:
    assert BASH.parse({"command": "ls", "background": True, "wait": False}).in_background
    with pytest.raises(ToolError, match="either `background` or `wait`"):
        BASH.parse({"command": "ls", "background": True, "wait": "30s"})
    with pytest.raises(ToolError, match="`command` and `cmd` both contain a command line") as error:
        BASH.parse({"command": "ls", "cmd": "pwd"})
    assert error.value.category == "invalid_parameters"
    entry = REGISTRY.find("bash")
    assert entry is not None
    kinds = [option["type"] for option in entry.parameters["properties"]["wait"]["anyOf"]]
    assert kinds == ["boolean", "number", "string"]


# --- in the background -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [{"background": True}, {"wait": False}, {"wait": 0}])
async def test_a_background_command_is_handed_over_at_once(on: Bench, how: dict[str, Any]) -> None:
    result = await on.call("bash", command="sleep 600", timeout=5, **how)
    assert result.text == "[background] started run_id=run-1"
    assert result.raw_output == {"run_id": "run-1", "background": True} and not result.failed
    ((command, timeout),) = on.the_call.background
    assert (command.script, command.keeps_state, timeout) == ("sleep 600", False, 5)


async def test_what_outlives_its_wait_is_handed_over_with_the_time_that_is_left(on: Bench) -> None:
    result = await on.call("bash", command="echo begun; sleep 600", wait=0.5, timeout=5)
    assert result.text == "begun\n[background] still running after 0.5 s and continues: run_id=run-1"
    assert on.the_call.background[0][1] == pytest.approx(4.5)


async def test_a_timeout_within_the_wait_kills(on: Bench) -> None:
    assert "longer than 0.2 s" in (await on.call("bash", command="sleep 600", wait="30s", timeout=0.2)).text
    assert not on.the_call.background


@pytest.mark.parametrize("how", [{"background": True}, {"wait": "1s"}])
async def test_the_background_may_be_switched_off(how: dict[str, Any], tmp_path: Path) -> None:
    async with bench(tmp_path, bash=BashConfig(max_background_runs=0)) as on:
        with pytest.raises(ToolError, match="turned off") as error:
            await on.call("bash", command="ls", **how)
        assert error.value.category == "policy_blocked"


@pytest.mark.parametrize("name", ["bash_output", "bash_kill"])
async def test_a_run_nobody_knows_is_told_in_words(on: Bench, name: str) -> None:
    await on.fails("no background command with the run_id 'x'.*Known are: none", name, run_id="x")


# --- terminals ---------------------------------------------------------------------------------------------------


async def test_what_wants_a_terminal_is_refused_ahead_of_the_question(on: Bench) -> None:
    with pytest.raises(ToolError, match="needs a terminal") as error:
        await on.preview("bash", command="vim a.txt")
    assert error.value.category == "permanent_failure" and error.value.suggestion
    with pytest.raises(ToolError, match="never ends"):
        await on.preview("bash", command="tail -f a.txt")
    await on.preview("bash", command="tail -f a.txt", background=True)
    on.config = ToolsConfig(bash=BashConfig(refuse_interactive=False))
    await on.preview("bash", command="vim a.txt")
