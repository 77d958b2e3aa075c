#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# clean-machine-test.sh DIRECTORY [REPOSITORY]: installs a minimal Debian 12 into
# DIRECTORY, clones REPOSITORY (this one) into it, and runs `make bench` and `make
# check` there, so that no tool of this machine can hide a missing dependency.
#
# Needs root, debootstrap and git. Packages come from wherever this machine's own apt
# gets them: its configuration is read, and copied into the new system. A DIRECTORY
# that holds a system already is used again.
set -eu

directory=$(realpath -m "${1:?usage: $0 DIRECTORY [REPOSITORY]}")
repository=$(realpath "${2:-$(dirname "$0")/..}")
suite=bookworm

[ "$(id -u)" -eq 0 ] || { echo "$0: needs root, for chroot" >&2; exit 1; }
for program in debootstrap git; do
    command -v "$program" >/dev/null || {
        echo "$0: please install $program" >&2
        exit 1
    }
done

# The first mirror of the suite, from either format of sources.list(5).
mirror=$(
    {
        cat /etc/apt/sources.list.d/*.sources 2>/dev/null |
            awk '/^URIs:/ { uri = $2 } /^Suites:/ { if ($0 ~ /[ ]'$suite'( |$)/ && uri) print uri }'
        cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null |
            sed 's/\[[^]]*\]//' | awk '$1 == "deb" && $3 == "'$suite'" { print $2 }'
    } | head -n 1
)
[ -n "$mirror" ] || { echo "$0: apt has no source for $suite" >&2; exit 1; }

if [ ! -x "$directory/usr/bin/apt-get" ]; then
    debootstrap --variant=minbase --include=make,ca-certificates "$suite" "$directory" "$mirror"
fi

mounts=()
leave() {
    for ((i = ${#mounts[@]} - 1; i >= 0; i--)); do
        umount "${mounts[i]}"
    done
}
trap leave EXIT
into() { # TYPE SOURCE TARGET
    mkdir -p "$directory/$3"
    mount -t "$1" "$2" "$directory/$3"
    mounts+=("$directory/$3")
}
into proc proc proc
into devtmpfs devtmpfs dev 2>/dev/null || {
    mount --rbind /dev "$directory/dev"
    mount --make-rslave "$directory/dev"
    mounts+=("$directory/dev")
}
into devpts devpts dev/pts
into tmpfs tmpfs dev/shm
into tmpfs tmpfs tmp

# Proxies and certificates are part of how this machine reaches its packages.
printf 'deb %s %s main\n' "$mirror" "$suite" >"$directory/etc/apt/sources.list"
cp -r /etc/apt/apt.conf.d/. "$directory/etc/apt/apt.conf.d/"
[ -f /etc/apt/apt.conf ] && cp /etc/apt/apt.conf "$directory/etc/apt/"
cp -L /etc/resolv.conf /etc/hosts "$directory/etc/"

rm -rf "$directory/root/weir"
git clone --quiet --no-hardlinks "$repository" "$directory/root/weir"
rm -rf "$directory/root/weir/.git/hooks"

chroot "$directory" env -i CI=true HOME=/root LANG=C.UTF-8 \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    bash -ec 'cd /root/weir; apt-get update -qq; make bench; make check'
