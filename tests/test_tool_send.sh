#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test_tool_send.sh: weir bench send from outside: messages of all sizes, their JSON, threads, small
# and full inboxes, messages that are held, and a target that stops.
# Usage: test_tool_send.sh PATH-OF-WEIR [BEHAVIOUR]
#
# Prints one line a test and exits 1 if any failed, 77 without python3 (which judges the JSON).
# shellcheck disable=SC2086,SC2317 # numbers; functions are called through check
set -u
. "$(dirname "$0")/tool_lib.sh"

# The members that each result of messages has.
sound='r["bench"] == "send" and r["operation"] == "one message" and r["ops"] > 0
    and r["transfers"] == r["ops"] and r["bytes"] == r["ops"] * r["size"]
    and r["size"] == r["options"]["size"] and r["ops_per_s"] > 0
    and (r["bytes_per_s"] > 0) == (r["size"] > 0)
    and 0 < r["latency_ns"]["p50"] <= r["latency_ns"]["p99"] <= r["latency_ns"]["max"]
    and r["latency_of"].startswith("of a message, sent to arrived"
        if r["options"]["batch"] == 1 else "of a call\u0027s first message, to the call")
    and r["cpu_ns_per_op"]["initiator"] > 0 and r["wrong_bytes"] == 0
    and r["inbox"]["chunks"] > 0 and r["inbox"]["chunk_bytes"] >= 64
    and r["device_counters"]["messages_sent"] >= r["ops"]
    and r["device_counters"]["message_bytes_sent"] >= r["bytes"]
    and ("limit" in r and r["limit"]["bytes_per_s"] > 0
        if r["size"] > 0 and not r["options"]["loan"] else r["fraction_of_limit"] is None)
    and all(key in r for key in ("device", "versions", "machine", "settings", "granted"))'

# sends ARGUMENTS...: a run, all of whose bytes are compared, which leaves nobody behind.
sends() {
    rm -f "$dir/out.json"
    run bench send --seconds 0.05 --verify "$@" --json "$dir/out.json" >"$dir/table" &&
        ! grep '^.\{81\}' "$dir/table" && json_holds "$sound" &&
        json_holds 'r["checked_bytes"] == r["bytes"] and r["verified"] == (r["bytes"] > 0)' &&
        nobody_left
}
# Some are copied when they are sent, longer ones are not; some take a line, some a chunk each.
sizes() {
    for size in 0 1 8 40 41 192 193 1001 65472 65473 1M 8M; do
        sends --size "$size" && continue
        echo "of $size bytes"
        return 1
    done
}
plain() {
    run bench send --seconds 0.05 --json "$dir/out.json" >"$dir/table" && json_holds "$sound" &&
        json_holds 'r["options"]["waiting"] is None and r["options"]["hold"] == 0
            and r["size"] == 65536 and not r["verified"] and r["checked_bytes"] == 0
            and r["times_memcpy"] > 0 and "results" not in r' &&
        grep -q '^64 KiB ' "$dir/table" && grep -q '^  an operation: one message$' "$dir/table"
}
threads() { sends --threads 4 --size 100 && sends --threads 3 --size 5000 --window 2; }
own_memory() { sends --memory own --size 192 && sends --memory own --size 64K; }
queues() {
    sends --qps 3 --depth 8 --size 4K && json_holds 'r["granted"]["qp_count"] == 3'
}
# Several by one call: of as many as the window has places, in a row; of all sizes.
batches() {
    sends --batch 8 --size 8 && json_holds 'r["options"]["batch"] == 8' &&
        sends --batch 1024 --window 100 --size 41 --threads 3 &&
        sends --batch 7 --window 16 --size 5000 --waiting 2 && sends --batch 3 --size 1M &&
        sends --batch 32 --window 64 --size 8 --hold 40 --waiting 10 &&
        run bench sweep --op send --batch 16 --seconds 0.01 >/dev/null
}
# Made where they are sent from; long ones are read there.
loans() {
    for size in 0 192 193 64K 1M; do
        sends --loan --size $size || return 1
        json_holds 'r["device_counters"]["messages_lent"] > r["ops"] / 2
            if r["size"] > 192 else r["device_counters"]["messages_lent"] == 0' || return 1
    done
    sends --loan --size 4K --threads 3 &&
        run bench send --latency --loan --size 1M --seconds 0.05 >"$dir/table" && nobody_left
}
# A longer one is a round trip of several copies; of an empty one there are no bytes.
latency() {
    for size in '' 0 192 193 8M; do
        run bench send --latency --seconds 0.05 ${size:+--size $size} --json "$dir/out.json" \
            >"$dir/table" && ! grep '^.\{81\}' "$dir/table" && json_holds '
            r["operation"] == "one round trip" and r["ops"] > 0 and r["label"] == "ping"
            and r["size"] == r["options"]["size"] and r["bytes"] == 2 * r["ops"] * r["size"]
            and r["options"]["latency"] is True and 0 < r["latency_ns"]["p50"]
            <= r["latency_ns"]["p99"] <= r["latency_ns"]["max"]
            and "a message each way" in r["latency_of"]
            and r["device_counters"]["messages_taken"] > r["ops"]' && nobody_left || return 1
        test -n "$size" || json_holds 'r["size"] == 8' || return 1
    done
}

