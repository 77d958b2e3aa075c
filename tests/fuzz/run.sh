#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run.sh PROGRAM CORPUS SECONDS [OPTION]...: runs a libFuzzer program from a corpus. Its finds stay
# beside the program: new inputs in PROGRAM.corpus, crashes as PROGRAM.crash-*.
set -eu
program=$1 corpus=$2 seconds=$3
shift 3
mkdir -p "$program.corpus"
exec "$program" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -verbosity=0 \
    -print_final_stats=1 -artifact_prefix="$program." "$@" "$program.corpus" "$corpus"
