#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# floors.sh: inside src/engine a module calls, and includes, only modules on floors below its own,
# as docs/design.md has them: so no module calls one that calls it.
#
# The calls are those of the objects: a call inside an inline function of a header counts for the
# module that includes it. engine.h is no module's: the simulator sees the engine through it.
. "$(dirname "$0")/lib.sh"
need "$CC" nm awk

flags="-std=c11 -D_GNU_SOURCE -O0 -w"
for dir in $(layer_dirs src/engine); do
    flags="$flags -I$dir"
done

# "<floor> <module>", the lowest floor first.
awk '/^## / { on = 0 } /^## The floors of the engine/ { on = 1 } on && /^    / { print }' \
    docs/design.md | tac | awk '{ for (i = 1; i <= NF; i++) print NR, $i }' >"$WORK/floors"
[ -s "$WORK/floors" ] || say "docs/design.md has no floors"

for file in src/engine/*.[ch]; do
    module=$(basename "$file" | sed 's/\.[ch]$//')
    echo "$module"
done | sort -u >"$WORK/modules"
awk '{ print $2 }' "$WORK/floors" | sort >"$WORK/listed"
uniq -d "$WORK/listed" >"$WORK/twice"
while read -r module; do say "$module stands on two floors"; done <"$WORK/twice"
comm -23 "$WORK/modules" "$WORK/listed" >"$WORK/homeless"
while read -r module; do say "src/engine/$module stands on no floor"; done <"$WORK/homeless"
comm -13 "$WORK/modules" "$WORK/listed" >"$WORK/ghosts"
while read -r module; do say "$module has a floor, and no file"; done <"$WORK/ghosts"

: >"$WORK/arrows"
for source in src/engine/*.c; do
    module=$(basename "$source" .c)
    # shellcheck disable=SC2086 # flags are words
    if ! $CC $flags -c "$source" -o "$WORK/$module.o"; then
        say "$source does not compile"
        continue
    fi
    nm --defined-only -g "$WORK/$module.o" | awk -v m="$module" '{ print $3, m }' >>"$WORK/defined"
    nm -u "$WORK/$module.o" | awk -v m="$module" '{ print $2, m }' >>"$WORK/used"
done
# "<from> <to> <how>"
awk 'NR == FNR { where[$1] = $2; next }
     $1 in where && where[$1] != $2 { print $2, where[$1], "calls", $1 }' \
    "$WORK/defined" "$WORK/used" >>"$WORK/arrows"
for file in src/engine/*.[ch]; do
    module=$(basename "$file" | sed 's/\.[ch]$//')
    sed -n 's/^#include "\([a-z_]*\)\.h".*/\1/p' "$file" | while read -r header; do
        [ -f "src/engine/$header.h" ] && [ "$header" != engine ] && [ "$header" != "$module" ] &&
            echo "$module $header includes $header.h"
    done
done >>"$WORK/arrows"
awk 'NR == FNR { floor[$2] = $1; next }
     floor[$1] <= floor[$2] { print $1 " " $3 " " $4 ", which stands no lower (" $2 ")" }' \
    "$WORK/floors" "$WORK/arrows" | sort -u >"$WORK/wrong"
while read -r line; do
    say "$line"
done <"$WORK/wrong"
calls=$(grep -c ' calls ' "$WORK/arrows")
[ "$calls" -gt 100 ] || say "only $calls calls were found"
echo "floors: $(cut -d' ' -f1,2 "$WORK/arrows" | sort -u | wc -l) arrows"
finish
