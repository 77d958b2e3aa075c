#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# benches.sh: what the weir command measures with many processes or at a steady rate: that it is
# whole and of the device, not how fast it is.
. "$(dirname "$0")/lib.sh"

# measured "PYTHON EXPRESSION over r" COMMAND...: with processes of the bench's own. The peer is on
# this device, too.
measured() {
    expression=$1
    shift
    on a timeout "$patience" "$weir" bench "$@" --device "$DEVICE" --json "$WORK/out.json" \
        >"$WORK/table" 2>"$WORK/table.err" || { cat "$WORK/table" "$WORK/table.err"; return 1; }
    sed 's/^/# /' "$WORK/table"
    python3 -c 'import json, sys
r = json.load(open(sys.argv[1]))
sys.exit(0 if r["device"] == sys.argv[3] and eval("(" + sys.argv[2] + ")") else f"does not hold: {sys.argv[2]}: {r}")' \
        "$WORK/out.json" "$expression" "$DEVICE"
}
# Each load has its row, and each operation of it a latency. A slow machine may miss the rate.
paced='[row["percent"] for row in r["rows"]][-2:] == [10, 50]
    and all(row["ops"] > 0 and row["latency_ns"]["samples"] == row["ops"] for row in r["rows"])'
many='len(r["rows"]) == 4 and all(row["ops"] > 0 for row in r["rows"])
    and r["sum_bytes_per_s"] > 0 and 0 < r["slowest_of_mean"] <= 1'
all_up='[(row["peers"], row["up"], row["failed"]) for row in r["rows"]] == [(5, 5, 0), (20, 20, 0)]'

check B2_paced_writes leaves_nothing measured "$paced" pace --op write --size 16K --targets 10,50 --seconds 2
check B2_paced_messages leaves_nothing measured "$paced" pace --op send --size 4K --targets 10,50 --seconds 2
check B7_incast_of_writes leaves_nothing measured "$many" incast --senders 4 --size 16K --window 4 --seconds 2
check B7_incast_of_messages leaves_nothing measured "$many" incast --op send --senders 4 --size 4K --window 4 --seconds 2
check B7_storm leaves_nothing measured "$all_up" storm --peers 5,20
finish
