"""What is sent to a place: POSIX `sh`, with everything a command needs in it.

The shell over there gets it on stdin (`READ_IT`), so that no value is ever on a command line. It says its process
group, runs the command, and ends both streams with a marker that nobody else knows; on stderr a trailer follows: exit
code, working directory, exported variables. So no exit code is guessed from that of the program that brought us there,
and an end is seen although a child in the background holds the streams.
"""

from __future__ import annotations

import re
import shlex
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from acp_agent.executors.base import Command, shell_options
from acp_agent.executors.marked import MARK
from acp_agent.executors.places.base import There
from acp_agent.executors.shell_state import load_state, with_state
from acp_agent.executors.start import of_its_own

READ_IT = 'eval "$(cat)"'

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
READ_ONLY = frozenset(("UID", "EUID", "PPID", "SHELLOPTS", "BASHOPTS", "BASH_VERSINFO"))
"""Variables that some shells let nobody set."""

STATES = "state"
"""Of our folder there: what confined commands may write for their shell's state."""

STARTER = r"""
trap : TERM HUP INT
exec 3>&2 2>/dev/null
printf '\036{nonce}B%s\n' "$$" >&3
(umask 077; set -C; mkdir -p {scratch}{store}{put})
( {exports}
cd -- {cwd} 2>&3 && exec {argv} 2>&3 3>&-; exit 126 ) </dev/null
c=$?
printf '\036{nonce}'
printf '\036{nonce}E%s\036{nonce}' "$c" >&3
{ {told}; } >&3
printf '\036{nonce}' >&3
rm -f {state} {state}.cwd {program}
exit "$c"
"""
"""Its own messages (`Terminated`) are nobody's."""

FINISH = r"""
if printf 'a\0b\n' | grep -q b; then
  left() { grep -l "MARK=$1" /proc/[0-9]*/environ 2>/dev/null | tr -cd '0-9\n'; }
else
  left() {
    for f in /proc/[0-9]*/environ; do
      if tr '\0' '\n' <"$f" 2>/dev/null | grep -q "^MARK=$1"; then f=${f%/environ}; echo "${f##*/}"; fi
    done 2>/dev/null
  }
fi
there() { { [ "$2" != 0 ] && kill -0 "-$2" 2>/dev/null; } || [ -n "$(left "$1")" ]; }
pause() { sleep 0.02 2>/dev/null || sleep 1; }
finish() {
  i=0
  if [ "$2" != 0 ]; then
    kill -TERM "-$2" 2>/dev/null
    while [ $i -lt 5 ] && there "$1" "$2"; do i=$((i+1)); pause; done
  fi
  i=0
  while there "$1" "$2"; do
    i=$((i+1)); [ $i -lt 50 ] || return 1
    p=$(left "$1"); [ -z "$p" ] || kill -KILL $p 2>/dev/null
    [ $i -lt 4 ] || [ "$2" = 0 ] || kill -KILL "-$2" 2>/dev/null
    pause
  done
}
""".replace("MARK", MARK)
"""Functions of a shell: `finish MARK GROUP` ends what carries a mark in its environment, and what is in the command's
process group. Not every `grep` reads beyond a NUL byte."""

REAPER = f"""
m=$1 t=$2
{FINISH}
while read -r mark group; do
  if finish "$mark" "$group"; then echo gone; else echo left; fi
done
finish "$m" 0
rm -rf "$t"
"""
"""Each line that it reads is one order, `MARK GROUP`. At the end of stdin, which is the end of the agent, it ends all
of the session's."""

PROBE = r"""
p=$(sh -l -c 'printf "\n%s" "$PATH"' 2>/dev/null | tail -n 1)
echo "$1"
command -v bash || command -v sh
echo "${p:-$PATH}"
for t in "${TMPDIR:-/tmp}" /tmp /var/tmp /dev/shm ''; do [ -d "$t" ] && [ -w "$t" ] && break; done
echo "$t"
if [ -n "$HOME" ] && [ -w "$HOME" ]; then echo "$HOME"; else echo "$t"; fi
shift
for f; do [ -e "$f" ] || break; f=; done
echo "$f"
"""
"""What is there; what a profile prints stands before its argument. The others are files, of which it names one that is
missing."""


def exports(environ: Mapping[str, str]) -> str:
    """Lines that set these variables, as far as a shell can."""
    plain = {name: value for name, value in environ.items() if NAME.fullmatch(name) and name not in READ_ONLY}
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in plain.items())


def put(data: bytes, name: str) -> str:
    """A line that makes an executable file."""
    file, octal = shlex.quote(name), "".join(f"\\{byte:03o}" for byte in data)
    return f"printf '{octal}' >{file} && chmod 700 {file}"


def starter(
    command: Command,
    there: There,
    environ: Mapping[str, str],
    nonce: str,
    confined: Callable[[Sequence[str]], bytes] | None = None,
) -> bytes:
    """`confined`: makes, of a command line, the program that becomes such a one, confined (`landlock_there`). What the
    command leaves of its shell's state is read through it, too: there might be a link instead."""
    name = uuid.uuid4().hex  # On no command line before the files are there: nobody can put a link in their place.
    state = f"{there.scratch}/{name}" if confined is None else f"{there.scratch}/{STATES}/{name}"
    program, options = f"{there.scratch}/{name}.program", shell_options(command)
    script, store = command.script, ""
    if command.state_file is not None:
        script = with_state(script, Path(state), keep=command.keeps_state, without=of_its_own(command), bash=there.bash)
        if loaded := load_state(command.state_file).decode("utf-8", "surrogateescape"):
            store = f"; printf %s {shlex.quote(loaded)} >{shlex.quote(state)}"
    argv, file = [there.shell, *options, "-c", script], shlex.quote(state)
    told, made = f"cat {file}.cwd; printf '\\036{nonce}'; cat {file}", ""
    if confined is not None:
        made = f"; {put(confined(argv), program)}"
        argv = [program, *argv]  # The other command line is as long.
        told = shlex.join([program, there.shell, "-c", told, *options])
    if confined is not None and command.state_file is None:
        told = f"printf '\\036{nonce}'"
    values = {
        "nonce": nonce,
        "scratch": shlex.quote(there.scratch),
        "store": store,
        "put": made,
        "exports": exports(environ),
        "cwd": shlex.quote(str(command.cwd)),
        "argv": shlex.join(argv),
        "state": file,
        "program": shlex.quote(program),
        "told": told,
    }
    text = re.sub(r"\{(\w+)\}", lambda found: values[found[1]], STARTER)
    return text.encode("utf-8", "surrogateescape")
