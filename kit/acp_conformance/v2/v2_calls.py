"""Tool calls, terminals, diffs: V2-TC, V2-TERM, V2-DIFF."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio.to_thread

from acp_agent.own_programs import NoGit, run_git
from acp_agent.testing.fake_answers import Answer, Call
from acp_conformance.trial import DONE, NotHere, Trial, Wrong, check, same_file
from acp_conformance.v2.v2_client import AgentV2, in_session

SECONDS = 30.0
"""For git."""
SAYS = "printf 'kit-%s \\303\\274' says"
"""What it prints is not in it, so it tells that it ran."""


@asynccontextmanager
async def _done(trial: Trial, *calls: Call) -> AsyncIterator[AgentV2]:
    """Behind a turn in which the model made these calls."""
    async with in_session(trial, [*(Answer(tool_calls=(each,)) for each in calls), DONE]) as agent:
        await agent.stops("end_turn")
        yield agent


@check("V2-TC-1")
async def calls_are_told_by_updates_alone(trial: Trial) -> None:
    async with _done(trial, trial.tool("shell", command=SAYS)) as agent:
        agent.expect(not agent.updates("tool_call"), "there is no `tool_call` in v2")
        agent.expect(len(agent.calls()) == 1, f"{len(agent.calls())} tool calls were told, not one")
        agent.expect("kit-says" in agent.asked_of_model(), "the command's output did not reach the model")


@check("V2-TC-2")
async def the_first_report_has_a_title(trial: Trial) -> None:
    async with _done(trial, trial.tool("shell", command=SAYS)) as agent:
        first = agent.updates("tool_call_update")[:1]
        agent.expect(first and first[0].get("title"), f"the first report of a call is {first}")


@check("V2-TC-4")
async def statuses_go_forward_to_an_end(trial: Trial) -> None:
    async with _done(trial, trial.tool("shell", command=SAYS)) as agent:
        statuses = agent.only_call()["statuses"]
        agent.expect(statuses[-1:] == ["completed"], f"the call ended as {statuses}")


@check("V2-TC-6")
async def content_is_of_known_types(trial: Trial) -> None:
    trial.tool("shell", command="")
    async with _done(trial, Call("kit_no_such_tool", {"a": 1})) as agent:
        for call in agent.calls().values():
            kinds = [each.get("type") for each in call.get("content") or []]
            agent.expect(set(kinds) <= {"content", "diff", "terminal"}, f"the types of its content are {kinds}")


@check("V2-TC-7")
async def locations_name_the_files(trial: Trial) -> None:
    file = trial.project / "pear.txt"
    file.write_text("green\n")
    async with _done(trial, trial.tool("read", path=str(file))) as agent:
        locations = agent.only_call().get("locations") or []
        if not locations:
            raise NotHere("it names no locations")
        for each in locations:
            agent.expect(Path(str(each.get("path"))).is_absolute(), f"a path is {each.get('path')!r}")
            agent.expect(each.get("line") != 0, "lines are counted from 1")


# --- terminals -----------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _in_terminal(trial: Trial, command: str = SAYS) -> AsyncIterator[tuple[AgentV2, dict[str, Any]]]:
    """The agent behind it, and the terminal's fields, merged. Raises NotHere if it shows commands otherwise."""
    async with _done(trial, trial.tool("shell", command=command)) as agent:
        updates = agent.updates("terminal_update")
        if not updates:
            raise NotHere("it shows commands without a terminal")
        merged: dict[str, Any] = {}
        for each in updates:
            merged |= each
        yield agent, merged


@check("V2-TERM-1")
async def calls_show_terminals_of_the_agent(trial: Trial) -> None:
    async with _in_terminal(trial) as (agent, terminal):
        content = [
            each.get("terminalId")
            for update in agent.updates("tool_call_update")
            for each in update.get("content") or []
            if each.get("type") == "terminal"
        ]
        agent.expect(terminal["terminalId"] in content, "no call shows the terminal")


@check("V2-TERM-2")
async def a_terminal_is_told_before_its_output(trial: Trial) -> None:
    async with _in_terminal(trial) as (agent, terminal):
        kinds = [each.get("sessionUpdate") for each in agent.updates()]
        if "terminal_output_chunk" in kinds:
            first = kinds.index("terminal_output_chunk")
            agent.expect(kinds.index("terminal_update") < first, "output came before the terminal")
        cwd = terminal.get("cwd")
        agent.expect(cwd is None or Path(cwd).is_absolute(), f"`cwd` is {cwd!r}")


@check("V2-TERM-3")
async def each_chunk_is_base64_by_itself(trial: Trial) -> None:
    """What the chunks are held against is `v2_wire`."""
    async with _in_terminal(trial, "for n in 1 2 3; do echo kit; sleep 0.1; done") as (agent, terminal):
        said = agent.output()[terminal["terminalId"]]
        agent.expect(b"kit" in said, f"the terminal shows {said!r}")


