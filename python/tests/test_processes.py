# SPDX-License-Identifier: Apache-2.0
"""Processes: two of them and every byte, kills and restarts, signals in waits, forks, exits."""
import asyncio
import os
import signal
import threading
import time
import unittest

import lib
import weir

SIZE = 1 << 20

# Says its address and descriptor, and answers each notification with the sum of its memory's bytes.
TARGET = """
    import zlib
    listen = sys.argv[1] if len(sys.argv) > 1 else None
    with lib.engine(listen=listen) as engine:
        memory = engine.allocate(%d)
        say(engine.address)
        say(memory.export().hex())
        while True:
            note = engine.notification()
            if note.tag == 0:
                break
            with memoryview(memory) as view:
                note.peer.notify(zlib.crc32(view), note.payload).wait()
    say("end")
""" % SIZE


def meet(engine, child):
    """The target's Peer and Remote."""
    peer = engine.peer(child.hear())
    return peer, peer.remote(bytes.fromhex(child.hear()))


class TwoProcesses(lib.Test):
    """A target that is another process."""

    def test_P1_every_byte_arrives_in_another_process(self):
        import zlib
        with lib.Child(TARGET) as child, lib.engine() as engine:
            peer, remote = meet(engine, child)
            memory = engine.allocate(SIZE)
            for round_ in range(20):
                content = lib.fill(memory, round_)
                step = SIZE >> (round_ % 9)
                peer.write([(memory[i:i + step], remote[i:i + step])
                            for i in range(0, SIZE, step)], notify=1 + round_,
                           payload=b"%d" % round_).wait(lib.PATIENCE)
                note = engine.notification(lib.PATIENCE)
                self.assertEqual((note.tag, note.payload), (zlib.crc32(content), b"%d" % round_))
                lib.fill(memory, 1000)
                peer.read(memory, remote).wait(lib.PATIENCE)
                self.assertEqual(bytes(memory), content)
            peer.notify(0).wait(lib.PATIENCE)
            self.assertEqual(child.hear(), "end")
            self.assertEqual(child.end(), (0, ""))

    def test_P7_a_target_that_is_killed_and_started_again(self):
        import zlib
        with lib.engine(connect_timeout_ns=5_000_000_000) as engine:
            memory = engine.allocate(SIZE)
            peer = address = None
            for round_ in range(4):
                words = [] if address is None else [address]
                with lib.Child(TARGET, *words) as child:
                    said = child.hear()
                    address = address or said
                    self.assertEqual(said, address)
                    peer = peer or engine.peer(address)
                    descriptor = bytes.fromhex(child.hear())
                    # The first import may come before the death of the last one is known.
                    remote = peer.remote(descriptor)
                    content = lib.fill(memory, round_)
                    while True:
                        try:
                            peer.write(memory, remote, notify=5).wait(lib.PATIENCE)
                            note = engine.notification(lib.PATIENCE)
                            break
                        except (weir.PeerError, weir.StaleError, weir.UnknownOutcomeError,
                                weir.ConnectError):
                            remote = peer.remote(descriptor)
                    self.assertEqual(note.tag, zlib.crc32(content))
                    pending = [peer.write(memory, remote, notify=6) for _ in range(5)]
                    child.kill()
                    child.process.wait()
                    for transfer in pending:  # each has an end
                        try:
                            transfer.wait(lib.PATIENCE)
                        except weir.WeirError:
                            pass
                        self.assertTrue(transfer.done)
                    event = engine.event(lib.PATIENCE)
                    while event.type != "gone":
                        event = engine.event(lib.PATIENCE)
                    self.assertEqual(event.error, weir.EPEER)
                    for _ in iter(engine.poll_notification, None):
                        pass
                    # One in a hurry would connect anew; this memory is of the dead.
                    with self.assertRaises((weir.StaleError, weir.PeerError)):
                        peer.write(memory, remote).wait(lib.PATIENCE)
                    remote.release()

    def test_P7_a_target_that_is_killed_is_noticed_by_who_only_waits_for_writes(self):
        for size in (4096, 8 << 20):  # done in the submit; done with a handle
            with self.subTest(size=size):
                self.killed_under_waits(size)

    def killed_under_waits(self, size):
        target = f"""
            with lib.engine(thread=True) as engine:
                memory = engine.allocate({size})
                say(engine.address)
                say(memory.export().hex())
                hear()
        """
        with lib.engine() as engine, lib.Child(target) as child:
            peer = engine.peer(child.hear())
            remote = peer.remote(bytes.fromhex(child.hear()))
            memory = engine.allocate(size)
            peer.write(memory, remote).wait(lib.PATIENCE)
            child.kill()
            child.process.wait()
            end = time.monotonic() + lib.PATIENCE
            with self.assertRaises((weir.PeerError, weir.StaleError)):
                while time.monotonic() < end:
                    peer.write(memory, remote).wait(lib.PATIENCE)
            events = list(iter(engine.poll_event, None))
            gone = [event for event in events if event.type == "gone"]
            self.assertEqual([weir.error(event.error).name for event in gone], ["WEIR_EPEER"])
            self.assertEqual(gone[0].peer.address, peer.address)
            self.assertIn(peer.address, repr(gone[0].peer))

    def test_P7_a_source_that_is_killed_in_its_writes(self):
        source = """
            with lib.engine(thread=True) as engine:
                peer = engine.peer(hear())
                remote = peer.remote(bytes.fromhex(hear()))
                memory = engine.allocate(len(remote))
                peer.write(memory, remote).wait()
                say("goes")
                while True:
                    peer.write(memory, remote, notify=1, block=True)
        """
        with lib.engine(thread=True) as engine:
            memory = engine.allocate(SIZE)
            for _ in range(3):
                with lib.Child(source) as child:
                    child.say(engine.address)
                    child.say(memory.export().hex())
                    self.assertEqual(child.hear(), "goes")
                    for _ in range(20):
                        engine.notification(lib.PATIENCE)
                    child.kill()
                    event = engine.event(lib.PATIENCE)
                    while event.type != "gone":
                        for _ in iter(engine.poll_notification, None):
                            pass
                        event = engine.event(lib.PATIENCE)
                for _ in iter(engine.poll_notification, None):
                    pass
            memory.release(lib.PATIENCE)


