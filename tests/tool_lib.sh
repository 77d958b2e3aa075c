#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tool_lib.sh: the parts that tests of the tool share; sourced, by a script whose arguments are
# PATH-OF-WEIR and, to run a part of it, parts of the names that are wanted. It gives weir, only,
# a directory $dir that goes with the script, and $failed, which is the exit status.
#
# A script without python3, which judges the JSON, ends with 77.
# shellcheck disable=SC2034 # failed is the script's
weir=$(readlink -f "${1:?usage: $0 PATH-OF-WEIR [BEHAVIOUR...]}")
shift
only=$*
command -v python3 >/dev/null || exit 77
dir=$(mktemp -d) || exit 1
failed=0
trap 'rm -rf "$dir"' EXIT
export WEIR_WATCHDOG_MS=0 # a busy machine may stall anything, and lines are counted
export TOOL_TEST=$dir # all that is started from here has it in its environment

# Whether the name is wanted.
is_wanted() {
    for part in ${only:-$1}; do
        case $1 in *"$part"*) return 0 ;; esac
    done
    return 1
}

# check NAME COMMAND...: one test.
check() {
    name=$1
    shift
    echo "$name" >>"$dir/names"
    is_wanted "$name" || return
    if "$@" >"$dir/log" 2>&1; then
        echo "ok $name"
    else
        echo "FAILED $name"
        sed 's/^/    /' "$dir/log"
        failed=1
    fi
}

# finish: the script's exit status. A part that names no test is a failure.
finish() {
    for part in $only; do
        grep -qF -- "$part" "$dir/names" && continue
        echo "FAILED $part: no test has that in its name"
        failed=1
    done
    exit $failed
}

# Ends what hangs; nothing takes as long on any machine.
run() { timeout 600 "$weir" "$@"; }

# until_so COMMAND...: as soon as it succeeds, while the process $alive lives.
until_so() {
    until "$@"; do
        kill -0 "$alive" 2>/dev/null || return 1
        sleep 0.05
    done
}

# ours: the processes of this test that run weir and are not dead.
ours() {
    for process in /proc/[0-9]*; do
        case $(readlink "$process/exe" 2>/dev/null) in */weir | */weir\ *) ;; *) continue ;; esac
        tr '\0' '\n' <"$process/environ" 2>/dev/null | grep -qxF "TOOL_TEST=$dir" &&
            grep -q '^State:[[:space:]]*[RSDTt]' "$process/status" 2>/dev/null &&
            echo "${process#/proc/}"
    done
}
# No process is left; a busy machine takes its time to end those that have to.
nobody_left() {
    for _ in $(seq 100); do
        test -z "$(ours)" && return 0
        sleep 0.1
    done
    ours
    return 1
}

# json_holds PYTHON-EXPRESSION over r, the parsed $dir/out.json. Of terms that are joined by `and`
# it says which one does not hold, and the values of what is compared there.
json_holds() {
    python3 -c 'import ast, json, sys
r = json.load(open(sys.argv[1]))
tree = ast.parse(sys.argv[2].strip(), mode="eval").body
value = lambda node: eval(compile(ast.Expression(node), "", "eval"))
terms = tree.values if isinstance(tree, ast.BoolOp) and isinstance(tree.op, ast.And) else [tree]
for term in terms:
    if not value(term):
        sides = [term.left] + term.comparators if isinstance(term, ast.Compare) else [term]
        sys.exit("does not hold: " + ast.unparse(term) + ": " + ", ".join(map(repr, map(value, sides))))
' "$dir/out.json" "$(echo "$1" | tr '\n' ' ')"
}

# Status 2 and exactly one line on stderr, nothing on stdout.
refused() {
    run "$@" >"$dir/stdout" 2>"$dir/err"
    status=$?
    test $status -eq 2 && test "$(wc -l <"$dir/err")" -eq 1 && test ! -s "$dir/stdout" && return
    echo "status $status for: $*"
    cat "$dir/err"
    return 1
}
# refused_as TEXT ARGUMENTS...: the one line says TEXT.
refused_as() {
    text=$1
    shift
    refused "$@" || return 1
    grep -qF -- "$text" "$dir/err" && return
    echo "not \"$text\" for: $*"
    cat "$dir/err"
    return 1
}
# Not the command line but the world is wrong: status 1, one line.
fails() {
    run "$@" >"$dir/stdout" 2>"$dir/err"
    status=$?
    test $status -eq 1 && test "$(wc -l <"$dir/err")" -eq 1 && return
    echo "status $status for: $*"
    cat "$dir/err"
    return 1
}
# fails_as TEXT ARGUMENTS...: the one line says TEXT.
fails_as() {
    text=$1
    shift
    fails "$@" && grep -qF -- "$text" "$dir/err" && return
    cat "$dir/err"
    return 1
}
