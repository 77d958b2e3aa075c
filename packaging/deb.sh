#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# deb.sh [build|lintian]: the Debian packages of this tree, as it is, in build-deb, or lintian's opinion
# of them; or both. The tests that a build of Debian's runs are left out, unless DEB_BUILD_OPTIONS is
# set to something.
set -eu
what=${1:-all}
cd "$(dirname "$0")/.."
version=$(cat VERSION)
out=$PWD/build-deb
tree=$out/weir-$version
export DEB_BUILD_OPTIONS="${DEB_BUILD_OPTIONS-nocheck}"

# The tree's own files: what git knows or would, or all but what was built.
files() {
    if git rev-parse --git-dir >/dev/null 2>&1; then
        git ls-files -co --exclude-standard
    else
        find . -name .git -prune -o -path './build*' -prune -o \( -type f -o -type l \) -print
    fi
}
build() {
    mkdir -p "$out"
    find "$out" -maxdepth 1 -type f -name '*weir*' -delete
    rm -rf "$tree"
    mkdir "$tree"
    files | while read -r file; do
        [ ! -e "$file" ] || echo "$file"
    done | tar -c -T - | tar -x -C "$tree"
    tar -c --exclude=debian --sort=name --owner=0 --group=0 --numeric-owner \
        --mtime="@$(dpkg-parsechangelog -l debian/changelog -S Timestamp)" -C "$out" "weir-$version" |
        gzip -9n >"$out/weir_$version.orig.tar.gz"
    (cd "$tree" && dpkg-buildpackage -us -uc -ui) >"$out/build.log" 2>&1 || {
        tail -n 40 "$out/build.log"
        echo "$0: the packages were not built; all of it is in $out/build.log" >&2
        exit 1
    }
    ls "$out"/*.deb
}
# --allow-root: it only reads. The packages of a version that nobody has released yet say that they are
# for no distribution.
judge() {
    lintian --allow-root --tag-display-limit 0 --fail-on error,warning \
        --suppress-tags bad-distribution-in-changes-file,unreleased-changes "$out"/weir_*.changes &&
        echo 'lintian: fine'
}
case $what in
all) build && judge ;;
build) build ;;
lintian) judge ;;
*)
    echo "usage: $0 [build|lintian]" >&2
    exit 2
    ;;
esac
