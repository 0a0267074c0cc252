#!/usr/bin/env bash
# Builds the page that `acp-coder serve` serves at `/`, from editors/vscode, into acp_agent/fronts/server/static.
set -euo pipefail
cd "$(dirname "$0")/.."
bash scripts/install_extension_tools.sh
bash scripts/with_node.sh npm --prefix editors/vscode run page --silent
