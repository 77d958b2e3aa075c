#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# check-packages.sh [--no-summary]: runs tests/packages.sh, and leaves what results.py reads,
# build/meson-logs/testlog-packages.json; adds it up unless --no-summary. Where packages can be had
# neither, all of it counts as skipped.
set -u
cd "$(dirname "$0")/.." || exit 1
log=build/meson-logs/testlog-packages.json
mkdir -p "$(dirname "$log")"
rm -f "$log"
shown=$(mktemp)
trap 'rm -f "$shown"' EXIT

if sh scripts/deps.sh packages; then
    bash tests/packages.sh | tee "$shown"
    [ "${PIPESTATUS[0]}" -eq 0 ] && result=OK || result=FAIL
else
    echo 'skip E11_packages_are_built: a package of scripts/deps.sh cannot be had' | tee "$shown"
    result=SKIP
fi
python3 -c 'import json, sys
json.dump({"name": "packages", "result": sys.argv[2], "stdout": open(sys.argv[1]).read()}, sys.stdout)
print()' "$shown" "$result" >"$log"
[ "${1:-}" = --no-summary ] || python3 scripts/results.py "$log"
