#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# guest.sh SHARE TEST...: inside the VM: makes two RDMA devices and runs each TEST, a script of
# this directory without its .sh, with its output in SHARE. A test that hangs is ended after
# TEST_LIMIT seconds; what remains of the tests runs all the same.
share=$1
shift
here=$(dirname "$0")
. "$here/devices.sh"

status=0
for test in "$@"; do
    begin=$(cut -d. -f1 /proc/uptime)
    echo "guest begins $test"
    timeout -k 10 "${TEST_LIMIT:-1800}" sh "$here/$test.sh" >"$share/$test.out" 2>&1
    rc=$?
    echo $rc >"$share/$test.rc"
    [ $rc -eq 0 ] || status=1
    echo "guest ends $test rc $rc after $(($(cut -d. -f1 /proc/uptime) - begin)) s"
done
dmesg >"$share/dmesg"
exit $status
