"""The sandbox of macOS: `sandbox-exec` with a profile that denies by default.

The profile is checked as text only; it has not been run on a Mac by the tests.
"""

from __future__ import annotations

import contextlib
import os
import platform
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from acp_agent.errors import ExecutorError
from acp_agent.executors.sandbox.base import Confined, Invocation, Proxied, SandboxKind, SandboxPolicy
from acp_agent.lazy import load

if TYPE_CHECKING:
    from acp_agent.config.safety_settings import SandboxConfig
    from acp_agent.executors.sandbox.proxy.ways import Way

MACHINE_LOOPBACK = "acp_agent.executors.sandbox.proxy.ways:MachineLoopback"
PROGRAM = Path("/usr/bin/sandbox-exec")

SYSTEM = (
    *("/usr", "/bin", "/sbin", "/System", "/Library", "/Applications/Xcode.app", "/opt", "/nix/store", "/private/etc"),
    *("/private/var/db/timezone", "/private/var/db/dyld", "/private/var/select", "/private/var/db/xcode_select_link"),
)
SECRETS = ("/private/etc/master.passwd", "/private/etc/sudoers", "/private/etc/ssh", "/Library/Keychains")
DEVICES = ("null", "zero", "random", "urandom", "tty", "fd", "dtracehelper", "stdin", "stdout", "stderr")
TWINS = ("/etc", "/tmp", "/var")
"""Links into /private: a rule must name the real place, a program may name either."""

SERVICES = (
    *("com.apple.system.opendirectoryd.libinfo", "com.apple.system.opendirectoryd.membership"),
    *("com.apple.system.logger", "com.apple.system.notification_center", "com.apple.bsd.dirhelper"),
    *("com.apple.SystemConfiguration.configd", "com.apple.trustd", "com.apple.trustd.agent"),
    *("com.apple.xcode.CommandLineTools", "com.apple.coreservices.launchservicesd"),
)
NETWORK_SERVICES = ("com.apple.dnssd.service", "com.apple.mDNSResponder", "com.apple.networkd")

HEAD = """\
(version 1)
(deny default)
(allow process-exec process-fork)
(allow signal (target same-sandbox))
(allow process-info* (target same-sandbox))
(allow sysctl-read)
(allow ipc-posix-sem)
(allow pseudo-tty)
(allow file-read-metadata)
(allow file-read* (literal "/"))
"""
"""Names and sizes may be seen everywhere: every path is looked up part by part."""


class Seatbelt(Struct, frozen=True):
    kind: SandboxKind = "seatbelt"

    def words(self) -> str:
        return "sandbox-exec (Seatbelt)"

    def way(self, user: Mapping[str, Any] | None) -> Way | None:
        made: Way = load(MACHINE_LOOPBACK)(user)
        return made

    def confine(self, invocation: Invocation, policy: SandboxPolicy, folder: Path) -> Confined:
        with contextlib.ExitStack() as stack:
            scratch = policy.scratch or folder
            for name in ("tmp", "home"):
                (scratch / name).mkdir(mode=0o700, exist_ok=True)
            file = folder / f"profile-{uuid.uuid4().hex}.sb"
            stack.callback(file.unlink, missing_ok=True)
            file.write_text(profile(policy, scratch), encoding="utf-8")
            env = {**invocation.env, "TMPDIR": str(scratch / "tmp")}
            if policy.home is not None and not any(policy.home.is_relative_to(path) for path in policy.writable):
                env["HOME"] = str(scratch / "home")
            argv = (str(PROGRAM), "-f", str(file), *invocation.argv)
            return Confined(argv, invocation.cwd, env, cleanup=stack.pop_all().close)


def profile(policy: SandboxPolicy, scratch: Path | None) -> str:
    """The profile. The last matching rule wins, so hidden paths come last."""
    own = [] if scratch is None else [scratch / "tmp", scratch / "home"]
    lines = [HEAD.rstrip()]
    lines += _rule("allow file-read* file-map-executable", [*map(Path, SYSTEM), *policy.readable])
    lines += _rule("allow file-read* file-write* file-map-executable", [*policy.writable, *own])
    lines += _rule("allow file-read* file-write* file-ioctl", [Path("/dev", name) for name in DEVICES])
    lines.append('(allow file-read* file-write* file-ioctl (regex #"^/dev/ttys[0-9]+$"))')
    services = SERVICES + (NETWORK_SERVICES if policy.network == "all" else ())
    lines.append("(allow mach-lookup\n" + "\n".join(f"  (global-name {_quoted(name)})" for name in services) + ")")
    if isinstance(policy.network, Proxied):
        lines.append(f'(allow network-outbound (remote ip "localhost:{policy.network.port}"))')
        lines.append('(allow network-bind network-inbound (local ip "localhost:*"))')
        lines.append("(allow system-socket)")
    if policy.network == "all":
        lines.append("(allow network* (local ip) (remote ip))")
        lines.append('(allow network-outbound (literal "/private/var/run/mDNSResponder"))')
        lines.append("(allow system-socket)")
    if policy.unix_sockets:
        lines.append("(allow network* (local unix-socket) (remote unix-socket))")
    # Also no folder above a protected path may be renamed or removed.
    lines += _rule("deny file-write*", policy.protected)
    above = {
        parent
        for path in policy.protected
        for parent in path.parents
        if any(parent.is_relative_to(root) for root in policy.writable)
    }
    lines += _rule("deny file-write-unlink", sorted(above), kind="literal")
    lines += _rule("deny file-read* file-write*", [*map(Path, SECRETS), *policy.hidden])
    return "\n".join(lines) + "\n"


def _rule(words: str, paths: Iterable[Path], kind: str = "subpath") -> list[str]:
    places = [f"  ({kind} {_quoted(name)})" for path in paths for name in _names(path)]
    return [f"({words}\n" + "\n".join(places) + ")"] if places else []


def _names(path: Path) -> list[str]:
    name = str(path)
    for twin in TWINS:
        if path.is_relative_to(twin):
            return [name, "/private" + name]
        if path.is_relative_to("/private" + twin):
            return [name, name.removeprefix("/private")]
    return [name]


def _quoted(text: str) -> str:
    if any(ord(letter) < 32 for letter in text):
        raise ExecutorError(f"the path {text!r} cannot be written into a sandbox profile")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def find(config: SandboxConfig) -> Seatbelt:
    """Raises ExecutorError if this is not a Mac."""
    if platform.system() != "Darwin":
        raise ExecutorError("sandbox-exec exists only on macOS")
    if not os.access(PROGRAM, os.X_OK):
        raise ExecutorError(f"{PROGRAM} does not exist")
    return Seatbelt()
