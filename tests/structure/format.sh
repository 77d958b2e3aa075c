#!/bin/sh
# format.sh: the tree is as clang-format 14 with our .clang-format leaves it.
. "$(dirname "$0")/lib.sh"
need clang-format
c_files >"$WORK/files"
[ -s "$WORK/files" ] || say "no file was checked"
while read -r file; do
    clang-format --dry-run -Werror "$file" 2>/dev/null || say "$file: run make format"
done <"$WORK/files"
finish
