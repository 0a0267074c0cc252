#!/usr/bin/env bash
# Runs a command with the Node installed by scripts/install_node.sh, if any.
set -euo pipefail
newer=$(cd "$(dirname "$0")/.." && pwd)/tests/.node-program/node_modules/node/bin
[ ! -x "$newer/node" ] || PATH=$newer:$PATH
export PATH
exec "$@"
