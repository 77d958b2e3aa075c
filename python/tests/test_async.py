# SPDX-License-Identifier: Apache-2.0
"""Engines in event loops: asyncio, and trio where it is installed."""
import asyncio
import gc
import logging
import os
import threading
import unittest

import lib
import weir

try:
    import trio
except ImportError:
    trio = None

INBOX = 7


def run(main, *args):
    """Runs a coroutine function in a new loop; what hangs ends."""
    async def bounded():
        return await asyncio.wait_for(main(*args), lib.PATIENCE)
    return asyncio.run(bounded())


class Asyncio(lib.Test):
    """One descriptor in the loop, for both engines of a pair, which have no thread."""

    def test_P6_transfers_are_awaited(self):
        async def main():
            with lib.pair(thread=False) as (a, b, mine, theirs, peer, remote):
                content = lib.fill(mine, 1)
                note = asyncio.ensure_future(b.next_notification())
                self.assertIsNone(await peer.write(mine, remote, notify=5))
                self.assertEqual((await note).tag, 5)
                self.assertEqual(bytes(theirs), content)
                await asyncio.gather(*(peer.write(mine[i:i + 64], remote[i:i + 64])
                                       for i in range(0, 65536, 64)))
                await peer.read(mine, remote)
                event = await a.next_event()
                self.assertEqual((event.type, event.peer), ("up", peer))
                with self.assertRaises(weir.BoundsError):
                    await peer.write([(mine, 65536, remote, 0, 1)])
                self.assertEqual(threading.active_count(), 1)
        run(main)

    def test_P6_a_dial_that_is_waited_for_does_not_keep_the_loop_awake(self):
        async def main():
            with lib.engine(connect_timeout_ns=1_000_000_000) as a:
                nobody = a.peer("127.0.0.1:1")
                for ask in (lambda: nobody.aremote("kv"), lambda: nobody.avalue("kv"), nobody.anames):
                    task = asyncio.ensure_future(ask())
                    await asyncio.sleep(0)
                    driver = a._driver
                    turn, turns = driver._turn, 0

                    def counted(engine, turn=turn):
                        nonlocal turns
                        turns += 1
                        return turn(engine)
                    driver._turn = counted
                    with self.assertRaises(weir.ConnectError):
                        await task
                    driver._turn = turn
                    self.assertLess(turns, 500)
        run(main)

    def test_P6_awaits_of_what_was_done_at_once_let_others_run(self):
        async def main():
            with lib.pair() as (a, b, mine, theirs, peer, remote):
                await peer.write(mine, remote)  # the first one connects
                turns = 0

                async def other():
                    nonlocal turns
                    while True:
                        turns += 1
                        await asyncio.sleep(0)
                task = asyncio.ensure_future(other())
                for _ in range(1000):
                    await peer.write(mine[:8], remote[:8])
                self.assertGreaterEqual(turns, 10)
                task.cancel()
        run(main)

    def test_P6_awaits_of_what_was_done_at_once_need_no_loop(self):
        with lib.pair() as (a, b, mine, theirs, peer, remote):
            peer.write(mine, remote).wait(lib.PATIENCE)  # the first one connects
            done = [peer.write(mine[:8], remote[:8]) for _ in range(200)]
            for transfer in done:
                transfer.wait(lib.PATIENCE)

            async def main():
                for transfer in done:
                    await transfer
                return "all"
            with self.assertRaises(StopIteration) as end:
                main().send(None)
            self.assertEqual(end.exception.value, "all")

    def test_P6_a_transfer_that_fails_raises_where_it_is_awaited(self):
        async def main():
            with lib.engine(connect_timeout_ns=200_000_000) as a:
                with self.assertRaisesRegex(weir.ConnectError, "nobody listens at its address"):
                    await a.peer("127.0.0.1:1").notify(1)
                transfer = a.peer("127.0.0.1:1").notify(1)
                with self.assertRaises(weir.ConnectError):
                    await transfer
                with self.assertRaises(weir.ConnectError):
                    await transfer
        run(main)

    def test_P6_two_await_one_transfer_and_one_is_cancelled(self):
        async def main():
            with lib.engine(connect_timeout_ns=300_000_000) as a:
                transfer = a.peer("127.0.0.1:1").notify(1)

                async def waiter():
                    await transfer
                tasks = [asyncio.ensure_future(waiter()) for _ in range(3)]
                await asyncio.sleep(0.01)
                tasks[0].cancel()  # which cancels the transfer, for all of them
                results = await asyncio.gather(*tasks, return_exceptions=True)
                self.assertIsInstance(results[0], asyncio.CancelledError)
                self.assertEqual([type(result) for result in results[1:]], [weir.CanceledError] * 2)
        run(main)

    def test_P6_messages_as_they_come(self):
        async def serve(inbox, count):
            got = []
            async for message in inbox:
                with message:
                    got.append(bytes(message))
                    await message.peer.send(8, bytes(message).upper())
                if len(got) == count:
                    inbox.close()
            return got

        async def main():
            with lib.pair(thread=False) as (a, b, mine, theirs, peer, remote):
                answers, questions = a.inbox(8, 4096), b.inbox(INBOX, 4096)
                server = asyncio.ensure_future(serve(questions, 300))
                sent = [b"a%d" % i * (1 + i % 50) for i in range(300)]

                async def send_all():
                    for data in sent:
                        await peer.send(INBOX, data)
                sender = asyncio.ensure_future(send_all())
                got = []
                async for message in answers:
                    got.append(bytes(message))
                    if len(got) == 300:
                        break
                await sender
                self.assertEqual(await server, sent)
                self.assertEqual(got, [data.upper() for data in sent])
                del message
        run(main)

    def test_P6_a_cancelled_transfer_is_quiet_before_the_exception_leaves(self):
        async def main():
            with lib.engine() as a:
                memory = a.allocate(4096)
                peer = a.peer("127.0.0.1:1")
                transfer = peer.send(INBOX, memory)

                async def waiter():
                    await transfer
                task = asyncio.ensure_future(waiter())
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                self.assertEqual(transfer.status(), weir.EINPROGRESS)
                task.cancel()
                await asyncio.sleep(0)
                task.cancel()  # and once more while it settles
                with self.assertRaises(asyncio.CancelledError):
                    await task
                self.assertEqual(transfer.status(), weir.ECANCELED)
                memory.release()  # nothing uses it
                with self.assertRaises(asyncio.TimeoutError):
                    await asyncio.wait_for(peer.notify(5), 0.05)
                a.wait(0)
                self.assertEqual(a.stats().transfers_failed, 2)
        run(main)

    def test_P6_nothing_is_lost_with_a_waiter_that_is_cancelled(self):
        async def main():
            with lib.pair(thread=False) as (a, b, mine, theirs, peer, remote):
                with b.inbox(INBOX, 4096) as inbox:
                    sent, got = 0, []
                    while len(got) < 300:
                        waiters = [asyncio.ensure_future(inbox.__anext__()) for _ in range(3)]
                        if sent < 300:
                            await peer.send(INBOX, b"%d" % sent)
                            sent += 1
                        for _ in range(sent % 5):
                            await asyncio.sleep(0)
                        waiters[sent % 3].cancel()
                        await asyncio.sleep(0.001 if sent == 300 else 0)
                        for waiter in waiters:
                            waiter.cancel()
                        for result in await asyncio.gather(*waiters, return_exceptions=True):
                            if isinstance(result, weir.Message):
                                got.append(int(bytes(result)))
                                result.give_back()
                            else:
                                self.assertIsInstance(result, asyncio.CancelledError)
                    self.assertEqual(sorted(got), list(range(300)))
        run(main)

    def test_P6_what_nobody_awaits_is_kept_and_the_loop_sleeps(self):
        async def main():
            with lib.pair(thread=False) as (a, b, mine, theirs, peer, remote):
                inbox = b.inbox(INBOX, 100)
                first = asyncio.ensure_future(b.next_event())  # b is driven from here on
                for i in range(50):
                    await peer.notify(i)
                    await peer.send(INBOX, b"%d" % i)
                await first
                while inbox.info().taken < 50 or b.stats().notifications_received < 50:
                    await asyncio.sleep(0.001)
                turns = 0

                def count(turn=b._driver.turn):
                    nonlocal turns
                    turns += 1
                    turn()
                b._driver.turn = count
                b._driver.kick()
                await asyncio.sleep(0.3)
                self.assertLess(turns, 100)  # it would be tens of thousands if it did not sleep
                self.assertEqual([b.poll_notification().tag for _ in range(50)], list(range(50)))
                self.assertEqual([(await b_message).tag if False else bytes(await b_message)
                                  for b_message in (inbox.__anext__() for _ in range(50))],
                                 [b"%d" % i for i in range(50)])
                self.assertIsNone(b.poll_notification())
        run(main)

    def test_P6_closing_ends_what_is_awaited(self):
        async def main():
            a = lib.engine()
            inbox = a.inbox(INBOX, 100)
            transfer = a.peer("127.0.0.1:1").notify(1)

            async def each(iterator):
                return [thing async for thing in iterator]

            async def one():
                await transfer
            tasks = [asyncio.ensure_future(coroutine) for coroutine in (
                each(inbox), each(a.notifications()), each(a.events()), one(), a.news())]
            await asyncio.sleep(0.02)
            self.assertFalse(any(task.done() for task in tasks[:4]))
            a.close()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            self.assertEqual(results[:3], [[], [], []])
            self.assertIsInstance(results[3], weir.ClosedError)
            with self.assertRaises(weir.ClosedError):
                await a.next_notification()
            self.assertEqual([thing async for thing in inbox], [])
        run(main)

    def test_P6_an_inbox_that_is_closed_ends_its_loop(self):
        async def main():
            with lib.engine() as a:
                inbox = a.inbox(INBOX, 100)

                async def each():
                    return [message async for message in inbox]
                task = asyncio.ensure_future(each())
                await asyncio.sleep(0.01)
                inbox.close()
                self.assertEqual(await task, [])
        run(main)

    def test_P6_one_loop_after_another_and_no_two_at_once(self):
        with lib.pair(thread=False) as (a, b, mine, theirs, peer, remote):
            async def once(tag):
                note = asyncio.ensure_future(b.next_notification())
                await peer.notify(tag)
                return (await note).tag
            self.assertEqual([run(once, i) for i in range(5)], list(range(5)))

            loop = asyncio.new_event_loop()  # one that stops and goes on
            try:
                self.assertEqual(loop.run_until_complete(once(5)), 5)
                self.assertEqual(run(once, 6), 6)
                self.assertEqual(loop.run_until_complete(once(7)), 7)
            finally:
                loop.close()

            async def other():
                await a.next_event()

            async def main():
                task = asyncio.ensure_future(a.next_event())
                await asyncio.sleep(0.01)
                result = []

                def thread():
                    try:
                        asyncio.run(other())
                    except RuntimeError as error:
                        result.append(error)
                await asyncio.get_running_loop().run_in_executor(None, thread)
                self.assertEqual(len(result), 1)
                task.cancel()
            for _ in iter(a.poll_event, None):
                pass
            run(main)

    def test_P6_room_is_news(self):
        async def main():
            with lib.pair(thread=False) as (a, b, mine, theirs, peer, remote):
                inbox = b.inbox(INBOX, 4096, peer_messages=2, messages=2)

                async def send(count):
                    for i in range(count):
                        while True:
                            try:
                                loan = peer.loan(INBOX, 4096)
                                break
                            except weir.AgainError:
                                await a.news()
                        lib.fill(loan, i)
                        await loan.send()
                task = asyncio.ensure_future(send(100))
                for i in range(100):
                    with await inbox.__anext__() as message:
                        self.assertEqual(bytes(message), lib.random.Random(i).randbytes(4096))
                await task
        run(main)

    def test_P6_another_thread_settles_what_the_loop_awaits(self):
        async def main():
            with lib.pair(thread=True) as (a, b, mine, theirs, peer, remote):
                stop = threading.Event()

                def look():
                    while not stop.is_set():
                        a.progress()
                        peer.info()
                thread = threading.Thread(target=look)
                thread.start()
                try:
                    for i in range(200):
                        await peer.notify(i)
                        self.assertEqual((await b.next_notification()).tag, i)
                finally:
                    stop.set()
                    thread.join()
        run(main)

    def test_P6_a_dropped_engine_goes_from_the_loop(self):
        async def until_driven(engine):
            task = asyncio.ensure_future(engine.next_event())
            await asyncio.sleep(0.01)
            task.cancel()
            await asyncio.wait([task])

        async def main():
            a = lib.engine()
            await asyncio.ensure_future(until_driven(a))
            self.assertIsNotNone(a._driver)
            with self.assertWarns(ResourceWarning):
                del a
                gc.collect()
            await asyncio.sleep(0.02)
            self.assertEqual(len(asyncio.get_running_loop()._selector.get_map()), 1)
        run(main)


