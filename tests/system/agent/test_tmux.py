"""A session with a real tmux: what the user watches, and shells that commands share."""

import json
import os
import pty
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from acp_agent.client.permissions import allow_once, reject_once
from acp_agent.commands.parser import agent_variables, build_parser
from acp_agent.config.load import load_config
from acp_agent.errors import ConfigError, UsageError
from acp_agent.executors.tmux import tmux_server
from acp_agent.safety.lines.shared_line import ends_shell
from acp_agent.testing.fake_model import Answer
from tests.agent.kit import Rig, environ_for, results, rig, went
from tests.agent.test_background import model
from tests.system.agent.kit import bash, doctor, in_container, on_host, tool
from tests.system.agent.test_terminals import CLAIM
from tests.waits import until

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="not installed: tmux")

TMUX = '[tools.tmux]\nsession = "main"\nmax_panes = 3\nmax_sessions = 2\n'


def shared(command: str, **more: Any) -> Answer:
    return bash(command, pane="shared", **more)


def manage(name: str, **more: Any) -> Answer:
    return tool(name, **CLAIM, **more)


@pytest.mark.parametrize("sandbox", [True, False], ids=["sandbox", "bare"])
async def test_commands_share_the_shell_of_a_pane(tmp_path: Path, sandbox: bool) -> None:
    (tmp_path / "project" / "sub").mkdir(parents=True)
    script = [
        shared("cd sub && colour=blue"), shared("echo $colour; pwd; echo wrong >&2; false"),
        shared("printf 'one\\ntwo\\n'; cat <<'END'\nthree 'and' $colour\nEND"), bash("pwd"), shared("(exit 7)"),
        Answer(text="ok"),
    ]  # fmt: skip
    async with went(tmp_path, script, config=TMUX, mode="auto", sandbox=sandbox, otherwise=allow_once) as r:
        said = results(r)
        sub = str(tmp_path / "project" / "sub")
        assert "no output" in said[0] and f"blue\n{sub}\nwrong\n" in said[1] and "[exit code 1]" in said[1]
        assert said[2] == "one\ntwo\nthree 'and' $colour\n" and sub not in said[3] and "[exit code 7]" in said[4]
        assert "cd sub && colour=blue (in pane shared)" in [call.title for call in r.editor.tool_calls().values()]


def attached(r: Rig) -> list[str]:
    """The command line that the user was told, as far as the socket."""
    found = re.search(r"`(tmux -S \S+) attach -t =acp-coder-main`", r.editor.text())
    assert found is not None, r.editor.text()
    return found[1].split()


def tmux(r: Rig, *words: str) -> str:
    return subprocess.run([*attached(r), *words], capture_output=True, text=True, check=True, timeout=20).stdout


async def test_the_user_sees_what_runs_in_a_terminal_and_can_type(tmp_path: Path) -> None:
    script: list[Any] = [
        bash("read -p 'Which colour? ' colour; echo You like $colour; read", terminal=True),
        Answer(text="ask the user"), lambda runs: tool("capture_pane", target=runs[0]), Answer(text="ok"),
    ]  # fmt: skip
    async with went(tmp_path, model(*script), config=TMUX, mode="auto") as r:
        windows = dict(
            line.split() for line in tmux(r, "list-windows", "-a", "-F", "#{window_name} #{pane_id}").splitlines()
        )
        (pane,) = [number for name, number in windows.items() if name.startswith("run-")]
        assert "Which colour?" in tmux(r, "capture-pane", "-p", "-t", pane)
        tmux(r, "send-keys", "-t", pane, "green", "Enter")
        await until(lambda: "You like green" in tmux(r, "capture-pane", "-p", "-t", pane))
        await r.editor.prompt("and now?")
        assert "You like green" in results(r)[-1]


async def test_place_says_how_to_attach_and_a_real_client_can(tmp_path: Path) -> None:
    async with went(tmp_path, [Answer(text="ok")], config=TMUX, prompt="/place") as r:
        argv = [*attached(r), "attach", "-t", "=acp-coder-main"]
        ours, theirs = pty.openpty()
        client = subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm"})
        os.close(theirs)
        try:
            await until(lambda: tmux(r, "list-clients").strip() != "")
            assert "has a window each" in tmux(r, "capture-pane", "-p", "-t", "=acp-coder-main:")
        finally:
            client.terminate()
            client.wait(10)
            os.close(ours)
        socket = argv[2]
    assert subprocess.run(["tmux", "-S", socket, "list-sessions"], capture_output=True, check=False).returncode != 0


ENDING = (
    "set -e; make|exit|true && exit 3|exec bash|command exec sh|eval 'exit 1'|logout|set -o errexit|"
    "if true; then exit; fi|{ set -eu; }|shopt -so errexit|f() { exit; }|command -p exit|time exit|"
    "builtin -- exit|suspend -f|set -t"
).split("|")


