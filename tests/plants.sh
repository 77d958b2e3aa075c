#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# plants.sh SOURCE [PATCH...]: proves that campaigns of weir-sim catch bugs of the engine.
#
# Each of tests/plants/*.patch plants one bug in a copy of the tree, where the files that it changes
# are compiled anew, and weir-sim runs until it says so: 8000 seeds of the profile that the patch
# names ("Profile: doors", or "Profile: skew --messages"), or 200 of every profile. A patch that no longer applies as it is, or a
# bug that no seed shows, is a failure. Shipping code carries nothing of this.
set -eu

source=$1
shift
[ $# -gt 0 ] || set -- "$source"/tests/plants/*.patch
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# Without devices: the simulator brings its own.
cat >"$work/devices.c" <<'C'
#include "device.h"
const struct weir_device_ops *const device_table[] = {NULL};
const size_t device_table_count = 0;
bool device_setting(size_t index, char *(*get)(const char *name), struct weir_device_setting *out) {
    (void)index, (void)get, (void)out;
    return false;
}
const char *device_variable(size_t index) {
    (void)index;
    return NULL;
}
C

# Object files of a tree, in $work/objects; all of them, or of the files that are named.
compile() { # [file...], of $work/tree
    # shellcheck disable=SC2046 # names without spaces
    [ $# -gt 0 ] || set -- $(cd "$work/tree" && find src/core src/engine src/os sim -name '*.c')
    for file; do
        tree=$work/tree
        ${CC:-cc} -std=c11 -D_GNU_SOURCE -O2 -w -I"$tree/include" -I"$tree/src/ports" \
            -I"$tree/src/core" -I"$tree/src/engine" -I"$tree/src/device" -I"$tree/src/os" \
            -I"$tree/sim" -c "$tree/$file" -o "$work/objects/$(echo "$file" | tr / -).o"
    done
}

link() { # binary
    ${CC:-cc} "$work"/objects/*.o -lpthread -lm -o "$1"
}

shows() { # binary, profile, seeds: whether it shows there, and then profile and seed
    # shellcheck disable=SC2086 # a profile, and perhaps an option
    ! "$1" --profile $2 --seeds "$3" --quiet >"$work/out" 2>&1 || return 1
    echo "$2 $(grep -m 1 '^seed\|ssert' "$work/out" || tail -n 1 "$work/out")"
}

# A profile that is made for a bug has 8000 seeds; that another one might show it, too, is no excuse.
find_bug() { # binary, profile that is made for it or ""
    if [ -n "$2" ]; then
        shows "$1" "$2" 1..8000 || return 0
        return
    fi
    for profile in calm prompt notify skew teardown depth handshake slow swarm doors refused; do
        shows "$1" $profile 1..200 && return
    done
    return 0
}

mkdir "$work/tree" "$work/objects"
cp -R "$source/include" "$source/src" "$source/sim" "$work/tree"
${CC:-cc} -std=c11 -w -I"$source/src/device" -I"$source/src/ports" -I"$source/include" \
    -c "$work/devices.c" -o "$work/objects/devices.o"
compile

for patch; do
    name=$(basename "$patch" .patch)
    if ! patch -s -F0 -p1 --dry-run -d "$work/tree" <"$patch"; then
        echo "$name: does not apply"
        failed=1
        continue
    fi
    # A header would concern more files than the patch names.
    files=$(sed -n 's/^+++ b\///p' "$patch" | grep '\.c$')
    ! grep -q '^+++ .*\.h$' "$patch" || files=
    patch -s -F0 -p1 -d "$work/tree" <"$patch"
    # shellcheck disable=SC2086 # likewise
    compile $files
    link "$work/weir-sim"
    seen=$(find_bug "$work/weir-sim" "$(sed -n 's/^Profile: //p' "$patch")")
    echo "$name: ${seen:-not seen}"
    [ -n "$seen" ] || failed=1
    patch -s -F0 -R -p1 -d "$work/tree" <"$patch"
    # shellcheck disable=SC2086 # likewise
    compile $files
done
exit $failed
