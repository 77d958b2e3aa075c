#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# efa.sh: weir's tool on device efa, over the provider that plays the network card (provider.c): a
# target and benches, as its habits are worse than usual, the cable is out, a process is stopped or
# killed. Its argument is the build directory; FI_PROVIDER_PATH names the provider.
#
# Each check prints one line, "ok NAME" or "not ok NAME: why", and what it saw when it failed; the
# last line counts. No check depends on the machine's speed: a time-out ends what hangs, and nothing
# else. Every byte is verified.
# shellcheck disable=SC2317 # functions through check
set -u
BUILD=${1:?usage: $0 BUILD}
weir=$(readlink -f "$BUILD/weir")
[ -x "$weir" ] || { echo "usage: $0 BUILD: no $BUILD/weir"; exit 2; }
"$weir" info | grep -q '^device efa: \(available\|RLIMIT_MEMLOCK\)' || { echo 'skipped: this weir has no device efa'; exit 77; }

device=efa
at_target() { exec "$@"; }
at_bench() { exec "$@"; }
# shellcheck source=tests/bench_lib.sh
. "$(dirname "$0")/../bench_lib.sh"
trap end_all EXIT
trap 'exit 1' HUP INT TERM
export EFA_FAKE_CUT="$WORK/cut"

# is_connected: whether the bench has a session, as it remembers.
is_connected() {
    "$weir" trace "$(pgrep -P "$benching")" 2>/dev/null | grep -q 'a session is up'
}
# in_the_middle COMMAND...: while the bench goes on, some time after it has a session.
in_the_middle() {
    until is_connected; do
        kill -0 "$benching" 2>/dev/null || break
        sleep 0.1
    done
    sleep 1
    kill -0 "$benching" 2>/dev/null || { why='it ended before its middle'; return 1; }
    "$@"
}

# ---- checks ----

# with NAME HABITS...: a target and benches with these habits.
with() {
    habit=$1
    shift
    for set; do export "EFA_FAKE_$set"; done
    begin "target_$habit" serve 127.0.0.1
    for kind in write read_ send fill replay; do
        check "${kind%_}_$habit" "$kind"
    done
    check "target_ends_$habit" serve_end
    for set; do unset "EFA_FAKE_${set%%=*}"; done
}

cut_for() { : >"$EFA_FAKE_CUT" && sleep "$1" && rm "$EFA_FAKE_CUT"; }
stopped_for() { kill -STOP "$serving" && sleep "$1" && kill -CONT "$serving"; }
# ends_well BREAK SECONDS BENCH: broken in the middle for so long, which it gets over.
ends_well() {
    bench_begin "$3" --verify --size 16K --seconds 6
    in_the_middle "$1" "$2"
    broken=$?
    bench_end 0 'verified: all .*[1-9][0-9]* bytes' && [ $broken -eq 0 ]
}
# cut_for_good BENCH: it ends with an error that says why, and the target serves others afterwards. The
# control connections are well: where a request had arrived before, and its answer cannot, the bench
# ends for want of that.
cut_for_good() {
    bench_begin "$1" --verify --size 16K --seconds 3600
    in_the_middle touch "$EFA_FAKE_CUT"
    bench_end 1 'timed out\|the peer is gone\|the peer left\|does not answer\|could not be established\|nothing has moved'
    cut_good=$?
    rm -f "$EFA_FAKE_CUT"
    is_serving && write && [ $cut_good -eq 0 ]
}
# killed BENCH: its target is, and it says so.
killed() {
    bench_begin "$1" --verify --size 16K --seconds 3600
    in_the_middle kill -KILL "$serving"
    bench_end 1 'the peer is gone'
    killed_good=$?
    wait "$serving"
    serving=
    [ $killed_good -eq 0 ]
}

# Without CAP_IPC_LOCK, and with 64 KiB that may be locked. The NIC that is played locks nothing, and
# refuses here as a driver does.
limited() {
    # shellcheck disable=SC2016 # for that shell
    setpriv --bounding-set -ipc_lock sh -c 'ulimit -l 64; exec timeout 60 "$@"' sh "$@"
}
memlock() {
    limited "$weir" info >"$WORK/limited"
    cat "$WORK/limited"
    grep -A 1 '^device efa: RLIMIT_MEMLOCK' "$WORK/limited" |
        grep -q 'RLIMIT_MEMLOCK (ulimit -l) leaves 0 KiB, an engine needs' || return 1
    EFA_FAKE_REFUSE_MR=1 limited "$weir" serve --device efa >"$WORK/limited" 2>&1 && return 1
    cat "$WORK/limited"
    grep -q 'RLIMIT_MEMLOCK.*WEIR_EMEMLOCK' "$WORK/limited"
}

if setpriv --bounding-set -ipc_lock true 2>/dev/null; then
    check what_may_be_locked memlock
fi
with usual SEED=2
export WEIR_EFA_FABRIC=efa
with not_direct SEED=3
unset WEIR_EFA_FABRIC
with eagain EAGAIN=90
with shallow TX=160 RX=128
with disorder REORDER=100 LATE=100
with no_wait NOWAIT=1
with nonsense NONSENSE=40
with breaking BREAK=2000
begin target_begins serve 127.0.0.1
for kind in write read send; do
    check "${kind}_cut_1s" ends_well cut_for 1 "$kind"
    check "${kind}_cut_3s" ends_well cut_for 3 "$kind"
    check "${kind}_stopped_1s" ends_well stopped_for 1 "$kind"
    check "${kind}_stopped_3s" ends_well stopped_for 3 "$kind"
done
for kind in write read send; do
    check "${kind}_cut_for_good" cut_for_good "$kind"
done
check target_ends serve_end
for kind in write read send; do
    begin "target_of_${kind}_begins" serve 127.0.0.1
    check "${kind}_target_killed" killed "$kind"
done
count_checks
