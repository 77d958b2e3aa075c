#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# comments.sh: every file names its licence, and opens with a comment that says what it is; one
# longer than 800 lines says there why; no line is longer than 100 columns; every C file is in the
# build.
. "$(dirname "$0")/lib.sh"
need awk

# complain FILE: each line of it is a complaint.
complain() {
    while read -r line; do
        say "$line"
    done <"$1"
}

# each_file RULES: one awk for all that $WORK/files names, for a process a file and a rule would be
# thousands. RULES see each line, and their function last(name, lines) the end of each file.
each_file() {
    [ -s "$WORK/files" ] || say 'no file was looked at'
    xargs -r awk "
        FNR == 1 && NR > 1 { last(name, lines) }
        { name = FILENAME; lines = FNR }
        $1
        END { if (NR > 0) last(name, lines) }" <"$WORK/files" >"$WORK/wrong"
    complain "$WORK/wrong"
}

# The seeds in tests/corpus are bytes and carry no line of text, and neither can the files of whose
# every line somebody makes something: the version, Debian's changelog and format. An empty file has
# no top.
files_of_tree() { # FIND'S TESTS
    find . -name .git -prune -o -name 'build*' -prune -o -path ./tests/corpus -prune -o \
        -name LICENSE -o -path ./VERSION -o -path ./debian/changelog -o \
        -path ./debian/source/format -o -type f "$@" -print
}
files_of_tree -size 0 | sed 's/$/ is empty/' >"$WORK/wrong"
complain "$WORK/wrong"
files_of_tree >"$WORK/files"
each_file '
    FNR <= 4 && /SPDX-License-Identifier: Apache-2\.0/ { licensed = name }
    function last(name, lines) {
        if (licensed != name) print name " does not name its licence at its top"
    }'

# A C file opens with "/* name.c: what it is", after the licence.
c_files >"$WORK/files"
each_file '
    FNR == 1 { title = name; sub(/.*\//, "", title); title = "/* " title ": " }
    FNR == 2 && index($0, title) == 1 { opens = name }
    FNR <= 20 && /is long because/ { why = name }
    function last(name, lines) {
        if (opens != name) print name " does not open with \"" title "\""
        if (lines > 800 && why != name)
            print name " has " lines " lines, and no \"is long because\" at its top"
    }'

# Every C file is in the build: tests/meson.build names test_x.c as x.
for dir in $(c_files | grep '\.c\(pp\)*$' | sed 's,/[^/]*$,,' | sort -u); do
    cat "$dir/meson.build" meson.build tests/meson.build tests/fuzz/meson.build 2>/dev/null >"$WORK/build"
    c_files | sed -n "s,^$dir/\([^/]*\.c\(pp\)*\)$,\1,p" | while read -r name; do
        program=${name#test_}
        echo "$dir/$name $name'   '${program%.c*}':  ["
    done >"$WORK/names"
    awk 'NR == FNR { build = build $0 "\n"; next }
        { program = $3 " ["
          if (!index(build, $2) && !index(build, program)) print $1 " is in no meson.build" }' \
        "$WORK/build" "$WORK/names" >"$WORK/wrong"
    complain "$WORK/wrong"
done

find . -name .git -prune -o -name 'build*' -prune -o \
    \( -name '*.sh' -o -name meson.build -o -name Makefile -o -path ./.ci/run \) -print >"$WORK/files"
each_file '
    FNR <= 3 && !/SPDX/ && /^# / { opens = name }
    function last(name, lines) {
        if (opens != name) print name " does not open with a comment"
    }'
c_files | LC_ALL=C.UTF-8 xargs -r grep -nE '^.{101,}$' /dev/null | cut -d: -f1,2 |
    sed 's/$/: over 100 columns/' >"$WORK/wrong"
complain "$WORK/wrong"
finish
