"""How much harm a command can do: low, medium or high, whether it changes anything, whether it uses other privileges.

Low: read-only commands, and the project's builds and tests: these run the project's code, but so does everything an
agent does, and a grade that every test run gets says nothing. Medium: commands that change something, and unknown ones.
High: commands that cannot be undone, reach beyond the project, or hide what they do. The grade is for users and for the
modes that ask; the sandbox is what confines a command.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from acp_agent.safety.folders.paths import Roots, real_path
from acp_agent.safety.lines.programs import long_option, short_options, words
from acp_agent.safety.lines.wrappers import ESCALATING, SHELLS, base

Level = Literal["low", "medium", "high"]
ORDER: dict[str, int] = {"low": 0, "medium": 1, "high": 2}


@dataclass(frozen=True)
class Risk:
    level: Level
    mutation: bool
    """Whether it changes something."""
    privesc: bool = False
    """Whether it uses more privileges than the user's own."""
    reasons: tuple[str, ...] = ()


LOOKS = Risk("low", False, reasons=("it only looks",))
UNKNOWN = Risk("medium", True, reasons=("what it does is unknown",))


def combined(risks: Iterable[Risk]) -> Risk:
    """The worst of each. Of nothing: nothing is known."""
    found = list(risks)
    if not found:
        return UNKNOWN
    level = max((risk.level for risk in found), key=ORDER.__getitem__)
    reasons = dict.fromkeys(reason for risk in found if risk.level == level for reason in risk.reasons)
    return Risk(level, any(risk.mutation for risk in found), any(risk.privesc for risk in found), tuple(reasons))


def understated(claimed: str, mutation: bool, privesc: bool, own: Risk) -> str | None:
    """A message for the user if the model claims less than is seen; an unknown claim counts as the lowest."""
    less = []
    if ORDER.get(claimed, 0) < ORDER[own.level]:
        less.append(f"it calls the risk {claimed}, but it looks {own.level} ({'; '.join(own.reasons) or 'unknown'})")
    if own.mutation and not mutation:
        less.append("it claims to change nothing, but it may")
    if own.privesc and not privesc:
        less.append("it claims to use no other privileges, but it does")
    return f"The model understates this command: {'; '.join(less)}." if less else None


# --- one simple command ---------------------------------------------------------------------------------------------


def risk_of(command: Sequence[str], roots: Roots, folders: Iterable[Path], *, looks: bool = False) -> Risk:
    """The risk of the words of one simple command, which `looks` where it is known to do no more."""
    if not command:
        return UNKNOWN
    if looks:
        return LOOKS
    program, arguments = re.sub(r"[\d.]+$", "", base(command[0])) or command[0], list(command[1:])
    if base(command[0]) in HIGH:
        program = base(command[0])
    operands = [argument for argument in arguments if not argument.startswith("-")]
    places = list(folders)
    if program in ESCALATING:
        return Risk("high", True, True, ("it uses another user's privileges",))
    if (reason := HIGH.get(program)) is not None and not _asks_for_help(arguments):
        return Risk("high", True, program in GIVES_RIGHTS, (reason,))
    for row in HIGH_WITH:
        if program in row.programs and row.holds(arguments, operands):
            return Risk("high", True, row.privesc, (row.reason,))
    if program in DELETES and (reason := _deletes_much(arguments, operands, roots, places)):
        return Risk("high", True, reasons=(reason,))
    if program in WRITERS and (reason := _writes_beyond(_targets(program, operands), roots, places)):
        return Risk("high", True, reasons=(reason,))
    if _is_build(program, arguments, operands):
        return Risk("low", False, reasons=("it builds or tests the project",))
    if (reason := _change(program, operands)) is not None:
        return Risk("medium", True, reasons=(reason,))
    return UNKNOWN


def risk_of_writing(target: str | None, roots: Roots, folders: Iterable[Path], shown: str = "") -> Risk:
    """The risk of a redirection that writes."""
    if target is None and shown.startswith(("~", "$HOME", "${HOME}")):
        return Risk("high", True, reasons=(f"it writes to {shown}, outside the project",))
    if target is None:
        return Risk("medium", True, reasons=("it writes to a file that is known only when it runs",))
    if re.match(r"/dev/(?:tcp|udp)/", target):
        return Risk("high", True, reasons=(DEV_TCP,))
    if reason := _writes_beyond([target], roots, list(folders)):
        return Risk("high", True, reasons=(reason,))
    return Risk("medium", True, reasons=("it writes to a file",))


def risk_of_text(line: str) -> Risk | None:
    """The risk seen in the text of a whole line, however it is taken apart."""
    reasons = [reason for pattern, reason in TEXTS if pattern.search(line)]
    return Risk("high", True, reasons=tuple(reasons)) if reasons else None


