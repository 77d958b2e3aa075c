#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# install.sh BUILD: the files that `make install` leaves are enough for a program: its own copy is
# found with pkg-config, compiled and linked against, also statically, and runs; the tool finds the
# library; the manual pages are there.
set -eu
build=$(realpath "${1:?usage: $0 BUILD}")
command -v pkg-config >/dev/null || exit 77
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
DESTDIR=$WORK/root meson install -C "$build" --no-rebuild --quiet >/dev/null

pc=$(find "$WORK/root" -name weir.pc)
prefix=$WORK/root$(sed -n 's/^prefix=//p' "$pc")
export PKG_CONFIG_PATH="${pc%/weir.pc}"
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
flags=$(pkg-config --define-variable=prefix="$prefix" --cflags --libs weir)
# shellcheck disable=SC2086 # flags are words
${CC:-cc} -Wall -Werror "$WORK/user.c" $flags -o "$WORK/user"
library=$(dirname "$(find "$WORK/root" -name libweir.so)")
LD_LIBRARY_PATH=$library "$WORK/user"
LD_LIBRARY_PATH=$library "$prefix/bin/weir" --version
for page in man1/weir.1 man3/weir.3; do
    [ -f "$prefix/share/man/$page" ] || {
        echo "install: $page is missing"
        exit 1
    }
done

# The static library, by itself. Its globals are those of the shared one, so that a program may
# have functions named like ours inside; what it is made of any compiler can link.
archive=$library/libweir.a
[ -f "$archive" ] || {
    echo "install: $archive is missing"
    exit 1
}
nm -D --defined-only "$library/libweir.so" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' |
    sort >"$WORK/shared"
nm -g --defined-only "$archive" | awk 'NF == 3 { print $3 }' | sort >"$WORK/static"
diff "$WORK/shared" "$WORK/static" || {
    echo 'install: libweir.a defines other symbols than libweir.so'
    exit 1
}
readelf -SW "$archive" | grep -q '\.gnu\.lto_' && {
    echo 'install: libweir.a has bytecode of one compiler'
    exit 1
}
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
    ldd "$WORK/user2" | grep libweir && exit 1
done
echo 'install: fine'
