"""Attacks on the sandbox. Each script prints HIT if it gets what it should not.

Each is run without the sandbox first, where it must hit: else it would find nothing either if the sandbox were gone.
"""

import platform
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.executors.sandbox.kit import ALL, BUBBLEWRAP, USERS, WITH_COPIES, Runner

CALL = "import ctypes,errno,os,sys\nprint('started',flush=True)\nL=ctypes.CDLL(None,use_errno=True)\nS=L.syscall\n"
ARM = platform.machine() in ("aarch64", "arm64")


def python(code: str) -> str:
    return f"$PY - <<'END'\n{CALL}{code}\nEND"


def call(x86: int, arm: int, arguments: str = "0,0,0,0") -> str:
    """A system call that the filter refuses and nothing else does."""
    number = arm if ARM else x86
    return python(f"r=S({number},{arguments})\nif r >= 0 or ctypes.get_errno() != errno.EPERM: print('HIT')")


def connect(address: str) -> str:
    return python(f"import socket\ns=socket.socket(socket.AF_UNIX)\ns.connect({address})\nprint('HIT')")


@dataclass(frozen=True)
class Attack:
    name: str
    script: str
    held_by: tuple[str, ...] = ALL
    users: tuple[str, ...] = ("root", "ordinary")
    policy: dict[str, Any] = field(default_factory=dict)
    needs: str = "/"
    """A file without which the kernel has no such thing."""


ROOT = ("root",)
READS = 'grep -q s3cret "{}" 2>/dev/null && echo HIT'

