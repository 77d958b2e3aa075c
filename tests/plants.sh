#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# plants.sh SOURCE [PATCH...]: proves that campaigns of weir-sim catch bugs of the engine.
#
# Each of tests/plants/*.patch plants one bug in a copy of the tree, where the files that it changes
# are compiled anew, and weir-sim runs until it says so. The patch names a profile and the seed that
# showed the bug last ("Profile: skew --messages, seed 59"). That seed comes first. Where it shows
# nothing, as after any change of what a world draws, the first 8000 of the profile are searched, and
# the line says which one it is now. A patch that names no seed, no longer applies as it is, or plants
# a bug that no seed shows, is a failure. Shipping code carries nothing of this.
set -eu

source=$1
shift
[ $# -gt 0 ] || set -- "$source"/tests/plants/*.patch
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' TERM # of shows
failed=0

# Without devices: the simulator brings its own.
cat >"$work/devices.c" <<'C'
#include "device.h"
const struct weir_device_ops *const device_table[] = {NULL};
const size_t device_table_count = 0;
bool device_setting(size_t index, char *(*get)(const char *name), const struct weir_device_nic *nic,
                    struct weir_device_setting *out) {
    (void)index, (void)get, (void)nic, (void)out;
    return false;
}
int device_choose(const char *name, const struct weir_device_ops **ops_out,
                  struct weir_device_nic *nic_out, char note_out[WEIR_DEVICE_NOTE_MAX]) {
    (void)name, (void)ops_out, (void)nic_out, (void)note_out;
    return WEIR_ENODEVICE;
}
const char *device_variable(size_t index) {
    (void)index;
    return NULL;
}
const struct weir_device_ops *device_find(const char *name) {
    (void)name;
    return NULL;
}
C

# Object files of a tree; all of them, or of the files that are named. One seed is soon run, so time
# goes by in the compiler.
compile() { # directory of the objects, [file...], of $work/tree
    into=$1 tree=$work/tree
    shift
    # shellcheck disable=SC2046 # names without spaces
    [ $# -gt 0 ] || set -- $(cd "$tree" && find src/core src/engine src/os sim -name '*.c')
    for file; do
        ${CC:-cc} -std=c11 -D_GNU_SOURCE -O1 -w -I"$tree/include" -I"$tree/src/ports" \
            -I"$tree/src/core" -I"$tree/src/engine" -I"$tree/src/device" -I"$tree/src/os" \
            -I"$tree/sim" -c "$tree/$file" -o "$into/$(echo "$file" | tr / -).o"
    done
}

# A binary of the objects of $work/planted, and of all others of the tree.
link() { # binary
    for object in "$work"/objects/*.o; do
        [ -f "$work/planted/${object##*/}" ] || echo "$object"
    done | xargs ${CC:-cc} -o "$1" "$work"/planted/*.o -lpthread -lm
}

# Whether it shows there, and then profile and seed. A run that ends badly and names neither a seed
# nor an assertion says nothing of the bug: then this script ends.
shows() { # binary, profile, seeds
    # shellcheck disable=SC2086 # a profile, and perhaps an option
    ! "$1" --profile $2 --seeds "$3" --quiet >"$work/out" 2>&1 || return 1
    said=$(grep -m 1 '^seed\|ssert' "$work/out") || {
        echo "no seed of $2 $3 fails, and weir-sim does:" >&2
        cat "$work/out" >&2
        kill $$
    }
    echo "$2 $said"
}

# The seed that showed the bug last, and else each: that another profile might show it is no excuse.
find_bug() { # binary, profile, seed
    shows "$1" "$2" "$3..$3" && return
    shows "$1" "$2" 1..8000 && echo "(not by seed $3, which the patch names)"
}

mkdir "$work/tree" "$work/objects" "$work/planted"
cp -R "$source/include" "$source/src" "$source/sim" "$work/tree"
${CC:-cc} -std=c11 -w -I"$source/src/device" -I"$source/src/ports" -I"$source/include" \
    -c "$work/devices.c" -o "$work/objects/devices.o"
compile "$work/objects"

for patch; do
    name=$(basename "$patch" .patch)
    profile=$(sed -n 's/^Profile: \(.*\), seed [0-9]*$/\1/p' "$patch")
    seed=$(sed -n 's/^Profile: .*, seed \([0-9]*\)$/\1/p' "$patch")
    if [ -z "$profile" ] || [ -z "$seed" ]; then
        echo "$name: names no profile, or no seed"
        failed=1
        continue
    fi
    if ! patch -s -F0 -p1 --dry-run -d "$work/tree" <"$patch"; then
        echo "$name: does not apply"
        failed=1
        continue
    fi
    # A header would concern more files than the patch names.
    files=$(sed -n 's/^+++ b\///p' "$patch" | grep '\.c$')
    ! grep -q '^+++ .*\.h$' "$patch" || files=
    patch -s -F0 -p1 -d "$work/tree" <"$patch"
    rm -f "$work"/planted/*
    # shellcheck disable=SC2086 # likewise
    compile "$work/planted" $files
    link "$work/weir-sim"
    seen=$(find_bug "$work/weir-sim" "$profile" "$seed" | tr '\n' ' ') || true
    echo "$name: ${seen:-not seen}"
    [ -n "$seen" ] || failed=1
    patch -s -F0 -R -p1 -d "$work/tree" <"$patch"
done
exit $failed
