#!/usr/bin/env bash
# Toad and marimo for the editor tests, each in a separate environment below tests/.editors, apart from the project's.
# Toad wants Python 3.14 (scripts/find_python.sh). marimo talks to agents by a bridge from npm. Does nothing if they are
# already installed.
set -euo pipefail
cd "$(dirname "$0")/.."
suite=forky
toad=batrachian-toad==0.6.20
marimo=marimo==0.25.2
bridge=stdio-to-ws@0.2.0
here=$PWD/tests/.editors
stamp="$suite $toad $marimo $bridge 2"
[ "$(cat "$here/.python_clients" 2>/dev/null)" = "$stamp" ] && exit 0

fail() {
  echo "$1" >&2
  exit 1
}
mkdir -p "$here"
[ -e "$here/.gitignore" ] || echo '*' >"$here/.gitignore"
log=$here/python_clients.log
: >"$log"
logged() { "$@" >>"$log" 2>&1 || fail "$1 failed: the end of $log says: $(tail -n 20 "$log")"; }

python=$(bash scripts/find_python.sh "$suite" "$PWD/tests/.python")
rm -rf "$here/toad" "$here/marimo"
# Debian's venv looks for pip where Debian would have installed it.
logged "$python" -m venv --without-pip "$here/toad"
pip=$(find "$PWD/tests/.python/usr/share/python-wheels" -name 'pip-*.whl' 2>/dev/null | head -n 1) || true
[ -n "$pip" ] || pip=$(find "$("$python" -c 'import ensurepip; print(ensurepip.__path__[0])')" -name 'pip-*.whl')
PYTHONPATH=$pip logged "$here/toad/bin/python" -m pip install --quiet "$toad"
logged .venv/bin/python -m venv "$here/marimo"
logged "$here/marimo/bin/python" -m pip install --quiet "$marimo"
mkdir -p "$here/bridge"
logged bash scripts/with_node.sh npm install --prefix "$here/bridge" --no-audit --no-fund --no-update-notifier --save-exact "$bridge"
logged "$here/toad/bin/toad" --version
logged "$here/marimo/bin/marimo" --version
echo "$stamp" >"$here/.python_clients"