ATTACKS = [
    # files outside
    Attack("a file outside is overwritten", 'echo x >"$OUT/file" && echo HIT'),
    Attack("a file outside is made", 'echo x >"$OUT/new" && echo HIT'),
    Attack("a file outside is emptied", 'truncate -s 0 "$OUT/file" && echo HIT'),
    Attack("a file outside is removed", 'rm -f "$OUT/file"; [ ! -e "$OUT/file" ] && ls "$OUT" && echo HIT'),
    Attack("a file outside is moved in", 'mv "$OUT/file" mine && echo HIT'),
    Attack("a file outside is linked in and written", 'ln "$OUT/file" mine && echo x >>mine && echo HIT'),
    Attack("a file outside is read", READS.format("$OUT/secret")),
    Attack("a file outside is read by a link", 'ln -s "$OUT/secret" l; ' + READS.format("l")),
    Attack("a folder outside is listed", 'ls "$OUT" | grep -q secret && echo HIT'),
    Attack("a hidden file of the session's folder is read", READS.format(".env")),
    Attack("a hidden file is linked and read", "ln .env e && " + READS.format("e")),
    Attack("a hidden file is moved and read", "mv .env src/e && " + READS.format("src/e"), held_by=BUBBLEWRAP),
    Attack("the system's password hashes are read", "grep -q : /etc/shadow && echo HIT", users=ROOT),
    Attack(
        "a file outside is read by the root folder of a process",
        'for p in self $PPID 1 $HOLDER; do grep -q s3cret "/proc/$p/root$OUT/secret" && echo HIT; done 2>/dev/null',
    ),
    Attack("a file outside is read by a descriptor of a process", READS.format("/proc/$HOLDER/fd/$HELD")),
    Attack("a descriptor is inherited", "for n in $(seq 3 40); do " + READS.format("/dev/fd/$n") + "; done"),
    # what other programs trust, in a folder that may be written
    Attack("a hook is made", "echo x >.git/hooks/pre-commit && echo HIT", BUBBLEWRAP),
    Attack("git's configuration is written", "echo x >>.git/config && echo HIT", BUBBLEWRAP),
    Attack("git's configuration is replaced", "echo x >c && mv -f c .git/config && echo HIT", BUBBLEWRAP),
    Attack("git's configuration is linked and written", "ln .git/config c && echo x >>c && echo HIT", BUBBLEWRAP),
    Attack(".git is renamed and made again", "mv .git g && mkdir -p .git/hooks && echo HIT", BUBBLEWRAP),
    Attack("the hooks become a link", "rm -rf .git/hooks; ln -sT ../src .git/hooks && echo HIT", BUBBLEWRAP),
    Attack("a protected folder becomes a link", "mv .vscode v; ln -sT v .vscode && echo HIT", BUBBLEWRAP),
    Attack("a protected file that is not there is made", "echo {} >.mcp.json && echo HIT", BUBBLEWRAP),
    Attack(
        "a protected file that is not there is made in the place of the place holder",
        "rmdir .mcp.json; mv .mcp.json m; chmod 755 .mcp.json; echo {} >.mcp.json && echo HIT", BUBBLEWRAP,
    ),
    Attack(
        "a folder above a protected one is made", "mkdir -p .config/fish && echo x >.config/fish/f && echo HIT",
        BUBBLEWRAP,
    ),
    # other processes
    Attack("the environment of a process is read", READS.format("/proc/$HOLDER/environ")),
    Attack("a process is signalled", "kill -0 $HOLDER && echo HIT"),
    Attack("a process is traced", python("if L.ptrace(0,0,0,0) == 0: print('HIT')")),
    Attack("the memory of a process is read", call(310, 270, "os.getpid(),0,0,0,0,0")),
    Attack("a socket outside is connected to", connect("os.environ['OUT']+'/s'")),
    Attack("a socket in the session's folder is connected to", connect("os.environ['ROOT']+'/s'")),
    Attack("an abstract socket is connected to", connect("'\\0'+os.environ['ABSTRACT']")),
    Attack(
        "an abstract socket is connected to where sockets are allowed", connect("'\\0'+os.environ['ABSTRACT']"),
        ("bubblewrap", "landlock"), policy={"unix_sockets": True},
    ),
    Attack(
        "a socket outside is connected to where sockets are allowed", connect("os.environ['OUT']+'/s'"), BUBBLEWRAP,
        policy={"unix_sockets": True},
    ),
    Attack(
        "the machine itself is reached with the network off", 'exec 3<>"/dev/tcp/127.0.0.1/$PORT" && echo HIT',
        policy={"network": "none"},
    ),
    Attack(
        "more processes are started than allowed",
        python(
            "import signal\nn=0\ntry:\n while n < 60:\n  p=os.fork()\n  if p == 0: signal.pause()\n  n+=1\n"
            "except OSError: pass\nprint('HIT' if n == 60 else n, flush=True)\n"
            "signal.signal(15, signal.SIG_IGN)\nos.killpg(0, 9)"
        ).replace("$PY -", "setsid -w $PY -"),
        BUBBLEWRAP, policy={"max_processes": 40},
    ),
    # the kernel
    Attack("a user namespace is made", "unshare -U true && echo HIT"),
    Attack(
        "a namespace is made by clone",
        python(f"r=S({220 if ARM else 56},0x10000011,0,0,0,0)\nif r==0: os._exit(0)\nif r>0: print('HIT')"),
    ),
    Attack("clone3 is there", python("S(435,0,0)\nif ctypes.get_errno() != errno.ENOSYS: print('HIT')")),
    Attack("something is mounted", "unshare -m mount -t tmpfs none /mnt && echo HIT", users=ROOT),
    Attack("something is mounted by a user", "unshare -Urm mount -t tmpfs none /mnt && echo HIT"),
    Attack("io_uring is set up", call(425, 425)), Attack("keys are asked for", call(250, 219, "0,-3,0,0")),
    Attack("performance counters are opened", call(298, 241, "0,0,-1,-1,8")),
    Attack("a page fault handler is set up", call(323, 282, "0xffffffff")),
    Attack("a file is opened by its handle", call(304, 265, "-1,0,0"), users=ROOT),
    Attack("a kernel module is loaded", call(313, 273, "-1,b'',0"), users=ROOT),
    Attack("the kernel's messages are read", "dmesg >/dev/null && echo HIT", users=ROOT),
    Attack("a netlink socket is made", python("import socket\nsocket.socket(16,3,9)\nprint('HIT')")),
    Attack(
        "characters are put into a terminal",
        python(
            "import pty,fcntl\nos.setsid()\nm,s=pty.openpty()\nfcntl.ioctl(s,0x540e,0)\n"
            f"for n in (0x5412,0x541c,(1<<32)|0x5412):\n r=S({29 if ARM else 16},s,ctypes.c_ulong(n),b'x')\n"
            " if r >= 0 or ctypes.get_errno() != errno.EPERM: print('HIT')"
        )
        .replace("$PY -", "setsid -w $PY -")
        .replace("os.setsid()\n", ""),
    ),
    Attack(
        "the old system calls are used",
        python(
            "import mmap\nm=mmap.mmap(-1,4096,prot=7)\nm.write(bytes.fromhex('b814000000cd80c3'))\n"
            "a=ctypes.addressof(ctypes.c_char.from_buffer(m))\nctypes.CFUNCTYPE(ctypes.c_int)(a)()\nprint('HIT')"
        ),
        needs="/lib64/ld-linux-x86-64.so.2",
    ),
    Attack(
        "the x32 system calls are used", python("S(0x40000000|39)\nprint('HIT')"), needs="/lib64/ld-linux-x86-64.so.2"
    ),
    Attack(
        "a setting of the kernel is opened for writing", ": >>/proc/sys/kernel/core_pattern && echo HIT", users=ROOT
    ),
    Attack(
        "the kernel's emergency key is opened for writing", ": >>/proc/sysrq-trigger && echo HIT", users=ROOT,
        needs="/proc/sysrq-trigger",
    ),
    Attack("a device is made", "mknod d c 1 3 && echo HIT", users=ROOT),
    Attack("root keeps its powers", "grep -q 'CapEff:.*[1-9a-f]' /proc/self/status && echo HIT", users=ROOT),
    Attack("a program may still get powers by being started", "grep -q 'NoNewPrivs:.*0' /proc/self/status && echo HIT"),
    Attack("a file is given away", "touch f && chown 12345 f && echo HIT", users=ROOT),
]  # fmt: skip