def _asks_for_help(arguments: Sequence[str]) -> bool:
    return list(arguments) in (["--help"], ["--version"])


def _is_build(program: str, arguments: Sequence[str], operands: Sequence[str]) -> bool:
    if program in ("python", "pypy") and len(arguments) > 1 and arguments[0] == "-m":
        program, arguments = arguments[1], arguments[2:]
        operands = [argument for argument in arguments if not argument.startswith("-")]
    subs = BUILDS.get(program)
    if subs is None:
        return False
    if any(argument.partition("=")[0] in REWRITES for argument in arguments):
        return False
    return not subs or (bool(operands) and all(word in subs for word in operands[: SUB_WORDS.get(program, 1)]))


def _change(program: str, operands: Sequence[str]) -> str | None:
    subs = CHANGES.get(program)
    if subs is None:
        return None
    if not subs:
        return f"`{program}` changes something"
    return f"`{program} {operands[0]}` changes something" if operands and operands[0] in subs else None


def _targets(program: str, operands: Sequence[str]) -> Sequence[str]:
    """The operands that are written: of a copy only the last, of a move all."""
    return operands[-1:] if program in ("cp", "ln", "install", "rsync") else operands


def _deletes_much(
    arguments: Sequence[str], operands: Sequence[str], roots: Roots, folders: Sequence[Path]
) -> str | None:
    if program_forces := long_option(arguments, ("--no-preserve-root",)):
        return "it deletes the whole system" if program_forces else None
    deep = short_options(arguments, "rR") or long_option(arguments, ("--recursive",))
    for operand in operands:
        if operand.strip("./*") == "" or operand.startswith(("~", "$")) or operand in ("*", ".*"):
            return f"it deletes everything in {operand}"
        if deep and re.search(r"[*?\[]", operand):
            return "it deletes everything that matches a pattern"
        for folder in folders or (roots.cwd,):
            path = _real(folder / operand)
            if path is None or not roots.contains(path):
                return f"it deletes {operand}, outside the project"
            if roots.holds_root(path):
                return f"it deletes {operand}, a session folder"
            if roots.rules.protects(path) is not None:
                return f"it deletes {operand}, which other programs trust"
    return None


def _writes_beyond(targets: Iterable[str], roots: Roots, folders: Sequence[Path]) -> str | None:
    for target in targets:
        if target in HARMLESS:
            continue
        for folder in folders or (roots.cwd,):
            path = Path(target) if target.startswith("~") else _real(folder / target)
            if path is None:
                return f"it writes to {target}, which cannot be resolved"
            if not roots.contains(path) and not _is_temporary(path):
                return f"it writes to {target}, outside the project"
            if roots.contains(path) and roots.rules.protects(path) is not None:
                return f"it writes to {target}, which other programs trust"
    return None


def _is_temporary(path: Path) -> bool:
    return any(place in path.parents for place in TEMPORARY)


def _real(path: Path) -> Path | None:
    try:
        return real_path(path)
    except (OSError, ValueError, RuntimeError):
        return None


# --- tables ---------------------------------------------------------------------------------------------------------

HARMLESS = words("/dev/null /dev/stdout /dev/stderr /dev/tty -")
TEMPORARY = (Path("/tmp"), Path("/var/tmp"), Path(os.path.realpath("/tmp")))
DELETES = words("rm unlink shred rmdir srm")
WRITERS = words("cp mv tee ln install touch mkdir truncate rsync rm chmod chown chgrp patch")
INTERPRETERS = SHELLS | words("python python3 perl ruby node php lua deno bun osascript pwsh fish source . eval")
DEV_TCP = "it opens a connection through the shell"

GIVES_RIGHTS = words("visudo setcap chroot nsenter unshare passwd usermod useradd")

HIGH: dict[str, str] = {
    **dict.fromkeys(("dd", "shred", "wipefs", "blkdiscard", "hdparm"), "it writes over disks or files"),
    **dict.fromkeys(
        ("mkfs", "mke2fs", "fdisk", "sfdisk", "parted", "gdisk", "cfdisk", "mkswap", "swapon", "swapoff", "losetup",
         "cryptsetup", "lvremove", "vgremove", "pvremove", "mdadm"), "it changes disks"),
    **{f"mkfs.{kind}": "it changes disks" for kind in ("ext2", "ext3", "ext4", "xfs", "btrfs", "vfat", "fat", "ntfs")},
    **dict.fromkeys(("shutdown", "reboot", "halt", "poweroff", "init", "telinit"), "it stops the machine"),
    **dict.fromkeys(("iptables", "ip6tables", "nft", "ufw", "firewall-cmd"), "it changes the firewall"),
    **dict.fromkeys(("mount", "umount"), "it changes what is mounted"),
    **dict.fromkeys(
        ("useradd", "userdel", "usermod", "adduser", "deluser", "groupadd", "groupdel", "passwd", "chpasswd", "visudo",
         "vipw", "chsh"), "it changes the machine's users"),
    **dict.fromkeys(("crontab", "at", "batch"), "it runs later, unseen"),
    **dict.fromkeys(("insmod", "rmmod", "modprobe", "kexec"), "it changes the kernel"),
    **dict.fromkeys(("chroot", "nsenter", "unshare", "setcap"), "it changes the privileges of programs"),
    **dict.fromkeys(("killall5",), "it kills every process"),
    **dict.fromkeys(("twine",), "it publishes a package"),
}  # fmt: skip


