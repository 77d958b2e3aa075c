#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# results.sh: scripts/results.py, which counts for CI, counts what happened: programs
# that crash, hang, lie or do not run are failures, and skipping everything is no pass.
. "$(dirname "$0")/lib.sh"
need python3

# log NAME RESULT STDOUT: one line of a testlog.json.
log() {
    printf '{"name": "%s", "result": "%s", "stdout": "%s"}\n' "$1" "$2" "$3"
}
# counts STATUS LINE LOG...: results.py ends so, with that last line.
counts() {
    status=$1 line=$2
    shift 2
    got=$(python3 scripts/results.py "$@" | tail -n 1)
    python3 scripts/results.py "$@" >/dev/null
    [ $? -eq "$status" ] || say "exit status is not $status where \"$line\" is expected"
    [ "$got" = "$line" ] || say "\"$got\" where \"$line\" is expected"
}

ok='[       OK ] test_a\n[       OK ] test_b\n'
bad='[  FAILED  ] test_c\n'
log script OK '' >"$WORK/script"
log suite OK "$ok" >"$WORK/suite"
log suite FAIL "$ok$bad[  FAILED  ] 1 test(s), listed below:\n$bad" >"$WORK/failed"
log suite FAIL "$ok" >"$WORK/crashed"
log suite TIMEOUT "$ok" >"$WORK/hung"
log suite OK "$ok$bad" >"$WORK/lied"
log suite SKIP '' >"$WORK/skipped"
log suite OK "$ok[  SKIPPED ] test_d\n" >"$WORK/partly"
log script OK 'ok a\nskip b: no such thing here\n' >"$WORK/some_skipped"
: >"$WORK/empty"

counts 0 '1 passed, 0 failed' "$WORK/script"
counts 0 '2 passed, 0 failed' "$WORK/suite"
counts 0 '3 passed, 0 failed' "$WORK/suite" "$WORK/script"
counts 1 '2 passed, 1 failed' "$WORK/failed"
counts 1 '2 passed, 1 failed' "$WORK/crashed"
counts 1 '2 passed, 1 failed' "$WORK/hung"
counts 1 '2 passed, 1 failed' "$WORK/lied"
counts 1 '0 passed, 0 failed, 1 skipped' "$WORK/skipped"
counts 0 '2 passed, 0 failed, 1 skipped' "$WORK/partly"
counts 0 '1 passed, 0 failed, 1 skipped' "$WORK/some_skipped"
counts 1 '2 passed, 1 failed' "$WORK/suite" "$WORK/empty"
counts 1 '2 passed, 1 failed' "$WORK/suite" "$WORK/missing"

# says LOG TEXT...: results.py shows these lines below the failure, and no other.
says() {
    log=$1
    shift
    got=$(python3 scripts/results.py "$log" | sed -n 's/^    | //p')
    [ "$got" = "$(printf '%s\n' "$@")" ] || say "it shows \"$got\" where \"$*\" is expected"
}
log script FAIL 'ok a\nFAILED b\n  why\n  where\nok c\nan end\n' >"$WORK/script_says"
log suite FAIL '[ RUN      ] test_a\nnot this\n[       OK ] test_a\n[ RUN      ] test_c\n1 != 2\n[  FAILED  ] test_c\n[ RUN      ] test_d\nnor this\n[       OK ] test_d\n' >"$WORK/suite_says"
log hung TIMEOUT 'ok a\nbegins b\n' >"$WORK/hung_says"
says "$WORK/script_says" why where
says "$WORK/suite_says" '1 != 2'
says "$WORK/hung_says" 'ok a' 'begins b'

# ends CODE RESULT TEXT: a program that ended with this code is shown so.
ends() {
    printf '{"name": "x", "result": "%s", "returncode": %s, "stdout": ""}\n' "$2" "$1" >"$WORK/ended"
    got=$(python3 scripts/results.py "$WORK/ended" | sed -n 's/^FAILED [^ ]* x: //p')
    [ "$got" = "$3" ] || say "an end with $1 is shown as \"$got\" where \"$3\" is expected"
}
ends -11 FAIL 'FAIL, SIGSEGV'
ends -99 FAIL 'FAIL, signal 99'
ends 3 FAIL 'FAIL, exit status 3'
ends -15 TIMEOUT TIMEOUT
finish
