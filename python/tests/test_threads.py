# SPDX-License-Identifier: Apache-2.0
"""Threads: many of them on one engine, and what they may do to each other. Under a library and a
module with ThreadSanitizer these are what it looks at."""
import gc
import sys
import threading
import time
import unittest
import weakref

import lib
import weir

SCALE = 1 if lib.SANITIZED else 4


class Threads(lib.Test):
    """Whatever they do, nothing breaks, and each byte is where it was written."""

    def setUp(self):
        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        self.addCleanup(sys.setswitchinterval, before)

    def all_of(self, *functions):
        """Runs them in threads at once; what one raises is raised."""
        errors = []

        def guarded(function):
            try:
                function()
            except BaseException as error:  # pylint: disable=broad-except
                errors.append(error)
        threads = [threading.Thread(target=guarded, args=(f,)) for f in functions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]

    def test_P10_writers_of_all_sizes_on_one_peer(self):
        count, room = 6, 1 << 16
        with lib.pair(count * room) as (a, b, mine, theirs, peer, remote):
            content = lib.fill(mine, 1)

            def writer(index):
                def run():
                    random = lib.random.Random(index)
                    base = index * room
                    for _ in range(100 * SCALE):
                        at = base + random.randrange(room - 1)
                        length = random.randrange(1, base + room - at + 1) >> random.randrange(16)
                        end = at + length
                        peer.write(mine[at:end], remote[at:end]).wait(lib.PATIENCE)
                    peer.write(mine[base:base + room], remote[base:base + room]).wait(lib.PATIENCE)
                return run
            self.all_of(*(writer(index) for index in range(count)))
            self.assertEqual(bytes(theirs), content)

    def test_P10_senders_and_takers(self):
        count = 200 * SCALE
        with lib.pair() as (a, b, mine, theirs, peer, remote), b.inbox(7, 2048) as inbox:
            got, lock = [], threading.Lock()

            def sender(index):
                def run():
                    kept = []
                    for i in range(count):
                        data = b"%d %d" % (index, i)
                        if i % 7 == 0:
                            data = data.ljust(1500)
                        while True:
                            try:
                                kept.append(peer.send(7, data, block=True))
                                break
                            except weir.AgainError:
                                a.wait(0.001)
                    for transfer in kept:
                        transfer.wait(lib.PATIENCE)
                return run

            def taker():
                while True:
                    try:
                        with inbox.take(0.05) as message:
                            text = bytes(message)
                    except TimeoutError:
                        with lock:
                            if len(got) >= 3 * count:
                                return
                        continue
                    with lock:
                        got.append(tuple(int(word) for word in text.split()))
            self.all_of(sender(0), sender(1), sender(2), taker, taker)
            self.assertEqual(sorted(got), sorted((s, i) for s in range(3) for i in range(count)))

    def test_P10_one_transfer_looked_at_by_all(self):
        with lib.pair(thread=False) as (a, b, mine, theirs, peer, remote):
            stop = threading.Event()

            def progress():
                while not stop.is_set():
                    b.wait(0.01)

            def main():
                try:
                    for i in range(40 * SCALE):
                        transfer = peer.write(mine, remote, notify=i)
                        self.all_of(lambda: transfer.wait(lib.PATIENCE), transfer.cancel,
                                    transfer.status, lambda: transfer.waiting_for,
                                    lambda: transfer.wait(lib.PATIENCE)) if i % 4 == 3 else \
                            self.all_of(lambda: transfer.wait(lib.PATIENCE), transfer.status,
                                        lambda: transfer.done, lambda: repr(transfer),
                                        lambda: transfer.wait(lib.PATIENCE))
                except weir.CanceledError:
                    pass
                finally:
                    stop.set()
            self.all_of(progress, main)

    def test_P10_handles_made_and_dropped_by_all(self):
        with lib.pair() as (a, b, mine, theirs, peer, remote):
            descriptor = theirs.export()
            peer.write(mine, remote).wait(lib.PATIENCE)

            def run():
                for i in range(25 * SCALE):
                    own = a.peer(b.address)
                    there = own.remote(descriptor)
                    memory = a.register(bytearray(b"x" * 4096)) if i % 2 else a.allocate(4096)
                    own.write(memory[:4096], there[:4096])
                    with memoryview(memory) as view:
                        view[0] = 1
                    if i % 3 == 0:
                        del there, own
                        try:
                            memory.release(lib.PATIENCE)
                        except weir.BusyError:
                            pass
                    if i % 10 == 0:
                        gc.collect()
            self.all_of(*[run] * 4)

    def test_P10_a_close_while_all_are_at_it(self):
        for round_ in range(4 * SCALE):
            a, b = lib.engine(thread=bool(round_ % 2)), lib.engine(thread=True)
            with b:
                theirs, mine = b.allocate(1 << 16), a.allocate(1 << 16)
                peer = a.peer(b.address)
                remote = peer.remote(theirs.export())
                inbox = a.inbox(7, 100)
                ended = []

                def until_closed(call):
                    def run():
                        try:
                            while True:
                                call()
                        except (weir.ClosedError, weir.StaleError) as error:
                            ended.append(error)
                        except BufferError as error:
                            ended.append(error)
                    return run

                def view():
                    with memoryview(mine) as seen:
                        seen[5] = 1

                def close():
                    time.sleep(0.02)
                    while not a.closed:
                        try:
                            a.close()
                        except BufferError:
                            pass
                calls = (a.wait, a.notification, inbox.take,
                         lambda: peer.write(mine, remote, block=True).wait(),
                         lambda: peer.notify(5, block=True), view, a.stats, lambda: a.allocate(4096),
                         a.flush, peer.flush, lambda: a.publish_value("v", b"x"),
                         lambda: mine.publish("kv"), lambda: peer.remote("never"))
                self.all_of(close, *(until_closed(call) for call in calls))
                self.assertEqual(len(ended), len(calls))

    def test_P10_two_closes_at_once(self):
        for _ in range(5 * SCALE):
            a = lib.engine(thread=True)
            a.allocate(4096)
            self.all_of(a.close, a.close, a.close)
            self.assertTrue(a.closed)

    def test_P10_memory_that_is_dropped_under_a_close(self):
        """Its object goes in the thread that closes, or when that has closed. Threads give the GIL up
        by themselves alone here, so that no other one runs between the end of close() and the note
        of it."""
        class Owner(bytearray):
            pass

        def close():
            a.close()
            over.append(True)
        sys.setswitchinterval(3600)
        for _ in range(25 * SCALE):
            a, b = lib.engine(thread=True), lib.engine(thread=True)
            owner = Owner(4096)
            memory = a.register(owner)
            b.peer(a.address).remote(memory.export())
            over, freed = [], []
            closer = threading.Thread(target=close)
            weakref.finalize(owner, lambda: freed.append(
                threading.current_thread() is closer or bool(over)))
            del owner
            closer.start()
            while not a.closed:
                time.sleep(0)
            del memory  # a peer may be inside an access, until the close says that none is
            closer.join()
            self.assertEqual(freed, [True])
            b.close()

    def test_P10_a_number_that_closes_the_engine(self):
        class Closes:
            def __index__(self):
                a.close()
                return 1
        for arguments in ((Closes(), 4096), (1, Closes()), (1, 4096, Closes()), (1, 4096, 1, Closes())):
            with self.subTest(arguments=arguments):
                a = lib.engine()
                with self.assertRaises(weir.ClosedError):
                    a.inbox(*arguments)

    def test_P10_a_collection_at_any_time(self):
        stop = threading.Event()

        def collect():
            while not stop.is_set():
                gc.collect()

        def work():
            try:
                for i in range(10 * SCALE):
                    with lib.pair(4096) as (a, b, mine, theirs, peer, remote):
                        with b.inbox(7, 100) as inbox:
                            kept = [peer.write(mine, remote), peer.send(7, b"x"), peer.loan(7, 5)]
                            kept.append(inbox.take(lib.PATIENCE))
                            kept.append(kept)
                            del kept
            finally:
                stop.set()
        self.all_of(collect, work)


