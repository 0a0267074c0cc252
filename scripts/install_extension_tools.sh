#!/usr/bin/env bash
# What editors/vscode is built and tested with, as its package-lock.json says. Does nothing where it is there already.
set -euo pipefail
cd "$(dirname "$0")/../editors/vscode"
bash ../../scripts/install_node.sh
lock=$(cksum <package-lock.json)
[ "$(cat node_modules/.installed 2>/dev/null)" = "$lock" ] && exit 0
bash ../../scripts/with_node.sh npm ci --no-audit --no-fund --loglevel=error >/dev/null
echo "$lock" >node_modules/.installed
