#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# packages.sh: Debian's packages of this tree are built, please lintian, and pass their own tests
# (debian/tests), by autopkgtest, on a minimal system that has nothing else of this machine. Where there
# can be no such system these count as skipped.
#
# All of it happens in build-deb; the bare system is kept there for the next time.
set -u
cd "$(dirname "$0")/.." || exit 1
# shellcheck source=scripts/chroot.sh
. scripts/chroot.sh
out=$PWD/build-deb
mkdir -p "$out"
failed=0

check() { # NAME COMMAND...
    local name=$1
    shift
    if "$@" >"$out/$name.log" 2>&1; then
        echo "ok $name"
        return 0
    fi
    echo "FAILED $name"
    tail -n 40 "$out/$name.log" | sed 's/^/    /'
    failed=1
    return 1
}
installed() { sed -n 's/^Tests: //p' debian/tests/control; }
skip() { # WHY
    for name in $(installed); do
        echo "skip E11_installed_$name: $1"
    done
    exit $failed
}

check E11_packages_are_built sh packaging/deb.sh build || exit 1
check E11_lintian sh packaging/deb.sh lintian

lacks=$(chroot_lacks)
[ -z "$lacks" ] || skip "$lacks"
command -v autopkgtest >/dev/null || skip 'autopkgtest is not installed'
(set -e; chroot_make "$out/bare") >"$out/bare.log" 2>&1 || {
    rm -rf "$out/bare"
    skip "debootstrap: $(tail -n 1 "$out/bare.log")"
}
trap chroot_leave EXIT
trap 'exit 1' HUP INT TERM
chroot_drop "$out/system"
rm -rf "$out/autopkgtest"
cp -a "$out/bare" "$out/system"
(set -e; chroot_mount proc proc "$out/system/proc") 2>"$out/mount.log" ||
    skip "mount: $(tail -n 1 "$out/mount.log")"
umount "$out/system/proc"
chroot_enter "$out/system" || skip 'a file system that programs need cannot be mounted'

autopkgtest --no-built-binaries --output-dir "$out/autopkgtest" "$out"/*.deb \
    "$out"/weir_*.dsc -- chroot "$out/system" >"$out/autopkgtest.log" 2>&1
for name in $(installed); do
    result=$(awk -v name="$name" '$1 == name { print $2 }' "$out/autopkgtest/summary" 2>/dev/null)
    case $result in
    PASS) echo "ok E11_installed_$name" ;;
    SKIP) echo "skip E11_installed_$name: $(tail -n 1 "$out/autopkgtest/$name-stdout")" ;;
    *)
        echo "FAILED E11_installed_$name"
        if [ -n "$result" ]; then
            cat "$out/autopkgtest/$name-stdout" "$out/autopkgtest/$name-stderr" 2>/dev/null
        else
            cat "$out/autopkgtest.log"
        fi | tail -n 40 | sed 's/^/    /'
        failed=1
        ;;
    esac
done
exit $failed
