#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# siw.sh stable|backports ROOT VERSION: builds software iWARP (siw), which Debian's kernels leave
# out, from Debian's source of the kernel that kernel.sh unpacked in ROOT, and puts it among its
# modules. A module that is there already is not built again. Root is not needed, make and gcc 12
# are.
set -eu
which=${1:?usage: siw.sh stable|backports ROOT VERSION}
root=$(realpath "${2:?usage: siw.sh stable|backports ROOT VERSION}")
version=${3:?usage: siw.sh stable|backports ROOT VERSION}
to=$root/lib/modules/$version/extra
[ ! -f "$to/siw.ko" ] || exit 0
case $which in
stable) suite=bookworm ;;
backports) suite=bookworm-backports ;;
*)
    echo "siw.sh: no such kernel: $which" >&2
    exit 2
    ;;
esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
. "$(dirname "$0")/apt.sh"
apt_open "$work/apt" "$suite"

# field PACKAGE NAME, of the newest one.
field() { apt-cache show "$1" | sed -n "s/^$2: //p" | head -n 1; }
headers=linux-headers-$version
release=$(field "$headers" Version)
series=$(echo "$version" | cut -d. -f1-2)
# The packages that they cannot be used without; not every kernel has all of these.
parts=$(field "$headers" Depends | grep -oE 'linux-(headers|kbuild|compiler)-[^ ,]+')
source=linux-source-$series
# The source of this very kernel.
[ "$(apt-cache policy "$source" | grep -cF " $release ")" -gt 0 ] || {
    echo "siw.sh: $suite has no $source of version $release" >&2
    exit 1
}
cd "$work"
# shellcheck disable=SC2086 # packages are words
quiet apt-get download "$headers=$release" $parts "$source=$release"
for package in linux-[!s]*.deb; do
    quiet dpkg -x "$package" "$work/tree"
done
siw=linux-source-$series/drivers/infiniband/sw/siw
dpkg --fsys-tarfile "$source"_*.deb | tar -xO "./usr/src/linux-source-$series.tar.xz" |
    xz -dc | tar -x "$siw"
# The headers name each other by the paths that they would be installed at.
headers=$work/tree/usr/src/$headers
sed -i "s|/usr/src|$work/tree/usr/src|g" "$headers/Makefile"
# Without type information for tracers, which would need pahole.
quiet make -C "$headers" M="$work/$siw" CONFIG_RDMA_SIW=m CONFIG_DEBUG_INFO_BTF_MODULES= \
    modules
mkdir -p "$to"
cp "$work/$siw/siw.ko" "$to/siw.ko"
PATH=$PATH:/usr/sbin:/sbin quiet depmod -b "$root" "$version"
