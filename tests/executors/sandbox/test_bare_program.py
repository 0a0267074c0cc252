"""Programs of system calls: run where this machine can, and read instruction by instruction for the other one."""

import os
import platform
import struct
import subprocess
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

from acp_agent.executors.sandbox.bare_program import (
    BASE,
    Call,
    Expect,
    Pointing,
    Result,
    Stack,
    Word,
    executable,
    placed,
)

NO_SUCH, MASK = 2, 0xFFFF_FFFF_FFFF_FFFF


def calls(open_at: int, dup: int, write: int, execute: int) -> tuple[Call, ...]:
    return (
        Call(open_at, (-100, b"/no/such/file", 0, 0), "skip", "openat", skips=1),
        Call(write, (1, b"wrong\n", 6), "fail", "write"),
        Call(open_at, (-100, b"/etc/passwd", 0, 0), "skip", "openat", skips=1),
        Call(dup, (Result(), 60, 0), "fail", "dup3"), Call(write, (1, b"right\n", 6), "fail", "write"),
        Call(execute, (b"/no/such/program", Stack(2), Stack(5)), "go on", "execve"),
        Call(execute, (b"/usr/bin/env", Stack(2), Stack(5)), "fail", "execve"),
    )  # fmt: skip


@pytest.mark.skipif(platform.machine() != "x86_64", reason="its instructions are x86-64's")
def test_a_program_makes_its_calls_and_becomes_the_command(tmp_path: Path) -> None:
    (program := tmp_path / "program").write_bytes(executable("x86_64", calls(257, 292, 1, 59)))
    program.chmod(0o755)
    done = subprocess.run([program, "env", "A=1"], capture_output=True, text=True, env={"B": "2"})
    assert (done.returncode, done.stdout, done.stderr) == (0, "right\nB=2\nA=1\n", "")
    program.write_bytes(executable("x86_64", (*calls(257, 292, 1, 59)[:-1], Call(59, (b"/x", 0, 0), "fail", "execve"))))
    done = subprocess.run([program, "env", "A=1"], capture_output=True, text=True, env={})
    assert done.returncode == 126 and done.stderr.endswith("so the command was not run: execve failed\n")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="its instructions are x86-64's")
def test_an_argument_of_the_program_may_be_one_of_a_call(tmp_path: Path) -> None:
    program = tmp_path / "program"
    made = [Call(1, (1, Word(place), 3), "fail", "write") for place in (2, 3)]
    made += [Call(1, (Word(0), b"!", 1), "go on"), Call(231, (0,), "go on")]
    program.write_bytes(executable("x86_64", tuple(made)))
    program.chmod(0o755)
    assert subprocess.run([program, "one", "two"], capture_output=True, text=True).stdout == "onetwo"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="its instructions are x86-64's")
@pytest.mark.parametrize("flags", [0, os.ST_NOEXEC], ids=["file", "in memory"])
def test_a_program_is_placed_where_it_can_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: int):
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=flags))
    with ExitStack() as stack:
        path = placed(executable("x86_64", (Call(231, (7,), "go on"),)), tmp_path / "program", stack)
        assert path.is_relative_to("/proc") == bool(flags)
        assert subprocess.run([path]).returncode == 7
    assert not path.exists()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="its instructions are x86-64's")
def test_what_a_call_wrote_is_compared(tmp_path: Path) -> None:
    """`stat` of x86-64: the device, then the inode."""
    found, program = tmp_path.stat(), tmp_path / "program"
    for device, inode, status in ((found.st_dev, found.st_ino, 7), (found.st_dev, found.st_ino + 1, 126)):
        expected = (Expect(-64, device), Expect(-63, inode & 0xFFFF, 0xFFFF))
        called = Call(4, (bytes(tmp_path), Stack(-64)), "fail", "it changed", expects=expected)
        program.write_bytes(executable("x86_64", (called, Call(231, (7,), "go on"))))
        program.chmod(0o755)
        done = subprocess.run([program], capture_output=True, text=True)
        assert (done.returncode, done.stderr.endswith("was not run: it changed\n")) == (status, status == 126)


