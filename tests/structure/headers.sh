#!/bin/sh
# headers.sh: the public header compiles alone, without a warning, as C11 and C++17;
# internal headers compile alone as C11, so that the order of includes never matters.
. "$(dirname "$0")/lib.sh"
CXX=${CXX:-c++}
need "$CC" "$CXX"

strict='-Wall -Wextra -Wpedantic -Wconversion -Werror -fsyntax-only'
for header in include/*.h; do
    $CC -std=c11 $strict -Wstrict-prototypes -x c "$header" || say "$header as C11"
    $CXX -std=c++17 $strict -x c++ "$header" || say "$header as C++17"
done
for layer in src/ports $LAYERS; do
    flags=
    for dir in $(layer_dirs "$layer" || echo include src/ports); do
        flags="$flags -I$dir"
    done
    for header in "$layer"/*.h; do
        [ -f "$header" ] || continue
        # shellcheck disable=SC2086 # flags are words
        $CC -std=c11 -Wall -Wextra -Wno-unused-function -Werror -fsyntax-only $flags \
            -x c "$header" || say "$header does not compile alone"
    done
done
finish
