#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# archive.sh MAP OUT CC... -- OBJECTS...: a static library: all of it as one object, in which
# only what MAP lists is global, so that no name of an application's can meet one of ours.
# CC with its options links relocatably, and leaves machine code whatever the objects are.
set -eu
map=$1
out=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sed -n '/global:/,/local:/s/^ *\([a-zA-Z_0-9]*\);.*/\1/p' "$map" >"$work/names"
link=
while [ "$1" != -- ]; do
    link="$link $1"
    shift
done
shift
# shellcheck disable=SC2086 # words
$link -r -nostdlib -o "$work/whole.o" "$@"
objcopy --keep-global-symbols="$work/names" "$work/whole.o"
rm -f "$out"
ar rcs "$out" "$work/whole.o"
