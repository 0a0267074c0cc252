"""Paths of this machine that every command sees, and those that none does. Data, apart from existence checks."""

from __future__ import annotations

import glob
import os
import sys
import time
from functools import lru_cache
from pathlib import Path

READABLE = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt"),
    *("/nix/store", "/nix/var/nix/profiles", "/gnu/store", "/run/current-system", "/run/opengl-driver", "/snap"),
    *("/home/linuxbrew/.linuxbrew", "/var/lib/dpkg", "/var/lib/rpm", "/var/lib/pacman"),
    *("/var/lib/ca-certificates", "/sys/devices/system/cpu", "/sys/devices/system/node"),
)
"""Programs, libraries and settings."""

SECRETS = (
    *("/etc/shadow*", "/etc/gshadow*", "/etc/sudoers*", "/etc/ssh/ssh_host_*_key", "/etc/ssl/private"),
    *("/etc/pki/tls/private", "/etc/letsencrypt", "/etc/security/opasswd", "/etc/krb5.keytab"),
    *("/etc/NetworkManager/system-connections", "/etc/netplan", "/etc/wireguard", "/etc/openvpn", "/etc/ppp"),
    *("/etc/ipsec.secrets", "/etc/ipsec.d/private", "/etc/wpa_supplicant", "/etc/docker/key.json", "/etc/kubernetes"),
    *("/etc/rancher", "/etc/salt/pki", "/etc/puppetlabs", "/etc/cups/ssl", "/etc/crypttab*"),
    *("/etc/sssd", "/etc/apt/auth.conf*", "/etc/exim4/passwd.client", "/etc/postfix/sasl", "/etc/mysql/debian.cnf"),
)
"""Patterns of files and folders below those that contain keys. Most are readable only by root anyway."""

READ_ONLY_PROC = ("/proc/sys", *(f"/proc/{name}" for name in ("sysrq-trigger", "irq", "bus", "acpi", "scsi", "fs")))
"""Uid 0 may write here even in a /proc of its own and without any power; nobody else may write but in the first."""

MASKED_PROC = tuple(f"/proc/{name}" for name in ("kcore", "keys", "timer_list", "latency_stats", "sched_debug", "kmsg"))
"""Kernel memory, other users' keys, other processes' activity: what only uid 0 may read."""

SECONDS = 30
"""Seconds the result is cached: checking costs more than a command."""

RESOLVERS = ("/etc/resolv.conf", "/etc/localtime", "/etc/hosts", "/etc/mtab", "/etc/ssl/cert.pem", "/etc/ssl/certs")
"""Links out of /etc, often."""


def secrets() -> tuple[Path, ...]:
    """Those of `SECRETS` that exist and this user could read."""
    return _secrets(now())


def link_targets() -> tuple[Path, ...]:
    """Targets of links in /etc, outside the folders that are visible anyway."""
    return _link_targets(now())


def readable() -> tuple[tuple[Path, bool], ...]:
    """Those of `READABLE` that exist, and whether each is a link; and every link at the top, so that what is known by
    two names keeps both."""
    return _readable(now())


def own_python() -> tuple[Path, ...]:
    """The installation of this process's Python, if it can be read: virtual environments, and language servers in them,
    need it."""
    path = Path(sys.base_prefix).resolve()
    return (path,) if os.access(path, os.R_OK | os.X_OK) else ()


def now() -> int:
    """The time, for what is kept for `SECONDS`."""
    return int(time.monotonic() / SECONDS)


@lru_cache(maxsize=1)
def _secrets(now: int) -> tuple[Path, ...]:
    found = (path for pattern in SECRETS for path in glob.glob(pattern))
    return tuple(sorted(Path(os.path.realpath(path)) for path in found if os.access(path, os.R_OK)))


@lru_cache(maxsize=1)
def _link_targets(now: int) -> tuple[Path, ...]:
    targets = []
    for name in RESOLVERS:
        if os.path.islink(name):
            target = Path(os.path.realpath(name))
            inside = any(target.is_relative_to(folder) for folder in READABLE)
            if not inside and not target.is_relative_to("/proc") and os.path.exists(target):
                targets.append(target)
    return tuple(targets)


@lru_cache(maxsize=1)
def _readable(now: int) -> tuple[tuple[Path, bool], ...]:
    with os.scandir("/") as entries:
        found = {Path(entry.path): True for entry in entries if entry.is_symlink()}
    for path in map(Path, READABLE):
        if path not in found and os.path.exists(path) and os.path.realpath(path.parent) == str(path.parent):
            found[path] = os.path.islink(path)
    return tuple(found.items())