class Signals(lib.Test):
    """A KeyboardInterrupt ends each wait, and nothing else is ended by it."""

    def interrupted(self, call, *args, **keywords):
        timer = threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT))
        try:
            with self.subTest(call=call), self.assertRaises(KeyboardInterrupt):
                timer.start()
                call(*args, **keywords)
        finally:
            timer.join()

    def test_P8_keyboard_interrupt_in_every_wait(self):
        with lib.engine(transfers_max=2) as a:
            inbox = a.inbox(7, 100)
            nobody = a.peer("127.0.0.1:1")
            transfer = nobody.notify(1)

            def wait(timeout=None):
                while True:  # it returns when something was done
                    a.wait(timeout)

            def event(timeout=None):
                while True:  # that nobody answers may be told before the interrupt
                    a.event(timeout)
            for call in (wait, a.notification, event, inbox.take, transfer.wait):
                self.interrupted(call)
                self.interrupted(call, timeout=lib.PATIENCE)
            self.assertEqual(transfer.status(), weir.EINPROGRESS)
            second = nobody.notify(2)
            self.interrupted(nobody.notify, 3, block=True)
            self.interrupted(nobody.send, 7, b"x", block=lib.PATIENCE)
            second.cancel()

    def test_P8_keyboard_interrupt_in_a_loop_of_asyncio(self):
        status, out, err = lib.run_program("""
            import asyncio
            async def main():
                a = lib.engine()
                say("waits")
                threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
                await a.next_notification()
            import threading
            try:
                asyncio.run(main())
            except KeyboardInterrupt:
                say("interrupted")
        """)
        self.assertEqual((status, out), (0, "waits\ninterrupted\n"), err)

    def test_P8_a_handler_that_raises_and_one_that_does_not(self):
        seen = []
        before = signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
        try:
            with lib.engine() as a:
                timer = threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGUSR1))
                timer.start()
                with self.assertRaises(TimeoutError):
                    a.notification(0.3)
                timer.join()
                self.assertEqual(seen, [1])
        finally:
            signal.signal(signal.SIGUSR1, before)


