"""A program that makes a fixed list of system calls and then becomes another one, as a Linux executable.

The last step into a sandbox runs for every command, inside, with nothing else around it. An interpreter takes longer to
start than all the rest of the sandbox, so the calls are written out as machine code: no branches but "on error",
every argument known beforehand. Only the kernel writes to memory, below the stack: what it says there can be compared.

The layout (one read-only segment, loaded at `BASE`): ELF header, code, data. Formats: elf(5), the instruction set
manuals of x86-64 and of AArch64.
"""

from __future__ import annotations

import os
import struct
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from acp_agent.executors.sandbox.syscalls import Arch

BASE: Final = 0x400000
HEADERS: Final = 64 + 56
FAILED: Final = 126
"""Exit code where a call failed that must not: as a shell's where a program cannot be executed."""

OnError = Literal["fail", "go on", "skip"]
"""`fail`: says so and exits; `go on`: as if it had succeeded; `skip`: goes on behind the next `skips` calls."""

MACHINES: Final[dict[Arch, int]] = {"x86_64": 62, "aarch64": 183}
WRITE_AND_EXIT: Final[dict[Arch, tuple[int, int]]] = {"x86_64": (1, 231), "aarch64": (64, 94)}
"""Numbers of `write` and `exit_group`."""

LOAD_X86: Final = (b"\x48\xbf", b"\x48\xbe", b"\x48\xba", b"\x49\xba", b"\x49\xb8", b"\x49\xb9")
"""`mov rdi|rsi|rdx|r10|r8|r9, imm64`."""
ADD_RBX: Final = (b"\x48\x01\xdf", b"\x48\x01\xde", b"\x48\x01\xda", b"\x49\x01\xda", b"\x49\x01\xd8", b"\x49\x01\xd9")
"""`add rdi|..., rbx`."""

WORD_X86: Final = (b"\x48\x8b\xbb", b"\x48\x8b\xb3", b"\x48\x8b\x93", b"\x4c\x8b\x93", b"\x4c\x8b\x83", b"\x4c\x8b\x8b")
"""`mov rdi|..., [rbx + disp32]`."""


class Result(Struct, frozen=True):
    """What the call before returned; only as a first argument."""


class Stack(Struct, frozen=True):
    """The address of a word of the program's start: 0 has the number of arguments, 1 is `argv[0]`, ... Negative: of the
    free memory below."""

    word: int


class Word(Struct, frozen=True):
    """What is in a word of the program's start, so the address of an argument."""

    word: int


class Pointing(Struct, frozen=True):
    """The address of a structure: a number of 8 bytes, then the address of `to`."""

    number: int
    to: bytes


if TYPE_CHECKING:
    Argument = int | bytes | Result | Stack | Word | Pointing
    """Bytes stand for their address."""


class Expect(Struct, frozen=True):
    """What a word below the stack (see `Stack`) has to be once a call has been made, in the bits of `mask`."""

    word: int
    value: int
    mask: int = 0xFFFF_FFFF_FFFF_FFFF


class Call(Struct, frozen=True):
    number: int
    arguments: tuple[Argument, ...]
    on_error: OnError = "fail"
    what: str = ""
    """Its name, for the message where it fails."""
    skips: int = 0
    expects: tuple[Expect, ...] = ()
    """Else it has failed; only where `on_error` is `fail`."""


