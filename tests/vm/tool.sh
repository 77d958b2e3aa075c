#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tool.sh: the weir command between two processes, every byte checked, and that the kernel holds
# nothing of theirs afterwards. With FEW=1 not all sizes and kinds of memory.
. "$(dirname "$0")/lib.sh"
right='r["verified"] and r["checked_bytes"] > 0 and r["wrong_bytes"] == 0'
seconds=1

info() {
    on a "$weir" info --json >"$WORK/info.json" && python3 -c 'import json, sys
devices = {d["name"]: d for d in json.load(open(sys.argv[1]))["devices"]}
d = devices.get(sys.argv[2])
sys.exit(0 if d and d["available"] else f"{sys.argv[2]}: {d}")' "$WORK/info.json" "$DEVICE"
}
served() {
    : >"$WORK/table.err"
    serve || return 1
    bench_holds "$right" "$@"
    good=$?
    [ $good -eq 0 ] || cat "$WORK/serve.err"
    serve_end && return $good
}
round() {
    served "$@" && return
    [ "$1" != read ] && rxe_lost_its_place "$WORK/table.err" || return
    echo "# rxe sent a write again from the wrong place: once more"
    device_counts
    served "$@"
}
replay() {
    "$weir" bench trace --requests 40 --seed 3 >"$WORK/trace" &&
        round replay --trace "$WORK/trace" --kv-bytes-per-token 8 --pool 16M
}
# Two processes that the tool starts by itself.
own_target() {
    on a timeout "$patience" "$weir" bench write --device "$DEVICE" --size 4K --seconds 0.5 --verify
}
# Without CAP_IPC_LOCK, and with 64 KiB that may be locked.
limited() {
    # shellcheck disable=SC2016 # for that shell
    on a setpriv --bounding-set -ipc_lock sh -c 'ulimit -l 64; exec timeout 20 "$@"' sh "$@"
}
memlock() {
    limited "$weir" info >"$WORK/limited"
    grep 'RLIMIT_MEMLOCK (ulimit -l) leaves 64 KiB, an engine needs' "$WORK/limited" ||
        { cat "$WORK/limited"; return 1; }
    limited "$weir" serve --device "$DEVICE" >"$WORK/limited" 2>&1 && return 1
    sed 's/^/# /' "$WORK/limited"
    grep -q 'RLIMIT_MEMLOCK.*WEIR_EMEMLOCK' "$WORK/limited"
}

check info_shows_device info
[ "$DEVICE" = verbs ] && check W10_what_may_be_locked_is_named memlock
check B4_write_verified leaves_nothing round write --verify --size 64K --seconds $seconds
many() { [ -n "${FEW:-}" ] || check "$@"; }
many B4_write_small leaves_nothing round write --verify --size 64 --seconds $seconds
many B4_write_odd_size leaves_nothing round write --verify --size 10001 --seconds $seconds
many B4_write_own_memory leaves_nothing round write --verify --memory own --size 64K --seconds $seconds
check B4_read_verified leaves_nothing round read --verify --size 64K --seconds $seconds
many B4_read_small leaves_nothing round read --verify --size 64 --seconds $seconds
check S2_small_depth leaves_nothing round write --verify --segments 100 --depth 8 --size 256 --seconds $seconds
check S16_threads leaves_nothing round write --verify --threads 4 --size 4K --seconds $seconds
check S4_several_qps leaves_nothing round write --verify --qps 4 --size 16K --seconds $seconds
check B10_messages leaves_nothing round send --verify --size 64K --seconds $seconds
many B10_small_messages leaves_nothing round send --verify --size 100 --hold 5 --seconds $seconds
check B3_fill leaves_nothing round fill --pages 64 --page-size 4K --repeat 3
check B6_replay leaves_nothing replay
many own_target leaves_nothing own_target
finish
