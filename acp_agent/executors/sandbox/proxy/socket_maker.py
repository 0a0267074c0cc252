"""Runs in the commands' network: makes a TCP socket there whenever the agent asks, and hands it out.

Its text is given to a bare interpreter (`-I -S -c`), so it imports nothing but C modules. A socket belongs to
the network it was made in, whoever uses it. It ends with the agent, whose end closes its stdin.
"""

import _socket
import sys

FAMILIES = {b"4": _socket.AF_INET, b"6": _socket.AF_INET6}


def serve() -> None:
    agent = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM, 0, 0)
    while family := agent.recv(1):
        made = _socket.socket(FAMILIES[family], _socket.SOCK_STREAM)
        number = made.fileno().to_bytes(4, sys.byteorder)
        agent.sendmsg([family], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, number)])
        made.close()


if __name__ == "__main__":
    serve()
