#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tool_results.py make FILE [FACTOR]: results as `weir bench all` writes them, made up: all benches,
three rounds, the same each time. FACTOR times as fast, the writes alone.

tool_results.py odd RESULTS WEIR DIR COUNT: breaks so many members of RESULTS, and looks what
`weir report` makes of it: a page that is sound, or one line and no page."""
import copy
import json
import os
import random
import subprocess
import sys
import xml.etree.ElementTree

ROUNDS = 3
SPREAD = (1.0, 0.99, 1.02)  # of the rounds
MACHINE = {"kernel": "6.1.0", "architecture": "x86_64", "cpu": "A <CPU> & \"more\"", "cpus_usable": 2,
           "cpus_online": 2, "memory_bytes": 1 << 34}
VERSIONS = {"weir": "0.1.0", "compiler": "gcc 12", "libc": "2.36", "jansson": "2.14"}
SIZES = [8 << i for i in range(20)]
LOADS = [1, 5, 10, 25, 50, 75, 90]


def latency(p50):
    return {"p50": int(p50), "p99": int(1.5 * p50), "p999": int(4 * p50), "p9999": int(20 * p50),
            "max": int(400 * p50), "samples": 100000}


def row(label, rate, size, p50, limit):
    return {"label": label, "ops_per_s": rate / size, "transfers_per_s": rate / size,
            "bytes_per_s": rate, "cpu_ns_per_op": {"initiator": size / rate * 1e9, "target": 0.1},
            "verified": False, "checked_bytes": 0, "wrong_bytes": 0, "ops": 1000,
            "bytes": 1000 * size, "seconds": 1.0, "operation": "one segment",
            "latency_ns": latency(p50), "fraction_of_limit": rate / limit, "size": size,
            "limit": {"name": "vector copy of " + label, "bytes_per_s": limit, "latency_ns": None}}


def sweep(speed):
    def limit(size):
        return 3e10 * size / (size + 500) * (0.5 if size > 1 << 20 else 1)
    return {"results": [row(f"{size} B", speed * limit(size) * size / (size + 1500), size,
                            60 + size / 20, limit(size)) for size in SIZES]}


def results(name, speed, k):
    """The members of a bench's result; k: the round's deviation."""
    if name == "limits":
        return {"hot": [{"size": size, "memcpy_bytes_per_s": k * 2.8e10 * size / (size + 400),
                         "nontemporal_bytes_per_s": k * 1e10 if size >= 64 else None,
                         "process_vm_writev_bytes_per_s": k * 9e9 * size / (size + 9000)}
                        for size in SIZES],
                "cold_64k": {"span_bytes": 1 << 30, "memcpy_bytes_per_s": k * 7e9,
                             "nontemporal_bytes_per_s": k * 1.1e10}, "cache_line_ns": 61 / k}
    if name == "replay":
        return dict(row("replay", k * 4.1e9, 524288, 5e6, 1.1e10), requests=2000, block_bytes=524288,
                    transfer_bytes_per_s=k * 9.7e9, fraction_of_limit=k * 0.88,
                    split={"generate_ns": 1, "transfer_ns": 1, "verify_ns": 1},
                    latency_notified_ns={"p50": 4100000, "p99": 25000000, "p999": 1, "max": 1})
    if name in ("latency", "send latency"):
        return dict(row("ping", 1e8, 16, 131 / k, 1e9), fraction_of_limit=k * 0.46,
                    limit={"name": "cache line between two CPUs, one way", "bytes_per_s": None,
                           "latency_ns": 61 / k})
    if name == "wake":
        return dict(row("wake", 1e3, 1, 9000 / k, 1e9), fraction_of_limit=None, limit=None,
                    idle_cpu_fraction=0.0004 / k, idle_ns=1, idle_cpu_ns=1)
    if name == "fill":
        return dict(row("fill", k * 2e9, 65536, 7e6, 1.1e10), write_bytes_per_s=k * 8e9)
    if name in ("write hot", "write cold"):
        return row("64 KiB", speed * k * (2.7e10 if name == "write hot" else 9.5e9), 65536, 38000 / k,
                   3e10 if name == "write hot" else 1.1e10)
    if name.startswith("sweep"):
        return sweep(k * (speed if name == "sweep write" else 0.8))
    if name == "pace":
        return dict(row("64 KiB", k * 2.6e10, 65536, 30000, 3e10),
                    rows=[{"percent": load, "target_bytes_per_s": load * 2.6e8,
                           "error": (-1e-3 if load > 1 else -1e-5) * k,
                           "achieved_bytes_per_s": load * 2.6e8, "ops_planned": 99, "ops": 99,
                           "submits_repeated": 0, "stalls": 0, "seconds": 1.0,
                           "latency_ns": latency((2500 + 90 * load) / k)} for load in LOADS])
    if name == "incast":
        rates = [k * (1.6e9 - 3e7 * i) for i in range(8)]
        return {"alone_bytes_per_s": k * 1.2e10, "sum_bytes_per_s": sum(rates),
                "slowest_bytes_per_s": min(rates), "fastest_bytes_per_s": max(rates),
                "slowest_of_mean": 8 * min(rates) / sum(rates), "fairness": 0.996,
                "rows": [{"bytes_per_s": rate} for rate in rates]}
    if name == "storm":
        return {"rows": [{"peers": peers, "up": peers, "failed": 0, "seconds": peers / 1500 / k,
                          "handshakes_per_s": 1500 * k, "resent_per_handshake": 0.0,
                          "cpu_ns_per_handshake": {"crowd": 400000 / k, "target": 210000 / k},
                          "memory_bytes_per_peer": {"engine": 9000, "heap": 14000,
                                                    "segment": 65536}} for peers in (250, 1000)]}
    assert name == "faults"
    names = ("a QP breaks", "the target stops for <1 s>", "control connections are cut")
    return {"step_ms": 10, "timeline": [0 if 100 < i < 103 or 200 < i < 290 else
                                        2.4e8 * k * (1 + 0.05 * (i % 3)) for i in range(400)],
            "faults": [{"name": each, "at_ms": 1000 * (i + 1), "gap_ms": gap / k,
                        "recovered_ms": 1.2 * gap / k, "replays": 16, "lost": 0, "wrong_bytes": 0}
                       for i, (each, gap) in enumerate(zip(names, (24, 900, 0.3)))]}


NAMES = ("limits", "replay", "latency", "send latency", "wake", "fill", "write hot", "write cold",
         "sweep write", "sweep read", "sweep send", "pace", "incast", "storm", "faults")


def make(factor):
    def result(name, k):
        return dict(results(name, factor, k), bench=name, device="shm", machine=MACHINE,
                    versions=VERSIONS, options={"size": 65536, "window": 16, "verify": False,
                                                "peer": None, "memory": "shared", "seconds": 1.0})
    return {"format": 1, "started": "2026-01-31T12:00:00Z", "seconds": 100.5, "complete": True,
            "options": {"rounds": ROUNDS, "quick": False, "trace": None, "device": "shm"},
            "versions": VERSIONS, "machine": MACHINE,
            "benches": [{"name": name, "command": "bench " + name,
                         "rounds": [{"seconds": 1.5, "status": 0, "error": None,
                                     "result": result(name, k)} for k in SPREAD]}
                        for name in NAMES]}


def places(at, path=()):
    """The paths of all members and elements, but of long arrays the first and the last."""
    if isinstance(at, dict):
        keys = list(at)
    elif isinstance(at, list):
        keys = sorted({0, len(at) - 1}) if at else []
    else:
        return
    for key in keys:
        yield path + (key,)
        yield from places(at[key], path + (key,))


ODD = (None, True, -1, 0, 1e300, -1e300, 1 << 62, "<script>alert(1)</script>", "\x01\uffff]]>&\"'", "\u20ac" * 200, [], {},
       [[]], {"rounds": None}, [None] * 3)


def broken(good, rng):
    """A copy with some members replaced, or gone, or of another's value."""
    result = copy.deepcopy(good)
    paths = list(places(good))
    done = []
    for path in rng.sample(paths, rng.choice((1, 1, 1, 3, 30))):
        at = result
        try:
            for key in path[:-1]:
                at = at[key]
            if rng.random() < 0.2:
                del at[path[-1]]
            else:
                at[path[-1]] = copy.deepcopy(rng.choice(ODD))
        except (KeyError, IndexError, TypeError):
            continue  # what was broken before has it no more
        done.append(path)
    return result, done


