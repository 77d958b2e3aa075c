#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# symbols.sh ROOT LIBRARY: the shared library's exports are what weir.h declares, what weir.map lists and
# what Debian's package says that it has; and (M9) it can write to no stream and no log.
library=$(realpath "${2:?usage: $0 ROOT LIBRARY}")
. "$(dirname "$0")/lib.sh"
need nm

api_functions >"$WORK/header"
sed -n '/global:/,/local:/s/^ *\(weir_[a-z_0-9]*\);.*/\1/p' weir.map | sort >"$WORK/map"
nm -D --defined-only "$library" | awk '$2 != "A" { print $3 }' | sort >"$WORK/exported.versioned"
sed 's/@.*//' "$WORK/exported.versioned" >"$WORK/exported"
[ -s "$WORK/header" ] || say "no function was found in weir.h"

compare() {
    comm -23 "$WORK/$1" "$WORK/$2" >"$WORK/only"
    while read -r name; do
        say "$name: in the $1, not in the $2"
    done <"$WORK/only"
}
sed -n 's/^ \(weir_[a-z_0-9]*\)@WEIR_.*/\1/p' debian/libweir*.symbols | sort >"$WORK/package"
compare header map
compare map header
compare header package
compare package header
compare header exported
compare exported header
grep -v '@@WEIR_0\.1$' "$WORK/exported.versioned" >"$WORK/unversioned"
while read -r name; do
    say "$name: exported without the version node WEIR_0.1"
done <"$WORK/unversioned"
nm -D --undefined-only "$library" | awk '{ sub(/@.*/, "", $2); print $2 }' |
    grep -xE 'v?[fd]?printf|f?puts|f?putc|putchar|fwrite|perror|v?syslog|std(out|err)|__v?[fd]?printf_chk|__v?syslog_chk' \
        >"$WORK/writers"
while read -r name; do
    say "M9 the library calls $name"
done <"$WORK/writers"
finish
