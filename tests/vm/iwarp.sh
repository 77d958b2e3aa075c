#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# iwarp.sh: the other scripts' questions to RoCE, to iWARP: the same scripts on the devices siw0 and
# siw1, where the kernel has them. Names of tests begin with "iwarp_".
# shellcheck disable=SC2034 # failures is read by finish
. "$(dirname "$0")/lib.sh"
if [ "$DEVICE" != verbs ] || [ ! -d /sys/class/infiniband/siw1 ]; then
    skip iwarp 'there is no software iWARP here'
    finish
fi
# The kernel must ask for the other side's hardware address first.
neighbour_unknown() {
    ip neigh flush all
    RDMA_A=siw0 RDMA_B=siw1 timeout "$patience" "$BUILD/tests/vm/cycles" cycles 1 verbs
}
for _ in 1 2 3; do
    check iwarp_H8_neighbour_unknown leaves_nothing neighbour_unknown
done
few=1
[ -z "$LONG" ] || few=
[ -n "$LONG" ] || export KILLS="${KILLS:-3}"
for test in ${IWARP:-conformance tool cycles messages recovery apart}; do
    # Of the wire below nothing is known here.
    {
        RDMA_A=siw0 RDMA_B=siw1 WIRE_A='' CYCLES=${IWARP_CYCLES:-50} FEW=$few sh "$here/$test.sh" 2>&1 ||
            : >"$WORK/failed"
    } | sed -u -E 's/^(ok|FAILED|skip) /\1 iwarp_/'
    [ ! -e "$WORK/failed" ] || failures=$((failures + 1))
    rm -f "$WORK/failed"
done
finish