# ---- inboxes that are full ----

# Room for fewer messages than are under way.
small_inbox() {
    sends --waiting 1 --size 64K --window 64 && json_holds 'r["inbox"]["chunks"] == 1' &&
        sends --waiting 3 --size 8M && json_holds 'r["inbox"]["chunks"] == 3' &&
        sends --waiting 1 --threads 4 --size 70000
}
# An engine of fewer transfers than are under way: those that have ended make room.
few_transfers() (
    export WEIR_TRANSFERS_MAX=3
    sends --window 64 --size 100 && sends --window 64 --threads 4 --size 5000 --waiting 1 &&
        json_holds 'r["device_counters"]["eagain_transfers"] > 0'
)
# As many as are held have room besides: of long messages, and of several in a chunk.
held() {
    sends --hold 1 --waiting 1 --size 64K && sends --hold 1 --waiting 1 --size 8 &&
        sends --hold 5 --size 20000 && sends --hold 3000 --waiting 2 --size 100 &&
        json_holds 'r["options"]["hold"] == 3000 and r["inbox"]["chunks"] * r["inbox"]["chunk_bytes"] > 3000 * 192' &&
        sends --hold 3 --size 8M --waiting 1 && sends --hold 1 --size 0
}
# A target that takes nothing for a while holds up, and loses nothing.
own_target() {
    # shellcheck disable=SC2013 # words, on one line
    for child in $(cat "/proc/$1/task/$1/children" 2>/dev/null); do
        tr '\0' ' ' <"/proc/$child/cmdline" 2>/dev/null | grep -q serve && echo "$child"
    done
}
connected() {
    target=$(own_target "$bench") && test -n "$target" &&
        grep -q weir-memory "/proc/$target/maps" 2>/dev/null
}
stopped() {
    rm -f "$dir/out.json"
    "$weir" bench send --verify --seconds 2 --json "$dir/out.json" "$@" >"$dir/table" 2>"$dir/err" &
    bench=$! alive=$!
    until_so connected || return 1
    sleep 0.3
    kill -STOP "$target"
    sleep 0.5
    kill -CONT "$target"
    wait "$bench" && json_holds "$sound" && json_holds 'r["verified"]' && nobody_left && return
    cat "$dir/err"
    return 1
}
interrupted() {
    "$weir" bench send --seconds 3600 "$@" >"$dir/stdout" 2>"$dir/err" &
    bench=$! alive=$!
    until_so connected || return 1
    kill -INT "$bench"
    wait "$bench"
    test $? -eq 1 && test "$(wc -l <"$dir/err")" -eq 1 && grep -q interrupted "$dir/err" && nobody_left
}