@dataclass(frozen=True)
class _With:
    """A program that is a high risk with some arguments."""

    programs: frozenset[str]
    reason: str
    subs: frozenset[str] = frozenset()
    """Operands of which the first must be one; any where empty."""
    options: frozenset[str] = frozenset()
    """Arguments of which one must be there; none where empty."""
    letters: str = ""
    """The same, in a cluster."""
    operand: str = ""
    """An expression that one operand must match whole."""
    privesc: bool = False

    def holds(self, arguments: Sequence[str], operands: Sequence[str]) -> bool:
        if self.subs and not (operands and operands[0] in self.subs):
            return False
        if self.operand and not any(re.fullmatch(self.operand, word, re.DOTALL) for word in operands):
            return False
        if not self.options and not self.letters:
            return True
        return any(map(self._is_option, arguments)) or short_options(arguments, self.letters)

    def _is_option(self, argument: str) -> bool:
        """Also by an unambiguous beginning, as git and GNU programs take it (`--har`)."""
        name = argument.partition("=")[0]
        return name in self.options or (
            name.startswith("--") and len(name) > 3 and any(option.startswith(name) for option in self.options)
        )


def _w(programs: str, reason: str, subs: str = "", options: str = "", letters: str = "", operand: str = "",
       privesc: bool = False) -> _With:  # fmt: skip
    return _With(words(programs), reason, words(subs), words(options), letters, operand, privesc)


HIGH_WITH: tuple[_With, ...] = (
    _w("chmod chown chgrp", "it changes the permissions of many files", options="--recursive", letters="R"),
    _w("chmod", "it grants a program privileges", operand=r"[ugoa]*\+\w*s\w*|[2467]\d{3}|0[2467]\d{3}", privesc=True),
    _w("kill pkill killall", "it kills every process", operand=r"-?1"),
    _w("kill", "it kills every process", options="-1 -9-1"),
    _w("git", "it overwrites what others have pushed", "push", "--force -f --force-with-lease --mirror --delete", "f"),
    _w("git", "it overwrites what others have pushed", "push", operand=r"\+.*|:.+"),
    _w("git", "it discards changes", "reset", "--hard --merge"),
    _w("git", "it deletes files git does not know", "clean", "--force", "fdxX"),
    _w("git", "it discards changes", "checkout restore", operand=r"\.|\*|:/"),
    _w("git", "it discards changes", "checkout switch", "--force --discard-changes", "f"),
    _w("git", "it rewrites the history", "filter-branch filter-repo update-ref replace"),
    _w("git", "it discards work that git kept", "stash", operand="drop|clear"),
    _w("git", "it discards work that git kept", "reflog", operand="expire|delete"),
    _w("git", "it discards work that git kept", "gc", "--prune"),
    _w("git", "it discards a branch", "branch", "-D"),
    _w("git", "it changes what git runs", "config",
       operand=r"(?i)alias\..*|core\..*|.*\.(?:helper|program|command)|filter\..*"),
    _w("npm pnpm yarn bun", "it publishes a package", "publish unpublish deprecate owner dist-tag"),
    _w("cargo", "it publishes a package", "publish yank owner"),
    _w("poetry uv pdm hatch flit", "it publishes a package", "publish"),
    _w("gem", "it publishes a package", "push yank"),
    _w("mvn gradle", "it publishes a package", "deploy publish"),
    _w("docker podman", "it gives a container host access", "run create exec", "--privileged --pid --cap-add --device "
       "--userns --security-opt", privesc=True),
    _w("docker podman", "it deletes containers' data", "system volume image container", operand="prune|rm"),
    _w("docker podman", "it gives a container files of the machine", "run create", "-v --volume --mount"),
    _w("docker podman", "it publishes an image", "push"),
    _w("kubectl", "it changes a cluster", "delete drain cordon exec apply replace patch scale rollout edit"),
    _w("helm", "it changes a cluster", "install upgrade uninstall delete rollback"),
    _w("terraform tofu pulumi", "it changes machines elsewhere", "apply destroy import up"),
    _w("aws gcloud az", "it changes machines elsewhere",
       operand=r"(?:delete|terminate|remove|rm|destroy|create|put).*"),
    _w("systemctl service", "it changes the machine's services", "stop restart disable mask poweroff reboot halt "
       "kill isolate enable"),
    _w("history", "it hides what was done", letters="cdw"),
    _w("nc ncat netcat", "it exposes a program to the network", options="--exec --sh-exec --lua-exec", letters="ec"),
    _w("socat", "it exposes a program to the network", operand=r"(?i).*(?:exec|system):.*"),
    _w("find fd fdfind", "it deletes what it finds", options="-delete"),
    _w("find", "it runs a program on what it finds", options="-exec -execdir",
       operand=r"rm|shred|dd|sh|bash|chmod|chown"),
    _w("curl wget", "it sends a file or data", options="--upload-file --data-binary --post-file --form -T -F -d --data "
       "--data-raw --json --post-data --data-urlencode --body-file"),
    _w("sysctl", "it changes the kernel", options="-w --write --system --load", letters="wp"),
    _w("sysctl", "it changes the kernel", operand=r".*=.*"),
    _w("truncate", "it empties files", options="-s0 --size", letters="s"),
    _w("dmesg journalctl", "it deletes records", options="--clear -C --vacuum-size --vacuum-time --vacuum-files"),
    _w("date", "it sets the clock", options="-s --set"),
    _w("ip ifconfig route", "it changes the network", operand=r"add|del|delete|set|change|replace|flush|up|down"),
    _w("apt apt-get dnf yum pacman apk zypper", "it uninstalls programs",
       "remove purge autoremove erase del"),
    _w("rsync", "it deletes at its target", options="--delete --delete-after --delete-before --remove-source-files"),
    _w("gh", "it changes a project that others see", "repo release secret ssh-key", operand="delete|edit|archive|set"),
)  # fmt: skip

