#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# instructions.sh [BUILD]: instructions of one transfer on shared memory, by callgrind: the
# difference of two run lengths, so that setting up and taking down cancel out. They repeat
# exactly. `in the call` is what weir_write itself costs, with all that it calls; the rest is
# the loop of instructions.c. Valgrind has no AVX-512: a copy of 4 KiB is counted as it is done
# without.
set -eu
build=${1:-build}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
command -v valgrind >/dev/null || { echo "$0: please install valgrind" >&2; exit 1; }
program=$build/bench/instructions
[ -x "$program" ] || program=$build/instructions

count() { # KIND COUNT [serial]: all instructions, and those in and below weir_write
    valgrind --tool=callgrind --callgrind-out-file="$work/out" "$program" "$@" >/dev/null 2>"$work/log"
    awk '/Collected/ { print $4 }' "$work/log" >"$work/all"
    callgrind_annotate --inclusive=yes --show-percs=no "$work/out" |
        awk '/:weir_(write|message_send|loan_send)/ { gsub(",", "", $1); print $1; exit }' >"$work/call"
}

row() { # TEXT KIND SHORT LONG PER [serial]
    count "$2" "$3" ${6:-}
    all=$(cat "$work/all") call=$(cat "$work/call")
    count "$2" "$4" ${6:-}
    printf '%-44s %6d in the call %6d\n' "$1" $((($(cat "$work/all") - all) / $5)) \
        $((($(cat "$work/call") - call) / $5))
}

row "one 8-byte write" write8 10000 30000 20000
row "one 4-KiB write" write4k 10000 30000 20000
row "one more 8-byte segment (of 1 to 33)" segment8 1 33 32000
row "one 8-byte write with notification, both sides" notify8 10000 30000 20000
row "one 8-byte message, both sides" message8 10000 30000 20000
row "one 8-byte message of 32 in each call, both sides" messages8 10000 30000 20000
row "one 4-KiB message, both sides" message4k 10000 30000 20000
row "one 8-byte message in a loan, both sides" loan8 10000 30000 20000
row "one message of 1 MiB in a loan, both sides" loan1m 10000 30000 20000
row "one 8-byte write, WEIR_ENGINE_SERIAL" write8 10000 30000 20000 serial
