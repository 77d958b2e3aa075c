#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test_tool_storm.sh: weir bench storm from outside: its JSON and its table, both ways to call; peers
# that fail, and why; that no process stays, whatever ends it. Not how long it takes.
# Usage: test_tool_storm.sh PATH-OF-WEIR [BEHAVIOUR]
#
# Prints one line a test and exits 1 if any failed, 77 without python3 (which judges the JSON).
# shellcheck disable=SC2317 # functions are called through check
set -u
. "$(dirname "$0")/tool_lib.sh"

# judge EXPRESSION...: the result is sound, and each expression over r, the result, and rows holds.
judge() {
    python3 -c 'import json, sys
r = json.load(open(sys.argv[1]))
rows = r["rows"]
number = lambda n: type(n) in (int, float) and n >= 0
count = lambda n: type(n) is int and n >= 0
def holds(what, so):
    if not so:
        sys.exit("does not hold: " + what)
for row in rows:
    holds("counts", all(count(row[name]) for name in ("peers", "up", "failed")))
    holds("sum", row["up"] + row["failed"] == row["peers"] > 0)
    holds("failures", sum(row["failures"].values()) == row["failed"]
        and all(name.startswith("WEIR_E") for name in row["failures"]))
    holds("numbers", all(number(row[name]) for name in ("seconds", "handshakes_per_s",
        "sent_per_handshake", "resent_per_handshake", "stale_per_handshake")) and row["seconds"] > 0)
    holds("rate", abs(row["handshakes_per_s"] * row["seconds"] - row["up"]) < 1e-6 * row["peers"])
    holds("processors", all(number(row["cpu_ns_per_handshake"][side])
        for side in ("crowd", "target")))
    holds("memory", all(number(row["memory_bytes_per_peer"][kind])
        for kind in ("engine", "heap", "segment")))
holds("list", ",".join(str(row["peers"]) for row in rows) == r["options"]["peers"])
holds("common", r["bench"] == "storm" and "results" not in r and all(key in r for key in ("device",
    "versions", "machine", "device_counters", "settings", "granted")) and len(r["settings"]) > 15)
for what in sys.argv[2:]:
    holds(what, eval(what))' "$dir/out.json" "$@"
}
# storm ARGUMENTS...: a run in which all come up, and which leaves nobody behind.
storm() {
    rm -f "$dir/out.json"
    run bench storm "$@" --json "$dir/out.json" >"$dir/table" && nobody_left &&
        judge 'all(row["failed"] == 0 for row in rows)' \
            'r["device_counters"]["sessions_up"] == rows[-1]["up"]' \
            'r["granted"]["qp_count"] == 1' \
            'all(row["sent_per_handshake"] > 0 for row in rows)' \
            'all(row["cpu_ns_per_handshake"]["crowd"] > 0 for row in rows)'
}
several() { storm --peers 1,40,150 && judge 'r["options"]["dial"] is False'; }
dialled() {
    storm --peers 150 --dial --most-resent 1000 && judge 'r["options"]["dial"] is True' \
        'r["options"]["most-resent"] == 1000'
}
# Writes to one peer, when all are there; and none by default.
busy() {
    storm --peers 1,20 --seconds 0.2 && judge 'all(row["writes_per_s"] > 0 for row in rows)' \
        'r["options"]["seconds"] == 0.2' &&
        test "$(grep -c '^ *[1-9][0-9]* writes of 8 bytes a second, to one of them$' "$dir/table")" -eq 2 &&
        storm --peers 20 --dial --seconds 0.2 && judge 'rows[0]["writes_per_s"] > 0' &&
        storm --peers 2 && judge '"writes_per_s" not in rows[0]' && ! grep writes "$dir/table"
}
# As many processes as it takes, when a process has few descriptors.
crowded() (
    ulimit -n 400 || exit 0
    storm --peers 60 --device shm
)
# A row for each, in lines that a terminal has.
table() {
    storm --peers 9,17 || return 1
    ! grep '^.\{81\}' "$dir/table" && grep -q '^ *9  *9  *0 ' "$dir/table" &&
        grep -q '^ *17  *17  *0 ' "$dir/table"
}

# ---- failures ----