class Ends(lib.Test):
    """An await that is cancelled in any state, a loop that ends with work under way, and an engine
    that another thread closes."""

    async def cancelled(self, transfer, wanted):
        """Cancels an await of it in that state; it has ended, and nothing uses its memory."""
        async def waiter():
            await transfer
        task = asyncio.ensure_future(waiter())
        await asyncio.sleep(0.005)
        with self.subTest(state=wanted):
            self.assertEqual(transfer.waiting_for, wanted)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            self.assertIn(transfer.status(), (weir.ECANCELED, weir.EUNKNOWN))

    def test_P6_cancelled_in_each_state(self):
        async def main():
            with lib.engine(notifications_max=1, recv_credits=1, thread=True) as b, lib.engine() as a:
                memory = a.allocate(8192)
                await self.cancelled(a.peer("127.0.0.1:1").send(INBOX, memory), "connection")
                peer = a.peer(b.address)
                await peer.notify(1)
                full = [peer.notify(i) for i in range(64)]
                while full[-1].waiting_for != "credits":
                    await asyncio.sleep(0.001)
                await self.cancelled(full.pop(), "credits")
                await self.cancelled(peer.send(99, memory), "credits")  # there is no such inbox
                inbox = b.inbox(INBOX, 8192, peer_messages=1, messages=1)
                messages = [peer.send(INBOX, memory) for _ in range(4)]
                while inbox.info().chunks_free > 0:
                    await asyncio.sleep(0.001)
                await self.cancelled(messages.pop(), "credits")  # it is full
                for transfer in full + messages:
                    transfer.cancel()
                await a.aflush()
                memory.release(lib.PATIENCE)
        run(main)

    def test_P6_cancelled_before_and_behind_its_end(self):
        async def main():
            with lib.pair(thread=False) as (a, b, mine, theirs, peer, remote):
                driven = asyncio.ensure_future(b.next_event())

                async def waiter(transfer):
                    await transfer
                await peer.notify(0)
                for ticks in range(12):  # before it runs, as it waits, as it is told, behind that
                    transfer = peer.write(mine, remote, notify=ticks)
                    task = asyncio.ensure_future(waiter(transfer))
                    for _ in range(ticks):
                        await asyncio.sleep(0)
                    task.cancel()
                    try:
                        await task
                        self.assertEqual(transfer.status(), 0)
                    except asyncio.CancelledError:
                        if ticks > 0:  # else it never ran, and cancelled nothing
                            self.assertNotEqual(transfer.status(), weir.EINPROGRESS)
                    transfer.cancel()
                await a.aflush()
                await driven
        run(main)

    def test_P6_large_transfers_cancelled_on_their_way(self):
        async def main():
            size = 4 << 20
            with lib.engine(thread=True) as b, lib.engine(sq_depth=4, inflight_bytes_max=size) as a:
                mine, theirs = a.allocate(size), b.allocate(size)
                peer = a.peer(b.address)
                remote = peer.remote(theirs.export())
                await peer.write(mine, remote)

                async def waiter(transfer):
                    await transfer
                states = set()
                for ticks in range(6):
                    transfers = [peer.write(mine, remote) for _ in range(8)]
                    tasks = [asyncio.ensure_future(waiter(transfer)) for transfer in transfers]
                    for _ in range(ticks):
                        await asyncio.sleep(0)
                    states.update(transfer.waiting_for for transfer in transfers)
                    for task in tasks:
                        task.cancel()
                    await asyncio.gather(*tasks, return_exceptions=True)
                    for transfer in transfers if ticks > 0 else ():
                        self.assertNotEqual(transfer.status(), weir.EINPROGRESS)
                    await a.aflush()
                if lib.DEVICE == "ofi":
                    self.assertGreater(len(states), 1, states)
                mine.release(lib.PATIENCE)
        run(main)

    def test_P6_other_awaits_are_cancelled_and_lose_nothing(self):
        async def main():
            with lib.pair(thread=False) as (a, b, mine, theirs, peer, remote):
                inbox = b.inbox(INBOX, 100)
                calls = (b.next_notification, b.next_event, inbox.__anext__, b.news,
                         lambda: peer.aremote("kv"), peer.anames, a.aflush)
                for ticks in range(4):
                    under_way = a.peer("127.0.0.1:1").notify(1)
                    tasks = [asyncio.ensure_future(call()) for call in calls]
                    for _ in range(ticks):
                        await asyncio.sleep(0)
                    for task in tasks:
                        task.cancel()
                    results = await asyncio.gather(*tasks, return_exceptions=True)
                    self.assertTrue(all(isinstance(result, (asyncio.CancelledError, weir.Event, list, type(None)))
                                        for result in results), results)
                    self.assertEqual(under_way.status(), weir.EINPROGRESS)
                    under_way.cancel()
                for driver in (a._driver, b._driver):
                    self.assertEqual((driver._waiting, driver._asks), ({}, []))
                task = asyncio.ensure_future(b.next_notification())
                await peer.notify(5)
                await peer.send(INBOX, b"kept")
                self.assertEqual((await task).tag, 5)
                self.assertEqual(bytes(await inbox.__anext__()), b"kept")
        run(main)

    def test_P6_a_loop_that_is_closed_with_work_under_way(self):
        logging.disable()  # of tasks that are destroyed
        self.addCleanup(logging.disable, logging.NOTSET)
        gc.collect()
        before = len(os.listdir("/proc/self/fd"))
        for is_stopped in (False, True):
            with lib.pair(thread=False) as (a, b, mine, theirs, peer, remote):
                left = []

                async def leave():
                    async def waiter(awaitable):
                        await awaitable
                    transfer = peer.write(mine, remote, notify=5)
                    left.append(transfer)
                    for awaitable in (transfer, b.next_notification(), a.next_event(),
                                      peer.aremote("kv"), a.aflush()):
                        left.append(asyncio.ensure_future(waiter(awaitable)))
                    await asyncio.sleep(0)
                    await asyncio.sleep(0)
                loop = asyncio.new_event_loop()
                loop.run_until_complete(leave())
                if not is_stopped:
                    loop.close()  # nobody has ended its tasks
                transfer = left[0]
                while not transfer.done:  # the engines go on in a thread
                    a.wait(0.01)
                    b.wait(0.01)
                self.assertEqual(transfer.status(), 0)
                self.assertEqual(b.notification(lib.PATIENCE).tag, 5)

                async def again():
                    driven = asyncio.ensure_future(b.next_notification())
                    await peer.notify(6)
                    return (await driven).tag
                self.assertEqual(run(again), 6)  # and in another loop
                left.clear()
                loop.close()
                gc.collect()
        del transfer
        gc.collect()
        self.assertEqual(len(os.listdir("/proc/self/fd")), before)

    def test_P6_asyncio_run_ends_with_all_kinds_under_way(self):
        with lib.engine() as a:
            nobody = a.peer("127.0.0.1:1")
            inbox = a.inbox(INBOX, 100)
            transfer = nobody.notify(1)

            async def main():
                async def waiter():
                    await transfer
                for coroutine in (waiter(), a.next_notification(), a.next_event(), a.news(),
                                  inbox.__anext__(), nobody.aremote("kv"), nobody.aflush()):
                    asyncio.ensure_future(coroutine)
                await asyncio.sleep(0.01)
            asyncio.run(main())  # which cancels them, and waits until they have ended
            self.assertEqual(transfer.status(), weir.ECANCELED)

    def test_P6_a_close_by_another_thread_ends_each_await(self):
        async def main():
            for round_ in range(6):
                a = lib.engine(thread=bool(round_ % 2))
                nobody, inbox = a.peer("127.0.0.1:1"), a.inbox(INBOX, 100)
                transfer = nobody.notify(1)

                async def waiter(transfer=transfer):
                    await transfer
                tasks = [asyncio.ensure_future(coroutine) for coroutine in (
                    waiter(), a.next_notification(), nobody.aremote("kv"), nobody.avalue("v"),
                    nobody.anames(), nobody.aflush(), a.aflush(), inbox.__anext__())]
                for _ in range(round_):
                    await asyncio.sleep(0)
                thread = threading.Thread(target=a.close)
                thread.start()
                results = await asyncio.gather(*tasks, return_exceptions=True)
                thread.join()
                self.assertEqual([type(result) for result in results[:-1]], [weir.ClosedError] * 7)
                self.assertIsInstance(results[-1], (StopAsyncIteration, RuntimeError))
                with lib.engine() as other:  # which may get the number of the closed descriptor
                    with self.assertRaises(asyncio.TimeoutError):
                        await asyncio.wait_for(other.next_notification(), 0.01)
            await asyncio.sleep(0)
            self.assertEqual(len(asyncio.get_running_loop()._selector.get_map()), 1)
        run(main)


