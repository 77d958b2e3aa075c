#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# manuals.sh: the manual pages are sound mdoc, and weir(3) names every public function,
# constant and field of a structure of the public headers, and every environment variable; its table of what to
# do has every error.
. "$(dirname "$0")/lib.sh"
need mandoc "$CC"
for page in man/weir.1 man/weir.3; do
    mandoc -Tlint -Wwarning "$page" >"$WORK/lint" 2>&1 || true
    while read -r line; do
        say "$line"
    done <"$WORK/lint"
done
mandoc -Tascii man/weir.3 2>/dev/null | sed 's/.\x08//g' >"$WORK/text"
sed -n 's/^\.\(Fn\|Fo\) \(weir_[a-z_0-9]*\).*/\2/p' man/weir.3 | sort -u >"$WORK/documented"
api_functions >"$WORK/functions"
[ -s "$WORK/functions" ] || say "no function was found in the public headers"
comm -23 "$WORK/functions" "$WORK/documented" >"$WORK/missing"
comm -13 "$WORK/functions" "$WORK/documented" >"$WORK/extra"
while read -r name; do
    say "weir(3) does not document $name"
done <"$WORK/missing"
while read -r name; do
    say "weir(3) documents $name, which no public header has"
done <"$WORK/extra"
{
    sed -n 's/^ *X(\(WEIR_[A-Z_]*\),.*/\1/p' include/*.h
    sed -n 's/^#define \(WEIR_\(ENGINE\|ACCESS\|TRANSFER\)_[A-Z_]*\) 0x.*/\1/p' include/*.h
    grep -oh 'WEIR_\(EVENT\|WAITING\|CLASS\|SETTING\|STALL\)_[A-Z_]* = ' include/*.h | sed 's/ = //'
    sed -n 's/^#define \(WEIR_[A-Z_]*_\(MAX\|INIT\)\) .*/\1/p' include/*.h
} | sort -u >"$WORK/constants"
[ "$(wc -l <"$WORK/constants")" -gt 20 ] || say "constants of the public headers were not found"
while read -r name; do
    grep -qw "$name" "$WORK/text" || say "weir(3) does not name $name"
done <"$WORK/constants"
# The table of weir(3) has a line for each error.
sed -n 's/^ *X(\(WEIR_[A-Z_]*\), -.*/\1/p' include/*.h >"$WORK/errors"
[ "$(wc -l <"$WORK/errors")" -gt 20 ] || say "errors of the public headers were not found"
sed -n '/^Error\tIt means/,/^\.TE$/s/^\(WEIR_[A-Z_]*\).*/\1/p' man/weir.3 >"$WORK/table"
while read -r name; do
    grep -qx "$name" "$WORK/table" || say "the table of weir(3) does not have $name"
done <"$WORK/errors"
# Every string in the library that looks like a variable, and is no constant's own name.
grep -rho '"WEIR_[A-Z_]*"' src --include='*.c' | tr -d '"' | sort -u | while read -r name; do
    grep -qw "$name" include/*.h || grep -q "^\.It Ev $name$" man/weir.3 || echo "$name"
done >"$WORK/missing"
while read -r name; do
    say "weir(3) does not name the variable $name"
done <"$WORK/missing"

# Fields: a subsection named after the structure has an item for each, and no other.
# Handles, whose one field is `id`, have one subsection together.
fields_of_header() {
    printf '#include "%s"\n' include/*.h | $CC -E -P -I. -Iinclude - | tr '\n' ' ' |
        grep -o 'typedef struct weir_[a-z_]* *{[^}]*}' | while read -r struct; do
        name=$(echo "$struct" | sed 's/typedef struct \(weir_[a-z_]*\) .*/\1/')
        echo "$struct" | sed 's/^[^{]*{//; s/}$//; s/\[[^]]*\]//g' | tr ';' '\n' |
            sed -n "s/.*[ *]\([a-z_0-9]\{1,\}\) *\$/$name \1/p"
    done | grep -v ' id$' | sort -u
}
fields_of_manual() {
    awk '/^\.S[hs]/ { name = $0 ~ /^\.Ss weir_[a-z_]*$/ ? $2 : "" }
        /^\.It Fa/ && name != "" { print name, $3 }' man/weir.3 | sort -u
}
fields_of_header >"$WORK/fields"
fields_of_manual >"$WORK/described"
[ "$(wc -l <"$WORK/fields")" -gt 80 ] || say "fields of the public headers were not found"
comm -23 "$WORK/fields" "$WORK/described" >"$WORK/missing"
comm -13 "$WORK/fields" "$WORK/described" >"$WORK/extra"
while read -r struct field; do
    say "weir(3) does not describe $field of $struct"
done <"$WORK/missing"
while read -r struct field; do
    say "weir(3) describes $field of $struct, which no public header has"
done <"$WORK/extra"
finish
