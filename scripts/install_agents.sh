#!/usr/bin/env bash
# Agents of others for `make test-agents`, pinned, each in a folder of its own in tests/.agents: those of npm are named by
# their profiles (kit/acp_conformance/profiles) and get a Node that is new enough for all of them, an adapter with what it
# adapts; of PyPI the SDK, whose source has an example of an agent. Does nothing if they are there. With arguments: these only.
set -euo pipefail
cd "$(dirname "$0")/.."
node=node@24.21.0
agents=(
  claude-agent-acp=@agentclientprotocol/claude-agent-acp@0.101.0
  codex-acp=@zed-industries/codex-acp@0.16.0
  codex-acp-2=@agentclientprotocol/codex-acp@2.6.0
  gemini-cli=@google/gemini-cli@0.61.0
  opencode=opencode-ai@1.18.33
  "pi-acp=@earendil-works/pi-coding-agent@1.3.0 pi-acp@0.0.34"
  qwen-code=@qwen-code/qwen-code@0.24.4
)
sdk=agent-client-protocol==0.12.1
folder=tests/.agents
fail() {
  echo "$1 could not be installed: $(tail -n 20 "$2")" >&2
  exit 1
}
there() { [ "$(cat "$folder/$1/.installed" 2>/dev/null)" = "$2" ]; }
bash scripts/install_node.sh
mkdir -p "$folder"
for agent in node="$node" "${agents[@]}"; do
  name=${agent%%=*} packages=${agent#*=}
  [ $# = 0 ] || [[ " node $* " == *" $name "* ]] || continue
  there "$name" "$packages" && continue
  here=$folder/$name
  rm -rf "$here"
  mkdir -p "$here"
  # npm runs the install scripts of these packages only: they put the program of this machine in its place.
  echo '{"private": true, "allowScripts": {"node": true, "opencode-ai": true}}' >"$here/package.json"
  bash scripts/with_node.sh npm install --prefix "$here" --no-audit --no-fund --no-update-notifier --save-exact $packages \
    >"$here/install.log" 2>&1 || fail "$packages" "$here/install.log"
  echo "$packages" >"$here/.installed"
done
there python-sdk "$sdk" || [ $# != 0 ] && exit 0
here=$folder/python-sdk
rm -rf "$here"
mkdir -p "$here/source"
{
  .venv/bin/python -m venv "$here/venv" &&
    "$here/venv/bin/pip" download --no-deps --no-binary :all: --dest "$here" "$sdk" &&
    tar --extract --gzip --strip-components 1 --directory "$here/source" --file "$here"/*.tar.gz &&
    "$here/venv/bin/pip" install "$here/source"
} >"$here/install.log" 2>&1 || fail "$sdk" "$here/install.log"
echo "$sdk" >"$here/.installed"