@lru_cache(maxsize=8)
def executable(arch: Arch, calls: tuple[Call, ...]) -> bytes:
    """The program, whose last call should not return (`execve`, `exit_group`). Kept: a session's commands have the same
    one."""
    write, leave = WRITE_AND_EXIT[arch]
    failing: dict[str, bytes] = {}
    for call in calls:
        if call.on_error == "fail":
            why = call.what if call.expects else f"{call.what} failed"
            words = f"the sandbox could not be completed, so the command was not run: {why}\n"
            failing.setdefault(call.what, words.encode("utf-8", "surrogateescape"))
    stubs = [
        (what, (Call(write, (2, words, len(words)), "go on"), Call(leave, (FAILED,), "go on")))
        for what, words in failing.items()
    ]
    tail = [call for _, stub in stubs for call in stub]
    # All instructions have the same length whatever the numbers are, so places are known before addresses.
    code_of = _x86 if arch == "x86_64" else _arm
    everything = [*calls, *tail]
    starts, at = [], HEADERS + len(code_of.entry)
    for call in everything:
        starts.append(at)
        at += code_of.length(call)
    starts.append(at)
    stub_starts = {what: starts[len(calls) + 2 * number] for number, (what, _) in enumerate(stubs)}
    data, addresses = _data([arg for call in everything for arg in call.arguments], BASE + at + -at % 8)
    code = bytearray(code_of.entry)
    for number, call in enumerate(everything):
        target = None
        if number < len(calls) and call.on_error != "go on":
            target = stub_starts[call.what] if call.on_error == "fail" else starts[number + 1 + call.skips]
        code += code_of.code(call, addresses, starts[number], target)
    code += bytes(-at % 8)
    return _headers(arch, HEADERS + len(code) + len(data)) + bytes(code + data)


def _data(arguments: list[Argument], start: int) -> tuple[bytes, dict[Argument, int]]:
    """What the arguments point to, and where it is."""
    data, addresses = bytearray(), {}

    def put(argument: Argument, content: bytes) -> None:
        data.extend(bytes(-len(data) % 8))  # Structures have to be aligned.
        addresses[argument] = start + len(data)
        data.extend(content)

    structures = [argument for argument in arguments if isinstance(argument, Pointing)]
    texts = [argument for argument in arguments if isinstance(argument, bytes)]
    for text in dict.fromkeys([*texts, *(each.to for each in structures)]):
        put(text, text + b"\0")
    for each in dict.fromkeys(structures):
        put(each, struct.pack("<QQ", each.number, addresses[each.to]))
    return bytes(data), addresses


