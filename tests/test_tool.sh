#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test_tool.sh: the weir command from outside: every command once with small sizes, its JSON,
# refused options, killed targets, generated traces. Usage: test_tool.sh PATH-OF-WEIR [BEHAVIOUR]
#
# Prints one line a test and exits 1 if any failed, 77 without python3 (which judges the JSON).
# shellcheck disable=SC2086,SC2317 # numbers; functions are called through check
set -u
. "$(dirname "$0")/tool_lib.sh"
serving=
trap 'test -n "$serving" && kill "$serving" 2>/dev/null; rm -rf "$dir"' EXIT

# The members that every result must have, and be plausible in.
result_keys='all(k in r for k in ("ops_per_s", "bytes_per_s", "latency_ns", "cpu_ns_per_op",
    "fraction_of_limit", "verified", "device", "options", "versions", "machine",
    "device_counters", "settings", "granted")) and r["ops_per_s"] > 0 and r["bytes_per_s"] > 0
    and 0 < r["latency_ns"]["p50"] <= r["latency_ns"]["p99"] <= r["latency_ns"]["p999"]
    <= r["latency_ns"]["max"] and r["cpu_ns_per_op"]["initiator"] > 0
    and r["wrong_bytes"] == 0'

bench() {
    rm -f "$dir/out.json"
    run bench "$@" --json "$dir/out.json" && json_holds "$result_keys"
}
bench_verified() { bench "$@" && json_holds 'r["verified"] and r["checked_bytes"] > 0'; }

# ---- information and options ----

