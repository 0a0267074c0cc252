#!/usr/bin/env bash
# Helix, Neovim and Emacs of Debian's newest suite for the editor tests, in tests/.editors/debian, with programs in
# tests/.editors/bin that start them by that suite's own loader: they run beside whatever this system is, and what they
# start (the agent) runs on the system itself. Needs root (debootstrap). Does nothing if already installed.
set -euo pipefail
cd "$(dirname "$0")/.."
suite=forky
packages=(hx neovim emacs-nox emacs-el)
root=$PWD/tests/.editors/debian
bin=$PWD/tests/.editors/bin
stamp="$suite ${packages[*]} 5"
[ "$(cat "$root/.installed" 2>/dev/null)" = "$stamp" ] && command -v tmux >/dev/null && exit 0

fail() {
  echo "$1" >&2
  exit 1
}
command -v apt-get >/dev/null 2>&1 || fail "Helix, Neovim and Emacs are installed from Debian, and there is no apt-get here"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  sudo -n true 2>/dev/null || fail "Helix, Neovim and Emacs are installed by debootstrap, which needs root"
  as_root=(sudo -n)
fi
export DEBIAN_FRONTEND=noninteractive
missing=()
for package in debootstrap tmux patchelf; do
  command -v "$package" >/dev/null 2>&1 || [ -x "/usr/sbin/$package" ] || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
  install() { "${as_root[@]}" apt-get install --yes --quiet --no-install-recommends "${missing[@]}" >/dev/null; }
  install 2>/dev/null || { "${as_root[@]}" apt-get update --quiet >/dev/null && install; } ||
    fail "not installed: ${missing[*]}"
fi
[ "$(cat "$root/.installed" 2>/dev/null)" = "$stamp" ] && exit 0

# The mirror that this system uses itself.
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null | grep -v security | head -n 1)
[ -n "$mirror" ] || fail "apt names no mirror (apt-get indextargets): run apt-get update first"
log=$PWD/tests/.editors/debian.log
mkdir -p tests/.editors
[ -e tests/.editors/.gitignore ] || echo '*' >tests/.editors/.gitignore
"${as_root[@]}" rm -rf "$root"
# The script named sid serves for suites that this debootstrap does not know yet.
"${as_root[@]}" debootstrap --variant=minbase "$suite" "$root" "$mirror" sid >"$log" 2>&1 ||
  fail "debootstrap failed: the end of $log says: $(tail -n 20 "$log")"
inside() { "${as_root[@]}" chroot "$root" "$@" >>"$log" 2>&1; }
inside apt-get -o Acquire::Check-Valid-Until=false install --yes --quiet --no-install-recommends "${packages[@]}" ||
  fail "apt-get install ${packages[*]} failed: the end of $log says: $(tail -n 20 "$log")"
"${as_root[@]}" rm -rf "$root"/var/cache/apt/*.bin "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*

mkdir -p "$bin"
loader=$(echo "$root"/usr/lib*/ld-linux*.so.* | cut -d ' ' -f 1)
libraries=$(dirname "$(find "$root/usr/lib" -name 'libc.so.6' | head -n 1)")
dump=$(find "$root/usr/libexec/emacs" -name '*.pdmp' | head -n 1)
lisp=$(find "$root"/usr/share/emacs/[0-9]*/lisp -type d | tr '\n' ':')
data=$(echo "$root"/usr/share/emacs/[0-9]*/etc)
for file in "$loader" "$libraries/libc.so.6" "$dump" "$data" "$root/usr/lib/hx/hx" "$root/usr/bin/nvim"; do
  [ -e "$file" ] || fail "Debian's packages have changed: there is no $file"
done
program() { # name, variables, program and its first arguments
  printf '#!/bin/sh\n%s exec "%s" --library-path "%s" %s "$@"\n' "$2" "$loader" "$libraries" "$3" >"$bin/$1"
  chmod +x "$bin/$1"
}
program hx "HELIX_RUNTIME='$root/usr/lib/hx/runtime'" "'$root/usr/lib/hx/hx'"
# Neovim starts itself once more, so it has to be a program of its own; it finds its parsers from where it stands.
"${as_root[@]}" patchelf --set-interpreter "$loader" --force-rpath --set-rpath "$libraries" "$root/usr/bin/nvim"
printf '#!/bin/sh\nVIMRUNTIME="%s" exec "%s" "$@"\n' "$root/usr/share/nvim/runtime" "$root/usr/bin/nvim" >"$bin/nvim"
chmod +x "$bin/nvim"
program emacs "EMACSLOADPATH='$lisp' EMACSDATA='$data' EMACSPATH='$(dirname "$dump")' TERMINFO_DIRS='$root/usr/share/terminfo:/usr/share/terminfo:/lib/terminfo'" \
  "'$root/usr/bin/emacs-nox' '--dump-file=$dump'"
"$bin/nvim" --version >>"$log" 2>&1 || fail "Neovim does not start: see $log"
"$bin/hx" --version >>"$log" 2>&1 || fail "Helix does not start: see $log"
"$bin/emacs" --version >>"$log" 2>&1 || fail "Emacs does not start: see $log"
echo "$stamp" | "${as_root[@]}" tee "$root/.installed" >/dev/null
