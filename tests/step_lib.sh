# SPDX-License-Identifier: Apache-2.0
# step_lib.sh: for scripts whose steps build on each other, so that the first that fails is the last:
# each prints "ok NAME", or "FAILED NAME" and what it said. Sourced; $WORK is a directory until the end.
set -eu
WORK=$(mktemp -d)
step=
trap 'test -z "$step" || echo "FAILED $step"; rm -rf "$WORK"' EXIT

# check NAME COMMAND...: a step; the shell ends where any of its commands fails.
check() {
    step=$1
    shift
    "$@"
    echo "ok $step"
    step=
}
fail() {
    echo "$*"
    exit 1
}
# need PROGRAM...: skips the script without them, and fails in a CI run, where all is installed.
need() {
    for program; do
        command -v "$program" >/dev/null && continue
        echo "$(basename "$0" .sh): $program is not installed"
        [ -n "${CI:-}" ] && exit 1
        exit 77
    done
}
