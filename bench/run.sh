#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh [BUILD]: the benches of `make bench`: what this machine can do, the main job (the replay of
# a request trace), latency, page fill, a short sweep, paced loads, faults, the send queue; then a
# summary. JSON of each in BUILD/bench. TRACE=FILE replays that trace; without it, 2,000 generated
# requests.
set -eu
build=${1:-build}
weir=${WEIR:-$build/weir}
out=$build/bench
mkdir -p "$out"

trace=${TRACE:-}
if [ -z "$trace" ]; then
    trace=$out/trace.jsonl
    "$weir" bench trace --requests 2000 --seed 1 --output "$trace"
fi

say() { printf '\n== %s\n' "$*"; }

say "limits of this machine"
"$weir" bench limits --json "$out/limits.json"
say "replay of $trace, every byte verified"
"$weir" bench replay --trace "$trace" --json "$out/replay.json"
say "latency"
"$weir" bench write --latency --seconds 1 --json "$out/latency.json"
say "an idle engine, asleep and woken"
"$weir" bench wake --seconds 1 --json "$out/wake.json"
say "page fill"
"$weir" bench fill --repeat 50 --json "$out/fill.json"
say "writes, hot and cold"
"$weir" bench write --seconds 1 --json "$out/write-hot.json"
"$weir" bench write --seconds 1 --cold 1G --json "$out/write-cold.json"
say "sweep"
"$weir" bench sweep --seconds 0.2 --json "$out/sweep.json"

say "latency under paced loads"
"$weir" bench pace --json "$out/pace.json"

say "through faults"
"$weir" bench faults --json "$out/faults.json"

say "the send queue"
sh "$(dirname "$0")/sendqueue.sh" "$build"

say "a broken session, until all is done again"
"$build/bench/recovery" --json "$out/recovery.json"

say "summary (JSON in $out)"
if command -v python3 >/dev/null; then
    python3 "$(dirname "$0")/summary.py" "$out"
else
    echo "python3 makes the summary, and is not here; the tables above have the figures"
fi