@check("V2-TERM-4")
async def the_bytes_are_those_of_the_command(trial: Trial) -> None:
    """A terminal may end lines by CR LF."""
    wanted = b"kit \xc3\xbc\n\x1b[31mred\x1b[0m 15\n"
    command = "printf 'kit \\303\\274\\n'; sleep 0.2; printf '\\033[31mred\\033[0m %s\\n' $((3 * 5))"
    async with _in_terminal(trial, command) as (agent, terminal):
        said = agent.output()[terminal["terminalId"]].replace(b"\r\n", b"\n")
        agent.expect(said == wanted, f"the joined bytes are {said!r}, and the command wrote {wanted!r}")


@check("V2-TERM-5")
async def how_a_command_ended_is_said(trial: Trial) -> None:
    async with _in_terminal(trial, "exit 7") as (agent, terminal):
        status: Any = terminal.get("exitStatus")
        agent.expect(isinstance(status, dict), f"`exitStatus` is {status!r}")
        agent.expect(status.get("exitCode") in (None, 7), f"`exitStatus` of `exit 7` is {status}")


@check("V2-TERM-7")
async def terminals_have_ids_of_their_own(trial: Trial) -> None:
    calls = [trial.tool("shell", command=f"{SAYS}; true {number}") for number in (1, 2)]
    async with _done(trial, *calls) as agent:
        ids = {each["terminalId"] for each in agent.updates("terminal_update")}
        if not ids:
            raise NotHere("it shows commands without a terminal")
        agent.expect(len(ids) == 2, f"the terminals of two commands have the ids {sorted(ids)}")


# --- diffs ---------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _changed(trial: Trial, old: str | None, new: str) -> AsyncIterator[tuple[AgentV2, Path, dict[str, Any]]]:
    """The agent, a file that it wrote, and the diff."""
    file = trial.project / "ripe pear.txt"
    if old is not None:
        file.write_text(old)
    reads = [trial.tool("read", path=str(file))] if old is not None else []
    async with _done(trial, *reads, trial.tool("write", path=str(file), text=new)) as agent:
        if not file.exists() or file.read_text() != new:
            raise Wrong("the file was not written")
        diffs = [
            each for call in agent.calls().values() for each in call.get("content") or [] if each.get("type") == "diff"
        ]
        if not diffs:
            raise NotHere("it tells no diffs")
        yield agent, file, diffs[-1]


@check("V2-DIFF-1")
async def diffs_are_lists_of_changes(trial: Trial) -> None:
    async with _changed(trial, None, "green\n") as (agent, _, diff):
        agent.expect(isinstance(diff.get("changes"), list) and diff["changes"], f"a diff has no `changes`: {diff}")
        old = [name for name in ("oldText", "newText", "path") if name in diff]
        agent.expect(not old, f"`{old[:1]}` of a diff does not exist in v2")


@check("V2-DIFF-2")
async def changes_say_what_became_of_the_file(trial: Trial) -> None:
    for old, operation in ((None, "add"), ("red\n", "modify")):
        async with _changed(trial, old, "green\n") as (agent, file, diff):
            change = diff["changes"][0]
            agent.expect(change.get("operation") == operation, f"the change is {change}, not `{operation}`")
            agent.expect(same_file(change.get("path"), file), f"its path is {change.get('path')!r}")


@check("V2-DIFF-3")
async def a_patch_comes_with_changes(trial: Trial) -> None:
    async with _changed(trial, "red\nripe\n", "green\nripe\n") as (agent, _, diff):
        patch: Any = diff.get("patch")
        agent.expect(patch, "a changed text comes without a patch")
        agent.expect(patch.get("format") == "git_patch", f"the format of the patch is {patch.get('format')!r}")
        agent.expect(patch.get("text"), "the patch is empty")


@check("V2-DIFF-4")
async def git_applies_the_patch(trial: Trial) -> None:
    old, new = "red\nripe\n\u00fc", "green\nripe\n\u00fc\n"
    async with _changed(trial, old, new) as (agent, file, diff):
        text = str((diff.get("patch") or {}).get("text", ""))
        if not text:
            raise NotHere("it gives no patch")
        agent.expect(" a/" not in text and " b/" not in text, f"paths have `a/` or `b/`: {text[:300]}")
        file.write_text(old)
        command = ["apply", "-p0", "--unsafe-paths", "--whitespace=nowarn", "-"]
        try:
            run = partial(run_git, command, stdin=text.encode(), cwd=file.parent, timeout=SECONDS)
            ran = await anyio.to_thread.run_sync(run)
        except NoGit as error:
            raise NotHere("there is no git here") from error
        agent.expect(ran.returncode == 0, f"git does not take the patch: {ran.stderr.decode()} {text[:500]}")
        agent.expect(file.read_text() == new, f"with the patch the file is {file.read_text()!r}")


@check("V2-DIFF-5")
async def an_emptied_file_is_modified(trial: Trial) -> None:
    async with _changed(trial, "red\n", "") as (agent, _, diff):
        operation = diff["changes"][0].get("operation")
        agent.expect(operation == "modify", f"an emptied file is `{operation}`")