async def test_what_would_end_the_shared_shell_is_known_and_refused(tmp_path: Path) -> None:
    assert [line for line in ENDING if not ends_shell(line)] == []
    apart = ("(set -e; exit 3)", "bash -c 'exit 3'", "exit 3 | cat", "echo $(exit 3)", "echo exit", "exit 3 & wait")
    assert [line for line in apart if ends_shell(line)] == []
    lines = ("exit", "set -e; make", "if true; then exit; fi")
    script = [*map(shared, lines), shared("echo still"), Answer(text="ok")]
    async with went(tmp_path, script, config=TMUX, mode="auto") as r:
        *refused, last = results(r)
        assert all("would end the shell of the pane" in each and "( … )" in each for each in refused), refused
        assert len(refused) == len(lines) and last == "still\n"


async def test_a_command_that_goes_on_is_watched_and_stopped(tmp_path: Path) -> None:
    script = [
        shared("echo begun; sleep 1000; echo never", wait=False), shared("echo no"),
        tool("capture_pane", pane="shared", delay=0.3), tool("send_keys", pane="shared", keys=["C-c"], **CLAIM),
        shared("echo again"), shared("sleep 1000", timeout=0.5),
        shared("bash -c 'trap \"\" INT; sleep 1000'", timeout=0.5), shared("echo still"), Answer(text="ok"),
    ]  # fmt: skip
    async with went(tmp_path, script, config=TMUX, mode="auto", otherwise=allow_once) as r:
        said = results(r)
        assert "started run_id=" in said[0] and "another command runs in it" in said[1]
        assert "[running: sleep]" in said[2] and "begun" in said[2] and said[4] == "again\n"
        assert "ran longer than 0.5 s" in said[5] and "ran longer than 0.5 s" in said[6] and said[7] == "still\n"


async def test_what_the_user_types_at_the_same_moment_is_never_mixed_in(tmp_path: Path) -> None:
    script = [
        shared("echo one"), Answer(text="ok"), shared("echo two"), Answer(text="ok"), shared("echo three"),
        Answer(text="ok"),
    ]  # fmt: skip
    async with went(tmp_path, script, config=TMUX, mode="auto") as r:
        tmux(r, "send-keys", "-t", "=acp-coder-main:shared", "-l", "touch wrong; ")
        await until(lambda: "touch wrong" in tmux(r, "capture-pane", "-p", "-t", "=acp-coder-main:shared"))
        await r.editor.prompt("again")
        assert results(r)[-1] == "two\n"
        tmux(r, "send-keys", "-t", "=acp-coder-main:shared", "-l", "echo 'open")
        tmux(r, "send-keys", "-t", "=acp-coder-main:shared", "Enter")
        await until(lambda: tmux(r, "capture-pane", "-p", "-t", "=acp-coder-main:shared").rstrip().endswith(">"))
        await r.editor.prompt("again")
        assert results(r)[-1] == "three\n" and not (r.project / "wrong").exists()


async def test_panes_and_sessions_are_made_and_removed_within_limits(tmp_path: Path) -> None:
    script = [
        manage("tmux_create_pane", pane="one"), bash("cd /; x=1", pane="one"),
        bash("echo $x; pwd", pane="acp-coder-one", session="main"), shared("pwd"),
        manage("tmux_create_session", session="ops"), manage("tmux_create_pane", pane="more"),
        manage("tmux_create_session", session="third"), manage("tmux_kill_pane", pane="shared"),
        manage("tmux_kill_session", session="main"), manage("tmux_kill_pane", pane="of-the-user"),
        manage("tmux_kill_pane", pane="one"), bash("pwd", pane="one"), manage("tmux_kill_session", session="ops"),
        bash("pwd", session="ops"), manage("tmux_create_pane", pane="#(touch made)"),
        tool("tmux_kill_pane", pane="one"), Answer(text="ok"),
    ]  # fmt: skip
    async with went(tmp_path, script, config=TMUX, mode="auto", otherwise=allow_once, prompt="/place") as r:
        tmux(r, "new-window", "-d", "-t", "=acp-coder-main:", "-n", "of-the-user", "sleep 1000")
        await r.editor.prompt("go")
        said = results(r)
        assert said[0] == "The pane one was made." and said[2] == "1\n/\n" and said[3] == f"{r.project}\n"
        assert said[4] == "The session ops was made; its pane is `shared`."
        assert "There are 3 panes already (`tools.tmux.max_panes`): main:one, main:shared, ops:shared." in said[5]
        assert "There are 2 sessions already (`tools.tmux.max_sessions`): main, ops." in said[6]
        assert "is shared" in said[7] and "is shared" in said[8]
        assert "There is no pane main:of-the-user of ours" in said[9]
        assert said[10] == "The pane one was ended with what ran in it."
        assert "There is no pane main:one of ours. Known are: main:shared, ops:shared." in said[11]
        assert "was ended with its panes" in said[12] and "There is no pane ops:shared of ours" in said[13]
        assert "cannot be the name of a session or pane" in said[14] and "risk" in said[15] and "why" in said[15]
        left = ["acp-coder-main:acp-coder", "acp-coder-main:of-the-user", "acp-coder-main:shared"]
        names = ("list-windows", "-a", "-F", "#{session_name}:#{window_name}")
        await until(lambda: sorted(tmux(r, *names).split()) == left)  # tmux closes a window when its program has ended.
        subprocess.run([*attached(r), "kill-window", "-t", "=acp-coder-main:of-the-user"], check=True)


