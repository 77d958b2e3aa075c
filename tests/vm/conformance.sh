#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# conformance.sh: the conformance suite of the verbs device, each of its tests, and that it
# leaves nothing behind.
# shellcheck disable=SC2034 # failures is read by finish
. "$(dirname "$0")/lib.sh"
suite=$BUILD/tests/test_conformance_$DEVICE

before=$(witness)
WEIR_VERBS_DEVICE=$RDMA_A WEIR_VERBS_PEER_DEVICE=$RDMA_B "$suite" 2>&1
status=$?
# 77 is "no device": here there is one, or was named.
echo "# status $status"
[ $status -eq 0 ] || failures=$((failures + 1))
check conformance_finds_device test $status -ne 77
check conformance_leaves_nothing witness_again "$before" 60
finish
