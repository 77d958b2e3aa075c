#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fuzz.sh SECONDS: builds the fuzzers with clang and runs each for so long.
set -eu
cd "$(dirname "$0")/.."
seconds=${1:?usage: $0 SECONDS}
options='-Dtests=disabled -Dfuzz=true -Db_lto=false -Db_lundef=false
         -Db_sanitize=address,undefined'
# shellcheck disable=SC2086 # options are words
[ -f build-fuzz/build.ninja ] || CC=clang meson setup build-fuzz $options
ninja -C build-fuzz --quiet
for source in tests/fuzz_*.c; do
    name=$(basename "$source" .c)
    echo "==== $name"
    sh tests/fuzz/run.sh "build-fuzz/tests/fuzz/$name" "tests/corpus/${name#fuzz_}" "$seconds" \
        -max_len=8192
done
