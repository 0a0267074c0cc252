#!/usr/bin/env bash
# Checkers of JavaScript that the tests run for real, pinned, in tests/.node. Does nothing where they are there already.
set -euo pipefail
cd "$(dirname "$0")/.."
packages=(typescript@5.9.3 eslint@9.39.5)
folder=tests/.node
[ "$(cat "$folder/.installed" 2>/dev/null)" = "${packages[*]}" ] && exit 0
if ! command -v node >/dev/null 2>&1 || ! command -v npm >/dev/null 2>&1; then
  echo "WARNING: node or npm is missing, so ${packages[*]} are not installed; the tests of tsc fail without them" >&2
  exit 0
fi
rm -rf "$folder"
mkdir -p "$folder"
echo '{"private": true}' >"$folder/package.json"
npm install --prefix "$folder" --no-audit --no-fund --no-save --ignore-scripts --loglevel=error "${packages[@]}" >/dev/null
echo "${packages[*]}" >"$folder/.installed"
