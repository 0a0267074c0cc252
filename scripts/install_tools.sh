#!/usr/bin/env bash
# Debian packages used by the tests. Installs what is missing, as root (or by sudo without a password).
set -euo pipefail
packages=()
command -v rg >/dev/null 2>&1 || packages+=(ripgrep)
[ "$(uname -s)" != Linux ] || command -v bwrap >/dev/null 2>&1 || packages+=(bubblewrap)
if [ "$(uname -s)" = Linux ]; then  # Containers, and what their images are made of.
  for each in podman:podman runc:runc catatonit:catatonit busybox:busybox-static; do
    command -v "${each%%:*}" >/dev/null 2>&1 || [ -x "/usr/sbin/${each%%:*}" ] || packages+=("${each##*:}")
  done
fi
command -v chromium >/dev/null 2>&1 || command -v google-chrome >/dev/null 2>&1 || packages+=(chromium)
# What commands may try to reach the network with.
for each in curl:curl wget:wget dig:bind9-dnsutils ping:iputils-ping ssh:openssh-client git:git tmux:tmux; do
  command -v "${each%%:*}" >/dev/null 2>&1 || packages+=("${each##*:}")
done
# What completions and the manual page are checked with; what makes another Debian's Python run here.
for each in zsh fish mandoc patchelf; do
  command -v "$each" >/dev/null 2>&1 || packages+=("$each")
done
compgen -G "/usr/lib/postgresql/*/bin/postgres" >/dev/null || packages+=(postgresql)
[ -x /usr/sbin/sshd ] || command -v sshd >/dev/null 2>&1 || packages+=(openssh-server)
[ ${#packages[@]} -eq 0 ] && exit 0
if ! command -v apt-get >/dev/null 2>&1; then
  echo "WARNING: not installed: ${packages[*]} (no apt-get here); the tests of these are skipped" >&2
  exit 0
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! sudo -n true 2>/dev/null; then
    echo "WARNING: not installed: ${packages[*]} (run: sudo apt-get install ${packages[*]}); their tests are skipped" >&2
    exit 0
  fi
  as_root=(sudo -n)
fi
export DEBIAN_FRONTEND=noninteractive
install() { "${as_root[@]}" apt-get install --yes --quiet --no-install-recommends "${packages[@]}" >/dev/null; }
install 2>/dev/null || { "${as_root[@]}" apt-get update --quiet >/dev/null && install; }
