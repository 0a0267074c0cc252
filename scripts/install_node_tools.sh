#!/usr/bin/env bash
# Checkers and a language server for JavaScript, `devcontainer`, an MCP server, MCP's conformance kit and a double of
# model servers, that the tests run for real, pinned, in tests/.node. Does nothing if they are already installed.
set -euo pipefail
cd "$(dirname "$0")/.."
packages=(typescript@5.9.3 typescript-language-server@5.3.0 eslint@9.39.5 @devcontainers/cli@0.89.0
  @modelcontextprotocol/server-everything@2026.8.31 @modelcontextprotocol/conformance@0.2.0-alpha.12
  @copilotkit/aimock@1.43.0)
folder=tests/.node
[ "$(cat "$folder/.installed" 2>/dev/null)" = "${packages[*]}" ] && exit 0
by_npm() {
  command -v node >/dev/null 2>&1 && command -v npm >/dev/null 2>&1 || return 1
  rm -rf "$folder"
  mkdir -p "$folder"
  echo '{"private": true}' >"$folder/package.json"
  npm install --prefix "$folder" --no-audit --no-fund --no-save --ignore-scripts --loglevel=error "${packages[@]}" \
    >/dev/null || { rm -rf "$folder"; return 1; }
  echo "${packages[*]}" >"$folder/.installed"
}
by_npm && exit 0
command -v tsc >/dev/null 2>&1 && exit 0
# Without npm: Debian's own.
as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get install --yes --quiet --no-install-recommends node-typescript >/dev/null ||
  echo "WARNING: ${packages[*]} could not be installed by npm, nor node-typescript by apt-get; the tests of tsc fail" >&2
