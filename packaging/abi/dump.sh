#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# dump.sh LIBRARY [DIRECTORY]: writes what programs see of a library that was built with debug
# information (-g), and of the public headers, to DIRECTORY: SONAME.xml, as abidw has it, and
# SONAME.constants. tests/structure/abi.sh compares with what is here, packaging/abi, where `make abi`
# writes it anew: CONTRIBUTING.md has when that is right.
set -eu
library=$(realpath "${1:?usage: $0 LIBRARY}")
directory=$(realpath "${2:-$(dirname "$0")}")
cd "$(dirname "$0")/../.."
soname=$(readelf -d "$library" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# libabigail takes a comment inside its root element only.
abidw --headers-dir include --drop-private-types --exported-interfaces-only \
    --no-corpus-path --no-comp-dir-path --no-show-locs --no-elf-needed "$library" |
    sed "1a <!-- SPDX-License-Identifier: Apache-2.0 -->\n<!-- weir $(cat VERSION): made by packaging/abi/dump.sh -->" \
        >"$work/dump"
grep -q "<function-decl name='weir_write'" "$work/dump" || {
    echo "$0: $library has no debug information" >&2
    exit 1
}
{
    echo '# SPDX-License-Identifier: Apache-2.0'
    echo "# weir $(cat VERSION): made by packaging/abi/dump.sh"
    sh packaging/abi/constants.sh .
} >"$work/constants"
rm -f "$directory"/libweir.so.*.xml "$directory"/libweir.so.*.constants
mv "$work/dump" "$directory/$soname.xml"
mv "$work/constants" "$directory/$soname.constants"
