# SPDX-License-Identifier: Apache-2.0
"""Reads and writes as a program names them, and what it must not name."""
import array
import ctypes
import unittest

import lib
import weir

try:
    import numpy
except ImportError:
    numpy = None

SIZE = 1 << 16


class Transfers(lib.Test):
    """Bytes arrive, all of them."""

    def test_P1_a_write_and_a_read_of_slices(self):
        with lib.pair(SIZE) as (a, b, mine, theirs, peer, remote):
            content = lib.fill(mine, 1)
            peer.write(mine[100:5000], remote[7:4907]).wait(lib.PATIENCE)
            self.assertEqual(bytes(theirs[7:4907]), content[100:5000])
            self.assertEqual(bytes(theirs[:7]), bytes(7))
            content = lib.fill(theirs, 2)
            peer.read(mine, remote).wait(lib.PATIENCE)
            self.assertEqual(bytes(mine), content)
            peer.read(mine[10:20][2:5], remote[500:600][10:13]).wait(lib.PATIENCE)
            self.assertEqual(bytes(mine[12:15]), content[510:513])

    def test_P1_lists_of_pairs_and_fives(self):
        with lib.pair(SIZE) as (a, b, mine, theirs, peer, remote):
            content = lib.fill(mine, 3)
            step = 64
            pairs = [(mine[i:i + step], remote[SIZE - i - step:SIZE - i])
                     for i in range(0, SIZE, step)]
            peer.write(pairs).wait(lib.PATIENCE)
            want = b"".join(content[i:i + step] for i in range(SIZE - step, -1, -step))
            self.assertEqual(bytes(theirs), want)
            fives = ((mine, i, remote, i, step) for i in range(0, SIZE, step))
            peer.write(fives).wait(lib.PATIENCE)
            self.assertEqual(bytes(theirs), content)
            peer.write([[mine[0:4], remote[4:8]]]).wait(lib.PATIENCE)
            self.assertEqual(bytes(theirs[4:8]), content[0:4])

    @unittest.skipIf(numpy is None, "no numpy")
    def test_P1_arrays_of_thousands_over_several_memories(self):
        count, piece = 6000, 48
        with lib.pair(SIZE) as (a, b, mine, theirs, peer, remote):
            mines = [a.allocate(count * piece) for _ in range(3)]
            others = [b.allocate(count * piece) for _ in range(2)]
            remotes = [peer.remote(other.export()) for other in others]
            contents = [lib.fill(memory, 10 + i) for i, memory in enumerate(mines)]
            for kind in (numpy.uint64, numpy.int64):
                rows = numpy.zeros((count, 5), dtype=kind)
                order = numpy.random.default_rng(5).permutation(count)
                rows[:, 0] = numpy.arange(count) % 3
                rows[:, 1] = order * piece
                rows[:, 2] = numpy.arange(count) % 2
                rows[:, 3] = numpy.arange(count) * piece
                rows[:, 4] = piece
                for other in others:
                    numpy.frombuffer(other, numpy.uint8)[:] = 0
                peer.write(rows, memories=mines, remotes=remotes).wait(lib.PATIENCE)
                for i in range(count):
                    at = int(order[i]) * piece
                    self.assertEqual(bytes(others[i % 2][i * piece:(i + 1) * piece]),
                                     contents[i % 3][at:at + piece], i)
                    self.assertEqual(bytes(others[1 - i % 2][i * piece:(i + 1) * piece]),
                                     bytes(piece), i)
            for memory in mines:
                numpy.frombuffer(memory, numpy.uint8)[:] = 0
            peer.read(rows, memories=mines, remotes=remotes).wait(lib.PATIENCE)
            for i in range(0, count, 7):
                at = int(order[i]) * piece
                self.assertEqual(bytes(mines[i % 3][at:at + piece]),
                                 contents[i % 3][at:at + piece], i)

    @unittest.skipIf(numpy is None, "no numpy")
    def test_P1_views_of_memory_are_local_memory(self):
        with lib.pair(SIZE) as (a, b, mine, theirs, peer, remote):
            numbers = numpy.frombuffer(mine, numpy.float32)
            numbers[:] = numpy.arange(len(numbers))
            peer.write(numbers[10:20], remote[0:40]).wait(lib.PATIENCE)
            got = numpy.frombuffer(theirs, numpy.float32, 10)
            self.assertEqual(list(got), list(range(10, 20)))
            with memoryview(mine) as view:
                peer.write(view[4:8], remote[0:4]).wait(lib.PATIENCE)
            self.assertEqual(got[0], 1.0)
            del numbers, got

    @unittest.skipIf(numpy is None, "no numpy")
    def test_P1_tensors_in_memory_are_local_memory(self):
        class Tensor:  # as torch's: no buffer
            def __init__(self, array):
                self.array = array

            def __dlpack__(self):
                return self.array.__dlpack__()

            def __dlpack_device__(self):
                return self.array.__dlpack_device__()

        with lib.pair(SIZE) as (a, b, mine, theirs, peer, remote):
            numbers = numpy.arange(1000, dtype=numpy.float32)
            memory = a.register(Tensor(numbers))
            peer.write(Tensor(numbers[10:20]), remote[0:40]).wait(lib.PATIENCE)
            self.assertEqual(list(numpy.frombuffer(theirs, numpy.float32, 10)), list(range(10, 20)))
            peer.read([(Tensor(numbers[:10]), remote[0:40])]).wait(lib.PATIENCE)
            self.assertEqual(list(numbers[:10]), list(range(10, 20)))
            for wrong in (Tensor(numbers[:20:2]), Tensor(numpy.zeros(10, numpy.float32))):
                with self.assertRaises(ValueError):
                    peer.write(wrong, remote[0:40])
            with self.assertRaises(TypeError):
                peer.write([1.0], remote[0:40])
            memory.release()

    def test_P1_tensors_as_they_may_be(self):
        """Without elements, and nowhere; on a device that is not known; with properties that
        raise, or are interrupted."""
        class Tensor:
            def __init__(self, capsule, device):
                self.capsule, self.device = capsule, device

            def __dlpack__(self):
                return self.capsule

            def __dlpack_device__(self):
                return (self.device, 0)

        class Raises:
            def __init__(self, error):
                self.error = error

            def __getattr__(self, name):
                raise self.error

        fields = (ctypes.c_int64 * 16)()  # a DLManagedTensor: one dimension, of no elements
        fields[1] = 1  # the device, its number
        fields[2] = 1 | 2 << 32 | 32 << 40 | 1 << 48  # dimensions, float, bits, lanes
        fields[3] = ctypes.addressof(fields) + 8 * 10  # the shape
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p,
                                                       ctypes.c_void_p]
        nothing = new(ctypes.addressof(fields), b"dltensor", None)
        with lib.pair(SIZE) as (a, b, mine, theirs, peer, remote):
            content = lib.fill(theirs, 3)
            peer.write(Tensor(nothing, 1), remote[0:0]).wait(lib.PATIENCE)
            self.assertEqual(bytes(theirs), content)
            with self.assertRaises(ValueError):
                peer.write(Tensor(nothing, 1), remote[0:4])
            with self.assertRaisesRegex(weir.WeirError, "use a tensor of the DLPack device 77"):
                peer.write(Tensor(nothing, 77), remote[0:0])
            with self.assertRaisesRegex(ValueError, "the device -3"):
                peer.write(Tensor(nothing, -3), remote[0:0])
            for error in (RuntimeError("its own"), KeyboardInterrupt("its own"),
                          MemoryError("its own")):
                with self.assertRaisesRegex(type(error), "its own"):
                    peer.write(Raises(error), remote[0:4])
                with self.assertRaisesRegex(type(error), "its own"):
                    a.register(Raises(error))
            with self.assertRaises(TypeError):
                peer.write(Raises(AttributeError("none")), remote[0:4])

    def test_P1_a_notification_comes_behind_its_data(self):
        with lib.pair(SIZE) as (a, b, mine, theirs, peer, remote):
            content = lib.fill(mine, 4)
            peer.write(mine, remote, notify=2**64 - 1, payload=b"x" * weir.NOTIFY_MAX)
            note = b.notification(lib.PATIENCE)
            self.assertEqual(bytes(theirs), content)
            self.assertEqual((note.tag, note.payload), (2**64 - 1, b"x" * 256))
            self.assertIsInstance(note.peer, weir.Peer)
            peer.notify(7).wait(lib.PATIENCE)
            self.assertEqual(b.notification(lib.PATIENCE)[1:], (7, b""))
            self.assertIsNone(b.poll_notification())
            # The sender is answered by the handle that came with its notification.
            note.peer.notify(8, bytearray(b"back")).wait(lib.PATIENCE)
            self.assertEqual(a.notification(lib.PATIENCE)[1:], (8, b"back"))

    def test_P1_empty_segments_and_the_ends_of_memories(self):
        with lib.pair(SIZE) as (a, b, mine, theirs, peer, remote):
            peer.write(mine[SIZE:], remote[5:5]).wait(lib.PATIENCE)
            peer.write([(mine, SIZE, remote, SIZE, 0)]).wait(lib.PATIENCE)
            peer.write([], notify=1).wait(lib.PATIENCE)
            self.assertEqual(b.notification(lib.PATIENCE).tag, 1)
            with self.assertRaises(weir.InvalidError):
                peer.write([])

    def test_P1_a_transfer_of_more_than_a_submit_copies(self):
        size = 24 << 20
        with lib.pair(size) as (a, b, mine, theirs, peer, remote):
            content = lib.fill(mine, 6)
            pieces = [(mine, i, remote, i, 4096) for i in range(0, size, 4096)]
            transfer = peer.write(pieces)
            del pieces
            transfer.wait(lib.PATIENCE)
            with memoryview(theirs) as view:
                self.assertEqual(view, content)


