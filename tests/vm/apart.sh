#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# apart.sh: control connections are cut for longer than any time-out, while data flows over the
# RDMA devices (W3). Scaled down: with a connect time-out of 3 s, and connections that the kernel
# gives up after 2 s of silence. With LONG the usual 10 s and 11 s, and a time-out of 30 s.
# shellcheck disable=SC2154 # variables of lib.sh
. "$(dirname "$0")/lib.sh"
[ "$DEVICE" = verbs ] && [ -n "$WIRE_CONTROL" ] || {
    skip W3_control_is_cut_while_data_flows 'nothing may be cut here'
    finish
}

# apart CONNECT_MS CUT_MS [hurry]
apart() {
    RDMA_A=$RDMA_A RDMA_B=$RDMA_B timeout "$patience" "$BUILD/tests/vm/apart" "$DEVICE" \
        "$1" "$2" "$WIRE_CONTROL" ${3:+"$3"}
    good=$?
    tc qdisc del dev "$WIRE_CONTROL" root 2>/dev/null # of one that failed
    return $good
}

check W3_control_is_cut_while_data_flows leaves_nothing apart 3000 5400 hurry
if [ -n "$LONG" ]; then
    check W3_control_is_cut_for_18_s leaves_nothing apart 10000 18000
    check W3_control_is_cut_for_29_s leaves_nothing apart 30000 29000
fi
finish
