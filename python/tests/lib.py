# SPDX-License-Identifier: Apache-2.0
"""What the tests share: engines on the device that WEIR_TEST_DEVICE names, pairs of them, and
processes that are told what to do.

No test looks at how long anything takes: PATIENCE is a bound that only ends what hangs.
"""
import contextlib
import os
import random
import signal
import subprocess
import sys
import textwrap
import unittest

import weir

DEVICE = os.environ.get("WEIR_TEST_DEVICE", "shm")
PATIENCE = 120.0
SANITIZED = bool(os.environ.get("WEIR_TEST_SANITIZED"))


def engine(**options):
    """An engine on the device of this run."""
    return weir.Engine(DEVICE, **options)


@contextlib.contextmanager
def pair(size=1 << 16, thread=True, access="rw"):
    """Two engines of this process, b's memory imported by a: (a, b, mine, theirs, peer, remote)."""
    with engine(thread=thread) as a, engine(thread=thread) as b:
        mine = a.allocate(size)
        theirs = b.allocate(size, access)
        peer = a.peer(b.address)
        remote = peer.remote(theirs.export())
        yield a, b, mine, theirs, peer, remote


def fill(buffer, seed):
    """Fills a buffer with bytes of that seed, and returns them."""
    content = random.Random(seed).randbytes(len(buffer))
    with memoryview(buffer) as view:
        view[:] = content
    return content


class Child:
    """A process that runs a program, with weir, lib and this run's device; lines go to and from it.

    The program is text; say(line) and hear() are there for it.
    """

    HEAD = textwrap.dedent("""
        import os, signal, sys, time
        sys.path.insert(0, %r)
        import weir, lib
        def say(line):
            print(line, flush=True)
        def hear():
            return sys.stdin.readline().rstrip()
    """) % os.path.dirname(os.path.abspath(__file__))

    def __init__(self, program, *words):
        self.process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-c", self.HEAD + textwrap.dedent(program), *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def hear(self):
        """The next line that it says; "" at its end."""
        return self.process.stdout.readline().rstrip()

    def say(self, line):
        """Tells it a line."""
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def kill(self, number=signal.SIGKILL):
        """Sends it a signal."""
        self.process.send_signal(number)

    def end(self):
        """Waits for its end: (exit status, what it said on standard error)."""
        out, err = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, err

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def run_program(program, *words):
    """Runs a program to its end: (exit status, output, errors)."""
    with Child(program, *words) as child:
        out, err = child.process.communicate(timeout=PATIENCE)
        return child.process.returncode, out, err


class Test(unittest.TestCase):
    """Each test ends without an engine of its own that is open."""

    longMessage = True

    def assert_nothing_posted(self, engine_, before):
        """Since that Stats no transfer began."""
        now = engine_.stats()
        for name in ("transfers_ok", "transfers_failed", "transfers_inline", "wrs_posted"):
            self.assertEqual(getattr(now, name), getattr(before, name), name)
