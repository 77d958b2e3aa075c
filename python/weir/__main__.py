# SPDX-License-Identifier: Apache-2.0
"""python3 -m weir [example | info]: an array moves between two processes, by name; what is here."""
import argparse
import sys

import weir
from . import example


def info():
    """What `weir info` says of the library that this package has inside."""
    print(f"weir {weir.__version__}, Python {sys.version.split()[0]}")
    for device in weir.devices():
        state = "available" if device.available == 0 else \
            weir._errors.CLASSES[device.available].sentence
        print(f"device {device.name}: {state}" + (f"; {device.note}" if device.note else ""))
    wrong = 0
    for setting in weir.settings():
        if setting.source != "default" or setting.status != 0:
            value = setting.text or ("auto" if setting.in_force is None else
                                     f"{setting.in_force}{setting.unit}")
            print(f"{setting.variable} {value} ({setting.source}) {setting.note}".rstrip())
        wrong += setting.status != 0
    for stray in weir.strays():
        print(stray.note)
    return 1 if wrong else 0


def main(words=None):
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python3 -m weir", description=weir.__doc__.split("\n\n")[0])
    parser.add_argument("what", nargs="?", choices=("example", "info"), default="example",
                        help="example: two programs, printed and run, between which a numpy array "
                             "moves (the default); "
                             "info: devices, and settings of this environment")
    what = parser.parse_args(words).what
    return info() if what == "info" else example.main()


if __name__ == "__main__":
    sys.exit(main())
