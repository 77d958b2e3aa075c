#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# messages.sh: messages between two processes. The receiver is killed and another one started at its
# address, the sender is killed, the receiver is stopped for a second: nothing is lost, comes twice
# or out of order. No SEND finds a receiver without a receive, whoever stands still (M2): the
# device's count of that stays where it was, and nothing breaks. And what a stall is put down to.
# shellcheck disable=SC2154 # variables of lib.sh
. "$(dirname "$0")/lib.sh"
kills=${KILLS:-5}
stops=2
[ -z "$LONG" ] || kills=100 stops=20

run() {
    RDMA_A=$RDMA_A RDMA_B=$RDMA_B timeout "$patience" "$BUILD/tests/vm/messages" "$1" "$2" "$DEVICE"
}

# How often SENDs found no receive, both devices together; nothing where that is not counted.
not_ready() {
    cat /sys/class/infiniband/"$RDMA_A"/ports/1/hw_counters/*rnr* \
        /sys/class/infiniband/"$RDMA_B"/ports/1/hw_counters/*rnr* 2>/dev/null |
        awk '{ sum += $1 } END { if (NR > 0) print sum }'
}

stopped() {
    counted=$(not_ready)
    run stop-receiver "$stops" || return 1
    now=$(not_ready)
    echo "# receivers that were not ready: ${counted:-not counted} before, ${now:-not counted} after"
    test "$now" = "$counted"
}

# What is told of a peer that stands still, and why it does.
stalls_are_told() {
    WEIR_TEST_DEVICE=$DEVICE WEIR_VERBS_DEVICE=$RDMA_A WEIR_VERBS_PEER_DEVICE=$RDMA_B \
        timeout "$patience" "$BUILD/tests/test_stalls" >"$WORK/stalls" 2>&1
    status=$?
    sed 's/^nothing to/# nothing to/' "$WORK/stalls"
    return $status
}

check M10_stalls_have_a_cause leaves_nothing stalls_are_told
check S9_receiver_killed leaves_nothing run kill-receiver "$kills"
check S9_sender_killed leaves_nothing run kill-sender "$kills"
check M2_W4_receiver_stopped leaves_nothing stopped
finish