TEXTS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?<![\w.:])([\w:.]{1,40})\s*\(\)\s*\{[^{}]{0,200}\1\s*\|\s*\1\s*&"),
     "it floods the machine with processes"),
    (re.compile(r"/dev/(?:tcp|udp)/"), DEV_TCP),
    (re.compile(r"HISTFILE=|HISTSIZE=0|unset\s+HIST|\.bash_history|\.zsh_history"), "it hides what was done"),
    (re.compile(r">\s*/dev/(?:sd|hd|nvme|vd|mmcblk|disk|mem|kmem)"), "it writes over disks or files"),
)  # fmt: skip

REWRITES = words("--fix --unsafe-fixes --write -w -u --update --updateSnapshot --snapshot-update --inplace -i")

SUB_WORDS = {"make": 99, "gmake": 99, "just": 99, "task": 99}
TASKS = words("all build test tests check lint typecheck format-check ci docs doc help coverage unit")

BUILDS: dict[str, frozenset[str]] = {
    "cargo": words("build check test clippy doc tree metadata bench nextest b c t"),
    "go": words("build test vet list doc version"),
    "npm": words("test t ls list outdated view"),
    "pnpm": words("test t build lint typecheck list outdated"),
    "yarn": words("test build lint typecheck list outdated"),
    "bun": words("test build"),
    "make": TASKS,
    "gmake": TASKS,
    "just": TASKS,
    "task": TASKS,
    "gradle": words("build test check assemble"),
    "gradlew": words("build test check assemble"),
    "mvn": words("compile test verify package validate"),
    "dotnet": words("build test"),
    "ruff": words("check"),
    **dict.fromkeys(
        ("pytest", "mypy", "pyright", "flake8", "pylint", "tsc", "jest", "vitest", "eslint", "shellcheck", "ctest",
         "unittest", "gcc", "g++", "clang", "rustc", "javac"), frozenset[str](),
    ),
}  # fmt: skip
"""Programs that build and test, with the sub-commands that do; all of a program where none is named."""

CHANGES: dict[str, frozenset[str]] = {
    "git": words(
        "add commit push pull fetch checkout switch restore merge rebase stash tag branch cherry-pick revert reset rm "
        "mv init clone apply am clean config submodule worktree remote"
    ),
    **dict.fromkeys(
        ("npm", "pnpm", "yarn", "bun", "pip", "uv", "poetry", "cargo", "gem", "go", "brew", "apt", "apt-get", "dnf",
         "yum", "pacman", "apk", "conda"),
        words("install i ci add remove uninstall update upgrade sync lock get mod fmt fix clean run init new"),
    ),
    **dict.fromkeys(
        ("mkdir", "mv", "cp", "rm", "touch", "ln", "rmdir", "tee", "sed", "patch", "chmod", "chown", "unzip", "tar",
         "install", "truncate", "rsync", "kill", "pkill", "killall", "black", "isort", "prettier", "rustfmt", "gofmt"),
        frozenset[str](),
    ),
}  # fmt: skip
"""Programs that change something that can be taken back; all of a program where no sub-command is named."""
