# SPDX-License-Identifier: Apache-2.0
# completion.bash FILE LINE...: what bash offers, with the completion in FILE, behind each command
# line; "== LINE" before the offers of each. Words are split as readline does, also at = and :.
source "$1"
shift
compopt() { :; } # there is no completion going on
for line; do
    echo "== $line"
    read -ra COMP_WORDS <<<"$(sed 's/[=:]/ & /g' <<<"$line")"
    [[ $line != *[\ =] ]] || [[ $line == *= ]] || COMP_WORDS+=('')
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    COMP_LINE=$line COMP_POINT=${#line}
    # What "complete" was told to call for weir.
    $(complete -p weir | sed 's/.*-F \([^ ]*\).*/\1/') weir "${COMP_WORDS[COMP_CWORD]}" \
        "${COMP_WORDS[COMP_CWORD - 1]}"
    for offer in "${COMPREPLY[@]}"; do
        echo "$offer"
    done
done
