# SPDX-License-Identifier: Apache-2.0
# lib.sh: the parts that the structural tests share; sourced, with the root of a source tree as $1
# of the sourcing script, so that selftest.sh can point them at a broken copy.
#
# A check prints what is wrong with say and ends with finish: 0 fine, 1 broken, and 77
# (skipped, to meson) from need when a program is missing.

set -u
export LC_ALL=C
ROOT=$(cd "${1:?usage: $0 ROOT}" && pwd)
cd "$ROOT" || exit 1
CC=${CC:-cc}
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
broken=0

say() {
    echo "$(basename "$0" .sh): $*"
    broken=1
}

# In a CI run everything is installed, so a missing program is a failure there.
need() {
    for program; do
        command -v "$program" >/dev/null && continue
        echo "$(basename "$0" .sh): $program is not installed"
        [ -n "${CI:-}" ] && exit 1
        exit 77
    done
}

finish() {
    [ "$broken" -eq 0 ] && echo "$(basename "$0" .sh): fine"
    exit "$broken"
}

# Every C and C++ file of the project, headers too.
c_files() {
    find include src sim tool tests bench python adapters -name 'build*' -prune -o \
        \( -name '*.[ch]' -o -name '*.cpp' \) -print 2>/dev/null | sort
}

# The directories whose headers a layer may include: `layer_dirs src/core`. This is
# the rule; the meson.build of each layer grants the same directories to the compiler.
layer_dirs() {
    case $1 in
    src/core)       echo include src/ports src/core ;;
    src/device)     echo include src/ports src/device src/device/base src/device/shm src/device/verbs ;;
    src/device/base) echo include src/ports src/device/base ;;
    src/device/shm) echo include src/ports src/device/base src/device/shm ;;
    src/device/verbs) echo include src/ports src/device/base src/device/verbs ;;
    src/device/fabric) echo include src/ports src/device/base src/device/fabric ;;
    src/device/ofi) echo include src/ports src/device/base src/device/fabric src/device/ofi ;;
    src/device/efa) echo include src/ports src/device/base src/device/fabric src/device/efa ;;
    src/os)         echo include src/ports src/os ;;
    src/engine)     echo include src/ports src/core src/device src/os src/engine ;;
    sim)            echo include src/ports src/core src/engine sim ;;
    tool)           echo include tool ;;
    adapters/mooncake/src) echo include adapters/mooncake/include adapters/mooncake/src ;;
    *)              return 1 ;;
    esac
}
LAYERS="src/core src/device src/device/base src/device/fabric src/device/shm src/device/verbs"
LAYERS="$LAYERS src/device/efa src/device/ofi src/os src/engine sim tool adapters/mooncake/src"

# Public functions, as the public headers declare them.
api_functions() {
    cat include/*.h | tr '\n' ' ' | grep -o 'WEIR_API [^;{]*(' |
        sed -n 's/.*[^a-z_0-9]\(weir_[a-z_0-9]*\) *(.*/\1/p' | sort -u
}
