#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python package beside the same loops in C (python_loops.c), in turns, on shm.

  python.py [--build DIRECTORY] [--runs N] [KIND...]       PYTHONPATH names the package

pages     64 KiB to one place after another of 64 MiB, slices that are made once
segments  10,000 segments of 4 KiB in one transfer, an array of N x 5
submit8   a write of 8 bytes, ns
status    the status of a transfer that is under way, ns
ping      a notification there and back between two processes; in C both wait in weir_engine_wait,
          which spins before it sleeps, in vain where others keep the processors busy; asyncio, which
          sleeps at once, on one side; on both; and both against C that sleeps at once, too

The first four run in turns in one process, the loop in C and the same in Python, some milliseconds
each, TURNS times; a ratio is the median of those of runs that follow each other. Of ping it is the
median of N runs (7) in turn. Behind a ratio stands how far apart the middle half of them is. What
Python's own loop takes, with nothing in it, is in the figures.
"""
import argparse
import asyncio
import ctypes
import os
import statistics
import subprocess
import sys
import time

PAGE, PAGES, PIECE, PIECES = 65536, 1024, 4096, 10000
COUNTS = {"pages": PAGES, "segments": 2, "submit8": 20000, "status": 100000, "ping": 5000}
TURNS = 60
TARGETS = {"pages": ("C / Python", 0.95), "segments": ("C / Python", 0.97),
           "submit8": ("ns", 500), "status": ("ns", 110), "ping": ("Python / C", 3)}


def timed(call, count):
    """Nanoseconds of one."""
    begin = time.perf_counter_ns()
    call(count)
    return (time.perf_counter_ns() - begin) / count


def loop_of(weir, kind, a, b):
    """The loop of that kind, as a function of how often."""
    mine, theirs = a.allocate(PAGE * PAGES, ""), b.allocate(PAGE * PAGES)
    with memoryview(mine) as view:
        view[:] = b"\1" * len(view)
    peer = a.peer(b.address)
    remote = peer.remote(theirs.export())
    peer.write(mine[:8], remote[:8]).wait()
    write = peer.write
    if kind == "pages":
        places = [(mine[i:i + PAGE], remote[i:i + PAGE])
                  for i in (n * 7 % PAGES * PAGE for n in range(PAGES))]

        def run(times):
            for _ in range(times // PAGES):
                for local, there in places:
                    write(local, there).wait()
    elif kind == "segments":
        import numpy
        rows = numpy.zeros((PIECES, 5), numpy.uint64)
        rows[:, 1] = numpy.arange(PIECES) * PIECE
        rows[:, 3] = numpy.arange(PIECES) * 7 % PIECES * PIECE
        rows[:, 4] = PIECE

        def run(times):
            for _ in range(times):
                write(rows, memories=(mine,), remotes=(remote,)).wait()
    elif kind == "submit8":
        local, there = mine[:8], remote[:8]

        def run(times):
            for _ in range(times):
                write(local, there)
    else:
        status = a.peer("127.0.0.1:1").notify(1).status

        def run(times):
            for _ in range(times):
                status()
    run.target = theirs  # memory goes with its last reference
    return run


def loops(weir, library, kind, count):
    """Both loops in turns: [(ns of one in C, ns of one in Python), ...]."""
    c = ctypes.CDLL(library)
    c.loops_open.restype = ctypes.c_void_p
    c.loops_time.restype = ctypes.c_double
    c.loops_time.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_long]
    in_c = c.loops_open()
    with weir.Engine() as a, weir.Engine(thread=True) as b:
        run = loop_of(weir, kind, a, b)
        run(count)
        c.loops_time(in_c, kind.encode(), count)
        return [(c.loops_time(in_c, kind.encode(), count), timed(run, count)) for _ in range(TURNS)]


def ping(weir, count, address):
    """asyncio on this side; ns of a round trip."""
    async def main():
        with weir.Engine() as engine:
            peer = engine.peer(address)
            for i in range(-100, count):
                if i == 0:
                    begin = time.perf_counter_ns()
                peer.notify(1)
                await engine.next_notification()
            taken = (time.perf_counter_ns() - begin) / count
            await peer.notify(0)
            await asyncio.sleep(0.05)
            return taken
    return asyncio.run(main())


def pong(weir):
    """asyncio on the other side."""
    async def main():
        with weir.Engine() as engine:
            print(engine.address, flush=True)
            async for note in engine.notifications():
                if note.tag == 0:
                    break
                note.peer.notify(note.tag)
            await asyncio.sleep(0.05)
    asyncio.run(main())


def child(words):
    """What this program does when it is started as one side."""
    import weir
    if words[0] == "pong":
        pong(weir)
    else:
        print(ping(weir, int(words[1]), words[2]))


def round_trip(side, other, count):
    """One run of ping: ns of one. side and other: a program's words."""
    with subprocess.Popen([*other, "pong"], stdout=subprocess.PIPE, text=True) as responder:
        try:
            address = responder.stdout.readline().strip()
            taken = subprocess.run([*side, "ping", str(count), address], check=True,
                                   stdout=subprocess.PIPE, text=True).stdout
            responder.wait(10)
        finally:
            responder.kill()
    return float(taken)


def tell(name, kind, pairs):
    """A line of what pairs of (C, Python) say."""
    what, target = TARGETS[kind]
    slower = what == "Python / C"
    ratios = sorted(p / c if slower else c / p for c, p in pairs)
    middle = len(ratios) // 4
    print(f"{name:26} C {statistics.median(c for c, _ in pairs):10.1f} ns  "
          f"Python {statistics.median(p for _, p in pairs):10.1f} ns  "
          f"{'Python / C' if slower else 'C / Python'} {statistics.median(ratios):.3f} "
          f"({ratios[middle]:.3f} to {ratios[-1 - middle]:.3f})  target {target} {what}", flush=True)


def main():
    """The command."""
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", default="build", help="where bench/python_loops is")
    parser.add_argument("--runs", type=int, default=7, help="of ping")
    parser.add_argument("kinds", nargs="*", metavar="KIND", choices=[*COUNTS, []], default=[])
    options = parser.parse_args()
    here = os.path.abspath(options.build) + "/bench/"
    in_python, in_c = [sys.executable, os.path.abspath(__file__), "--child"], [here + "python_loops"]
    import weir
    for kind in options.kinds or COUNTS:
        if kind != "ping":
            tell(kind, kind, loops(weir, here + "libpython_loops.so", kind, COUNTS[kind]))
            continue
        asleep = ["env", "PYTHON_LOOPS_SLEEP=1", *in_c]
        for name, c, other in (("ping, asyncio on one side", in_c, in_c),
                               ("ping, asyncio on both", in_c, in_python),
                               ("one side, C asleep", asleep, asleep),
                               ("both, C asleep", asleep, in_python)):
            tell(name, kind, [(round_trip(c, c, COUNTS[kind]),
                               round_trip(in_python, other, COUNTS[kind]))
                              for _ in range(options.runs)])


if __name__ == "__main__":
    main()
