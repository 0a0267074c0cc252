#!/usr/bin/env bash
# test_all.sh PYTHON NPM...: the extension's tests beside the agent's, which take longer and have the last word. What
# hangs, or fails since the machine is busy, is tried once more; the summary names it.
set -u
python=$1
shift
(
    said=$("$@" test --silent 2>&1)
    status=$?
    printf '\n%s\n' "$said"
    exit "$status"
) &
extension=$!
trap 'kill "$extension" 2> /dev/null; exit 130' INT TERM
"$python" -m pytest --reruns 1 -rR
agent=$?
wait "$extension" || exit 1
exit "$agent"
