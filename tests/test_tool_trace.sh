#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test_tool_trace.sh: weir trace from outside: the changes of state of a server that lives, is
# stopped, or is another user's, as text and as JSON; and the probes in the library.
# Usage: test_tool_trace.sh PATH-OF-WEIR [BEHAVIOUR]
#
# Prints one line a test and exits 1 if any failed, 77 without python3 (which judges the JSON).
# shellcheck disable=SC2317 # functions are called through check
set -u
. "$(dirname "$0")/tool_lib.sh"

serve() {
    rm -f "$dir/address"
    "$weir" serve >"$dir/address" 2>"$dir/serve.err" &
    serving=$! alive=$!
    until_so test -s "$dir/address" && address=$(cat "$dir/address")
}
serve_ended() {
    kill -CONT "$serving" 2>/dev/null
    kill "$serving"
    wait "$serving"
}
# traces ARGUMENTS...: into $dir/out.
traces() { run trace "$serving" "$@" >"$dir/out"; }
gone_by_now() { traces && grep -q 'is told: gone' "$dir/out"; }

# A session comes and goes.
sessions() {
    serve && run bench write --seconds 0.1 --peer "$address" >/dev/null && until_so gone_by_now &&
        head -n 1 "$dir/out" | grep -q "^engine of process $serving, device shm, listening at $address, opened at 20" &&
        grep -q ': a session is up: epoch 1, epoch there 1$' "$dir/out" &&
        grep -q ': the application is told: up$' "$dir/out" &&
        grep -q ': sends: BYE$' "$dir/out" && test "$(wc -l <"$dir/out")" -gt 10 &&
        traces --last 3 && test "$(wc -l <"$dir/out")" -eq 4 &&
        head -n 1 "$dir/out" | grep -q ', here the last 3$' && traces --last 1000000 &&
        test "$(wc -l <"$dir/out")" -gt 10 && serve_ended && nobody_left
}
# For a viewer: events with times that do not go back, on tracks with names.
json() {
    serve && run bench write --seconds 0.1 --peer "$address" >/dev/null && until_so gone_by_now &&
        run trace "$serving" --json >"$dir/out.json" && json_holds '
            [e["ts"] for e in r["traceEvents"] if e["ph"] == "i"]
                == sorted(e["ts"] for e in r["traceEvents"] if e["ph"] == "i")
            and {e["ph"] for e in r["traceEvents"]} == {"M", "i", "b", "e"}
            and all(e["pid"] == r["traceEvents"][0]["pid"] for e in r["traceEvents"])
            and {e["tid"] for e in r["traceEvents"]}
                == {e["tid"] for e in r["traceEvents"] if e["ph"] == "M"}
            and any(e["name"] == "a session is up: epoch 1, epoch there 1"
                    for e in r["traceEvents"])' && serve_ended && nobody_left
}
# One that is stopped is read all the same.
stopped() {
    serve && kill -STOP "$serving" && traces && grep -q 'the engine opens' "$dir/out" &&
        serve_ended && nobody_left
}
# Another user's, which a process that may do everything sees all the same.
anothers() {
    # Where that user reaches it.
    library=$(ldd "$weir" | awk '/libweir/ { print $3 }')
    mkdir "$dir/open" && cp "$weir" "$library" "$dir/open" && chmod -R go+rX "$dir" || return 1
    serve && ! LD_LIBRARY_PATH=$dir/open setpriv --reuid 65534 --clear-groups "$dir/open/weir" \
        trace "$serving" 2>"$dir/err" >&2 && grep -q 'not ours to look at' "$dir/err"
    so=$?
    serve_ended && nobody_left && return $so
}
no_such() {
    fails trace 999999999 && grep -q 'there is no process' "$dir/err" &&
        fails trace $$ && grep -q 'has no engine$' "$dir/err" && serve &&
        fails trace "$serving" --engine 1 && grep -q 'has no engine 1$' "$dir/err" && serve_ended
}
usage() {
    refused_as 'the number of a process is required' trace &&
        refused_as 'not the number of a process' trace x &&
        refused_as 'not the number' trace 0 && refused_as 'unexpected' trace 1 2 &&
        refused_as '--last does not go with --json' trace 1 --last 2 --json &&
        refused trace 1 --last 0 && refused trace 1 --engine x
}
# Before anything is measured or served, not at the first stall.
nowhere() {
    for command in 'bench send' serve; do
        # shellcheck disable=SC2086 # two words
        fails $command --stall-trace "$dir/none/x" && test "$(wc -l <"$dir/err")" -eq 1 &&
            grep -qF -- "--stall-trace $dir/none/x: No such file" "$dir/err" || return 1
    done
    nobody_left
}
# Each kind of change is a probe, where the library was built with them.
probes() {
    library=$(ldd "$weir" | awk '/libweir/ { print $3 }')
    readelf -n "$library" >"$dir/notes"
    for kind in $(sed -n 's/^    X(\([a-z_]*\), .*/\1/p' "$(dirname "$0")/../src/engine/trace.h"); do
        grep -q "Name: $kind\$" "$dir/notes" || { echo "no probe $kind"; return 1; }
        echo "$kind" >>"$dir/kinds"
    done
    test "$(wc -l <"$dir/kinds")" -gt 20
}

check M11_what_changed_in_a_server sessions
check M11_json_for_a_viewer json
check M11_a_process_that_is_stopped stopped
if [ "$(id -u)" -eq 0 ]; then check M11_another_users anothers; else echo 'skip M11_another_users: not root'; fi
check M11_what_is_not_there no_such
check M11_the_command_line usage
check M11_a_trace_of_stalls_that_cannot_be_written nowhere
if readelf -n "$(ldd "$weir" | awk '/libweir/ { print $3 }')" | grep -q 'Provider: weir'; then
    check M11_probes probes
else
    echo 'skip M11_probes: built without them'
fi
finish
