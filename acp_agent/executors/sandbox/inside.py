"""Runs last in the sandbox: drops its remaining privileges, then execs the command.

A separate program (`python -I -S inside.py KEY VALUE... -- program argument...`), started for every command: it imports
next to nothing. Keys: `spec` (a file with further keys and values, each ended by a NUL), `handled` and `scoped` (the
rights Landlock decides), `allow` (`RIGHTS:PATH`), `processes` (the most of this user's here), `filter` (a seccomp
filter to load), `caps` (`drop`: give up root's powers for good). Whatever fails, the command is not run.
"""

import ctypes
import os
import resource
import sys

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
PATH_BENEATH = 1
SET_SECCOMP, CAPBSET_DROP, SET_SECUREBITS, SET_NO_NEW_PRIVS, CAP_AMBIENT = 22, 24, 28, 38, 47
FILTER_MODE, AMBIENT_CLEAR_ALL = 2, 4
NO_ROOT_FOR_GOOD = 0b11 | 0b1100 | 0b11000000
"""No capabilities from being uid 0, none kept over a change of it, none raised, each locked."""
FILE_RIGHTS = 0b1100000000000111
"""Execute, write, read, truncate, device control: what a rule on a file may hold."""
KINDS = 0o170000
FOLDER = 0o040000

libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def control(option: int, second: object = 0, third: object = 0) -> int:
    return int(libc.prctl(option, second, third, 0, 0))


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


class PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = [("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32)]


def landlock(handled: int, scoped: int, rules: list[str]) -> None:
    attributes = (ctypes.c_uint64 * 3)(handled, 0, scoped)
    size = 24 if scoped else 8
    ruleset = check(
        libc.syscall(CREATE_RULESET, ctypes.byref(attributes), ctypes.c_size_t(size), 0), "landlock_create_ruleset"
    )
    for rule in rules:
        rights, _, path = rule.partition(":")
        try:
            parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except (FileNotFoundError, PermissionError, NotADirectoryError):
            continue  # What cannot be reached needs no permission.
        allowed = int(rights) & handled
        if os.fstat(parent).st_mode & KINDS != FOLDER:
            allowed &= FILE_RIGHTS
        if allowed:
            beneath = PathBeneath(allowed, parent)
            check(
                libc.syscall(ADD_RULE, ruleset, PATH_BENEATH, ctypes.byref(beneath), 0), f"landlock_add_rule for {path}"
            )
        os.close(parent)
    check(libc.syscall(RESTRICT_SELF, ruleset, 0), "landlock_restrict_self")
    os.close(ruleset)


def drop_capabilities() -> None:
    control(CAP_AMBIENT, AMBIENT_CLEAR_ALL)
    if os.geteuid() == 0:
        check(control(SET_SECUREBITS, NO_ROOT_FOR_GOOD), "prctl(PR_SET_SECUREBITS)")
    number = 0
    while control(CAPBSET_DROP, number) == 0:
        number += 1


def limit_processes(most: int) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(resource.RLIMIT_NPROC, (most, most))


def main(arguments: list[str]) -> None:
    end = arguments.index("--")  # No key or value is this.
    words, command = arguments[:end], arguments[end + 1 :]
    settings: dict[str, str] = {}
    rules: list[str] = []
    while words:
        key, value, *words = words
        if key == "spec":
            with open(value, "rb") as file:
                words = [os.fsdecode(word) for word in file.read().split(b"\0")[:-1]] + words
        elif key == "allow":
            rules.append(value)
        else:
            settings[key] = value
    bpf = b""
    if "filter" in settings:
        with open(settings["filter"], "rb") as file:
            bpf = file.read()
    if "processes" in settings:
        limit_processes(int(settings["processes"]))
    if "caps" in settings:
        drop_capabilities()
    check(control(SET_NO_NEW_PRIVS, 1), "prctl(PR_SET_NO_NEW_PRIVS)")
    if "handled" in settings:
        landlock(int(settings["handled"]), int(settings.get("scoped", "0")), rules)
    if bpf:
        program = Program(len(bpf) // 8, bpf)
        check(control(SET_SECCOMP, FILTER_MODE, ctypes.byref(program)), "prctl(PR_SET_SECCOMP)")
    os.closerange(3, 1 << 16)
    os.execvp(command[0], command)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (OSError, ValueError) as error:
        os.write(2, f"the sandbox could not be completed, so the command was not run: {error}\n".encode())
        os._exit(126)
