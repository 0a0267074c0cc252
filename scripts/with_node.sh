#!/usr/bin/env bash
# Runs a command with the Node that scripts/install_node.sh has installed, if it had to.
set -euo pipefail
newer=$(cd "$(dirname "$0")/.." && pwd)/tests/.node-program/node_modules/node/bin
[ ! -x "$newer/node" ] || PATH=$newer:$PATH
export PATH
exec "$@"
