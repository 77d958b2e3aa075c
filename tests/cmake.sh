#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# cmake.sh BUILD: a project of CMake's finds an installed weir, in C and C++, shared and static, also
# after the tree was moved, and by another name of its directory; it is told when the version, or a
# component, is none of this weir's.
. "$(dirname "$0")/step_lib.sh"
build=$(realpath "${1:?usage: $0 BUILD}")
need cmake
unset LD_LIBRARY_PATH # meson names the build directory there
DESTDIR=$WORK/root meson install -C "$build" --no-rebuild --quiet >/dev/null
pc=$(find "$WORK/root" -name weir.pc)
prefix=$(sed -n 's/^prefix=//p' "$pc")
version=$(sed -n 's/^Version: //p' "$pc")
moved=$WORK/moved
mv "$WORK/root$prefix" "$moved"
mkdir "$WORK/app"
cat >"$WORK/app/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.19)
project(app C CXX)
find_package(weir ${WANTED} CONFIG REQUIRED ${COMPONENTS})
foreach(language c cpp)
  foreach(kind weir static)
    add_executable(${language}_${kind} app.${language})
    target_link_libraries(${language}_${kind} weir::${kind})
  endforeach()
endforeach()
END
cat >"$WORK/app/app.c" <<'END'
#include <weir.h>
#include <stdio.h>
int main(void) {
    weir_engine *engine;
    int rc = weir_engine_open(NULL, &engine);
    if (rc == WEIR_OK)
        weir_engine_close(engine);
    puts(weir_version());
    return rc != WEIR_OK;
}
END
cp "$WORK/app/app.c" "$WORK/app/app.cpp"
# configure RESULT-DIRECTORY CMAKE'S OPTIONS...
configure() {
    where=$1
    shift
    cmake -S "$WORK/app" -B "$where" "$@" >"$WORK/said" 2>&1
}
uses() { # BUILD-DIRECTORY CMAKE'S OPTIONS...
    configure "$@" || { cat "$WORK/said"; fail "configure $*"; }
    cmake --build "$1" >"$WORK/said" 2>&1 || { cat "$WORK/said"; fail "build in $1"; }
    for program in c_weir c_static cpp_weir cpp_static; do
        [ "$("$1/$program")" = "$version" ] || fail "$program says another version"
    done
    ldd "$1/c_weir" | grep -q 'libweir.so.[0-9]* => '"$moved" || fail 'c_weir is not linked to it'
    ! ldd "$1/c_static" | grep libweir || fail 'c_static is linked to the shared library'
}
check E8_find_package uses "$WORK/plain" -DCMAKE_PREFIX_PATH="$moved" -DWANTED="$version" \
    '-DCOMPONENTS=COMPONENTS;shared;static'

# As /lib is a name of /usr/lib: found below $WORK/other, which has no include.
config=$(find "$moved" -name weir-config.cmake)
sed -i "s,\"$prefix/,\"$moved/,g" "$config"
mkdir "$WORK/other"
ln -s "$moved/lib"* "$WORK/other/"
check E8_find_package_by_another_name \
    uses "$WORK/linked" -DCMAKE_PREFIX_PATH="$WORK/other" -DWANTED="$version;EXACT"

# Each version that is asked for: yes or no. Before 1.0 another minor version is another interface.
major=${version%%.*} minor=${version#*.} patch=${version##*.}
minor=${minor%.*}
other_minor=no
[ "$major" -eq 0 ] || other_minor=yes
cat >"$WORK/app/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.19)
project(app C)
function(asks wanted_answer)
  find_package(weir \${ARGN} CONFIG QUIET)
  set(answer no)
  if(weir_FOUND)
    set(answer yes)
  endif()
  unset(weir_DIR CACHE)
  if(NOT answer STREQUAL wanted_answer)
    message(SEND_ERROR "find_package(weir \${ARGN}): \${answer}")
  endif()
  message(STATUS "asked: \${ARGN}")
endfunction()
asks(yes)
asks(yes $major)
asks(yes $major.$minor)
asks(yes $version)
asks(yes $version EXACT)
asks(no $major.$minor EXACT)
asks(no $major.$minor.$((patch + 1)))
asks(no $major.$((minor + 1)))
asks(no $((major + 1)))
asks(no $((major + 1)).$minor.$patch)
asks(yes 0.0...$version)
asks(no 0.0...<$version)
asks(yes $major.$minor...$((major + 1)))
asks(no $major.$minor.$((patch + 1))...9)
asks(yes COMPONENTS shared static)
asks(no COMPONENTS xyzzy)
asks(yes OPTIONAL_COMPONENTS xyzzy)
END
[ "$minor" -eq 0 ] || echo "asks($other_minor $major.$((minor - 1)))" >>"$WORK/app/CMakeLists.txt"
versions() {
    configure "$WORK/versions" -DCMAKE_PREFIX_PATH="$moved" || { cat "$WORK/said"; fail 'the versions'; }
    [ "$(grep -c 'asked: ' "$WORK/said")" -ge 17 ] || { cat "$WORK/said"; fail 'not all were asked'; }
}
check E8_find_package_versions versions

# Where the static library is not installed, the other goes on, and who wants it is told.
rm "$(find "$moved" -name libweir.a)"
cat >"$WORK/app/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.19)
project(app C)
find_package(weir CONFIG REQUIRED)
if(NOT TARGET weir::weir OR TARGET weir::static)
  message(FATAL_ERROR "the targets are others")
endif()
find_package(weir CONFIG REQUIRED COMPONENTS static)
END
without_static() {
    ! configure "$WORK/less" -DCMAKE_PREFIX_PATH="$moved" || fail 'a component that is not there'
    tr -s ' \n' ' ' <"$WORK/said" | grep -q 'has no component static' ||
        { cat "$WORK/said"; fail 'its reason'; }
}
check E8_find_package_without_static without_static
