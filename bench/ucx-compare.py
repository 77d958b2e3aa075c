#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares weir with ucx_perftest (Debian's ucx-utils) on this machine, in alternating runs.

  ucx-compare.py [--weir PATH] [--op put|send] [--runs N] [--seconds T] [--sizes N,N...]
                 [--json FILE]

Both sides: two processes on two CPUs, shared memory (UCX_TLS=posix,cma), puts into the other
process's memory; one warm-up, then medians of N runs, weir and UCX in turn, so that what else
the machine does hits both.

Below 4 KiB the work compared is 64 puts: one weir write of 64 segments against ucp_put_bw with
64 puts outstanding (-O 64). From 4 KiB on one put is one write, always between the same two
buffers on either side (weir with --window 1, for another window would be other buffers; UCX with
16 puts outstanding, which are to the same buffer). Latency: 8 bytes, both sides polling the memory
(ucp_put_lat, weir --latency=memory); half the time from one put to the next. Both read a clock for
each round trip; UCX the time-stamp counter, weir clock_gettime(2), while the put is under way. weir
looks at its word 64 times between two calls of progress, ucx_perftest once.
weir reads the clock for one transfer of up to 64 (so many that they are 1 MiB), UCX for each put:
as the reading costs some 5 to 25 ns, this favours weir where a put takes less than 100 ns.

Messages (--op send): weir next to the better one of UCX's tag matching (tag_bw) and active messages
(ucp_am_bw), streamed; up to 256 bytes also several messages in each call of weir's (--batch 32).
UCX has as many outstanding as it likes best: its default (1), 16 and 64 are tried first, and the
best is measured. Latency: 8 bytes, half a round trip, next to the better of tag_lat and ucp_am_lat;
and weir's own, of 1 MiB in loans next to 8 bytes, without a loan and in one. A receiver of weir's
takes each message and gives it back; one of UCX's has it copied to a buffer of its own (tag), or
hears of it in a callback (am).

Not equal, and not to be made so: ucx_perftest puts from one buffer to one buffer, all of
them to the same address; each of weir's 64 segments has an address of its own, on a cache line of
its own. ucx_perftest has no cold mode: the cold rows put weir,
64 KiB at random places of 1 GiB, next to UCX's hot 64 KiB and to memcpy at the same places
(what weir reports as its limit); they are a ratio to the latter.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

SIZES = [8 << (2 * i) for i in range(10)] + [4 << 20]
SEND_SIZES = [8, 64, 512, 4096, 8192, 65536, 1 << 20, 8 << 20]
BATCH_MAX = 256  # bytes of a message of which several are sent by one call, too
PORT = 13400


def cpus():
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        sys.exit("ucx-compare: needs two CPUs")
    return allowed[0], allowed[1]


