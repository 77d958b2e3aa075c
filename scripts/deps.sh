#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# deps.sh build|check|bench|verbs: installs what a target of the Makefile needs and the
# machine lacks, with apt-get as root; anybody else is told what to install.
#
# Each line of the lists is a Debian package and what shows that it is there: a
# program, or a file below an include directory.

set -eu

build='gcc:gcc libc6-dev:stdio.h meson:meson ninja-build:ninja pkg-config:pkg-config
       libxxhash-dev:xxhash.h libjansson-dev:jansson.h'
check="$build g++:c++ clang:clang libclang-rt-14-dev:/usr/lib/llvm-14/lib/clang
       clang-format:clang-format libcmocka-dev:cmocka.h valgrind:valgrind mandoc:mandoc
       binutils:nm spin:spin patch:patch
       python3-prometheus-client:/usr/lib/python3/dist-packages/prometheus_client/parser.py
       procps:ps util-linux:setarch python3:python3 gnuplot-nox:gnuplot iproute2:ip"
bench="$build gnuplot-nox:gnuplot"
# Built without the verbs device, without iWARP, without the ofi device, without
# `weir serve --metrics`, or without probes, where these cannot be had.
optional='libibverbs-dev:infiniband/verbs.h librdmacm-dev:rdma/rdma_cma.h
          libfabric-dev:rdma/fi_endpoint.h
          libmicrohttpd-dev:microhttpd.h systemtap-sdt-dev:sys/sdt.h'
# For the VM of scripts/check-verbs.sh: what boots it, and what runs in it.
verbs="$check qemu-system-x86:qemu-system-x86_64 busybox-static:busybox kmod:modprobe cpio:cpio
       xz-utils:xz iproute2:rdma libibverbs-dev:infiniband/verbs.h
       librdmacm-dev:rdma/rdma_cma.h make:make libelf1:/usr/lib/x86_64-linux-gnu/libelf.so.1
       ibverbs-providers:/etc/libibverbs.d perftest:ib_write_bw"

case ${1:-} in
build) wanted=$build ;;
check) wanted=$check ;;
bench) wanted=$bench ;;
verbs) wanted=$verbs ;;
*)
    echo "usage: $0 build|check|bench|verbs" >&2
    exit 2
    ;;
esac

PATH=$PATH:/usr/sbin:/sbin # where Debian has tools that need no root
present() {
    case $1 in
    /etc/*|*.py|*/lib*.so.*) [ -e "$1" ] ;;
    *libclang_rt*|/*) [ -e "$1" ] && ls "$1"/*/lib/linux/libclang_rt.fuzzer-* >/dev/null 2>&1 ;;
    *.h) [ -e "/usr/include/$1" ] || [ -e "/usr/include/$(uname -m)-linux-gnu/$1" ] ;;
    *) command -v "$1" >/dev/null ;;
    esac
}

have() { DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@"; }
for entry in $optional; do
    if ! present "${entry#*:}" && [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
        package=${entry%%:*}
        { have "$package" || { apt-get update -qq && have "$package"; }; } >/dev/null 2>&1 ||
            echo "$0: no $package: built without what needs it"
    fi
done
missing=
for entry in $wanted; do
    present "${entry#*:}" || missing="$missing ${entry%%:*}"
done
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null; then
    echo "$0: please install what Debian calls:$missing" >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "$0: please run: apt-get install$missing" >&2
    exit 1
fi
echo "installing:$missing"
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086 # packages are words
apt-get install -qq -y --no-install-recommends $missing >/dev/null || {
    apt-get update -qq
    apt-get install -qq -y --no-install-recommends $missing >/dev/null
}
