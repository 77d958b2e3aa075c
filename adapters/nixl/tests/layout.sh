#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# layout.sh RECORD PROGRAM...: each program prints the layout that RECORD has (X1): the declarations of
# NIXL's interface in this tree, and NIXL's own, have not drifted apart.
set -u
record=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
grep -v '^#' "$record" >"$work/record"
broken=0
for program; do
    "$program" >"$work/here" || broken=1
    diff -u --label "$record" "$work/record" --label "$program" "$work/here" || broken=1
done
[ "$broken" -eq 0 ] && echo "ok X1_layout" || echo "FAILED X1_layout"
exit "$broken"
