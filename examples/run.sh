#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh NAME PROGRAM: the example does what its first comment says, its server being killed and
# started again where that is what it is about.
set -eu
name=$1
program=$2
work=$(mktemp -d)
server=
writer=
# shellcheck disable=SC2086 # those that there are
trap 'kill $server $writer 2>/dev/null || true; rm -rf "$work"' EXIT
: >"$work/served"
# A port that nobody listens at; the next life of the server takes it again.
port=$((20000 + $$ % 10000))
while grep -qi ":$(printf %04X $port) 00000000:0000 0A" /proc/net/tcp; do
    port=$((port + 1))
done
address=127.0.0.1:$port

start() {
    "$program" "$1" "$address" >>"$work/served" &
    server=$!
}

case $name in
pages)
    start serve
    # More clients, one after the other, than the server has places.
    for client in 1 2 3 4 5 6 7 8 9 10; do
        "$program" get "$address" | tee "$work/got$client"
        grep -qx '128 pages came, 128 are right' "$work/got$client"
    done
    ;;
released)
    start lend
    "$program" write "$address" 100 | tee "$work/wrote"
    grep -qx '100 records are kept; 5 pages went without a word' "$work/wrote"
    grep -qx '5 sessions broke' "$work/wrote"
    # Each of them once: none was written to a page that was gone, and kept.
    seq -f 'record %g' 100 | cmp - "$work/served"
    ;;
requests)
    start serve
    "$program" ask "$address" 1000 | tee "$work/got"
    grep -qx '1000 replies came, 1000 are right' "$work/got"
    # A server that is stopped: the client says so, and goes on when the server does.
    kill -STOP "$server"
    WEIR_WATCHDOG_MS=100 "$program" ask "$address" 1000 >"$work/got" 2>"$work/err" &
    writer=$!
    while ! grep -q 'requests: stalled' "$work/err" && kill -0 "$writer"; do
        sleep 0.1
    done
    kill -CONT "$server"
    wait "$writer"
    writer=
    cat "$work/err"
    # Of the server, or, where this machine is busy, of the client that had no processor.
    grep -q 'requests: stalled' "$work/err"
    grep -qx '1000 replies came, 1000 are right' "$work/got"
    ;;
stream)
    start take
    for giver in 1 2; do
        "$program" give "$address" 20000 | tee "$work/gave$giver"
        grep -qx '20000 records and 20 pictures have arrived' "$work/gave$giver"
    done
    until [ "$(wc -l <"$work/served")" -eq 2 ]; do
        kill -0 "$server"
        sleep 0.1
    done
    test "$(sort -u "$work/served")" = '20000 records and 20 pictures were taken, in their order'
    ;;
comeback)
    start store
    "$program" write "$address" 10000 >"$work/wrote" &
    writer=$!
    for life in 1 2 3; do
        seen=$(wc -l <"$work/served")
        while [ "$(wc -l <"$work/served")" -lt $((seen + 20)) ] && kill -0 "$writer" 2>/dev/null; do
            sleep 0.01
        done
        kill -9 "$server"
        wait "$server" 2>/dev/null || true
        start store
    done
    wait "$writer"
    writer=
    grep -qx '10000 records are kept' "$work/wrote"
    # Each was kept once, or again where the store died before its answer was there.
    sort -u "$work/served" | wc -l | grep -qx 10000
    echo "$(wc -l <"$work/served") times kept in 4 lives"
    # A writer whose device does not meet the store's is told so, and ends.
    [ ${#work} -le 63 ] || exit 0 # as long as such a directory may be
    ! WEIR_SHM_DIRECTORY=$work "$program" write "$address" 1 2>"$work/err"
    grep -q 'the devices differ, or do not meet' "$work/err"
    ;;
esac
