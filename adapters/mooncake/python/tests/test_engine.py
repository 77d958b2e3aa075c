# SPDX-License-Identifier: Apache-2.0
"""TransferEngine as vLLM and SGLang call it: every method, both ways, ends, and threads."""
import json
import os
import signal
import threading
import time
import unittest

import lib
from mooncake.engine import TransferEngine, TransferNotify, TransferOpcode

MIB = 1 << 20


class Engines(unittest.TestCase):
    def test_K11_engine_that_was_not_initialized(self):
        made = TransferEngine()
        self.assertEqual(made.get_rpc_port(), -1)
        self.assertEqual(made.register_memory(4096, 4096), -1)
        self.assertEqual(made.batch_register_memory([4096], [4096]), -1)
        self.assertEqual(made.unregister_memory(4096), -1)
        self.assertEqual(made.batch_unregister_memory([4096]), -1)
        self.assertEqual(made.transfer_sync_write("x", 1, 2, 3), -1)
        self.assertEqual(made.batch_transfer_async_read("x", [1], [2], [3]), 0)
        self.assertEqual(made.transfer_submit_write("x", 1, 2, 3), 0)
        self.assertEqual(made.transfer_check_status(7), -1)
        self.assertEqual(made.get_batch_transfer_status([7]), -1)
        self.assertEqual(made.allocate_managed_buffer(4096), 0)
        self.assertEqual(made.free_managed_buffer(4096, 4096), -1)
        self.assertEqual(made.get_first_buffer_address("x"), 0)
        self.assertEqual(made.send_probe("x"), -1)
        self.assertEqual(made.warmup_efa_segment("x"), -1)
        self.assertEqual(made.get_notifies(), [])
        self.assertEqual(made.get_local_topology(), "{}")
        self.assertIsNone(made.get_engine())
        self.assertEqual(made.get_engine_ptr(), 0)

    def test_K11_initialize(self):
        made = TransferEngine()
        self.assertEqual(made.initialize("", "P2PHANDSHAKE", "tcp", ""), -1)
        self.assertEqual(made.initialize("127.0.0.1", "gopher://x", "tcp", ""), -1)
        self.assertEqual(made.initialize_ext("127.0.0.1", "P2PHANDSHAKE", "rdma", None, "etcd"), 0)
        self.assertEqual(made.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", ""), -1)  # once
        self.assertGreater(made.get_rpc_port(), 0)
        self.assertTrue(json.loads(made.get_local_topology("x"))["cpu:0"][0][0])
        self.assertNotEqual(made.get_engine_ptr(), 0)
        shared = made.get_engine()
        del made
        self.assertIsNotNone(shared)  # it lives as long

    def test_K11_arguments_that_are_none(self):
        made = lib.engine()
        for wrong in (None, "12", 1.5, -1, 1 << 64):
            with self.assertRaises((TypeError, OverflowError)):
                made.register_memory(wrong, 4096)
            with self.assertRaises((TypeError, OverflowError)):
                made.batch_transfer_sync_write("x", [wrong], [1], [1])
        with self.assertRaises(TypeError):
            made.batch_register_memory(5, [1])
        self.assertEqual(made.batch_register_memory([4096, 8192], [4096]), -1)
        self.assertEqual(made.batch_transfer_sync_write(lib.name_of(made), [1, 2], [1], [1]), -1)
        self.assertEqual(made.register_memory(4096, 0), -1)
        memory = lib.Bytes(MIB)
        self.assertEqual(made.register_memory(buffer_addr=memory.address, capacity=MIB), 0)
        self.assertEqual(made.register_memory(memory.address + 5, 1), -7)
        self.assertEqual(made.transfer_sync("x", memory.address, 0, 8, 7), -1)

    def test_K11_a_notification_is_text_without_zeros(self):
        made = lib.engine()
        memory = lib.Bytes(4096)
        self.assertEqual(made.register_memory(memory.address, 4096), 0)
        one = (lib.name_of(made), memory.address, memory.address, 8, TransferOpcode.Write)
        for wrong in (TransferNotify("a\0b", ""), TransferNotify("", "\0")):
            with self.assertRaises(ValueError):
                made.transfer_sync(*one, wrong)
        for wrong in (TransferNotify(b"a", ""), TransferNotify(None, ""), 7):
            with self.assertRaises((TypeError, AttributeError)):
                made.transfer_sync(*one, wrong)
        self.assertEqual(made.transfer_sync(*one, TransferNotify("a", "\u00e4")), 0)
        notes = []
        while not notes:
            notes = made.get_notifies()
        self.assertEqual([(note.name, note.msg) for note in notes], [("a", "\u00e4")])

    def test_K11_a_child_of_fork_has_no_engine(self):
        made = lib.engine()
        memory = lib.Bytes(4096)
        managed = made.allocate_managed_buffer(4096)
        child = os.fork()
        if child == 0:
            wrong = 1
            try:
                self.assertEqual(made.get_rpc_port(), -1)
                self.assertEqual(made.register_memory(memory.address, 4096), -1)
                self.assertEqual(made.transfer_submit_write("x", managed, 0, 8), 0)
                self.assertIsNone(made.get_engine())
                self.assertEqual(made.get_notifies(), [])
                made = None
                other = lib.engine()
                self.assertEqual(other.register_memory(memory.address, 4096), 0)
                wrong = 0
            finally:
                os._exit(wrong)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.assertEqual(made.register_memory(memory.address, 4096), 0)  # as before
        self.assertEqual(made.transfer_sync_write(lib.name_of(made), managed, memory.address, 8), 0)

    def test_K11_managed_buffers(self):
        made = lib.engine()
        addresses = [made.allocate_managed_buffer(size) for size in (1, 4096, 3 * MIB)]
        self.assertNotIn(0, addresses)
        self.assertEqual(made.allocate_managed_buffer(0), 0)
        self.assertEqual(made.write_bytes_to_buffer(addresses[2], b"some bytes", 4), 0)
        self.assertEqual(made.read_bytes_from_buffer(addresses[2], 6), b"some\0\0")
        self.assertEqual(made.write_bytes_to_buffer(addresses[2], b"few", 4), -1)
        self.assertEqual(made.write_bytes_to_buffer(0, b"few", 1), -1)
        for address in addresses:
            self.assertEqual(made.free_managed_buffer(address, 1), 0)
            self.assertEqual(made.free_managed_buffer(address, 1), -3)


class Transfers(unittest.TestCase):
    def setUp(self):
        self.child, self.name, self.there = lib.target()
        self.engine = lib.engine()
        self.memory = lib.Bytes(MIB)
        self.here = self.memory.address
        self.assertEqual(self.engine.batch_register_memory([self.here], [MIB], "cpu:0"), 0)

    def tearDown(self):
        if self.child is not None:
            self.child.end()
        self.assertEqual(self.engine.batch_unregister_memory([self.here]), 0)

    def parts(self, count=64):
        step = MIB // count
        return ([self.here + i * step for i in range(count)],
                [self.there + i * step for i in range(count)], [step] * count)

    def test_K11_every_byte_by_each_method(self):
        made, name = self.engine, self.name
        note = TransferNotify("n", "m")
        one = (self.here, self.there, MIB)
        ways = [
            lambda: made.transfer_sync_write(name, *one),
            lambda: made.transfer_sync(name, *one, TransferOpcode.Write, note),
            lambda: made.batch_transfer_sync_write(name, *self.parts()),
            lambda: made.batch_transfer_sync(name, *self.parts(), TransferOpcode.Write, note, "tcp"),
            lambda: made.get_batch_transfer_status(
                [made.batch_transfer_async_write(name, *self.parts())]),
            lambda: made.get_batch_transfer_status(
                [made.batch_transfer_async(name, *self.parts(), 1)]),
            lambda: self.until_over(made.transfer_submit_write(name, *one)),
        ]
        for seed, way in enumerate(ways, 10):
            self.memory.memory[:] = lib.content(MIB, seed)
            self.assertEqual(way(), 0, seed)
            self.assertEqual(self.child.ask(f"check {seed}"), "True")
        self.assertEqual(self.child.ask("notes"), "n=m n=m")
        ways = [
            lambda: made.transfer_sync_read(name, *one),
            lambda: made.transfer_sync(name, *one, 0),
            lambda: made.batch_transfer_sync_read(name, *self.parts()),
            lambda: made.get_batch_transfer_status(
                [made.batch_transfer_async_read(name, *self.parts())]),
        ]
        for way in ways:
            self.memory.memory[:] = bytes(MIB)
            self.assertEqual(way(), 0)
            self.assertEqual(self.memory.memory[:], lib.content(MIB, 16))

    def until_over(self, batch):
        self.assertNotEqual(batch, 0)
        while (status := self.engine.transfer_check_status(batch)) == 0:
            pass
        self.assertEqual(self.engine.transfer_check_status(batch), -1)  # it was freed
        return 0 if status == 1 else status

    def test_K11_what_is_asked_of_peers(self):
        self.assertEqual(self.engine.get_first_buffer_address(self.name), self.there)
        self.assertEqual(self.engine.get_first_buffer_address(lib.name_of(self.engine)), self.here)
        self.assertEqual(self.engine.warmup_efa_segment(self.name), 0)
        self.assertEqual(self.engine.send_probe(self.name), 0)
        self.assertEqual(self.child.ask("notes"), "")  # its application sees nothing of a probe
        other = lib.engine()
        self.assertEqual(other.get_first_buffer_address(lib.name_of(self.engine)), self.here)

    def test_K11_failures_are_results(self):
        made = self.engine
        self.assertEqual(made.transfer_sync_write(self.name, self.here, 64, 8), -1)
        self.assertEqual(made.transfer_sync_write(self.name, 4096, self.there, 8), -1)
        self.assertEqual(made.get_batch_transfer_status(
            [made.batch_transfer_async_write(self.name, [self.here], [64], [8])]), -1)
        self.assertEqual(made.transfer_submit_write(self.name, 4096, self.there, 8), 0)
        batch = made.transfer_submit_write(self.name, self.here, 64, 8)
        while (status := made.transfer_check_status(batch)) == 0:
            pass
        self.assertEqual(status, -1)
        self.assertEqual(made.get_batch_transfer_status([]), 0)

    def test_K11_targets_that_register_anew_and_die(self):
        made = self.engine
        for seed in range(30, 40):
            self.assertEqual(self.child.ask("anew"), "0")
            self.memory.memory[:] = lib.content(MIB, seed)
            self.assertEqual(made.transfer_sync_write(self.name, self.here, self.there, MIB), 0)
            self.assertEqual(self.child.ask(f"check {seed}"), "True")
        with lib.hasty():
            hasty = lib.engine()
        self.assertEqual(hasty.register_memory(self.here, MIB), 0)
        while hasty.transfer_sync_write(self.name, self.here, self.there, MIB) != 0:
            pass  # a busy machine
        self.child.kill()
        self.child = None
        self.assertEqual(hasty.transfer_sync_write(self.name, self.here, self.there, MIB), -1)
        self.assertNotEqual(hasty.send_probe(self.name), 0)

    def test_K11_ten_threads(self):
        wrong, ticks = [], []
        over = threading.Event()

        def work(me):
            step = MIB // 10 // 64 * 64
            here, there = self.here + me * step, self.there + me * step
            for round_ in range(20):
                content = lib.content(step, me * 100 + round_)
                self.memory.memory[me * step:(me + 1) * step] = content
                done = [
                    self.engine.batch_transfer_sync_write(self.name, [here], [there], [step]),
                    self.engine.get_batch_transfer_status([self.engine.batch_transfer_async_write(
                        self.name, [here, here + 64], [there, there + 64], [64, step - 64])])]
                self.memory.memory[me * step:(me + 1) * step] = bytes(step)
                done.append(self.engine.transfer_sync_read(self.name, here, there, step))
                if done != [0, 0, 0] or self.memory.memory[me * step:(me + 1) * step] != content:
                    wrong.append((me, round_, done))

        def tick():
            while not over.is_set():
                ticks.append(1)
                time.sleep(0)

        ticker = threading.Thread(target=tick)
        threads = [threading.Thread(target=work, args=(me,)) for me in range(10)]
        for thread in [ticker] + threads:
            thread.start()
        for thread in threads:
            thread.join()
        over.set()
        ticker.join()
        self.assertEqual(wrong, [])
        self.assertTrue(ticks)

    def test_K11_a_call_that_waits_lets_others_run(self):
        """A target that does not answer: the call waits, and another thread of Python runs."""
        os.kill(self.child.process.pid, signal.SIGSTOP)
        os.waitpid(self.child.process.pid, os.WUNTRACED)
        results = []
        waits = threading.Thread(target=lambda: results.append(
            self.engine.transfer_sync_write(self.name, self.here, self.there, 8)))
        waits.start()
        counted = 0
        while counted < 1000:
            counted += 1
            time.sleep(0)
        os.kill(self.child.process.pid, signal.SIGCONT)
        waits.join(lib.PATIENCE)
        self.assertEqual(len(results), 1)
