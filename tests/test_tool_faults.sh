#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test_tool_faults.sh: weir bench faults from outside: its JSON and its drawing; that nothing is
# lost; that no process stays, whatever ends it; a target that cannot be started again.
# Usage: test_tool_faults.sh PATH-OF-WEIR [BEHAVIOUR]
#
# Prints one line a test and exits 1 if any failed, 77 without python3 (which judges the JSON).
# shellcheck disable=SC2086,SC2317 # numbers; functions are called through check
set -u
. "$(dirname "$0")/tool_lib.sh"

# ---- a result ----

# judge EXPRESSION...: the result has all faults, in order, and lost nothing; and each expression
# over r, the result, and f, its faults by name, holds.
judge() {
    python3 -c 'import json, sys
r = json.load(open(sys.argv[1]))
f = {fault["name"]: fault for fault in r["faults"]}
broken, killed = ["qp_error_here", "qp_error_there"], ["target_killed"]
number, count = (int, float), lambda n: type(n) is int and n >= 0
def holds(what, so):
    if not so:
        sys.exit("does not hold: " + what)
holds("names", [fault["name"] for fault in r["faults"]] == broken + killed + ["target_stopped"])
for name, fault in f.items():
    for key in "lost", "wrong_bytes", "repeated":
        holds(f"{name} {key}", fault[key] == 0)
    for key in "replays", "sessions_broken", "writes", "ended", "unanswered":
        holds(f"{name} {key}", count(fault[key]))
    for key in "at_ms", "gap_ms", "before_bytes_per_s":
        holds(f"{name} {key}", isinstance(fault[key], number) and fault[key] >= 0)
    back = fault["recovered_ms"]
    holds(f"{name} recovered", back is None or back >= fault["gap_ms"])
    holds(f"{name} ended_as", sum(fault["ended_as"].values()) == fault["ended"])
    holds(f"{name} errors", all(error.startswith("WEIR_E") for error in fault["ended_as"]))
    holds(f"{name} status", fault["fault_status"] == ("WEIR_EREMOTE" if name in broken else None))
    holds(f"{name} broken", (fault["sessions_broken"] >= 1) or name not in broken)
    holds(f"{name} restart", isinstance(fault["restart_ms"], float) == (name in killed))
    holds(f"{name} ends", fault["ended"] + fault["unanswered"] == 0 or name in killed)
at = [fault["at_ms"] for fault in r["faults"]]
holds("order", at == sorted(at) and at[0] > 0 and at[-1] < r["step_ms"] * len(r["timeline"]))
holds("bytes", all(map(count, r["timeline"])) and sum(r["timeline"]) == r["bytes"] > 0)
holds("sums", r["bytes"] == r["ops"] * r["options"]["size"] and r["wrong_bytes"] == 0
    and r["verified"] and sum(fault["writes"] for fault in r["faults"]) <= r["ops"]
    and r["checked_bytes"] <= r["bytes"])
holds("length", abs(r["seconds"] * 1000 - r["step_ms"] * len(r["timeline"])) <= r["step_ms"])
holds("common", all(key in r for key in ("ops_per_s", "latency_ns", "cpu_ns_per_op",
    "fraction_of_limit", "device", "versions", "machine", "device_counters", "settings",
    "granted")) and r["bench"] == "faults" and r["granted"]["sessions"] >= 4)
for what in sys.argv[2:]:
    holds(what, eval(what))' "$dir/out.json" "$@"
}
# faults ARGUMENTS...: a run, which leaves nobody behind.
faults() {
    rm -f "$dir/out.json"
    run bench faults --seconds 0.1 "$@" --json "$dir/out.json" >"$dir/table" && nobody_left
}
all_faults() { faults && judge 'r["step_ms"] == 10' 'r["options"]["size"] == 65536'; }
steps() { faults --step 7 --size 1001 --window 3 && judge 'r["step_ms"] == 7'; }
# More writes than a target has credits for: some are under way when it is killed.
many_under_way() {
    faults --size 4K --window 256 --qps 2 && judge 'r["granted"]["qp_count"] == 2' \
        'set(f["target_killed"]["ended_as"]) <= {"WEIR_EPEER"}'
}
own_memory() { faults --memory own --size 4K --depth 16 && judge; }
# drawn LOCALE: a row for each fault, and the drawing with its marks, in lines that a terminal has.
drawn() (
    export LC_ALL="$1"
    faults || exit 1
    cat "$dir/table" # for who reads why it failed
    for row in 'QP error here' 'QP error at the target' 'target killed, restarted' \
        'target stopped for 1 s'; do
        test "$(grep -c "^$row  *[0-9]" "$dir/table")" -eq 1 || exit 1
    done
    ! grep '^.\{81\}' "$dir/table" && grep -q '^ *1 *2 *3 *4$' "$dir/table"
)
# Letters that the locale has.
drawn_in_ascii() { drawn C && ! LC_ALL=C grep '[^ -~]' "$dir/table"; }
drawn_in_blocks() {
    locale -a | grep -qix 'c.utf-\?8' || return 0
    drawn C.UTF-8 && grep -q "$(printf '\342\226\210')" "$dir/table"
}

