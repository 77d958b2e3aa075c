#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# crowd.sh: more peers on one RDMA device than one completion queue has room for (Soft-RoCE: 96 of
# default depth), and with LONG 2,000 of them: all are connected at once, and nothing stays.
# shellcheck disable=SC2154 # variables of lib.sh
. "$(dirname "$0")/lib.sh"
peers=${PEERS:-150}
[ -z "$LONG" ] || peers=${PEERS:-2000}

crowd() {
    timeout 3000 "$BUILD/tests/vm/crowd" "$DEVICE" "$RDMA_A" "$RDMA_B" "$1"
}
check "W7_W8_crowd_of_$peers" leaves_nothing crowd "$peers"
finish
