#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# comments.sh: every file names its licence, and opens with a comment that says what it is; one
# longer than 800 lines says there why; no line is longer than 100 columns; every C file is in the
# build.
. "$(dirname "$0")/lib.sh"

# The seeds in tests/corpus are bytes and carry no line of text.
count=0
for file in $(find . -name .git -prune -o -name 'build*' -prune -o -path ./tests/corpus -prune -o \
    -name LICENSE -o -type f -print); do
    count=$((count + 1))
    head -n 4 "$file" | grep -q 'SPDX-License-Identifier: Apache-2\.0' ||
        say "$file does not name its licence at its top"
done
[ "$count" -gt 0 ] || say "no file was looked at for its licence"

# A C file opens with "/* name.c: what it is", after the licence.
count=0
for file in $(c_files); do
    count=$((count + 1))
    name=$(basename "$file")
    sed -n 2p "$file" | grep -q "^/\* $name: " || say "$file does not open with \"/* $name: \""
    lines=$(wc -l <"$file")
    [ "$lines" -le 800 ] || head -n 20 "$file" | grep -q 'is long because' ||
        say "$file has $lines lines, and no \"is long because\" at its top"
    case $file in
    *.c)
        program=${name#test_} # tests/meson.build names test_x.c as x
        grep -qF "$name'" "$(dirname "$file")"/meson.build meson.build tests/meson.build \
            tests/fuzz/meson.build 2>/dev/null ||
            grep -qF "  '${program%.c}': [" tests/meson.build ||
            say "$file is in no meson.build"
        ;;
    esac
done
[ "$count" -gt 0 ] || say "no file was checked"
for file in $(find . -name .git -prune -o -name 'build*' -prune -o \
    \( -name '*.sh' -o -name meson.build -o -name Makefile -o -path ./.ci/run \) -print); do
    head -n 3 "$file" | grep -v SPDX | grep -q '^# ' || say "$file does not open with a comment"
done
c_files | LC_ALL=C.UTF-8 xargs -r grep -nE '^.{101,}$' /dev/null | cut -d: -f1,2 >"$WORK/long"
while read -r line; do
    say "$line: over 100 columns"
done <"$WORK/long"
finish
