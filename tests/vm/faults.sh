#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# faults.sh: verified benches while the provider refuses posts, takes parts of them, and loses
# and delays what it was given (faulty.c, preloaded into both sides), and transfers that are
# meant to fail (faulted.c). Each test demands that its faults really happened.
# shellcheck disable=SC2154 # variables of lib.sh
. "$(dirname "$0")/lib.sh"
faulty=$BUILD/tests/vm/libfaulty.so
[ "$DEVICE" = verbs ] || { skip faults 'there is no provider to stand in front of'; finish; }

# The faults of a test are for the programs that it names, and for nothing else that it runs.
with_faults() {
    FAULTS=$1 FAULTS_REPORT=$WORK/report LD_PRELOAD=$faulty
    export FAULTS FAULTS_REPORT LD_PRELOAD
    shift
    exec "$@"
}

# happened NAME MINIMUM: at least so often, on one of the sides.
happened() {
    tr ' ' '\n' <"$WORK/report" | awk -F= -v name="$1" -v least="$2" '
        $1 == name && $2 > most { most = $2 }
        END { if (most < least) { print name " happened " most + 0 " times, not " least; exit 1 } }'
}

# under "FAULTS" "NAME=MINIMUM..." COMMAND...: under these faults, which have to happen so often.
under() {
    given=$1 demanded=$2
    shift 2
    : >"$WORK/report"
    "$@"
    good=$?
    # Faults that did not happen are left out.
    sed 's/ [a-z]*=0//g; s/^/# /' "$WORK/report"
    [ $good -eq 0 ] || return 1
    for each in $demanded; do
        happened "${each%=*}" "${each#*=}" || return 1
    done
}

# transfers MODE COUNT DEPTH
transfers() {
    (RDMA_A=$RDMA_A RDMA_B=$RDMA_B with_faults "$given" \
        timeout "$patience" "$BUILD/tests/vm/faulted" "$1" "$2" "$3" "$DEVICE")
}

# $weir is the tool under the faults given.
preload() {
    printf '#!/bin/sh\nWEIR_VERBS_SRQ=1 FAULTS="%s" FAULTS_REPORT=%s LD_PRELOAD=%s exec %s "$@"\n' \
        "$given" "$WORK/report" "$faulty" "$BUILD/weir" >"$WORK/weir"
    chmod +x "$WORK/weir"
    weir=$WORK/weir
}

# verified BENCH OPTIONS...: no transfer is lost, no session breaks, and what was left without a
# signalled tail is found. Receives are shared, so that `srq` has something to refuse.
verified() {
    preload
    holds='r["verified"] and r["checked_bytes"] > 0 and r["wrong_bytes"] == 0
        and (c := r["device_counters"]) and c["transfers_failed"] == 0
        and c["sessions_failed"] == 0 and c["sessions_up"] == 1
        and c["partial_posts"] > 0 and c["orphans"] == c["orphans_healed"] > 0'
    serve --qps 3 --depth 16 &&
        bench_holds "$(echo "$holds" | tr -d '\n')" "$@" --qps 3 --depth 16 --segments 300 \
            --size 64 --window 4 --verify --notify --seconds 0.5 &&
        serve_end
    good=$?
    weir=$BUILD/weir
    return $good
}

# The target's QP stops while it answers: the answers come when weir has replaced it.
answered() {
    preload
    serve
    good=$?
    weir=$BUILD/weir
    holds='r["verified"] and r["checked_bytes"] > 0 and r["wrong_bytes"] == 0'
    holds="$holds and r['device_counters']['sessions_up'] > 1"
    [ $good -eq 0 ] && bench_holds "$holds" write --size 64K --seconds 1 --verify && serve_end
}

# A plan that cannot be understood is not passed over.
refused() {
    for wrong in partial=2 other=0.1; do
        (with_faults "$wrong" timeout "$patience" "$weir" info) >"$WORK/info" 2>&1 &&
            { echo "FAULTS=$wrong is taken"; return 1; }
        grep -q 'cannot make sense' "$WORK/info" || { cat "$WORK/info"; return 1; }
    done
}

# faults NAME "FAULTS" "NAME=MINIMUM..." COMMAND...
faults() {
    named=$1
    shift
    check "$named" leaves_nothing under "$@"
}

mixed='partial=0.03 enomem=0.03 lost=0.02 late=0.02 srq=0.02'
of_all='partial=20 enomem=20 lost=10 late=10 srq=1'
check faults_are_understood_or_refused refused
faults S6_S7_partial_posts_at_every_index 'partial=0.3' 'partial=60 splits=30' transfers calm 100 128
faults S6_S7_partial_posts_on_short_queues 'partial=0.1' 'partial=90 splits=3' transfers calm 40 16
faults S2_posts_refused_for_now 'enomem=0.1' 'enomem=90' transfers calm 30 8
faults S2_receives_refused_for_now 'srq=0.03' 'srq=5' transfers calm 100 64
faults S1_doorbells_late 'lost=0.1' 'lost=90' transfers calm 40 8
faults S1_completions_late 'late=0.1' 'late=50' transfers calm 40 8
faults S1_S6_all_at_once "$mixed" "$of_all" transfers calm 70 16
faults S6_posts_refused_for_good 'einval=0.01' 'einval=20' transfers einval 100 16
faults S9_S13_queues_that_stop 'never=0.004 most=5' 'never=3' transfers never 120 16
faults S9_M8_answers_that_stop 'never=0.05 most=1' 'never=1' answered
faults S2_S6_bench_writes "seed=2 $mixed" "$of_all" verified write
faults S2_S6_bench_reads "seed=3 $mixed" "$of_all" verified read
finish
