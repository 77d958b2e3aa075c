#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# forked.sh: the list of things that children of fork(2) are kept from is complete: the library
# opens descriptors as fork.h's own, and closes them so; each call on an engine is tried in a child
# by the test of that.
. "$(dirname "$0")/lib.sh"

opens='open|openat|socket|accept4?|epoll_create1?|eventfd|timerfd_create|signalfd|inotify_init1?'
opens="$opens|memfd_create|dup[23]?|pipe2?|socketpair"
count=0
for file in $(find src -name '*.c' ! -path src/os/fork.c | sort); do
    count=$((count + 1))
    # Comments aside; a call may stand on the line behind its fork_own.
    sed 's,/\*.*,,; /^ *\*/d' "$file" | awk -v opens="$opens" '
        { owned = /fork_own\(/ || before ~ /fork_own\(.*[^;]$/; before = $0 }
        $0 ~ "(^|[^_a-zA-Z>.])(" opens ")\\(" && !owned { print "opens"; print $0 }
        /SYS_pidfd_|F_DUPFD/ && !owned { print "opens"; print $0 }
        /(^|[^_a-zA-Z>.])close\(/ { print "closes"; print $0 }' >"$WORK/found"
    while read -r what && read -r line; do
        say "$file $what a descriptor without fork.h: $line"
    done <"$WORK/found"
done
[ "$count" -gt 0 ] || say 'no file was checked'

cat include/*.h | tr '\n' ' ' | grep -oE 'WEIR_API int weir_[a-z_]+\([^;]*\);' |
    grep -E '\((const )?weir_engine \*engine' | grep -oE 'weir_[a-z_]+\(' >"$WORK/calls"
[ -s "$WORK/calls" ] || say 'no call on an engine was found'
while read -r call; do
    grep -qF "CHILD_MUST($call" tests/test_engine_fork.c ||
        say "tests/test_engine_fork.c does not try $call) in a child"
done <"$WORK/calls"
finish
