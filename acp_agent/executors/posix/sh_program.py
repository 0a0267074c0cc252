"""What is sent to a host without Python: a POSIX `sh` that answers one question after the other.

It needs coreutils or busybox. A question is a line: the link's key and shell code (functions of `BOOT`), whose output
goes back as it is, followed by a nonce of the question's own, the exit code, and the last line of what went wrong.
Data comes first, by its length, and only ever gets into a file. What changes something is done once, however often a
lost link makes us ask (`once`).

A folder is entered with `cd -P`, and where that led is compared (`at`): what follows happens in that very folder, which
the shell holds, whatever has been put in its place meanwhile.
"""

from __future__ import annotations

import shlex

from acp_agent.executors import beneath
from acp_agent.executors.marked import MARK
from acp_agent.executors.places.starter import FINISH

MISSING, SWAPPED, NO_FOLDER, FOLDER, IRREGULAR, KERNELS, SAID, DENIED, STUCK, GONE = range(40, 50)
"""Exit codes of the functions; with `SAID` what went wrong is a sentence of ours."""
PREFIX = "acp-coder-sh-"
KERNELS_OWN = "|".join(f"{kind:x}" for kind in sorted(beneath.KERNELS_OWN))
SEGMENT = "bs=65536 count=64"
KEPT = 4
"""Segments of a stream that are kept until they are read: at most 16 MiB; then the command waits."""

