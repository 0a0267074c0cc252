"""Mistakes that broke other sandboxes; the control is a less carefully built sandbox, not the bare machine."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.executors.sandbox.kit import ALL, BUBBLEWRAP, USERS, Runner, needs_sandbox, runner

needs_root = pytest.mark.skipif("root" not in USERS, reason="needs root")


def careless(*options: str, script: str, env: dict[str, str] | None = None) -> str:
    needs_sandbox()
    return subprocess.run(
        ["/usr/bin/bwrap", "--ro-bind", "/", "/", "--proc", "/proc", *options, "--", "/bin/bash", "-c", script],
        env={"PATH": "/usr/bin:/bin", **(env or {})}, capture_output=True, text=True, timeout=20,
    ).stdout  # fmt: skip


@needs_root
def test_root_makes_no_mount_or_setting_of_the_kernel_writable_again(root_runner: Runner) -> None:
    script = "mount -o remount,rw,bind / && echo HIT"
    assert "HIT" in careless("--unshare-pid", script=script)
    for sandbox in BUBBLEWRAP:
        for place in ("/", "/usr", "/etc", ".git/config"):
            assert "HIT" not in root_runner.run(f"mount -o remount,rw,bind {place} && echo HIT", sandbox).out
    # They belong to uid 0, which is who the command is: no power is needed to write them.
    script = "for f in /proc/sys/kernel/core_pattern /proc/irq/default_smp_affinity; do [ -w $f ] && echo HIT; done"
    control = subprocess.run(
        ["setpriv", "--inh-caps=-all", "--bounding-set=-all", "/bin/bash", "-c", script], capture_output=True, text=True
    )
    assert "HIT" in control.stdout
    for sandbox in BUBBLEWRAP:
        assert "HIT" not in root_runner.run(script, sandbox).out


@pytest.mark.parametrize("run_as", USERS, indirect=True)
def test_the_first_process_shows_nothing_of_the_agents(run_as: Runner) -> None:
    script = "tr '\\0' '\\n' </proc/1/environ | grep -a KEY_OF"
    hit = careless(
        "--unshare-pid", "--clearenv", "--setenv", "PATH", "/usr/bin:/bin", script=script, env={"KEY_OF": "x"}
    )
    assert "KEY_OF=x" in hit
    for sandbox in BUBBLEWRAP:
        done = run_as.run("cat /proc/1/environ /proc/1/cmdline | tr '\\0' '\\n'", sandbox)
        names = {line.partition("=")[0] for line in done.out.splitlines() if "=" in line and line[0].isupper()}
        # Landlock does not even let it look.
        given = {"PATH", "HOME", "ROOT", "OUT", "HOLDER", "HELD", "ABSTRACT", "PORT", "ADDR", "PY"}
        assert names - {"PWD"} == (given if sandbox == "bubblewrap alone" else set())
        assert ".vscode" not in done.out, "its arguments tell what is protected"


@pytest.mark.parametrize("run_as", USERS, indirect=True)
def test_only_three_descriptors_are_open_and_place_holders_go_with_the_command(run_as: Runner) -> None:
    for sandbox in ALL:
        done = run_as.run("exec /bin/ls /proc/self/fd", sandbox)
        assert done.out.split() == ["0", "1", "2", "3"], "3 is the listing itself"
    for sandbox in BUBBLEWRAP:
        done = run_as.run("ls -A; git status --porcelain 2>&1", sandbox)
        assert {".mcp.json", ".config"} <= set(done.out.split())
        assert "?? .mcp.json" not in done.out and done.left == [".env", ".git", ".vscode", "s", "src"]


@pytest.mark.parametrize("run_as", USERS, indirect=True)
def test_daily_work_is_not_disturbed(run_as: Runner) -> None:
    script = """
set -e
echo one >src/a; mv src/a b; ln b c; ln -s b d; cat d; mkdir -p x/y; rm -r x
t=$(mktemp); echo two >"$t"; cat "$t"
mkdir -p ~/.cache/tool; echo three >~/.cache/tool/f; cat ~/.cache/tool/f
$PY -c 'import socket,multiprocessing as m; socket.socketpair(); socket.socket(); m.Lock(); print("four")'
echo five > >(cat); sleep 0.05 & wait; cat <<<six; cat <(echo seven)
(exec 3<>"/dev/tcp/127.0.0.1/$PORT") && echo eight
[ -r /etc/passwd ] && [ -r /etc/resolv.conf ] && [ -w /dev/null ] && head -c1 /dev/urandom >/dev/null && echo nine
"""
    for sandbox in ALL:
        # Beside a hidden file Landlock alone lets nobody read what has just been made.
        done = run_as.run("cd src; mkdir src; " + script if sandbox == "landlock" else script, sandbox)
        assert (done.code, done.err) == (0, ""), sandbox
        assert sorted(done.out.split()) == sorted("one two three four five six seven eight nine".split())


@pytest.mark.parametrize("user", USERS)
def test_all_ends_when_the_agent_is_killed(user: str) -> None:
    with runner(user) as agent:
        script = 'setsid env -i /bin/sleep 77.7 >/dev/null 2>&1 & echo "started $BASHPID"; exec /bin/sleep 77.7'
        answer = agent.ask(hang=script, sandbox="bubblewrap")
        assert answer["out"].startswith("started")
        # Found from outside: their numbers inside are others.
        limit = time.monotonic() + 10
        children = below(agent.process.pid)
        while sum(line.startswith("/bin/sleep\0" + "77.7") for line in children.values()) != 2:
            assert time.monotonic() < limit, children
            children = below(agent.process.pid)
        agent.process.kill()
        agent.process.wait()
        os.kill(answer["holder"], signal.SIGKILL)  # It is outside, so it would live on.
        while any(command(pid) for pid in children):
            assert time.monotonic() < limit, {pid: command(pid) for pid in children}
        shutil.rmtree(answer["folder"])


def below(pid: int) -> dict[int, str]:
    """The descendants of a process, and what they run."""
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(name))
    found: dict[int, str] = {}
    queue = [pid]
    while queue:
        for child in parents.get(queue.pop(), []):
            found[child] = command(child)
            queue.append(child)
    return found


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
