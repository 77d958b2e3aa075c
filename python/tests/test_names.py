# SPDX-License-Identifier: Apache-2.0
"""Names: memory and values that are published, found, changed and withdrawn; and what a peer that is
the engine itself, and a flush, are good for."""
import asyncio
import gc
import os
import signal
import threading
import unittest
import weakref

import lib
import weir

try:
    import trio
except ImportError:
    trio = None


class Bytes(bytearray):
    """Memory of which it can be seen whether somebody has it."""


def run(main):
    """Runs a coroutine function in a new loop; what hangs ends."""
    async def bounded():
        return await asyncio.wait_for(main(), lib.PATIENCE)
    return asyncio.run(bounded())


def name_event(engine, name):
    """Takes events until one tells of that name."""
    while (event := engine.event(lib.PATIENCE)).type != "name" or event.value != name:
        pass
    return event


class Names(lib.Test):
    """In threads."""

    def test_P13_memory_is_found_by_its_name(self):
        with lib.pair() as (a, b, mine, theirs, peer, remote):
            b.publish("kv", theirs)
            found = peer.remote("kv")
            self.assertEqual((found.name, len(found), found.access, found.peer),
                             ("kv", len(theirs), "rw", peer))
            self.assertIsNone(remote.name)
            self.assertIn("'kv'", repr(found))
            content = lib.fill(mine, 3)
            peer.write(mine, found).wait(lib.PATIENCE)
            self.assertEqual(bytes(theirs), content)
            theirs.publish("the same")
            self.assertEqual(len(peer.remote("the same", timeout=lib.PATIENCE)), len(theirs))

    def test_P13_a_name_is_waited_for(self):
        with lib.pair() as (a, b, mine, theirs, peer, remote):
            results = []
            threads = [threading.Thread(target=lambda call=call: results.append(call()))
                       for call in (lambda: len(peer.remote("later")), lambda: peer.value("v"))]
            for thread in threads:
                thread.start()
            with self.assertRaises(TimeoutError) as caught:
                peer.remote("never", timeout=0.05)
            self.assertIsInstance(caught.exception, weir.NotReadyError)
            self.assertIn("'never'", str(caught.exception))
            self.assertEqual(results, [])
            theirs.publish("later")
            b.publish_value("v", b"here")
            for thread in threads:
                thread.join()
            self.assertCountEqual(results, [len(theirs), b"here"])

    def test_P13_values_are_kept_and_change(self):
        with lib.pair() as (a, b, mine, theirs, peer, remote):
            for value in (b"", b"x", bytes(range(192)), bytearray(b"ab"), memoryview(b"abc")[1:]):
                b.publish_value("v", value)
                self.assertEqual(b.peer_self().value("v", lib.PATIENCE), bytes(value))
            self.assertEqual(peer.value("v", timeout=lib.PATIENCE), b"bc")
            b.publish_value("v", b"other")
            name_event(a, "v")
            while peer.value("v", 0) != b"other":
                a.wait(0.01)
            b.withdraw("v")
            while True:
                try:
                    peer.value("v", timeout=0)
                    a.wait(0.01)
                except weir.NotReadyError:
                    break

    def test_P13_a_list_of_what_there_is(self):
        with lib.pair() as (a, b, mine, theirs, peer, remote):
            self.assertEqual(peer.names(), [])
            wanted = {("memory", "memory", len(theirs)), ("\u20ac \u4e2d", "value", 3), ("n" * 127, "value", 0)}
            theirs.publish("memory")
            b.publish_value("\u20ac \u4e2d", b"abc")
            b.publish_value("n" * 127, b"")
            for i in range(300):
                b.publish_value(f"value {i}", bytes(i % 193))
                wanted.add((f"value {i}", "value", i % 193))
            found = peer.names(timeout=lib.PATIENCE)
            self.assertEqual({(name.name, name.kind, name.length) for name in found}, wanted)
            self.assertEqual(len(found), len(wanted))
            self.assertIsInstance(found[0], weir.NameInfo)

    def test_P13_bytes_that_are_no_text_go_and_come(self):
        with lib.pair() as (a, b, mine, theirs, peer, remote):
            b.publish_value(b"\xff\xfe\x80".decode("utf-8", "surrogateescape"), b"5")
            name, = (name.name for name in peer.names(lib.PATIENCE))
            self.assertEqual(os.fsencode(name), b"\xff\xfe\x80")
            self.assertEqual(peer.value(name, lib.PATIENCE), b"5")
            self.assertEqual(weir.name_hash("a") == weir.name_hash("b"), False)
            self.assertGreater(weir.name_hash(name), 0)

    def test_P13_a_remote_of_a_name_that_changed_is_stale(self):
        with lib.pair() as (a, b, mine, theirs, peer, remote):
            b.publish("kv", theirs)
            first = peer.remote("kv", lib.PATIENCE)
            peer.write(mine, first).wait(lib.PATIENCE)
            other = b.allocate(4096)
            other.publish("kv")
            while len(peer.remote("kv", lib.PATIENCE)) != 4096:
                name_event(a, "kv")
            for call in (lambda: peer.write(mine[:8], first[:8]).wait(lib.PATIENCE),
                         lambda: peer.read([(mine[:8], first[:8])]).wait(lib.PATIENCE)):
                with self.assertRaises(weir.StaleError) as caught:
                    call()
                self.assertIn("'kv'", str(caught.exception))
            second = peer.remote("kv", lib.PATIENCE)
            peer.write(mine[:4096], second).wait(lib.PATIENCE)
            b.withdraw("kv")
            name_event(a, "kv")
            with self.assertRaisesRegex(weir.StaleError, "'kv'"):
                while True:
                    peer.write(mine[:8], second[:8]).wait(lib.PATIENCE)
            peer.write(mine, remote).wait(lib.PATIENCE)  # by its descriptor: not of the name
            first.release()
            second.release()

    def test_P13_a_transfer_that_ends_stale_says_the_name(self):
        with lib.pair() as (a, b, mine, theirs, peer, remote):
            import array
            b.publish("kv", theirs)
            found = peer.remote("kv", lib.PATIENCE)
            rows = memoryview(array.array("Q", [0, 0, 0, 0, 8])).cast("B").cast("Q", [1, 5])
            b.close()
            with self.assertRaisesRegex(weir.WeirError, "'kv'|127.0.0.1"):
                while True:
                    peer.write(rows, memories=[mine], remotes=[found]).wait(lib.PATIENCE)
            with self.assertRaisesRegex(weir.StaleError, "'kv'"):
                while True:
                    try:
                        peer.write(rows, memories=[mine], remotes=[found]).wait(lib.PATIENCE)
                    except weir.EndpointError:
                        pass

    def test_P13_the_engine_keeps_what_it_has_published(self):
        with lib.pair() as (a, b, mine, theirs, peer, remote):
            def published(name):
                kept = Bytes(4096)
                b.register(kept).publish(name)
                gc.collect()
                return weakref.ref(kept)
            first, second, third = published("1"), published("2"), published("3")
            self.assertEqual(len(peer.remote("1", lib.PATIENCE)), 4096)
            self.assertIsNotNone(first())
            b.withdraw("1")
            self.assert_goes(b, first)
            b.publish_value("2", b"x")
            self.assert_goes(b, second)
            fourth = published("3")
            self.assert_goes(b, third)
            self.assertIsNotNone(fourth())
            fifth = Bytes(4096)
            with b.register(fifth) as memory:
                memory.publish("5")
                memory.publish("6")
            del memory
            fifth = weakref.ref(fifth)
            self.assert_goes(b, fifth)
            self.assertEqual(sorted(name.name for name in peer.names(lib.PATIENCE)), ["2", "3"])
        self.assertIsNone(fourth())

    def assert_goes(self, engine, reference):
        """The memory is let go, once no peer is inside an access any more."""
        while reference() is not None:
            engine.wait(0.01)
            gc.collect()

    def test_P13_what_is_wrong_with_a_name_or_a_value(self):
        with lib.pair() as (a, b, mine, theirs, peer, remote):
            calls = (lambda name: b.publish(name, theirs), theirs.publish, b.withdraw, weir.name_hash,
                     lambda name: b.publish_value(name, b""), lambda name: peer.value(name, 0))
            for call in calls:
                for wrong in (5, None, b"kv", ["kv"]):
                    with self.assertRaisesRegex(TypeError, "a name is a str"):
                        call(wrong)
                for wrong in ("", "x" * 128, "\u20ac" * 43, "a\0b", "\0", "\ud800"):
                    with self.assertRaises(ValueError):
                        call(wrong)
            for wrong in ("", "x" * 128, "a\0b"):
                with self.assertRaises(weir.InvalidError):
                    peer.remote(wrong, 0)
            for wrong in (5, None, ["kv"]):
                with self.assertRaisesRegex(TypeError, "a name, a str, or a descriptor"):
                    peer.remote(wrong)
            with self.assertRaisesRegex(TypeError, "timeout goes with a name"):
                peer.remote(theirs.export(), timeout=1)
            for wrong in (-1, float("nan")):
                for call in (peer.remote, peer.value):
                    with self.assertRaises(ValueError):
                        call("kv", timeout=wrong)
                with self.assertRaises(ValueError):
                    peer.names(wrong)
            with self.assertRaises(TypeError):
                peer.value("kv", "soon")
            with self.assertRaises(weir.TooBigError) as caught:
                b.publish_value("v", bytes(weir.VALUE_MAX + 1))
            self.assertIsInstance(caught.exception, ValueError)
            for wrong in ("text", 5, None):
                with self.assertRaises(TypeError):
                    b.publish_value("v", wrong)
            for wrong in (b"bytes", theirs[:8], None):
                with self.assertRaisesRegex(TypeError, "publish_value"):
                    b.publish("kv", wrong)
            with self.assertRaisesRegex(weir.InvalidError, "another engine"):
                b.publish("kv", mine)
            with self.assertRaises(weir.AccessError):
                b.publish("kv", b.allocate(4096, ""))
            with self.assertRaisesRegex(weir.StaleError, "'nothing'"):
                b.withdraw("nothing")
            gone = b.allocate(4096)
            gone.release()
            with self.assertRaises(weir.StaleError):
                gone.publish("kv")
            self.assertEqual(peer.names(lib.PATIENCE), [])
            theirs.publish("m")
            b.publish_value("v", b"")
            with self.assertRaisesRegex(PermissionError, "'v'.*value"):
                peer.remote("v", lib.PATIENCE)
            with self.assertRaisesRegex(weir.AccessError, "'m'.*memory"):
                peer.value("m", lib.PATIENCE)

    def test_P13_a_table_that_is_full(self):
        with lib.engine(names_max=2, thread=True) as b, lib.engine(names_max=1, thread=True) as a:
            b.publish_value("1", b"1")
            b.publish_value("2", b"2")
            with self.assertRaises(weir.AgainError):
                b.publish_value("3", b"3")
            b.withdraw("1")
            b.publish_value("3", b"3")
            peer = a.peer(b.address)
            self.assertEqual(peer.value("2", lib.PATIENCE), b"2")
            self.assertEqual(peer.value("3", lib.PATIENCE), b"3")

    def test_P13_closed_handles_and_engines(self):
        with lib.pair() as (a, b, mine, theirs, peer, remote):
            other = a.peer(b.address)
            other.close()
            for call in (lambda: other.remote("kv"), lambda: other.value("kv"), other.names, other.flush):
                with self.assertRaises(weir.StaleError):
                    call()
            b.close()
            for call in (lambda: b.publish("kv", theirs), lambda: theirs.publish("kv"),
                         lambda: b.publish_value("kv", b""), lambda: b.withdraw("kv"), b.flush, b.peer_self):
                with self.assertRaises(weir.ClosedError):
                    call()
            a.close()
            for call in (lambda: peer.remote("kv"), lambda: peer.value("kv"), peer.names, peer.flush):
                with self.assertRaises(weir.ClosedError):
                    call()

    def test_P13_a_peer_that_is_not_reached(self):
        with lib.engine(connect_timeout_ns=200_000_000) as a:
            nobody = a.peer("127.0.0.1:1")
            for call in (lambda: nobody.remote("kv"), lambda: nobody.value("kv"), nobody.names):
                with self.assertRaises(ConnectionError) as caught:
                    call()
                self.assertIsInstance(caught.exception, weir.ConnectError)
                self.assertIn("127.0.0.1:1", str(caught.exception))

    def test_P13_a_peer_that_is_connected_may_make_no_progress(self):
        with lib.engine(thread=True) as a, lib.engine() as b:
            b.publish("kv", b.allocate(4096))
            peer = a.peer(b.address)
            peer.connect()
            while not peer.info().connected:
                b.wait(0.01)
            with self.assertRaisesRegex(weir.NotReadyError, "or makes no progress"):
                peer.remote("kv", 0.1)

    def test_P13_a_peer_that_comes_back_publishes_anew(self):
        program = """
            engine = lib.engine(listen=sys.argv[1], thread=True)
            memory = engine.allocate(4096)
            engine.publish("kv", memory)
            engine.publish_value("life", sys.argv[2].encode())
            say(engine.address)
            hear()
        """
        with lib.engine(thread=True) as a:
            mine = a.allocate(4096)
            with lib.Child(program, "127.0.0.1:0", "1") as child:
                address = child.hear()
                peer = a.peer(address)
                first = peer.remote("kv", lib.PATIENCE)
                self.assertEqual(peer.value("life", lib.PATIENCE), b"1")
                peer.write(mine, first).wait(lib.PATIENCE)
                child.kill()
                child.end()
            with lib.Child(program, address, "2") as child:
                self.assertEqual(child.hear(), address)
                while True:
                    try:
                        if peer.value("life", lib.PATIENCE) == b"2":
                            break
                    except weir.EndpointError:
                        pass
                    a.wait(0.01)
                with self.assertRaisesRegex(weir.StaleError, "'kv'"):
                    peer.write(mine, first).wait(lib.PATIENCE)
                peer.write(mine, peer.remote("kv", lib.PATIENCE)).wait(lib.PATIENCE)
                child.say("")
                self.assertEqual(child.end(), (0, ""))

    def test_P13_keyboard_interrupt_ends_each_wait(self):
        with lib.engine() as a, lib.engine(thread=True) as b:
            nobody, peer = a.peer("127.0.0.1:1"), a.peer(b.address)
            under_way = nobody.notify(1)
            for call in (lambda: nobody.remote("kv"), lambda: peer.remote("kv"), lambda: peer.value("kv"),
                         nobody.names, nobody.flush, a.flush):
                timer = threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT))
                with self.subTest(call=call), self.assertRaises(KeyboardInterrupt):
                    timer.start()
                    call()
                timer.join()
            self.assertEqual(under_way.status(), weir.EINPROGRESS)

    def test_P13_a_close_by_another_thread_ends_each_wait(self):
        for call in (lambda a, peer: peer.remote("kv"), lambda a, peer: peer.value("kv"),
                     lambda a, peer: peer.names(), lambda a, peer: peer.flush(),
                     lambda a, peer: a.flush()):
            a = lib.engine()
            peer = a.peer("127.0.0.1:1")
            kept = peer.notify(1)
            timer = threading.Timer(0.05, a.close)
            with self.subTest(call=call), self.assertRaises(weir.ClosedError):
                timer.start()  # for that the GIL has to be free
                call(a, peer)
            timer.join()
            self.assertEqual(kept.status(), weir.ECLOSED)

    def test_P13_threads_that_publish_one_name(self):
        with lib.engine(thread=True) as b:
            peer = b.peer_self()

            def publish(size):
                for _ in range(50 if lib.SANITIZED else 300):
                    b.publish("kv", b.allocate(size))
            threads = [threading.Thread(target=publish, args=(4096 * i,)) for i in range(1, 4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            gc.collect()
            self.assertIn(len(peer.remote("kv", lib.PATIENCE)), (4096, 8192, 12288))


class Loops(lib.Test):
    """In event loops."""

    def test_P13_names_are_awaited(self):
        async def main():
            with lib.pair(thread=False) as (a, b, mine, theirs, peer, remote):
                driven = asyncio.ensure_future(b.next_event())
                tasks = [asyncio.ensure_future(c) for c in (
                    peer.aremote("kv"), peer.avalue("v"), peer.aremote("kv"), peer.aremote("never"))]
                self.assertEqual(await peer.anames(), [])
                self.assertFalse(any(task.done() for task in tasks))
                theirs.publish("kv")
                b.publish_value("v", b"5")
                found = await tasks[0]
                await peer.write(mine, found)
                self.assertEqual(bytes(theirs), bytes(mine))
                self.assertEqual((await tasks[1], len(await tasks[2])), (b"5", len(theirs)))
                self.assertEqual(await peer.avalue("v"), b"5")
                self.assertEqual(sorted(name.name for name in await peer.anames()), ["kv", "v"])
                tasks[3].cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await tasks[3]
                with self.assertRaises(asyncio.TimeoutError):
                    await asyncio.wait_for(peer.aremote("never"), 0.05)
                self.assertEqual(a._driver._asks, [])
                with self.assertRaises(weir.AccessError):
                    await peer.aremote("v")
                with self.assertRaises(TypeError):
                    await peer.aremote(b"kv")
                self.assertEqual(threading.active_count(), 1)
                self.assertEqual((await driven).type, "up")
                seen = [(event.type, event.value) for event in iter(a.poll_event, None)]
                self.assertEqual(seen[0], ("up", 0))  # they were kept meanwhile
                self.assertEqual(set(seen[1:]), {("name", "kv"), ("name", "v")})
        run(main)

    def test_P13_the_loop_sleeps_while_it_asks(self):
        async def main():
            with lib.pair(thread=False) as (a, b, mine, theirs, peer, remote):
                driven = asyncio.ensure_future(b.next_notification())
                await peer.anames()
                task = asyncio.ensure_future(peer.aremote("kv"))
                await asyncio.sleep(0.05)
                turns = 0

                def count(turn=a._driver.turn):
                    nonlocal turns
                    turns += 1
                    turn()
                a._driver.turn = count
                a._driver.kick()
                await asyncio.sleep(0.3)
                self.assertLess(turns, 100)
                theirs.publish("kv")
                await task
                driven.cancel()
        run(main)

    def test_P13_an_await_ends_with_the_peer_or_the_engine(self):
        async def main():
            with lib.pair(thread=False) as (a, b, mine, theirs, peer, remote):
                driven = asyncio.ensure_future(b.next_notification())
                await peer.anames()
                tasks = [asyncio.ensure_future(peer.aremote("kv")), asyncio.ensure_future(peer.avalue("v"))]
                await asyncio.sleep(0.05)
                b.close()
                for result in await asyncio.gather(*tasks, return_exceptions=True):
                    self.assertIsInstance(result, weir.EndpointError)
                    self.assertIsInstance(result, ConnectionError)
                with self.assertRaises(weir.ClosedError):
                    await driven
                nobody = a.peer("127.0.0.1:1")
                tasks = [asyncio.ensure_future(c) for c in (
                    nobody.aremote("kv"), nobody.anames(), nobody.avalue("v"))]
                await asyncio.sleep(0.05)
                nobody.close()
                for result in await asyncio.gather(*tasks, return_exceptions=True):
                    self.assertIsInstance(result, weir.StaleError)
                nobody = a.peer("127.0.0.1:1")
                task = asyncio.ensure_future(nobody.aremote("kv"))
                await asyncio.sleep(0.05)
                a.close()
                with self.assertRaises(weir.ClosedError):
                    await task
                with self.assertRaises(weir.ClosedError):
                    await nobody.aremote("kv")
        run(main)

    def test_P13_a_peer_that_came_and_goes_ends_its_await_alone(self):
        async def main():
            with lib.engine() as b, lib.engine(thread=True) as other:
                other.publish_value("v", b"5")
                a = lib.engine(thread=True)
                a.peer(b.address).notify(1)
                came = (await b.next_notification()).peer  # a handle that nobody opened
                task = asyncio.ensure_future(came.aremote("never"))
                await asyncio.sleep(0.05)
                self.assertFalse(task.done())
                a.close()
                with self.assertRaises((weir.PeerError, weir.StaleError)):
                    await task
                for _ in range(3):
                    with self.assertRaises(weir.WeirError):
                        await came.aremote("never")
                self.assertEqual(await b.peer(other.address).avalue("v"), b"5")
        run(main)

    def test_P13_a_peer_that_is_not_reached_ends_an_await(self):
        async def main():
            with lib.engine(connect_timeout_ns=200_000_000) as a:
                nobody = a.peer("127.0.0.1:1")
                for call in (lambda: nobody.aremote("kv"), lambda: nobody.avalue("kv"), nobody.anames) * 2:
                    with self.assertRaisesRegex(weir.ConnectError, "127.0.0.1:1"):
                        await call()
        run(main)

    def test_P13_events_are_kept_as_many_as_the_engine_would(self):
        async def main():
            with lib.pair(thread=False) as (a, b, mine, theirs, peer, remote):
                driven = asyncio.ensure_future(b.next_notification())
                task = asyncio.ensure_future(peer.aremote("never"))
                for i in range(300):
                    b.publish_value("v", b"%d" % i)
                    while await peer.avalue("v") != b"%d" % i:
                        await asyncio.sleep(0)
                task.cancel()
                types = [event.type for event in iter(a.poll_event, None)]
                self.assertEqual((types[0], set(types[1:256]), types[256:257]), ("up", {"name"}, ["lost"]))
                driven.cancel()
        run(main)

    @unittest.skipIf(trio is None, "no trio")
    def test_P13_names_are_awaited_in_trio(self):
        async def main():
            with trio.fail_after(lib.PATIENCE), \
                    lib.pair(thread=False) as (a, b, mine, theirs, peer, remote):
                got = []

                async def drive():
                    async for note in b.notifications():
                        got.append(note.tag)

                async def find():
                    found = await peer.aremote("kv")
                    await peer.write(mine, found, notify=5)
                    got.append(found.name)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(drive)
                    nursery.start_soon(find)
                    self.assertEqual(await peer.anames(), [])
                    with trio.move_on_after(0.05) as scope:
                        await peer.avalue("never")
                    self.assertTrue(scope.cancelled_caught)
                    theirs.publish("kv")
                    while len(got) < 2:
                        await trio.sleep(0.001)
                    for i in range(10):
                        peer.notify(i)
                    await peer.aflush()
                    await a.aflush()
                    nursery.cancel_scope.cancel()
                self.assertCountEqual(got[:2], [5, "kv"])
        trio.run(main)


class Flush(lib.Test):
    """All that is under way ends; and the engine is its own peer."""

    def test_P14_a_flush_waits_for_what_is_under_way(self):
        with lib.pair() as (a, b, mine, theirs, peer, remote):
            inbox = b.inbox(7, 4096)
            a.flush()
            content = lib.fill(mine, 5)
            for i in range(0, len(mine), 4096):
                peer.write(mine[i:i + 4096], remote[i:i + 4096], notify=i)
                peer.send(7, b"x" * (i % 192))
            peer.flush(lib.PATIENCE)
            self.assertEqual(a.stats().transfers_failed, 0)
            self.assertEqual(len(peer._under_way()), 0)
            self.assertEqual(bytes(theirs), content)
            with self.assertRaises(weir.CanceledError):
                transfer = a.peer("127.0.0.1:1").notify(1)
                transfer.cancel()
                a.flush(lib.PATIENCE)
                transfer.result()
            inbox.close()

    def test_P14_a_flush_is_of_one_peer_or_all_and_has_a_time(self):
        with lib.pair() as (a, b, mine, theirs, peer, remote):
            nobody = a.peer("127.0.0.1:1")
            transfer = nobody.notify(1)
            peer.notify(2)
            peer.flush(lib.PATIENCE)  # whatever the other one does
            for flush in (nobody.flush, a.flush):
                for timeout in (0, 0.05):
                    with self.assertRaises(TimeoutError) as caught:
                        flush(timeout=timeout)
                    self.assertIsInstance(caught.exception, weir.InProgressError)
            self.assertEqual(transfer.status(), weir.EINPROGRESS)
            for wrong in (-1, "soon"):
                with self.assertRaises((ValueError, TypeError)):
                    a.flush(wrong)
            transfer.cancel()
            a.flush()
            self.assertEqual(transfer.status(), weir.ECANCELED)

    def test_P14_a_flush_ends_beside_one_who_goes_on(self):
        with lib.pair() as (a, b, mine, theirs, peer, remote):
            stop = threading.Event()

            def submit():
                while not stop.is_set():
                    try:
                        peer.notify(1, block=True)
                    except weir.WeirError:
                        return
                    b.poll_notification()
            thread = threading.Thread(target=submit)
            thread.start()
            try:
                for _ in range(20):
                    peer.flush(lib.PATIENCE)
                    a.flush(lib.PATIENCE)
            finally:
                stop.set()
                while thread.is_alive():
                    b.poll_notification()
                thread.join()

    def test_P14_a_flush_is_awaited_and_cancels_nothing(self):
        async def main():
            with lib.pair(thread=False) as (a, b, mine, theirs, peer, remote):
                driven = asyncio.ensure_future(b.next_event())
                for i in range(50):
                    peer.notify(i)
                await peer.aflush()
                await a.aflush()
                self.assertEqual(a.stats().notifications_sent, 50)
                nobody = a.peer("127.0.0.1:1")
                transfer = nobody.notify(1)
                task = asyncio.ensure_future(nobody.aflush())
                await asyncio.sleep(0.02)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
                self.assertEqual(transfer.status(), weir.EINPROGRESS)
                task = asyncio.ensure_future(a.aflush())
                await asyncio.sleep(0.02)
                transfer.cancel()
                await task
                nobody.notify(2)
                task = asyncio.ensure_future(a.aflush())
                await asyncio.sleep(0.02)
                a.close()
                with self.assertRaises(weir.ClosedError):
                    await task
                await driven
        run(main)

    def test_P14_the_engine_is_its_own_peer(self):
        with lib.engine(listen="none", thread=True) as a:
            peer = a.peer_self()
            self.assertEqual(peer, a.peer_self())
            here, there = a.allocate(8192), a.allocate(8192)
            content = lib.fill(here, 7)
            peer.write(here, peer.remote(there.export()), notify=5).wait(lib.PATIENCE)
            note = a.notification(lib.PATIENCE)
            self.assertEqual((note.tag, note.peer, bytes(there)), (5, peer, content))
            there.publish("there")
            self.assertEqual(len(peer.remote("there", lib.PATIENCE)), 8192)
            with a.inbox(7, 4096) as inbox:
                peer.send(7, b"to me").wait(lib.PATIENCE)
                with inbox.take(lib.PATIENCE) as message:
                    self.assertEqual((bytes(message), message.peer), (b"to me", peer))
            peer.flush(lib.PATIENCE)


class Options(lib.Test):
    """Of an engine, that came with names."""

    def test_P14_what_is_advertised_is_the_address(self):
        with lib.engine(listen="0.0.0.0:0", advertise="127.0.0.1", thread=True) as b, \
                lib.engine(thread=True) as a:
            self.assertTrue(b.address.startswith("127.0.0.1:"))
            a.peer(b.address).notify(1).wait(lib.PATIENCE)
        for wrong in (5, b"127.0.0.1"):
            with self.assertRaises(TypeError):
                lib.engine(advertise=wrong)
        with self.assertRaises(ValueError):
            lib.engine(advertise="a\0b")
        with self.assertRaises(weir.AddressError):
            lib.engine(advertise="0.0.0.0")

    def test_P14_a_device_has_a_part_of_its_own(self):
        self.assertEqual(weir.choose_device(device=lib.DEVICE).name, lib.DEVICE)
        nic = weir.choose_device(device="verbs:no_such_nic/1")
        self.assertNotEqual(nic.available, 0)
        with self.assertRaises(weir.WeirError) as caught:
            weir.Engine("verbs:no_such_nic/1")
        self.assertIn("no_such_nic", str(caught.exception))
        with self.assertRaises(weir.NoDeviceError):
            weir.choose_device(device="nonsense")
        with self.assertRaises(TypeError):
            weir.choose_device("shm")


if __name__ == "__main__":
    unittest.main()
