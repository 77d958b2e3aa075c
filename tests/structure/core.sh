#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# core.sh: the core is pure. Its objects, compiled with its own include directories
# only, need nothing from outside but memory functions and the assertion's, and keep
# no writable data: no I/O, clock, malloc, lock or global can hide from that.
. "$(dirname "$0")/lib.sh"
need "$CC" nm

# Functions of their arguments only, and what the compiler adds by itself.
allowed='memcpy memmove memset memcmp strlen strncmp
         __assert_fail __stack_chk_fail _GLOBAL_OFFSET_TABLE_'
allowed=$(echo $allowed)
flags=
for dir in $(layer_dirs src/core); do
    flags="$flags -I$ROOT/$dir"
done
mkdir "$WORK/objects"
# One compiler and one nm for all: it goes on behind a file that does not compile.
# shellcheck disable=SC2086 # flags are words
(sources=$(pwd) && cd "$WORK/objects" &&
    $CC -std=c11 -O2 -fPIC -fno-common $flags -c "$sources"/src/core/*.c)
for source in src/core/*.c; do
    [ -f "$WORK/objects/$(basename "$source" .c).o" ] ||
        say "$source does not compile with the core's include directories"
done
set -- "$WORK"/objects/*.o
[ -f "$1" ] || say "no core object was checked"
# Data: b, d and their kin, small and thread-local ones too. .data.rel.ro is
# constant after relocation; nm calls it d, so ask for the section by name.
nm -f sysv "$@" | awk -F'|' '
    /^(Symbols from|Undefined symbols from) / {
        sub(/:$/, ""); sub(/\[.*/, ""); sub(/.*\//, ""); sub(/\.o$/, "")
        source = "src/core/" $0 ".c"
    }
    { gsub(/ /, "", $1); gsub(/ /, "", $3); gsub(/ /, "", $7) }
    $3 ~ /^[bBdDsSgGC]$/ && $7 !~ /^\.data\.rel\.ro/ { print source ": writable data: " $1 }' \
    >"$WORK/data"
while read -r line; do
    say "$line"
done <"$WORK/data"

nm -u "$@" | awk '$1 == "U" || $1 == "w" { print $2 }' | sort -u >"$WORK/undefined"
# Symbols that another core object defines are the core's own.
nm --defined-only "$@" | awk 'NF == 3 { print $3 }' | sort -u >"$WORK/defined"
comm -23 "$WORK/undefined" "$WORK/defined" >"$WORK/foreign"
while read -r symbol; do
    case " $allowed " in
    *" $symbol "*) ;;
    *) say "the core calls $symbol" ;;
    esac
done <"$WORK/foreign"
finish
