#!/bin/sh
# install.sh BUILD: what `make install` leaves is enough for a program: its own copy is
# found with pkg-config, compiled and linked against, and runs; the tool finds the
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
echo 'install: fine'
