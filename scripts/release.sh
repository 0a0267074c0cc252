#!/usr/bin/env bash
# All files of a release, into OUT (default: dist): wheel and source archive of the agent and of the conformance kit, the VS
# Code extension, what Zed and the ACP registry install from, manual page, completions, the site of the documentation, the
# image's Containerfile (and with IMAGE=podman or docker the image), an SBOM (CycloneDX, of uv.lock) and checksums.
# Usage: release.sh REPOSITORY [OUT]; the files will be found in REPOSITORY/releases/download/vVERSION. They are built from a
# copy of what git tracks here that has the addresses of REPOSITORY in it (scripts/addresses.py).
set -euo pipefail
cd "$(dirname "$0")/.."
repository=${1:?usage: release.sh REPOSITORY [OUT]; or make release REPOSITORY=https://...}
out=$(realpath --canonicalize-missing "${2:-dist}")
python=$(realpath --no-symlinks "$(command -v "${PYTHON:-python3}")")
here=$PWD tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
git ls-files -z | xargs -0 cp --parents --no-dereference --target-directory="$tree"
ln -s "$here/editors/vscode/node_modules" "$tree/editors/vscode/node_modules"
"$python" "$here/scripts/addresses.py" "$repository" "$tree"
ACP_CODER_COMMIT=${ACP_CODER_COMMIT:-$(git rev-parse HEAD)}
export ACP_CODER_COMMIT
rm -rf "$out"
mkdir -p "$out/completions"
"$python" -m pip install --quiet uv
uv=$("$python" -c 'import uv; print(uv.find_uv_bin())')
cd "$tree"
version=$("$python" -c 'import acp_agent; print(acp_agent.__version__)')
PYTHON=$python bash scripts/make_release.sh "$repository" "$repository/releases/download/v$version" "$out" >/dev/null
"$uv" build --quiet --no-create-gitignore --out-dir "$out" .
"$uv" build --quiet --no-create-gitignore --out-dir "$out" kit
bash "$here/scripts/with_node.sh" npm --prefix editors/vscode run package --silent >/dev/null
mv editors/vscode/acp-coder.vsix "$out/acp-coder-$version.vsix"
"$python" -m acp_agent man >"$out/acp-coder.1"
for shell in bash zsh fish; do "$python" -m acp_agent completions "$shell" >"$out/completions/acp-coder.$shell"; done
cp deploy/Containerfile "$out/"
"$uv" export --quiet --no-config --frozen --no-dev --all-extras --format cyclonedx1.5 \
  --output-file "$out/acp-coder-$version.cdx.json" >/dev/null
UVX=${uv%uv}uvx bash scripts/make_site.sh
tar -czf "$out/acp-coder-$version-docs.tar.gz" -C dist site
if [ -n "${IMAGE:-}" ]; then
  "$IMAGE" build --quiet --file deploy/Containerfile --build-arg COMMIT="$ACP_CODER_COMMIT" --tag "acp-coder:$version" . >/dev/null
  "$IMAGE" save "acp-coder:$version" | gzip >"$out/acp-coder-$version-image.tar.gz"
fi
cd "$out"
find . -type f ! -name SHA256SUMS -printf '%P\0' | sort --zero-terminated | xargs -0 sha256sum >SHA256SUMS
echo "$out"
