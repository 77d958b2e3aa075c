#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# promises.sh: docs/promises.md and the names of tests agree: each number has a line there and a
# test here, each line names all files with a test of it and no others, and says on what they run.
. "$(dirname "$0")/lib.sh"
page=docs/promises.md

# "NUMBER FILE", for each number in the name of a test: a test_S1_S6_... of C, a name that a script
# gives to check or faults, a def test_P1_... of Python, "M9 ..." of a structural test or of the simulator's oracle.
{
    find tests adapters \( -name '*.c' -o -name '*.cpp' \) \
        -exec grep -HoE '\btest(_[SHTMBEWPNXK][0-9]+)+_' {} +
    grep -HoE '\b(check|faults) "?([a-z]+_)?([SHTMBEWPNXK][0-9]+_)+' tests/*.sh tests/vm/*.sh adapters/*/tests/*.sh
    grep -HoE '\bdef test(_[SHTMBEWPNXK][0-9]+)+_' python/tests/*.py adapters/*/python/tests/*.py
    grep -HoE 'say "[SHTMBEWPNXK][0-9]+ ' tests/structure/*.sh
    grep -HoE '"[SHTMBEWPNXK][0-9]+ ' sim/*.c
} | awk -F: '{
    for (name = $2; match(name, /[SHTMBEWPNXK][0-9]+/); name = substr(name, RSTART + RLENGTH))
        print substr(name, RSTART, RLENGTH), $1
}' | sort -u >"$WORK/tests"
[ "$(wc -l <"$WORK/tests")" -gt 300 ] || say "names of tests were not found"

# "NUMBER FILE" and "NUMBER THING", from the page's lines "| S1 | sentence | `file`, ... | sim |".
: >"$WORK/promises" >"$WORK/on"
awk -F' *[|] *' -v promises="$WORK/promises" -v on="$WORK/on" '
    $2 ~ /^[SHTMBEWPNXK][0-9]+$/ && NF == 6 && length($3) > 20 {
        print $2
        for (i = split($4, files, /[`, ]+/); i > 0; i--)
            if (files[i] != "")
                print $2, (files[i] ~ /^(sim|python|adapters)\// ? "" : "tests/") files[i] >promises
        for (i = split($5, things, /, */); i > 0; i--)
            print $2, things[i] >on
    }' $page | sort >"$WORK/numbers"
uniq -d "$WORK/numbers" >"$WORK/twice"
while read -r number; do
    say "$number has two lines in $page"
done <"$WORK/twice"
sort -u -o "$WORK/promises" "$WORK/promises"
sort -u -o "$WORK/on" "$WORK/on"

cut -d' ' -f1 "$WORK/tests" | sort -u >"$WORK/tested"
sort -u "$WORK/numbers" >"$WORK/promised"
comm -23 "$WORK/tested" "$WORK/promised" >"$WORK/only"
while read -r number; do
    say "$page does not promise $number, which is the name of a test in" \
        "$(sed -n "s/^$number //p" "$WORK/tests" | head -n 1)"
done <"$WORK/only"
comm -13 "$WORK/tested" "$WORK/promised" >"$WORK/only"
while read -r number; do
    say "$page promises $number, which no test has in its name"
done <"$WORK/only"

comm -23 "$WORK/tests" "$WORK/promises" >"$WORK/only"
while read -r number file; do
    say "$page does not name $file, which has a test of $number"
done <"$WORK/only"
comm -13 "$WORK/tests" "$WORK/promises" >"$WORK/only"
while read -r number file; do
    if [ -f "$file" ]; then
        say "$page names $file for $number, of which it has no test"
    else
        say "$page names $file for $number, which is not there"
    fi
done <"$WORK/only"

# "FILE THING", from the last table, "| sim | `file`, `directory/`, ... |".
awk -F' *[|] *' '/^## On what/ { last = 1 } last && NF == 4 && $3 ~ /^`/ {
    for (i = split($3, files, /[`, ]+/); i > 0; i--)
        if (files[i] != "")
            print (files[i] ~ /^(sim|python|adapters)\// ? "" : "tests/") files[i], $2
}' $page >"$WORK/runs"
awk -v runs="$WORK/runs" '
    BEGIN { while ((getline line <runs) > 0) { split(line, of, " "); things[++count] = line } }
    {
        found = 0
        for (i = 1; i <= count; i++) {
            split(things[i], of, " ")
            if (of[1] == $2 || (of[1] ~ /\/$/ && index($2, of[1]) == 1)) {
                found = 1
                if (of[2] != "-") { print $1, of[2]; device[$1] = 1 }
            }
        }
        if (!found) print $1, "?" $2
        number[$1] = 1
    }
    END { for (n in number) if (!(n in device)) print n, "-" }' "$WORK/promises" |
    sort -u >"$WORK/should"
comm -3 "$WORK/should" "$WORK/on" | tr -d '\t' | while read -r number thing; do
    case $thing in
    \?*) echo "$page does not say on what ${thing#?} runs" ;;
    *) echo "$page is not of one mind whether $number is tested on \"$thing\"" ;;
    esac
done >"$WORK/only"
while read -r line; do
    say "$line"
done <"$WORK/only"
# A test that is turned off by hand, to try out another, stays so unseen.
grep -nE '^[[:space:]]*(:|#)[[:space:]]*(check|many) [A-Za-z]*_' tests/*.sh tests/vm/*.sh >"$WORK/off"
while read -r line; do
    say "${line%:} turns a test off"
done <"$WORK/off"
finish
