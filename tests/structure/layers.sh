#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# layers.sh: a layer includes headers of its allowed directories only, the core only
# freestanding system headers besides, and the build grants each layer the same.
. "$(dirname "$0")/lib.sh"

# xxhash.h is compiled in whole (XXH_INLINE_ALL) and calls nothing; core.sh would see it.
core_system=' assert.h limits.h stdatomic.h stdbool.h stddef.h stdint.h string.h xxhash.h '

for layer in $LAYERS; do
    dirs=$(layer_dirs "$layer")
    files=$(find "$layer" -maxdepth 1 -name '*.[ch]' | sort)
    [ -n "$files" ] || say "$layer: no file was checked"
    # shellcheck disable=SC2086 # files are words
    awk '/^[ \t]*#[ \t]*include[ \t]*["<]/ {
             header = $0
             sub(/^[ \t]*#[ \t]*include[ \t]*/, "", header)
             quote = substr(header, 1, 1)
             sub(/^["<]/, "", header); sub(/[">].*/, "", header)
             print FILENAME, quote, header
         }' $files >"$WORK/includes"
    while read -r file quote header; do
        if [ "$quote" = '"' ]; then
            found=
            for dir in $dirs; do
                [ -f "$dir/$header" ] && found=1
            done
            case $header in
            */*) found= ;; # a path walks around the rule
            esac
            [ -n "$found" ] || say "$file includes \"$header\", which $layer may not see"
        else
            [ -f "include/$header" ] && say "$file includes <$header>: our own are quoted"
            if [ "$layer" = src/core ]; then
                case $core_system in
                *" $header "*) ;;
                *) say "$file includes <$header>, which the core may not" ;;
                esac
            fi
        fi
    done <"$WORK/includes"
    # meson.build: the inc_* it names, as directories.
    if [ "$layer" != tool ]; then # its target is in the root meson.build
        grep -q 'implicit_include_directories: false' "$layer/meson.build" ||
            say "$layer/meson.build lets the compiler see more than it names"
    fi
    for name in $(grep -v '^ *#' "$layer/meson.build" | grep -o 'inc_[a-z_]*' | sort -u); do
        case $name in
        inc_api)    dir=include ;;
        inc_ports)  dir=src/ports ;;
        inc_core)   dir=src/core ;;
        inc_device) dir=src/device ;;
        inc_base)   dir=src/device/base ;;
        inc_fabric) dir=src/device/fabric ;;
        inc_shm)    dir=src/device/shm ;;
        inc_verbs)  dir=src/device/verbs ;;
        inc_efa)    dir=src/device/efa ;;
        inc_ofi)    dir=src/device/ofi ;;
        inc_os)     dir=src/os ;;
        inc_engine) dir=src/engine ;;
        inc_sim*)   dir=sim ;;
        inc_tool)   dir=tool ;;
        inc_mooncake) dir=adapters/mooncake/include ;;
        inc_mooncake_src) dir=adapters/mooncake/src ;;
        *)          dir=$name ;;
        esac
        case " $dirs " in
        *" $dir "*) ;;
        *) say "$layer/meson.build grants $dir" ;;
        esac
    done
done
finish
