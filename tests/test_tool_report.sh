#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test_tool_report.sh: `weir report` on results that are made up, alike, different, odd and wrong,
# and `weir bench all` from outside: what it leaves when it ends well, with a bench that fails, and
# when it is interrupted. Usage: test_tool_report.sh PATH-OF-WEIR [BEHAVIOUR]
#
# Prints one line a test and exits 1 if any failed, 77 without python3.
# shellcheck disable=SC2086,SC2154,SC2317 # numbers; of tool_lib.sh; functions are called through check
set -u
here=$(cd "$(dirname "$0")" && pwd)
. "$here/tool_lib.sh"
seeds=${WEIR_TEST_SEEDS:-all} # part, as under sanitizers: less of what takes long
unset WEIR_TEST_SEEDS
results() { python3 "$here/tool_results.py" "$@"; }
page=$dir/page.html

# report FILES...: a page that is sound, without a word.
report() {
    rm -f "$page"
    run report "$@" --out "$page" >"$dir/stdout" 2>"$dir/err" && test ! -s "$dir/stdout" &&
        test ! -s "$dir/err" && results sound "$page"
}
# marks WORD: how many figures are marked with it.
marks() { grep -o "<span class=\"mark $1\">" "$page" | wc -l; }
# A card, as text.
card() {
    python3 -c 'import re, sys
for card in open(sys.argv[1], encoding="utf-8").read().split("<div class=\"card\">"):
    if "<h3>" + sys.argv[2] + "</h3>" in card:
        print(" ".join(re.sub(r"<[^>]*>", " ", card).split()))' "$page" "$1"
}

# ---- weir report ----

