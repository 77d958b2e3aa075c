#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh [BUILD]: the benches of `make bench`: the send queue by itself, a broken session, then the
# suite of `weir bench all`, with a summary and a page. Results in BUILD/bench. TRACE=FILE replays
# that trace; without it, 2,000 generated requests. ROUNDS=N: so many rounds of the suite.
set -eu
build=${1:-build}
weir=${WEIR:-$build/weir}
out=$build/bench
mkdir -p "$out"

say() { printf '\n== %s\n' "$*"; }

say "the send queue"
sh "$(dirname "$0")/sendqueue.sh" "$build"

say "a broken session, until all is done again"
"$build/bench/recovery" --json "$out/recovery.json"

if [ -f "$build/python/weir/_weir.abi3.so" ]; then
    say "Python beside the same loops in C"
    PYTHONPATH=$build/python python3 "$(dirname "$0")/python.py" --build "$build"
fi

say "the suite (some minutes)"
"$weir" bench all --out "$out" --rounds "${ROUNDS:-3}" ${TRACE:+--trace "$TRACE"}