CASES = [
    pytest.param(attack, user, id=f"{attack.name} ({user})")
    for attack in ATTACKS
    for user in attack.users
    if user in USERS and Path(attack.needs).exists()
]


@pytest.mark.parametrize(("attack", "run_as"), CASES, indirect=["run_as"])
def test_the_sandbox_holds_where_the_attack_hits_without_it(attack: Attack, run_as: Runner) -> None:
    control = run_as.run(attack.script, None)
    assert "HIT" in control.out, f"the detector is dead: {control}"
    for sandbox in attack.held_by:
        done = run_as.run(attack.script + "\necho 'reached the end'", sandbox, **attack.policy)
        assert "HIT" not in done.out, f"{sandbox}: {done}"
        assert "reached the end" in done.out, f"{sandbox} did not run it: {done}"
        assert ("started" in done.out) == ("started" in control.out), f"{sandbox} did not let it try: {done}"


COPY_IS_WRITTEN = ("git's configuration is written", "git's configuration is linked and written")
"""What is no attack on a copy."""


@pytest.mark.parametrize(("attack", "run_as"), CASES, indirect=["run_as"])
def test_it_holds_as_well_where_a_link_to_a_copy_was_mounted(attack: Attack, run_as: Runner) -> None:
    """Then bubblewrap leaves the last steps to our own program, with the powers for them."""
    for sandbox in WITH_COPIES:
        if sandbox.removesuffix(" with copies") in attack.held_by:
            done = run_as.run(attack.script + "\necho 'reached the end'", sandbox, **attack.policy)
            assert "HIT" not in done.out or attack.name in COPY_IS_WRITTEN, f"{sandbox}: {done}"
            assert "reached the end" in done.out, f"{sandbox} did not run it: {done}"
            assert done.config == "[core]\n"


CONFIG = "cat .git/config >/dev/null && echo mounted"
ON_THE_COPY = {
    "it is changed": "echo x >>.git/config; git config user.name x",
    "it is taken away": f"rm -f .git/config; umount .git/config; umount -l .git/config; {CONFIG}",
    "another file takes its place": "echo x >c; mv -f c .git/config; ln -f c .git/config",
    "it is exchanged": python(
        f"S({276 if ARM else 316},-100,b'src/x',-100,b'.git/config',2)\nos.rename('.git/config', 'c')"
    ),
    "what is below it is mounted elsewhere": "mount --move .git/config src; mount --bind .git src",
    "the mounts are changed in a namespace of one's own": "unshare -Urm umount .git/config; "
    "unshare -m umount .git/config",
    "its namespace is entered": "nsenter -t 1 -U -m --preserve-credentials umount .git/config; nsenter -t 1 -m true",
    "the root folder of the first process is used": "cd /proc/1/root$ROOT/.git && echo x >>config; rm config",
    "the memory of the first process is written": ": >>/proc/1/mem && echo x >>/proc/1/mem; : >>/proc/$PPID/mem",
    "the identities of the namespace are changed": "echo 0 1 1 >/proc/self/uid_map; echo 0 1 1 >/proc/1/uid_map",
    "the bound of namespaces is lifted": "echo 9 >/proc/sys/user/max_user_namespaces",
    "the link leads to the file": "ln -sf $ROOT/.git/config /run/acp-coder-copies/0/config; echo x >>.git/config",
    "the folder of the copies is moved": "mv /run/acp-coder-copies /run/c; mkdir -p /run/acp-coder-copies/0; "
    "ln -s $ROOT/.git/config /run/acp-coder-copies/0/config; echo x >>.git/config",
}


@pytest.mark.parametrize("run_as", USERS, indirect=True)
@pytest.mark.parametrize("name", ON_THE_COPY)
def test_whatever_is_done_with_the_copy_the_file_stays_as_it_was(name: str, run_as: Runner) -> None:
    for sandbox in WITH_COPIES:
        done = run_as.run(f"{{ {ON_THE_COPY[name]}\n}} 2>/dev/null\nreadlink .git/config; echo end", sandbox)
        assert "end" in done.out, f"{sandbox} did not run it: {done}"
        assert done.config == "[core]\n", f"{sandbox}: {done}"
        assert "/run/acp-coder-copies/0/config" in done.out, f"{sandbox}: the link is not there: {done}"


@pytest.mark.parametrize("run_as", USERS, indirect=True)
def test_nothing_is_left_of_the_powers_that_mounted_the_link(run_as: Runner) -> None:
    script = (
        "grep -E 'Cap(Inh|Prm|Eff|Bnd|Amb):' /proc/self/status | grep -v 0000000000000000; "
        "cat /proc/self/uid_map | tr -s ' '; id -u; grep -E 'NoNewPrivs|Seccomp:' /proc/self/status; ls /proc/self/fd"
    )
    for sandbox in WITH_COPIES:
        uid = run_as.run("id -u", None).out.strip()
        done = run_as.run(script, sandbox)
        assert done.out.split() == [uid, "0", "1", uid, "NoNewPrivs:", "1", "Seccomp:", "2", "0", "1", "2", "3"], done
