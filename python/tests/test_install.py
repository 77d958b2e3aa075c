# SPDX-License-Identifier: Apache-2.0
"""The package as pip installs it: one wheel of the stable ABI, whole by itself, without a network."""
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import lib
import weir

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(weir.__file__).resolve().parents[2]
TOOLS = ("pip", "setuptools", "wheel")


class Install(lib.Test):
    """pip install, of a copy of what it needs of the tree, with the module of this build."""

    @unittest.skipUnless(all(importlib.util.find_spec(tool) for tool in TOOLS), "no pip, or no wheel")
    def test_P12_pip_installs_it_without_a_network(self):
        with tempfile.TemporaryDirectory() as directory:
            here = pathlib.Path(directory)
            shutil.copytree(ROOT / "python", here / "python",
                            ignore=shutil.ignore_patterns("build", "*.egg-info"))
            shutil.copy(ROOT / "VERSION", here)
            (here / "there").symlink_to(BUILD)  # a relative path is below the tree
            done = subprocess.run(
                [sys.executable, "-m", "pip", "wheel", "--no-index", "--no-build-isolation",
                 "--no-deps", "--wheel-dir", here, here / "python"], capture_output=True, text=True,
                env=os.environ | {"WEIR_BUILD": "there"}, timeout=lib.PATIENCE, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            wheel, = here.glob("*.whl")
            self.assertRegex(wheel.name, rf"^weir-{weir.__version__}-cp311-abi3-linux_")
            self.assertFalse((here / "python/weir.egg-info").exists())
            done = subprocess.run(
                [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--target",
                 here / "site", wheel], capture_output=True, text=True, timeout=lib.PATIENCE,
                check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            for name in ("__init__.pyi", "py.typed", "_weir.abi3.so"):
                self.assertTrue((here / "site/weir" / name).exists(), name)
            done = subprocess.run(
                [sys.executable, "-c", "import weir; print(weir.__version__, weir.__file__); "
                 "weir.Engine().close()"], capture_output=True, text=True, cwd=directory,
                env=os.environ | {"PYTHONPATH": str(here / "site")}, timeout=lib.PATIENCE,
                check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertEqual(done.stdout.strip(),
                             f"{weir.__version__} {here / 'site/weir/__init__.py'}")


if __name__ == "__main__":
    unittest.main()