one_run() {
    results make "$dir/a.json" && report "$dir/a.json" && test "$(marks '[a-z]*')" -eq 0 &&
        grep -q 'A &lt;CPU&gt; &amp; &quot;more&quot;' "$page" || return 1
    for title in Rates Latencies 'Writes by size' 'Reads by size' 'Messages by size' 'Paced loads' 'The senders' \
        'Many senders to one target' 'Storms of peers that connect at once' \
        'What a peer of a storm costs' Faults 'Machine and versions' 'Benches and options' \
        'Plain copies by size, in caches'; do
        test "$(grep -c "<h3>$title</h3>" "$page")" -eq 1 || return 1
    done
    cp "$dir/a.json" "$dir/$(printf 'b\377&.json')" &&
        report "$dir/a.json" "$dir/$(printf 'b\377&.json')" && grep -q 'b.*&amp;.json: A &lt;' "$page" &&
        report "$dir/a.json" && ! grep -q -- '-0\.00 %' "$page" || return 1
    card 'writes of 64 KiB, in caches' | grep -q '27.0 GB/s ±1.5 % 90.0 % of 30.0 GB/s, vector copy'
}
# More is better of rates, less of times: what the writes alone changed is marked, nothing else.
two_runs() {
    results make "$dir/a.json" && results make "$dir/b.json" 1.2 &&
        report "$dir/a.json" "$dir/b.json" || return 1
    better=$(marks better)
    card 'writes of 64 KiB, in caches' | grep -q '27.0 GB/s.*32.4 GB/s.*+20.*% better' &&
        ! card 'reads of 8 bytes' | grep -q better && test "$better" -gt 20 &&
        test "$(marks worse)" -eq 0 && report "$dir/b.json" "$dir/a.json" &&
        test "$(marks worse)" -eq "$better" && test "$(marks better)" -eq 0 &&
        card 'writes of 64 KiB, in caches' | grep -q 'worse'
}
same_run() {
    results make "$dir/a.json" && report "$dir/a.json" "$dir/a.json" &&
        test "$(marks '[a-z]*')" -eq 0
}
# The rounds are apart by 3 %: a difference of 2 % is none. One round says nothing of the kind.
within_spread() {
    results make "$dir/a.json" && results make "$dir/b.json" 1.02 &&
        report "$dir/a.json" "$dir/b.json" && test "$(marks '[a-z]*')" -eq 0 || return 1
    results make "$dir/b.json" 2 && for file in a b; do
        python3 -c 'import json, sys
r = json.load(open(sys.argv[1]))
for bench in r["benches"]:
    del bench["rounds"][1:]
json.dump(r, open(sys.argv[1], "w"))' "$dir/$file.json"
    done
    report "$dir/a.json" "$dir/b.json" && test "$(marks '[a-z]*')" -eq 0
}
no_gnuplot() {
    results make "$dir/a.json" &&
        env PATH=/nonexistent "$weir" report "$dir/a.json" --out "$page" && results sound "$page" && grep -q 'gnuplot was not found' "$page" &&
        ! grep -q 'role="img" aria-label="Rate over' "$page" && grep -q '<h3>Rates</h3>' "$page"
}
# A limit that something disturbed: nowhere a share beyond all sense.
disturbed_limit() {
    results make "$dir/a.json" &&
        sed -i 's/"fraction_of_limit": [0-9][0-9.e-]*/"fraction_of_limit": 224.947/g' "$dir/a.json" &&
        report "$dir/a.json" && card 'writes of 64 KiB, in caches' | grep -q ' over 200 % of ' &&
        ! grep -q '22[0-9.]* %' "$page"
}
# A gnuplot that fails, writes something else or is killed is no failure either.
bad_gnuplot() {
    results make "$dir/a.json" && mkdir -p "$dir/bin" || return 1
    for does in 'exit 1' 'echo no picture' 'kill -9 $$'; do
        printf '#!/bin/sh\n%s\n' "$does" >"$dir/bin/gnuplot"
        chmod +x "$dir/bin/gnuplot"
        PATH=$dir/bin:$PATH report "$dir/a.json" && grep -q 'gnuplot failed' "$page" || return 1
    done
}
# Every plot is there, in the page's colours, and no text of a file is in a script of gnuplot.
plots() {
    results make "$dir/a.json" && report "$dir/a.json" &&
        test "$(grep -c '^<svg.* role="img" aria-label=' "$page")" -eq 7 &&
        grep -q 'var(--s1)' "$page" && ! grep -q 'rgb(' "$page" && ! grep -q '"black"' "$page" ||
        return 1
    report "$dir/a.json" "$dir/a.json" &&
        test "$(grep -c '^<svg.* role="img" aria-label=' "$page")" -eq 8
}
odd_count=250
[ "$seeds" = all ] || odd_count=60
odd_results() { results make "$dir/a.json" && results odd "$dir/a.json" "$weir" "$dir" "$odd_count"; }
# One line, status 1, and the page that was there stays.
wrong_files() {
    results make "$dir/a.json" || return 1
    : >"$dir/empty"
    printf '\377\376' >"$dir/binary"
    echo '{"format": 1, "benches": [' >"$dir/cut"
    echo null >"$dir/null"
    echo '[]' >"$dir/list"
    echo '{"bench": "write"}' >"$dir/bench"
    echo '{"format": 2, "benches": []}' >"$dir/later"
    echo '{"format": 1, "benches": null}' >"$dir/none"
    printf '%s\n' '{"format": 1, "benches": [{"name": "a\u001bb", "command": "", "rounds": []}]}' \
        >"$dir/name"
    sed 's/"idle_cpu_fraction": [0-9.e-]*/"idle_cpu_fraction": 1e999/' "$dir/a.json" >"$dir/huge"
    sed 's/"samples": 100000/"samples": 99999999999999999999/' "$dir/a.json" >"$dir/long"
    sed 's/"cache_line_ns": [0-9.e-]*/"cache_line_ns": 1e300/' "$dir/a.json" >"$dir/far"
    sed 's/"cache_line_ns": [0-9.e-]*/"cache_line_ns": "61"/' "$dir/a.json" >"$dir/text"
    sed 's/"name": "limits", /"name": "limits", "name": "limits", /' "$dir/a.json" >"$dir/twice"
    echo kept >"$page"
    for wrong in nosuch empty binary cut null list bench later none name huge long far text twice .; do
        for files in "$dir/$wrong" "$dir/a.json $dir/$wrong"; do
            # shellcheck disable=SC2086 # names are words
            fails report $files --out "$page" && grep -qF "$dir/$wrong" "$dir/err" &&
                test "$(cat "$page")" = kept && continue
            cat "$dir/err"
            return 1
        done
    done
    fails_as 'results of format 2, and this is 1' report "$dir/later" --out "$page" &&
        fails_as 'limits: cache_line_ns is no number' report "$dir/text" --out "$page" &&
        fails_as "$dir/no/such" report "$dir/a.json" --out "$dir/no/such/page.html" &&
        fails_as '/dev/full' report "$dir/a.json" --out /dev/full
}

# ---- weir bench all ----

benches='["limits", "replay", "latency", "send latency", "wake", "fill", "write hot", "write cold",
    "sweep write", "sweep read", "sweep send", "pace", "incast", "storm", "faults"]'