@unittest.skipIf(trio is None, "no trio")
class Trio(lib.Test):
    """The same base in a run of trio."""

    def test_P6_trio_awaits_and_cancels(self):
        async def main():
            with trio.fail_after(lib.PATIENCE), \
                    lib.pair(thread=False) as (a, b, mine, theirs, peer, remote):
                content = lib.fill(mine, 1)
                got = []

                async def serve():
                    async for message in inbox:
                        with message:
                            got.append(bytes(message))
                        if len(got) == 50:
                            inbox.close()

                async def hear():
                    self.assertEqual((await b.next_notification()).tag, 5)
                with b.inbox(INBOX, 100) as inbox:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(serve)
                        nursery.start_soon(hear)
                        await peer.write(mine, remote, notify=5)
                        for i in range(50):
                            await peer.send(INBOX, b"%d" % i)
                self.assertEqual(got, [b"%d" % i for i in range(50)])
                self.assertEqual(bytes(theirs), content)
                transfer = a.peer("127.0.0.1:1").notify(1)
                with trio.move_on_after(0.02) as scope:
                    await transfer
                self.assertTrue(scope.cancelled_caught)
                self.assertEqual(transfer.status(), weir.ECANCELED)
        trio.run(main)


if __name__ == "__main__":
    unittest.main()