async def test_a_missing_pane_is_looked_at_in_the_shared_one_and_never_typed_into(tmp_path: Path) -> None:
    script = [
        shared("echo here"), tool("capture_pane", pane="gone"),
        tool("send_keys", pane="gone", literal_text="touch made", enter=True, **CLAIM),
        tool("send_keys", literal_text="touch made", enter=True, **CLAIM),
        tool("send_keys", pane="shared", literal_text="exit", enter=True, **CLAIM),
        tool("send_keys", pane="shared", literal_text="touch typed", enter=True, **{**CLAIM, "mutation": True}),
        Answer(text="ok"),
    ]  # fmt: skip
    async with went(tmp_path, script, config=TMUX, mode="auto", otherwise=allow_once) as r:
        said = results(r)
        assert "There is no pane main:gone of ours" in said[1] and "[instead: the shared pane]" in said[1]
        assert "here" in said[1] and "There is no pane main:gone of ours" in said[2] and "Which terminal?" in said[3]
        assert "would end the shell" in said[4]
        assert not (r.project / "made").exists() and (r.project / "typed").exists()


async def test_rules_and_questions_hold_in_a_pane(tmp_path: Path) -> None:
    rules = '[[tools.permissions.bash]]\npattern = "touch *"\naction = "deny"\n'
    lines = ("touch made", "rm -rf ../outside", "alias ls='touch x'", "ls() { rmdir x; }")
    script = [*map(shared, lines), Answer(text="ok")]
    (tmp_path / "outside").mkdir()
    async with went(
        tmp_path, script, config=TMUX + rules, mode="auto", otherwise=reject_once, ends="max_turn_requests"
    ) as r:
        assert "policy_blocked" in str(r.editor.transcript) and not (r.project / "made").exists()
        assert (tmp_path / "outside").is_dir()
        titles = [str(request.tool_call.title) for request in r.editor.permission_requests]
        assert titles == [f"{line} (in pane shared)" for line in lines[1:]]


async def test_what_runs_in_a_pane_cannot_command_tmux(tmp_path: Path) -> None:
    """Else it would leave the sandbox by a window of tmux."""
    script: list[Any] = [
        shared("echo TMUX=$TMUX."),
        lambda: shared(f"tmux -S {socket[0]} new-window 'touch {tmp_path}/out'; ls -la {socket[0]}"), Answer(text="ok"),
    ]  # fmt: skip
    socket: list[str] = []

    def reply(body: dict[str, Any]) -> Answer:
        if not socket and (told := re.search(r"tmux -S (\S+) attach", r.editor.text())):
            socket.append(told[1])
        step = script.pop(0)
        answer: Answer = step() if callable(step) else step
        return answer

    async with rig(tmp_path, reply, config=TMUX, mode="auto", sandbox=True, otherwise=allow_once) as r:
        await r.editor.prompt("go")
        said = results(r)
        assert said[0] == "TMUX=.\n" and "[exit code" in said[1]
        assert not (tmp_path / "out").exists()


async def test_without_tmux_or_its_program_there_are_no_panes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = [shared("touch made"), manage("tmux_create_pane", pane="one"), Answer(text="ok")]
    async with went(tmp_path, script, mode="auto") as r:
        assert all("There is no tmux in this session" in said for said in results(r))
        tools = json.dumps(r.request(1)["tools"])
        assert "tmux_create" not in tools and '"pane"' not in tools
    monkeypatch.setattr(tmux_server, "PROGRAM", "no-such-tmux")
    script = [shared("touch made"), bash("touch made", terminal=True), bash("touch plain"), Answer(text="ok")]
    async with went(tmp_path, script, config=TMUX, mode="auto", otherwise=allow_once) as r:
        assert all("there is no `tmux` on this machine" in said for said in results(r)[:2])
        assert not (r.project / "made").exists() and (r.project / "plain").exists()