def sound(page):
    """Whether the page is well-formed, has no script, and nothing of another place."""
    with open(page, encoding="utf-8") as file:
        text = file.read()
    root = xml.etree.ElementTree.fromstring(text.replace("<!DOCTYPE html>\n", ""))
    for element in root.iter():
        assert not element.tag.endswith("}script") and element.tag != "script", "a script"
        for name, value in element.attrib.items():
            assert not name.startswith("on"), name
            assert name not in ("src", "action") and "://" not in value, (name, value)
            assert not name.endswith("href") or value.startswith("#"), value
            assert name != "style" or not ("nan" in value or "inf" in value), value
    return text


def odd(good, weir, directory, count):
    rng = random.Random(7)
    page, file = os.path.join(directory, "odd.html"), os.path.join(directory, "odd.json")
    pages = 0
    for i in range(count):
        result, done = broken(good, rng)
        with open(file, "w", encoding="utf-8") as out:
            json.dump(result, out)
        if os.path.exists(page):
            os.remove(page)
        files = [file] if i % 2 else [file, file]
        # gnuplot for some: the others ask what does not depend on it.
        environment = dict(os.environ) if i % 25 == 0 else dict(os.environ, PATH="/nonexistent")
        ended = subprocess.run([weir, "report", *files, "--out", page], capture_output=True,
                               env=environment, timeout=600, check=False)
        lines = ended.stderr.decode().splitlines()
        try:
            if ended.returncode == 0:
                assert not lines, lines
                assert "alert(1)" not in sound(page).replace("&lt;script&gt;alert(1)", "")
                pages += 1
            else:
                assert ended.returncode == 1 and len(lines) == 1 and not os.path.exists(page), lines
        except (AssertionError, xml.etree.ElementTree.ParseError) as error:
            sys.exit(f"{i}: {done}: {ended.returncode}, {error}")
    print(f"{pages} pages of {count}")
    assert 10 < pages < count - 10


if __name__ == "__main__":
    if sys.argv[1] == "make":
        with open(sys.argv[2], "w", encoding="utf-8") as out:
            json.dump(make(float(sys.argv[3]) if len(sys.argv) > 3 else 1.0), out)
    elif sys.argv[1] == "sound":
        sound(sys.argv[2])
    else:
        with open(sys.argv[2], encoding="utf-8") as file:
            odd(json.load(file), sys.argv[3], sys.argv[4], int(sys.argv[5]))
