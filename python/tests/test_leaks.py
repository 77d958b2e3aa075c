# SPDX-License-Identifier: Apache-2.0
"""What is made and dropped leaves nothing behind: no reference, no memory, no descriptor."""
import gc
import os
import resource
import sys
import unittest

import lib
import weir

try:
    import numpy
except ImportError:
    numpy = None

ROUNDS = 40 if lib.SANITIZED else 150


def blocks():
    """Blocks of Python's own memory that are in use."""
    gc.collect()
    return sys.getallocatedblocks()


def descriptors():
    """How many this process has open."""
    return len(os.listdir("/proc/self/fd"))


class Leaks(lib.Test):
    """A call, many times over, well and with each error."""

    def steady(self, call):
        """The least of three growths: what is kept once, a cache say, is no leak."""
        growths = []
        for _ in range(3):
            before = blocks()
            for _ in range(ROUNDS):
                call()
            growths.append(blocks() - before)
        self.assertLess(min(growths), ROUNDS // 4, call)

    def test_P9_calls_that_end_well(self):
        with lib.pair(4096) as (a, b, mine, theirs, peer, remote), b.inbox(7, 1000) as inbox:
            descriptor = theirs.export()
            peer.write(mine, remote).wait(lib.PATIENCE)

            def message():
                peer.send(7, [b"text", mine[0:300]], tag=5).wait(lib.PATIENCE)
                peer.send(7, bytes(500)).wait(lib.PATIENCE)
                for transfer in peer.send_many(7, [(b"a", 1), mine[:200], [b"b", b"c"]]):
                    transfer.wait(lib.PATIENCE)
                got = [inbox.take(lib.PATIENCE) for _ in range(3)]
                got += inbox.take_many(1)
                while len(got) < 5:
                    got += inbox.take_many(5)
                for each in got:
                    repr((each, each.peer, each.tag, memoryview(each)[:1]))

            def note():
                peer.notify(5, b"payload").wait(lib.PATIENCE)
                repr(b.notification(lib.PATIENCE))

            def loan():
                with peer.loan(7, 100) as loan_:
                    with memoryview(loan_) as view:
                        view[0] = 1
            def name():
                theirs.publish("kv")
                b.publish_value("v", b"5")
                repr((peer.remote("kv", lib.PATIENCE), peer.value("v", lib.PATIENCE),
                      peer.names(lib.PATIENCE), b.peer_self()))
                b.publish("kv", b.allocate(4096))
                b.withdraw("kv")
                b.withdraw("v")
                for _ in iter(a.poll_event, None):
                    pass
            calls = [message, note, loan, name, lambda: (peer.flush(), a.flush()),
                     lambda: peer.write(mine[5:9], remote[5:9]).wait(lib.PATIENCE),
                     lambda: peer.write([(mine[i:i + 8], remote[i:i + 8])
                                         for i in range(0, 4096, 8)]).wait(lib.PATIENCE),
                     lambda: peer.write(iter([(mine, 0, remote, 0, 8)])).wait(lib.PATIENCE),
                     lambda: peer.remote(descriptor),
                     lambda: a.register(bytearray(4096)),
                     lambda: a.register(bytearray(4096)).release(),
                     lambda: bytes(a.allocate(4096)[5:10]),
                     lambda: a.peer(b.address),
                     lambda: repr((a, mine, peer, remote, mine[0:5], peer.info(), peer.stall(),
                                   peer.qp(), a.stats(), inbox.info())),
                     lambda: (a.metrics(), a.trace()), weir.settings,
                     lambda: b.inbox(9, 100).close()]
            if numpy is not None:
                rows = numpy.array([[0, i, 0, i, 1] for i in range(100)], numpy.uint64)
                calls.append(lambda: peer.write(rows, memories=[mine],
                                                remotes=(remote,)).wait(lib.PATIENCE))
                calls.append(lambda: numpy.frombuffer(mine, numpy.uint8).sum())
            for call in calls:
                with self.subTest(call=call):
                    self.steady(call)
            self.assertEqual((mine.exports, a.exports), (0, 0))
            self.assertEqual(sys.getrefcount(mine), 3)  # ours, a closure's, and the call's

    def test_P9_calls_that_raise(self):
        with lib.pair(4096) as (a, b, mine, theirs, peer, remote):
            def failing(call, *args, **keywords):
                def run():
                    with self.assertRaises(Exception):
                        call(*args, **keywords)
                return run
            for call in (failing(peer.write, mine, None), failing(peer.write, mine[:5], remote[:6]),
                         failing(peer.write, [(mine, remote), (mine, 5)]),
                         failing(peer.write, [(mine, 0, remote, 4000, 500)]),
                         failing(peer.write, mine, remote, notify=1, payload=bytes(300)),
                         failing(peer.write, mine, remote, notify=1, payload=b"x", colour=1),
                         failing(peer.send, 7, [b"a", mine, "b"]),
                         failing(peer.send_many, 7, [b"a", "b"]),
                         failing(peer.remote, b"no"), failing(a.peer, "no"),
                         failing(peer.remote, "no", 0), failing(peer.remote, "n\0"),
                         failing(peer.value, "no", timeout=0), failing(mine.publish, ""),
                         failing(a.publish_value, "v", bytes(193)), failing(a.withdraw, "no"),
                         failing(weir.choose_device, device="no"),
                         failing(peer.read, [(mine, remote), (mine, 0, remote, 4000, 500)]),
                         failing(a.register, memoryview(b"1234")[::2]), failing(a.register, b"x"),
                         failing(a.register, 5), failing(a.allocate, 5, "z"),
                         failing(a.notification, 0), failing(weir.Engine, sq_depth=1),
                         failing(weir.Engine, colour=1), failing(weir.Engine, "shm", device="x")):
                with self.subTest(call=call):
                    self.steady(call)
            peer.write(mine, remote).wait(lib.PATIENCE)

    def test_P9_engines_leave_no_descriptor_and_no_memory(self):
        def round_():
            with lib.pair(1 << 20) as (a, b, mine, theirs, peer, remote):
                peer.write(mine, remote, notify=1).wait(lib.PATIENCE)
                peer.send(7, b"nobody takes this")
                b.notification(lib.PATIENCE)
        for _ in range(3):
            round_()
        fds, before = descriptors(), blocks()
        for _ in range(10):
            round_()
        self.assertLessEqual(descriptors(), fds)
        self.assertLess(blocks() - before, 100)

    def test_P9_an_engine_that_has_published_is_collected(self):
        kept = bytearray(4096)
        before = sys.getrefcount(kept)
        a = lib.engine()
        a.publish("kv", a.register(kept))
        with self.assertWarns(ResourceWarning):
            del a
            gc.collect()
        self.assertEqual(sys.getrefcount(kept), before)

    def test_P9_dropped_transfers_are_let_go(self):
        with lib.pair(4096, thread=False) as (a, b, mine, theirs, peer, remote):
            nobody = a.peer("127.0.0.1:1")
            before = blocks()
            for i in range(2000):
                nobody.notify(i, timeout=0.0001)  # more than the pool has, if none were let go
                nobody.notify(i, timeout=0.0001)
                a.wait(0.001)
            a.wait(0.01)
            for _ in range(100):
                a.progress()
            self.assertLess(blocks() - before, 300)


if __name__ == "__main__":
    unittest.main()
