# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of the package mooncake: engines, memory by its address, and processes that
are told what to do. No test looks at how long anything takes."""
import contextlib
import ctypes
import mmap
import os
import random
import signal
import subprocess
import sys
import textwrap

from mooncake.engine import TransferEngine

PATIENCE = 120.0


def engine(metadata="P2PHANDSHAKE", name="127.0.0.1"):
    """An engine on the device of this run."""
    made = TransferEngine()
    assert made.initialize(name, metadata, "tcp", "") == 0
    return made


@contextlib.contextmanager
def hasty():
    """Engines that are opened here wait half a second for peers that are not there."""
    before = os.environ.copy()
    os.environ.update(dict.fromkeys(("MC_WEIR_TIMEOUT_MS", "WEIR_CONNECT_TIMEOUT_MS"), "500"))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def name_of(made):
    return f"127.0.0.1:{made.get_rpc_port()}"


class Bytes:
    """Memory with an address."""

    def __init__(self, length, seed=None):
        self.memory = mmap.mmap(-1, length)
        self.view = (ctypes.c_char * length).from_buffer(self.memory)
        self.address = ctypes.addressof(self.view)
        self.length = length
        if seed is not None:
            self.memory[:] = content(length, seed)


def content(length, seed):
    """Bytes of that seed."""
    return random.Random(seed).randbytes(length)


class Child:
    """A process that runs a program, with lib; lines go to and from it."""

    HEAD = textwrap.dedent("""
        import os, sys
        sys.path.insert(0, %r)
        import lib
        def say(line):
            print(line, flush=True)
        def hear():
            return sys.stdin.readline().rstrip()
    """) % os.path.dirname(os.path.abspath(__file__))

    def __init__(self, program):
        self.process = subprocess.Popen([sys.executable, "-c", self.HEAD + textwrap.dedent(program)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def hear(self):
        return self.process.stdout.readline().rstrip()

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.hear()

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.end()

    def end(self):
        self.process.stdin.close()
        self.process.wait(PATIENCE)
        self.process.stdout.close()


# A target: it says its name and the address of its memory, and answers "check SEED", "notes" and
# "anew".
TARGET = """
    made = lib.engine()
    memory = lib.Bytes(1 << 20, 1)
    assert made.register_memory(memory.address, memory.length) == 0
    say(f"{lib.name_of(made)} {memory.address}")
    while True:
        line = hear().split()
        if not line:
            break
        if line[0] == "check":
            say(memory.memory[:] == lib.content(memory.length, int(line[1])))
        elif line[0] == "notes":
            say(" ".join(f"{note.name}={note.msg}" for note in made.get_notifies()))
        elif line[0] == "anew":
            say(made.unregister_memory(memory.address) + made.register_memory(memory.address, memory.length))
"""


def target():
    """(child, name, address) of a target with 1 MiB of the seed 1."""
    child = Child(TARGET)
    name, address = child.hear().split()
    return child, name, int(address)
