#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# option.sh SOURCE: what the build option `nixl` has built and installed (X15): nothing by itself, the
# plug-in without NIXL's headers with "declared", with installed_only too, and an error where a directory
# has none.
set -u
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0

# plan NAME OPTION...: sets the tree up, and prints what of the plug-in is to be installed, and where.
plan() {
    build=$work/$1
    shift
    if meson setup "$build" "$source" --libdir=lib -Dtests=disabled "$@" >"$work/said" 2>&1; then
        meson introspect --installed "$build" >"$work/installed" || return 1
        grep -o '[^/"]*/[^/"]*/libplugin_[^"]*' "$work/installed" | sort -u | tr '\n' ' '
    else
        printf error
    fi
}
# check NAME EXPECTED OPTION...
check() {
    name=$1 expected=$2
    shift 2
    got=$(plan "$name" "$@")
    if [ "$got" = "$expected" ]; then
        echo "ok $name"
    else
        echo "FAILED $name: '$got' in place of '$expected'"
        sed 's/^/  /' "$work/said"
        status=1
    fi
}
where="adapters/nixl/libplugin_WEIR.so weir/nixl/libplugin_WEIR.so "
check X15_none ""
check X15_declared "$where" -Dnixl=declared
check X15_declared_and_nothing_else "$where" -Dnixl=declared -Dinstalled_only=true
mkdir "$work/empty"
check X15_no_headers error "-Dnixl=$work/empty"
grep -q 'no headers of NIXL' "$work/said" || { echo "FAILED X15_no_headers: no reason"; status=1; }
exit $status
