"""Which sandbox works, found by running one: what should happen happens, and what should not does not."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from acp_agent.errors import ExecutorError
from acp_agent.executors.sandbox.base import (
    SANDBOXES,
    Confined,
    Copies,
    Invocation,
    Sandbox,
    SandboxKind,
    SandboxPolicy,
)
from acp_agent.executors.sandbox.noop import Noop
from acp_agent.lazy import load
from acp_agent.limits.descriptors import restoring, too_few
from acp_agent.own_programs import BASH, find_bash, find_program, search_path

if TYPE_CHECKING:
    from acp_agent.config.safety_settings import SandboxConfig

SECONDS = 5.0
TEXT = "only outside"

SCRIPT = """\
printf written >"$WRITABLE/written" && echo can-write
{ echo broken >"$READABLE/file"; } 2>/dev/null && echo can-break
{ echo broken >"$OUTSIDE/file"; } 2>/dev/null && echo can-break-outside
cat "$READABLE/file" 2>/dev/null
cat "$OUTSIDE/file" 2>/dev/null && echo can-spy
(exec 3<>"/dev/tcp/127.0.0.1/$PORT") 2>/dev/null && echo can-connect
echo end
"""

MISSING_NAMESPACES = (
    "the kernel refuses user namespaces here (on Ubuntu 24.04 and newer: an AppArmor profile for bwrap is needed, see "
    "docs/sandbox.md; in a container: allow unshare and mount, and do not mask /proc)"
)


class Found(Struct, frozen=True):
    sandbox: Sandbox
    """Of kind `none` if nothing confines commands."""
    words: str
    trouble: tuple[str, ...] = ()
    """Why better ones are unavailable, one sentence each; empty if everything is fine."""
    disabled: bool = False
    """Switched off by the configuration."""


class Programs(Struct, frozen=True):
    """The programs that the test of a sandbox starts."""

    bash: str
    bwrap: str | None


_found: dict[tuple[object, ...], Found] = {}
_asking = threading.Lock()


def find_sandbox(config: SandboxConfig, folders: Sequence[Path] = ()) -> Found:
    """The best sandbox that works here with this configuration. Tested once per process, which takes a while. Never
    raises. `folders`: the session's, whose programs must not take part in it."""
    if config.disabled:
        return Found(Noop(), "no sandbox: turned off by tools.sandbox.disabled", disabled=True)
    programs = Programs(find_bash(outside=folders), find_program("bwrap", outside=folders))
    flags = (config.strict, _network(config), config.landlock, config.allow_unix_sockets, config.max_processes > 0)
    key = (programs, *flags)
    with _asking:
        if key not in _found:
            _found[key] = _find(config, programs)
        return _found[key]


def _find(config: SandboxConfig, programs: Programs) -> Found:
    trouble: list[str] = []
    for kind, inside in _candidates(config):
        try:
            more = (programs.bwrap,) if kind == "bubblewrap" else ()
            made = load(SANDBOXES[kind])(config, *more)
            sandbox = _working(made if inside else replace(made, landlock=0), config, programs.bash)
        except (ExecutorError, OSError, ImportError) as error:
            sentence = f"{kind}: {error}{too_few()}"
            if sentence not in trouble:
                trouble.append(sentence)
            continue
        return Found(sandbox, f"{sandbox.words()}; {_network(config)}", tuple(trouble))
    return Found(noop := Noop(config.strict, tuple(trouble)), noop.words(), tuple(trouble))


def _network(config: SandboxConfig) -> str:
    return {"allow": "network allowed", "deny": "network blocked"}.get(str(config.network), "network by host")


def _working(sandbox: Sandbox, config: SandboxConfig, bash: str) -> Sandbox:
    """The sandbox as it works here. Raises as `try_out`."""
    try:
        try_out(sandbox, config, bash)
    except ExecutorError:
        if not isinstance(sandbox, Struct) or not getattr(sandbox, "copies", False):
            raise
        # Some systems let bubblewrap mount what it likes, but not what it starts.
        sandbox = replace(sandbox, copies=False)
        try_out(sandbox, config, bash)
    return sandbox


