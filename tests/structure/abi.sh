#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# abi.sh ROOT LIBRARY: a program of the last release runs with this library: no function, and no
# constant, is gone or another, and no structure has another layout. The interface to compare
# with is in packaging/abi. Functions, constants, and fields at the end of a structure that has its own size, may
# come. With another number in the library's name everything may change: such a program does not get
# that library.
library=$(realpath "${2:?usage: $0 ROOT LIBRARY}")
. "$(dirname "$0")/lib.sh"
need abidw abidiff readelf python3 "$CC"

set -- packaging/abi/libweir.so.*.xml
[ -f "$1" ] && [ $# -eq 1 ] || { say "E9 packaging/abi has not one libweir.so.N.xml"; finish; }
old=$(basename "$1" .xml)
soname=$(readelf -d "$library" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
if [ "$soname" != "$old" ]; then
    echo "abi: $soname is not $old: programs that want that one do not get this one"
    finish
fi
mkdir "$WORK/new"
sh packaging/abi/dump.sh "$library" "$WORK/new" || { say "E9 $library cannot be looked at"; finish; }

python3 packaging/abi/as_seen.py "packaging/abi/$old.xml" "$WORK/new/$soname.xml" >"$WORK/seen.xml" &&
    abidiff --no-added-syms "packaging/abi/$old.xml" "$WORK/seen.xml" >"$WORK/report" 2>&1
status=$?
if [ "$status" -ne 0 ]; then
    grep -v '^$' "$WORK/report"
    say "E9 abidiff says that programs of the last release break (status $status)"
fi
grep -v '^#' "packaging/abi/$old.constants" | sort >"$WORK/constants.old"
grep -v '^#' "$WORK/new/$soname.constants" | sort >"$WORK/constants.new"
[ "$(wc -l <"$WORK/constants.new")" -gt 60 ] || say "E9 constants of the public headers were not found"
comm -23 "$WORK/constants.old" "$WORK/constants.new" >"$WORK/gone"
while read -r name value; do
    say "E9 $name was $value: $(sed -n "s/^$name /it is /p" "$WORK/constants.new")"
done <"$WORK/gone"
[ "$broken" -eq 0 ] || echo 'abi: if no release has the old one: make abi; CONTRIBUTING.md has the rest'
finish
