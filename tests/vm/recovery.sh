#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# recovery.sh: how long it takes from a QP in the error state until all that was in flight is done
# again, with the QP moved there behind weir's back: bench/recovery.c, between the two devices.
# The time means little on an emulated machine; that nothing is lost, and that each step comes
# without waiting for a time-out (connecting and stalls have 10 s), means the same everywhere. Its
# tables are the numbers of fault runs (B5).
# shellcheck disable=SC2154 # variables of lib.sh
. "$(dirname "$0")/lib.sh"
breaks=12
[ -z "$LONG" ] || breaks=100 patience=6000

# broken_once PROCESSES MS OPTIONS...: the 99th percentile is below MS.
broken_once() {
    processes=$1 most=$2
    shift 2
    leaves_nothing env RDMA_A="$RDMA_A" RDMA_B="$RDMA_B" timeout "$patience" \
        "$BUILD/bench/recovery" --device "$DEVICE" --processes "$processes" --breaks "$breaks" \
        --most-ms "$most" "$@"
}

broken() {
    broken_once "$@" >"$WORK/table" 2>&1
    good=$?
    cat "$WORK/table"
    [ $good -ne 0 ] && rxe_lost_its_place "$WORK/table" || return $good
    echo "# rxe sent a write again from the wrong place: once more"
    broken_once "$@"
}

check S9_B5_recovery_of_one_process broken 1 9000
check S9_B5_recovery_of_two_processes broken 2 9000
finish
