#!/usr/bin/env bash
# Installs the tools to build and test editors/vscode, from its package-lock.json, unless already installed.
set -euo pipefail
cd "$(dirname "$0")/../editors/vscode"
bash ../../scripts/install_node.sh
lock=$(cksum <package-lock.json)
[ "$(cat node_modules/.installed 2>/dev/null)" = "$lock" ] && exit 0
bash ../../scripts/with_node.sh npm ci --no-audit --no-fund --loglevel=error >/dev/null
echo "$lock" >node_modules/.installed
