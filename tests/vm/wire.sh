#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# wire.sh: verified benches while the wire loses, delays and reorders packets, and while the
# cable is out, once or again and again.
. "$(dirname "$0")/lib.sh"
right='r["verified"] and r["checked_bytes"] > 0 and r["wrong_bytes"] == 0'
names='loss delay reorder link_down_short link_flaps link_down_long'
[ -n "$WIRE_A" ] || {
    for name in $names; do skip "wire_$name" 'the wire is not ours'; done
    finish
}
# On shm there is no wire that these would hurt; the scripts are tried out there.
tc_() { [ "$DEVICE" = shm ] || tc "$@"; }
ip_() { [ "$DEVICE" = shm ] || ip "$@"; }

# A session that breaks has as long as it takes to come up again: the 3 s that a bench gives it are
# little where the machine is slow. Only cut_for_good waits for that to end.
WEIR_CONNECT_TIMEOUT_MS=300000
export WEIR_CONNECT_TIMEOUT_MS

# bad NETEM... : both directions of the benches.
bad() {
    tc_ qdisc add dev "$WIRE_A" root netem "$@" || return 1
    serve && bench_holds "$right" write --verify --size 16K --window 4 --seconds 2 &&
        bench_holds "$right" read --verify --size 16K --window 4 --seconds 2 && serve_end
    good=$?
    tc_ qdisc del dev "$WIRE_A" root
    return $good
}

# Until a bench is in full swing, however long an emulated machine takes to begin.
sent() { cat "/sys/class/net/$WIRE_A/statistics/tx_bytes"; }
in_the_middle() {
    [ "$DEVICE" != shm ] || { sleep 5; return; }
    from=$(sent)
    for _ in $(seq 300); do
        [ $(($(sent) - from)) -lt 8000000 ] || break
        sleep 0.1
    done
    sleep 1
}

# cut SECONDS: the cable out for so long in the middle of a bench, which must end well: the
# session breaks or does not, transfers are replayed.
cut() {
    serve || return 1
    (
        in_the_middle
        ip_ link set "$WIRE_A" down
        sleep "$1"
        ip_ link set "$WIRE_A" up
    ) &
    cutter=$!
    bench_holds "$right" write --verify --size 16K --window 4 --seconds $(($1 + 8))
    good=$?
    wait $cutter
    serve_end && return $good
}

# A bad contact: out and in again, many times in one bench. Some of the QPs that live through it
# stand still afterwards (docs/testing.md): the bench goes on without them.
flapping() {
    serve || return 1
    (
        in_the_middle
        for tenths in 3 6 2 5 8 4 7; do
            ip_ link set "$WIRE_A" down
            sleep 0.$tenths
            ip_ link set "$WIRE_A" up
            sleep 1.$tenths
        done
    ) &
    cutter=$!
    bench_holds "$right" write --verify --size 16K --window 4 --seconds 16
    good=$?
    wait $cutter
    serve_end && return $good
}

# The cable out for good, while the control connection lives: the bench ends with an error in
# time, and does not hang.
cut_for_good() {
    serve || return 1
    (
        in_the_middle
        ip_ link set "$WIRE_A" down
    ) &
    cutter=$!
    if [ "$DEVICE" = shm ]; then
        wait $cutter
        serve_end
        return
    fi
    (
        unset WEIR_CONNECT_TIMEOUT_MS
        bench write --verify --size 16K --window 4 --seconds 30
    ) >"$WORK/table" 2>&1
    good=$?
    tail -n 2 "$WORK/table" | sed 's/^/# /'
    wait $cutter
    ip_ link set "$WIRE_A" up
    serve_end && [ "$good" -eq 1 ]
}

check wire_loss leaves_nothing bad loss 1%
check wire_delay leaves_nothing bad delay 5ms
check wire_reorder leaves_nothing bad delay 2ms reorder 25%
check wire_link_down_short leaves_nothing cut 1
check wire_link_flaps leaves_nothing flapping
check wire_link_down_long leaves_nothing cut_for_good
finish
