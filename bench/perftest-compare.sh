#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# perftest-compare.sh: weir next to perftest (ib_write_bw, ib_read_bw, ib_send_bw, ib_send_lat), over
# same RDMA devices, one after the other and round after round, with the same queue depth and
# MTU; a table of medians, ratios and spread. Of transfers below 4 KiB, weir's application has
# twice as many submitted as the queue has slots: the waiting ones are posted several at a time as
# slots come back. Of longer ones, as many as there are slots. WINDOW is for all.
#
#   DEVICE=mlx5_0 PEER_DEVICE=mlx5_1   this machine's devices; without, the VM of tests/vm
#   ROUNDS=5 WINDOW=64 SIZES="64 ..." OPS="write read send latency" KERNEL=stable BUILD=build
#
# In the VM the clock counts instructions of one virtual CPU: figures repeat, but only their
# ratio means anything. There perftest's latency is that of its sleeping mode (-e), weir's that
# of notifications (latency) and of messages (message): with one CPU for both sides nobody may poll.
set -u
cd "$(dirname "$0")/.." || exit 1
build=$(realpath -m "${BUILD:-build}")
rounds=${ROUNDS:-5}
sizes=${SIZES:-64 256 1024 4096 16384 65536 262144 1048576}
ops=${OPS:-write read send latency}
depth=64
window=${WINDOW:-}

boot() {
    local share=$build/vm/perftest where
    sh scripts/deps.sh verbs || exit 1
    where=$(sh tests/vm/kernel.sh "${KERNEL:-stable}" "${KERNEL_CACHE:-$build/vm/kernels}") || exit 1
    rm -rf "$share"
    mkdir -p "$share"
    ICOUNT=1 LIMIT=${LIMIT:-5400} MOUNTS="$PWD $build" bash tests/vm/boot.sh "${where% *}" \
        "${where##* }" "$share" env "BUILD=$build" "WINDOW=$window" "ROUNDS=$rounds" "SIZES='$sizes'" \
        "OPS='$ops'" bash bench/perftest-compare.sh --inside "$share" || exit 1
    table <"$share/figures"
}

# As many messages as last a moment, and a queue of them at least.
messages() {
    local n=$((16777216 / $1))
    echo $((n > 2000 ? 2000 : n < depth ? depth : n))
}

# How many transfers of this size weir's application keeps submitted.
submitted() {
    echo "${window:-$(($1 < 4096 ? 2 * depth : depth))}"
}

# perftest PROGRAM OPTIONS...: the last line of figures that the client prints.
perftest() {
    local program=$1
    shift
    timeout 60 "$program" -d "$RDMA_B" -F "$@" >/dev/null 2>&1 &
    sleep 1
    timeout 50 "$program" -d "$RDMA_A" -F "$@" 127.0.0.1 2>&1 |
        grep -E '^ *[0-9]+ +[0-9]+ ' | tail -n 1
    wait
}

# weir_bench PYTHON-EXPRESSION COMMAND...: of the result.
weir_bench() {
    local expression=$1
    shift
    WEIR_VERBS_DEVICE=$RDMA_A timeout 120 "$build/weir" bench "$@" --device verbs \
        --peer "$address" --json /tmp/result.json >/dev/null &&
        python3 -c "import json; r = json.load(open('/tmp/result.json')); print($expression)"
}

# Lines "OP SIZE TOOL VALUE", MiB/s or microseconds, on standard output.
measure() {
    local op size figures
    for op in $ops; do
        if [ "$op" = latency ]; then
            figures=$(perftest ib_send_lat -e -s 8 -n 500)
            echo "latency 8 perftest $(echo "$figures" | awk '{ print $5 }')"
            echo "latency 8 weir $(weir_bench 'r["latency_ns"]["p50"] / 1e3' write \
                --latency=notify --seconds 0.3)"
            echo "message 8 perftest $(echo "$figures" | awk '{ print $5 }')"
            echo "message 8 weir $(weir_bench 'r["latency_ns"]["p50"] / 1e3' send --latency \
                --seconds 0.3)"
            continue
        fi
        for size in $sizes; do
            figures=$(perftest "ib_${op}_bw" -s "$size" -n "$(messages "$size")" -t $depth -Q 16)
            echo "$op $size perftest $(echo "$figures" | awk '{ print $4 }')"
            echo "$op $size weir $(weir_bench 'r["bytes_per_s"] / (1 << 20)' "$op" \
                --size "$size" --window "$(submitted "$size")" --depth $depth --seconds 0.3)"
        done
    done
}

inside() {
    local share=$1
    [ -n "${RDMA_A:-}" ] || . tests/vm/devices.sh
    WEIR_VERBS_DEVICE=$RDMA_B "$build/weir" serve --device verbs >/tmp/address &
    serving=$!
    until [ -s /tmp/address ] || ! kill -0 $serving; do sleep 0.2; done
    address=$(cat /tmp/address)
    for round in $(seq "$rounds"); do
        echo "round $round of $rounds"
        measure >>"$share/figures"
    done
    kill $serving
}

table() {
    python3 -c '
import statistics, sys
seen = {}
for line in sys.stdin:
    words = line.split()
    if len(words) == 4:
        seen.setdefault((words[0], int(words[1])), {}).setdefault(words[2], []).append(float(words[3]))
print("op          bytes   perftest  spread       weir  spread  ratio  runs")
for (op, size), tools in seen.items():
    row = f"{op:8} {size:8}"
    for tool in ("perftest", "weir"):
        values = tools.get(tool, [])
        if not values:
            row += "       none       -"
            continue
        middle = statistics.median(values)
        row += f" {middle:10.2f} {100 * (max(values) - min(values)) / middle:6.1f}%"
    if len(tools) == 2:
        row += " {:6.3f}".format(statistics.median(tools["weir"]) / statistics.median(tools["perftest"]))
    print(row, " ", min(map(len, tools.values())))
print("write, read, send: MiB/s; latency, message: microseconds, half a round trip or one way; spread: (max - min) / median")
'
}

if [ "${1:-}" = --inside ]; then
    inside "$2"
elif [ -n "${DEVICE:-}" ]; then
    out=$(mktemp -d)
    RDMA_A=$DEVICE RDMA_B=${PEER_DEVICE:-$DEVICE} inside "$out"
    table <"$out/figures"
    rm -rf "$out"
else
    boot
fi