class Arm:
    """Just the instructions that there are, and a kernel that opens /etc/passwd and starts /usr/bin/env."""

    STACK = 0x7F_0000
    WORDS = (3, 0x7F_1000, 0x7F_1010, 0x7F_1020)

    def __init__(self, program: bytes) -> None:
        self.memory = program
        self.registers = [0] * 31
        self.made: list[tuple[int, object, object]] = []
        self.below: dict[int, int] = {}

    def text(self, address: int) -> object:
        if not BASE <= address < BASE + len(self.memory):
            return address
        return self.memory[address - BASE :].partition(b"\0")[0]

    def run(self) -> None:
        registers, carry, differ = self.registers, False, False
        (at,) = struct.unpack_from("<Q", self.memory, 24)
        while len(self.made) < 20:
            (word,) = struct.unpack_from("<I", self.memory, at - BASE)
            at += 4
            if word == 0x910003F3:
                registers[19] = self.STACK
            elif word >> 23 in (0b110100101, 0b111100101):  # movz, movk
                shift = (word >> 21 & 3) * 16
                kept = 0 if word >> 29 == 0b110 else registers[word & 31] & ~(0xFFFF << shift)
                registers[word & 31] = kept | (word >> 5 & 0xFFFF) << shift
            elif word & 0xFFFFFC00 == 0x8B130000:
                registers[word & 31] = registers[word >> 5 & 31] + registers[19]
            elif word & 0xFFC003E0 == 0xF9400260:
                registers[word & 31] = self.WORDS[word >> 10 & 0xFFF]
            elif word == 0xB13FFC1F:
                carry = registers[0] + 4095 > MASK
            elif word & 0xFF00001E == 0x54000000 | 2 * (word >> 1 & 1):  # b.ne, b.cs
                away = (word >> 5 & 0x7FFFF) - (1 << 19 if word & 1 << 23 else 0)
                at += 4 * away - 4 if (differ if word & 1 else carry) else 0
            elif word == 0xF8696A60:
                registers[0] = self.below[registers[9]]
            elif word == 0x8A0A0000:
                registers[0] &= registers[10]
            elif word == 0xEB0B001F:
                differ = registers[0] != registers[11]
            else:
                assert word == 0xD4000001, hex(word)
                first, second = self.text(registers[0]), self.text(registers[1])
                self.made.append((registers[8], first, second))
                if registers[8] == 94 or first == b"/usr/bin/env":
                    return
                registers[0] = 7 if b"/etc/passwd" in (first, second) or first == 7 else -NO_SUCH & MASK
                if registers[8] == 64:
                    registers[0] = registers[2]


def test_the_program_of_the_other_architecture_makes_the_same_calls() -> None:
    machine = Arm(executable("aarch64", calls(56, 24, 64, 221)))
    machine.run()
    here = -100 & MASK
    assert machine.made == [
        (56, here, b"/no/such/file"), (56, here, b"/etc/passwd"), (24, 7, 60), (64, 1, b"right\n"),
        (221, b"/no/such/program", Arm.STACK + 16), (221, b"/usr/bin/env", Arm.STACK + 16),
    ]  # fmt: skip
    machine = Arm(executable("aarch64", (Call(64, (1, Word(2), 3), "fail", "write"), Call(94, (0,), "go on"))))
    machine.run()
    assert machine.made == [(64, 1, Arm.WORDS[2]), (94, 0, Arm.WORDS[2])]
    machine = Arm(executable("aarch64", (*calls(56, 24, 64, 221)[:-1], Call(221, (b"/x", 0, 0), "fail", "execve"))))
    machine.run()
    assert machine.made[-2][:2] == (64, 2) and machine.made[-1][:2] == (94, 126)


@pytest.mark.parametrize(("inode", "ended"), [(0x1234, 0), (0x1235, 126)])
def test_the_other_architecture_compares_too(inode: int, ended: int) -> None:
    expected = (Expect(-64, 9), Expect(-63, 0x1234, 0xFFFF))
    called = Call(79, (-100, b"/etc/passwd"), "fail", "it changed", expects=expected)
    machine = Arm(executable("aarch64", (called, Call(94, (0,), "go on"))))
    machine.below = {-512 & MASK: 9, -504 & MASK: 0xF0000 | inode}
    machine.run()
    assert machine.made[-1][:2] == (94, ended)


def test_a_structure_holds_the_address_of_what_it_points_to() -> None:
    filter_ = b"\x06\0\0\0\0\0\xff\x7f"
    program = executable("x86_64", (Call(157, (22, 2, Pointing(1, filter_)), "fail", "prctl"),))
    at = program.index(struct.pack("<Q", 1), program.index(filter_))
    (address,) = struct.unpack_from("<Q", program, at + 8)
    assert program[address - BASE :].startswith(filter_)
    assert address % 8 == at % 8 == 0