info_json() { run info --json >"$dir/out.json" && json_holds \
    '[d["name"] for d in r["devices"] if d["available"]] and r["devices"][0]["engine_bytes"] > 0
    and all("qps_max" in d for d in r["devices"])'; }
# A line fits a terminal, and a device that is not here has no figures.
info_lines() {
    run info >"$dir/text" && ! grep '^.\{81\}' "$dir/text" && ! grep ' 0 B$\|at most 0$' "$dir/text"
}
# Each setting with its value and where that comes from; a wrong one, why.
info_settings() {
    (unset WEIR_WATCHDOG_MS && run info --json) >"$dir/out.json" && json_holds 'len(r["settings"]) > 15
        and all(s["source"] == "default" and s["value"] == s["default"] and not s["refused"]
        and (s["note"] == "") == (s["in_force"] == s["value"])
        and s["variable"].startswith("WEIR_") and s["what"]
        and (s["value"] is None or s["least"] <= s["value"] <= s["most"])
        for s in r["settings"]) and [s["in_force"] for s in r["settings"]
        if s["name"] == "chain_max"] == [63]' || return 1
    run info | grep -q "^    cut to 63: a quarter of sq_depth 256 without the teardown's slot$" ||
        return 1
    (
        export WEIR_SQ_DEPTH=512 WEIR_INLINE_BYTES=0 WEIR_SIGNAL_INTERVAL=1 WEIR_POLL_BUDGET=x \
            WEIR_CONNECT_TIMEOUT_MS=2500 WEIR_QP_COUNT= WEIR_CQ_DEPTH=2047 WEIR_CHAIN_MAX=600
        fails_as 'info: WEIR_QP_COUNT=: not a whole' info --json || exit 1
        cp "$dir/stdout" "$dir/out.json"
        fails_as '(WEIR_EINVAL)' info || exit 1
        cp "$dir/stdout" "$dir/text"
        python3 -c 'import json, sys
got = {s["variable"]: (s["value"], s["source"], s["note"])
    for s in json.load(open(sys.argv[1]))["settings"]}
env = "environment"
want = {"WEIR_SQ_DEPTH": (512, env, ""), "WEIR_INLINE_BYTES": (0, env, ""),
    "WEIR_SIGNAL_INTERVAL": (1, env, ""), "WEIR_CONNECT_TIMEOUT_MS": (2500, env, ""),
    "WEIR_CHAIN_MAX": (512, env, "cut to 127: a quarter of sq_depth 512 without the teardown'"'"'s slot"),
    "WEIR_RETRANSMIT_MS": (20, "default", ""),
    "WEIR_POLL_BUDGET": (256, env, "WEIR_POLL_BUDGET=x: not a whole number from 1 to 65536"),
    "WEIR_QP_COUNT": (1, env, "WEIR_QP_COUNT=: not a whole number from 1 to 16"),
    "WEIR_CQ_DEPTH": (None, env, "WEIR_CQ_DEPTH=2047: not a whole number from 2048 to 4194304"
        " (4 * qp_count * the larger of sq_depth and recv_credits + 20)")}
for name in want:
    assert got[name] == want[name], (name, got[name])' "$dir/out.json"
    ) || return 1
    grep -q '^  WEIR_SQ_DEPTH  *512  environment  2..65536$' "$dir/text" &&
        grep -q '^  WEIR_CONNECT_TIMEOUT_MS  *2500 ms  environment  1..3600000$' "$dir/text" &&
        grep -q '^  WEIR_CQ_DEPTH  *auto  environment  2048..4194304$' "$dir/text" &&
        grep -q '^  WEIR_RETRANSMIT_MS  *20 ms  default  ' "$dir/text" &&
        grep -q '^    refused: WEIR_POLL_BUDGET=x: not a whole' "$dir/text"
}
# The NIC that --device names, in the place of what the environment says; on each side its own.
info_nic() (
    mkdir -p "$dir/nic"
    export WEIR_SHM_DIRECTORY=/nowhere
    run info --device "shm:$dir/nic" >"$dir/text" || return 1
    test "$(grep -c '^device ' "$dir/text")" = 1 && ! grep -q WEIR_OFI "$dir/text" &&
        grep -q "^    WEIR_SHM_DIRECTORY  *$dir/nic  option  *text" "$dir/text" &&
        run info --json --device "shm:$dir/nic" >"$dir/out.json" &&
        json_holds '[d["available"] for d in r["devices"]] == [True] and {s["variable"]:
            s["source"] for s in r["device_settings"]}["WEIR_SHM_DIRECTORY"] == "option"' &&
        fails_as 'info: device shm:/nowhere: directory=/nowhere: No such file' info \
            --device shm:/nowhere &&
        fails_as 'info: device shm: WEIR_SHM_DIRECTORY=/nowhere' info
)
bench_nic() (
    mkdir -p "$dir/nic"
    export WEIR_SHM_DIRECTORY=/nowhere
    run bench write --device "shm:$dir/nic" --seconds 0.05 --verify --json "$dir/out.json" >/dev/null &&
        json_holds "r['options']['device'] == 'shm:$dir/nic'" &&
        fails_as 'no directory is named behind the colon' bench write --device shm: &&
        refused bench write --device tin:cans
)
# A setting that is refused, one of a device too, is no success.
info_refused() {
    (export WEIR_CQ_DEPTH=1 && fails_as 'info: WEIR_CQ_DEPTH=1: not a whole number' info) || return 1
    (export WEIR_SHM_GROUP=nosuchgroup &&
        fails_as 'info: device shm: WEIR_SHM_GROUP=nosuchgroup: no group' info) ||
        return 1
    run info | grep -q '^device verbs' || return 0
    (
        export WEIR_VERBS_MTU=1500 WEIR_VERBS_DEVICE=nic0 WEIR_VERBS_TIMEOUT=20
        fails_as 'info: device verbs: WEIR_VERBS_MTU=1500' info || exit 1
        grep -qx '      refused: WEIR_VERBS_MTU=1500: not 256, 512, 1024, 2048 or 4096' \
            "$dir/stdout" &&
            grep -qx '    WEIR_VERBS_DEVICE  *nic0  environment  text' "$dir/stdout" &&
            fails_as 'info: device verbs: WEIR_VERBS_MTU=1500' info --json || exit 1
        cp "$dir/stdout" "$dir/out.json"
        json_holds '{s["variable"]: (s["value"], s["refused"]) for s in r["device_settings"]
            if s["source"] != "default"} == {"WEIR_VERBS_MTU": (None, True),
            "WEIR_VERBS_DEVICE": ("nic0", False), "WEIR_VERBS_TIMEOUT": (20, False)}
            and all(s["name"] == s["variable"].split("_")[1].lower()
                for s in r["device_settings"])'
    ) && (
        export WEIR_VERBS_TIMEOUT="$(printf 'x\377\nWEIR_FAKE')"
        fails_as 'info: device verbs: WEIR_VERBS_TIMEOUT=x??WEIR_FAKE: not' info --json || exit 1
        cp "$dir/stdout" "$dir/out.json"
        json_holds '[s["note"][:30] for s in r["device_settings"] if s["refused"]]
            == ["WEIR_VERBS_TIMEOUT=x??WEIR_FAK"] and "verbs" in [d["name"] for d in r["devices"]]'
    ) && (
        export WEIR_VERBS_DEVICE="$(printf 'a\377')"
        run info --json >"$dir/out.json"
        json_holds '[d["note"] for d in r["devices"] if d["name"] == "verbs"]
            == ["no RDMA device a?"]'
    )
}
# A variable that begins with WEIR_ and that nobody reads: every command says so, once, and goes
# on. A target that a bench starts does not say it again.
stray_variables() {
    export WEIR_SQ_DEPHT=512 WEIR_NONSENSE=1
    said="weir: WEIR_SQ_DEPHT: no setting of this name; did you mean WEIR_SQ_DEPTH?"
    run info >"$dir/text" 2>"$dir/err" || return 1
    grep -qx "  ${said#weir: }" "$dir/text" && grep -qxF "$said" "$dir/err" &&
        run info --json >"$dir/out.json" 2>"$dir/err" && json_holds '{s["variable"]: s["nearest"]
            for s in r["strays"]} == {"WEIR_SQ_DEPHT": "WEIR_SQ_DEPTH", "WEIR_NONSENSE": None}' ||
        return 1
    for command in "bench write --seconds 0.05" "bench wake --seconds 0.1" "bench fill --pages 8" \
        "bench trace --requests 5"; do
        run $command >"$dir/stdout" 2>"$dir/err" || return 1
        test "$(grep -cxF "$said" "$dir/err")" -eq 1 && test "$(wc -l <"$dir/err")" -eq 2 &&
            ! grep -q WEIR_SQ_DEPHT "$dir/stdout" && continue
        echo "$command:"
        cat "$dir/err"
        return 1
    done
    serve || return 1
    grep -qxF "$said" "$dir/serve.err"
    good=$?
    serve_ended TERM 0 && test $good -eq 0 && unset WEIR_SQ_DEPHT WEIR_NONSENSE &&
        run info 2>&1 | grep -q '^settings$' && ! run info 2>&1 | grep -q 'nobody reads\|no setting'
}
# The settings in force stand beside every result, and what the session got.
json_settings() {
    (
        unset WEIR_WATCHDOG_MS
        export WEIR_CHAIN_MAX=100 WEIR_TRANSFERS_MAX=2000
        bench write --seconds 0.05 --qps 2 --depth 64
    ) && json_holds '{s["name"]: (s["value"], s["in_force"], s["source"]) for s in r["settings"]
        if s["source"] != "default"} == {"sq_depth": (64, 64, "option"),
        "qp_count": (2, 2, "option"), "chain_max": (100, 15, "environment"),
        "transfers_max": (2000, 2000, "environment"),
        "connect_timeout_ns": (3000, 3000, "option")} and len(r["settings"]) > 15
        and [s["unit"] for s in r["settings"] if s["name"] == "connect_timeout_ns"] == ["ms"]
        and r["granted"]["qp_count"] == 2 == len(r["granted"]["qps"])
        and r["granted"]["sq_depth"] == 63 == r["granted"]["qps"][1]["sq_depth"]
        and r["granted"]["sessions"] == 1 and r["granted"]["recoveries"] == 0
        and r["device_counters"]["eagain_transfers"] == 0' || return 1
    # A target of less: what was granted is not what was asked.
    serve --qps 1 || return 1
    bench read --seconds 0.05 --qps 4 --peer "$address" &&
        json_holds 'r["granted"]["qp_count"] == 1 and [s["value"] for s in r["settings"]
            if s["name"] == "qp_count"] == [4]'
    good=$?
    serve_ended TERM 0 && test $good -eq 0 &&
        run bench wake --seconds 0.1 --json "$dir/out.json" &&
        json_holds 'r["granted"]["qp_count"] == 1 and r["granted"]["sq_depth"] == 255
            and len(r["settings"]) > 15 and r["device_counters"]["completions"] >= 0'
}
# Every variable that info names, with values that cannot be: one line, before anything is done.
wrong_settings() {
    variables=$(run info | sed -n 's/^  \(WEIR_[A-Z_]*\) .*/\1/p')
    test "$(echo "$variables" | wc -l)" -gt 15 || return 1
    for variable in $variables; do
        for value in "" x -1 1x 99999999999; do
            export "$variable=$value"
            fails_as "serve: $variable=$value: not a whole number from " serve || return 1
        done
        unset "$variable"
    done
    export WEIR_WATCHDOG_MS=0 # as in tool_lib.sh
    (export WEIR_SQ_DEPTH=x WEIR_QP_COUNT=x && bench write --seconds 0.05 --depth 64 --qps 2) &&
        (export WEIR_SQ_DEPTH=8 WEIR_SIGNAL_INTERVAL=1 WEIR_INLINE_BYTES=0 WEIR_POLL_BUDGET=1 \
            WEIR_CHAIN_MAX=1 && bench_verified write --seconds 0.05 --verify)
}
help_everywhere() {
    for words in "" bench serve info report "bench all" "bench limits" "bench write" "bench read" \
        "bench send" "bench sweep" "bench pace" "bench fill" "bench replay" "bench trace" "bench wake" \
        "bench faults" "bench incast" "bench storm"; do
        # shellcheck disable=SC2086
        run $words --help >"$dir/help" 2>"$dir/err" || return 1
        test -s "$dir/help" && test ! -s "$dir/err" || return 1
        ! grep '^.\{81\}' "$dir/help" || return 1 # columns of a terminal
    done
    # The explanations of commands begin in one column.
    ! run --help | grep '^  weir ' | grep -v '^  weir .\{14\} [^ ]'
}
# weir(1): the synopsis of each command has its options, all and no others, and each is
# explained.
manual_options() {
    page=$(dirname "$0")/../man/weir.1
    for words in serve info report trace 'bench all' 'bench limits' 'bench write' 'bench read' \
        'bench send' 'bench sweep' 'bench pace' 'bench wake' 'bench faults' 'bench incast' \
        'bench storm' 'bench fill' 'bench replay' 'bench trace'; do
        run $words --help | sed -n 's/^  --\([a-z-]*\).*/\1/p' | sort >"$dir/taken"
        test -s "$dir/taken" || return 1
        awk -v words="$words" '/^\.Sh/ { synopsis = $2 == "SYNOPSIS" }
            /^\.(Sh|Nm)/ { on = 0 }
            /^\.Cm/ { on = synopsis && $0 == ".Cm " words }
            on && /Fl Fl/ { sub(/.*Fl Fl /, ""); print $1 }' "$page" | sort >"$dir/named"
        diff "$dir/taken" "$dir/named" || return 1
        while read -r option; do
            grep -q "^\.It Fl Fl $option\( \|\$\)" "$page" && continue
            echo "weir(1) does not explain --$option"
            return 1
        done <"$dir/taken"
    done
}
wrong_commands() {
    refused && refused nosuch && refused bench && refused bench nosuch && refused -- &&
        refused info --size 8 && refused serve extra && refused bench write extra &&
        refused bench write -x && refused bench write -xy && refused bench write --trace x &&
        refused bench sweep --size 8 && refused bench limits --peer 127.0.0.1:1 &&
        refused bench replay && refused_as '--out FILE is required' report a.json &&
        refused_as 'a file is required' report --out page.html &&
        refused_as 'unexpected' report a.json b.json c.json --out page.html &&
        refused_as '--out DIR is required' bench all && refused bench all --out x y
}
# Zero, negative, too large, no number, nothing: each says what it would have to be.
wrong_numbers() {
    size='not a size from 1 B to 4 GiB' count='not a whole number from 1 to 1024'
    for value in 0 -1 5G 17179869184G 99999999999999999999 3x 1KK K 0x10 ' 8' +8 1.5; do
        refused_as "bench write --size $value: $size" bench write --size "$value" || return 1
    done
    for value in -1 9M 8388609 x; do
        refused_as "--size $value: not a size from 0 B to 8 MiB" bench send --size "$value" || return 1
    done
    for value in 0 65537 x; do
        refused_as '--waiting' bench send --waiting "$value" || return 1
    done
    for value in -1 65537 x; do
        refused_as '--hold' bench send --hold "$value" || return 1
    done
    for value in 0 -1 1025 18446744073709551617 8K x; do
        refused_as "--window $value: $count" bench write --window "$value" || return 1
    done
    for value in -1 nan inf 1e400 3601 1s 0 1e-9 0.001 0x1 1.2.3 . ' 1'; do
        refused_as "--seconds $value: not a number from 0.01 to 3600" \
            bench write --seconds "$value" || return 1
    done
    refused bench replay --trace x --speedup -1 &&
        refused bench trace --seed 18446744073709551616 && refused bench trace --requests 0 &&
        refused bench fill --pages 0 && refused bench fill --page-size 1 &&
        refused bench write --qps 17 && refused bench write --depth 1
}
wrong_values() {
    for option in size window seconds memory latency peer device json; do
        refused_as "--$option: the value is empty" bench write "--$option=" || return 1
    done
    refused_as 'needs a value' bench write --size && refused_as 'needs a value' serve --listen &&
        refused_as 'takes no value' bench write --notify=1 &&
        refused_as 'given twice' bench write --size 4K --size 4K &&
        refused_as 'given twice' bench write --verify --verify &&
        refused_as 'several options' bench write --s 1 &&
        refused_as 'neither shared nor own' bench write --memory borrowed &&
        refused_as 'not write, read or send' bench pace --op both &&
        refused_as 'longer than 8 MiB' bench pace --op send --size 9M &&
        refused_as '--waiting is of messages' bench pace --waiting 3 &&
        refused_as 'not write, read or send' bench sweep --op both &&
        refused_as '--targets 101: a percentage' bench pace --targets 1,101 &&
        refused_as '--targets : neither' bench pace --targets 1,,2 &&
        refused_as '--targets 5X: neither' bench pace --targets 5X,1 &&
        refused_as 'over the limit of' bench pace --size 4G --window 1024 &&
        refused_as 'neither notify nor memory' bench write --latency=loud &&
        refused_as 'behind =' bench write --latency notify &&
        refused_as 'this weir has: shm' bench write --device nosuch &&
        refused_as 'this weir has: shm' serve --device nosuch &&
        refused_as 'serves nobody' serve --listen none
}
wrong_together() {
    for option in '--threads 2' '--segments 2' '--size 8' '--window 1' --notify --verify \
        '--cold 1M'; do
        refused_as "${option%% *} does not apply" bench write --latency $option || return 1
    done
    for option in '--seed 1' '--requests 9' '--output x'; do
        refused_as "${option%% *} does not apply" bench trace --describe x $option || return 1
    done
    for option in '--threads 2' '--window 1' --verify '--waiting 1' '--hold 1' '--batch 2'; do
        refused_as "${option%% *} does not apply" bench send --latency $option || return 1
    done
    for option in '--segments 2' '--cold 64M' --notify; do
        refused_as "${option%% *} does not apply" bench sweep --op send $option || return 1
    done
    for option in '--waiting 9' '--hold 9' '--batch 9'; do
        refused_as "${option%% *} is of messages" bench sweep $option || return 1
    done
    refused_as '--waiting is of messages' bench incast --waiting 9 || return 1
    refused_as 'neither write nor send' bench incast --op read || return 1
    refused_as 'longer than 8 MiB' bench incast --op send --size 9M || return 1
    refused_as '(--hold) keeps its loan' bench send --loan --hold 4 || return 1
    refused_as '(--loan) is sent by itself' bench send --loan --batch 2 || return 1
    refused_as 'that wait or are held' bench send --size 8M --waiting 65536 || return 1
    refused bench write --cold 1M --size 1M &&
        refused bench write --size 4G --segments 65536
}
wrong_world() {
    echo '{"timestamp": 0, "input_length": 9, "output_length": 1, "hash_ids": [-1]}' >"$dir/bad"
    echo '{"timestamp": 5' >"$dir/cut"
    : >"$dir/empty"
    fails_as 'cannot be named beforehand' serve --device auto:x &&
        fails bench replay --trace "$dir/nosuch" && fails bench trace --describe "$dir/bad" &&
        fails bench trace --describe "$dir/cut" && fails bench trace --describe "$dir/empty" &&
        run bench trace --requests 20 --output "$dir/few" &&
        fails_as '--requests 21' bench replay --trace "$dir/few" --requests 21
}
# The file is opened before anything is measured, and written when all was: what was there
# stays, and nothing half-written does.
json_file() {
    before=$(date +%s)
    fails_as "$dir/no/such/place" bench write --seconds 10 --json "$dir/no/such/place" || return 1
    test $(($(date +%s) - before)) -lt 5 || return 1
    echo old >"$dir/kept.json"
    for file in kept new; do
        fails bench write --peer nowhere --json "$dir/$file.json" || return 1
    done
    test "$(cat "$dir/kept.json")" = old && test ! -e "$dir/new.json" &&
        fails bench write --seconds 0.1 --json /dev/full &&
        run bench write --seconds 0.1 --json "$dir/kept.json" >/dev/null &&
        python3 -m json.tool "$dir/kept.json" >/dev/null
}
# Options are typed; what was not given, or does not apply, is null.
json_types() {
    run bench write --seconds 0.1 --notify --json "$dir/out.json" >/dev/null && json_holds \
        'r["options"]["segments"] == 1 and r["options"]["seconds"] == 0.1
        and r["options"]["notify"] is True and r["options"]["verify"] is False
        and r["options"]["qps"] is None and r["options"]["peer"] is None
        and r["options"]["memory"] == "shared" and r["limit"]["latency_ns"] is None
        and r["limit"]["bytes_per_s"] > 0 and " " in r["versions"]["compiler"]
        and "results" not in r'
}
limits_json() {
    run bench limits --cold 4M --json "$dir/out.json" && json_holds '"results" not in r
        and r["hot"][0]["nontemporal_bytes_per_s"] is None
        and all(row["process_vm_writev_bytes_per_s"] for row in r["hot"])'
}
# More memory than the machine has is refused before any of it is taken.
wrong_memory() {
    test "$(awk '/^MemAvailable/ { print $2 }' /proc/meminfo)" -lt 100000000 || return 0
    run bench trace --requests 20 --output "$dir/few" || return 1
    fails_as 'of memory' bench write --cold 64G && fails_as 'of memory' bench limits --cold 64G &&
        fails_as 'of memory' bench fill --pages 65536 --page-size 256K &&
        fails_as 'of memory' bench replay --trace "$dir/few" --pool 64G
}
# The cause of an engine that does not open.
wrong_engine() {
    sh -c 'ulimit -n 12; exec "$@"' sh "$weir" bench write --seconds 0.1 2>"$dir/err"
    test $? -eq 1 && test "$(wc -l <"$dir/err")" -eq 1 && grep -q 'ulimit -n' "$dir/err" &&
        (
            export WEIR_SQ_BACKOFF_TIMEOUT_US=x
            fails_as 'bench read: WEIR_SQ_BACKOFF_TIMEOUT_US=x' bench read --seconds 0.1 &&
                fails_as 'bench wake: WEIR_SQ' bench wake && fails_as 'serve: WEIR_SQ' serve
        ) || return 1
    run info | grep -q '^device verbs: no' || return 0
    note=$(run info | grep -A1 '^device verbs' | sed -n '2s/^  //p')
    fails_as "bench write: device verbs: no such device here: $note" bench write --device verbs &&
        fails_as "bench wake: device verbs: no such device here: $note" bench wake --device verbs
}
# A server whose address nobody can read does not serve.
serve_unheard() {
    fails_to() { # like fails, with stdout already somewhere else
        timeout 600 "$weir" serve 2>"$dir/err"
        test $? -eq 1 && test "$(wc -l <"$dir/err")" -eq 1 && grep -q 'cannot be written' "$dir/err"
    }
    fails_to >/dev/full && fails_to >&-
}
# Another user's process cannot be reached on shm; the message says so.
other_user() {
    test "$(id -u)" -eq 0 && command -v setpriv >/dev/null || return 0
    setpriv --reuid 65534 --regid 65534 --clear-groups "$weir" --version >/dev/null 2>&1 || return 0
    serve || return 1
    setpriv --reuid 65534 --regid 65534 --clear-groups \
        "$weir" bench write --seconds 0.1 --peer "$address" >"$dir/log2" 2>&1
    other=$?
    serve_ended TERM 0 && test $other -eq 1 && grep -q 'of one user' "$dir/log2" &&
        grep -q WEIR_EDENIED "$dir/log2"
}
# More benches than CPUs: each gets on, and does not poll through its time slices. Benches that did
# took 200 times as much CPU an operation as one that is alone; a busy machine alone makes it a few
# times.
serve_crowded() {
    serve || return 1
    run bench write --peer "$address" --size 4K --verify --seconds 0.4 --json "$dir/alone" \
        >/dev/null || return 1
    alone=$(python3 -c 'import json, sys
print(json.load(open(sys.argv[1]))["cpu_ns_per_op"]["initiator"])' "$dir/alone") || return 1
    crowd=
    for i in 1 2 3 4; do
        run bench write --peer "$address" --size 4K --verify --seconds 0.4 \
            --json "$dir/crowd$i" >/dev/null &
        crowd="$crowd $!"
    done
    good=0
    for bench in $crowd; do
        wait "$bench" || good=1
    done
    serve_ended TERM 0 && test $good -eq 0 || return 1
    for i in 1 2 3 4; do
        cp "$dir/crowd$i" "$dir/out.json"
        json_holds "r['verified'] and r['cpu_ns_per_op']['initiator'] < 100 * $alone" || return 1
    done
}
# The limit's share stands where what it compares stands.
limit_below() {
    run bench fill --pages 64 --repeat 3 >"$dir/table" &&
        grep -q '^fill .* -$' "$dir/table" &&
        grep -q '^  writes alone: .* % of the limit$' "$dir/table" &&
        grep -q '^  verified: all 12582912 bytes moved, and 12582912 left alone' "$dir/table"
}
# "verified" counts all rows: 8 B to 4 MiB, several of each; and no line is too long. A read checks
# in this process, a write in the target.
sweep_verified() {
    narrow sweep --op "$1" --seconds 0.01 --verify --window 4 --json "$dir/out.json" &&
        json_holds '[row["size"] for row in r["results"]] == [8 << i for i in range(20)]
            and r["options"]["op"] == "'"$1"'"' &&
        sum=$(sed -n 's/^  verified: all of \([0-9]*\) bytes$/\1/p' "$dir/table") &&
        json_holds "sum(row['checked_bytes'] for row in r['results']) == ${sum:-0} > 0"
}
# paced ARGUMENTS: each load has a row. None is faster than its target, since it counts to the end of
# its last operation's period; one that is slower may have been cut off. All that was made was timed.
paced() {
    narrow pace --targets 1,50,100,1G --seconds 0.05 "$@" --json "$dir/out.json" &&
        json_holds 'r["rows"][3]["target_bytes_per_s"] == 1e9 and r["rows"][3]["percent"] is None
            and [row["percent"] for row in r["rows"][:3]] == [1, 50, 100]
            and abs(r["rows"][2]["target_bytes_per_s"] / r["bytes_per_s"] - 1) < 1e-9
            and all(0 < row["achieved_bytes_per_s"] < 1.000001 * row["target_bytes_per_s"]
                and abs(row["achieved_bytes_per_s"] * row["seconds"] / row["ops"]
                    / r["options"]["size"] - 1) < 1e-6
                and (row["ops"] == row["ops_planned"] or row["error"] < -0.1)
                and row["latency_ns"]["samples"] == row["ops"] > 0 == row["stalls"]
                and row["latency_ns"]["p50"] <= row["latency_ns"]["p9999"] <= row["latency_ns"]["max"]
                for row in r["rows"])'
}
# At most 8 operations, and not for more than an hour.
too_slow() { fails_as 'more than an hour' bench pace --size 1M --seconds 0.05 --targets 1K; }

# The programs of docs/first-transfer.md and those of weir(3) compile without a warning and run.
documented_programs() ( # changes the directory
    top=$(cd "$(dirname "$0")/.." && pwd) build=$(cd "$(dirname "$weir")" && pwd)
    for library in "$build"/libweir.so.[0-9]; do
        test -e "$library" || return 0
    done
    compile() {
        ${CC:-cc} -std=c11 -Wall -Wextra -Werror -D_POSIX_C_SOURCE=200809L -I"$top/include" \
            "$dir/$1.c" "$library" -o "$dir/$1"
    }
    command -v "${CC:-cc}" >/dev/null || return 0
    ! grep -q '__tsan_init\|__asan_init' "$library" || return 0 # would need its runtime
    for program in target source; do
        awk -v name="$program.c" 'index($0, "`" name "`") { wanted = 1 }
            wanted && /^```$/ { exit } on { print } wanted && /^```c$/ { on = 1 }' \
            "$top/docs/first-transfer.md" | sed 's/:7100/:7193/; s/20000000000/60&/' >"$dir/$program.c"
        compile "$program" || return 1
    done
    {
        awk '/^#include <poll.h>$/ { on = 1 } on && /^\.Ed$/ { exit } on { print }' \
            "$top/man/weir.3"
        cat <<'C'
#include <stdio.h>
int main(void) {
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    weir_engine *here, *there;
    char address[WEIR_ADDRESS_MAX];
    weir_peer peer;
    weir_transfer transfer;
    weir_notification got;
    options.flags = WEIR_ENGINE_THREAD;
    if (weir_engine_open(NULL, &here) != 0 || weir_engine_open(&options, &there) != 0 ||
        weir_engine_address(here, address, sizeof(address)) != 0 ||
        weir_peer_open(there, address, &peer) != 0)
        return 1;
    weir_transfer_options notify = WEIR_TRANSFER_OPTIONS_INIT;
    notify.flags = WEIR_TRANSFER_NOTIFY;
    for (notify.notify_tag = 0; notify.notify_tag < 3; notify.notify_tag++) {
        if (weir_write(there, peer, NULL, 0, &notify, &transfer) != 0 ||
            await(here, &got) != 0 || got.tag != notify.notify_tag)
            return 1;
        weir_transfer_release(there, transfer);
    }
    weir_engine_close(there);
    weir_engine_close(here);
}
C
    } >"$dir/poll.c"
    awk '/^\.Bd/ { text = ""; next } { text = text $0 "\n" }
        /^\.Ed/ && text ~ /weir_setting_query\(/ { sub(/\.Ed\n$/, "", text); printf "%s", text }' \
        "$top/man/weir.3" | sed 's/\\e/\\/g' >"$dir/settings.c"
    compile settings && grep -q 'int main' "$dir/settings.c" || return 1
    export LD_LIBRARY_PATH=$build
    "$dir/settings" >"$dir/settings.out" && grep -qx 'sq_depth 1024 (option) ' "$dir/settings.out" &&
        grep -q '^chain_max 255 (default) cut to 255: ' "$dir/settings.out" &&
        test "$(grep -c ' (.*) ' "$dir/settings.out")" -eq "$(run info | grep -c '^  WEIR_')" &&
        WEIR_SQ_DEPHT=1 "$dir/settings" | grep -q 'did you mean WEIR_SQ_DEPTH' &&
        ! WEIR_QP_COUNT=x "$dir/settings" >"$dir/settings.out" &&
        grep -q '^qp_count 1 (environment) WEIR_QP_COUNT=x: not a' "$dir/settings.out" || return 1
    compile poll && (cd "$dir" && LD_LIBRARY_PATH=$build timeout 600 ./poll) || return 1
    cd "$dir" || return 1
    LD_LIBRARY_PATH=$build timeout 600 ./target >"$dir/target.out" &
    target=$! alive=$!
    # It listens at 7193.
    until_so grep -q ':1C19 00000000:0000 0A' /proc/net/tcp && LD_LIBRARY_PATH=$build timeout 600 ./source
    wait "$target" && grep -qx 'tag 42: one copy, no system call' target.out
)

# ---- targets ----

serve() {
    rm -f "$dir/address" # of the server before: not to be taken for this one's
    "$weir" serve "$@" >"$dir/address" 2>"$dir/serve.err" &
    serving=$! alive=$!
    until_so test -s "$dir/address"
    address=$(cat "$dir/address")
    test -n "$address"
}
serve_ended() {
    kill -"$1" "$serving"
    wait "$serving"
    status=$?
    serving=
    test $status -eq "$2"
}
serve_several() {
    serve --listen "$1" || return 1
    bench write --size 4K --seconds 0.1 --peer "$address" &&
        bench_verified fill --pages 8 --page-size 4K --repeat 3 --peer "$address" &&
        run bench write --size 4K --seconds 0.5 --peer "$address" >/dev/null &
    other=$!
    run bench read --size 4K --seconds 0.5 --verify --peer "$address" && wait $other
    good=$?
    serve_ended TERM 0 && test $good -eq 0
}
serve_limit() {
    serve --memory-max 64K || return 1
    fails bench write --size 1M --seconds 0.1 --peer "$address"
    good=$?
    serve_ended INT 0 && test $good -eq 0
}
# A server with room for one session refuses the second, and serves again when the first is over.
serve_sessions() {
    serve --sessions 1 || return 1
    "$weir" bench write --seconds 600 --peer "$address" >/dev/null 2>&1 &
    first=$! alive=$!
    until_so is_connected "$serving" || return 1
    fails_as 'a bounded queue or pool is full; try again (WEIR_EAGAIN)' bench write \
        --seconds 0.1 --peer "$address"
    good=$?
    kill $first
    wait $first
    alive=$serving
    test $good -eq 0 && until_so run bench write --seconds 0.1 --peer "$address" >/dev/null 2>&1
    good=$?
    serve_ended TERM 0 && test $good -eq 0 && refused serve --sessions 513
}
# Why an address does not do: a port in use is not a bad address, and neither is a refusal.
wrong_addresses() {
    serve || return 1
    fails_as "$address: Address already in use" serve --listen "$address"
    good=$?
    serve_ended TERM 0 && test $good -eq 0 &&
        fails_as "$address: Connection refused" bench write --peer "$address" &&
        fails_as 'foo: not HOST:PORT' serve --listen foo &&
        fails_as 'foo: not HOST:PORT' bench write --peer foo &&
        fails_as '::1:7000: not HOST:PORT' serve --listen ::1:7000 &&
        fails_as 'port 65536 is not in' serve --listen 127.0.0.1:65536
}
# unlike HERE THERE OPTIONS-OF-SERVE...: what a bench on shm says, and the server, when their devices
# do not meet. The server has its directory for shm in $place.
place=
unlike() {
    here=$1 there=$2
    shift 2
    test -z "$place" || export WEIR_SHM_DIRECTORY="$place"
    serve "$@" || return 1
    unset WEIR_SHM_DIRECTORY
    fails_as "the target refused: $here" bench write --peer "$address" &&
        until_so grep -qF "a peer is not served: $there" "$dir/serve.err"
    good=$?
    cat "$dir/serve.err"
    serve_ended TERM 0 && test $good -eq 0
}
unlike_places() {
    says="both use shm, and the two do not meet (weir info tells where each is, on its host)"
    place=$dir/place
    mkdir "$place" && unlike "$says" "$says"
    good=$?
    place=
    return $good
}
unlike_devices() {
    unlike 'the peer uses ofi, this engine shm; both could use shm' \
        'the peer uses shm, this engine ofi; both could use shm' --device ofi
}
# The port at which a server listens is the only one of libfabric's range, so it has none free.
full_range() {
    serve || return 1
    port=${address##*:}
    export WEIR_OFI_ADDRESS=127.0.0.1 FI_TCP_PORT_LOW_RANGE="$port" FI_TCP_PORT_HIGH_RANGE="$port"
    fails_as "no port is free of FI_TCP_PORT_LOW_RANGE=$port" serve --device ofi
    good=$?
    unset WEIR_OFI_ADDRESS FI_TCP_PORT_LOW_RANGE FI_TCP_PORT_HIGH_RANGE
    serve_ended TERM 0 && test $good -eq 0
}
# Clock ticks that a process has run, of CLK_TCK in a second, and how often its threads went to sleep.
ran() { awk '{ print $14 + $15 }' "/proc/$1/stat"; }
slept() { cat "/proc/$1/task/"*/status | awk '/^voluntary/ { sum += $2 } END { print sum }'; }
# A bench that waits for a target which is stopped sleeps: it runs for 2 ms at most each time before
# it sleeps again, however seldom a busy machine lets it run. There it may not be connected yet when
# the target stops, so any 2 s will do.
waits_asleep() {
    serve || return 1
    WEIR_CONNECT_TIMEOUT_MS=300000 "$weir" bench "$@" --seconds 3600 --peer "$address" >"$dir/stdout" 2>&1 &
    waiter=$!
    sleep 0.5
    kill -STOP "$serving"
    asleep=no
    for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
        ran=$(ran "$waiter") slept=$(slept "$waiter")
        sleep 2
        ran=$((($(ran "$waiter") - ran) * 1000 / $(getconf CLK_TCK)))
        slept=$(($(slept "$waiter") - slept))
        test $ran -le $((2 * (slept + 1))) && asleep=yes && break
    done
    kill -CONT "$serving"
    kill "$waiter"
    wait "$waiter"
    test $? -eq 1 && grep -q 'interrupted' "$dir/stdout"
    interrupted=$?
    test $interrupted -eq 0 || cat "$dir/stdout" "$dir/serve.err"
    serve_ended TERM 0 && test $interrupted -eq 0 || return 1
    echo "$ran ms, and slept $slept times"
    test $asleep = yes
}
# A server that listens at all addresses names one that a peer reaches it by.
serve_anywhere() {
    for all in 0.0.0.0:0 '[::]:0'; do
        serve --listen "$all" || return 1
        case $address in 0.0.0.0:* | '[::]:'*) return 1 ;; esac
        run bench write --peer "$address" --seconds 0.1 --verify
        good=$?
        serve_ended TERM 0 && test $good -eq 0 || return 1
    done
    run info --json >"$dir/out.json" && json_holds '"127.0.0.1" in r["addresses"]' &&
        run info | grep -qx '  127\.0\.0\.1'
}
# Of such a server the address is told that it is given, and else how to give one.
serve_advertised() {
    serve --listen 0.0.0.0:0 --advertise 127.0.0.2 || return 1
    case $address in 127.0.0.2:*) ;; *) return 1 ;; esac
    run bench write --peer "$address" --seconds 0.1 --verify
    good=$?
    test ! -s "$dir/serve.err" || good=1
    serve_ended TERM 0 && test $good -eq 0 || return 1
    serve --listen 0.0.0.0:0 || return 1
    until_so grep -qF -- "--advertise HOST names one, such as ${address%:*}" "$dir/serve.err"
    good=$?
    serve_ended TERM 0 && test $good -eq 0 &&
        fails_as 'advertise 0.0.0.0: a wildcard, which names no host' serve --advertise 0.0.0.0 &&
        run info | grep -qF "0.0.0.0:PORT peers are told one by --advertise ${address%:*}"
}
# get ACCEPT METHOD URL: the answer's status, type and text.
get() {
    python3 -c 'import sys, urllib.request, urllib.error
try:
    answer = urllib.request.urlopen(urllib.request.Request(sys.argv[3], method=sys.argv[2],
                                                           headers={"Accept": sys.argv[1]}))
except urllib.error.HTTPError as error:
    answer = error
print(answer.status, answer.headers["Content-Type"])
print(answer.read().decode(), end="")' "$@"
}
# The two lines of serve --metrics: where it serves, and where its metrics are.
serve_metrics() {
    serve --metrics "$1" || return 1
    alive=$serving
    until_so grep -q '^http' "$dir/address" || return 1
    address=$(sed -n 1p "$dir/address") url=$(sed -n 2p "$dir/address")
}
# Metrics in both formats, of what was served meanwhile; nothing else is to be had there.
metrics() {
    serve_metrics 127.0.0.1:0 || return 1
    run bench write --peer "$address" --seconds 0.1 &&
        get '*/*' GET "$url" >"$dir/plain" &&
        get 'application/openmetrics-text; version=1.0.0' GET "$url" >"$dir/open" &&
        get '*/*' POST "$url" >"$dir/post" && get '*/*' GET "${url}x" >"$dir/other"
    good=$?
    serve_ended TERM 0 && test $good -eq 0 || return 1
    grep -qx '200 text/plain; version=0.0.4; charset=utf-8' "$dir/plain" &&
        grep -q '^weir_sessions_up_total 1$' "$dir/plain" && ! grep -q EOF "$dir/plain" &&
        grep -qx '200 application/openmetrics-text; version=1.0.0; charset=utf-8' "$dir/open" &&
        grep -q '^weir_sessions_up_total 1$' "$dir/open" &&
        test "$(tail -n 1 "$dir/open")" = '# EOF' &&
        grep -q '^405 ' "$dir/post" && grep -q '^404 ' "$dir/other"
}
# What others have written to read these formats finds nothing wrong.
metrics_valid() {
    serve_metrics '[::1]:0' || return 1
    get '*/*' GET "$url" | sed 1d >"$dir/plain"
    get application/openmetrics-text GET "$url" | sed 1d >"$dir/open"
    serve_ended TERM 0 || return 1
    if command -v promtool; then promtool check metrics <"$dir/plain" || return 1; fi
    /usr/bin/python3 -c 'import sys
from prometheus_client.parser import text_fd_to_metric_families as plain
from prometheus_client.openmetrics.parser import text_fd_to_metric_families as strict
a, b = list(plain(open(sys.argv[1]))), list(strict(open(sys.argv[2])))
sys.exit(0 if len(a) == len(b) > 40 else f"{len(a)} and {len(b)} metrics")' "$dir/plain" "$dir/open"
}
metrics_wrong() {
    for wrong in 127.0.0.1 127.0.0.1: :9464 '[::1:9464'; do
        fails_as "serve --metrics $wrong: not HOST:PORT" serve --metrics "$wrong" || return 1
    done
    for wrong in 127.0.0.1:x 127.0.0.1:65536 127.0.0.1:-1 127.0.0.1:999999; do
        fails_as "serve --metrics $wrong: port not in 0 to 65535" serve --metrics "$wrong" ||
            return 1
    done
    fails_as 'stands in brackets' serve --metrics ::1:9464
}
# More collectors than it has room for come and go together, and the next one is answered.
metrics_crowd() {
    serve_metrics 127.0.0.1:0 || return 1
    python3 -c 'import socket, sys, time, urllib.request
host, port = sys.argv[1].split("/")[2].split(":")
for _ in range(2):
    crowd = [socket.create_connection((host, int(port))) for _ in range(20)]
    time.sleep(0.5)
    crowd[0].send(b"G")
    time.sleep(0.05)
    for one in crowd:
        one.close()
text = urllib.request.urlopen(sys.argv[1], timeout=300).read()
sys.exit(0 if b"weir_info" in text else "no metrics")' "$url"
    good=$?
    serve_ended TERM 0 && test $good -eq 0
}
# A reader that has seen enough is no failure to complain of: the end is that of any filter.
reader_gone() {
    python3 -c 'import os, signal, subprocess, sys
for args in (["info"], ["info", "--json"], ["bench", "trace", "--requests", "100"],
        ["bench", "write", "--seconds", "0.1"], ["--help"]):
    gone, out = os.pipe()
    os.close(gone)
    ended = subprocess.run([sys.argv[1]] + args, stdout=out, stderr=subprocess.PIPE)
    os.close(out)
    if ended.returncode != -signal.SIGPIPE or ended.stderr:
        sys.exit(f"{args}: {ended.returncode}, {ended.stderr}")' "$weir"
}
# No line of a table is longer than a terminal's.
narrow() {
    run bench "$@" >"$dir/table" && ! grep '^.\{81\}' "$dir/table"
}
# Whether a target has given a bench its memory.
is_connected() { grep -q weir-memory "/proc/$1/maps" 2>/dev/null; }
own_target_connected() {
    own=$(own_target "$1" 2>/dev/null) && test -n "$own" && is_connected "$own"
}
# A bench whose target is killed: one line, status 1, soon.
killed() {
    serve || return 1
    timeout 600 "$weir" "$@" --peer "$address" >"$dir/stdout" 2>"$dir/err" &
    bench=$! alive=$!
    until_so is_connected "$serving" || return 1
    sleep 0.5 # what it compares with is measured first; earlier is another test, and as good
    serve_ended KILL 137
    wait $bench
    status=$?
    test $status -eq 1 && test "$(wc -l <"$dir/err")" -eq 1 && return
    echo "status $status"
    cat "$dir/err"
    return 1
}
# The same with the target that the bench started itself, which must not outlive it either way.
killed_own() {
    timeout 600 "$weir" bench write --seconds 20 >"$dir/stdout" 2>"$dir/err" &
    bench=$! alive=$!
    until_so own_target_connected "$bench" || return 1
    sleep 0.3
    kill -KILL "$(own_target "$bench")" || return 1
    wait $bench
    test $? -eq 1 && test "$(wc -l <"$dir/err")" -eq 1
}
own_target() { # timeout -> weir -> weir serve
    parent=$(cat "/proc/$1/task/$1/children")
    parent=${parent% }
    tr -d ' ' <"/proc/$parent/task/$parent/children"
}
bench_killed() {
    "$weir" bench write --seconds 20 >/dev/null 2>&1 &
    bench=$! alive=$!
    until_so grep -q . "/proc/$bench/task/$bench/children" || return 1
    child=$(tr -d ' ' <"/proc/$bench/task/$bench/children")
    kill -KILL $bench
    wait $bench
    # Gone, or dead and not yet reaped by whoever inherited it; a busy machine takes its time.
    for _ in $(seq 100); do
        grep -q '^State:[[:space:]]*[RSDTt]' "/proc/$child/status" 2>/dev/null || return 0
        sleep 0.1
    done
    cat "/proc/$child/status"
    return 1
}