def _headers(arch: Arch, size: int) -> bytes:
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    head = struct.pack("<HHIQQQIHHHHHH", 2, MACHINES[arch], 1, BASE + HEADERS, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    return ident + head + struct.pack("<IIQQQQQQ", 1, 5, 0, BASE, BASE, size, size, 0x10000)


def _value(argument: Argument, addresses: dict[Argument, int]) -> int:
    if isinstance(argument, (bytes, Pointing)):
        return addresses[argument]
    if isinstance(argument, (Stack, Word)):
        return argument.word * 8 & 0xFFFF_FFFF_FFFF_FFFF
    if isinstance(argument, Result):
        raise ValueError("only a first argument may be the last result")
    return argument & 0xFFFF_FFFF_FFFF_FFFF


class _X86:
    """Arguments in rdi, rsi, rdx, r10, r8, r9; the number and the result in rax; rbx keeps the stack's start."""

    entry = b"\x48\x89\xe3"
    """`mov rbx, rsp`."""

    def length(self, call: Call) -> int:
        lengths: dict[object, int] = {Result: 3, Stack: 13, Word: 7}
        test = 0 if call.on_error == "go on" else 12
        return sum(lengths.get(type(argument), 10) for argument in call.arguments) + 12 + test + 39 * len(call.expects)

    def code(self, call: Call, addresses: dict[Argument, int], start: int, target: int | None) -> bytes:
        code = b""
        for place, argument in enumerate(call.arguments):
            if place == 0 and isinstance(argument, Result):
                code += b"\x48\x89\xc7"  # mov rdi, rax
                continue
            if isinstance(argument, Word):
                code += WORD_X86[place] + struct.pack("<i", _value(argument, addresses))
                continue
            code += LOAD_X86[place] + struct.pack("<Q", _value(argument, addresses))
            code += ADD_RBX[place] if isinstance(argument, Stack) else b""
        code += b"\x48\xb8" + struct.pack("<Q", call.number) + b"\x0f\x05"  # mov rax, number; syscall
        if target is not None:
            code += b"\x48\x3d\x01\xf0\xff\xff\x0f\x83"  # cmp rax, -4095; jae target
            code += struct.pack("<i", target - (start + len(code) + 4))
            for each in call.expects:
                code += b"\x48\x8b\x83" + struct.pack("<i", 8 * each.word)  # mov rax, [rbx + 8 * word]
                code += b"\x48\xb9" + struct.pack("<Q", each.mask) + b"\x48\x21\xc8"  # mov rcx, mask; and rax, rcx
                code += b"\x48\xb9" + struct.pack("<Q", each.value) + b"\x48\x39\xc8"  # mov rcx, value; cmp rax, rcx
                code += b"\x0f\x85"  # jne target
                code += struct.pack("<i", target - (start + len(code) + 4))
        return code


class _Arm:
    """Arguments and result in x0 to x5; the number in x8; x19 keeps the stack's start."""

    entry = struct.pack("<I", 0x910003F3)
    """`mov x19, sp`."""

    def length(self, call: Call) -> int:
        lengths: dict[object, int] = {Result: 0, Stack: 20, Word: 4}
        test = 0 if call.on_error == "go on" else 8
        return sum(lengths.get(type(argument), 16) for argument in call.arguments) + 20 + test + 64 * len(call.expects)

    def code(self, call: Call, addresses: dict[Argument, int], start: int, target: int | None) -> bytes:
        words: list[int] = []
        for place, argument in enumerate(call.arguments):
            if place == 0 and isinstance(argument, Result):
                continue  # It is there already.
            if isinstance(argument, Word):
                words.append(0xF9400000 | argument.word << 10 | 19 << 5 | place)  # ldr x, [x19, #8 * word]
                continue
            words += self._load(place, _value(argument, addresses))
            words += [0x8B130000 | place << 5 | place] if isinstance(argument, Stack) else []  # add x, x, x19
        words += [*self._load(8, call.number), 0xD4000001]  # svc #0
        if target is not None:
            words.append(0xB13FFC1F)  # cmn x0, #4095
            away = (target - (start + 4 * len(words))) // 4
            words.append(0x54000002 | (away & 0x7FFFF) << 5)  # b.cs target
            for each in call.expects:
                words += [*self._load(9, 8 * each.word & 0xFFFF_FFFF_FFFF_FFFF), 0xF8696A60]  # ldr x0, [x19, x9]
                words += [*self._load(10, each.mask), 0x8A0A0000]  # and x0, x0, x10
                words += [*self._load(11, each.value), 0xEB0B001F]  # cmp x0, x11
                away = (target - (start + 4 * len(words))) // 4
                words.append(0x54000001 | (away & 0x7FFFF) << 5)  # b.ne target
        return struct.pack(f"<{len(words)}I", *words)

    def _load(self, register: int, value: int) -> list[int]:
        """`movz` and three `movk`, 16 bits each."""
        parts = [(value >> 16 * part) & 0xFFFF for part in range(4)]
        return [
            (0xF2800000 if part else 0xD2800000) | part << 21 | bits << 5 | register for part, bits in enumerate(parts)
        ]


_x86, _arm = _X86(), _Arm()


def placed(program: bytes, path: Path, stack: ExitStack) -> Path:
    """Where to start the program until the stack is closed: a file or, where none can be executed, one in memory."""
    if not os.statvfs(path.parent).f_flag & os.ST_NOEXEC:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o755), "wb") as file:
            stack.callback(path.unlink, missing_ok=True)
            file.write(program)
        return path
    with open(os.memfd_create(path.name), "wb") as file:
        file.write(program)
        file.flush()
        # What is open for writing cannot be executed.
        descriptor = os.open(f"/proc/self/fd/{file.fileno()}", os.O_RDONLY | os.O_CLOEXEC)
    stack.callback(os.close, descriptor)
    return Path(f"/proc/{os.getpid()}/fd/{descriptor}")
