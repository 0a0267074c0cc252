#!/usr/bin/env bash
# What Zed installs the agent from: an archive for this system, the extension's manifest and the entry of the ACP registry
# that name it. Usage: make_release.sh REPOSITORY ARCHIVES OUT (addresses of the repository and of the folder that the
# archive will be found in; the folder to write to). The archive runs under the Python version it was made with.
set -euo pipefail
cd "$(dirname "$0")/.."
[ $# -eq 3 ] || {
  echo "usage: $0 REPOSITORY ARCHIVES OUT" >&2
  exit 2
}
repository=$1 archives=${2%/} out=$3
python=${PYTHON:-python3}
version=$("$python" -c 'import re; print(re.search(r"__version__ = \"(.+)\"", open("acp_agent/__init__.py").read())[1])')
minor=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
target=$("$python" -c 'import platform, sys
system = {"darwin": "darwin", "win32": "windows"}.get(sys.platform, "linux")
machine = {"arm64": "aarch64", "amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
print(f"{system}-{machine}")')
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m pip install --quiet --disable-pip-version-check --target "$work/lib" . 2> >(grep -v 'Location' >&2 || true)
cat >"$work/acp-coder" <<LAUNCHER
#!/bin/sh
unset PYTHONHOME  # of the project's shell: it may be that of another Python
here=\$(CDPATH= cd -- "\$(dirname -- "\$0")" && pwd)
for python in "\${ACP_CODER_PYTHON:-python$minor}" python3; do
  if command -v "\$python" >/dev/null 2>&1 && "\$python" -c 'import sys; sys.exit(sys.version_info[:2] != (${minor/./, }))'; then
    PYTHONPATH="\$here/lib" exec "\$python" -m acp_agent "\$@"
  fi
done
echo "acp-coder: Python $minor is not installed; install it, or name it by ACP_CODER_PYTHON" >&2
exit 1
LAUNCHER
chmod +x "$work/acp-coder"
mkdir -p "$out"
archive=acp-coder-$version-$target.tar.gz
tar -czf "$out/$archive" -C "$work" acp-coder lib
"$python" scripts/name_archives.py "$repository" "$archives" "$out"
echo "$out/$archive"
