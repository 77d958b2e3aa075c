# SPDX-License-Identifier: Apache-2.0
"""A numpy array moves from one process into another's memory, by name: python3 -m weir.

The example is two programs, which are printed and run. The first waits to be written to, the second
opens the first one's memory by its name and writes. Only the address is carried from one to the
other, as a word of the command line.
"""
import importlib.util
import subprocess
import sys

TARGET = """\
import numpy, weir
with weir.Engine() as engine:
    memory = engine.allocate(8 * 1000)
    engine.publish("numbers", memory)
    print(engine.address, flush=True)
    note = engine.notification()
    print(note.tag, numpy.frombuffer(memory).sum())
"""

SOURCE = """\
import sys, numpy, weir
with weir.Engine() as engine:
    peer = engine.peer(sys.argv[1])
    numbers = engine.register(numpy.arange(1000.0))
    peer.write(numbers, peer.remote("numbers"), notify=42).wait()
"""

SAID = "42 499500.0"


def run(target=TARGET, source=SOURCE):
    """Runs both: (what the target said behind its address, whether both ended well)."""
    with subprocess.Popen([sys.executable, "-c", target], stdout=subprocess.PIPE, text=True) as process:
        address = process.stdout.readline().strip()
        done = subprocess.run([sys.executable, "-c", source, address], check=False)
        if done.returncode != 0:
            process.terminate()  # nobody writes to it any more
        said = process.stdout.read().strip()
    return said, done.returncode == 0 and process.returncode == 0


def main():
    """Prints both programs, runs them, and says what came of it."""
    if importlib.util.find_spec("numpy") is None:
        print("the example needs numpy, which this Python does not have (Debian: python3-numpy)",
              file=sys.stderr)
        return 1
    print("# target.py\n" + TARGET + "\n# source.py ADDRESS\n" + SOURCE)
    said, good = run()
    print(f"target.py says: {said}")
    return 0 if good and said == SAID else 1
