#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# version.sh: VERSION is the one place where the version stands: the build reads it, and each other
# place that has to name it says the same. The same for the number of the shared library's name,
# which meson.build has.
. "$(dirname "$0")/lib.sh"

version=$(cat VERSION)
[ "$(wc -l <VERSION)" -eq 1 ] && echo "$version" | grep -qxE '[0-9]+\.[0-9]+\.[0-9]+' ||
    say "E7 VERSION is not one line of three numbers: $version"
grep -q "^  version: files('VERSION')," meson.build || say "E7 meson.build does not read VERSION"

# same WHERE WHAT-IT-SAYS
same() {
    [ "$2" = "$version" ] || say "E7 $1 says \"$2\" where VERSION has $version"
}
same include/weir.h "$(sed -n 's/^#define WEIR_VERSION_\(MAJOR\|MINOR\|PATCH\) //p' include/weir.h |
    paste -sd. -)"
same CHANGELOG.md "$(sed -n 's/^## \([^ ]*\).*/\1/p' CHANGELOG.md | head -n 1)"
same docs/limits.md "$(sed -n 's/^Things that weir \([^ ]*\) does not do.*/\1/p' docs/limits.md)"
same debian/changelog "$(sed -n 's/^weir (\(.*\)-[^-]*).*/\1/p' debian/changelog | head -n 1)"

# The number of the library's name.
soversion=$(sed -n "s/^soversion = '\([0-9]*\)'$/\1/p" meson.build)
[ -n "$soversion" ] || say "E7 meson.build has no soversion"
for file in "debian/libweir$soversion.install" "debian/libweir$soversion.symbols"; do
    [ -f "$file" ] || say "E7 $file is not there, after meson.build's soversion"
done
ls debian/libweir[0-9]*.* | grep -v "/libweir$soversion\." | while read -r file; do
    echo "$file"
done >"$WORK/others"
while read -r file; do
    say "E7 $file is of another soversion than meson.build's, $soversion"
done <"$WORK/others"
grep -qx "Package: libweir$soversion" debian/control || say "E7 debian/control has no libweir$soversion"
grep -qx "libweir.so.$soversion libweir$soversion #MINVER#" debian/libweir*.symbols ||
    say "E7 debian/libweir$soversion.symbols is of another library"
finish