class Refusals(lib.Test):
    """What is wrong is the exception that it is in Python, and nothing is posted."""

    def refused(self, expected, call, *args, **keywords):
        before = self.peer.engine.stats()
        with self.subTest(args=args, keywords=keywords):
            with self.assertRaises(expected) as raised:
                call(*args, **keywords)
            self.assertTrue(str(raised.exception))
            self.assert_nothing_posted(self.peer.engine, before)

    def test_P2_wrong_types(self):
        with lib.pair(SIZE) as (a, b, mine, theirs, self.peer, remote):
            write = self.peer.write
            for local in (None, 7, "text", object(), remote):
                self.refused(TypeError, write, local, remote)
            for there in (7, b"bytes", mine, object()):
                self.refused(TypeError, write, mine, there)
            self.refused(TypeError, write)
            self.refused(TypeError, write, mine, remote, remote)
            self.refused(TypeError, write, [mine])
            self.refused(TypeError, write, [(mine, remote, 5)])
            self.refused(TypeError, write, [(mine, "0", remote, 0, 5)])
            self.refused(TypeError, write, [(remote, 0, mine, 0, 5)])
            self.refused(TypeError, write, 5)
            self.refused(TypeError, write, mine, remote, colour=5)
            self.refused(TypeError, write, mine, remote, notify="7")
            self.refused(TypeError, write, mine, remote, notify=7.5)
            self.refused(TypeError, write, mine, remote, payload=b"without notify")
            self.refused(TypeError, write, mine, remote, notify=1, payload="text")
            self.refused(TypeError, write, mine, remote, timeout="soon")
            self.refused(TypeError, self.peer.notify)
            done = write(mine[:0], remote[:0])
            done.wait(lib.PATIENCE)
            done.wait(timeout=None)
            self.refused(TypeError, done.wait, 1, 2)
            self.refused(TypeError, done.wait, 1, timeout=2)
            self.refused(TypeError, done.wait, colour=1)
            self.refused(TypeError, done.wait, "1")
            self.refused(ValueError, done.wait, -1)
            self.refused(TypeError, self.peer.remote, "text", "soon")
            self.refused(TypeError, self.peer.remote, 5)
            self.refused(TypeError, a.peer, b"127.0.0.1:1")
            self.refused(TypeError, lambda: mine[5])
            self.refused(TypeError, lambda: remote["a"])
            self.refused(TypeError, weir.Memory)
            self.refused(TypeError, weir.Transfer)
            del write

    def test_P2_wrong_values(self):
        with lib.pair(SIZE) as (a, b, mine, theirs, self.peer, remote):
            write = self.peer.write
            self.refused(ValueError, write, mine[:10], remote[:11])
            self.refused(ValueError, write, bytearray(10), remote[:10])
            self.refused(ValueError, lambda: mine[0:10:2])
            for key in (slice(0, SIZE + 1), slice(SIZE + 1, None), slice(0, 1 << 70), slice(8, 4),
                        slice(-SIZE - 1, None), slice(None, -SIZE - 1), slice(SIZE, SIZE + 4)):
                for whole in (mine, remote, mine[:], remote[:]):
                    self.refused(IndexError, lambda: whole[key])
            self.refused(IndexError, lambda: mine[10:20][0:11])
            self.refused(ValueError, write, mine, remote, timeout=-1)
            self.refused(ValueError, write, mine, remote, timeout=float("nan"))
            self.refused(OverflowError, write, mine, remote, notify=2**64)
            self.refused(OverflowError, write, mine, remote, notify=-1)
            self.refused(OverflowError, write, [(mine, -1, remote, 0, 5)])
            self.refused(weir.TooBigError, write, mine, remote, notify=1, payload=bytes(257))
            self.refused(IndexError, write, [(mine, SIZE - 4, remote, 0, 5)])
            self.refused(IndexError, write, [(mine, 0, remote, SIZE - 4, 5)])
            self.refused(IndexError, write, [(mine, 2**64 - 1, remote, 0, 5)])
            self.refused(weir.InvalidError, self.peer.remote, b"no descriptor")
            self.refused(weir.AddressError, a.peer, "no address")
            with self.assertRaisesRegex(weir.InvalidError, "4 bytes that are no descriptor.*a name is a str"):
                self.peer.remote(b"name")
            with self.assertRaisesRegex(weir.AddressError, "'nowhere'.*\"host:port\""):
                a.peer("nowhere")
            self.refused(weir.AddressError, a.peer, "127.0.0.1:1\0")
            self.refused(ValueError, a.allocate, 0)
            self.refused(ValueError, a.allocate, 10, "rx")
            self.refused(TypeError, a.allocate, "10")
            self.refused(TypeError, a.allocate, 10, 3)
            self.refused(MemoryError, a.allocate, 1 << 60)

    @unittest.skipIf(numpy is None, "no numpy")
    def test_P2_wrong_arrays(self):
        with lib.pair(SIZE) as (a, b, mine, theirs, self.peer, remote):
            good = numpy.array([[0, 0, 0, 0, 8]] * 4, dtype=numpy.uint64)
            both = {"memories": [mine], "remotes": [remote]}
            write = self.peer.write
            for kind in (numpy.float64, numpy.uint32, numpy.complex128, ">u8", object):
                self.refused((TypeError, ValueError), write, good.astype(kind), **both)
            self.refused(ValueError, write, good[:, :4].copy(), **both)
            self.refused(ValueError, write, good[0], **both)
            self.refused(ValueError, write, good[::2], **both)
            self.refused(ValueError, write, numpy.asfortranarray(good), **both)
            self.refused(TypeError, write, good, memories=[mine])
            self.refused(TypeError, write, good, remotes=[remote])
            self.refused(TypeError, write, good, memories=[remote], remotes=[mine])
            self.refused(TypeError, write, good, memories=5, remotes=[remote])
            self.refused(TypeError, write, [(mine, remote)], **both)
            for column, value in ((0, 1), (2, 1), (1, SIZE), (3, SIZE - 7), (4, 2**63)):
                bad = good.copy()
                bad[3, column] = value
                self.refused(IndexError, write, bad, **both)
            negative = good.astype(numpy.int64)
            negative[2, 1] = -8
            self.refused(IndexError, write, negative, **both)
            with self.assertRaises(IndexError) as raised:
                write(bad, **both)
            self.assertIn("segment 3", str(raised.exception))
            write(good, **both).wait(lib.PATIENCE)

    def test_P2_read_only_memory(self):
        with lib.pair(SIZE) as (a, b, mine, theirs, self.peer, remote):
            constant = a.register(bytes(range(256)), access="r")
            self.assertTrue(constant.readonly)
            self.refused(BufferError, a.register, bytes(16))
            self.refused(BufferError, self.peer.read, constant, remote[:256])
            self.refused(BufferError, self.peer.read, [(constant, 0, remote, 0, 4)])
            self.peer.write(constant, remote[:256]).wait(lib.PATIENCE)
            self.assertEqual(bytes(theirs[:256]), bytes(range(256)))
            with memoryview(constant) as view:
                self.assertTrue(view.readonly)

    def wrong_segment(self, expected, number, call, *args, **keywords):
        with self.subTest(args=args), self.assertRaises(expected) as raised:
            call(*args, **keywords)
        self.assertEqual(raised.exception.segment, number)
        self.assertIn(f"segment {number}", str(raised.exception))

    def test_P2_which_segment_is_wrong(self):
        with lib.pair(SIZE) as (a, b, mine, theirs, self.peer, remote), lib.engine(thread=True) as c:
            peer, good = self.peer, (mine[:8], remote[:8])
            peer.write(*good).wait(lib.PATIENCE)
            fives = [(mine, 0, remote, 0, 8)] * 3
            gone, stranger = peer.remote(theirs.export()), c.allocate(64)
            gone.release()
            kept = b.allocate(64, "w"), b.allocate(64, "r")
            unread, unwritten = (peer.remote(memory.export()) for memory in kept)
            elsewhere = a.peer(c.address).remote(stranger.export())
            released = a.allocate(8)
            released.release()
            for wrong, expected in (
                    ((mine[:8], remote[:9]), ValueError), ((mine[:8], 5), TypeError), (5, TypeError),
                    ((bytearray(8), remote[:8]), ValueError), ((stranger[:8], remote[:8]), weir.InvalidError),
                    ((mine, -1, remote, 0, 5), OverflowError), ((mine, "0", remote, 0, 5), TypeError),
                    ((mine, SIZE - 4, remote, 0, 5), weir.BoundsError), ((released, remote[:8]), weir.StaleError),
                    ((mine, 0, remote, SIZE - 4, 5), weir.BoundsError),
                    ((mine[:64], unwritten), weir.AccessError), ((mine[:64], elsewhere), weir.InvalidError),
                    ((mine[:SIZE], gone), weir.StaleError)):
                self.wrong_segment(expected, 3, peer.write, fives + [wrong, good])
                self.wrong_segment(expected, 0, peer.write, [wrong])
            self.wrong_segment(weir.AccessError, 1, peer.read, [good, (mine[:64], unread)])
            rows = memoryview(array.array("Q", [0, 0, 0, 0, 8, 0, 0, 0, 4, 8])).cast("B").cast("Q", [2, 5])
            peer.write(rows, memories=[mine], remotes=[remote]).wait(lib.PATIENCE)
            for column, value, expected in ((0, 1, IndexError), (2, 1, IndexError), (4, SIZE, weir.BoundsError),
                                            (1, SIZE, weir.BoundsError), (3, SIZE, weir.BoundsError)):
                before, rows[1, column] = rows[1, column], value
                self.wrong_segment(expected, 1, peer.write, rows, memories=[mine], remotes=[remote])
                rows[1, column] = before
            rows[1, 2] = 1
            for there, expected in ((gone, weir.StaleError), (elsewhere, weir.InvalidError)):
                self.wrong_segment(expected, 1, peer.write, rows, memories=[mine], remotes=[remote, there])
            with self.assertRaises(weir.TooBigError) as raised:
                peer.notify(1, bytes(257))
            self.assertIsNone(raised.exception.segment)

    def test_P2_rights_that_were_not_granted(self):
        with lib.pair(SIZE, access="r") as (a, b, mine, theirs, self.peer, remote):
            self.assertEqual(remote.access, "r")
            self.refused(PermissionError, self.peer.write, mine, remote)
            self.peer.read(mine, remote).wait(lib.PATIENCE)
            local = a.allocate(10, "")
            self.refused(weir.AccessError, local.export)

    def test_P2_what_was_closed_or_is_anothers(self):
        with lib.pair(SIZE) as (a, b, mine, theirs, self.peer, remote):
            with lib.engine(thread=True) as c:
                other = c.peer(b.address)
                self.refused(weir.InvalidError, self.peer.write, c.allocate(SIZE), remote)
                self.refused(weir.InvalidError, other.write, c.allocate(SIZE), remote)
            self.refused(weir.ClosedError, other.notify, 5)
            spare, gone = a.allocate(8), self.peer.remote(theirs.export())
            part = spare[0:4]
            spare.release()
            gone.release()
            self.refused(weir.StaleError, self.peer.write, spare, remote[:8])
            self.refused(weir.StaleError, self.peer.write, part, remote[:4])
            self.refused(weir.StaleError, self.peer.write, mine, gone)
            self.refused(weir.StaleError, spare.export)
            self.refused(BufferError, memoryview, part)
            second = a.peer(b.address)
            second.close()
            self.refused(weir.StaleError, second.notify, 5)
            self.refused(weir.StaleError, second.info)
            self.peer.write(mine, remote).wait(lib.PATIENCE)

    def test_P2_a_full_pool_is_again_and_blocks_if_it_is_told_to(self):
        # Nobody answers there, so that what is submitted stays under way.
        with lib.engine(transfers_max=4) as a:
            nobody = a.peer("127.0.0.1:1")
            kept = [nobody.notify(i) for i in range(4)]
            with self.assertRaises(weir.AgainError):
                nobody.notify(5)
            with self.assertRaises(weir.AgainError):
                nobody.notify(5, block=0.05)
            kept.pop().cancel()
            nobody.notify(6, block=True)
            self.assertEqual(a.stats().eagain_transfers > 0, True)

    def test_P2_options_of_an_engine(self):
        for expected, options in ((TypeError, {"colour": 1}), (TypeError, {"device": 5}),
                                  (TypeError, {"sq_depth": "deep"}),
                                  (OverflowError, {"sq_depth": -1}),
                                  (OverflowError, {"sq_depth": 2**32}),
                                  (weir.InvalidError, {"sq_depth": 1}),
                                  (weir.NoDeviceError, {"device": "abacus"}),
                                  (ValueError, {"device": "shm\0"}),
                                  (weir.AddressError, {"listen": "nowhere:x"})):
            with self.subTest(options=options), self.assertRaises(expected):
                weir.Engine(**options)
        with self.assertRaises(TypeError):
            weir.Engine("shm", device="shm")
        with self.assertRaises(TypeError):
            weir.Engine("shm", None, 5)
        with self.assertRaisesRegex(weir.InvalidError, "sq_depth"):
            weir.Engine(sq_depth=1)
        with weir.Engine("shm", "none", sq_depth=64) as engine:
            self.assertIsNone(engine.address)
