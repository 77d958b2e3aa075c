#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# with-nixl.sh TREE PLUGIN: NIXL's own gtest with libplugin_WEIR.so in UCX's place. Builds it from a copy
# of NIXL's TREE, with what the environment has (PKG_CONFIG_PATH); NIXL_WORK keeps the copy and the build.
# Not part of `make check`: it takes NIXL, and half an hour on one processor.
set -eu
tree=$(realpath "${1:?usage: $0 TREE PLUGIN}")
plugin=$(realpath "${2:?usage: $0 TREE PLUGIN}")
if [ -n "${NIXL_WORK:-}" ]; then
    work=$(realpath "$NIXL_WORK")
else
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
fi
copy=$work/nixl
if [ ! -d "$copy" ]; then
    cp -r "$tree" "$copy"
    # Each case is UCX's, and is to be WEIR's.
    sed -i '/NIXL_INSTANTIATE_TEST/,/;/s/"UCX"/"WEIR"/' \
        "$copy/test/gtest/test_transfer.cpp" "$copy/test/gtest/error_handling.cpp"
    # A parameter of UCX's.
    sed -i '/EXPECT_EQ(ucx_err_handling_mode_peer/d' "$copy/test/gtest/error_handling.cpp"
    # A header that this test leaves to others to include.
    sed -i '0,/#include/s//#include <fstream>\n#include/' "$copy/test/gtest/configuration.cpp"
fi
[ -f "$work/build/build.ninja" ] || meson setup "$work/build" "$copy" -Dbuildtype=debugoptimized \
    -Denable_plugins=POSIX -Dbuild_examples=false -Dwerror=false -Dwith_trace=false \
    -Dprefix="$work/installed"
ninja -C "$work/build" src/core/libnixl.so test/gtest/gtest

# NIXL_WEIR_DEVICE chooses another one.
plugins=$(dirname "$plugin")
NIXL_PLUGIN_DIR=$plugins NIXL_WEIR_DEVICE=${NIXL_WEIR_DEVICE:-shm} \
    "$work/build/test/gtest/gtest" --tests_plugin_dirs="$plugins" \
    --gtest_filter="${FILTER:-*TestTransfer.*:*TestListener.*:*TestTransferTelemetry.*:*TestErrorHandling.*}"
