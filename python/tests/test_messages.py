# SPDX-License-Identifier: Apache-2.0
"""Inboxes, messages, loans, and what is told: events, counters, settings, traces."""
import json
import os
import threading
import time
import unittest

import lib
import weir

INBOX = 7


class Messages(lib.Test):
    """Each once, in order, and its bytes stay until it is given back."""

    def test_P4_data_of_every_kind_arrives_once_and_in_order(self):
        with lib.pair() as (a, b, mine, theirs, peer, remote), b.inbox(INBOX, 1 << 16) as inbox:
            content = lib.fill(mine, 1)
            big = lib.random.Random(2).randbytes(50000)
            sent = [b"", b"short", bytearray(192), memoryview(b"view"), big, bytearray(big),
                    mine, mine[10:5000], [b"a", mine[0:3], b"b"], [mine[0:300], big[:700]],
                    memoryview(mine)[5:600], (mine[5:10], mine[0:5])]
            want = [b"", b"short", bytes(192), b"view", big, big, content, content[10:5000],
                    b"a" + content[0:3] + b"b", content[0:300] + big[:700], content[5:600],
                    content[5:10] + content[0:5]]
            transfers = [peer.send(INBOX, data, tag=i) for i, data in enumerate(sent)]
            del sent
            for i, expected in enumerate(want):
                with inbox.take(lib.PATIENCE) as message:
                    self.assertEqual((message.tag, message.inbox, len(message)),
                                     (i, INBOX, len(expected)))
                    self.assertEqual(bytes(message), expected, i)
                self.assertTrue(message.given_back)
            for transfer in transfers:
                transfer.wait(lib.PATIENCE)
            self.assertIsNone(inbox.poll())
            self.assertEqual(inbox.info().taken, len(want))

    def test_P4_many_at_once(self):
        with lib.pair() as (a, b, mine, theirs, peer, remote), b.inbox(INBOX, 4096) as inbox:
            content = lib.fill(mine, 1)
            count = 500
            sent, got = 0, []
            transfers = []
            while sent < count:
                batch = [(b"%d" % i, i) if i % 3 else ([mine[i:i + 300]], i)
                         for i in range(sent, min(sent + 64, count))]
                done = peer.send_many(INBOX, batch, block=True)
                self.assertTrue(1 <= len(done) <= len(batch))
                sent += len(done)
                transfers += done
                got += [(m.tag, bytes(m)) for m in inbox.take_many(1000)]
            while len(got) < count:
                with inbox.take(lib.PATIENCE) as message:
                    got.append((message.tag, bytes(message)))
            self.assertEqual(got, [(i, b"%d" % i if i % 3 else content[i:i + 300])
                                   for i in range(count)])
            for transfer in transfers:
                transfer.wait(lib.PATIENCE)
            for wrong, expected in (([], ValueError), (5, TypeError), ([5], TypeError),
                                    ([bytes(500)], weir.InvalidError), ([("a", 5)], TypeError)):
                with self.subTest(wrong=wrong), self.assertRaises(expected):
                    peer.send_many(INBOX, wrong)
            self.assertEqual(inbox.take_many(5), [])
            with self.assertRaises(ValueError):
                inbox.take_many(0)

    def test_P4_what_is_sent_wrongly(self):
        with lib.pair() as (a, b, mine, theirs, peer, remote), b.inbox(INBOX, 4096) as inbox:
            peer.send(INBOX, b"x").wait(lib.PATIENCE)
            inbox.take(lib.PATIENCE).give_back()
            before = a.stats().messages_sent
            for wrong in ("text", 5, None, remote, [b"a", "b"]):
                with self.subTest(wrong=wrong), self.assertRaises(TypeError):
                    peer.send(INBOX, wrong)
            with self.assertRaises(TypeError):
                peer.send("7", b"x")
            with self.assertRaises(OverflowError):
                peer.send(2**32, b"x")
            with self.assertRaises(TypeError):
                peer.send(INBOX)
            with self.assertRaises(TypeError):
                peer.send(INBOX, b"x", notify=5)
            with self.assertRaises(weir.TooBigError):
                peer.send(INBOX, mine[:5000]).wait(lib.PATIENCE)
            with self.assertRaises(weir.NotReadyError):
                peer.send(99, b"x", no_wait=True).wait(lib.PATIENCE)
            with self.assertRaises(weir.NotReadyError):
                peer.send(99, b"x", timeout=0.05).wait(lib.PATIENCE)
            self.assertEqual(a.stats().messages_sent, before)
            with self.assertRaises(weir.BusyError):
                b.inbox(INBOX, 10)
            with self.assertRaises(weir.TooBigError):
                b.inbox(8, 2**31)
            with self.assertRaises(TypeError):
                b.inbox(8)
            self.assertIsNone(inbox.poll())

    def test_P4_a_message_stays_while_it_is_held(self):
        with lib.pair() as (a, b, mine, theirs, peer, remote):
            inbox = b.inbox(INBOX, 1024, peer_messages=2, messages=2)
            pending = [peer.send(INBOX, bytes([i % 256]) * 8) for i in range(2000)]
            first = inbox.take(lib.PATIENCE)
            view = memoryview(first)
            with self.assertRaises(BufferError):
                first.give_back()
            with self.assertRaises(BufferError):
                b.close()
            self.assertTrue(view.readonly)
            inbox.close()  # what was taken stays
            self.assertTrue(inbox.closed)
            self.assertEqual(view, bytes(8))
            with self.assertRaises(weir.StaleError):
                inbox.poll()
            view.release()
            first.give_back()
            first.give_back()
            with self.assertRaises(BufferError):
                memoryview(first)
            for transfer in pending:
                transfer.cancel()

    def test_P4_a_full_inbox_says_so(self):
        with lib.pair() as (a, b, mine, theirs, peer, remote):
            with b.inbox(INBOX, 4096, peer_messages=2, messages=2) as inbox:
                seen = 0
                with self.assertRaises(weir.AgainError):
                    for seen in range(1000):
                        peer.send(INBOX, mine[:4096], now=True).wait(lib.PATIENCE)
                self.assertGreater(seen, 0)
                for _ in range(seen):
                    inbox.take(lib.PATIENCE)
                peer.send(INBOX, mine[:4096], block=True).wait(lib.PATIENCE)

    def test_P4_a_send_of_any_bytes_waits_for_room(self):
        with lib.pair() as (a, b, mine, theirs, peer, remote):
            with b.inbox(INBOX, 8192) as inbox:
                for length in (weir.MESSAGE_COPY_MAX + 1, 8192):
                    with self.subTest(length=length):
                        sent = 0
                        with self.assertRaises(weir.AgainError):
                            while True:
                                peer.send(INBOX, bytes(length), tag=sent)
                                sent += 1
                        taken = []
                        taker = threading.Thread(target=lambda: taken.extend(
                            inbox.take(lib.PATIENCE).tag for _ in range(4 * sent)))
                        taker.start()
                        for tag in range(sent, 4 * sent):
                            peer.send(INBOX, bytes(length), tag=tag, block=lib.PATIENCE)
                        taker.join()
                        self.assertEqual(taken, list(range(4 * sent)))

    def test_P4_memory_of_a_send_that_waits_may_be_released(self):
        """A send of memory and of other bytes waits for a loan; another thread releases the memory."""
        with lib.pair() as (a, b, mine, theirs, peer, remote), b.inbox(INBOX, 8192) as inbox:
            for _ in range(20):
                memory, results = a.allocate(4096), []
                with self.assertRaises(weir.AgainError):
                    while True:
                        peer.send(INBOX, bytes(8192))

                def send():
                    try:
                        results.append(peer.send(INBOX, [memory, bytes(4096)], block=lib.PATIENCE))
                    except Exception as error:
                        results.append(error)
                sender = threading.Thread(target=send)
                sender.start()
                time.sleep(0.001)
                while True:
                    try:
                        memory.release()
                        break
                    except BufferError:  # it is being copied
                        pass
                while True:
                    try:
                        inbox.take(0.01)
                    except TimeoutError:
                        if not sender.is_alive():
                            break
                self.assertIsInstance(results[0], (weir.StaleError, weir.ClosedError, weir.Transfer))

    def test_P4_an_exception_leaves_what_is_still_exported(self):
        with lib.pair() as (a, b, mine, theirs, peer, remote), b.inbox(INBOX, 4096) as inbox:
            peer.send(INBOX, b"x").wait(lib.PATIENCE)
            made = [inbox.take(lib.PATIENCE), peer.loan(INBOX, 100), a.allocate(4096)]
            while made:
                view = None
                with self.subTest(made=type(made[-1])):
                    with self.assertRaisesRegex(SystemExit, "5"):
                        with made.pop() as thing:
                            view = memoryview(thing)
                            raise SystemExit(5)
                    del view, thing
            self.assertEqual(inbox.info().held, 0)

    def test_P4_loans(self):
        with lib.pair() as (a, b, mine, theirs, peer, remote), b.inbox(INBOX, 1 << 16) as inbox:
            for i in range(40):
                with peer.loan(INBOX, 1 << 16) as loan:
                    self.assertEqual(len(loan), 1 << 16)
                    content = lib.fill(loan, i)
                    transfer = loan.send(tag=i) if i % 2 else loan.send(1000, tag=i)
                    self.assertTrue(loan.gone)
                    with self.assertRaises(weir.StaleError):
                        loan.send()
                    with self.assertRaises(BufferError):
                        memoryview(loan)
                with inbox.take(lib.PATIENCE) as message:
                    self.assertEqual(message.tag, i)
                    self.assertEqual(bytes(message), content if i % 2 else content[:1000])
                transfer.wait(lib.PATIENCE)
            loan = peer.loan(INBOX, 100)
            view = memoryview(loan)
            for call in (loan.send, loan.give_back):
                with self.assertRaises(BufferError):
                    call()
            view.release()
            with self.assertRaises(IndexError):
                loan.send(101)
            loan.give_back()
            loan.give_back()
            kept = []
            with self.assertRaises(weir.AgainError):
                while True:
                    kept.append(peer.loan(INBOX, 10))
            kept.clear()
            peer.loan(INBOX, 10)

    def test_P4_a_reply_goes_to_the_sender_of_a_message(self):
        with lib.pair() as (a, b, mine, theirs, peer, remote):
            with a.inbox(1, 100) as answers, b.inbox(2, 100) as questions:
                peer.send(2, b"question", tag=5)
                with questions.take(lib.PATIENCE) as message:
                    self.assertEqual(message.peer.address, a.address)
                    message.peer.send(1, bytes(message)[::-1], tag=message.tag)
                with answers.take(lib.PATIENCE) as answer:
                    self.assertEqual((bytes(answer), answer.tag), (b"noitseuq", 5))
                    self.assertEqual(answer.peer, peer)
                    self.assertEqual(hash(answer.peer), hash(peer))
                    self.assertNotEqual(answer.peer, message.peer)

    def test_P4_a_wait_ends_with_its_time(self):
        with lib.engine() as a, a.inbox(1, 10) as inbox:
            for call in (inbox.take, a.notification, a.event):
                with self.assertRaises(weir.InProgressError) as raised:
                    call(timeout=0.01)
                self.assertIsInstance(raised.exception, TimeoutError)
                with self.assertRaises(TimeoutError):
                    call(0)
                with self.assertRaises(TypeError):
                    call(timeout="1")
            self.assertFalse(a.wait(0.01))
            self.assertFalse(a.wait(0))


