#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# handshake.sh: the model of the handshake (docs/handshake.pml) holds in each of its states, and
# each bug that is planted in it is found. It takes most of a minute, and 600 MB.
. "$(dirname "$0")/lib.sh"
need spin "$CC"

model=$ROOT/docs/handshake.pml
cd "$WORK" || exit 1

# One verifier serves all plants: its environment says which.
if ! { spin -a "$model" && $CC -O2 -DSAFETY -DNOREDUCE -o pan pan.c; } >spin.out 2>&1; then
    say 'the model makes no verifier:'
    head -n 20 spin.out
    finish
fi

# verify PLANT: what spin's verifier says of the model with that bug, 0 for none.
verify() {
    PLANT=$1 ./pan -m100000 -w24 -n
}

verify 0 >found 2>&1 || say 'the model cannot be verified'
grep -q 'errors: 0$' found && ! grep -qiE 'not completed|too small|out of memory|aborted' found || {
    say 'the model does not hold:'
    head -n 20 found
}
grep 'states, stored$' found

plants=$(sed -n 's/^#define PLANTS \([0-9]*\)$/\1/p' "$model")
[ "${plants:-0}" -gt 0 ] || say 'no bug was planted'
for plant in $(seq "${plants:-0}"); do
    grep -q "PLANTED($plant)" "$model" || say "no rule is left out for PLANTED($plant)"
    verify "$plant" >found 2>&1
    grep -o 'assertion violated.*' found || say "PLANT=$plant is not found"
done
finish