def _candidates(config: SandboxConfig) -> list[tuple[SandboxKind, bool]]:
    """The sandboxes to try here, best first, and whether with what is inside of them; those that do not exist for this
    system are left out."""
    if platform.system() == "Darwin":
        return [("seatbelt", True)]
    without: list[tuple[SandboxKind, bool]] = [("bubblewrap", False)] if config.landlock else []
    return [("bubblewrap", True), *without, ("landlock", True)]


def try_out(sandbox: Sandbox, config: SandboxConfig, bash: str = BASH) -> None:
    """Runs a command that tries what is allowed and what is not. Raises ExecutorError if either goes wrong."""
    base = Path(os.path.realpath(tempfile.mkdtemp(prefix="acp-coder-probe-")))
    try:
        folders = {name: base / name for name in ("writable", "readable", "outside", "files")}
        for folder in folders.values():
            folder.mkdir(mode=0o700)
        for name in ("readable", "outside"):
            (folders[name] / "file").write_text(f"{name}: {TEXT}\n", encoding="utf-8")
        (kept := folders["writable"] / "kept").touch()
        (folders["files"] / "0").mkdir()
        (folders["files"] / "0/link").symlink_to(Copies.THERE / "0/config")
        with closing(socket.create_server(("127.0.0.1", 0))) as server:
            env = {
                "PATH": search_path(os.environ.get("PATH", os.defpath)),
                "PORT": str(server.getsockname()[1]),
                **{name.upper(): str(folder) for name, folder in folders.items()},
            }
            policy = SandboxPolicy(
                writable=(folders["writable"],),
                readable=(folders["readable"],),
                protected=(kept,),
                copies=Copies(folders["files"], {kept: "0"}),
                network="all" if config.network == "allow" else "none",
                unix_sockets=config.allow_unix_sockets,
                max_processes=config.max_processes,
            )
            confined = sandbox.confine(
                Invocation((bash, "-c", SCRIPT), folders["writable"], env), policy, folders["files"]
            )
            try:
                _judge(_run(confined), folders, config)
            finally:
                confined.close()
    finally:
        shutil.rmtree(base, ignore_errors=True)


def _run(confined: Confined) -> subprocess.CompletedProcess[str]:
    numbers: dict[int, int] = {}
    try:
        numbers = confined.open_files()
        return subprocess.run(
            confined.argv_with(numbers),
            cwd=confined.cwd,
            env=dict(confined.env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS,
            pass_fds=tuple(numbers.values()),
            start_new_session=True,
            **restoring(),
        )
    except subprocess.TimeoutExpired as error:
        raise ExecutorError(f"a command in it did not end within {SECONDS:g} seconds") from error
    finally:
        for fd in numbers.values():
            os.close(fd)


def _judge(done: subprocess.CompletedProcess[str], folders: Mapping[str, Path], config: SandboxConfig) -> None:
    said = done.stdout.splitlines()
    if "end" not in said:
        words = " ".join(done.stderr.split())[:300] or f"exit code {done.returncode}"
        if "amespace" in words or "Operation not permitted" in words or "uid map" in words:
            words = f"{MISSING_NAMESPACES}: {words}"
        raise ExecutorError(words)
    wrong = {
        "can-break": "a read-only file could be written",
        "can-break-outside": "a file outside could be written",
        "can-spy": "a file outside could be read",
    }
    if config.network != "allow":
        wrong["can-connect"] = "the network could be reached"
    for word, meaning in wrong.items():
        if word in said:
            raise ExecutorError(f"it does not confine: {meaning}")
    intact = all(TEXT in (folders[name] / "file").read_text(encoding="utf-8") for name in ("readable", "outside"))
    if not intact:
        raise ExecutorError("it does not confine: a file outside was changed")
    if "can-write" not in said or not (folders["writable"] / "written").exists():
        raise ExecutorError("it blocks too much: nothing could be written in a session folder")
    if f"readable: {TEXT}" not in said:
        raise ExecutorError("it blocks too much: a file could not be read")
