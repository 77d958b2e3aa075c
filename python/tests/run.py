# SPDX-License-Identifier: Apache-2.0
"""run.py FILE [WORD]: runs the tests of a file, those with WORD in their names, and says of each how
it went, in the words that scripts/results.py counts: ok, FAILED, skip. A test that takes too long
says where it stands, and so does a child that it has forked when it is told to end (SIGTERM)."""
import faulthandler
import importlib.util
import os
import signal
import sys
import traceback
import unittest


class Result(unittest.TestResult):
    """Says each as it ends; subtests that fail count for their test."""

    def startTest(self, test):
        super().startTest(test)
        self.good = True

    def _failed(self, test, error):
        self.good = False
        print(f"FAILED {test.id().split('.')[-1]}", flush=True)
        print("  " + "".join(traceback.format_exception(*error)).replace("\n", "\n  "), flush=True)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self._failed(test, error)

    addError = addFailure

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error is not None:
            print(f"  {subtest}")
            self._failed(test, error)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.good = False
        print(f"skip {test.id().split('.')[-1]}: {reason}", flush=True)

    def stopTest(self, test):
        if self.good:
            print(f"ok {test.id().split('.')[-1]}", flush=True)


def main(path, word=""):
    """Runs them; the exit status is 0 if none failed and one ran."""
    faulthandler.enable()
    faulthandler.dump_traceback_later(570, exit=True)
    # ThreadSanitizer defers signals: a handler that raises its own again would run for ever.
    if "libtsan" not in os.environ.get("LD_PRELOAD", ""):
        faulthandler.register(signal.SIGTERM, chain=True)
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec = importlib.util.spec_from_file_location("tests", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    chosen = unittest.TestSuite(test for group in suite for test in group if word in test.id())
    result = Result()
    chosen.run(result)
    faulthandler.cancel_dump_traceback_later()
    if result.testsRun == 0:
        print(f"{path}: no test has {word!r} in its name")
    return 0 if result.testsRun > 0 and result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
