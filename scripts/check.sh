#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# check.sh: everything that `make check` runs. The VM stage goes on beside the others: an emulated
# machine leaves processors idle, and so do tests that wait. A stage that fails does not stop the
# next. The last line adds up the results of all.

set -u
cd "$(dirname "$0")/.." || exit 1
export CI=${CI:-}
jobs=$(nproc)
logs=()

# stage NAME DIR "SETUP OPTIONS" TEST OPTIONS...: configures DIR as asked (or takes it as it is:
# "built"), builds what the tests need and runs them. The log of a stage that did not get as far as its tests stays missing,
# which results.py counts as a failure.
stage() {
    local name=$1 dir=$2 setup=$3
    shift 3
    # meson adds the name of a setup to the name of the log by itself.
    local logbase=testlog-$name
    case " $* " in *' --setup '*) logbase=testlog ;; esac
    local log=$dir/meson-logs/testlog-$name.json
    logs+=("$log")
    rm -f "$log"
    echo "==== $name"
    local begin=$SECONDS
    if [ "$setup" = built ]; then
        [ -f "$dir/build.ninja" ] || return
    elif [ ! -f "$dir/build.ninja" ]; then
        # shellcheck disable=SC2086 # options are words
        env ${stage_env:-} meson setup "$dir" -Dwerror=true $setup >"$dir.setup.log" 2>&1 || {
            tail -n 30 "$dir.setup.log"
            return
        }
        rm -f "$dir.setup.log"
    else
        # shellcheck disable=SC2086 # options are words
        meson configure "$dir" $setup || return
    fi
    meson test -C "$dir" --logbase "$logbase" --print-errorlogs --num-processes "$jobs" "$@"
    echo "==== $name took $((SECONDS - begin)) s"
}

sh scripts/deps.sh check || { echo '0 passed, 1 failed'; exit 1; }

# The release build, with all that the VM needs: the check of the verbs device on real kernel
# drivers, KERNELS=all for both kernels, is shown when it has ended. Nothing configures the
# directory anew while it goes on.
echo '==== build'
begin=$SECONDS
[ -f build/build.ninja ] || meson setup build -Dtests=enabled >/dev/null
meson configure build -Dtests=enabled -Dwerror=true && ninja -C build -j "$jobs" --quiet
echo "==== build took $((SECONDS - begin)) s"
shown=$(mktemp)
set -m # a process group of its own, to end all of it
bash scripts/check-verbs.sh --no-summary >"$shown" 2>&1 </dev/null &
verbs=$!
set +m
trap 'kill -- "-$verbs" 2>/dev/null; rm -f "$shown"' EXIT
trap 'exit 1' HUP INT TERM

sanitize='-Dtests=enabled -Db_lto=false -Db_lundef=false'

# The release build, assertions on: unit, structural, conformance and fault tests.
stage release build built
# Memory and undefined behaviour.
export ASAN_OPTIONS=abort_on_error=0:detect_stack_use_after_return=1
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
stage asan build-asan "$sanitize -Db_sanitize=address,undefined -Dbuildtype=debugoptimized" \
    --no-suite structure --no-suite plants --timeout-multiplier 2
# Threads: what has threads.
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:die_after_fork=0
stage tsan build-tsan "$sanitize -Db_sanitize=thread" --suite threads --setup tsan \
    --timeout-multiplier 2
# Uninitialised memory and leaks, on the release build.
stage valgrind build built --suite valgrind --setup valgrind
# Parsers, a short while each.
stage_env='CC=clang' stage fuzz build-fuzz \
    "-Db_lto=false -Db_lundef=false -Dtests=disabled -Dfuzz=true -Db_sanitize=address,undefined" --suite fuzz

# Debian's packages, installed on a system of their own.
echo '==== packages'
begin=$SECONDS
bash scripts/check-packages.sh --no-summary
logs+=(build/meson-logs/testlog-packages.json)
echo "==== packages took $((SECONDS - begin)) s"

echo '==== verbs'
wait "$verbs"
cat "$shown"
for kernel in $([ "${KERNELS:-stable}" = all ] && echo stable backports || echo "${KERNELS:-stable}"); do
    logs+=("build/meson-logs/testlog-verbs-$kernel.json")
done
echo "==== all took $SECONDS s"

echo '==== all'
python3 scripts/results.py "${logs[@]}"
