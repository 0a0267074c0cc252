#!/usr/bin/env bash
# The site of the documentation, into dist/site; links and anchors are checked. UVX: that program.
set -euo pipefail
cd "$(dirname "$0")/.."
NO_MKDOCS_2_WARNING=1 "${UVX:?}" --quiet --no-config --from mkdocs==1.6.1 --with mkdocs-material==9.8.2 mkdocs build --quiet
