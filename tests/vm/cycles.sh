#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# cycles.sh: many times connect, transfer, close (T3, with the numbers of churn: B5), processes
# that are killed in the middle (H12), or leave a child behind, or become another program (W4),
# memory that is taken back under writes (T8): the kernel, descriptors and memory say that nothing
# stays behind.
. "$(dirname "$0")/lib.sh"
cycles=${CYCLES:-150}
kills=${KILLS:-5}
[ -z "$LONG" ] || { cycles=10000 kills=100; }

run() {
    WEIR_DEVICE=$DEVICE RDMA_A=$RDMA_A RDMA_B=$RDMA_B timeout "$1" "$BUILD/tests/vm/cycles" \
        "$2" "$3" "$DEVICE"
}
# A stream of iWARP does not say who broke it: EDEVICE, found out by trying. Elsewhere EREMOTE.
revoked() {
    case $RDMA_A in siw*) status=-34 ;; *) status=-21 ;; esac
    timeout "$patience" "$BUILD/tests/vm/revoked" "$DEVICE" $status
}
check T3_B5_cycles leaves_nothing run 3600 cycles "$cycles"
check H12_initiator_killed leaves_nothing run 1200 kill-initiator "$kills"
check H12_target_killed leaves_nothing run 1200 kill-target "$kills"
check W4_initiator_killed_its_child_lives leaves_nothing run 600 fork-initiator 3
check W4_target_killed_its_child_lives leaves_nothing run 600 fork-target 3
check W4_target_becomes_another_program leaves_nothing run 600 exec-target 3
check T8_memory_taken_back leaves_nothing revoked
finish
