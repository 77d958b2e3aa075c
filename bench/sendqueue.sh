#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# sendqueue.sh [BUILD [ROUNDS]]: the speed of the send queue, with the bar for each figure: sixteen
# threads that submit to one peer against one, what threads cost that wait, batches far deeper
# than the queue. The machine has to be left alone meanwhile. JSON in BUILD/bench/sendqueue.json.
set -eu
build=${1:-build}
mkdir -p "$build/bench"
SENDQUEUE_JSON=$build/bench/sendqueue.json "$build/bench/sendqueue" "${2:-7}" 200
