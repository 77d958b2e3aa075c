#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# guest.sh SHARE TEST...: inside the VM: makes two RDMA devices and runs each TEST, a script of
# this directory without its .sh, with its output in SHARE. A test that hangs is ended after
# TEST_LIMIT seconds, with what its processes wait for at the end of its output; what remains of the
# tests runs all the same, with less patience: a kernel that hangs may keep all of them.
share=$1
shift
here=$(dirname "$0")
. "$here/devices.sh"

# Whatever is no thread of the kernel, and where in the kernel it sleeps for good.
waits() {
    echo "# after $limit s:"
    ps --ppid 2 -p 2 -N -o pid,ppid,stat,wchan:24,args | sed 's/^/# /' | cut -c1-120 | grep -v ' ps --ppid'
    for task in /proc/[0-9]*/task/[0-9]*; do
        grep -q '^State:.D' "$task/status" 2>/dev/null || continue
        echo "# $(cat "$task/comm") ($task):" "$(cut -d' ' -f2 "$task/stack" | tr '\n' ' ')"
    done
}

limit=${TEST_LIMIT:-1200}
status=0
for test in "$@"; do
    begin=$(cut -d. -f1 /proc/uptime)
    echo "guest begins $test"
    (sleep "$limit" && waits >>"$share/$test.out" 2>&1) &
    watch=$!
    timeout -k 10 $((limit + 10)) sh "$here/$test.sh" >>"$share/$test.out" 2>&1
    rc=$?
    kill $watch
    [ $rc -lt 124 ] || limit=$((limit / 4))
    echo $rc >"$share/$test.rc"
    [ $rc -eq 0 ] || status=1
    echo "guest ends $test rc $rc after $(($(cut -d. -f1 /proc/uptime) - begin)) s"
done
dmesg >"$share/dmesg"
exit $status