# ---- ends ----

# begin ARGUMENTS...: a bench whose first fault does not come soon; $bench and $target.
begin() {
    rm -f "$dir/begun.json" # a bench that was killed has left it
    "$@" --json "$dir/begun.json" >"$dir/stdout" 2>"$dir/err" &
    bench=$! alive=$!
    until_so has_target
}
has_target() {
    target=$(tr -d ' ' 2>/dev/null <"/proc/$bench/task/$bench/children")
    test -n "$target" && grep -q weir-memory "/proc/$target/maps" 2>/dev/null
}
# ended STATUS TEXT: the bench ends so, with one line, and nothing stays.
ended() {
    wait "$bench"
    status=$?
    cat "$dir/err"
    test $status -eq "$1" && test "$(wc -l <"$dir/err")" -eq 1 && grep -qF -- "$2" "$dir/err" &&
        test ! -e "$dir/begun.json" && nobody_left
}
killed() {
    wait "$bench"
    test $? -eq 137 && nobody_left
}
interrupted() {
    begin "$weir" bench faults --seconds 3600 || return 1
    kill -"$1" "$bench"
    ended 1 interrupted
}
bench_killed() {
    begin "$weir" bench faults --seconds 3600 || return 1
    kill -KILL "$bench"
    killed
}
# The target is stopped when the bench has to end it.
is_stopped() { grep -q '^State:[[:space:]]*T' "/proc/$target/status"; }
new_target_stopped() { has_target && is_stopped; }
while_stopped() {
    begin "$weir" bench faults --seconds 0.1 && until_so new_target_stopped || return 1
    kill -"$1" "$bench"
    if test "$1" = KILL; then killed; else ended 1 interrupted; fi
}
target_killed_by_another() {
    begin "$weir" bench faults --seconds 3600 || return 1
    kill -KILL "$target"
    ended 1 'killed by signal 9'
}
# Once it runs, its program cannot be started any more.
not_started_again() {
    cp "$weir" "$dir/weir" || return 1
    LD_LIBRARY_PATH=$(dirname "$weir")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export LD_LIBRARY_PATH
    begin "$dir/weir" bench faults --seconds 0.5 || return 1
    chmod a-x "$dir/weir"
    ended 1 'the target process did not start at 127.0.0.1:'
}
wrong() {
    refused bench faults --step 0 && refused bench faults --step 1001 &&
        refused bench faults --peer 127.0.0.1:1 && refused bench faults --size 0 &&
        refused bench faults --size 4G --window 1024 &&
        refused bench faults --seconds 0.04 && grep -qF 'has no 5 steps' "$dir/err"
}

check B8_faults_are_all_there_and_lose_nothing all_faults
check B8_steps_and_odd_sizes steps
check B8_writes_under_way_at_a_kill_are_counted_apart many_under_way
check B8_registered_memory own_memory
check B8_a_drawing_in_ascii_fits_the_terminal drawn_in_ascii
check B8_a_drawing_in_blocks_fits_the_terminal drawn_in_blocks
check B8_no_process_stays_after_an_interrupt interrupted INT
check B8_no_process_stays_after_a_request_to_end interrupted TERM
check B8_no_process_stays_after_a_kill bench_killed
check B8_a_stopped_target_ends_with_an_interrupt while_stopped INT
check B8_a_stopped_target_ends_with_a_kill while_stopped KILL
check H12_a_target_that_another_kills_is_a_failure target_killed_by_another
check B8_a_target_that_does_not_start_again_is_a_failure not_started_again
check wrong_options wrong
finish
