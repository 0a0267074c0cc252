"""What of this machine every command sees, and what of it none does. Data, but for the looking whether it is there."""

from __future__ import annotations

import glob
import os
from pathlib import Path

__all__ = ["MASKED_PROC", "READABLE", "READ_ONLY_PROC", "SECRETS", "link_targets", "secrets"]

READABLE = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt"),
    *("/nix/store", "/nix/var/nix/profiles", "/gnu/store", "/run/current-system", "/run/opengl-driver", "/snap"),
    *("/home/linuxbrew/.linuxbrew", "/var/lib/dpkg", "/var/lib/rpm", "/var/lib/pacman", "/var/cache/fontconfig"),
    *("/var/lib/ca-certificates", "/sys/devices/system/cpu", "/sys/devices/system/node"),
    *("/sys/kernel/mm/transparent_hugepage", "/sys/class/drm", "/sys/dev/char"),
)
"""Programs, libraries and settings."""

SECRETS = (
    *("/etc/shadow*", "/etc/gshadow*", "/etc/sudoers*", "/etc/ssh/ssh_host_*_key", "/etc/ssl/private"),
    *("/etc/pki/tls/private", "/etc/letsencrypt", "/etc/security/opasswd", "/etc/krb5.keytab", "/etc/machine-id.key"),
    *("/etc/NetworkManager/system-connections", "/etc/netplan", "/etc/wireguard", "/etc/openvpn", "/etc/ppp"),
    *("/etc/ipsec.secrets", "/etc/ipsec.d/private", "/etc/wpa_supplicant", "/etc/docker/key.json", "/etc/kubernetes"),
    *("/etc/rancher", "/etc/salt/pki", "/etc/puppetlabs", "/etc/cups/ssl", "/etc/polkit-1", "/etc/crypttab*"),
    *("/etc/sssd", "/etc/apt/auth.conf*", "/etc/exim4/passwd.client", "/etc/postfix/sasl", "/etc/mysql/debian.cnf"),
)
"""Patterns of files and folders below those that hold keys. Who is no superuser cannot read most of them anyway."""

READ_ONLY_PROC = tuple(
    f"/proc/{name}" for name in ("sys", "sysrq-trigger", "irq", "bus", "acpi", "scsi", "fs", "driver", "tty", "mtrr")
)
"""Uid 0 may write here even in a /proc of its own and without any power."""

MASKED_PROC = tuple(
    f"/proc/{name}"
    for name in ("kcore", "keys", "key-users", "timer_list", "latency_stats", "sched_debug", "kmsg", "config.gz")
)
"""Memory of the kernel, keys of other people, what other processes do."""

RESOLVERS = ("/etc/resolv.conf", "/etc/localtime", "/etc/hosts", "/etc/mtab", "/etc/ssl/cert.pem", "/etc/ssl/certs")
"""Links out of /etc, often."""


def secrets() -> list[Path]:
    """What of `SECRETS` is there and could be read by this user."""
    found = (path for pattern in SECRETS for path in glob.glob(pattern))
    return sorted(Path(os.path.realpath(path)) for path in found if os.access(path, os.R_OK))


def link_targets() -> list[Path]:
    """Files that links in /etc lead to, outside of the folders everybody sees anyway."""
    targets = []
    for name in RESOLVERS:
        if os.path.islink(name):
            target = Path(os.path.realpath(name))
            inside = any(target.is_relative_to(folder) for folder in READABLE)
            if not inside and not target.is_relative_to("/proc") and target.exists():
                targets.append(target)
    return targets
