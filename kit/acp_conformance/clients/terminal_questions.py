"""What becomes of `terminal/*`: CTERM."""

from __future__ import annotations

import re
import shlex

from acp_conformance.clients.client_trial import NO_TERMINAL, ClientTrial, on_disk, question
from acp_conformance.trial import NotHere, Wrong, same_file

TERMINAL = "terminal"
ARGS = ("a b", "it's", '"$HOME"', "*", "")
LIMIT = 1000
"""`outputByteLimit`: in the middle of a character, with what `LONG` ends with."""
LONG = "é" * 3000 + "end"


@question("CTERM-1", TERMINAL)
async def it_is_created_at_once(trial: ClientTrial) -> None:
    """The command ends only after the answer."""
    async with trial.terminal(trial.waits()) as id_:
        trial.go()
        await trial.exit(id_)


@question("CTERM-2", TERMINAL)
async def arguments_are_passed_on(trial: ClientTrial) -> None:
    async with trial.terminal('for a in "$@"; do printf "<%s>" "$a"; done > arguments', *ARGS) as id_:
        await trial.exit(id_)
    wanted = "".join(f"<{each}>" for each in ARGS)
    found = on_disk(trial.folder / "arguments")
    trial.expect(found == wanted, f"the command got {found!r}, not {wanted!r}")


@question("CTERM-3", TERMINAL)
async def environment_and_folder_are_set(trial: ClientTrial) -> None:
    inner = trial.folder / "inner"
    inner.mkdir()
    to = shlex.quote(str(trial.folder / "there"))
    env = [{"name": "KIT_WORD", "value": "a b=$c"}]
    script = f'{{ pwd -P; echo "$KIT_WORD"; echo "${{PATH:+has}}"; }} > {to}'
    async with trial.terminal(script, cwd=str(inner), env=env) as id_:
        await trial.exit(id_)
    cwd, word, path = [*on_disk(trial.folder / "there").split("\n"), "", "", ""][:3]
    trial.expect(same_file(cwd, inner), f"the command ran in {cwd}, not in {inner}")
    trial.expect(word == "a b=$c", f"KIT_WORD is {word!r}, not 'a b=$c'")
    trial.expect(path == "has", "`env` replaces the environment: PATH is not set")


@question("CTERM-4", TERMINAL)
async def output_is_told_while_it_runs(trial: ClientTrial) -> None:
    async with trial.terminal(f"echo to-out; echo to-err >&2; {trial.waits()}") as id_:
        told = await trial.prints(id_, "to-out", "to-err")
        status = told.get("exitStatus")
        trial.go()
        trial.expect(status is None, f"while the command ran, `exitStatus` was {status}")
        trial.expect(told.get("truncated") is False, f"`truncated` is {told.get('truncated')!r}")
        await trial.exit(id_)
        status = (await trial.output(id_)).get("exitStatus")
        ended = isinstance(status, dict) and status.get("exitCode") == 0
        trial.expect(ended, f"after the command had ended, `exitStatus` was {status}")


@question("CTERM-5", TERMINAL)
async def the_exit_code_is_told(trial: ClientTrial) -> None:
    async with trial.terminal("exit 3") as id_:
        for status in (await trial.exit(id_), (await trial.output(id_)).get("exitStatus") or {}):
            trial.expect(status.get("exitCode") == 3, f"`exit 3` ended with {status}")


@question("CTERM-6", TERMINAL)
async def the_signal_is_told(trial: ClientTrial) -> None:
    async with trial.terminal("kill -TERM $$") as id_:
        status = await trial.exit(id_)
        told = isinstance(status.get("signal"), str) and status.get("exitCode") != 0
        trial.expect(told, f"a command that SIGTERM ended had the status {status}")


@question("CTERM-7", TERMINAL)
async def output_is_bounded(trial: ClientTrial) -> None:
    told, text = await _long(trial)
    trial.expect(told.get("truncated") is True, f"{len(LONG)} characters were printed; `truncated` is not true")
    trial.expect(text.endswith("end"), f"the end was cut off, not the beginning: {text[-20:]!r}")
    size = len(text.encode("utf-8", "replace"))
    trial.expect(0 < size <= LIMIT, f"`outputByteLimit` is {LIMIT}, and the output has {size} bytes")


@question("CTERM-8", TERMINAL)
async def characters_stay_whole(trial: ClientTrial) -> None:
    _, text = await _long(trial)
    if len(text) >= len(LONG):
        raise NotHere("the output is not truncated")
    trial.expect(LONG.endswith(text), f"the output begins with {text[:5]!r}: it was cut within a character")


async def _long(trial: ClientTrial) -> tuple[dict[str, object], str]:
    (trial.folder / "long.txt").write_text(LONG, encoding="utf-8")
    async with trial.terminal("cat long.txt", outputByteLimit=LIMIT) as id_:
        await trial.exit(id_)
        told = await trial.output(id_)
        return told, str(told["output"]).rstrip("\r\n")


@question("CTERM-9", TERMINAL)
async def a_command_is_killed(trial: ClientTrial) -> None:
    async with trial.terminal(f"echo pid=$$.; {trial.waits()}") as id_:
        pid = _pid((await trial.prints(id_, "."))["output"])
        await trial.call("terminal/kill", terminalId=id_)
        await trial.exit(id_)
        await trial.gone(pid, "`terminal/kill`")
        told = await trial.output(id_)
        trial.expect("pid=" in told["output"], "after `terminal/kill` its output is lost")
        trial.expect(told.get("exitStatus"), "after `terminal/kill` there is no `exitStatus`")


@question("CTERM-10", TERMINAL)
async def releasing_ends_the_command(trial: ClientTrial) -> None:
    async with trial.terminal(f"echo pid=$$.; {trial.waits()}") as id_:
        pid = _pid((await trial.prints(id_, "."))["output"])
        await trial.released(id_)
        await trial.gone(pid, "`terminal/release`")


@question("CTERM-11", TERMINAL)
async def other_ids_are_errors(trial: ClientTrial) -> None:
    async with trial.terminal("true") as id_:
        await trial.exit(id_)
        await trial.released(id_)
    for which, unknown in (("a released terminal", id_), ("no terminal", NO_TERMINAL)):
        await trial.denied("terminal/output", terminalId=unknown, why=f"of {which}")


@question("CTERM-12", TERMINAL)
async def children_end_too(trial: ClientTrial) -> None:
    async with trial.terminal(f"( {trial.waits()} ) & echo pid=$!.; wait") as id_:
        pid = _pid((await trial.prints(id_, "."))["output"])
        await trial.call("terminal/kill", terminalId=id_)
        await trial.gone(pid, "`terminal/kill`")


def _pid(output: str) -> int:
    found = re.search(r"pid=(\d+)\.", output)
    if not found:
        raise Wrong(f"the command printed its number, and the output is {output!r}")
    return int(found[1])


@question("CTERM-13", TERMINAL)
async def a_missing_program_fails(trial: ClientTrial) -> str:
    about = {"command": "kit-no-such-program", "args": [], "cwd": str(trial.folder), "env": []}
    try:
        id_ = await trial.created(about)
    except Wrong as error:
        if not error.code:
            raise
        return f"`terminal/create` is answered with the error {error.code}"
    status = await trial.exit(id_)
    await trial.released(id_)
    trial.expect(status.get("exitCode") != 0, f"a program that does not exist ended with {status}")
    return f"it ends with {status}"
