#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# corpus.sh GENERATOR DIR: the seeds in DIR are those that GENERATOR writes. Seeds of an older protocol
# would be refused at their first bytes, and nothing behind them would be fuzzed.
set -eu
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
"$1" "$fresh"
diff -r "$fresh" "$2" && echo "the seeds are of this protocol"
