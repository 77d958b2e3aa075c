# SPDX-License-Identifier: Apache-2.0
# lib.sh: the parts that the scripts here share; source it. Each of them runs in the VM, or on a
# machine that has an RDMA device of its own, or anywhere on shm, and prints one line a test: "ok
# NAME", "FAILED NAME", "skip NAME: why"; what it saw goes on lines with "# " in front. It ends with
# `finish`: status 0, or 1 when a test failed.
# shellcheck shell=sh
#
# From the environment:
#   BUILD      the build directory
#   DEVICE     weir's device: verbs (default) or shm
#   RDMA_A/B   the RDMA devices of the two processes of a test; the same one twice is allowed
#   WIRE_A     the network interface below RDMA_A, if tests may do bad things to it
#   WIRE_CONTROL  the one that control connections cross, likewise
#   LONG=1     as many rounds as the promises name, not as many as CI has time for
# shellcheck disable=SC2034,SC2317 # variables for those who source this; functions through check
set -u
DEVICE=${DEVICE:-verbs}
BUILD=${BUILD:-build}
RDMA_A=${RDMA_A:-}
RDMA_B=${RDMA_B:-$RDMA_A}
WIRE_A=${WIRE_A:-}
WIRE_CONTROL=${WIRE_CONTROL:-}
LONG=${LONG:-}
here=$(dirname "$0")
weir=$BUILD/weir
failures=0
WORK=$(mktemp -d) || exit 1
serving=
trap 'test -z "$serving" || kill -KILL "$serving" 2>/dev/null; rm -rf "$WORK"' EXIT

note() { echo "# $*"; }
skip() { echo "skip $1: $2"; }

# Counts of the devices (retries, refusals, errors), where they do.
device_counts() {
    for counted in $(printf '%s\n' "$RDMA_A" "$RDMA_B" | sort -u); do
        for file in /sys/class/infiniband/"$counted"/ports/1/hw_counters/*; do
            [ ! -f "$file" ] || [ "$(cat "$file")" = 0 ] ||
                echo "# $counted $(basename "$file") $(cat "$file")"
        done
    done
}

# rxe_lost_its_place FILE: a transfer ended as FILE says because rxe of 6.1 sent a write again from the
# wrong place, which the target's device refuses (docs/testing.md).
rxe_lost_its_place() {
    case $DEVICE-$RDMA_A-$(uname -r) in
    verbs-rxe*-6.1.*) grep -q -e WEIR_EREMOTE -e "the target's device refused" "$1" ;;
    *) false ;;
    esac
}

uptime_s() { sed 's/\..*//' /proc/uptime; }

# check NAME COMMAND...: one test; its output is shown when it fails, and how long it took when that
# was long.
check() {
    name=$1 check_begin=$(uptime_s)
    shift
    [ -z "$serving" ] || { kill -KILL "$serving"; serving=; } # left by one that failed
    if "$@" >"$WORK/log" 2>&1; then
        grep '^# ' "$WORK/log"
        echo "ok $name"
    else
        sed 's/^\(# \)*/# /' "$WORK/log"
        device_counts
        echo "FAILED $name"
        failures=$((failures + 1))
    fi
    check_took=$(($(uptime_s) - check_begin))
    [ "$check_took" -lt 10 ] || note "$name took $check_took s"
}

finish() {
    test "$failures" -eq 0
    exit
}

# on a|b COMMAND...: with that RDMA device for the verbs device of weir.
on() {
    side=$1
    shift
    case $side in
    a) WEIR_VERBS_DEVICE=$RDMA_A "$@" ;;
    b) WEIR_VERBS_DEVICE=$RDMA_B "$@" ;;
    esac
}

# ---- a target of the tool, on device b ----

# serve OPTIONS...: starts it and sets $address.
serve() {
    : >"$WORK/address"
    WEIR_VERBS_DEVICE=$RDMA_B "$weir" serve --device "$DEVICE" "$@" \
        >"$WORK/address" 2>"$WORK/serve.err" &
    serving=$!
    while kill -0 "$serving" 2>/dev/null; do
        address=$(cat "$WORK/address")
        test -z "$address" || return 0
        sleep 0.05
    done
    serving=
    cat "$WORK/serve.err"
    return 1
}

serve_end() {
    kill "$serving" && wait "$serving"
    ended=$?
    serving=
    [ $ended -eq 0 ] || { cat "$WORK/serve.err"; return 1; }
}

# The machine may be slow: a test that hangs takes longer than this.
patience=600

# bench COMMAND OPTIONS...: against the target.
bench() {
    on a timeout "$patience" "$weir" bench "$@" --device "$DEVICE" --peer "$address"
}

# bench_holds "PYTHON EXPRESSION over r" COMMAND...: the result, parsed, is so.
bench_holds() {
    expression=$1
    shift
    bench "$@" --json "$WORK/out.json" >"$WORK/table" 2>"$WORK/table.err" ||
        { cat "$WORK/table" "$WORK/table.err"; return 1; }
    python3 -c 'import json, sys
r = json.load(open(sys.argv[1]))
rate, p99 = r["ops_per_s"], r["latency_ns"]["p99"] / 1e6
still = r["device_counters"]["stalls"]
print(f"# {rate:.0f} transfers/s, p99 {p99:.1f} ms" + f"; {still} QPs stood still" * (still > 0))
sys.exit(0 if eval(sys.argv[2]) else "does not hold: " + sys.argv[2])' "$WORK/out.json" "$expression" ||
        { cat "$WORK/table.err"; return 1; }
}

# ---- the outside witness: what the kernel says that processes hold ----

# One line that counts all RDMA objects of all processes, "qp 2 cq 2 ..."; the kernel's own (each
# rxe device has a QP for management) are in it, and do not change. Elsewhere: nothing.
witness() {
    test "$DEVICE" = verbs || return 0
    rdma resource show | sed 's/^[0-9]*: *//'
}

# witness_again LINE SECONDS: the same within so long; else says what there is.
witness_again() {
    tries=$(($2 * 10))
    while [ "$(witness)" != "$1" ]; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || { echo "was $1; is $(witness)"; rdma resource show qp; return 1; }
        sleep 0.1
    done
}

# leaves_nothing COMMAND...: the kernel counts the same before and after.
leaves_nothing() {
    before=$(witness)
    "$@" && witness_again "$before" 60
}
