#!/bin/sh
# comments.sh: every file opens with a comment that says what it is, no file is longer
# than 800 lines, no line than 100 columns, and every C file is in the build.
. "$(dirname "$0")/lib.sh"

# Headers every file with a comment of C must start with; the first line of weir.h is
# the pattern: "/* name.h: what it is".
count=0
for file in $(c_files); do
    count=$((count + 1))
    name=$(basename "$file")
    head -n 1 "$file" | grep -q "^/\* $name: " || say "$file does not open with \"/* $name: \""
    lines=$(wc -l <"$file")
    [ "$lines" -le 800 ] || say "$file has $lines lines"
    case $file in
    *.c)
        grep -rqF --include=meson.build "$name'" . || say "$file is in no meson.build"
        ;;
    esac
done
[ "$count" -gt 0 ] || say "no file was checked"
for file in $(find . -name .git -prune -o -name 'build*' -prune -o \
    \( -name '*.sh' -o -name meson.build -o -name Makefile -o -path ./.ci/run \) -print); do
    head -n 2 "$file" | grep -q '^# ' || say "$file does not open with a comment"
done
c_files | xargs -r grep -nE '^.{101,}$' /dev/null | cut -d: -f1,2 >"$WORK/long"
while read -r line; do
    say "$line: over 100 columns"
done <"$WORK/long"
finish
