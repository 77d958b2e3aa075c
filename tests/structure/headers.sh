#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# headers.sh: each public header compiles alone, without a warning, as C11 and C++17, and
# so does a use of each _INIT macro;
# internal headers compile alone as C11, so that the order of includes never matters.
. "$(dirname "$0")/lib.sh"
CXX=${CXX:-c++}
need "$CC" "$CXX"

strict='-Wall -Wextra -Wpedantic -Wconversion -Werror -fsyntax-only'
for header in include/*.h adapters/*/include/*.h; do
    $CC -std=c11 $strict -Wstrict-prototypes -x c "$header" || say "$header as C11"
    $CXX -std=c++17 $strict -x c++ "$header" || say "$header as C++17"
done
# Uses of the macros: a definition, a static one where that is C, an assignment.
{
    for header in include/*.h; do
        echo "#include \"${header#include/}\""
    done
    sed -n 's/^#define \(WEIR_[A-Z_]*_INIT\) *WEIR_SIZED(\([a-z_]*\)).*/\1 \2/p' include/*.h |
        while read -r macro type; do
            echo "size_t use_$type(void); size_t use_$type(void) {"
            echo "    static $type before = $macro; $type now = $macro;"
            echo "    before = now; now.size += before.size; return now.size; }"
        done
} >"$WORK/uses.c"
[ "$(grep -c '_INIT;' "$WORK/uses.c")" -eq "$(cat include/*.h | grep -c '^#define WEIR_.*_INIT')" ] ||
    say 'not every public _INIT macro was found'
strict="$strict -Wmissing-field-initializers -Iinclude"
$CC -std=c99 $strict "$WORK/uses.c" || say 'the public _INIT macros as C99'
for std in c++11 c++17 c++20; do
    $CXX -std=$std $strict -x c++ "$WORK/uses.c" || say "the public _INIT macros as $std"
done
for layer in src/ports $LAYERS; do
    flags=
    case $layer in
    adapters/*) flags=-D_GNU_SOURCE ;;
    esac
    for dir in $(layer_dirs "$layer" || echo include src/ports); do
        flags="$flags -I$dir"
    done
    set -- "$layer"/*.h
    [ -f "$1" ] || continue
    # One driver compiles each; where it complains, one after the other says which.
    # shellcheck disable=SC2086 # flags are words
    alone="$CC -std=c11 -Wall -Wextra -Wno-unused-function -Werror -fsyntax-only $flags -x c"
    $alone "$@" 2>/dev/null && continue
    for header; do
        $alone "$header" || say "$header does not compile alone"
    done
done
finish