def ucx(test, size, iterations, outstanding):
    """Runs both ends; the last CSV row as a dictionary of floats."""
    global PORT
    PORT += 1
    env = dict(os.environ, UCX_TLS="posix,cma", UCX_WARN_UNUSED_ENV_VARS="n")
    client_cpu, server_cpu = cpus()
    args = ["ucx_perftest", "-p", str(PORT)]
    server = subprocess.Popen(["taskset", "-c", str(server_cpu)] + args, env=env,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(0.3)
        what = ["-t", test, "-s", str(size), "-n", str(iterations), "-w",
                str(max(10, iterations // 20)), "-f", "-v"]
        if outstanding:
            what += ["-O", str(outstanding)]
        out = subprocess.run(["taskset", "-c", str(client_cpu)] + args[:1] + ["127.0.0.1"] +
                             args[1:] + what, env=env, check=True, capture_output=True,
                             text=True, timeout=60).stdout
    finally:
        try:
            server.wait(timeout=5)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
    rows = [line for line in out.splitlines() if line.count(",") >= 7]
    names, values = rows[-2].split(","), rows[-1].split(",")
    return {name: float(value) for name, value in zip(names, values)}


def weir(path, arguments):
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        subprocess.run([path, "bench"] + arguments + ["--json", out.name], check=True,
                       stdout=subprocess.DEVNULL, timeout=120)
        return json.load(out)


def iterations_for(size, seconds):
    """Puts that take about that long at 10 GB/s or 20 M/s, whichever is slower."""
    return max(200, int(seconds * min(20e6, 10e9 / size)))


def alternate(runs, first, second):
    """Medians of two measurements, made in turn after one of each that does not count."""
    first(), second()
    pairs = [(first(), second()) for _ in range(runs)]
    return [statistics.median(values) for values in zip(*pairs)]


def put_rows(options, row):
    seconds = str(options.seconds)
    for size in options.sizes or SIZES:
        small = size < 4096
        extra = ["--window", "1"] + (["--segments", "64"] if small else [])
        count = iterations_for(size, options.seconds)
        a, b = alternate(
            options.runs,
            lambda: weir(options.weir, ["write", "--size", str(size), "--seconds", seconds] +
                         extra)["ops_per_s"],
            lambda: ucx("ucp_put_bw", size, count, 64 if small else 16)["overall_mr"])
        row(f"put {size} B" + (", 64 at a time" if small else ""), "op/s", a, b)
    a, b = alternate(
        options.runs,
        lambda: weir(options.weir, ["write", "--latency=memory", "--seconds",
                                    seconds])["latency_ns"]["p50"],
        lambda: 1000 * ucx("ucp_put_lat", 8, 500000, 0)["50.0_percentile_lat"])
    row("latency 8 B, median, one way", "ns", a, b, better_high=False)
    cold = [weir(options.weir, ["write", "--cold", "1G", "--seconds", seconds])
            for _ in range(options.runs)]
    a = statistics.median(r["bytes_per_s"] for r in cold)
    row("cold 64 KiB over 1 GiB, UCX hot", "B/s", a,
        65536 * ucx("ucp_put_bw", 65536, iterations_for(65536, options.seconds), 16)["overall_mr"])
    row("cold 64 KiB over 1 GiB, memcpy cold", "B/s", a,
        statistics.median(r["limit"]["bytes_per_s"] for r in cold))


def send_rows(options, row):
    seconds = str(options.seconds)

    def rate(size, extra):
        return weir(options.weir, ["send", "--size", str(size), "--seconds", seconds] +
                    extra)["ops_per_s"]

    def latency(extra):
        return weir(options.weir, ["send", "--latency", "--seconds", seconds] +
                    extra)["latency_ns"]["p50"]

    for size in options.sizes or SEND_SIZES:
        count = iterations_for(size, options.seconds)
        tried = {(test, outstanding): ucx(test, size, count, outstanding)["overall_mr"]
                 for test in ("tag_bw", "ucp_am_bw") for outstanding in (0, 16, 64)}
        test, outstanding = max(tried, key=tried.get)
        for extra in [[]] + ([["--batch", "32"]] if size <= BATCH_MAX else []):
            a, b = alternate(options.runs, lambda: rate(size, extra),
                             lambda: ucx(test, size, count, outstanding)["overall_mr"])
            row(f"message {size} B" + (", 32 in a call" if extra else "") + f", {test}", "op/s", a,
                b)
        if size >= 4096:
            a, b = alternate(options.runs, lambda: rate(size, []),
                             lambda: weir(options.weir, ["write", "--size", str(size), "--seconds",
                                                         seconds])["ops_per_s"])
            row(f"message {size} B, a write of weir's", "op/s", a, b)
    for test in ("tag_lat", "ucp_am_lat"):
        a, b = alternate(options.runs, lambda: latency([]),
                         lambda: 1000 * ucx(test, 8, 500000, 0)["50.0_percentile_lat"])
        row(f"latency 8 B, one way, {test}", "ns", a, b, better_high=False)
    for text, extra in (("8 B", []), ("8 B in a loan", ["--loan"])):
        a, b = alternate(options.runs, lambda: latency(["--loan", "--size", "1M"]),
                         lambda: latency(extra))
        row("latency of 1 MiB in a loan, " + text, "ns", a, b, better_high=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weir", default="build/weir")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--op", choices=["put", "send"], default="put")
    parser.add_argument("--sizes", type=lambda text: [int(size) for size in text.split(",")],
                        help="bytes of a put or a message, with commas")
    parser.add_argument("--json")
    options = parser.parse_args()
    if subprocess.run(["which", "ucx_perftest", "taskset"], capture_output=True).returncode:
        sys.exit("ucx-compare: needs ucx_perftest (ucx-utils) and taskset (util-linux)")
    rows = []

    def row(label, unit, a, b, better_high=True):
        ratio = a / b if better_high else b / a
        rows.append({"what": label, "unit": unit, "weir": a, "other": b, "ratio": ratio})
        print(f"{label:34} {a:14.6g} {b:14.6g} {unit:6} {ratio:8.2f}x", flush=True)

    print(f"{'':34} {'weir':>14} {'UCX':>14} {'':6} {'weir is':>9}")
    (put_rows if options.op == "put" else send_rows)(options, row)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump({"runs": options.runs, "rows": rows}, out, indent=2)


if __name__ == "__main__":
    main()
