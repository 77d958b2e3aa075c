#!/bin/sh
# manuals.sh: the manual pages are sound mdoc, and weir(3) names every public function,
# error code and flag of weir.h.
. "$(dirname "$0")/lib.sh"
need mandoc
for page in man/weir.1 man/weir.3; do
    mandoc -Tlint -Wwarning "$page" >"$WORK/lint" 2>&1 || true
    while read -r line; do
        say "$line"
    done <"$WORK/lint"
done
mandoc -Tascii man/weir.3 2>/dev/null | sed 's/.\x08//g' >"$WORK/text"
sed -n 's/^\.\(Fn\|Fo\) \(weir_[a-z_0-9]*\).*/\2/p' man/weir.3 | sort -u >"$WORK/documented"
api_functions >"$WORK/functions"
[ -s "$WORK/functions" ] || say "no function was found in weir.h"
comm -23 "$WORK/functions" "$WORK/documented" >"$WORK/missing"
comm -13 "$WORK/functions" "$WORK/documented" >"$WORK/extra"
while read -r name; do
    say "weir(3) does not document $name"
done <"$WORK/missing"
while read -r name; do
    say "weir(3) documents $name, which weir.h does not have"
done <"$WORK/extra"
{
    sed -n 's/^ *X(\(WEIR_[A-Z_]*\),.*/\1/p' include/weir.h
    sed -n 's/^#define \(WEIR_\(ENGINE\|ACCESS\|TRANSFER\)_[A-Z_]*\) 0x.*/\1/p' include/weir.h
    grep -o 'WEIR_\(EVENT\|WAITING\)_[A-Z]* = ' include/weir.h | sed 's/ = //'
} | sort -u >"$WORK/constants"
[ "$(wc -l <"$WORK/constants")" -gt 20 ] || say "constants of weir.h were not found"
while read -r name; do
    grep -qw "$name" "$WORK/text" || say "weir(3) does not name $name"
done <"$WORK/constants"
finish