BOOT = (
    r"""
K=$1 U=$(umask) NL='
' D=
export LC_ALL=C
unset SSH_CLIENT SSH_CONNECTION SSH_TTY SSH_AUTH_SOCK CDPATH MARK
trap : HUP INT TERM
umask 077
F=; dd if=/dev/null of=/dev/null bs=1 count=1 iflag=fullblock 2>/dev/null && F=iflag=fullblock
R=; dd if=/dev/null of=/dev/null bs=1 count=1 iflag=nofollow,nonblock 2>/dev/null && R=iflag=nofollow,nonblock
T=; mv -T 2>&1 | grep -q 'nrecognized\|nvalid' || T=-T
S=; command -v setsid >/dev/null && S=setsid
B=${S:+setsid setsid}
g() {
  if [ -n "$F" ]; then
    [ $(($1/65536)) = 0 ] || dd bs=65536 count=$(($1/65536)) $F
    [ $(($1%65536)) = 0 ] || dd bs=$(($1%65536)) count=1 $F
  else
    dd bs=1 count="$1"
  fi >"$D/i.$$" 2>/dev/null
  i=$(wc -c <"$D/i.$$") && [ "$((i))" = "$1" ] && return
  rm -f "$D/i.$$"
  printf '\n%s 1 %s\n' "$2" 'No space left on device'
  exit 3
}
q() {
  ( eval "$2" ) </dev/null 2>"${D:-/dev/null}${D:+/e.$$}"
  c=$? w=
  [ $c = 0 ] || [ -z "$D" ] || w=$(tail -n 1 "$D/e.$$")
  printf '\n%s %s %s\n' "$1" "$c" "$w"
}
once() {
  rm -rf "$D/o.$3"
  if mkdir "$D/o.$1" 2>/dev/null; then
    ( eval "$2" ) >"$D/o.$1/out" 2>"$D/o.$1/err"
    echo $? >"$D/o.$1/c" && mv "$D/o.$1/c" "$D/o.$1/code"
  fi
  n=0
  until [ -e "$D/o.$1/code" ]; do n=$((n+1)); [ $n -lt 25000 ] || exit 49; pause; done
  cat "$D/o.$1/out"
  tail -n 1 "$D/o.$1/err" >&2
  read -r c <"$D/o.$1/code"
  exit "$c"
}
no() {
  p=$1
  until [ -e "$p" ] || [ -L "$p" ]; do p=${p%/*}; [ -n "$p" ] || p=/; done
  if [ -L "$p" ]; then exit 41; elif [ ! -d "$p" ]; then echo "$p" >&2; exit 42; elif [ ! -x "$p" ]; then exit 47; fi
  [ "$p" != "$1" ] || exit 47
  exit 40
}
at() { cd -P -- "$1" 2>/dev/null || no "$1"; [ "$PWD" = "$1" ] || exit 41; }
into() {
  m=0
  if cd -P -- "$1" 2>/dev/null; then [ "$PWD" = "$1" ] || exit 41; return; fi
  cd / && r=${1#/} d=
  while [ -n "$r" ]; do
    n=${r%%/*} d=$d/${r%%/*}
    case $r in */*) r=${r#*/} ;; *) r= ;; esac
    if [ -L "./$n" ]; then undo; exit 41; fi
    if [ ! -e "./$n" ]; then
      (umask "$U"; mkdir "./$n") || { undo; exit 1; }
      m=$((m+1))
    elif [ ! -d "./$n" ]; then undo; echo "$d" >&2; exit 42; fi
    cd -P -- "./$n" || { undo; exit 47; }
    [ "$PWD" = "$d" ] || { undo; exit 41; }
  done
}
undo() {
  while [ $m -gt 0 ]; do
    n=${PWD##*/} m=$((m-1))
    cd -P .. && rmdir "./$n" 2>/dev/null || return 0
  done
}
own() { case $(stat -f -c %t "$1" 2>/dev/null) in KERNELS) exit 45 ;; esac; }
plain() {
  if [ -L "$1" ]; then exit 41
  elif [ ! -e "$1" ]; then exit 40
  elif [ -d "$1" ]; then exit 43
  elif [ ! -f "$1" ]; then stat -c %f "$1"; exit 44
  fi
  own "$1"
}
rd() {
  if [ -n "$R" ]; then dd if="$1" bs=65536 status=none $R; return; fi
  { [ "$(stat -L -c %d:%i /proc/self/fd/0)" = "$(stat -c %d:%i "$1")" ] || exit 41; cat; } <"$1"
}
look() {
  stat -c '%f %s %Z %d %i %h %u %g' "$1" 2>/dev/null && return
  [ -e "$1" ] || [ -L "$1" ] || exit 40
  exit 47
}
below() { find "$2" -exec stat -c "$1%f %s %d %i %h %Z %n" {} +; }
within() { find . ! -name . -prune -exec stat -c "$1%f %n" {} +; }
put() {
  into "$1"
  b=./$3 n=./$2
  if [ -n "$4" ]; then
    [ ! -L "$n" ] || exit 41
    own .
    [ -w "$n" ] || { echo 'it is read-only, so it was not changed' >&2; exit 1; }
    t=$( (umask 077; set -C; cat "$D/i.$$" >"$b") 2>&1) && { chown "$5" "$b"; chmod "$4" "$b"; } 2>/dev/null
  else
    t=$( (umask "$U"; set -C; cat "$D/i.$$" >"$b") 2>&1)
  fi
  if [ $? != 0 ] || ! mv -f $T "$b" "$n" 2>"$D/m.$$"; then
    [ -n "$t" ] || t=$(cat "$D/m.$$")
    rm -f "$b"
    case $t in *'ermission denied'*|*'not permitted'*|*'busy'*|*'ead-only'*|*'ross-device'*) s=1 ;; *) s= ;; esac
    if [ -n "$4" ] && [ -n "$s" ]; then
      [ "$6" = 1 ] || exit 48
      [ ! -L "$n" ] && [ -f "$n" ] && cat "$D/i.$$" >"$n"
      return
    fi
    undo
    echo "$t" >&2
    exit 1
  fi
}
FINISH
run() {
  [ -d "$2" ] || { echo "the working directory $2 does not exist" >&2; exit 46; }
  if mkdir "$D/r$1" 2>/dev/null; then
    mv "$D/i.$$" "$D/r$1/script"
    [ "$5" = 0 ] || tail -c "$5" "$D/r$1/script" >"$D/r$1/state"
    cd / && set -- "$D/wrap" "$D/r$1" "$2" "$4" "$(command -v sh)" "$S" "$U" "$3"
    if [ -n "$B" ]; then MARK=$8 $B sh "$@" </dev/null >/dev/null 2>&1
    else MARK=$8 $S sh "$@" </dev/null >/dev/null 2>&1 &
    fi
  fi
}
piece() {
  [ "$2" = 0 ] || rm -f "$1.$(($2-1))"
  f=0; [ ! -e "$1.end" ] || f=2; [ ! -e "$1.$(($2+1))" ] || f=1
  [ ! -e "$1.$2" ] || tail -c "+$(($3+1))" "$1.$2"
  printf '%s%s' "$4" $f
}
poll() {
  [ -d "$D/r$1" ] || exit 49
  : >"$D/heard"
  piece "$D/r$1/o" "$2" "$3" "$6"
  piece "$D/r$1/e" "$4" "$5" "$6"
  [ ! -e "$D/r$1/code" ] || cat "$D/r$1/code"
}
over() {
  w=$D/r$1
  [ -L "$w/state.cwd" ] || [ ! -f "$w/state.cwd" ] || head -c 4096 "$w/state.cwd"
  printf %s "$2"
  [ -L "$w/state" ] || [ ! -f "$w/state" ] || head -c 4194304 "$w/state"
  n=0
  until rm -rf "$w" 2>/dev/null || [ $n = 50 ]; do n=$((n+1)); pause; done
}
kills() {
  ( i=0 g=0 w=$D/r$2
    [ ! -d "$w" ] || : >"$w/stop"
    while [ -d "$w" ] && [ ! -s "$w/pid" ] && [ ! -e "$w/code" ] && [ $i -lt 100 ]; do i=$((i+1)); pause; done
    [ ! -s "$w/pid" ] || read -r g <"$w/pid"
    i=0
    if [ "$g" != 0 ] && kill -TERM "-$g" 2>/dev/null; then
      while [ $i -lt "$3" ] && kill -0 "-$g" 2>/dev/null; do i=$((i+1)); pause; done
      kill -KILL "-$g" 2>/dev/null
    fi
    if finish "$1" 0; then echo gone; else echo left; fi >"$D/k.$4.new"
    mv "$D/k.$4.new" "$D/k.$4"
  ) </dev/null >/dev/null 2>&1 &
}
ours() { [ -d "$1" ] && [ ! -L "$1" ] && [ -O "$1" ]; }
quit() {
  d=$1
  ours "$d" || exit 0
  read -r k <"$d/mark" && finish "$k" 0 && echo gone
  read -r k <"$d/keeper.pid"
  case $k in ''|*[!0-9]*|0|1) ;; *) kill -KILL "-$k" "$k" 2>/dev/null ;; esac
  rm -rf "$d"
}
hello() {
  if ! ours "$1"; then
    [ "$5" = first ] || exit 49
    mkdir "$1" || exit 1
    printf '%s\n' "$3" >"$1/owner" && printf '%s\n' "$2" >"$1/mark" && : >"$1/heard"
    cat >"$1/pump" <<'END'
i=0
pause() { sleep 0.02 2>/dev/null || sleep 1; }
while dd of="$1.$i" SEGMENT 2>/dev/null && [ -s "$1.$i" ]; do
  i=$((i+1))
  while [ -e "$1.$((i-KEPT))" ]; do pause; done
done
: >"$1.end"
END
    cat >"$1/wrap" <<'END'
{ {
    ( cd -- "$2" && exec $5 env -i "$4" "$1/script" "$6" 2>&3 3>&- )
    c=$?
    printf '\036%s' "$3"
    printf '\036%s' "$3" >&3
    echo "$c" >"$1/c" && mv "$1/c" "$1/code"
  } | sh "${1%/*}/pump" "$1/o" >/dev/null 3>&-
} 3>&1 | sh "${1%/*}/pump" "$1/e"
END
    cat >"$1/keeper" <<'END'
D=$1 n=0
echo $$ >"$D/keeper.pid"
FINISH
while [ -d "$D" ]; do
  sleep "$4"
  if [ -e "$D/heard" ]; then rm -f "$D/heard"; n=0; continue; fi
  n=$((n+$4))
  [ $n -ge "$3" ] || continue
  finish "$2" 0
  rm -rf "$D"
done
END
    cd / && $S sh "$1/keeper" "$1" "$2" "$4" "$6" </dev/null >/dev/null 2>&1 &
  fi
}
about() {
  uname -srm
  p=$(sh -l -c 'printf "\n%s" "$PATH"' 2>/dev/null | tail -n 1)
  PATH=${p:+$p:}$PATH
  echo "$PATH"
  for n in bash git rg tmux; do command -v "$n" || echo; done
  for d in "${D%/*}"/PREFIX*; do
    [ "$d" = "$D" ] || ! ours "$d" || printf '%s %s\n' "$d" "$(cat "$d/owner")"
  done
  printf '%s\n' "$1"
  cat /proc/self/environ
}
real() {
  p=$1 r= k=0
  while :; do
    while [ ! -e "$p" ] && [ ! -L "$p" ]; do r=/${p##*/}$r p=${p%/*}; [ -n "$p" ] || p=/; done
    if [ -d "$p" ]; then
      if cd -P -- "$p" 2>/dev/null; then p=$PWD; else p=$(readlink -f "$p"); fi
      break
    elif [ -L "$p" ]; then
      k=$((k+1)); [ $k -lt 41 ] || exit 44
      t=$(readlink "$p"; echo .) t=${t%"$NL."}
      case $t in /*) p=$t ;; *) p=${p%/*}/$t ;; esac
    else
      n=${p##*/} p=${p%/*}
      cd -P -- "${p:-/}" && p=${PWD%/}/$n
      break
    fi
  done
  printf %s "${p%/}$r"
}
kind() { if [ -d "$1" ]; then echo dir; elif [ -f "$1" ]; then echo file; elif [ -e "$1" ]; then echo other; fi; }
text() {
  [ -e "$1" ] || { [ -x "${1%/*}/" ] || [ ! -e "${1%/*}/" ] || exit 47; exit 40; }
  [ ! -d "$1" ] || exit 43
  head -c "$2" <"$1"
}
while IFS= read -r l; do
  case $l in "$K "*) eval "${l#"$K "}" ;; *) exit 3 ;; esac
done
""".replace("FINISH", FINISH.strip())
    .replace("MARK", MARK)
    .replace("KERNELS", KERNELS_OWN)
    .replace("SEGMENT", SEGMENT)
    .replace("KEPT", str(KEPT))
    .replace("PREFIX", PREFIX)
)


def words(*arguments: object) -> str:
    """Arguments for a function over there, on one line. Raises ValueError for what no shell can be given."""
    return " ".join(_quoted(str(each)) for each in arguments)


def _quoted(text: str) -> str:
    if "\0" in text:
        raise ValueError("embedded null byte")
    return '"$NL"'.join(shlex.quote(part) for part in text.split("\n"))
