#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""summary.py DIR: the figures of bench/run.sh in a few lines."""
import json
import os
import sys


def load(name):
    with open(os.path.join(sys.argv[1], name + ".json"), encoding="utf-8") as file:
        return json.load(file)


def of_limit(result):
    fraction = result.get("fraction_of_limit")
    return "" if fraction is None else f"  {100 * fraction:5.1f} % of {result['limit']['name']}"


def main():
    replay, latency, fill = load("replay"), load("latency"), load("fill")
    machine = replay["machine"]
    print(f"{machine['cpu']}, {machine['cpus_usable']} CPUs, Linux {machine['kernel']}, "
          f"weir {replay['versions']['weir']}, device {replay['device']}")
    print(f"replay      {replay['requests']} requests, {replay['bytes'] / 1e9:.1f} GB in "
          f"{replay['seconds']:.1f} s: {replay['bytes_per_s'] / 1e9:.2f} GB/s with making and "
          f"checking, {'all verified' if replay['verified'] else 'NOT VERIFIED'}")
    print(f"  transfers {replay['transfer_bytes_per_s'] / 1e9:8.2f} GB/s{of_limit(replay)}")
    print(f"  notified  {replay['latency_notified_ns']['p50'] / 1e6:8.2f} ms p50, "
          f"{replay['latency_notified_ns']['p99'] / 1e6:.2f} ms p99")
    print(f"latency     {latency['latency_ns']['p50']:8d} ns p50{of_limit(latency)}")
    print(f"page fill   {fill['write_bytes_per_s'] / 1e9:8.2f} GB/s{of_limit(fill)}")
    for name in ("write-hot", "write-cold"):
        result = load(name)
        print(f"{name:11} {result['bytes_per_s'] / 1e9:8.2f} GB/s{of_limit(result)}")
    rows = load("sweep")["results"]
    falls = [b["label"] for a, b in zip(rows, rows[1:]) if b["ops_per_s"] > 1.1 * a["ops_per_s"]]
    print(f"sweep       {rows[0]['ops_per_s'] / 1e6:.1f} M/s at {rows[0]['label']}, "
          f"{rows[-1]['bytes_per_s'] / 1e9:.1f} GB/s at {rows[-1]['label']}; "
          + ("operations never fall as sizes fall" if not falls else
             "more operations than at the size below it (by over 10 %): " + ", ".join(falls)))
    pace = load("pace")
    worst = min(pace["rows"], key=lambda row: row["error"])
    last = pace["rows"][-1]
    print(f"pace        {len(pace['rows'])} loads of {pace['bytes_per_s'] / 1e9:.2f} GB/s, the worst "
          f"missed by {-100 * worst['error']:.2f} %; at {last['percent']:g} %: "
          f"{last['latency_ns']['p50'] / 1e3:.1f} us p50, {last['latency_ns']['p999'] / 1e3:.1f} us p99.9")


if __name__ == "__main__":
    main()
