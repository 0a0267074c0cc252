#!/usr/bin/env bash
# The editors for the editor tests (make test-editors): VS Code's server, its Node, and acpx, pinned, in
# tests/.editors. Does nothing if they are already installed. Chromium comes with install_tools.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
packages=(node@24.21.0 code-server@4.139.1 acpx@0.19.1)
folder=tests/.editors
[ "$(cat "$folder/.installed" 2>/dev/null)" = "${packages[*]}" ] && exit 0

fail() {
  echo "$1" >&2
  exit 1
}
bash scripts/install_node.sh

# code-server's own modules are built on the spot.
missing=()
for package in libkrb5-dev g++ make python3; do
  dpkg-query --show --showformat='${Status}\n' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  command -v apt-get >/dev/null 2>&1 || fail "not installed: ${missing[*]} (no apt-get here)"
  as_root=()
  [ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
  export DEBIAN_FRONTEND=noninteractive
  install() { "${as_root[@]}" apt-get install --yes --quiet --no-install-recommends "${missing[@]}" >/dev/null; }
  install 2>/dev/null || { "${as_root[@]}" apt-get update --quiet >/dev/null && install; } ||
    fail "not installed: ${missing[*]} (run: sudo apt-get install ${missing[*]})"
fi

rm -rf "$folder/node_modules" "$folder/package.json" "$folder/package-lock.json"  # The other editors are there, too.
mkdir -p "$folder"
echo '*' >"$folder/.gitignore"
# npm runs the install scripts of these packages only; `node` needs its own to fetch the program.
echo '{"private": true, "allowScripts": {"code-server": true, "node": true, "argon2": true}}' >"$folder/package.json"
log=$PWD/$folder/install.log
by_npm() {
  npm install --prefix "$folder" --no-audit --no-fund --no-update-notifier --save-exact "$@" >>"$log" 2>&1 ||
    fail "npm install $* failed: the end of $log says: $(tail -n 30 "$log")"
}
# Its modules use Node-API: the headers of the system's Node serve as well as those that would be fetched for this one.
if [ -z "${npm_config_nodedir:-}" ] && [ -e /usr/include/node/node_api.h ]; then
  export npm_config_nodedir=/usr
fi
# Node first: code-server refuses to be installed under another version than its own.
by_npm "${packages[0]}"
PATH=$PWD/$folder/node_modules/node/bin:$PATH
export PATH
by_npm "${packages[@]:1}"
node_modules=$folder/node_modules
for file in node/bin/node code-server/lib/vscode/out/server-main.js acpx/package.json; do
  [ -e "$node_modules/$file" ] || fail "npm installed no $file: see $log"
done
echo "${packages[*]}" >"$folder/.installed"
