"""Programs in a terminal that the model can type into: who decides about what is typed, and what is shown."""

from pathlib import Path
from typing import Any

import pytest

from acp_agent.client.permissions import allow_always, allow_once, reject_once
from acp_agent.testing.fake_model import Answer, Call
from tests.agent.kit import Rig, asks, bash, went
from tests.agent.test_background import RUN_ID, ended, model, result, started
from tests.system.agent.kit import in_container, on_host

CLAIM = {"risk": "low", "mutation": False, "privesc": False, "why": "To go on"}
SHELL = "exec bash --norc --noprofile"


def keys(**given: object) -> Any:
    """Types into the first terminal that was started."""
    return lambda runs: asks(Call("send_keys", {"target": runs[0], **CLAIM, **given}))


def line(text: str) -> Any:
    return keys(literal_text=text, enter=True)


def look(**given: object) -> Any:
    return lambda runs: asks(Call("capture_pane", {"target": runs[0], **given}))


def in_terminal(command: str, **more: object) -> Answer:
    return asks(bash(command, terminal=True, **more))


def questions(r: Rig) -> list[str]:
    return [str(request.tool_call.title) for request in r.editor.permission_requests]


@pytest.mark.parametrize("sandbox", [True, False], ids=["sandbox", "bare"])
async def test_a_shell_has_jobs_and_its_terminal_in_the_sandbox_too(tmp_path: Path, sandbox: bool) -> None:
    """What runs in front is known through its namespaces; nothing outside can be written."""
    script = [
        in_terminal(SHELL),
        keys(literal_text="echo here >/dev/tty; echo x >../outside", enter=True, risk="high", mutation=True),
        keys(literal_text="sleep 1000", enter=True, risk="high", mutation=True), keys(keys=["C-c"]),
        keys(literal_text="cd .. && pwd && jobs", enter=True, risk="high", mutation=True), "done",
    ]  # fmt: skip
    async with went(tmp_path, model(*script), mode="auto", sandbox=sandbox, otherwise=allow_once) as r:
        assert "\nhere\n" in result(r, 3)
        assert (tmp_path / "outside").exists() is not sandbox
        assert result(r, 4).startswith("[running: sleep]") and result(r, 5).startswith("[running: bash]")
        assert f"\n{tmp_path}\n" in result(r, 6)


async def test_a_program_has_the_shells_variables_but_not_those_of_commands_without_a_terminal(tmp_path: Path) -> None:
    script: list[Any] = [asks(bash("export FRUIT=papaya")), in_terminal('echo "$FRUIT $TERM [$PAGER]"; read'), "done"]
    async with went(tmp_path, model(*script), mode="auto") as r:
        assert "papaya xterm-256color []" in result(r, 3)


@pytest.mark.parametrize("editor", [{"terminal": True}, {"terminal": False}], ids=["terminals", "nothing"])
async def test_a_program_that_asks_is_answered(tmp_path: Path, editor: dict[str, Any]) -> None:
    script = [in_terminal("read -p 'Which colour? ' colour; echo You like $colour; read"), line("blue"), look(), "done"]
    async with went(tmp_path, model(*script), mode="auto", **editor) as r:
        assert "Which colour?" in result(r, 2) and "run_id=" in result(r, 2)
        assert "[running: bash]\nWhich colour? blue\nYou like blue" in result(r, 3) and result(r, 3) == result(r, 4)
        assert "You like blue" in next(iter(r.editor.tool_calls().values())).text()
        assert "terminal/create" not in [line.message.get("method") for line in r.editor.transcript]


async def test_what_another_program_gets_asks_and_always_holds_for_that_terminal(tmp_path: Path) -> None:
    program = "cat"
    script = [in_terminal(program), line("one"), line("two"), in_terminal(program),
              lambda runs: asks(Call("send_keys", {"target": runs[-1], **CLAIM, "literal_text": "x", "enter": True})),
              "done"]  # fmt: skip
    async with went(tmp_path, model(*script), permissions=[allow_always, allow_once], otherwise=reject_once) as r:
        assert questions(r) == ["Type one Enter", "Type x Enter"]
        assert "typed into cat in this terminal" in r.editor.permission_requests[0].options[1].name
        assert "one\none\ntwo\ntwo" in result(r, 4) and started(r, 5) != started(r, 2)