@pytest.mark.parametrize("where", ["container", "host"])
async def test_a_pane_is_in_the_sessions_place(tmp_path: Path, where: str) -> None:
    folder = tmp_path / ("project" if where == "container" else "there")
    (folder / "sub").mkdir(parents=True)
    config = in_container() if where == "container" else on_host(folder)
    script = [
        shared("cd sub && touch made; x=1"), shared("pwd; echo $x"), shared("sleep 1000", timeout=0.5),
        shared("echo on"), Answer(text="ok"),
    ]  # fmt: skip
    async with went(tmp_path, script, config=config + TMUX, mode="auto", otherwise=allow_once) as r:
        said = results(r)
        assert (folder / "sub" / "made").exists()
        assert said[1] == f"{folder / 'sub'}\n1\n" and "ran longer than 0.5 s" in said[2] and said[3] == "on\n"


@pytest.mark.parametrize(("given", "session"), [(["--tmux"], "main"), (["--tmux=ops"], "ops"), ([], "")])
def test_tmux_on_the_command_line(tmp_path: Path, given: list[str], session: str) -> None:
    options = build_parser().parse_args(["prompt", *given, "--", "say hello"])
    environ = {"HOME": str(tmp_path), **agent_variables(None, None, None, options.tmux)}
    assert load_config(environ).settings.tools.tmux.session == session


def test_a_name_that_tmux_would_take_for_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tools.tmux.session"):
        load_config({"HOME": str(tmp_path), "ACP_CODER_TMUX": "#(touch x)"})


async def test_what_only_tmux_shows(tmp_path: Path) -> None:
    script: list[Any] = [
        bash(
            "printf '\\033[1mbold\\033[0m plain\\n'; read; printf '\\033[?1049h\\033[2J\\033[HFULL'; read",
            terminal=True,
        ),
        lambda runs: tool("capture_pane", target=runs[0], include_escape_sequences=True),
        lambda runs: tool("capture_pane", target=runs[0], include_alternate_screen=True),
        lambda runs: tool("send_keys", target=runs[0], enter=True, **CLAIM),
        lambda runs: tool("capture_pane", target=runs[0], include_alternate_screen=True),
        lambda runs: tool("capture_pane", target=runs[0]),
        lambda runs: tool("capture_pane", target=runs[0], start="-", end=0, escape_non_printable=True),
        Answer(text="ok"),
    ]
    async with went(tmp_path, model(*script), config=TMUX, mode="auto", otherwise=allow_once) as r:
        said = results(r)
        assert "\\033[1mbold" in said[1] and "there is no alternate screen" in said[2] and "bold plain" in said[2]
        assert "FULL" in said[3] and "bold plain" in said[4] and "FULL" not in said[4]
        assert "FULL" in said[5] and "bold" not in said[5] and "FULL" in said[6]


async def test_a_credential_is_not_hidden_by_colours(tmp_path: Path) -> None:
    key = "sk-proj-" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7" * 2
    script: list[Any] = [
        bash(f"printf '{key[:20]}\\033[1m{key[20:]}\\033[0m\\n'; read", terminal=True),
        lambda runs: tool("capture_pane", target=runs[0], include_escape_sequences=True), Answer(text="ok"),
    ]  # fmt: skip
    async with went(tmp_path, model(*script), config=TMUX, mode="auto", otherwise=allow_once) as r:
        assert "without escape sequences" in results(r)[1] and key[20:] not in results(r)[1]


async def test_without_tmux_its_options_are_refused(tmp_path: Path) -> None:
    script: list[Any] = [
        bash("read", terminal=True), lambda runs: tool("capture_pane", target=runs[0], include_escape_sequences=True),
        Answer(text="ok"),
    ]  # fmt: skip
    async with went(tmp_path, model(*script), mode="auto", otherwise=allow_once) as r:
        assert "Only tmux can show that" in results(r)[1]


@pytest.mark.parametrize(("argv", "words"), [
    (["prompt", "--tmux", "look here"], "is no name (letters, digits, - and _); before a prompt write --tmux=NAME"),
    (["--tmux", "doctor"], "it is an option of `acp-coder` and `acp-coder prompt`, not of doctor"),
])  # fmt: skip
def test_what_was_not_meant_as_a_name_is_said(argv: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)):
        build_parser().parse_args(argv)


@pytest.mark.parametrize(
    ("found", "words"), [(True, r"ok +tmux +terminals are shown in"), (False, r"BAD +tmux +there is no")]
)
def test_doctor_names_tmux(tmp_path: Path, found: bool, words: str) -> None:
    environ = {**environ_for(tmp_path, "http://127.0.0.1:9"), "ACP_CODER_TMUX": "main"}
    environ |= {} if found else {"PATH": str(tmp_path)}
    assert re.search(words, said := doctor(environ, tmp_path)), said
