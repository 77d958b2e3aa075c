#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# install.sh BUILD: the files that `make install` leaves are enough for a program: its own copy is
# found with pkg-config, compiled and linked against, also statically, and runs; the tool finds the
# library; the manual pages are there, one by the name of each function that the library exports; its
# last words say what is where. cmake.sh is of CMake.
. "$(dirname "$0")/step_lib.sh"
build=$(realpath "${1:?usage: $0 BUILD}")
need pkg-config
DESTDIR=$WORK/root meson install -C "$build" --no-rebuild --quiet >/dev/null

pc=$(find "$WORK/root" -name weir.pc)
prefix=$WORK/root$(sed -n 's/^prefix=//p' "$pc")
export PKG_CONFIG_PATH="${pc%/weir.pc}"
library=$(dirname "$(find "$WORK/root" -name libweir.so)")
cat >"$WORK/user.c" <<'END'
#include <stdio.h>
#include <weir.h>
int main(void) {
    weir_engine *engine;
    int rc = weir_engine_open(NULL, &engine);
    if (rc == WEIR_OK)
        weir_engine_close(engine);
    printf("%s %s\n", weir_version(), rc == WEIR_OK ? "WEIR_OK" : weir_error_name(rc));
    return rc != WEIR_OK;
}
END

program() {
    flags=$(pkg-config --define-variable=prefix="$prefix" --cflags --libs weir)
    # shellcheck disable=SC2086 # flags are words
    ${CC:-cc} -Wall -Werror "$WORK/user.c" $flags -o "$WORK/user"
    LD_LIBRARY_PATH=$library "$WORK/user"
    LD_LIBRARY_PATH=$library "$prefix/bin/weir" --version
}
check E8_program_by_pkg_config program

# The library's own list of functions, and not the header's, which made the pages.
pages() {
    nm -D --defined-only "$library/libweir.so" | sed -n 's/.* \(weir_[a-z_]*\)@.*/\1/p' |
        sort >"$WORK/functions"
    [ "$(wc -l <"$WORK/functions")" -gt 50 ] || fail 'functions were not found'
    for page in man1/weir.1 man3/weir.3; do
        [ -f "$prefix/share/man/$page" ] || fail "$page is missing"
    done
    while read -r name; do
        grep -q "^\.F[no] $name\b" "$prefix/share/man/man3/$name.3" || fail "no page of $name"
    done <"$WORK/functions"
    ls "$prefix/share/man/man3" | sed -n 's/^\(weir_.*\)\.3$/\1/p' | sort |
        diff "$WORK/functions" - || fail 'pages by the names of what the library does not export'
}
check E8_a_manual_page_for_each_function pages

# The last words name what is there, and nothing else.
last_words() {
    DESTDIR=$WORK/root sh "$build/packaging/installed.sh" >"$WORK/words"
    grep -q "^All of it lies below $WORK/root for now\\.$" "$WORK/words"
    sed -n 's/^  \(\/.*\)/\1/p' "$WORK/words" | sed 's/, /\n/g' | while read -r name; do
        case $name in
        /*) directory=$(dirname "$name") ;;
        *) name=$directory/$name ;;
        esac
        [ -e "$WORK/root$name" ] || fail "they say that $name is there"
        echo "$name"
    done >"$WORK/named"
    [ "$(wc -l <"$WORK/named")" -eq 8 ] || fail "they name $(cat "$WORK/named")"
}
check E8_the_last_words_of_an_install last_words

# Outside the directories of this machine three things are told, by commands that do what they say;
# inside them, nothing.
words_that_help() {
    sed "s,^bin=.*,bin=$prefix/bin lib=$library include=$prefix/include man=$prefix/share/man," \
        "$build/packaging/installed.sh" >"$WORK/installed.sh"
    env -u PKG_CONFIG_PATH sh "$WORK/installed.sh" | sed -n 's/^  \(export .*\)/\1/p' >"$WORK/exports"
    [ "$(sed 's/export \([A-Z_]*\)=.*/\1/' "$WORK/exports" | sort | paste -sd' ')" = \
        'LD_LIBRARY_PATH PATH PKG_CONFIG_PATH' ] || fail "they tell $(cat "$WORK/exports")"
    (
        unset PKG_CONFIG_PATH
        . "$WORK/exports"
        [ "$(command -v weir)" = "$prefix/bin/weir" ]
        weir --version
        "$WORK/user"
        [ "$(pkg-config --variable=pcfiledir weir)" = "$library/pkgconfig" ]
    )
    PATH=$prefix/bin:$PATH sh "$WORK/installed.sh" >"$WORK/words"
    ! grep 'export P' "$WORK/words"
}
check E8_the_last_words_help words_that_help

# The static library, by itself. Its globals are those of the shared one, so that a program may
# have functions named like ours inside; what it is made of any compiler can link.
static_library() {
    archive=$library/libweir.a
    [ -f "$archive" ] || fail "$archive is missing"
    nm -D --defined-only "$library/libweir.so" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' |
        sort >"$WORK/shared"
    nm -g --defined-only "$archive" | awk 'NF == 3 { print $3 }' | sort >"$WORK/static"
    diff "$WORK/shared" "$WORK/static" || fail 'libweir.a defines other symbols than libweir.so'
    readelf -SW "$archive" >"$WORK/sections"
    ! grep '\.gnu\.lto_' "$WORK/sections" || fail 'libweir.a has bytecode of one compiler'
    mkdir "$WORK/static-only"
    cp "$archive" "$WORK/static-only"
    {
        cat "$WORK/user.c"
        echo 'int engine_step(void); int engine_step(void) { return 1; }'
        echo 'int wire_encode(void); int wire_encode(void) { return 1; }'
    } >"$WORK/user2.c"
    flags="-I$prefix/include -L$WORK/static-only $(pkg-config --static --libs-only-l --libs-only-other weir)"
    for compiler in ${CC:-cc} clang; do
        command -v "$compiler" >/dev/null || continue
        # shellcheck disable=SC2086 # flags are words
        $compiler -Wall -Werror "$WORK/user2.c" $flags -o "$WORK/user2"
        "$WORK/user2"
        ldd "$WORK/user2" >"$WORK/linked"
        ! grep libweir "$WORK/linked"
    done
}
check E8_static_library static_library