async def test_a_line_for_a_shell_is_judged_as_a_command_whole_or_in_halves(tmp_path: Path) -> None:
    (outside := tmp_path / "outside").mkdir()
    script = [in_terminal(SHELL), line("git status --short"), line(f"rm -rf {outside}"), line("echo still"), "done"]
    async with went(tmp_path, model(*script), permissions=[allow_once], otherwise=reject_once) as r:
        assert questions(r) == [SHELL, f"Type rm -rf {outside} Enter"]
        assert outside.is_dir()
        assert "rm -rf" not in result(r, 5)
    rules = '[[tools.permissions.bash]]\npattern = "touch *"\naction = "deny"\n'
    script = [in_terminal(SHELL), line("touch a"), keys(literal_text="tou"), keys(literal_text="ch b"),
              keys(enter=True), "done"]  # fmt: skip
    async with went(tmp_path, model(*script), config=rules, mode="auto", otherwise=allow_once) as r:
        assert "policy_blocked" in result(r, 3) and "policy_blocked" in result(r, 5)
        assert sorted(path.name for path in r.project.iterdir() if path.name in "ab") == []


@pytest.mark.parametrize("given", [{"keys": ["Up", "Enter"]}, {"keys": ["Tab"]}, {"literal_text": "a\nb"}])
async def test_what_stands_in_a_shells_line_is_not_guessed(tmp_path: Path, given: dict[str, Any]) -> None:
    """History and completion: nobody knows what Enter will run. No answer is remembered."""
    script = [in_terminal(SHELL), keys(**given), line("true"), keys(keys=["C-c"]), line("true"), "done"]
    async with went(tmp_path, model(*script), otherwise=allow_once) as r:
        _, first, second = r.editor.permission_requests
        assert [option.kind for option in first.options] == ["allow_once", "reject_once"]
        assert second.tool_call.title == "Type true Enter"


@pytest.mark.parametrize(("first", "then"), [
    ('echo "', '"; touch gone'), ("cat <<'x'", "touch gone"), ("true \\", "&& touch gone"),
    ("for i in 1", "do touch gone; done"), ("echo touch gone", "!!:s/echo //"), ("echo touch gone", "^echo^^"),
    ("alias ls='touch gone'", "ls"), ("PS1='$(touch gone)'", "true"), ("fc -s echo=", "true"),
    ("bind -x '\"a\": touch gone'", "true"), ("PROMPT_COMMAND='touch gone'", "true"),
])  # fmt: skip
async def test_no_line_runs_what_a_rule_denies_by_way_of_another(tmp_path: Path, first: str, then: str) -> None:
    rules = '[[tools.permissions.bash]]\npattern = "*touch*"\naction = "deny"\n'
    script = [in_terminal(SHELL), line(first), line(then), line("echo the end"), "done"]
    async with went(tmp_path, model(*script), config=rules, mode="auto", otherwise=reject_once) as r:
        assert not (r.project / "gone").exists()


async def test_a_whole_line_with_all_that_bash_has_and_an_interrupt_do_not_ask(tmp_path: Path) -> None:
    lines = [
        "for i in 1 2; do echo $i; done", "cat <<x\na\nx", "echo 'a; b' \"c\" # d", "sleep 0 & wait", "cd / && pwd",
    ]  # fmt: skip
    typed = [keys(literal_text=text, enter=True, risk="high", mutation=True) for text in lines]
    async with went(tmp_path, model(in_terminal(SHELL), *typed, "done"), mode="auto") as r:
        assert questions(r) == [] and "\n1\n2\n" in result(r, 3) and "a; b c" in result(r, 5)
    script = [in_terminal("sleep 1000; echo gone; read"), keys(keys=["C-c"]), "done"]
    async with went(tmp_path, model(*script), permissions=[allow_once], otherwise=reject_once) as r:
        assert len(questions(r)) == 1 and "^C" in result(r, 3)


async def test_another_program_in_front_gets_nothing(tmp_path: Path) -> None:
    """The user allowed it for the one that was there."""
    go = tmp_path / "project" / "go"
    script = [
        in_terminal("cp $(command -v cat) inherits; until [ -e go ]; do sleep 0.01; done; exec ./inherits"),
        line("secret"), "done",
    ]  # fmt: skip

    def permit(request: Any) -> Any:
        if "secret" in request.tool_call.title:
            go.touch()
            import time

            while "inherits" not in "".join(_names()):
                time.sleep(0.01)
        return allow_once(request)

    async with went(tmp_path, model(*script), otherwise=permit) as r:
        assert "Nothing was typed: another program" in result(r, 3)


def _names() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/comm"):
        try:
            found.append(path.read_text())
        except OSError:
            continue
    return found


async def test_wrong_targets_are_errors(tmp_path: Path) -> None:
    script = [
        asks(bash("sleep 1000", background=True)), line("x"), in_terminal("read; exit 3"),
        lambda runs: asks(Call("send_keys", {"target": "nothing", **CLAIM, "literal_text": "x"})), line("x"),
        lambda runs: asks(Call("bash_kill", {"run_id": runs[-1]})),
        lambda runs: asks(Call("capture_pane", {"target": runs[-1]})), "done",
    ]  # fmt: skip
    async with went(tmp_path, model(*script), mode="auto") as r:
        assert "No program runs in a terminal" in result(r, 3)
        assert "There is no background command with the run_id 'nothing'" in result(r, 5)
        assert "was started without `terminal`" in result(r, 6) and "and its terminal with it" in result(r, 8)


