#!/usr/bin/env bash
# Node and npm for the tools of JavaScript: Debian's where there are none, and where Node is older than 22 a newer one of
# npm, in tests/.node-program. scripts/with_node.sh runs a command with it. Does nothing if all is installed.
set -euo pipefail
cd "$(dirname "$0")/.."
newer=tests/.node-program
recent() { [ "$("$1" -p 'process.versions.node.split(".")[0]' 2>/dev/null || echo 0)" -ge 22 ]; }
if ! command -v npm >/dev/null 2>&1; then
  command -v apt-get >/dev/null 2>&1 || { echo "npm is needed: install Node 22 or newer" >&2; exit 1; }
  as_root=()
  [ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
  export DEBIAN_FRONTEND=noninteractive
  install() { "${as_root[@]}" apt-get install --yes --quiet --no-install-recommends npm >/dev/null; }
  install 2>/dev/null || { "${as_root[@]}" apt-get update --quiet >/dev/null && install; } ||
    { echo "npm could not be installed: install Node 22 or newer" >&2; exit 1; }
fi
if recent node || recent "$newer/node_modules/node/bin/node"; then
  exit 0
fi
mkdir -p "$newer"
echo '{"private": true, "allowScripts": {"node": true}}' >"$newer/package.json"
npm install --prefix "$newer" --no-audit --no-fund --loglevel=error node@24.21.0 >/dev/null
