#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench_lib.sh: a target (`weir serve`) and benches against it, as checks; sourced, by a script that
# has set $weir and $device, and has at_target and at_bench: each takes the place of its process by
# the command that it is given (exec), where that is to run.
#
# It gives a directory $WORK that goes with the script, $address of the target, $serving and
# $benching, which are processes, and $why, for a check to say why it failed.
# shellcheck disable=SC2034,SC2154,SC2317 # variables of the script; functions through check
patience=120
passed=0
failed=0
serving=
benching=
WORK=$(mktemp -d) || exit 1

# end PID: at once, and it is waited for.
end() {
    [ -n "$1" ] || return 0
    kill -CONT "$1" 2>/dev/null
    kill -KILL "$1" 2>/dev/null
    wait "$1" 2>/dev/null
}
# For the script's clean_up.
end_all() {
    # The bench's timeout(1) hands this on to it.
    [ -z "$benching" ] || kill -TERM "$benching" 2>/dev/null
    end "$serving"
    rm -rf "$WORK"
}
uptime_s() { sed 's/\..*//' /proc/uptime; }

# ---- the target and the benches ----

# serve HOST: starts it and sets $address.
serve() {
    : >"$WORK/address"
    at_target "$weir" serve --device "$device" --listen "$1:0" \
        >"$WORK/address" 2>"$WORK/serve.err" 9>&- &
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
    at_bench timeout -k 10 "$patience" \
        "$weir" bench "$@" --device "$device" --peer "$address" --json "$WORK/json" \
        >"$WORK/bench" 2>&1 9>&- &
    benching=$!
    bench_began=$(uptime_s)
}
# bench_end STATUS TEXT: it ends with that, and says so.
bench_end() {
    wait "$benching"
    bench_status=$?
    benching=
    bench_took=$(($(uptime_s) - bench_began))
    cat "$WORK/bench"
    [ $bench_status -ne 124 ] || { why="it hung for $patience s"; return 1; }
    [ $bench_status -eq "$1" ] || { why="status $bench_status, not $1"; return 1; }
    grep -q "$2" "$WORK/bench" || { why="it does not say '$2'"; return 1; }
}
bench() {
    bench_begin "$@"
    bench_end 0 'verified: all .*[1-9][0-9]* bytes'
}

# ---- checks ----

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

write() { bench write --verify --size 16K --seconds 1; }
read_() { bench read --verify --size 16K --seconds 1; }
send() { bench send --verify --size 16K --seconds 1; }
fill() { bench fill --page-size 16K --pages 500 --repeat 2; }
replay() {
    "$weir" bench trace --requests 20 --output "$WORK/trace" &&
        bench replay --trace "$WORK/trace"
}