# ---- traces ----

trace_same_seed() {
    run bench trace --requests 300 --seed 7 >"$dir/a" && run bench trace --requests 300 --seed 7 \
        --output "$dir/b" && cmp "$dir/a" "$dir/b" &&
        run bench trace --requests 300 --seed 8 >"$dir/c" && ! cmp -s "$dir/a" "$dir/c" &&
        test "$(wc -l <"$dir/a")" -eq 300
}
# One id for each 512 tokens, arrivals in order, the same first block, new ids in order.
trace_form() {
    run bench trace --requests 500 >"$dir/t" && python3 - "$dir/t" <<'P'
import json, sys
last, fresh = 0, 0
for line in open(sys.argv[1]):
    r = json.loads(line)
    assert r["timestamp"] >= last and r["output_length"] > 0
    last = r["timestamp"]
    assert len(r["hash_ids"]) == -(-r["input_length"] // 512)
    assert r["hash_ids"][0] == 0
    for i in r["hash_ids"]:
        assert i <= fresh
        fresh += i == fresh
P
}
trace_described() {
    run bench trace --requests 20 --output "$dir/short" &&
        run bench trace --describe "$dir/short" >"$dir/text" &&
        grep -q '^requests 20 in' "$dir/text" && ! grep '^.\{81\}' "$dir/text"
}
replay() { # with options, a pool among them
    test -s "$dir/t" || run bench trace --requests 500 >"$dir/t" || return 1
    bench_verified replay --trace "$dir/t" --kv-bytes-per-token 64 "$@" &&
        json_holds 'r["split"]["generate_ns"] > 0 and r["split"]["transfer_ns"] > 0
                    and r["latency_notified_ns"]["p50"] > 0'
}

check info run info
check info_json info_json
check info_lines info_lines
check info_settings info_settings
check info_refused info_refused
check W11_info_of_a_nic info_nic
check W11_bench_over_a_nic bench_nic
check stray_variables stray_variables
check wrong_settings wrong_settings
check help help_everywhere
check manual_options manual_options
check documented_programs documented_programs
check wrong_commands wrong_commands
check wrong_numbers wrong_numbers
check wrong_values wrong_values
check wrong_together wrong_together
check wrong_world wrong_world
check json_file json_file
check wrong_memory wrong_memory
check wrong_engine wrong_engine
check serve_unheard serve_unheard
check other_user other_user
check limits limits_json
check json_types json_types
check json_settings json_settings
check B4_write bench write --seconds 0.1
check B4_write_notify bench write --size 8 --segments 64 --notify --seconds 0.1
check B4_wake run bench wake --seconds 0.3 --json "$dir/wake.json"
check B4_wake_json python3 -m json.tool "$dir/wake.json"
check write_verify bench_verified write --size 4K --segments 3 --window 5 --verify --seconds 0.1
check write_verify_odd_size bench_verified write --size 1001 --verify --seconds 0.1
check write_own_memory bench_verified write --memory own --verify --seconds 0.1
check write_cold_verify bench_verified write --cold 16M --size 4K --verify --seconds 0.1
check S16_write_threads bench_verified write --threads 4 --size 4K --verify --seconds 0.2
check S2_write_small_depth bench_verified write --segments 200 --depth 8 --size 64 --verify --seconds 0.1
# An engine of fewer transfers than may be under way: those that have ended make room.
few_transfers() (
    export WEIR_TRANSFERS_MAX=3
    bench_verified write --size 2M --segments 3 --window 8 --verify --seconds 0.05 &&
        bench_verified read --size 2M --segments 3 --window 8 --verify --seconds 0.05 &&
        bench write --notify --window 64 --threads 3 --seconds 0.05
)
check write_few_transfers few_transfers
check write_qps bench write --qps 4 --size 4K --seconds 0.1
check read_verify bench_verified read --size 4K --verify --seconds 0.1
check read_own_memory bench_verified read --memory own --threads 2 --verify --seconds 0.1
check latency_notify bench write --latency --seconds 0.1
check latency_memory bench write --latency=memory --seconds 0.1
check B1_sweep sweep_verified write
check B1_sweep_reads sweep_verified read
check B1_sweep_messages sweep_verified send
check B2_pace paced --size 4K
check B2_pace_reads paced --op read --window 1 --size 1001
check B2_pace_messages paced --op send --size 100
check B2_pace_long_messages paced --op send --size 100000 --waiting 2
check B2_pace_own_memory paced --memory own --size 64K --qps 2
check B2_a_load_that_is_too_slow_is_refused too_slow
check B3_fill bench_verified fill --pages 64 --repeat 10
check B3_fill_own_memory bench_verified fill --pages 64 --repeat 3 --memory own
json_and_words() { # the lines of a person, beside JSON for a program
    "$weir" bench fill --pages 8 --json - 2>"$dir/words" | python3 -m json.tool >"$dir/json" &&
        grep -q 'writes alone' "$dir/words"
}
check json_leaves_the_words_on_stderr json_and_words
wildcard_called() {
    ! "$weir" bench write --peer "$1" 2>"$dir/words" && grep -q 'a wildcard names no host' "$dir/words"
}
check W10_a_wildcard_is_not_called wildcard_called 0.0.0.0:1
check W10_no_v6_wildcard_is_called wildcard_called '[::]:1'
check json_on_stdout sh -c '"$1" bench write --seconds 0.1 --json - 2>/dev/null | python3 -m json.tool' sh "$weir"
check trace_same_seed trace_same_seed
check trace_form trace_form
check trace_described trace_described
check B6_replay replay --pool 16M
check B6_replay_one_slot replay --pool 16M --window 1
check B6_replay_small_pool replay --window 64 --pool 8M
check B6_replay_paced replay --pool 16M --requests 50 --speedup 100
check B6_replay_own_memory replay --pool 16M --requests 50 --memory own
check serve_several serve_several 127.0.0.1:0
check serve_ipv6 serve_several '[::1]:0'
check serve_limit serve_limit
check serve_sessions serve_sessions
if "$weir" serve --metrics 127.0.0.1 2>&1 | grep -q 'without libmicrohttpd'; then
    echo 'skip B4_metrics: built without libmicrohttpd'
else
    check B4_metrics metrics
    check B4_metrics_wrong metrics_wrong
    check B4_metrics_crowd metrics_crowd
    if /usr/bin/python3 -c 'import prometheus_client' 2>/dev/null; then
        check B4_metrics_valid metrics_valid
    else
        echo 'skip B4_metrics_valid: no python3-prometheus-client here'
    fi
fi
check serve_crowded serve_crowded
check limit_below limit_below
check wrong_addresses wrong_addresses
check W9_unlike_places unlike_places
if run info | grep -q '^device ofi: available'; then
    check W9_unlike_devices unlike_devices
    check W10_full_range full_range
fi
check W10_serve_anywhere serve_anywhere
check W12_serve_advertised serve_advertised
check reader_gone reader_gone
check M7_latency_waits_asleep waits_asleep write --latency
check M7_memory_waits_asleep waits_asleep write --latency=memory
check M7_notify_waits_asleep waits_asleep write --notify
check M7_messages_wait_asleep waits_asleep send
check M7_message_latency_waits_asleep waits_asleep send --latency
check table_narrow narrow write --size 4K --verify --seconds 0.1
check H12_target_killed_write killed bench write --seconds 20
check H12_target_killed_latency killed bench write --latency --seconds 20
check H12_target_killed_verify killed bench write --verify --seconds 20
check H12_target_killed_send killed bench send --seconds 20
check H12_target_killed_send_latency killed bench send --latency --seconds 20
check H12_target_killed_fill killed bench fill --repeat 1000000
check H12_own_target_killed killed_own
check own_target_dies_with_bench bench_killed
finish