@pytest.mark.parametrize(("given", "words"), [
    ({}, "There is nothing to type"), ({"literal_text": "a\x03"}, "give it in `keys`"),
    ({"keys": ["Hyper-Q"]}, "'Hyper-Q' is no key"), ({"literal_text": "x", "delay": "soon"}, "is not a duration"),
])  # fmt: skip
async def test_wrong_keys_are_errors(tmp_path: Path, given: dict[str, Any], words: str) -> None:
    async with went(tmp_path, model(in_terminal("read"), keys(**given), "done"), mode="auto") as r:
        assert words in result(r, 3)


async def test_what_has_ended_at_once_is_a_result_and_a_refused_program_runs_with_a_terminal(tmp_path: Path) -> None:
    async with went(tmp_path, model(in_terminal("echo seen; exit 3"), "done"), mode="auto") as r:
        assert "seen" in result(r, 2) and "[exit code 3]" in result(r, 2)
        assert RUN_ID.search(result(r, 2)) is None
    script = [asks(bash("python3")), in_terminal("python3 -q"), line("6 * 7"), keys(literal_text="exit()\n"), "done"]
    async with went(tmp_path, model(*script), mode="auto") as r:
        assert "`terminal`: true" in result(r, 2) and ">>>" in result(r, 3) and "6 * 7\n42" in result(r, 4)
        (end,) = await ended(r)
        assert end.meta and end.meta["background"]["exit_code"] == 0


async def test_the_history_can_be_read_without_its_credentials(tmp_path: Path) -> None:
    secret = "ghp_" + "a1B2" * 9
    program = f"echo token {secret}; seq 200; read"
    script = [in_terminal(program), look(), look(start="-", end=1), look(start=-3, end=-1), "done"]
    async with went(tmp_path, model(*script), mode="auto") as r:
        assert "\n200" in result(r, 3) and "\n100\n" not in result(r, 3)
        assert "token " in result(r, 4) and "\n100\n" in result(r, 4) and "\n200" not in result(r, 4)
        assert len(result(r, 5).splitlines()) == 4
        assert secret not in str([r.messages(number) for number in range(2, 6)]).replace(program, "")


@pytest.mark.parametrize("join", [True, False])
async def test_a_credential_that_goes_on_in_the_next_row_is_found(tmp_path: Path, join: bool) -> None:
    secret = "ghp_" + "a1B2" * 9
    program = "printf '%99s ' x; printf %s ghp_; printf 'a1B2%.0s' 1 2 3 4 5 6 7 8 9; echo; read"
    async with went(tmp_path, model(*[in_terminal(program), look(join_wrapped_lines=join), "done"]), mode="auto") as r:
        assert secret[:20] not in result(r, 3) and secret[-16:] not in result(r, 3)
        assert "redacted" in result(r, 3)


async def test_the_tools_are_offered_once_there_is_a_terminal(tmp_path: Path) -> None:
    async with went(tmp_path, model(in_terminal("read"), "done"), mode="auto") as r:
        assert not {"capture_pane", "send_keys"} & r.tool_names(1)
        assert {"capture_pane", "send_keys"} <= r.tool_names(2)


@pytest.mark.parametrize("where", ["container", "host"])
async def test_in_a_place_what_is_typed_is_asked_about_and_judged_as_a_command(tmp_path: Path, where: str) -> None:
    rules = '[[tools.permissions.bash]]\npattern = "shutdown*"\naction = "deny"\n'
    script = [
        in_terminal("read -p 'Name? ' x; echo hello $x; read y; echo bye $y"), line("Bob"), line("shutdown now"),
        in_terminal("cat", place="local"), keys(keys=["C-c"]), "done",
    ]  # fmt: skip
    config = (in_container() if where == "container" else on_host(tmp_path / "project")) + rules
    async with went(tmp_path, model(*script), config=config, otherwise=allow_once) as r:
        assert "Name?" in result(r, 2) and "hello Bob" in result(r, 3)
        assert "rule" in result(r, 4) and "bye" not in result(r, 4)
        if where == "container":
            assert "A program in a terminal runs where the session is (`web`)" in result(r, 5)
        assert "bye" not in result(r, 6)
        words = "(in container web)" if where == "container" else "(on host far)"
        assert questions(r)[1:] == [f"Type Bob Enter {words}"]
