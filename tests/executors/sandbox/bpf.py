"""The kernel's packet filter, as far as seccomp filters use it: computes a filter's answer to a call."""

import struct


def answer(program: bytes, number: int, arch: int, arguments: tuple[int, ...] = ()) -> int:
    padded = (*arguments, *([0] * (6 - len(arguments))))
    data = struct.pack("<iIQ6Q", number if number < 1 << 31 else number - (1 << 32), arch, 0, *padded)
    steps = list(struct.iter_unpack("=HBBI", program))
    at, accumulator = 0, 0
    while True:
        code, yes, no, value = steps[at]
        at += 1
        match code:
            case 0x20:
                (accumulator,) = struct.unpack_from("<I", data, value)
            case 0x05:
                at += value
            case 0x15:
                at += yes if accumulator == value else no
            case 0x35:
                at += yes if accumulator >= value else no
            case 0x45:
                at += yes if accumulator & value else no
            case 0x06:
                return int(value)
            case _:
                raise AssertionError(f"a step the kernel does not know: {code:#x}")
