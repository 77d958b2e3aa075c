#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# errors.sh: the codes that a function's comment in the public headers ends with, after "Errors:",
# are those that weir(3) lists for it under RETURN VALUES; and the statuses of a transfer, after
# "Statuses:", likewise. "As weir_x" stands for the codes of that function.
. "$(dirname "$0")/lib.sh"

# Prints "function code", or "function none", for each function that returns an int, and
# "status code"; sorted.
told_in_headers() {
    awk '
        /^\/\*/ { comment = ""; inside = 1 }
        inside { comment = comment " " $0 }
        inside && /\*\// { inside = 0; next }
        /^WEIR_API int / && match($0, /weir_[a-z_0-9]+\(/) {
            name = substr($0, RSTART, RLENGTH - 1)
            if (!match(comment, /Errors: /)) {
                print name, "NO_ERRORS"
            } else {
                text = substr(comment, RSTART + RLENGTH)
                gsub(/[* \/]+/, " ", text)
                statuses = ""
                if (match(text, /Statuses: /)) {
                    statuses = substr(text, RSTART)
                    text = substr(text, 1, RSTART - 1)
                }
                put(name, text)
                put("status", statuses)
            }
            comment = ""
        }
        function put(name, text, words, count, i, any) {
            count = split(text, words, /[^A-Za-z_0-9]+/)
            for (i = 1; i <= count; i++) {
                if (words[i] ~ /^(WEIR_)?E[A-Z]+$/) {
                    sub(/^WEIR_/, "", words[i])
                    print name, words[i]
                    any = 1
                } else if (words[i] == "as" && words[i + 1] in codes) {
                    print_all(name, codes[words[i + 1]])
                    any = 1
                }
            }
            if (!any && name != "status")
                print name, "none"
            if (any)
                codes[name] = text
        }
        function print_all(name, text, words, count, i) {
            count = split(text, words, /[^A-Z_]+/)
            for (i = 1; i <= count; i++)
                if (words[i] ~ /^(WEIR_)?E[A-Z]+$/)
                    print name, words[i]
        }' include/*.h | sort -u
}

told_in_manual() {
    awk '
        /^Function\tErrors$/ { inside = 1; next }
        /^\.TE/ { inside = 0 }
        !inside || /^_$/ { next }
        /\t/ { name = $0; sub(/\t.*/, "", name); sub(/^a status$/, "status", name); sub(/.*\t/, "") }
        {
            count = split($0, words, /[^A-Za-z_]+/)
            for (i = 1; i <= count; i++) {
                if (words[i] == "none")
                    print name, "none"
                if (sub(/^WEIR_/, "", words[i]))
                    print name, words[i]
            }
        }' man/weir.3 | sort -u
}

told_in_headers >"$WORK/headers"
told_in_manual >"$WORK/manual"
[ "$(wc -l <"$WORK/headers")" -gt 90 ] || say "the errors of the public headers were not found"
comm -23 "$WORK/headers" "$WORK/manual" >"$WORK/missing"
comm -13 "$WORK/headers" "$WORK/manual" >"$WORK/extra"
while read -r name code; do
    say "weir(3) does not list $code for $name, as its comment does"
done <"$WORK/missing"
while read -r name code; do
    say "weir(3) lists $code for $name, which its comment does not"
done <"$WORK/extra"
finish
