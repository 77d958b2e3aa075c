#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# queue.sh: the send queue between two devices: batches of up to 100,000 segments at every depth
# (S1, S2), 16 threads on queues of 8 slots (S16), and that nothing stays behind.
# shellcheck disable=SC2034 # failures is read by finish
. "$(dirname "$0")/lib.sh"

before=$(witness)
for suite in sendqueue_batches stress; do
    WEIR_TEST_DEVICE=$DEVICE WEIR_VERBS_DEVICE=$RDMA_A WEIR_VERBS_PEER_DEVICE=$RDMA_B \
        timeout 3600 "$BUILD/tests/test_$suite" 2>&1
    status=$?
    # 77 is "no device": here there is one, or was named.
    echo "# $suite: status $status"
    [ $status -eq 0 ] || failures=$((failures + 1))
    check "${suite}_finds_device" test $status -ne 77
done
check queue_leaves_nothing witness_again "$before" 10
finish
