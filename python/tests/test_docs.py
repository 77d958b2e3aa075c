# SPDX-License-Identifier: Apache-2.0
"""What is written about the package is so: the tutorial runs, the command does, each public thing has
its words in help() and its types in the stub."""
import ast
import contextlib
import importlib.util
import io
import os
import pathlib
import pydoc
import re
import subprocess
import sys
import tempfile
import textwrap
import unittest

import lib
import weir
from weir import example

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(weir.__file__).parent
TYPES = [value for value in vars(weir).values() if isinstance(value, type)]
HAS_NUMPY = importlib.util.find_spec("numpy") is not None


def blocks():
    """The tutorial's blocks: [(language, text), ...]."""
    return re.findall(r"^```(\w+)\n(.*?)^```$", (ROOT / "docs/python.md").read_text(), re.M | re.S)


class Tutorial(lib.Test):
    """docs/python.md."""

    @unittest.skipUnless(HAS_NUMPY, "no numpy")
    def test_P11_the_first_transfer_runs(self):
        programs = {re.match(r"# (\w+)\.py\n", text).group(1): text
                    for kind, text in blocks() if kind == "python" and text.startswith("# ")}
        said = next(text for kind, text in blocks() if kind == "text")
        self.assertEqual({name: text.split("\n", 1)[1] for name, text in programs.items()},
                         {"target": example.TARGET, "source": example.SOURCE})
        self.assertEqual(said.strip(), example.SAID)
        with tempfile.TemporaryDirectory() as directory:
            paths = {name: pathlib.Path(directory) / (name + ".py") for name in programs}
            for name, path in paths.items():
                path.write_text(programs[name])
            with subprocess.Popen([sys.executable, paths["target"]], stdout=subprocess.PIPE,
                                  text=True) as target:
                address = target.stdout.readline().strip()
                source = subprocess.run([sys.executable, paths["source"], address],
                                        timeout=lib.PATIENCE, check=False)
                out, _ = target.communicate(timeout=lib.PATIENCE)
        self.assertEqual((source.returncode, target.returncode), (0, 0))
        self.assertEqual(out, said)

    def test_P11_the_readme_has_the_same_programs(self):
        lines = [re.sub(r"  +# .*", "", line) for line in (ROOT / "README.md").read_text().splitlines()]
        for program in (example.TARGET, example.SOURCE):
            self.assertIn(textwrap.indent(program, "    "), "\n".join(lines) + "\n")

    @unittest.skipUnless(HAS_NUMPY, "no numpy")
    def test_P11_the_rest_runs_from_top_to_bottom(self):
        names, out, ran = {}, None, 0
        for kind, text in blocks():
            if kind == "python" and not text.startswith("# "):
                out = io.StringIO()
                with contextlib.redirect_stdout(out):
                    exec(compile(text, "docs/python.md", "exec"), names)
                ran += 1
            elif kind == "text" and out is not None:
                self.assertEqual(out.getvalue(), text)
        self.assertGreater(ran, 5)
        self.assertTrue(names["a"].closed)

    @unittest.skipUnless(HAS_NUMPY, "no numpy")
    def test_P11_the_command_runs(self):
        for words, wanted in ((["-m", "weir"], "engine.publish(\"numbers\", memory)"), (["-m", "weir", "info"], "device shm")):
            done = subprocess.run([sys.executable, *words], capture_output=True, text=True,
                                  timeout=lib.PATIENCE, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn(wanted, done.stdout)
            if "info" not in words:
                self.assertIn(example.SOURCE, done.stdout)
                self.assertIn(f"target.py says: {example.SAID}\n", done.stdout)
        self.assertLess(len((example.TARGET + example.SOURCE).splitlines()), 15)
        self.assertEqual(example.run(source="raise SystemExit(3)")[1], False)
        done = subprocess.run([sys.executable, "-m", "weir", "nonsense"], capture_output=True,
                              text=True, timeout=lib.PATIENCE, check=False)
        self.assertEqual(done.returncode, 2)


class Words(lib.Test):
    """help() and the stub have each thing, and no other."""

    def members(self, type_):
        return [(name, member) for name, member in vars(type_).items() if not name.startswith("_")]

    def test_P11_each_public_thing_has_its_words(self):
        self.assertGreater(len(TYPES), 45)
        for type_ in TYPES:
            self.assertGreater(len(type_.__doc__ or ""), 15, type_)
            for name, member in self.members(type_):
                if name in ("n_fields", "n_sequence_fields", "n_unnamed_fields") or isinstance(
                        member, (int, str)) or member is None:
                    continue
                self.assertTrue(member.__doc__, f"{type_.__name__}.{name}")
                if callable(member):
                    self.assertTrue(getattr(member, "__text_signature__", None)
                                    or hasattr(member, "__code__"), f"{type_.__name__}.{name}")
        for function in (weir.devices, weir.choose_device, weir.settings, weir.strays, weir.process_trace,
                         weir.name_hash):
            self.assertTrue(function.__doc__ and function.__text_signature__, function)
        text = pydoc.plain(pydoc.render_doc(weir))
        for phrase in ("Lifetimes", "Threads", "Event loops", "class Engine",
                       "allocate(self, /, length, access='rw')", "BufferError", "next_notification"):
            self.assertIn(phrase, text)

    def test_P11_the_stub_has_all_of_it(self):
        tree = ast.parse((HERE / "__init__.pyi").read_text())
        stub = {}
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                stub[node.name] = {item.name if hasattr(item, "name") else item.target.id
                                   for item in node.body if not isinstance(item, ast.Expr)}
            elif isinstance(node, ast.FunctionDef):
                stub[node.name] = None
            elif isinstance(node, ast.AnnAssign):
                stub[node.target.id] = None
        public = {name for name in stub if not name.startswith("_")} | {"__version__"}
        self.assertEqual(public, set(weir.__all__))
        self.assertEqual(public - {"__version__"},
                         {name for name in dir(weir) if not name.startswith("_")} - {"example"})
        for type_ in TYPES:
            if issubclass(type_, weir.WeirError):
                continue
            real = {name for name, _ in self.members(type_)}
            real -= {"n_fields", "n_sequence_fields", "n_unnamed_fields"}
            written = {name for name in stub[type_.__name__] if not name.startswith("_")}
            self.assertEqual(written, real, type_)
        for name in weir.__all__:
            if name.startswith("E") and name.isupper():
                node, = (n for n in tree.body if isinstance(n, ast.AnnAssign) and n.target.id == name)
                self.assertEqual(ast.literal_eval(node.value), getattr(weir, name))

    def test_P11_engine_options_are_in_the_stub(self):
        tree = ast.parse((HERE / "__init__.pyi").read_text())
        engine = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Engine")
        new = next(n for n in engine.body if getattr(n, "name", "") == "__new__")
        written = {argument.arg for argument in new.args.kwonlyargs} - {"thread", "advertise"}
        real = {s.name for s in weir.settings()} - {d.name for d in weir.devices()}
        self.assertEqual(written, real)

    @unittest.skipUnless(importlib.util.find_spec("mypy"), "no mypy")
    def test_P11_a_program_is_checked_by_the_stub(self):
        good = """
import asyncio
import weir
with weir.Engine("shm", thread=True, sq_depth=64) as engine:
    memory: weir.Memory = engine.allocate(4096)
    peer = engine.peer("127.0.0.1:1")
    there: weir.Remote = peer.remote(memory.export())
    engine.publish("kv", memory)
    memory.publish("kv")
    engine.publish_value("v", b"5")
    named: weir.Remote = peer.remote("kv", timeout=1.5)
    value: bytes = peer.value("v")
    kinds = [name.kind + str(name.length) for name in peer.names()]
    engine.peer_self().flush(1.5)
    transfer: weir.Transfer = peer.write(memory[0:8], there[0:8], notify=5, payload=b"x")
    peer.write([(memory[0:8], there[0:8]), (memory, 0, there, 0, 8)], timeout=1.5)
    code: int = transfer.status()
    peer.send(7, [b"a", memory], tag=5, block=True)
    registered = engine.register((0x1000, 4096), access="r")
    async def main() -> None:
        await transfer
        awaited: weir.Remote = await peer.aremote("kv")
        text: str = (await peer.anames())[0].name + (await peer.avalue("v")).decode()
        await engine.aflush()
        async for message in engine.inbox(7, 4096):
            with message:
                tag: int = message.tag
        async for note in engine.notifications():
            payload: bytes = note.payload
    asyncio.run(main())
    try:
        engine.wait(1.0)
    except weir.DeviceError as error:
        print(error.code == weir.EDEVICE, error.sentence)
    written: int = engine.stats().bytes_written
"""
        bad = ("weir.Engine(colour=1)", "weir.Engine().allocate('5')", "weir.Engine().peer(5)",
               "weir.Memory().colour", "weir.Engine().peer('').write(5, 6)", "weir.ENOSUCH", "weir.Engine().peer_self().value(b'v')", "weir.Engine().publish('kv', b'x')")
        with tempfile.TemporaryDirectory() as directory:
            path = pathlib.Path(directory) / "program.py"

            def check(text):
                path.write_text(text)
                return subprocess.run(
                    [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent",
                     "--cache-dir", directory + "/cache", str(path)],
                    env=os.environ | {"MYPYPATH": str(HERE.parent)}, capture_output=True,
                    text=True, timeout=4 * lib.PATIENCE, check=False)
            done = check(good)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            done = check("import weir\n" + "\n".join(bad) + "\n")
            for line in range(2, len(bad) + 2):
                self.assertIn(f"program.py:{line}: error", done.stdout)


if __name__ == "__main__":
    unittest.main()
