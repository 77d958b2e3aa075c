# SPDX-License-Identifier: Apache-2.0
"""setup.py: the package for pip. The extension module is built by the tree's own meson.build, in a
directory of its own, or is that of WEIR_BUILD, a build directory that is there (a relative path is
below the tree); the version is the library's. One wheel is for Python 3.11 and later (abi3)."""
import os
import pathlib
import shutil
import subprocess

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent
MODULE = "adapters/mooncake/python/mooncake/_engine.abi3.so"


class MesonBuild(build_ext):
    """Has meson build the module, and takes it."""

    def build_extension(self, ext):
        build = os.environ.get("WEIR_BUILD")
        if build is None:
            build = pathlib.Path(self.build_temp).resolve() / "meson"
            if not (build / "build.ninja").exists():
                subprocess.run(["meson", "setup", build, ROOT, "-Dpython=enabled", "-Dmooncake=enabled",
                                "-Dtests=disabled"], check=True)
            subprocess.run(["ninja", "-C", build, MODULE], check=True)
        target = pathlib.Path(self.get_ext_fullpath(ext.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / build / MODULE, target)


os.makedirs(HERE / "build", exist_ok=True)  # nothing is made beside the sources
setup(
    version=(ROOT / "VERSION").read_text().strip(),
    ext_modules=[Extension("mooncake._engine", [], py_limited_api=True)],
    cmdclass={"build_ext": MesonBuild},
    options={"bdist_wheel": {"py_limited_api": "cp311"}, "egg_info": {"egg_base": "build"}},
)
