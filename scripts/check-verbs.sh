#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# check-verbs.sh [--no-summary]: runs tests/vm on RDMA devices: in a VM with a kernel of Debian
# and software RDMA devices (rxe, siw), or on a device of this machine. docs/testing.md tells how.
#
#   KERNELS=stable      Debian 12's kernel (default); "all": that of its backports too
#   DEVICE=mlx5_0       this machine's device instead of a VM; PEER_DEVICE another for the peer
#   TESTS="facts wire"  only these scripts of tests/vm
#   LONG=1              as many rounds as the promises name (10,000), without a time limit
#   BUILD=build         the build directory
#
# Leaves one JSON file a kernel for results.py, BUILD/meson-logs/testlog-verbs-KERNEL.json, and
# adds them up unless --no-summary. Where there can be no VM each kernel counts as skipped.
set -u
cd "$(dirname "$0")/.." || exit 1
build=$(realpath -m "${BUILD:-build}")
tests=${TESTS:-facts conformance tool benches cycles messages wire faults recovery apart iwarp crowd removed}
kernels=${KERNELS:-stable}
[ "$kernels" != all ] || kernels='stable backports'
[ -z "${DEVICE:-}" ] || kernels=here
logs=()

# skipped KERNEL WHY: loud, and in the count.
skipped() {
    echo "!!!! verbs on $1 SKIPPED: $2"
    printf '{"name": "verbs-%s", "result": "SKIP", "stdout": "%s"}\n' "$1" "${2//[\"\\]/ }" >"$log"
}

# on_kernel NAME: boots it, if it can be had, and collects.
on_kernel() {
    local name=$1 share=$build/vm/$1 where version root status begin=$SECONDS
    if [ -n "$missing" ]; then
        skipped "$name" "$missing"
        return
    fi
    where=$(sh tests/vm/kernel.sh "$name" "${KERNEL_CACHE:-$build/vm/kernels}") || {
        skipped "$name" 'its kernel package cannot be had'
        return
    }
    root=${where% *} version=${where##* }
    sh tests/vm/siw.sh "$name" "$root" "$version" ||
        echo "!!!! no iWARP on $name: its driver could not be built"
    rm -rf "$share"
    mkdir -p "$share"
    local words="env LONG=${LONG:-} CYCLES=${CYCLES:-} KILLS=${KILLS:-} PEERS=${PEERS:-}"
    # A second kernel runs a part of iWARP's scripts, unless LONG=1.
    [ -n "${LONG:-}" ] || [ "$name" = "${kernels%% *}" ] || words+=" IWARP='conformance messages'"
    words+=" BUILD=$build"
    words+=" TEST_LIMIT=${LONG:+36000} sh tests/vm/guest.sh $share $tests"
    # shellcheck disable=SC2086 # words of a command
    LIMIT=${LONG:+86400} MOUNTS="$PWD $build" bash tests/vm/boot.sh "$root" "$version" "$share" \
        $words | tee "$share/console"
    status=${PIPESTATUS[0]}
    # shellcheck disable=SC2086 # names of tests
    python3 tests/vm/collect.py "$share" "$status" $tests >"$log"
    if [ "$status" -gt 1 ]; then
        echo "verbs on $name: the guest ended with $status; the end of its console:"
        tail -n 60 "$share/console"
    fi
    echo "==== verbs on $version took $((SECONDS - begin)) s"
}

# The same scripts, without what needs a wire of our own.
on_machine() {
    local share=$build/vm/here test limit=600
    [ -z "${LONG:-}" ] || limit=36000
    rm -rf "$share"
    mkdir -p "$share"
    for test in $tests; do
        env BUILD="$build" DEVICE=verbs RDMA_A="$DEVICE" RDMA_B="${PEER_DEVICE:-$DEVICE}" \
            timeout -k 10 $limit sh "tests/vm/$test.sh" >"$share/$test.out" 2>&1
        echo $? >"$share/$test.rc"
    done
    # shellcheck disable=SC2086 # names of tests
    python3 tests/vm/collect.py "$share" here $tests >"$log"
}

# What failed or was skipped, and what the tests saw, for the reader of this log.
show() {
    local share=$1 test
    for test in $tests; do
        [ -f "$share/$test.out" ] || continue
        echo "---- $test"
        grep -E '^(ok|FAILED|skip|# |\[ +(FAILED|SKIPPED|PASSED|ERROR|LINE) )' "$share/$test.out"
    done
}

missing=
sh scripts/deps.sh verbs || missing='QEMU or another package of scripts/deps.sh cannot be had'
mkdir -p "$build/meson-logs"
[ -f "$build/build.ninja" ] || meson setup "$build" -Dtests=enabled >/dev/null || exit 1
# A build directory from before libibverbs came does not know of it.
[ -e "$build/tests/vm/facts" ] || meson setup --reconfigure "$build" >/dev/null || exit 1
ninja -C "$build" --quiet || exit 1
for kernel in $kernels; do # one that is not reached has no log, which is a failure
    rm -f "$build/meson-logs/testlog-verbs-$kernel.json"
done
for kernel in $kernels; do
    log=$build/meson-logs/testlog-verbs-$kernel.json
    logs+=("$log")
    echo "==== verbs on $kernel"
    case $kernel in
    here) on_machine ;;
    *) on_kernel "$kernel" ;;
    esac
    show "$build/vm/$kernel"
done
[ "${1:-}" = --no-summary ] || python3 scripts/results.py "${logs[@]}"