class Forks(lib.Test):
    """A child of fork(2) has no engine, and does none harm; neither does an exit."""

    def child(self, function):
        """Runs it in a child; what it says is an error."""
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                function()
                status = 0
            except BaseException:  # pylint: disable=broad-except
                import traceback
                traceback.print_exc()
            finally:
                os._exit(status)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)

    def test_P8_a_child_of_fork_has_no_engine(self):
        with lib.pair() as (a, b, mine, theirs, peer, remote), a.inbox(7, 100) as inbox:
            content = lib.fill(mine, 1)
            peer.write(mine, remote).wait(lib.PATIENCE)
            b.peer(a.address).send(7, b"held").wait(lib.PATIENCE)
            message = inbox.take(lib.PATIENCE)
            loan = peer.loan(7, 100)
            pending = a.peer("127.0.0.1:1").notify(5)
            ours = bytearray(100)
            registered = a.register(ours)

            def inside():
                for call in (a.progress, a.wait, a.fileno, a.arm, a.stats, a.metrics, a.trace,
                             a.notification, a.event, a.poll_event, a.poll_notification,
                             inbox.take, inbox.poll, inbox.info, inbox.close, peer.info,
                             peer.connect, peer.stall, peer.close, mine.export, mine.release,
                             remote.release, message.give_back, loan.send, pending.wait,
                             pending.cancel, registered.export,
                             lambda: a.allocate(5), lambda: a.register(ours),
                             lambda: a.peer("127.0.0.1:1"), lambda: a.inbox(8, 5),
                             lambda: peer.write(mine, remote), lambda: peer.send(7, b"x"),
                             lambda: peer.notify(5), lambda: peer.loan(7, 5), lambda: a.address):
                    try:
                        call()
                    except weir.ClosedError as error:
                        assert "fork" in str(error), error
                    else:
                        raise AssertionError(call)
                for thing in (mine, mine[0:5], message, loan, registered):
                    try:
                        memoryview(thing)
                    except BufferError:
                        continue
                    raise AssertionError(thing)
                assert a.closed
                assert pending.status() == weir.ECLOSED
                repr((a, mine, peer, remote, pending, message))
                with lib.engine(thread=True) as own, lib.engine(thread=True) as other:
                    own.peer(other.address).notify(5).wait(lib.PATIENCE)
                a.close()
                b.close()
            self.child(inside)
            import multiprocessing
            process = multiprocessing.get_context("fork").Process(target=inside)
            process.start()
            process.join()
            self.assertEqual(process.exitcode, 0)
            # The parent goes on.
            lib.fill(theirs, 2)
            peer.write(mine, remote).wait(lib.PATIENCE)
            self.assertEqual(bytes(theirs), content)
            self.assertEqual(bytes(message), b"held")
            pending.cancel()

    def test_P8_a_child_may_exit_as_a_program_does(self):
        status, out, err = lib.run_program("""
            import gc
            a, b = lib.engine(thread=True), lib.engine(thread=True)
            theirs = b.allocate(4096)
            peer = a.peer(b.address)
            remote = peer.remote(theirs.export())
            mine = a.allocate(4096)
            peer.write(mine, remote).wait()
            pending = a.peer("127.0.0.1:1").notify(5)
            view = memoryview(bytearray(5))
            pid = os.fork()
            if pid == 0:
                del remote, mine, pending
                gc.collect()
                sys.exit(7)
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
            peer.notify(1).wait()
            say("good")
        """)
        self.assertEqual((status, out), (0, "good\n"), err)

    def test_P8_exits_with_everything_open_do_no_harm(self):
        for end in ("", "raise SystemExit(0)", "os._exit(0)", "sys.modules.clear()",
                    "import atexit; atexit.register(lambda: a.allocate(5))",
                    "del weir"):
            with self.subTest(end=end):
                status, out, err = lib.run_program("""
                    import threading
                    a, b = lib.engine(thread=True), lib.engine()
                    threading.Thread(target=b.wait, daemon=True).start()
                    theirs, mine = b.allocate(4096), a.allocate(4096)
                    peer = a.peer(b.address)
                    kept = [peer.remote(theirs.export()), memoryview(mine), a.inbox(7, 100)]
                    kept.append(peer.loan(9, 5))
                    kept.append(peer.send(9, mine))
                    kept.append(kept)
                    say("good")
                """ + "\n                    " + end + "\n")
                self.assertEqual((status, out), (0, "good\n"), err)
                self.assertNotIn("Fatal", err)
                self.assertNotIn("Exception ignored", err)

    def test_P8_an_exit_tells_the_peers(self):
        with lib.engine() as a:
            with lib.Child("""
                b = lib.engine(thread=True)
                say(b.address)
                hear()
            """) as child:
                peer = a.peer(child.hear())
                peer.notify(1).wait(lib.PATIENCE)
                self.assertEqual(a.event(lib.PATIENCE).type, "up")
                child.say("go")
                event = a.event(lib.PATIENCE)
                self.assertEqual((event.type, event.error), ("gone", weir.EPEER))
                self.assertEqual(child.end(), (0, ""))


if __name__ == "__main__":
    unittest.main()