# Once the crowd is there the target has no descriptors more for it. A machine on which all
# are up before that is asked again.
starved() {
    for _ in 1 2 3 4 5; do
        begin env WEIR_CONNECT_TIMEOUT_MS=500 "$weir" bench storm --peers 700 \
            --json "$dir/out.json" && prlimit --pid "$target" --nofile=60:60
        wait "$bench" && continue
        cat "$dir/err"
        grep -q '^weir: bench storm: [0-9]* of 700 peers failed: WEIR_E[A-Z]* ([0-9]*)' \
            "$dir/err" && test "$(wc -l <"$dir/err")" -eq 1 && nobody_left && judge \
            'rows[0]["failed"] > 0' && return
        return 1
    done
    return 1
}
# Messages of a handshake are said again when the target is stopped for longer than they wait.
resent() {
    begin env WEIR_CONNECT_TIMEOUT_MS=600000 "$weir" bench storm --peers 300 --most-resent 0 \
        --json "$dir/out.json" || return 1
    kill -STOP "$target"
    sleep 2
    kill -CONT "$target"
    wait "$bench"
    status=$?
    cat "$dir/err"
    nobody_left && judge 'rows[0]["failed"] == 0' || return 1
    if judge 'rows[0]["resent_per_handshake"] > 0'; then
        test $status -eq 1 && grep -q 'more than --most-resent 0$' "$dir/err"
    else
        test $status -eq 0
    fi
}
# begin COMMAND...: a storm, once its target is ready and its crowd has begun; $bench, $target and
# $crowd.
begin() {
    "$@" >"$dir/stdout" 2>"$dir/err" &
    bench=$! alive=$!
    until_so both_there
}
both_there() {
    # shellcheck disable=SC2046 # process ids
    set -- $(cat "/proc/$bench/task/$bench/children" 2>/dev/null)
    target=${1:-} crowd=${2:-}
    test -n "$crowd"
}
# ended TEXT: the bench fails so, with one line, and nothing stays.
ended() {
    wait "$bench"
    status=$?
    cat "$dir/err"
    test $status -eq 1 && test "$(wc -l <"$dir/err")" -eq 1 && grep -qF -- "$1" "$dir/err" &&
        nobody_left
}
interrupted() {
    begin "$weir" bench storm --peers 700 || return 1
    kill -"$1" "$bench"
    ended interrupted
}
interrupted_together() {
    begin "$weir" bench storm --peers 700 || return 1
    kill -INT "$crowd" "$target" "$bench"
    ended interrupted
}
bench_killed() {
    begin "$weir" bench storm --peers 700 || return 1
    kill -KILL "$bench"
    wait "$bench"
    test $? -eq 137 && nobody_left
}
target_killed() {
    begin "$weir" bench storm --peers 700 || return 1
    kill -KILL "$target"
    ended 'target was killed by signal 9'
}
crowd_killed() {
    begin "$weir" bench storm --peers 700 || return 1
    kill -KILL "$crowd"
    ended 'was killed by signal 9'
}
wrong() {
    refused bench storm --seconds 0 || return 1
    for list in 0 -1 20001 x 1,,2 1, ,1 1K '1 2' 1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8; do
        refused_as "--peers $list: not up to 16 whole numbers" bench storm --peers "$list" ||
            return 1
    done
    refused_as 'not a number from 0 to 1000' bench storm --most-resent -1 &&
        refused bench storm --peer 127.0.0.1:1 && refused bench storm --size 8
}
# As many as fit are named.
descriptors() (
    ulimit -n 200 || exit 0
    fails_as 'are enough for 24 peers' bench storm --peers 24,25 && storm --peers 24
)
wrong_world() {
    fails_as "$dir/no/such/place" bench storm --json "$dir/no/such/place" &&
        (export WEIR_SQ_DEPTH=x && fails_as 'WEIR_SQ_DEPTH=x' bench storm --peers 5) && nobody_left
}

check B7_storms_of_several_sizes several
check B7_a_storm_that_the_target_calls dialled
check B7_a_storm_from_several_processes crowded
check B7_a_busy_peer_beside_those_of_a_storm busy
check B7_a_storm_has_a_row_for_each_size table
if command -v prlimit >/dev/null; then
    check B7_peers_that_fail_are_told_with_their_reason starved
else
    echo 'skip B7_peers_that_fail_are_told_with_their_reason: no prlimit here'
fi
check B7_what_is_said_again_is_judged resent
check B7_nobody_of_a_storm_stays_after_an_interrupt interrupted INT
check B7_nobody_of_a_storm_stays_after_a_request_to_end interrupted TERM
check B7_nobody_of_a_storm_stays_after_an_interrupt_of_all interrupted_together
check B7_nobody_of_a_storm_stays_after_a_kill bench_killed
check H12_a_target_of_a_storm_that_is_killed_is_a_failure target_killed
check B7_a_crowd_that_is_killed_is_a_failure crowd_killed
check wrong_options wrong
check too_few_descriptors descriptors
check wrong_world wrong_world
finish
