#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# constants.sh ROOT: "NAME value" for each constant of the public headers of a tree, in order. Programs
# have them compiled in, and no debug information of the library has those that are no type's.
set -eu
cd "${1:?usage: $0 ROOT}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
{
    sed -n 's/^ *X(\(WEIR_[A-Z_]*\), -.*/\1/p' include/*.h
    sed -n 's/^#define \(WEIR_[A-Z_]*\)  *\(0x\)*[0-9][0-9a-f]*u*\( .*\)*$/\1/p' include/*.h
    sed -n 's/^#define \(WEIR_[A-Z_]*\)  *UINT[0-9]*_MAX.*/\1/p' include/*.h
    sed -n 's/^  *\(WEIR_[A-Z_]*\) = .*/\1/p' include/*.h
} | grep -v '^WEIR_VERSION_' | sort -u >"$work/names"
{
    for header in include/*.h; do
        echo "#include \"${header#include/}\""
    done
    echo '#include <stdio.h>'
    echo 'int main(void) {'
    sed 's/.*/    printf("& %lld\\n", (long long)&);/' "$work/names"
    echo '    return 0; }'
} >"$work/constants.c"
${CC:-cc} -Iinclude "$work/constants.c" -o "$work/constants"
"$work/constants"
