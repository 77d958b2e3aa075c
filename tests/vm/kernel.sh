#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# kernel.sh stable|backports CACHE: gets Debian 12's own kernel, or that of its backports,
# into CACHE, unpacked and never installed. Prints "ROOT VERSION": the directory it was
# unpacked into and the name of its modules below it. A kernel that is in CACHE already is not
# fetched again. Root is not needed.
set -eu
which=${1:?usage: kernel.sh stable|backports CACHE}
mkdir -p "${2:?usage: kernel.sh stable|backports CACHE}/$which"
cache=$(realpath "$2")/$which
release=bookworm
case $which in
stable) suite=$release ;;
backports) suite=$release-backports ;;
*)
    echo "kernel.sh: no such kernel: $which" >&2
    exit 2
    ;;
esac

answer() {
    version=$(ls "$cache/root/lib/modules")
    echo "$cache/root $version"
    exit 0
}
[ ! -f "$cache/complete" ] || answer

. "$(dirname "$0")/apt.sh"
apt_open "$cache/apt" "$suite"
package=$(apt-cache depends linux-image-amd64 | sed -n 's/^ *Depends: *\(linux-image-[0-9].*\)$/\1/p' |
    head -n 1)
[ -n "$package" ] || {
    echo "kernel.sh: $suite has no linux-image-amd64" >&2
    exit 1
}
rm -rf "$cache/root" "$cache/package"
mkdir -p "$cache/package"
cd "$cache/package"
quiet apt-get download "$package"
quiet dpkg -x "$cache/package/"*.deb "$cache/root"
version=$(ls "$cache/root/lib/modules")
PATH=$PATH:/usr/sbin:/sbin quiet depmod -b "$cache/root" "$version"
rm -rf "$cache/package" "$cache/apt"
: >"$cache/complete"
answer
