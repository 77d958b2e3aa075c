#!/bin/sh
# plants.sh SOURCE: proves that campaigns of weir-sim catch bugs of the engine.
#
# Each of tests/plants/*.patch plants one bug in a copy of the tree, where weir-sim is
# built and run until it says so. A patch that no longer applies, or a bug that no seed
# shows, is a failure. Shipping code carries nothing of this.
set -eu

source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
seeds=${PLANT_SEEDS:-3000}
failed=0

build() { # tree binary
    tree=$1
    # shellcheck disable=SC2046
    ${CC:-cc} -std=c11 -D_GNU_SOURCE -O1 -w -I"$tree/include" -I"$tree/src/ports" \
        -I"$tree/src/core" -I"$tree/src/engine" -I"$tree/src/device" -I"$tree/src/os" \
        -I"$tree/sim" $(find "$tree/src" "$tree/sim" -name '*.c') -I"$tree/src/device/shm" \
        -lpthread -lm -o "$2"
}

for patch in "$source"/tests/plants/*.patch; do
    name=$(basename "$patch" .patch)
    rm -rf "$work/tree"
    mkdir "$work/tree"
    cp -R "$source/include" "$source/src" "$source/sim" "$work/tree"
    if ! patch -s -F3 -p1 -d "$work/tree" <"$patch"; then
        echo "$name: does not apply"
        failed=1
        continue
    fi
    build "$work/tree" "$work/weir-sim"
    seen=
    for profile in calm notify teardown depth swarm; do
        if ! "$work/weir-sim" --profile $profile --seeds 1.."$seeds" --quiet >"$work/out" 2>&1; then
            seen=$(grep -m 1 '^seed\|ssert' "$work/out" || tail -n 1 "$work/out")
            break
        fi
    done
    if [ -n "$seen" ]; then
        echo "$name: $profile $seen"
    else
        echo "$name: not seen"
        failed=1
    fi
done
exit $failed
