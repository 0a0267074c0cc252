#!/usr/bin/env bash
# test_all.sh PYTEST NPM...: the extension's tests beside the agent's, which take longer and have the last word.
set -u
pytest=$1
shift
(
    said=$("$@" test --silent 2>&1)
    status=$?
    printf '\n%s\n' "$said"
    exit "$status"
) &
extension=$!
trap 'kill "$extension" 2> /dev/null; exit 130' INT TERM
$pytest
agent=$?
wait "$extension" || exit 1
exit "$agent"
