#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# removed.sh: an RDMA device that is removed while it is used: its application is told, its peers
# are refused with the reason, and who removes it does not have to wait for the process to end.
# shellcheck disable=SC2154 # variables of lib.sh
. "$(dirname "$0")/lib.sh"
[ "$DEVICE" = verbs ] && [ -n "$WIRE_A" ] || { skip removed 'no device may be removed here'; finish; }

# A removal that waits cannot be killed: it is left behind.
# removal: begins it. removal_ends SECONDS: with status 0, within so long.
removal() {
    rm -f "$WORK/removed"
    (rdma link delete "$RDMA_B" && : >"$WORK/removed") &
}
removal_ends() {
    tries=$(($1 * 10))
    while ! [ -e "$WORK/removed" ]; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || { echo "$RDMA_B is not removed after $1 s"; return 1; }
        sleep 0.1
    done
}
again() { rdma link add "$RDMA_B" type rxe netdev "$1"; }
wire_b=$(cat "/sys/class/infiniband/$RDMA_B/parent" 2>/dev/null || echo v1)

# until_says FILE TEXT SECONDS
until_says() {
    tries=$(($3 * 10))
    while ! grep -q "$2" "$1"; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || { echo "no \"$2\" after $3 s:"; cat "$1"; return 1; }
        sleep 0.1
    done
}

application() {
    mkfifo "$WORK/end"
    "$BUILD/tests/vm/removed" "$DEVICE" "$RDMA_A" "$RDMA_B" <"$WORK/end" >"$WORK/said" 2>&1 &
    it=$!
    exec 9>"$WORK/end"
    until_says "$WORK/said" writing 30 && removal &&
        until_says "$WORK/said" 'target: DEVICE_FAILED' 20 &&
        until_says "$WORK/said" 'writer: refused with WEIR_EDEVICE' 20 &&
        removal_ends 20 && kill -0 $it
    good=$?
    exec 9>&-
    wait $it || good=1
    sed 's/^/# /' "$WORK/said"
    removal_ends 30 && again "$wire_b" && return $good
}

server() {
    serve || return 1
    bench write --size 64K --seconds 30 >"$WORK/bench" 2>&1 &
    benching=$!
    sleep 2
    removal
    wait "$serving"
    ended=$?
    serving=
    wait $benching
    sed 's/^/# serve: /' "$WORK/serve.err"
    sed 's/^/# bench: /' "$WORK/bench"
    removal_ends 20 && again "$wire_b" || return 1
    [ $ended -eq 1 ] && grep -q 'the device failed (WEIR_EDEVICE)' "$WORK/serve.err" &&
        grep -q 'gone\|refused' "$WORK/bench"
}

check W7_W9_a_device_is_removed_under_an_application application
check W7_W9_a_device_is_removed_under_a_server server
finish
