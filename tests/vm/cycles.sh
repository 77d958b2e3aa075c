#!/bin/sh
# cycles.sh: many times connect, transfer, close (T3), and processes that are killed in the
# middle (H12): the kernel, descriptors and memory say that nothing stays behind.
. "$(dirname "$0")/lib.sh"
cycles=${CYCLES:-1000}
kills=${KILLS:-5}
[ -z "$LONG" ] || { cycles=10000 kills=100; }

run() {
    WEIR_DEVICE=$DEVICE RDMA_A=$RDMA_A RDMA_B=$RDMA_B timeout "$1" "$BUILD/tests/vm/cycles" \
        "$2" "$3" "$DEVICE"
}
check T3_cycles leaves_nothing run 3600 cycles "$cycles"
check H12_initiator_killed leaves_nothing run 1200 kill-initiator "$kills"
check H12_target_killed leaves_nothing run 1200 kill-target "$kills"
finish
