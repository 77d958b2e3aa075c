#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# exports.sh PLUGIN: the plug-in exports what NIXL's manager looks up, and nothing else (X1): no template of
# the C++ library that another library of the process could take for its own.
set -eu
exported=$(nm -D --defined-only "$1" | awk '{ print $NF }' | sort | tr '\n' ' ')
if [ "$exported" = "nixl_plugin_fini nixl_plugin_init " ]; then
    echo "ok X1_exports"
else
    echo "FAILED X1_exports: $1 exports $exported"
    exit 1
fi
