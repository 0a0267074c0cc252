#!/usr/bin/env bash
# find_python.sh SUITE FOLDER: prints the path of a Python 3.14 that can make environments. Where there is none, that of
# Debian's SUITE is unpacked into FOLDER, with the libraries that go with it (needs no root).
set -euo pipefail
suite=$1
here=$2

fail() {
  echo "$1" >&2
  exit 1
}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
logged() { "$@" >>"$log" 2>&1 || fail "$1 failed: $(tail -n 20 "$log")"; }

unpack_python() {
  local root=$here apt=$here/apt mirror loader libraries
  command -v apt-get >/dev/null 2>&1 || fail "Python 3.14 is taken from Debian, and there is no apt-get here"
  command -v patchelf >/dev/null 2>&1 || fail "patchelf is missing (apt-get install patchelf)"
  # The mirror that this system uses itself.
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null | grep -v security | head -n 1)
  [ -n "$mirror" ] || fail "apt names no mirror (apt-get indextargets): run apt-get update first"
  rm -rf "$root"
  mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial"
  : >"$apt/status"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >"$apt/sources.list"
  # A state of apt's own, as of a system where nothing is installed: what is asked for comes with all it needs.
  local apart=(-o "Dir::State=$apt/state" -o "Dir::State::status=$apt/status" -o "Dir::Cache=$apt/cache"
    -o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=/dev/null -o Debug::NoLocking=1
    -o APT::Sandbox::User= -o Acquire::Check-Valid-Until=false)
  logged apt-get "${apart[@]}" update
  logged apt-get "${apart[@]}" install --yes --download-only --no-install-recommends python3.14-venv
  local package
  for package in "$apt"/cache/archives/*.deb; do
    logged dpkg-deb --extract "$package" "$root"
  done
  rm -rf "$apt"
  loader=$(echo "$root"/usr/lib*/ld-linux*.so.* "$root"/lib*/ld-linux*.so.* | tr ' ' '\n' | grep -v '\*' | head -n 1)
  libraries=$(dirname "$(find "$root" -name libc.so.6 | head -n 1)")
  [ -n "$loader" ] && [ -n "$libraries" ] || fail "Debian's packages have changed: there is no loader in $root"
  # Environments are made of it and it starts itself once more, so it has to be a program of its own.
  logged patchelf --set-interpreter "$loader" --force-rpath --set-rpath "$libraries" "$root/usr/bin/python3.14"
  # The modules of the standard library look for theirs beside it.
  find "$root/usr/lib/python3.14/lib-dynload" -name '*.so' | while read -r module; do
    logged patchelf --force-rpath --set-rpath "$libraries" "$module"
  done
}

new_enough() { "$1" -c 'import sys, venv; sys.exit(sys.version_info < (3, 14))' >/dev/null 2>&1; }

python=$(command -v python3.14 || true)
if [ -z "$python" ] || ! new_enough "$python"; then
  python=$here/usr/bin/python3.14
  new_enough "$python" || unpack_python
fi
echo "$python"