class Told(lib.Test):
    """What the library says of itself."""

    def test_P4_events_tell_of_a_peer(self):
        with lib.engine(thread=True) as a:
            with lib.engine(thread=True) as b:
                peer = a.peer(b.address)
                self.assertFalse(peer.connect())
                event = a.event(lib.PATIENCE)
                self.assertEqual((event.type, event.error, event.peer), ("up", 0, peer))
                self.assertTrue(peer.connect())
            event = a.event(lib.PATIENCE)
            while event.type != "gone":
                event = a.event(lib.PATIENCE)
            self.assertEqual((event.error, event.peer), (weir.EPEER, peer))
            self.assertIsNone(a.poll_event())

    def test_P4_records(self):
        with lib.pair() as (a, b, mine, theirs, peer, remote):
            peer.write(mine, remote).wait(lib.PATIENCE)
            while not peer.info().connected:
                a.wait(0.1)
            info = peer.info()
            self.assertEqual((info.address, info.peer, info.refusal), (b.address, peer, 0))
            self.assertEqual(len(info.instance), 16)
            self.assertGreater(peer.qp().sq_depth, 0)
            self.assertGreater(peer.qp(0).sessions, 0)
            for wrong in (5, -1):
                with self.assertRaises(IndexError):
                    peer.qp(wrong)
            stall = peer.stall()
            self.assertEqual((stall.cause, stall.stalled, stall.waiting), ("none", False, 0))
            self.assertIsInstance(peer.stall_text(), str)
            self.assertEqual(peer.refusal(), "")
            self.assertEqual(a.stats().bytes_written, len(mine))
            self.assertIn("weir_written_bytes_total", a.metrics())
            self.assertIn("# TYPE", a.metrics(prometheus=True))
            self.assertIn("session is up", a.trace())
            json.loads(a.trace(json=True))
            self.assertIn("session is up", weir.process_trace(os.getpid()))
            json.loads(weir.process_trace(os.getpid(), index=1, json=True))
            with self.assertRaises(weir.StaleError):
                weir.process_trace(os.getpid(), 50)
            with self.assertRaises(ValueError):
                weir.process_trace(os.getpid(), -1)
            with self.assertRaises(weir.PeerError):
                weir.process_trace(2**22 + 5)

    def test_P4_settings_devices_and_strays(self):
        names = {device.name: device for device in weir.devices()}
        self.assertEqual(names["shm"].available, 0)
        self.assertTrue(names["shm"].completes_inline)
        settings = {setting.name: setting for setting in weir.settings(sq_depth=64)
                    if setting.variable != "WEIR_SHM_GROUP"}
        self.assertEqual((settings["sq_depth"].value, settings["sq_depth"].source), (64, "option"))
        self.assertEqual(settings["peers_max"].source, "default")
        self.assertIsNone(settings["cq_depth"].value)
        bad = {setting.name: setting for setting in weir.settings(sq_depth=1)}["sq_depth"]
        self.assertEqual((bad.status, "sq_depth" in bad.note), (weir.EINVAL, True))
        with self.assertRaises(TypeError):
            weir.settings(colour=1)
        with self.assertRaises(TypeError):
            weir.settings(5)
        status, out, err = lib.run_program("""
            os.environ["WEIR_SQ_DEPHT"] = "5"
            stray, = [s for s in weir.strays() if s.name == "WEIR_SQ_DEPHT"]
            say(stray.nearest)
        """)
        self.assertEqual((status, out.strip(), err), (0, "WEIR_SQ_DEPTH", ""))


