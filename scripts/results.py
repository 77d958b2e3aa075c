#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""results.py FILE...: adds up what meson's testlog.json files recorded.

A program that reports its tests one by one, as cmocka's "[  OK  ] name" or a script's
"ok name", "FAILED name" and "skip name: why", counts once for each; anything else counts
once. A program that ended badly counts at least one failure, whatever it printed, and a
file that is missing or empty is one too: a stage that ran nothing has not passed.

Prints the failures, each with the end of what its test said, then "N passed, N failed" (", N
skipped" when any) as the last line. The exit status is 0 only if nothing failed and something
passed.
"""
import json
import re
import signal
import sys

OK = re.compile(r"^(?:\[ +OK +\]|ok) ", re.M)
FAILED = re.compile(r"^(?:\[ +(?:FAILED|ERROR) +\]|FAILED) (?!.*listed below)(\S+)$", re.M)
SKIPPED = re.compile(r"^(?:\[ +SKIPPED +\] (?!.*listed below)(\S+)$|skip (\S+): )", re.M)
LINES = 15  # that are shown of a failure


def said(text, failure):
    """Returns what was said about a failure: by a script behind its line, by cmocka in front of
    it. Of a program that names no failure, its end."""
    lines = [line for line in text.splitlines() if line.strip()]
    for at, line in enumerate(lines):
        if line == f"FAILED {failure}":
            end = at + 1
            while end < len(lines) and not re.match(r"(ok|FAILED|skip) ", lines[end]):
                end += 1
            return lines[at + 1:end][-LINES:]
        if FAILED.match(line) and line.startswith("[") and line.endswith(f" {failure}"):
            begin = at
            while begin > 0 and not lines[begin - 1].startswith("["):
                begin -= 1
            return lines[begin:at][-LINES:]
    return lines[-LINES:]


def everything(test):
    return (test.get("stdout") or "") + "\n" + (test.get("stderr") or "")


def ended(test):
    """Returns the result of a program that names no failure, with how it ended where that is known:
    one that a signal killed may have said nothing."""
    status = test.get("returncode") or 0
    if not status or test["result"] == "TIMEOUT":
        return test["result"]
    if status > 0:
        return f"{test['result']}, exit status {status}"
    try:
        return f"{test['result']}, {signal.Signals(-status).name}"
    except ValueError:
        return f"{test['result']}, signal {-status}"


def count(test):
    """Returns (passed, failures as (remark, name), skipped) of one program."""
    text = everything(test)
    passed = len(OK.findall(text))
    failed = sorted(set(FAILED.findall(text)))
    skipped = len(set(SKIPPED.findall(text)))
    result = test["result"]
    if result == "SKIP":
        return 0, [], 1
    if result not in ("OK", "EXPECTEDFAIL"):
        return passed, [("", f) for f in failed] or [("", ended(test))], skipped
    if failed:
        return passed, [(", and exit status 0", f) for f in failed], skipped
    return max(passed, 0 if skipped else 1), [], skipped


def main(paths):
    passed, failed, skipped = 0, [], 0
    for path in paths:
        try:
            with open(path, encoding="utf-8") as log:
                tests = [json.loads(line) for line in log if line.strip()]
        except OSError:
            tests = []
        if not tests:
            failed.append((f"{path}: no test ran", []))
        for test in tests:
            p, f, s = count(test)
            passed, skipped = passed + p, skipped + s
            failed += [(f"{path}: {test['name']}: {name}{remark}", said(everything(test), name))
                       for remark, name in f]
    for one, lines in failed:
        print("FAILED", one)
        for line in lines:
            print("    |", line.strip()[:200])
    tail = f", {skipped} skipped" if skipped else ""
    print(f"{passed} passed, {len(failed)} failed{tail}")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