class Interpreter(lib.Test):
    """Other threads run while a call takes long, and a short one does not let them in between."""

    def setUp(self):
        # Nobody is told to give the GIL up: another thread runs only where a call does.
        before = sys.getswitchinterval()
        sys.setswitchinterval(1000)
        self.addCleanup(sys.setswitchinterval, before)
        self.ticks, self.stop = 0, False
        thread = threading.Thread(target=self.tick)
        self.addCleanup(thread.join)
        self.addCleanup(setattr, self, "stop", True)
        thread.start()

    def tick(self):
        while not self.stop:
            self.ticks += 1
            time.sleep(0)

    def runs_beside(self, call):
        """Whether the other thread ran in one of these calls."""
        for _ in range(2000):
            before = self.ticks
            call()
            if self.ticks != before:
                return True
        return False

    def test_P10_another_interpreter_is_refused(self):
        try:
            import _xxsubinterpreters as interpreters
        except ImportError:
            self.skipTest("this Python has another module for interpreters")
        other = interpreters.create()
        try:
            with self.assertRaisesRegex(interpreters.RunFailedError, "one interpreter of a process"):
                interpreters.run_string(other, f"import sys\nsys.path[:] = {sys.path!r}\nimport weir")
        finally:
            interpreters.destroy(other)
        with lib.engine() as engine, self.assertRaises(weir.AddressError):
            engine.peer("nonsense")

    def test_P10_the_gil_is_free_in_long_calls(self):
        size = 4 << 20
        with lib.pair(size) as (a, b, mine, theirs, peer, remote), b.inbox(7, size) as inbox:
            peer.notify(1).wait(lib.PATIENCE)
            pieces = [(mine, i, remote, i, 4096) for i in range(0, size, 4096)]

            def message():
                peer.send(7, mine).wait(lib.PATIENCE)
                inbox.take(lib.PATIENCE)
            for call in (lambda: a.wait(0.01), lambda: a.allocate(size),
                         lambda: peer.write(mine, remote).wait(lib.PATIENCE),
                         lambda: peer.read(mine, remote).wait(lib.PATIENCE),
                         lambda: peer.write(pieces).wait(lib.PATIENCE),
                         lambda: lib.engine().close(), message):
                with self.subTest(call=call):
                    self.assertTrue(self.runs_beside(call))

    def test_P10_the_gil_is_kept_in_short_calls(self):
        with lib.pair(4096, thread=False) as (a, b, mine, theirs, peer, remote):
            transfer = peer.notify(1)
            while not transfer.done or not peer.info().connected:
                a.wait(0.001)
                b.wait(0.001)
            under_way = a.peer("127.0.0.1:1").notify(1)
            calls = [transfer.status, under_way.status, lambda: under_way.done, lambda: mine[5:10],
                     a.poll_notification, a.poll_event, lambda: memoryview(mine).release()]
            for call in calls:
                with self.subTest(call=call):
                    self.assertFalse(self.runs_beside(call))
            under_way.cancel()
            while not under_way.done:
                a.wait(0.001)
            if lib.DEVICE == "shm":  # done in the submit, so that nothing is under way
                self.assertFalse(self.runs_beside(lambda: peer.write(mine[:8], remote[:8])))


if __name__ == "__main__":
    unittest.main()
