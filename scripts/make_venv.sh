#!/usr/bin/env bash
# Makes the virtual environment with the package and the conformance kit (both editable), their byte code, and the
# development tools.
set -euo pipefail
python=$1
venv=$2
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
  echo "acp-coder needs Python 3.11 or newer; '$python' is $("$python" --version 2>&1). Call make with PYTHON=/path/to/python3.11" >&2
  exit 1
}
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
# The development tools are listed once, in pyproject.toml's dependency group "dev".
dev=$("$venv/bin/python" -c '
import tomllib
print("\n".join(tomllib.load(open("pyproject.toml", "rb"))["dependency-groups"]["dev"]))')
printf '%s\n' "$dev" >"$venv/dev-requirements.txt"
"$venv/bin/python" -m pip install --quiet --editable . --editable ./kit --requirement "$venv/dev-requirements.txt" 2>&1 |
  { grep -v '^WARNING: Location' || true; }
"$venv/bin/python" -m compileall -q acp_agent kit/acp_conformance
