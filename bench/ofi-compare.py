#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares weir's ofi device with a bare loop over the same provider (ofi_bare) and with
ucx_perftest over TCP (Debian's ucx-utils, left out where it is not installed), in turns.

  ofi-compare.py [--weir PATH] [--bare PATH] [--runs N] [--seconds T] [--sizes N,N...] [--depth D]
                 [--every N] [--wait spin|sleep] [--best] [--netns] [--congestion NAME] [--free]
                 [--json FILE]

Two processes, each on a CPU of its own (--free: on any), over 127.0.0.1; with --netns (as root) in
two network namespaces that a veth pair joins. Of each size one warm-up, then medians of N runs of
all three in turn, so that what else the machine does hits them all. Behind each median stands how
far apart its runs were, (max - min) / median; a ratio is the median of those of runs that follow
each other. Where others use the machine, the best of many runs (--best) says more.

TCP's congestion control is the namespaces' own (--congestion). BBR takes seconds to find out what a
path carries, and runs of a second are far apart with it; cubic finds it at once.

Writes: D in flight (16), always between the same D places on either side. The bare loop asks for a
completion of delivery of every write (--every N: of one in N). weir does that where it has nothing
else in flight, and leaves some out where others are behind them. UCX: ucp_put_bw with -O D. Its
puts complete when they are sent, so that D are not in flight as they are in the others; it waits
for the target once, at the end.

Latency, half a round trip, median. notified: 8 bytes and a message behind them, each way; weir's
notification is such a message. UCX has no such thing; next to it stand its put of 8 bytes, both
sides polling the memory (ucp_put_lat), and a message of 8 bytes (tag_lat).

A target of weir's polls for 50 us, and for 10 ms of a ping-pong, before it sleeps. The bare one
does the same, or polls for ever with --wait spin. UCX's polls for ever.
"""
import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

SIZES = [8, 512, 4096, 16384, 65536, 262144, 1 << 20, 4 << 20]
PORT = 13700
ADDRESSES = ("198.18.0.1", "198.18.0.2")  # kept for benchmarks (RFC 2544)


class Failed(Exception):
    """A command did; says which, and what it printed."""


class Side:
    """Where a process runs: words in front of its command, its address and interface."""

    def __init__(self, words, address, interface):
        self.words = words
        self.address = address
        self.interface = interface

    def environment(self):
        return dict(os.environ, WEIR_OFI_ADDRESS=self.address, UCX_TLS="tcp",
                    UCX_NET_DEVICES=self.interface, UCX_WARN_UNUSED_ENV_VARS="n")

    def start(self, command, **more):
        return subprocess.Popen(self.words + command, env=self.environment(), text=True, **more)

    def run(self, command):
        done = subprocess.run(self.words + command, env=self.environment(), text=True,
                              capture_output=True, timeout=120, check=False)
        if done.returncode:
            raise Failed(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()}")
        return done.stdout


def ip(*words):
    subprocess.run(["ip", *words], check=True)


@contextlib.contextmanager
def sides(options):
    """The target's and the initiator's."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < 2:
        sys.exit("ofi-compare: needs two CPUs")
    pins = [[] if options.free else ["taskset", "-c", str(cpu)] for cpu in (allowed[1], allowed[0])]
    if not options.netns:
        yield [Side(pin, "127.0.0.1", "lo") for pin in pins]
        return
    names = [f"weir-ofi-{os.getpid()}-{end}" for end in "ab"]
    links = [f"wo{os.getpid()}{end}" for end in "ab"]
    made = []
    try:
        for name in names:
            ip("netns", "add", name)
            made.append(name)
        ip("link", "add", links[0], "netns", names[0], "type", "veth", "peer", "name", links[1],
           "netns", names[1])
        for name, link, address in zip(names, links, ADDRESSES):
            ip("-n", name, "address", "add", address + "/30", "dev", link)
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", link, "up")
            if options.congestion:
                ip("netns", "exec", name, "sh", "-c",
                   f"echo {options.congestion} >/proc/sys/net/ipv4/tcp_congestion_control")
        yield [Side(["ip", "netns", "exec", name] + pin, address, link)
               for name, pin, address, link in zip(names, pins, ADDRESSES, links)]
    finally:
        for name in made:
            ip("netns", "delete", name)  # its end of the pair goes with it


class Servers:
    """The targets of weir and of the bare loop; each sleeps while the others are measured."""

    def __init__(self, options, target):
        self.processes = []
        bare = [options.bare, "serve", "--address", target.address, "--wait", options.wait,
                "--region", str(options.depth * max(options.sizes) + (1 << 20))]
        weir = [options.weir, "serve", "--device", "ofi", "--listen", target.address + ":0"]
        try:
            self.bare = self.serve(target, bare)
            self.weir = self.serve(target, weir)
        except BaseException:
            self.stop()
            raise

    def serve(self, target, command):
        process = target.start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.processes.append(process)
        line = process.stdout.readline().strip()
        if not line:
            raise Failed(f"{' '.join(command)} does not serve")
        return line

    def stop(self):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait()


class Bench:
    """The runs; each returns a figure."""

    def __init__(self, options, target, initiator, servers):
        self.options = options
        self.target = target
        self.initiator = initiator
        self.servers = servers

    def bare(self, command, figure, words):
        out = self.initiator.run([self.options.bare, command, "--peer", self.servers.bare,
                                  "--seconds", str(self.options.seconds)] + words)
        return {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1])
                for line in out.splitlines()}[figure]

    def weir(self, words):
        with tempfile.NamedTemporaryFile(suffix=".json") as out:
            self.initiator.run([self.options.weir, "bench", "write", "--device", "ofi", "--peer",
                                self.servers.weir, "--seconds", str(self.options.seconds),
                                "--json", out.name] + words)
            return json.load(out)

    def ucx(self, test, size, iterations, words):
        """Its target does not say when it is there: where the client comes too early, a little
        later. The last CSV row as a dictionary of floats."""
        last = None
        for pause in (0.3, 1, 3):
            try:
                return self.ucx_once(test, size, iterations, words, pause)
            except Failed as failed:
                last = failed
        raise last

    def ucx_once(self, test, size, iterations, words, pause):
        global PORT
        PORT += 1
        command = ["ucx_perftest", "-p", str(PORT)]
        server = self.target.start(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            time.sleep(pause)
            out = self.initiator.run(command[:1] + [self.target.address] + command[1:] +
                                     ["-t", test, "-s", str(size), "-n", str(iterations), "-w",
                                      str(max(10, iterations // 20)), "-f", "-v"] + words)
        except Failed:
            server.kill()
            raise
        finally:
            try:
                server.wait(timeout=5)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
        rows = [line for line in out.splitlines() if line.count(",") >= 7]
        names, values = rows[-2].split(","), rows[-1].split(",")
        return {name: float(value) for name, value in zip(names, values)}

    def write_runs(self, size):
        depth = ["--depth", str(self.options.depth)]
        window = ["--window", str(self.options.depth)]
        count = max(100, int(self.options.seconds * min(100e3, 1.5e9 / size)))
        return {
            "bare": lambda: self.bare("write", "operations/s", depth +
                                      ["--size", str(size), "--every", str(self.options.every)]),
            "weir": lambda: self.weir(window + ["--size", str(size)])["ops_per_s"],
            "UCX": lambda: self.ucx("ucp_put_bw", size, count,
                                    ["-O", str(self.options.depth)])["overall_mr"],
        }

    def latency_runs(self, test):
        count = max(100, int(self.options.seconds * 20e3))
        return {
            "bare": lambda: self.bare("latency", "us", []),
            "weir": lambda: self.weir(["--latency"])["latency_ns"]["p50"] / 1000,
            "UCX": lambda: self.ucx(test, 8, count, [])["50.0_percentile_lat"],
        }


def in_turn(runs, functions, middle=statistics.median):
    """Medians, or others, and spreads, of measurements in turn after one of each that does not
    count."""
    for function in functions.values():
        function()
    seen = {name: [] for name in functions}
    for _ in range(runs):
        for name, function in functions.items():
            seen[name].append(function())
    return {name: (middle(values),
                   (max(values) - min(values)) / statistics.median(values), values)
            for name, values in seen.items()}


class Table:
    """What is printed, row by row, and kept for --json."""

    def __init__(self, best):
        self.best = best
        self.rows = []
        print(f"{'':26} {'bare':>10} {'':5} {'weir':>10} {'':5} {'UCX':>10} {'':5} {'':6}"
              f"{'weir/bare':>10} {'weir/UCX':>9}")

    def ratio(self, figures, name, better_high):
        """weir's to another's, above 1 where weir is the better one."""
        pairs = zip(figures["weir"][2], figures[name][2])
        if self.best:
            pairs = [(figures["weir"][0], figures[name][0])]
        return statistics.median(a / b if better_high else b / a for a, b in pairs)

    def add(self, label, unit, figures, better_high=True):
        text = f"{label:26}"
        for name in ("bare", "weir", "UCX"):
            if name in figures:
                text += f" {figures[name][0]:10.5g} {100 * figures[name][1]:4.0f}%"
            else:
                text += f" {'none':>10} {'':5}"
        ratios = {name: self.ratio(figures, name, better_high) for name in ("bare", "UCX")
                  if name in figures}
        text += f" {unit:5}" + "".join(
            f"{ratios[name]:9.2f}x" if name in ratios else f"{'-':>10}" for name in ("bare", "UCX"))
        print(text, flush=True)
        self.rows.append({"what": label, "unit": unit, "ratios": ratios,
                          "runs": {name: figure[2] for name, figure in figures.items()}})


def size_text(size):
    for unit, bytes_of in (("MiB", 1 << 20), ("KiB", 1024)):
        if size % bytes_of == 0:
            return f"{size // bytes_of} {unit}"
    return f"{size} B"


def compare(bench, options, has_ucx):
    table = Table(options.best)

    def only(functions):
        return {name: function for name, function in functions.items() if name != "UCX" or has_ucx}

    for size in options.sizes:
        table.add("write " + size_text(size), "op/s",
                  in_turn(options.runs, only(bench.write_runs(size)),
                          max if options.best else statistics.median))
    for test in ("ucp_put_lat", "tag_lat") if has_ucx else ("",):
        table.add(f"notified 8 B, {test}".rstrip(", "), "us",
                  in_turn(options.runs, only(bench.latency_runs(test)),
                          min if options.best else statistics.median), better_high=False)
    return table.rows


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weir", default="build/weir")
    parser.add_argument("--bare", default="build/bench/ofi_bare")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--sizes", type=lambda text: [int(size) for size in text.split(",")],
                        default=SIZES, help="bytes of a write, with commas")
    parser.add_argument("--depth", type=int, default=16, help="writes in flight")
    parser.add_argument("--every", type=int, default=1, help="the bare loop: one completion in N")
    parser.add_argument("--wait", choices=["spin", "sleep"], default="sleep",
                        help="how the bare target waits")
    parser.add_argument("--best", action="store_true", help="the best run instead of the median")
    parser.add_argument("--netns", action="store_true", help="between two network namespaces")
    parser.add_argument("--congestion", metavar="NAME", help="TCP's, with --netns")
    parser.add_argument("--free", action="store_true", help="processes on any CPU")
    parser.add_argument("--json")
    options = parser.parse_args()
    if options.congestion and not options.netns:
        parser.error("--congestion needs --netns")
    if shutil.which("taskset") is None:
        sys.exit("ofi-compare: needs taskset (util-linux)")
    has_ucx = shutil.which("ucx_perftest") is not None
    if not has_ucx:
        print("no ucx_perftest (ucx-utils): UCX is left out")
    try:
        with sides(options) as (target, initiator):
            servers = Servers(options, target)
            try:
                rows = compare(Bench(options, target, initiator, servers), options, has_ucx)
            finally:
                servers.stop()
    except Failed as failed:
        sys.exit(f"ofi-compare: {failed}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump({"runs": options.runs, "depth": options.depth, "every": options.every,
                       "best": options.best, "netns": options.netns,
                       "congestion": options.congestion, "rows": rows}, out, indent=2)


if __name__ == "__main__":
    main()
