#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# clean-machine-test.sh DIRECTORY [REPOSITORY]: installs a minimal Debian 12 into
# DIRECTORY, clones REPOSITORY (this one) into it, and runs `make bench` and `make
# check` there, so that no tool of this machine can hide a missing dependency.
#
# Needs root, debootstrap and git. Packages come from wherever this machine's own apt
# gets them (chroot.sh). A DIRECTORY that holds a system already is used again.
set -eu
# shellcheck source=scripts/chroot.sh
. "$(dirname "$0")/chroot.sh"

directory=$(realpath -m "${1:?usage: $0 DIRECTORY [REPOSITORY]}")
repository=$(realpath "${2:-$(dirname "$0")/..}")

lacks=$(chroot_lacks)
[ -z "$lacks" ] || { echo "$0: $lacks" >&2; exit 1; }
command -v git >/dev/null || { echo "$0: please install git" >&2; exit 1; }

trap chroot_leave EXIT
chroot_make "$directory"
chroot_enter "$directory"
rm -rf "$directory/root/weir"
git clone --quiet --no-hardlinks "$repository" "$directory/root/weir"
rm -rf "$directory/root/weir/.git/hooks"

chroot_run "$directory" bash -ec 'cd /root/weir; apt-get update -qq; make bench; make check'