suite() { # [ARGUMENTS]: a short one, in $dir/suite
    timeout 1500 "$weir" bench all --quick --out "$dir/suite" "$@" >"$dir/stdout" 2>"$dir/err"
    status=$?
    cp "$dir/suite/results.json" "$dir/out.json"
}
# Nothing but the files, and nobody.
left_clean() { test -z "$(find "$dir/suite" -name '*.json.*' -o -name '*.html.*')" && nobody_left; }
all_once() {
    suite
    test $status -eq 0 && test ! -s "$dir/err" && left_clean && results sound "$dir/suite/report.html" &&
        test "$(tail -n 1 "$dir/stdout")" = "report: $dir/suite/report.html" &&
        ! grep '^.\{81\}' "$dir/stdout" && json_holds 'r["complete"] and r["format"] == 1
            and r["options"] == {"rounds": 1, "quick": True, "trace": None, "device": "shm"}
            and r["seconds"] > 0 and r["started"].endswith("Z") and r["versions"]["weir"]
            and r["machine"]["cpu"] and [b["name"] for b in r["benches"]] == '"$benches"'
            and all(b["command"].startswith("bench ") and len(b["rounds"]) == 1
                and b["rounds"][0]["status"] == 0 and b["rounds"][0]["error"] is None
                and b["rounds"][0]["seconds"] > 0 and b["rounds"][0]["result"]["machine"]
                for b in r["benches"])' || return 1
    for title in Rates Latencies 'Writes by size' 'Reads by size' 'Messages by size' 'Paced loads' Faults \
        'Many senders to one target' 'The senders' 'Storms of peers that connect at once'; do
        grep -q "<h3>$title</h3>" "$dir/suite/report.html" || return 1
    done
    ! grep -q '<div class="failed">' "$dir/suite/report.html" &&
        grep -q '^writes of 64 KiB, in caches .* B/s\|GB/s\|MB/s' "$dir/stdout"
}
# The replay's trace is none: said in all places, and the others have run.
one_fails() {
    echo '{"timestamp": 5' >"$dir/bad"
    suite --trace "$dir/bad"
    test $status -eq 1 && test "$(wc -l <"$dir/err")" -eq 1 && grep -q '1 of 15 runs failed' "$dir/err" &&
        left_clean && results sound "$dir/suite/report.html" &&
        grep -q "^FAILED: replay, 1 of 1 rounds: $dir/bad" "$dir/stdout" &&
        grep -q "<li>replay, 1 of 1 rounds: $dir/bad" "$dir/suite/report.html" &&
        json_holds '[b["name"] for b in r["benches"] if b["rounds"][0]["status"] != 0] == ["replay"]
            and [b["rounds"][0]["result"] for b in r["benches"] if b["name"] == "replay"] == [None]
            and all(b["rounds"][0]["error"] for b in r["benches"] if b["name"] == "replay")'
}
# The suite's process $suite runs a bench whose command has this word.
runs_bench() {
    for child in $(cat "/proc/$suite/task/$suite/children" 2>/dev/null); do
        tr '\0' ' ' <"/proc/$child/cmdline" 2>/dev/null | grep -q -- "$1" && return
    done
    return 1
}
# suite_at WORD: a long suite, $suite, that has come to this bench.
suite_at() {
    "$weir" bench all --quick --rounds 99 --out "$dir/suite" >"$dir/stdout" 2>"$dir/err" &
    suite=$! alive=$!
    until_so runs_bench "$1"
}
# interrupted_at WORD: one line, status 1, nobody left.
interrupted_at() {
    suite_at "$1" || return 1
    kill -INT "$suite"
    wait "$suite"
    test $? -eq 1 && test "$(cat "$dir/err")" = 'weir: interrupted' && left_clean && return
    cat "$dir/err"
    return 1
}
# The file is whole and has all that was measured; before anything was, the old file stays.
interrupted() {
    mkdir -p "$dir/suite" && echo old >"$dir/suite/results.json" || return 1
    interrupted_at ' limits ' && test "$(cat "$dir/suite/results.json")" = old &&
        interrupted_at ' wake ' && cp "$dir/suite/results.json" "$dir/out.json" && json_holds '
            not r["complete"] and [len(b["rounds"]) for b in r["benches"]][:5] == [1, 1, 1, 1, 0]' &&
        report "$dir/suite/results.json" && grep -q '<b>interrupted</b>' "$page"
}
# The suite is killed: its bench, and the bench's target, go with it.
killed() {
    suite_at ' fill ' || return 1
    kill -KILL "$suite"
    wait "$suite"
    nobody_left
}
wrong_directory() {
    : >"$dir/file"
    fails_as "$dir/file: Not a directory" bench all --out "$dir/file" &&
        fails_as "$dir/no/such: No such" bench all --out "$dir/no/such"
}

check B9_one_run one_run
check B9_two_runs two_runs
check B9_same_run same_run
check B9_within_spread within_spread
check B9_disturbed_limit disturbed_limit
check B9_no_gnuplot no_gnuplot
check B9_bad_gnuplot bad_gnuplot
if command -v gnuplot >/dev/null; then
    check B9_plots plots
else
    echo 'skip B9_plots: no gnuplot here'
fi
check B9_odd_results odd_results
check B9_wrong_files wrong_files
check B9_wrong_directory wrong_directory
# Under sanitizers the suite that has a failure is enough: it has all benches, too.
[ "$seeds" = part ] || check B9_all_once all_once
check B9_one_fails one_fails
check B9_interrupted interrupted
check B9_killed killed
finish
