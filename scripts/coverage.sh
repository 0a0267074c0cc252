#!/usr/bin/env bash
# coverage.sh PYTHON: `make coverage`. The figures of a run that is half as fast; tests about start-up fail in it, since the
# measuring is loaded into each process.
set -u
python=$1
folder=$PWD/.coverage.d
rm -rf "$folder"
mkdir -p "$folder"
"$python" -m pip install --quiet "coverage==7.17.5"
cat >"$folder/rc" <<END
[run]
source = acp_agent
branch = true
parallel = true
data_file = $folder/data
patch = subprocess, _exit
disable_warnings = no-data-collected, module-not-imported, module-not-measured, couldnt-parse
[report]
ignore_errors = true
precision = 2
END
export COVERAGE_RCFILE=$folder/rc COVERAGE_PROCESS_START=$folder/rc
# Not `tests tests/system`: pytest drops a folder that is named beside one above it.
"$python" -m coverage run -m pytest --reruns 1 -p no:cacheprovider \
  -o norecursedirs=".* node_modules tests/editors tests/models tests/conformance tests/agents tests/release" tests
"$python" -m coverage combine --quiet "$folder"
"$python" -m coverage report | tail -n 1
