#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# conformance.sh: the conformance suite of the verbs device, each of its tests, and that of messages,
# with engines over the device; and that they leave nothing behind.
# shellcheck disable=SC2034,SC2154 # failures is read by finish; variables of lib.sh
. "$(dirname "$0")/lib.sh"

# suite NAME: sets status. One that hangs ends before the guest ends this script.
suite() {
    before=$(witness)
    WEIR_VERBS_DEVICE=$RDMA_A WEIR_VERBS_PEER_DEVICE=$RDMA_B timeout 1000 \
        "$BUILD/tests/test_$1_$DEVICE" >"$WORK/suite" 2>&1
    status=$?
}

# run NAME: a suite, its output, and what it leaves.
run() {
    suite "$1"
    if [ $status -ne 0 ] && rxe_lost_its_place "$WORK/suite"; then
        echo "# rxe sent a write again from the wrong place: once more"
        suite "$1"
    fi
    cat "$WORK/suite"
    # 77 is "no device": here there is one, or was named.
    echo "# $1: status $status"
    [ $status -eq 0 ] || failures=$((failures + 1))
    check "$1_finds_device" test $status -ne 77
    check "$1_leaves_nothing" witness_again "$before" 60
}

# Beside other work an emulated network may be silent for longer than seven times 67 ms, the device's
# default. That ends a QP, and this suite has no engine that would replace it. 18 is 1.07 s.
WEIR_VERBS_TIMEOUT=18
export WEIR_VERBS_TIMEOUT
run conformance
unset WEIR_VERBS_TIMEOUT
run conformance_messages
finish
