"""Lines for a shell in a terminal that run as something else than they look like, and credentials in parts."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from acp_agent.client.permissions import allow_always, allow_once, reject_once
from tests.agent.kit import rig, went
from tests.agent.test_background import model, result
from tests.system.agent.test_terminals import SHELL, in_terminal, keys, line, look, questions

CHANGES = {"risk": "high", "mutation": True}


def changing(text: str) -> Any:
    return keys(literal_text=text, enter=True, **CHANGES)


@pytest.mark.parametrize("typed", [
    pytest.param([keys(literal_text="touc\t b\n", **CHANGES)], id="completion"),
    pytest.param([changing("echo tauch b"), changing("^echo tau^tou")], id="substitution"),
    pytest.param([changing("exec bash -o vi"), changing("touch b")], id="options"),
    pytest.param([changing("exec bash --rcfile /dev/null"), changing("touch b")], id="startup file"),
    pytest.param([changing("exec busybox sh"), changing("touch b")], id="busybox"),
    pytest.param([changing("sleep 1"), changing("touch b"), look(delay=2)], id="while another program runs"),
    pytest.param([changing("exec dash"), changing("touch b")], id="another shell"),
    pytest.param(
        [changing("cp $(command -v bash) zsh"), changing("exec ./zsh --norc"), changing("touch b")],
        id="another language",
    ),
    pytest.param(
        [changing("stty intr undef"), keys(literal_text="tou"), keys(keys=["C-c"]), changing("ch b")],
        id="interrupt that is none",
    ),
])  # fmt: skip
async def test_no_way_of_typing_gets_around_a_rule(tmp_path: Path, typed: list[Any]) -> None:
    rules = '[[tools.permissions.bash]]\npattern = "touch *"\naction = "deny"\n'
    script = [in_terminal(SHELL), *typed, "done"]
    async with went(tmp_path, model(*script), config=rules, mode="auto", otherwise=reject_once) as r:
        assert any("[tool_error]" in result(r, number + 3) for number in range(len(typed)))
        assert not (r.project / "b").exists()


@pytest.mark.parametrize(("shell", "typed"), [
    pytest.param(SHELL, [line("echo 'x\"; touch b; \"'"), line('echo "!!"')], id="history"),
    pytest.param(f"LC_ALL=C {SHELL}", [line("echo 'x; touch b'\u00c5")], id="letters that are keys"),
])  # fmt: skip
async def test_a_line_that_only_looks_asks_if_the_shell_changes_it(tmp_path: Path, shell: str, typed: list[Any]):
    script = [in_terminal(shell), *typed, "done"]
    async with went(tmp_path, model(*script), permissions=[allow_once], otherwise=reject_once) as r:
        assert len(questions(r)) == 2 and not (r.project / "b").exists()


async def test_an_always_for_a_program_is_none_for_the_shell_behind_it_and_looking_asks_nothing(tmp_path: Path) -> None:
    """The shell gets what the program leaves unread."""
    script = [in_terminal(SHELL), line("sleep 1000"), line("y"), line("y"), changing("touch b"), "done"]
    permissions = [allow_once, allow_once, allow_always]
    async with went(tmp_path, model(*script), permissions=permissions, otherwise=reject_once) as r:
        assert questions(r)[2:] == ["Type y Enter", "Type touch b Enter"]
    script = [in_terminal(SHELL), line("echo a != b; echo no! matter"), "done"]
    async with went(tmp_path, model(*script), permissions=[allow_once], otherwise=reject_once) as r:
        assert "no! matter\n" in result(r, 3)


async def test_what_nobody_reads_does_not_hold_the_turn_up(tmp_path: Path) -> None:
    script = [in_terminal("stty raw -echo; sleep 1000"), keys(literal_text="x" * 20_000), "done"]
    async with rig(tmp_path, model(*script), mode="auto") as r:
        with anyio.fail_after(60):
            await r.editor.prompt("go")
        assert "does not read" in result(r, 3)


async def test_a_credential_that_goes_on_in_the_next_row_is_none_either(tmp_path: Path) -> None:
    secret = "ghp_" + "a1B2" * 9
    looks = [look(), look(join_wrapped_lines=False), look(start="-", end=0, join_wrapped_lines=False)]
    script = [in_terminal(f"printf '%090d\u65e5\u672c%s\\n' 0 {secret}; read"), *looks, "done"]
    async with went(tmp_path, model(*script), mode="auto") as r:
        shown = [result(r, number) for number in range(2, 6)]
        assert all("\u65e5\u672c" in text for text in shown) and "a1B2a1B2" not in str(shown)
