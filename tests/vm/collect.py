#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""collect.py SHARE RC TEST...: makes of what a guest left in SHARE the lines that meson's
testlog.json would have, on standard output; results.py adds them up.

RC is the exit status of boot.sh. Each TEST is one line, with what it printed; one that has no
exit status failed: it was running when the guest ended, or it never began. So is one line on
the guest itself: whether it came to its end, and whether its kernel complained. With "here"
for RC the tests ran on this machine, and that line is left out.
"""
import json
import os
import re
import sys

BAD = re.compile(r"BUG:|Oops|general protection|blocked for more than|WARNING: CPU|KASAN|"
                 r"Call Trace|refcount_t")


def read(share, name):
    try:
        with open(os.path.join(share, name), encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def complaint(lines):
    """Returns the kernel's first complaint with the lines that follow it, and how many there are."""
    at = [number for number, line in enumerate(lines) if BAD.search(line)]
    return [f"{len(at)} complaints"] + lines[at[0]:at[0] + 13] if at else []


def main(share, boot_rc, *tests):
    for test in tests:
        out, rc = read(share, test + ".out"), read(share, test + ".rc").strip()
        result = {"0": "OK", "124": "TIMEOUT", "137": "TIMEOUT", "": "ERROR"}.get(rc, "FAIL")
        if result == "ERROR":
            began = os.path.exists(os.path.join(share, test + ".out"))
            out += "\nFAILED " + ("the-guest-ended-in-it" if began else "did-not-begin") + "\n"
        print(json.dumps({"name": test, "result": result, "stdout": out}))
    if boot_rc == "here":
        return
    bad = complaint(read(share, "dmesg").splitlines())
    ended = boot_rc in ("0", "1")
    out = "ok guest_came_to_its_end\n" if ended else "FAILED guest_came_to_its_end\n"
    if bad:
        out += "FAILED kernel_is_silent\n" + "\n".join(bad)
    elif ended:
        out += "ok kernel_is_silent\n"
    print(json.dumps({"name": "guest", "result": "OK" if ended and not bad else "FAIL",
                      "stdout": out}))


if __name__ == "__main__":
    main(*sys.argv[1:])
