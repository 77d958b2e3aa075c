#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# wire.sh: verified benches while the wire loses, delays and reorders packets, and while the
# cable is out, once or again and again; and what a bench says that it waits for meanwhile.
. "$(dirname "$0")/lib.sh"
right='r["verified"] and r["checked_bytes"] > 0 and r["wrong_bytes"] == 0'
names='wire_loss wire_delay wire_reorder wire_link_down_short wire_link_flaps wire_link_down_long
    M10_wire_link_down M10_wire_host_gone'
[ -n "$WIRE_A" ] || {
    for name in $names; do skip "$name" 'the wire is not ours'; done
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

# stalled_while BREAK MEND TEXT: in the middle of a bench BREAK is called, and MEND when the bench has
# said that it is stalled; again, until it has said why. A stall is told once, and what a slow machine
# knows by then may be less.
told() { grep -c "stalled: nothing" "$WORK/stalled.err"; }
over() { grep -c "resumed: " "$WORK/stalled.err"; }
# until_so COMMAND...: while the bench lives.
until_so() {
    until "$@"; do
        kill -0 "$stalling" || return 1
        sleep 0.1
    done
}
more_told() { [ "$(told)" -gt "$before_told" ]; }
all_over() { [ "$(over)" -ge "$(told)" ]; }
stalled_while() {
    serve || return 1
    : >"$WORK/stalled.err"
    WEIR_WATCHDOG_MS=3000 WEIR_VERBS_DEVICE=$RDMA_A "$weir" bench write --device "$DEVICE" --peer "$address" \
        --size 16K --window 4 --seconds 3600 >"$WORK/table" 2>"$WORK/stalled.err" &
    stalling=$!
    in_the_middle
    kill -0 "$stalling" || { cat "$WORK/stalled.err"; return 1; }
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        before_told=$(told)
        $1
        until_so more_told
        $2
        until_so all_over || break
        ! grep -q "stalled: .*$3" "$WORK/stalled.err" || break
    done
    grep 'stalled: nothing\|resumed:' "$WORK/stalled.err" | sed 's/^/# /'
    kill -INT "$stalling" && wait "$stalling"
    [ $? -eq 1 ] && serve_end && grep -q "stalled: .*$3" "$WORK/stalled.err"
}
link_down() { ip link set "$WIRE_A" down; }
link_up() { ip link set "$WIRE_A" up; }
# Nothing comes through, of data or of control.
host_gone() {
    tc qdisc add dev "$WIRE_A" root netem loss 100% && tc qdisc add dev "$WIRE_CONTROL" root netem loss 100%
}
host_back() {
    tc qdisc del dev "$WIRE_A" root
    tc qdisc del dev "$WIRE_CONTROL" root
}

check wire_loss leaves_nothing bad loss 1%
check wire_delay leaves_nothing bad delay 5ms
check wire_reorder leaves_nothing bad delay 2ms reorder 25%
check wire_link_down_short leaves_nothing cut 1
check wire_link_flaps leaves_nothing flapping
check wire_link_down_long leaves_nothing cut_for_good
if [ "$DEVICE" = shm ]; then
    skip M10_wire_link_down 'shm has no wire'
    skip M10_wire_host_gone 'shm has no wire'
else
    check M10_wire_link_down leaves_nothing stalled_while link_down link_up "the link of this engine's device is down"
    check M10_wire_host_gone leaves_nothing stalled_while host_gone host_back "the peer's host does not answer"
fi
finish
