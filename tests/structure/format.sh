#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# format.sh: the tree is as clang-format 14 with our .clang-format leaves it.
. "$(dirname "$0")/lib.sh"
need clang-format
c_files >"$WORK/files"
[ -s "$WORK/files" ] || say "no file was checked"
xargs clang-format --dry-run -Werror <"$WORK/files" 2>&1 | sed -n 's/^\([^ :]*\):[0-9].*/\1/p' |
    sort -u >"$WORK/wrong"
while read -r file; do
    say "$file: run make format"
done <"$WORK/wrong"
finish
