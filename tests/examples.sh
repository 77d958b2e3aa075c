#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# examples.sh NAME PROGRAM [DEVICE [PYTHON SCRIPT]]: the example does what its first comment says, its
# processes being killed, and started again, where that is what it is about. With a script, that is
# what is tried, and the program is the other side of some of it.
. "$(dirname "$0")/step_lib.sh"
name=$1
program=$2
device=${3:-shm}
other=$program
if [ $# -gt 4 ]; then
    "$4" -c 'import numpy' 2>/dev/null || {
        echo "examples: python3-numpy is not installed"
        [ -z "${CI:-}" ] || exit 1
        exit 77
    }
    printf '#!/bin/sh\nexec "%s" "%s" "$@"\n' "$4" "$5" >"$WORK/script"
    chmod +x "$WORK/script"
    program=$WORK/script
fi
# shellcheck disable=SC2046 # the processes that there are still
trap 'jobs -p >"$WORK/jobs"; kill -9 $(cat "$WORK/jobs") 2>/dev/null || true
      test -z "$step" || echo "FAILED $step"; rm -rf "$WORK"' EXIT
: >"$WORK/served"

# port_from NUMBER: a port that nobody listens at. Its server's next life takes it again.
port_from() {
    port=$1
    while grep -qi ":$(printf %04X "$port") 00000000:0000 0A" /proc/net/tcp; do
        port=$((port + 1))
    done
    echo "$port"
}
port=$(port_from $((20000 + $$ % 10000)))
address=127.0.0.1:$port

# in_background FILE WORDS...: the program with these words, its output behind what FILE has; $last.
in_background() {
    output=$1
    shift
    "$program" "$@" >>"$output" 2>>"$output.err" &
    last=$!
}
start() {
    in_background "$WORK/served" "$1" "$address"
    server=$last
}
killed() { # PID: it ends, and the shell says nothing of it
    kill -9 "$1" 2>/dev/null || true
    wait "$1" 2>/dev/null || true
}
# until_lines FILE COUNT PID: the file has so many lines, or the process has ended.
until_lines() {
    while [ "$(wc -l <"$1")" -lt "$2" ] && kill -0 "$3" 2>/dev/null; do
        sleep 0.01
    done
}
has() { # LINE FILE
    grep -qx "$1" "$2" || fail "no line \"$1\" in: $(cat "$2" "$2.err" 2>/dev/null)"
}

pages() {
    start serve
    # More clients, one after the other, than the server has places.
    for client in 1 2 3 4 5 6 7 8 9 10; do
        "$program" get "$address" >"$WORK/got$client"
        has '128 pages came, 128 are right' "$WORK/got$client"
    done
}

released() {
    start lend
    "$program" write "$address" 100 >"$WORK/wrote"
    has '100 records are kept; 5 pages went without a word' "$WORK/wrote"
    has '0 sessions broke' "$WORK/wrote"
    # Each of them once: none was written to a page that was gone, and kept.
    seq -f 'record %g' 100 | cmp - "$WORK/served"
}

requests() {
    start serve
    "$program" ask "$address" 1000 >"$WORK/got"
    has '1000 replies came, 1000 are right' "$WORK/got"
    # A server that is stopped: the client says so, and goes on when the server does.
    kill -STOP "$server"
    WEIR_WATCHDOG_MS=100 "$program" ask "$address" 1000 >"$WORK/got" 2>"$WORK/err" &
    client=$!
    while ! grep -q 'requests: stalled' "$WORK/err" && kill -0 "$client"; do
        sleep 0.1
    done
    kill -CONT "$server"
    wait "$client"
    # Of the server, or, where this machine is busy, of the client that had no processor.
    grep -q 'requests: stalled' "$WORK/err"
    has '1000 replies came, 1000 are right' "$WORK/got"
}

stream() {
    start take
    for giver in 1 2; do
        "$program" give "$address" 20000 >"$WORK/gave$giver"
        has '20000 records and 20 pictures have arrived' "$WORK/gave$giver"
    done
    until_lines "$WORK/served" 2 "$server"
    test "$(sort -u "$WORK/served")" = '20000 records and 20 pictures were taken, in their order'
}

comeback() {
    start store
    "$program" write "$address" 10000 >"$WORK/wrote" &
    writer=$!
    for life in 1 2 3; do
        until_lines "$WORK/served" $(($(wc -l <"$WORK/served") + 20)) "$writer"
        killed "$server"
        start store
    done
    wait "$writer"
    has '10000 records are kept' "$WORK/wrote"
    # Each was kept once, or again where the store died before its answer was there.
    sort -u "$WORK/served" | wc -l | grep -qx 10000
    echo "$(wc -l <"$WORK/served") times kept in 4 lives"
    # A writer whose device does not meet the store's is told so, and ends.
    [ ${#WORK} -le 63 ] || return 0 # as long as such a directory may be
    ! WEIR_SHM_DIRECTORY=$WORK "$program" write "$address" 1 2>"$WORK/err"
    grep -q 'the devices differ, or do not meet' "$WORK/err"
}

# A worker is killed in the middle of a request, and in its first ones, of which it has some whatever
# the others do: 20 layers are two requests and a half.
kvpages() {
    ours=$program
    for worker in 1 2 3; do
        at=127.0.0.1:$(port_from $((port + worker)))
        [ $worker != 3 ] || program=$other
        in_background "$WORK/worker$worker" -d "$device" prefill "$at" $([ $worker != 2 ] || echo 20)
        program=$ours
        workers="${workers:-} $at"
        [ $worker != 1 ] || alive=$at
        port=${at#*:}
    done
    # shellcheck disable=SC2086 # addresses
    "$program" -d "$device" decode 200 $workers >"$WORK/decoded"
    cat "$WORK/decoded"
    grep -q '^request [0-9]* failed, with [0-7] of 8 layers: ' "$WORK/decoded"
    failed=$(grep -c '^request' "$WORK/decoded")
    has "200 requests are there and right; $failed tries failed" "$WORK/decoded"
    # A decode side that is killed holds up no worker.
    in_background "$WORK/killed" -d "$device" decode 1000000 "$alive"
    sleep 0.2
    killed "$last"
    "$other" -d "$device" decode 20 "$alive" >"$WORK/decoded"
    has '20 requests are there and right; 0 tries failed' "$WORK/decoded"
}

# The second of five is killed with 5 of 12 pieces; the last piece is a short one.
broadcast() {
    head -c 12000001 /dev/urandom >"$WORK/file"
    in_background "$WORK/gave" -d "$device" give "$address" "$WORK/file" 5
    giver=$last
    takers=
    for taker in 1 2 3 4 5; do
        in_background "$WORK/took$taker" -d "$device" take "$address" "$WORK/copy$taker" \
            $([ $taker != 2 ] || echo 5)
        [ $taker = 2 ] || takers="$takers $last"
    done
    wait "$giver" || fail "$(cat "$WORK/gave" "$WORK/gave.err")"
    for taker in $takers; do
        wait "$taker" || fail "$(cat "$WORK"/took*)"
    done
    cat "$WORK"/took*
    has '4 have all of it, 1 are gone' "$WORK/gave"
    [ ! -e "$WORK/copy2" ]
    for taker in 1 3 4 5; do
        cmp "$WORK/file" "$WORK/copy$taker"
    done
}

cache() {
    in_background "$WORK/served" -d "$device" serve "$address"
    server=$last
    "$program" -d "$device" put "$address" greeting 'good morning'
    "$program" -d "$device" get "$address" greeting >"$WORK/got"
    has 'good morning' "$WORK/got"
    ! "$program" -d "$device" get "$address" nothing 2>"$WORK/err"
    has 'cache: nothing is not there' "$WORK/err"
    # A torn value is seen, and not taken.
    "$program" -d "$device" tear "$address" greeting
    ! "$program" -d "$device" get "$address" greeting >"$WORK/got" 2>"$WORK/err"
    has 'cache: greeting is not there: torn' "$WORK/err"
    [ ! -s "$WORK/got" ]
    # Three clients at once; one more is killed, and the server as well, which comes back.
    clients=
    for client in 1 2 3; do
        in_background "$WORK/used$client" -d "$device" use "$address" 2000 $client
        clients="$clients $last"
    done
    in_background "$WORK/used4" -d "$device" use "$address" 1000000000 4
    sleep 0.5
    killed "$last"
    killed "$server"
    in_background "$WORK/served" -d "$device" serve "$address"
    for client in $clients; do
        wait "$client" || fail "$(cat "$WORK"/used*)"
    done
    cat "$WORK"/used[123]
    # All of it works with the server as it is now.
    "$program" -d "$device" use "$address" 200 5
}

case $name in
broadcast) check "E13_broadcast_on_$device" broadcast ;;
cache) check "E13_cache_on_$device" cache ;;
comeback) check E13_comeback comeback ;;
kvpages) check "E13_kvpages_${5:+of_python_}on_$device" kvpages ;;
pages) check E13_pages pages ;;
released) check E13_released released ;;
requests) check E13_requests requests ;;
stream) check E13_stream stream ;;
*) fail "there is no test of $name" ;;
esac
