#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test_tool_incast.sh: weir bench incast from outside: its JSON and its tables; senders that are more
# than a server has room for by default; that no process stays, whatever ends it.
# Usage: test_tool_incast.sh PATH-OF-WEIR [BEHAVIOUR]
#
# Prints one line a test and exits 1 if any failed, 77 without python3 (which judges the JSON).
# shellcheck disable=SC2317 # functions are called through check
set -u
. "$(dirname "$0")/tool_lib.sh"

# judge EXPRESSION...: the result is sound, and each expression over r, the result, and rates, those
# of its senders, holds.
judge() {
    python3 -c 'import json, sys
r = json.load(open(sys.argv[1]))
number = lambda n: type(n) in (int, float) and n > 0
count = lambda n: type(n) is int and n >= 0
def holds(what, so):
    if not so:
        sys.exit("does not hold: " + what)
def near(a, b):
    return abs(a - b) <= 1e-9 * b
rates = [row["bytes_per_s"] for row in r["rows"]]
for name in ("alone_bytes_per_s", "sum_bytes_per_s", "slowest_bytes_per_s", "fastest_bytes_per_s",
        "slowest_of_mean", "fairness"):
    holds(name, number(r[name]))
holds("senders", len(rates) == r["options"]["senders"])
holds("numbers", [row["sender"] for row in r["rows"]] == list(range(len(rates))))
holds("types", all(map(number, rates)) and all(count(row[name]) for row in r["rows"]
    for name in ("ops", "submits_repeated", "recoveries"))
    and all(number(row["cpu_ns_per_op"]) for row in r["rows"]))
holds("sum", near(sum(rates), r["sum_bytes_per_s"]) and near(r["bytes_per_s"], sum(rates)))
holds("ends", min(rates) == r["slowest_bytes_per_s"] and max(rates) == r["fastest_bytes_per_s"])
holds("mean", near(r["slowest_of_mean"], min(rates) * len(rates) / sum(rates)))
holds("fairness", near(r["fairness"], sum(rates) ** 2 / len(rates) / sum(x * x for x in rates))
    and 0 < r["fairness"] < 1 + 1e-9)
holds("operations", sum(row["ops"] for row in r["rows"]) == r["ops"]
    and r["bytes"] == r["ops"] * r["options"]["size"]
    and r["submits_repeated"] == sum(row["submits_repeated"] for row in r["rows"]))
messages = r["options"]["op"] == "send"
holds("counters", r["device_counters"]["sessions_up"] == len(rates)
    and r["device_counters"]["message_bytes_sent" if messages else "bytes_written"] >= r["bytes"])
holds("messages", r["device_counters"]["messages_sent"] == (r["ops"] if messages else 0)
    and r["operation"] == ("one message" if messages else "one write"))
holds("common", r["bench"] == "incast" and all(key in r for key in ("ops_per_s", "latency_ns",
    "cpu_ns_per_op", "limit", "fraction_of_limit", "device", "versions", "machine", "settings",
    "granted")) and r["limit"]["bytes_per_s"] > 0 and len(r["settings"]) > 15)
for what in sys.argv[2:]:
    holds(what, eval(what))' "$dir/out.json" "$@"
}
# incast ARGUMENTS...: a run, which leaves nobody behind.
incast() {
    rm -f "$dir/out.json"
    run bench incast --seconds 0.1 "$@" --json "$dir/out.json" >"$dir/table" && nobody_left
}
eight() { incast && judge 'len(rates) == 8' 'r["options"]["size"] == 65536'; }
one() { incast --senders 1 && judge 'r["fairness"] == 1 == r["slowest_of_mean"]'; }
small() {
    incast --senders 3 --size 1001 --window 5 --qps 2 --depth 16 &&
        judge 'r["granted"]["qp_count"] == 2' 'r["granted"]["sq_depth"] == 15'
}
own_memory() { incast --senders 3 --memory own && judge 'r["options"]["memory"] == "own"'; }
# More than a server has room for by default.
many() { incast --senders 70 --size 4K --window 2 && judge 'len(rates) == 70'; }
# Messages to one inbox, which is of less than they all could send at once, or has more senders than
# chunks; each sender's come in their order, or the bench fails.
messages() { incast --op send "$@" && judge 'r["options"]["op"] == "send"'; }
# A row for each, in lines that a terminal has.
table() {
    incast --senders 5 || return 1
    test "$(grep -c '^sender [0-4]  *[0-9]' "$dir/table")" -eq 5 && ! grep '^.\{81\}' "$dir/table" &&
        grep -q '^one alone ' "$dir/table" && grep -q '^sum ' "$dir/table" &&
        grep -q '^slowest ' "$dir/table" && grep -q '^fastest ' "$dir/table" &&
        grep -q '^  fairness (Jain.s index): [01]\.' "$dir/table"
}

