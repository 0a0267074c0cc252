#!/usr/bin/env bash
# hostile_run.sh [WAY...]: runs `make test` as those start it who are not us, one way after the other, and prints a table. Needs
# root and Linux. Ways: see below; without arguments, all. TARGET=test-system runs that instead.
set -u
cd "$(dirname "$0")/.." || exit 1
target=${TARGET:-test}
ways=("$@")
[ ${#ways[@]} -gt 0 ] || ways=(background busy one-core user plain-locale other-tmp spaces noexec no-namespaces)
[ "$(id -u)" -eq 0 ] || { echo "hostile_run.sh becomes other users and mounts folders: run it as root" >&2; exit 1; }
scratch=$(mktemp -d)
chmod 755 "$scratch"
loops=()
restore() {
  [ ${#loops[@]} -eq 0 ] || kill "${loops[@]}" 2>/dev/null
  loops=()
}
leave() {
  restore
  rm -rf "$scratch/other" "$scratch/a folder"
  if [ "$status" -eq 0 ]; then rm -rf "$scratch"; else echo "what each way printed is in $scratch"; fi
}
status=0
trap leave EXIT

copy() { # a copy of the tree at $1, with an environment of its own and what the tests have installed
  git clone --quiet . "$1" || return 1
  local each
  for each in tests/.node tests/.node-program editors/vscode/node_modules; do
    [ ! -e "$each" ] || cp -a "$each" "$1/$each"
  done
}

background() { # SIGINT and SIGQUIT ignored as in what a script starts with &, SIGHUP as by nohup, no terminal
  bash -c 'trap "" INT QUIT HUP; exec nohup make "$1" </dev/null' - "$target"
}
busy() { # The loops are as nice as the tests: beside loops of ordinary priority, Linux gives what is nice one hundredth.
  local each
  for each in 1 2 3 4; do
    nice -n 19 bash -c 'while :; do :; done' &
    loops+=($!)
  done
  nice -n 19 make "$target"
}
one-core() { taskset -c 0 make "$target"; }
user() {
  local name=acp-hostile home
  id "$name" >/dev/null 2>&1 || useradd --create-home --shell /bin/bash "$name" || return 1
  home=$(getent passwd "$name" | cut -d: -f6)
  rm -rf "$home/repo"
  copy "$home/repo" && chown -R "$name": "$home/repo" || return 1
  # Without `env -i` the agent would take root's own folders and keys for those of this user.
  setpriv --reuid "$name" --regid "$name" --init-groups env -i HOME="$home" USER="$name" PATH="$PATH" \
    ${PIP_CONFIG_FILE:+PIP_CONFIG_FILE="$PIP_CONFIG_FILE"} make -C "$home/repo" "$target"
}
plain-locale() { env -u LC_ALL -u LC_CTYPE LANG=C make "$target"; }
other-tmp() {
  mkdir -p "$scratch/other"
  TMPDIR="$scratch/other" make "$target"
}
spaces() {
  mkdir -p "$scratch/a folder"
  copy "$scratch/a folder/acp coder" && make -C "$scratch/a folder/acp coder" "$target"
}
noexec() {
  [[ $PWD/ != /tmp/* ]] || { echo "this checkout lies in /tmp, which is to be another: use one that does not"; return 1; }
  unshare --mount bash -c 'mount -t tmpfs -o noexec,mode=1777 tmpfs /tmp && exec make "$1"' - "$target"
}
no-namespaces() { python3 scripts/without_namespaces.py make "$target"; }

rows=()
for way in "${ways[@]}"; do
  declare -F "$way" >/dev/null || { echo "no such way: $way" >&2; exit 2; }
  echo "=== $way"
  begun=$SECONDS
  "$way" >"$scratch/$way.log" 2>&1
  code=$?
  restore
  [ "$code" -eq 0 ] || { status=1; grep -E '^(FAILED|ERROR) |^E  ' "$scratch/$way.log" | head -n 40; tail -n 5 "$scratch/$way.log"; }
  rows+=("$(printf '%-14s %-6s %5d s  %s' "$way" "$([ "$code" -eq 0 ] && echo ok || echo FAILED)" $((SECONDS - begun)) \
    "$(grep -E '[0-9]+ passed' "$scratch/$way.log" | tail -n 1)")")
done
printf '%s\n' "${rows[@]}"
exit "$status"