class Errors(lib.Test):
    """A class for each code, with the library's sentence and what it was about."""

    def test_P5_each_code_has_its_class(self):
        codes = {name: getattr(weir, name) for name in dir(weir)
                 if name.startswith("E") and name.isupper()}
        self.assertGreater(len(codes), 25)
        for name, code in codes.items():
            class_ = weir._errors.CLASSES[code]
            kinds = [k for k in (weir.RetryError, weir.TransferError, weir.EndpointError)
                     if issubclass(class_, k)]
            self.assertEqual(len(kinds), 1, name)
            error = class_("a thing")
            self.assertEqual(error.name, "WEIR_" + name)
            self.assertEqual((error.code, error.about), (code, "a thing"))
            self.assertEqual(str(error), f"a thing: {error.sentence} (WEIR_{name})")
            self.assertEqual(repr(error), f"{type(error).__name__}({str(error)!r})")
            self.assertTrue(class_.__doc__)
            again = __import__("pickle").loads(__import__("pickle").dumps(error))
            self.assertEqual((type(again), str(again)), (class_, str(error)))
            self.assertIn(class_.__name__, weir.__all__)

    def test_P5_an_error_says_what_it_was_about(self):
        with lib.pair() as (a, b, mine, theirs, peer, remote):
            with self.assertRaises(weir.BoundsError) as raised:
                peer.write([(mine, 0, remote, 0, 8), (mine, 8, remote, len(remote) - 4, 8)])
            text = str(raised.exception)
            for part in ("write", "2 segments", b.address, "segment 1", "remote memory",
                         "segment outside its memory", "WEIR_EBOUNDS"):
                self.assertIn(part, text)
        other = "ofi" if lib.DEVICE == "shm" else "shm"
        if not any(d.name == other and d.available == 0 for d in weir.devices()):
            self.skipTest("one device is here")
        with lib.engine(thread=True) as a, weir.Engine(other, thread=True) as b:
            with self.assertRaises(weir.RefusedError) as raised:
                a.peer(b.address).notify(1).wait(lib.PATIENCE)
            self.assertIsInstance(raised.exception, ConnectionRefusedError)
            self.assertIn("uses " + other, str(raised.exception))

    def test_P5_nobody_there(self):
        with lib.engine(connect_timeout_ns=200_000_000) as a:
            transfer = a.peer("127.0.0.1:1").notify(1)
            with self.assertRaises(weir.ConnectError) as raised:
                transfer.wait(lib.PATIENCE)
            self.assertIsInstance(raised.exception, ConnectionError)
            self.assertIn("127.0.0.1:1", str(raised.exception))
            self.assertEqual(transfer.status(), weir.ECONNECT)
            with self.assertRaises(weir.ConnectError):
                transfer.result()
            late = a.peer("127.0.0.1:1").notify(1, timeout=0.01)
            with self.assertRaises(weir.TimedOutError):
                late.wait(lib.PATIENCE)
            cancelled = a.peer("127.0.0.1:1").notify(1)
            cancelled.cancel()
            with self.assertRaises(weir.CanceledError):
                cancelled.wait(lib.PATIENCE)
            cancelled.cancel()


if __name__ == "__main__":
    unittest.main()