# ---- ends ----

# begin SECONDS ARGUMENTS...: a bench of four senders, of which one writes, or as many as $wanted says;
# $bench, $target and $senders.
begin() {
    seconds=${1:-3600}
    test $# -eq 0 || shift
    "$weir" bench incast --senders 4 --seconds "$seconds" "$@" >"$dir/stdout" 2>"$dir/err" &
    bench=$! alive=$!
    until_so all_there
}
# The first round has one sender, the second all.
all_there() {
    target= senders=
    for child in $(cat "/proc/$bench/task/$bench/children"); do
        case $(tr '\0' ' ' <"/proc/$child/cmdline" 2>/dev/null) in
        *serve*) target=$child ;;
        *) grep -q weir-memory "/proc/$child/maps" 2>/dev/null && senders="$senders $child" ;;
        esac
    done
    test -n "$target" && test "$(echo "$senders" | wc -w)" -ge "${wanted:-1}"
}
# ended STATUS TEXT: the bench ends so, and nothing stays.
ended() {
    wait "$bench"
    status=$?
    cat "$dir/err"
    test $status -eq "$1" && grep -qF -- "$2" "$dir/err" && nobody_left
}
one_line() { test "$(wc -l <"$dir/err")" -eq 1; }
interrupted() {
    begin || return 1
    kill -"$1" "$bench"
    ended 1 interrupted && one_line
}
# As a terminal does it: all of them. The target may see a sender end before it is told to, and say so
# in a line of its own.
interrupted_together() {
    begin || return 1
    # shellcheck disable=SC2086 # process ids
    kill -INT $senders $target "$bench"
    ended 1 interrupted
}
bench_killed() {
    begin || return 1
    kill -KILL "$bench"
    wait "$bench"
    test $? -eq 137 && nobody_left
}
together() {
    wanted=4
    begin 5
    begun=$?
    wanted=
    return $begun
}
bench_killed_together() {
    together || return 1
    kill -KILL "$bench"
    wait "$bench"
    test $? -eq 137 && nobody_left
}
# Here it may, too.
sender_killed() {
    together || return 1
    kill -KILL "${senders##* }"
    ended 1 'weir: sender ' && grep -q '^weir: sender [0-3] was killed by signal 9$' "$dir/err"
}
sender_asked_to_end() {
    begin || return 1
    kill -TERM "${senders##* }"
    ended 1 'weir: sender: interrupted'
}
# The process that sees it first says so, alone.
target_killed() {
    begin 3600 "$@" || return 1
    kill -KILL "$target"
    ended 1 'the target ' && one_line
}
wrong() {
    for value in 0 -1 501 x; do
        refused_as 'not a whole number from 1 to 500' bench incast --senders $value || return 1
    done
    refused_as 'over the limit of' bench incast --size 4G --window 1024 &&
        refused_as 'over the limit of' bench incast --size 16M --window 16 --senders 500 &&
        refused bench incast --peer 127.0.0.1:1 && refused bench incast --verify
}
# As many as fit are named, and that many do fit.
descriptors() (
    ulimit -n 100 || exit 0
    fails_as 'are enough for 3 senders' bench incast --senders 4 &&
        incast --senders 3 && judge 'len(rates) == 3'
)
wrong_world() {
    fails_as "$dir/no/such/place" bench incast --json "$dir/no/such/place" &&
        (export WEIR_SQ_DEPTH=x && fails_as 'WEIR_SQ_DEPTH=x' bench incast --senders 2) &&
        nobody_left
}

check B7_incast_of_eight eight
check B7_incast_of_one_is_even one
check B7_incast_of_odd_sizes small
check B7_incast_of_registered_memory own_memory
check B7_incast_of_more_than_a_server_has_room_for many
check B7_incast_of_messages messages
check B7_incast_of_messages_of_one messages --senders 1 --size 8
check B7_incast_of_messages_through_a_full_inbox messages --senders 3 --size 8M --window 2 --waiting 1
check B7_incast_of_messages_of_many messages --senders 20 --size 100 --window 5
check B7_incast_has_a_row_for_each table
check B7_no_sender_stays_after_an_interrupt interrupted INT
check B7_no_sender_stays_after_a_request_to_end interrupted TERM
check B7_no_sender_stays_after_an_interrupt_of_all interrupted_together
check B7_no_sender_stays_after_a_kill bench_killed
check B7_no_sender_of_many_stays_after_a_kill bench_killed_together
check B7_a_sender_that_is_killed_is_a_failure sender_killed
check B7_a_sender_that_is_asked_to_end_is_a_failure sender_asked_to_end
check H12_a_target_of_many_that_is_killed_is_a_failure target_killed
check H12_a_target_of_messages_that_is_killed_is_a_failure target_killed --op send
check wrong_options wrong
check too_few_descriptors descriptors
check wrong_world wrong_world
finish