# The bench says when it waits, and for what. A busy machine may be the cause of another stall, and
# one that lasts when the target is stopped is not told again: then it is stopped once more.
said() { grep -q "stalled: nothing to .* has completed for .* ms: the peer's process is stopped" "$dir/err"; }
says_stalls() {
    WEIR_WATCHDOG_MS=200 "$weir" bench send --seconds 3600 --stall-trace "$dir/stall.txt" \
        >"$dir/stdout" 2>"$dir/err" &
    bench=$! alive=$!
    until_so connected || return 1
    tries=0
    until said; do
        tries=$((tries + 1))
        test "$tries" -le 60 || return 1
        kill -STOP "$target"
        sleep 1
        kill -CONT "$target"
        sleep 0.2
    done
    until_so grep -q 'resumed: something to ' "$dir/err" || return 1
    kill -INT "$bench"
    wait "$bench"
    test $? -eq 1 && grep -q 'stalled: waiting [0-9]*: pending ' "$dir/err" && nobody_left &&
        grep -q '^engine of process .* device shm' "$dir/stall.txt" &&
        tail -n 1 "$dir/stall.txt" | grep -q 'the application is told: stalled'
}

# ---- servers ----

# $serving and $address.
serve() {
    rm -f "$dir/address"
    "$weir" serve "$@" >"$dir/address" 2>"$dir/serve.err" &
    serving=$! alive=$!
    until_so test -s "$dir/address" && address=$(cat "$dir/address")
}
serve_ended() {
    kill "$serving"
    wait "$serving"
}
# Two at once, each with an inbox of its own, and a stream of writes.
together() {
    serve || return 1
    run bench send --size 100 --verify --seconds 0.5 --peer "$address" >/dev/null &
    one=$!
    run bench send --latency --seconds 0.5 --peer "$address" >/dev/null &
    other=$!
    run bench write --verify --seconds 0.5 --peer "$address" >/dev/null &&
        wait "$one" && wait "$other" &&
        run bench send --verify --seconds 0.05 --peer "$address" --hold 9 >/dev/null
    good=$?
    serve_ended && test $good -eq 0 && test ! -s "$dir/serve.err"
}
# An inbox is memory that a client asks for.
bounded() {
    serve --memory-max 2M || return 1
    fails_as '--memory-max allows less' bench send --size 1M --peer "$address" &&
        fails_as '--memory-max allows less' bench send --size 8 --hold 65536 --peer "$address" &&
        run bench send --size 8 --seconds 0.05 --peer "$address" >/dev/null
    good=$?
    serve_ended && test $good -eq 0
}
# More sessions of messages, one after the other, than an engine can have inboxes.
one_after_the_other() {
    serve || return 1
    for _ in 1 2 3 4; do
        run bench sweep --op send --seconds 0.01 --window 1 --peer "$address" >/dev/null || break
    done && run bench send --seconds 0.01 --peer "$address" >/dev/null
    good=$?
    serve_ended && test $good -eq 0
}

check B10_messages plain
check B10_messages_of_all_sizes sizes
check B10_messages_of_threads threads
check B10_messages_of_registered_memory own_memory
check B10_messages_through_small_queues queues
check B10_message_latency latency
check B10_messages_of_one_call batches
check B10_messages_made_in_place loans
check B10_small_inboxes small_inbox
check B10_messages_through_few_transfers few_transfers
check B10_messages_that_are_held held
check B10_a_target_that_stops_loses_nothing stopped
check B10_a_target_that_stops_with_a_full_inbox_loses_nothing stopped --waiting 1
check M10_a_bench_says_what_it_waits_for says_stalls
check B10_an_interrupt_ends_messages interrupted
check B10_an_interrupt_ends_their_latency interrupted --latency
check B10_servers_of_several together
check B10_memory_of_inboxes_is_bounded bounded
check B10_sessions_of_messages_leave_no_inbox one_after_the_other
finish
