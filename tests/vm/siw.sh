#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# siw.sh stable|backports ROOT VERSION: builds software iWARP (siw), which Debian's kernels leave
# out, from Debian's source of the kernel that kernel.sh unpacked in ROOT, and puts it among its
# modules. A module that is there already, and newer than this script, is not built again. Root is
# not needed, make and gcc 12 are.
#
# One line of the driver is changed. A post from user space works off the send queue within its
# system call; where the socket has no room, siw_qp_llp_write_space() may start the driver's own
# thread on the same send queue before that call has saved how far it came. Both then go on at once:
# the stream is garbled (TERMINATE, invalid DDP version), or the thread reads beyond the list of
# segments (an oops in siw_tx_hdt(), which keeps the lock of the queue pair, so that no process of
# the machine ends any more). Here all posts are handed to that thread, as those of the kernel are.
set -eu
which=${1:?usage: siw.sh stable|backports ROOT VERSION}
root=$(realpath "${2:?usage: siw.sh stable|backports ROOT VERSION}")
version=${3:?usage: siw.sh stable|backports ROOT VERSION}
to=$root/lib/modules/$version/extra
[ ! "$to/siw.ko" -nt "$0" ] || exit 0
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
posts=$siw/siw_verbs.c
sed -i '/if (rdma_is_kernel_res(&qp->base_qp.res)) {/{
    N
    s/if (.*) {\(\n.*rv = siw_sq_start(qp);\)/if (true) {\1/
}' "$posts"
[ "$(grep -A 1 'if (true) {' "$posts" | grep -c 'rv = siw_sq_start(qp);')" -eq 1 ] || {
    echo "siw.sh: the line of siw_post_send() that is to be changed is not there" >&2
    exit 1
}
# The headers name each other by the paths that they would be installed at.
headers=$work/tree/usr/src/$headers
sed -i "s|/usr/src|$work/tree/usr/src|g" "$headers/Makefile"
# Without type information for tracers, which would need pahole.
quiet make -C "$headers" M="$work/$siw" CONFIG_RDMA_SIW=m CONFIG_DEBUG_INFO_BTF_MODULES= \
    modules
mkdir -p "$to"
cp "$work/$siw/siw.ko" "$to/siw.ko"
PATH=$PATH:/usr/sbin:/sbin quiet depmod -b "$root" "$version"
