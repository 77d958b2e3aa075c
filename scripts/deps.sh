#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# deps.sh build|check|bench|verbs|deb|packages|site: installs what a target of the Makefile needs and the
# machine lacks, with apt-get as root; anybody else is told what to install.
#
# Each line of the lists is a Debian package and what shows that it is there: a
# program, or a file below an include directory.

set -eu

build='gcc:gcc libc6-dev:stdio.h meson:meson ninja-build:ninja pkg-config:pkg-config
       libxxhash-dev:xxhash.h libjansson-dev:jansson.h'
site='mandoc:mandoc python3-markdown-it:/usr/lib/python3/dist-packages/markdown_it/main.py
      python3-pygments:/usr/lib/python3/dist-packages/pygments/lexer.py'
check="$build $site g++:c++ clang:clang libclang-rt-14-dev:/usr/lib/llvm-14/lib/clang
       clang-format:clang-format libcmocka-dev:cmocka.h valgrind:valgrind
       binutils:nm spin:spin patch:patch
       python3-prometheus-client:/usr/lib/python3/dist-packages/prometheus_client/parser.py
       procps:ps bash:bash zsh:zsh fish:fish cmake:cmake abigail-tools:abidw util-linux:setarch
       python3:python3 gnuplot-nox:gnuplot iproute2:ip
       python3-dev:python3.11/Python.h python3-pip:pip3
       python3-numpy:/usr/lib/python3/dist-packages/numpy/version.py
       python3-setuptools:/usr/lib/python3/dist-packages/setuptools/version.py
       python3-wheel:/usr/lib/python3/dist-packages/wheel/__main__.py
       python3-trio:/usr/lib/python3/dist-packages/trio/_version.py
       python3-mypy:/usr/lib/python3/dist-packages/mypy/version.py
       etcd-server:etcd redis-server:redis-server"
bench="$build gnuplot-nox:gnuplot"
# Built without the verbs device, without iWARP, without the ofi device, without
# `weir serve --metrics`, without probes, or without the Mooncake adapter, where these cannot be
# had. The Python package is built where Python's headers are; python3-torch, which is large, is
# tested with where it is.
optional='libibverbs-dev:infiniband/verbs.h librdmacm-dev:rdma/rdma_cma.h
          libfabric-dev:rdma/fi_endpoint.h
          libmicrohttpd-dev:microhttpd.h systemtap-sdt-dev:sys/sdt.h
          libhiredis-dev:hiredis/hiredis.h libcurl4-openssl-dev:curl/curl.h'
# For the VM of scripts/check-verbs.sh: what boots it, and what runs in it.
verbs="$check qemu-system-x86:qemu-system-x86_64 busybox-static:busybox kmod:modprobe cpio:cpio
       xz-utils:xz iproute2:rdma libibverbs-dev:infiniband/verbs.h
       librdmacm-dev:rdma/rdma_cma.h make:make libelf1:/usr/lib/x86_64-linux-gnu/libelf.so.1
       ibverbs-providers:/etc/libibverbs.d perftest:ib_write_bw"
# What builds the packages, and what tries them on a system of their own (tests/packages.sh).
deb="$build debhelper:dh dh-python:dh_python3 dpkg-dev:dpkg-buildpackage lintian:lintian
     libcmocka-dev:cmocka.h python3-dev:python3.11/Python.h
     libibverbs-dev:infiniband/verbs.h librdmacm-dev:rdma/rdma_cma.h
     libfabric-dev:rdma/fi_endpoint.h libmicrohttpd-dev:microhttpd.h systemtap-sdt-dev:sys/sdt.h
     g++:c++ libhiredis-dev:hiredis/hiredis.h libcurl4-openssl-dev:curl/curl.h"
packages="$deb debootstrap:debootstrap autopkgtest:autopkgtest"

case ${1:-} in
build) wanted=$build ;;
check) wanted=$check ;;
bench) wanted=$bench ;;
verbs) wanted=$verbs ;;
deb) wanted=$deb ;;
packages) wanted=$packages ;;
site) wanted=$site ;;
*)
    echo "usage: $0 build|check|bench|verbs|deb|packages|site" >&2
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
