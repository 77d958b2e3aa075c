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
    flags="$flags -I$ROOT/$dir"
done

# "<floor> <module>", the lowest floor first.
awk '/^## / { on = 0 } /^## The floors of the engine/ { on = 1 } on && /^    / { print }' \
    docs/design.md | tac | awk '{ for (i = 1; i <= NF; i++) print NR, $i }' >"$WORK/floors"
[ -s "$WORK/floors" ] || say "docs/design.md has no floors"

ls src/engine/*.[ch] | sed 's,.*/,,; s,\.[ch]$,,' | sort -u >"$WORK/modules"
awk '{ print $2 }' "$WORK/floors" | sort >"$WORK/listed"
uniq -d "$WORK/listed" >"$WORK/twice"
while read -r module; do say "$module stands on two floors"; done <"$WORK/twice"
comm -23 "$WORK/modules" "$WORK/listed" >"$WORK/homeless"
while read -r module; do say "src/engine/$module stands on no floor"; done <"$WORK/homeless"
comm -13 "$WORK/modules" "$WORK/listed" >"$WORK/ghosts"
while read -r module; do say "$module has a floor, and no file"; done <"$WORK/ghosts"

# One compiler and one nm for all: it goes on behind a file that does not compile.
mkdir "$WORK/objects"
# shellcheck disable=SC2086 # flags are words
(cd "$WORK/objects" && $CC $flags -c "$ROOT"/src/engine/*.c)
for source in src/engine/*.c; do
    [ -f "$WORK/objects/$(basename "$source" .c).o" ] || say "$source does not compile"
done
# "<name> <module>"
by_module() { # NM'S OPTIONS
    (cd "$WORK/objects" && nm -A "$@" ./*.o) |
        awk '{ module = $1; sub(/\.o:.*/, "", module); sub(/^\.\//, "", module); print $NF, module }'
}
by_module --defined-only -g >"$WORK/defined"
by_module -u >"$WORK/used"
# "<from> <to> <how>"
awk 'NR == FNR { where[$1] = $2; next }
     $1 in where && where[$1] != $2 { print $2, where[$1], "calls", $1 }' \
    "$WORK/defined" "$WORK/used" >"$WORK/arrows"
awk 'NR == FNR { module[$1] = 1; next }
     FNR == 1 { name = FILENAME; sub(/.*\//, "", name); sub(/\.[ch]$/, "", name) }
     /^#include "[a-z_]*\.h"/ {
         header = $2
         gsub(/^"|\.h".*$/, "", header)
         if (header in module && header != "engine" && header != name)
             print name, header, "includes", header ".h"
     }' "$WORK/modules" src/engine/*.[ch] >>"$WORK/arrows"
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
