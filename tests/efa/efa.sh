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
patience=120
passed=0
failed=0
serving=
benching=

[ -x "$weir" ] || { echo "usage: $0 BUILD: no $BUILD/weir"; exit 2; }
"$weir" info | grep -q '^device efa: available' || { echo 'skipped: this weir has no device efa'; exit 77; }

WORK=$(mktemp -d) || exit 1
# end PID: at once, and it is waited for.
end() {
    [ -n "$1" ] || return 0
    kill -CONT "$1" 2>/dev/null
    kill -KILL "$1" 2>/dev/null
    wait "$1" 2>/dev/null
}
clean_up() {
    # The bench's timeout(1) hands this on to it.
    [ -z "$benching" ] || kill -TERM "$benching" 2>/dev/null
    end "$serving"
    rm -rf "$WORK"
}
trap clean_up EXIT
trap 'exit 1' HUP INT TERM
export EFA_FAKE_CUT="$WORK/cut"

# ---- the target and the benches ----

# serve: starts it and sets $address.
serve() {
    : >"$WORK/address"
    "$weir" serve --device efa --listen 127.0.0.1:0 >"$WORK/address" 2>"$WORK/serve.err" &
    serving=$!
    for _ in $(seq 600); do
        address=$(cat "$WORK/address")
        [ -z "$address" ] || return 0
        kill -0 "$serving" 2>/dev/null || break
        sleep 0.1
    done
    cat "$WORK/serve.err"
    return 1
}
serve_end() {
    kill "$serving" && wait "$serving"
    ended=$?
    serving=
    cat "$WORK/serve.err"
    [ $ended -eq 0 ] || { why="the target ended with status $ended"; return 1; }
}
is_serving() {
    kill -0 "$serving" && return 0
    why='the target is gone'
    cat "$WORK/serve.err"
    return 1
}

# bench_begin COMMAND OPTIONS...: against the target.
bench_begin() {
    timeout -k 10 "$patience" "$weir" bench "$@" --device efa --peer "$address" \
        >"$WORK/bench" 2>&1 &
    benching=$!
}
# bench_end STATUS TEXT: it ends with that, and says so.
bench_end() {
    wait "$benching"
    bench_status=$?
    benching=
    cat "$WORK/bench"
    [ $bench_status -ne 124 ] || { why="it hung for $patience s"; return 1; }
    [ $bench_status -eq "$1" ] || { why="status $bench_status, not $1"; return 1; }
    grep -q "$2" "$WORK/bench" || { why="it does not say '$2'"; return 1; }
}
bench() {
    bench_begin "$@"
    bench_end 0 'verified: all .*[1-9][0-9]* bytes'
}
# in_the_middle COMMAND...: while the bench goes on.
in_the_middle() {
    sleep 1.5
    kill -0 "$benching" 2>/dev/null || { why='it ended before its middle'; return 1; }
    "$@"
}

# check NAME COMMAND...: one test.
check() {
    name=$1 why='' check_failed=
    shift
    if "$@" >"$WORK/log" 2>&1; then
        echo "ok $name"
        passed=$((passed + 1))
    else
        echo "not ok $name: ${why:-see below}"
        sed 's/^/# /' "$WORK/log"
        failed=$((failed + 1)) check_failed=1
    fi
}
count_checks() {
    echo "$passed passed, $failed failed"
    [ $failed -eq 0 ]
}
# begin NAME COMMAND...: likewise, and without it the others are nothing.
begin() {
    check "$@"
    [ -z "$check_failed" ] || { count_checks; exit 1; }
}

# ---- checks ----

write() { bench write --verify --size 16K --seconds 1; }
read_() { bench read --verify --size 16K --seconds 1; }
send() { bench send --verify --size 16K --seconds 1; }
fill() { bench fill --page-size 16K --pages 500 --repeat 2; }
replay() {
    "$weir" bench trace --requests 20 --output "$WORK/trace" &&
        bench replay --trace "$WORK/trace"
}
# with NAME HABITS...: a target and benches with these habits.
with() {
    habit=$1
    shift
    for set; do export "EFA_FAKE_$set"; done
    begin "target_$habit" serve
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
# cut_for_good BENCH: it ends with an error that says why, and the target serves others afterwards.
cut_for_good() {
    bench_begin "$1" --verify --size 16K --seconds 3600
    in_the_middle touch "$EFA_FAKE_CUT"
    bench_end 1 'timed out\|the peer is gone\|the peer left\|does not answer\|could not be established'
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

with usual SEED=2
export WEIR_EFA_FABRIC=efa
with not_direct SEED=3
unset WEIR_EFA_FABRIC
with eagain EAGAIN=90
with shallow TX=160 RX=128
with disorder REORDER=100 LATE=100
with no_wait NOWAIT=1
with nonsense NONSENSE=40
begin target_begins serve
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
    begin "target_of_${kind}_begins" serve
    check "${kind}_target_killed" killed "$kind"
done
count_checks
