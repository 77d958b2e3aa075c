#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# exports.sh BUILD APP: what the libraries of the Mooncake adapter export, and that the program APP links
# with each of them: the shared one, the static one, and, as Mooncake's own build has it, with an archive `base`.
set -eu
build=$(cd "$1" && pwd)
app=$(realpath "$2")
here=$(cd "$(dirname "$0")/.." && pwd)
root=$(cd "$here/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0

# check NAME COMMAND...
check() {
    name=$1
    shift
    if "$@" >"$work/said" 2>&1; then
        echo "ok $name"
    else
        echo "FAILED $name"
        sed 's/^/  /' "$work/said"
        status=1
    fi
}

tr '\n' ' ' <"$here/include/transfer_engine_c.h" | grep -oE 'MC_API [^;(]*\(' |
    grep -oE '[A-Za-z]+\($' | tr -d '(' | sort >"$work/declared"

exports() { # OPTIONS FILE
    nm --defined-only "$@" | awk 'NF == 3 && $2 ~ /[A-Z]/ { print $3 }' | sort >"$work/exported"
    [ "$(wc -l <"$work/declared")" -eq 27 ] || { echo 'there are not 27 functions'; return 1; }
    diff "$work/declared" "$work/exported"
}
check K12_shared exports -D "$build/adapters/mooncake/libtransfer_engine.so"
check K12_static exports -g "$build/adapters/mooncake/libtransfer_engine.a"

run() { # LIBRARIES...
    # shellcheck disable=SC2086 # options are words
    ${CC:-cc} ${CFLAGS_OF_BUILD:-} "$app" -I"$here/include" -o "$work/app" "$@" &&
        MC_WEIR_DEVICE=shm "$work/app"
}
check K12_linked_shared run -L"$build/adapters/mooncake" -ltransfer_engine -L"$build" -lweir \
    "-Wl,-rpath,$build/adapters/mooncake:$build"
ar rcs "$work/libbase.a"
static_weir=$build/libweir.a
[ -f "$static_weir" ] || static_weir=$build/libweir.so
check K12_linked_static run -L"$work" "$build/adapters/mooncake/libtransfer_engine.a" -lbase \
    "$static_weir" "-Wl,-rpath,$build" $(pkg-config --libs hiredis libcurl jansson) \
    $(pkg-config --libs libibverbs librdmacm 2>/dev/null) -ldl -lm -pthread

# As pip installs it, by the module of this build, into a directory of its own.
package() {
    [ -f "$build/adapters/mooncake/python/mooncake/_engine.abi3.so" ] || { echo none; return 0; }
    cp -r "$root/adapters" "$root/VERSION" "$work/" 2>/dev/null
    WEIR_BUILD=$build /usr/bin/python3 -m pip install --quiet --no-build-isolation --no-deps \
        --no-index --target "$work/site" "$work/adapters/mooncake/python" &&
        (cd / && PYTHONPATH=$work/site MC_WEIR_DEVICE=shm /usr/bin/python3 -c '
from mooncake.engine import TransferEngine
made = TransferEngine()
assert made.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
assert made.get_rpc_port() > 0')
}
[ -n "${CFLAGS_OF_BUILD:-}" ] || check K12_package package
exit $status
