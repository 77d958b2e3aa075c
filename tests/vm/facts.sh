#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# facts.sh: the answers of this kernel's driver (facts.c), compared with what facts.txt records: the
# rules that weir relies on everywhere, and the habits of the drivers that were looked at.
# shellcheck disable=SC2016,SC2154 # text for another shell; variables of lib.sh
. "$(dirname "$0")/lib.sh"
[ "$DEVICE" = verbs ] || { skip facts 'raw verbs need an RDMA device'; finish; }

timeout "$patience" "$BUILD/tests/vm/facts" "$RDMA_A" "$RDMA_B" >"$WORK/facts"
status=$?
sed 's/^/# /' "$WORK/facts"
check facts_asked test $status -eq 0

# The column of this driver; a driver that is not recorded has only to keep the rules.
case $RDMA_A:$(uname -r) in
rxe*:6.1.*) column=rxe-6.1 ;;
rxe*:6.12.*) column=rxe-6.12 ;;
*) column=none ;;
esac
while read -r name rule old new; do
    case $name in ''|'#'*) continue ;; esac
    is=$(sed -n "s/^fact $name //p" "$WORK/facts")
    # Not asked, because a question before it failed: that has been counted.
    [ -n "$is" ] || [ $status -eq 0 ] || continue
    wanted=$rule
    if [ "$rule" = - ]; then
        case $column in
        rxe-6.1) wanted=$old ;;
        rxe-6.12) wanted=$new ;;
        *) skip "fact_$name" "no record of this driver; it is ${is:-not answered}"; continue ;;
        esac
    fi
    check "fact_$name" sh -c '[ "$1" = "$2" ] || { echo "is $1, not $2 ($3)"; exit 1; }' sh \
        "${is:-not answered}" "$wanted" "$column"
done <"$here/facts.txt"
finish
