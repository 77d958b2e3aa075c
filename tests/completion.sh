#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# completion.sh ROOT WEIR DIRECTORY: what bash, zsh and fish offer for the tool, each asked as it asks
# itself: all commands, of each command all options that weir(1) has, and no others, and their values.
# A shell that is not here counts as skipped. DIRECTORY has what the build made of `weir --help`.
. "$(dirname "$0")/step_lib.sh"
root=$(realpath "${1:?usage: $0 ROOT WEIR DIRECTORY}")
weir=$(realpath "$2")
made=$(realpath "$3")
tests=$root/tests
export LC_ALL=C.UTF-8 HOME="$WORK" XDG_CONFIG_HOME="$WORK" XDG_DATA_HOME="$WORK" TERM=dumb

# "COMMAND OPTION" of each command of the manual; "bench write size".
awk '/^\.Sh/ { synopsis = $2 == "SYNOPSIS" }
    synopsis && /^\.Cm/ { sub(/^\.Cm /, ""); command = $0 }
    synopsis && /^\.Nm/ { command = "" }
    synopsis && command != "" && match($0, /Fl Fl [a-z-]+/) {
        print command, substr($0, RSTART + 6, RLENGTH - 6)
    }' "$root/man/weir.1" >"$WORK/options"
[ "$(wc -l <"$WORK/options")" -gt 100 ] || fail 'options of the manual were not found'
sed 's/ [a-z-]*$//' "$WORK/options" | sort -u >"$WORK/commands"
devices=$("$weir" bench write --device xyzzy 2>&1 | sed -n 's/.*this weir has: //p' | tr -d ,)
[ -n "$devices" ] || fail 'devices were not found'
# A process that somebody may trace.
sleep 600 &
process=$!
trap 'kill $process; test -z "$step" || echo "FAILED $step"; rm -rf "$WORK"' EXIT
mkdir "$WORK/a dir"
touch "$WORK/b file"

# wants LINE OFFER...: what is asked, and what has to come.
: >"$WORK/lines" >"$WORK/wanted"
wants() {
    echo "$1" >>"$WORK/lines"
    {
        echo "== $1"
        shift
        printf '%s\n' "$@" | sort
    } >>"$WORK/wanted"
}
# shellcheck disable=SC2046,SC2086 # words
{
    wants 'weir ' $(grep -v bench "$WORK/commands") bench
    wants 'weir bench ' $(sed -n 's/^bench //p' "$WORK/commands")
    wants 'weir se' serve
    while read -r command; do
        wants "weir $command --" $(sed -n "s/^$command \([a-z-]*\)$/--\1/p" "$WORK/options") --help
    done <"$WORK/commands"
    wants 'weir serve --device ' auto $devices
    wants 'weir bench write --device=' auto $devices
    wants 'weir bench write --memory ' own shared
    wants 'weir bench write --memory s' shared
    wants 'weir bench write --latency=' memory notify
    wants 'weir bench pace --op ' read send write
    wants 'weir bench incast --op=' send write
    wants 'weir bench write --size ' ''
    wants 'weir bench write --verify --mem' --memory
    wants 'weir xyzzy --s' ''
}
lines() {
    set --
    while IFS= read -r line; do
        set -- "$@" "$line"
    done <"$WORK/lines"
    timeout 300 "$shell" $flags "$tests/completion.$shell" "$where" "$@"
}
# As they were asked, the offers of each in order. Options beside commands are none of this list.
sorted() {
    awk '/^== / { block++; print block, 0, $0; on = $0; next }
        NF > 0 && !(on ~ /^== weir (bench )?$/ && /^-/) { print block, 1, $0 }' | sort -k1n -k2n -k3 -u |
        cut -d' ' -f3-
}
asked() {
    lines >"$WORK/offered" 2>"$WORK/errors"
    [ ! -s "$WORK/errors" ] || fail "$(cat "$WORK/errors")"
    sorted <"$WORK/wanted" >"$WORK/wanted.sorted"
    sorted <"$WORK/offered" >"$WORK/offered.sorted"
    diff "$WORK/wanted.sorted" "$WORK/offered.sorted"
}
# Files, directories and processes are each shell's own, so that only some of them are asked for.
others() {
    cd "$WORK"
    timeout 300 "$shell" $flags "$tests/completion.$shell" "$where" 'weir bench all --out a' 'weir bench all --out b' \
        'weir serve --stall-trace b' 'weir report b' 'weir trace ' >"$WORK/offered"
    cd "$tests"
    awk '/^== / { block++ } !/^== / { print block, $0 }' "$WORK/offered" | tr -d '\\' |
        sed 's/ *\/*$//' >"$WORK/blocks"
    for line in '1 a dir' '3 b file' '4 b file' "5 $process"; do
        # zsh prints one word of a name.
        grep -qxF "$line" "$WORK/blocks" || { [ "$shell" = zsh ] && grep -qxF "${line% *}" "$WORK/blocks"; } ||
            fail "no \"$line\" among $(cat "$WORK/offered")"
    done
    ! grep '^2 b' "$WORK/blocks" || fail 'a file, where a directory is wanted'
}
for shell in bash zsh fish; do
    command -v "$shell" >/dev/null || {
        [ -z "${CI:-}" ] || fail "$shell is not installed"
        echo "skip E10_$shell: it is not installed"
        continue
    }
    flags= where=$made/weir
    case $shell in
    bash) flags='--noprofile --norc' ;;
    zsh) flags=-f where=$made ;;
    fish) flags=--no-config where=$made/weir.fish ;;
    esac
    check "E10_options_in_$shell" asked
    check "E10_files_and_processes_in_$shell" others
done
