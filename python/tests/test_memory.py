# SPDX-License-Identifier: Apache-2.0
"""Memory: what is registered, who keeps it, and when it goes."""
import array
import ctypes
import gc
import mmap
import os
import shutil
import subprocess
import tempfile
import unittest
import weakref

import lib
import weir

try:
    import numpy
except ImportError:
    numpy = None
try:
    import torch
except ImportError:
    torch = None

SIZE = 1 << 14


class Dummy:
    """Something that an array can be an attribute of."""


class Memory(lib.Test):
    """The buffer protocol, and what is taken as memory."""

    def test_P3_allocated_memory_is_a_buffer(self):
        with lib.engine() as a:
            memory = a.allocate(SIZE)
            self.assertEqual((len(memory), memory.access, memory.readonly), (SIZE, "rw", False))
            self.assertEqual(bytes(memory), bytes(SIZE))
            with memoryview(memory) as view:
                self.assertEqual((view.format, view.nbytes, view.readonly), ("B", SIZE, False))
                view[5] = 7
                self.assertEqual(memory.exports, 1)
                self.assertEqual(a.exports, 1)
            self.assertEqual(memory.exports, 0)
            self.assertEqual(bytes(memory[4:7]), b"\0\7\0")
            with memoryview(memory[4:7]) as view, memoryview(memory[5:][0:1]) as part:
                view[1] = 8
                self.assertEqual(part[0], 8)
            self.assertEqual((memory[4:7].offset, len(memory[4:7])), (4, 3))
            self.assertIs(memory[1:2].memory, memory)
            self.assertEqual(len(memory[SIZE:]), 0)
            with self.assertRaises(IndexError):
                memory[SIZE + 5:]

    @unittest.skipIf(numpy is None, "no numpy")
    def test_P3_numpy_uses_it(self):
        with lib.engine() as a:
            memory = a.allocate(SIZE)
            numbers = numpy.frombuffer(memory, numpy.float64).reshape(4, -1)
            numbers[1:3] = 1.5
            part = numpy.frombuffer(memory[8:16], numpy.float64)
            self.assertEqual(numbers.sum(), 2 * SIZE / 32 * 1.5)
            self.assertEqual(part[0], 0)
            self.assertEqual(numbers.ctypes.data, memory.address)
            with self.assertRaises(BufferError):
                memory.release()
            del numbers, part
            memory.release()

    @unittest.skipIf(torch is None, "no torch")
    def test_P3_torch_uses_it(self):
        with lib.pair(SIZE) as (a, b, mine, theirs, peer, remote):
            tensor = torch.frombuffer(mine, dtype=torch.int32)
            tensor[:] = torch.arange(SIZE // 4)
            peer.write(mine, remote).wait(lib.PATIENCE)
            self.assertTrue(torch.equal(torch.frombuffer(theirs, dtype=torch.int32), tensor))
            self.assertEqual(mine.exports, 1)
            del tensor
            self.assertEqual(mine.exports, 0)

    def test_P3_what_is_registered(self):
        with lib.pair(SIZE) as (a, b, mine, theirs, peer, remote):
            content = os.urandom(SIZE)
            mapped = mmap.mmap(-1, SIZE)
            mapped[:] = content
            raw = ctypes.create_string_buffer(content, SIZE)
            kinds = [bytearray(content), memoryview(bytearray(content)), array.array("B", content),
                     mapped, raw, (ctypes.addressof(raw), SIZE)]
            if numpy is not None:
                kinds.append(numpy.frombuffer(bytearray(content), numpy.uint32).reshape(8, -1))
                kinds.append(numpy.asfortranarray(kinds[-1]).T.copy().T)
            if torch is not None:
                kinds.append(torch.frombuffer(bytearray(content), dtype=torch.uint8))
                kinds.append(torch.frombuffer(bytearray(content), dtype=torch.int16).reshape(4, -1).T)
            for kind in kinds:
                with self.subTest(kind=type(kind)), a.register(kind) as memory:
                    self.assertEqual(len(memory), SIZE)
                    peer.write(memory, remote).wait(lib.PATIENCE)
                    self.assertEqual(bytes(theirs), bytes(memory))
                    lib.fill(theirs, 5)
                    peer.read(memory, remote).wait(lib.PATIENCE)
                    self.assertEqual(bytes(theirs), bytes(memory))
            del kind, kinds
            mapped.close()

    def test_P3_a_peer_writes_into_registered_memory(self):
        with lib.engine(thread=True) as a, lib.engine(thread=True) as b:
            ours = bytearray(SIZE)
            memory = b.register(ours)
            peer = a.peer(b.address)
            remote = peer.remote(memory.export())
            mine = a.allocate(SIZE)
            content = lib.fill(mine, 8)
            peer.write(mine, remote).wait(lib.PATIENCE)
            self.assertEqual(ours, content)

    def test_P3_what_cannot_be_registered(self):
        with lib.engine() as a:
            for wrong in (5, "text", None, object(), [1, 2], a):
                with self.subTest(wrong=wrong), self.assertRaises(TypeError):
                    a.register(wrong)
            for wrong in ((1, 2, 3), (), bytearray(), (5, 0)):
                with self.subTest(wrong=wrong), self.assertRaises(ValueError):
                    a.register(wrong)
            with self.assertRaises(weir.InvalidError):
                a.register((0, 100))
            with self.assertRaises(weir.InvalidError):
                a.register((2**64 - 100, 4096))
            with self.assertRaises(TypeError):
                a.register(("5", 5))
            with self.assertRaises(BufferError):
                a.register(memoryview(bytearray(16))[::2])
            if numpy is not None:
                with self.assertRaises(ValueError):
                    a.register(numpy.zeros((8, 8))[:, ::2])
                with self.assertRaises(TypeError):
                    a.register(numpy.array([object()], dtype=object))
                fixed = numpy.zeros(8)
                fixed.flags.writeable = False
                with self.assertRaises((ValueError, BufferError)):
                    a.register(fixed)
                a.register(numpy.array(["2026-01-01"], dtype="datetime64[s]")).release()
            if torch is not None:
                with self.assertRaises(ValueError):
                    a.register(torch.zeros(8, 8)[:, ::2])

    def test_P3_a_gpus_memory_needs_its_driver(self):
        class Gpu:
            """As cupy's arrays are."""
            __cuda_array_interface__ = {"data": (1 << 40, False), "shape": (4, 4),
                                        "typestr": "<f4", "version": 3}
        with lib.engine() as a:
            with self.assertRaises(weir.NotSupportedError) as raised:
                a.register(Gpu())
            self.assertIn("GPU", str(raised.exception))
            Gpu.__cuda_array_interface__ = {"data": (1 << 40, False), "shape": (4, 4),
                                            "typestr": "<f4", "strides": (4, 16)}
            with self.assertRaises(ValueError):
                a.register(Gpu())
            Gpu.__cuda_array_interface__ = {"data": (1 << 40, True), "shape": (4,), "typestr": "<f4"}
            with self.assertRaises(BufferError):
                a.register(Gpu())
            for wrong in ({}, {"data": 5, "shape": (4,), "typestr": "<f4"},
                          {"data": (5, False), "shape": 4, "typestr": "<f4"},
                          {"data": (5, False), "shape": (4,), "typestr": "?"}, None):
                Gpu.__cuda_array_interface__ = wrong
                with self.subTest(wrong=wrong), self.assertRaises((ValueError, TypeError)):
                    a.register(Gpu())

    @unittest.skipIf(shutil.which("cc") is None or lib.SANITIZED, "no cc, or a sanitizer's")
    def test_P3_a_gpus_memory_is_asked_of_its_driver(self):
        # A driver that is played: one allocation of 4 MiB, whose descriptor is no dma-buf.
        driver = """
            #define _GNU_SOURCE
            #include <stdint.h>
            #include <stdio.h>
            #include <sys/mman.h>
            int cuMemGetAddressRange_v2(uint64_t *base, size_t *size, uint64_t address) {
                *base = 1ull << 40;
                *size = 4 << 20;
                return address >= *base && address < *base + *size ? 0 : 1;
            }
            int cuMemGetHandleForAddressRange(void *handle, uint64_t address, size_t size, int type,
                                              unsigned long long flags) {
                fprintf(stderr, "asked %llx %zx %d %llx\\n", (unsigned long long)address, size, type,
                        flags);
                *(int *)handle = memfd_create("gpu", 0);
                return 0;
            }
        """
        program = """
            class Gpu:
                def __init__(self, address, count):
                    self.__cuda_array_interface__ = {"data": (address, False), "shape": (count, 2),
                                                     "typestr": "<f4", "strides": None, "version": 3}
            with lib.engine() as a:
                before = len(os.listdir("/proc/self/fd"))
                for address, count in ((2**40 + 4096 + 64, 100), (2**40 + (4 << 20) - 64, 100),
                                       (2**41, 5)):
                    try:
                        a.register(Gpu(address, count))
                    except (weir.NotSupportedError, weir.InvalidError) as error:
                        say(error.name + " " + str("no dma-buf" in str(error)))
                assert len(os.listdir("/proc/self/fd")) == before
        """
        with tempfile.TemporaryDirectory() as directory:
            with open(directory + "/cuda.c", "w", encoding="ascii") as file:
                file.write(driver)
            subprocess.run(["cc", "-shared", "-fPIC", "-o", directory + "/libcuda.so.1",
                            directory + "/cuda.c"], check=True)
            before = os.environ.get("LD_LIBRARY_PATH")
            os.environ["LD_LIBRARY_PATH"] = directory
            try:
                status, out, err = lib.run_program(program)
            finally:
                del os.environ["LD_LIBRARY_PATH"]
                if before is not None:
                    os.environ["LD_LIBRARY_PATH"] = before
        self.assertEqual(status, 0, err)
        first, *others = out.splitlines()
        self.assertIn(first, ("WEIR_ENOTSUP False", "WEIR_EINVAL False"))  # the device's own word
        self.assertEqual(others, ["WEIR_ENOTSUP True"] * 2)
        self.assertEqual(err, "asked 10000001000 1000 1 0\n")

    def test_P3_what_is_registered_is_kept_until_it_is_released(self):
        with lib.engine() as a:
            class Kept(bytearray):
                """Can be looked at weakly."""
            ours = Kept(SIZE)
            seen = weakref.ref(ours)
            memory = a.register(ours)
            with self.assertRaises(BufferError):
                ours.append(1)  # it would move
            del ours
            gc.collect()
            self.assertIsNotNone(seen())
            memory.release()
            self.assertIsNone(seen())
            self.assertTrue(memory.released)
            memory.release()
            ours = Kept(SIZE)
            seen = weakref.ref(ours)
            memory = a.register(ours)
            del ours, memory
            self.assertIsNone(seen())
            ours = Kept(SIZE)
            seen = weakref.ref(ours)
            memory = a.register(ours)
            del ours
        self.assertIsNone(seen())
        self.assertTrue(memory.released)

    def test_P3_exports_hold_memory_and_engine(self):
        a = lib.engine()
        memory = a.allocate(SIZE)
        view = memoryview(memory)
        part = memoryview(memory[5:10])
        for close in (memory.release, a.close):
            with self.assertRaises(BufferError) as raised:
                close()
            self.assertIn("2 buffers", str(raised.exception))
        view[0] = 1
        view.release()
        part.release()
        memory.release()
        self.assertEqual(memory.address, 0)
        with self.assertRaises(BufferError):
            memoryview(memory)
        a.close()
        a.close()
        self.assertTrue(a.closed)

    def test_P3_an_exception_leaves_and_the_last_export_closes(self):
        with self.assertRaises(ZeroDivisionError):
            with lib.engine() as a:
                view = memoryview(a.allocate(SIZE))
                raise ZeroDivisionError
        self.assertFalse(a.closed)
        view[5] = 5
        view.release()
        self.assertTrue(a.closed)

    def test_P3_memory_of_a_transfer_under_way_is_not_released(self):
        # Nobody answers there: the transfer waits, and uses its memory.
        with lib.engine(thread=True) as b, lib.engine() as a:
            theirs = b.allocate(SIZE)
            peer = a.peer(b.address)
            remote = peer.remote(theirs.export())
            ours = bytearray(b"x" * SIZE)
            memory = a.register(ours)
            transfer = peer.write(memory, remote)  # not connected yet: it is under way
            self.assertEqual(transfer.status(), weir.EINPROGRESS)
            self.assertIn(transfer.waiting_for, ("engine", "connection"))
            with self.assertRaises(weir.BusyError):
                memory.release()
            with self.assertRaises(weir.BusyError):
                remote.release()
            with self.assertRaises(weir.InProgressError):
                transfer.result()
            # Everything that the application has of it goes; it goes on, and arrives.
            seen = len(ours)
            del transfer, memory, remote, peer
            gc.collect()
            with self.assertRaises(BufferError):
                ours.append(1)
            self.assertEqual(len(ours), seen)
            while a.stats().transfers_ok == 0:
                a.wait(0.1)
            a.wait(0)
            self.assertEqual(bytes(theirs), b"x" * SIZE)
            gc.collect()
            ours.append(1)  # nothing uses it any more

    @unittest.skipIf(numpy is None, "no numpy")
    def test_P9_cycles_are_collected(self):
        for _ in range(3):
            a = lib.engine()
            holder = Dummy()
            holder.me = holder
            holder.engine = a
            holder.memory = a.allocate(SIZE)
            holder.array = numpy.frombuffer(holder.memory, numpy.uint8)
            holder.peer = a.peer("127.0.0.1:1")
            holder.transfer = holder.peer.notify(5)
            seen = weakref.ref(a)
            del a, holder
            with self.assertWarns(ResourceWarning):
                gc.collect()  # the array, which the collector does not see through
                gc.collect()
            self.assertIsNone(seen())

    def test_P9_an_engine_that_is_dropped_is_closed(self):
        a = lib.engine()
        seen = weakref.ref(a)
        memory = a.allocate(SIZE)
        del a
        self.assertIsNotNone(seen())
        with self.assertWarns(ResourceWarning):
            del memory
        self.assertIsNone(seen())
        a = lib.engine()
        a.peer("127.0.0.1:1").notify(5)  # under way: it keeps its engine, until a collection
        seen = weakref.ref(a)
        del a
        with self.assertWarns(ResourceWarning):
            gc.collect()
        self.assertIsNone(seen())
