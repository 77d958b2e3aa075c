# SPDX-License-Identifier: Apache-2.0
"""Engines in event loops: asyncio, and trio where it is running.

An engine that something awaits gets a driver, which has its descriptor in the loop: no thread, no
polling. The driver arms the descriptor before the loop sleeps; when it wakes it makes progress,
looks which of the awaited transfers have ended, and takes what has come: notifications, messages,
and events if any are awaited. Arrivals that nobody awaits yet are kept, for otherwise they would keep
the loop awake; messages keep their room in the inbox for so long. Tasks that wait are told that there
may be something, and take it themselves: one that is cancelled at that moment loses nothing. Tasks run
before the descriptor is armed, for what they submit counts for that.

A name of a peer that is connected is asked for again after each round of progress, which costs a
look at a table, until there is an answer; of one that is being dialled when that has come to
something. That the peer is not reached is told by the event 'gone', or by one of the type 'name' that
has an error: so while something is asked events are taken, and kept for the program, as many as the
engine would keep.

From then on the engine is driven until it is closed, or the loop is.
"""
import asyncio
import collections
import contextlib
import os
import sys
import threading
import weakref

from . import _weir
from ._errors import CLASSES, ClosedError, RefusedError, ConnectError, WeirError

# So many notifications are kept for nobody. Then the others stay in the engine, their senders wait,
# and the driver looks each PAUSE, until some are taken.
KEPT_MOST = 65536
PAUSE = 0.01


class Ask:
    """What is asked of a peer, until there is an answer."""

    __slots__ = ("flag", "peer", "known", "about", "kind", "what", "answer", "error",
                 "session")

    def __init__(self, flag, peer, kind, what):
        self.flag = flag
        self.peer = peer
        self.known = peer  # as events name it
        self.about = f"ask peer {peer.address or hex(peer.handle)} for " \
            + ("its names" if kind == "l" else repr(what))
        self.kind = kind
        self.what = what
        self.answer = None
        self.error = None
        self.session = None  # of the peer, when it was asked last

    def see(self, event):
        """An event that was taken may be the end."""
        failed = event.type == "gone" or (event.type == "name" and event.error != 0)
        if not failed or event.peer not in (self.peer, self.known):
            return
        error, why = CLASSES[event.error], ""
        if error in (RefusedError, ConnectError):
            with contextlib.suppress(WeirError):  # its handle may be gone with it
                why = self.peer.refusal()
        self.error = error(f"{self.about}: {why}" if why else self.about)

    def again(self, seen):
        """Asks again; whether there is an end. To ask one that is being dialled is work for the
        engine, and would be its own news: so it is asked when its session is another one, or
        events were seen."""
        try:
            if self.error is None:
                info = self.peer.info()
                session = (info.connected, info.sessions)
                if info.connected or seen or session != self.session:
                    self.session = session
                    self.answer = self.peer._ask(self.kind, self.what)
        except Exception as error:
            self.error = error
        return self.answer is not None or self.error is not None


class Descriptor:
    """The engine's descriptor once more, the driver's own: it is closed when the loop has let go of
    it, so that a loop never looks at a number that is somebody else's by then."""

    def __init__(self, number):
        self._number = os.dup(number)

    def fileno(self):
        """The number; -1: it is closed."""
        return self._number

    def close(self):
        """Closes it, once."""
        number, self._number = self._number, -1
        if number >= 0:
            os.close(number)

    __del__ = close


class Driver:
    """One engine in one loop. Subclasses say how that loop waits and wakes."""

    def __init__(self, engine):
        self._engine = weakref.ref(engine)
        self._descriptor = Descriptor(engine.fileno())
        self._transfers = {}  # flags by what is awaited
        self._waiting = {}  # what is waited for: a deque of flags
        self._asks = []
        self._error = None
        self._scheduled = False
        self._detached = False

    # What a loop has to have.

    def is_current(self):
        """Whether its loop is the one that is running."""
        raise NotImplementedError

    def is_over(self):
        """Whether its loop will never run again."""
        raise NotImplementedError

    def new_flag(self):
        """Returns what wait() waits for."""
        raise NotImplementedError

    def set_flag(self, flag):
        """Ends the wait for it."""
        raise NotImplementedError

    def wait(self, flag):
        """Returns what is awaited until the flag is set."""
        raise NotImplementedError

    async def settle(self, transfer):
        """Waits for a cancelled transfer's end, whatever else is cancelled."""
        raise NotImplementedError

    def kick(self):
        """Has the driver look soon. Any thread may call it."""
        raise NotImplementedError

    def sleep(self, timeout):
        """Looks again when the descriptor is readable, or in timeout seconds; None: no limit."""
        raise NotImplementedError

    def detach(self):
        """The engine is about to be closed."""
        raise NotImplementedError

    # The same in all of them.

    def closed(self):
        """The engine is closed: all who wait look, and see it."""
        self._wake_all()

    def _wake_all(self):
        for flags in self._transfers.values():
            for flag in flags:
                self.set_flag(flag)
        self._transfers.clear()
        for flags in self._waiting.values():
            for flag in flags:
                self.set_flag(flag)
        self._waiting.clear()
        for ask in self._asks:
            self.set_flag(ask.flag)
        self._asks.clear()

    def _wake(self, key, count):
        """Tells so many of those who wait for that; returns whether there were any."""
        flags = self._waiting.get(key)
        if not flags or count <= 0:
            return False
        while flags and count > 0:
            self.set_flag(flags.popleft())
            count -= 1
        if not flags:
            del self._waiting[key]
        return True

    def _tell(self, ended, notes, events, news):
        """Tells those who wait for what has come; returns whether there were any."""
        told = False
        for transfer in ended:
            for flag in self._transfers.pop(transfer, ()):
                self.set_flag(flag)
                told = True
        if self._waiting:
            if notes:
                told |= self._wake("notification", notes)
            if events:
                told |= self._wake("event", events)
            if news:
                told |= self._wake("news", sys.maxsize)
            for key in list(self._waiting):
                if key.__class__ is _weir.Inbox:
                    told |= self._wake(key, sys.maxsize if key.closed else key._kept)
        return told

    def _ask_again(self, seen):
        """After something was done: looks whether there are answers; returns whether there were."""
        told = False
        self._see(seen)
        for ask in [ask for ask in self._asks if ask.again(seen)]:
            self._asks.remove(ask)
            self.set_flag(ask.flag)
            told = True
        return told

    def _turn(self, engine):
        """A turn: (anybody was told, notifications are full, seconds to sleep; 0.0: none)."""
        asks, seen, is_closed = bool(self._asks), "event" in self._waiting, False
        if asks:
            seen = []
            for ask in self._asks:
                try:
                    ask.known = ask.peer.info().peer
                except WeirError as error:  # its handle was closed, or is gone
                    ask.error = error
                    is_closed = True
        ended, notes, events, news, timeout = engine._turn(KEPT_MOST, seen, asks)
        told = self._tell(ended, notes, events, news) if ended or self._waiting else False
        if asks and (news or seen or is_closed):
            told |= self._ask_again(seen)
        return told, notes >= KEPT_MOST, timeout

    def turn(self):
        """Looks, and has the loop sleep, unless there is more to do."""
        self._scheduled = False
        engine = self._engine()
        if engine is None or engine.closed or self._detached:
            return
        try:
            told, is_full, timeout = self._turn(engine)
        except Exception as error:  # the device failed, or no memory
            if engine.closed:
                return
            self._error = error
            self._wake_all()
            return
        if told or (timeout == 0.0 and not is_full):
            self.kick()
        else:
            self.sleep(timeout if timeout != 0.0 else PAUSE)

    def begin(self, key):
        """Begins to wait for something of that kind: a flag, for wait()."""
        if self._error is not None:
            raise self._error
        flag = self.new_flag()
        flags = self._waiting.get(key)
        if flags is None:
            self._waiting[key] = flags = collections.deque()
        flags.append(flag)
        if not self._scheduled:
            self.kick()
        return flag

    def give_up(self, key, flag):
        """The wait for the flag was cancelled."""
        flags = self._waiting.get(key)
        if flags is not None and flag in flags:
            flags.remove(flag)
            if not flags:
                del self._waiting[key]
        else:
            self.kick()  # it was told in place of another, who has to be

    async def changed(self, key):
        """Waits until there may be something of that kind."""
        flag = self.begin(key)
        try:
            await self.wait(flag)
        except BaseException:
            self.give_up(key, flag)
            raise
        if self._error is not None:
            raise self._error

    def _see(self, events):
        for ask in self._asks:
            for event in events:
                ask.see(event)

    async def asked(self, peer, kind, what):
        """What Peer._ask() answers, when it does."""
        answer = peer._ask(kind, what)
        if answer is not None:
            return answer
        seen = []  # what was told before is not about this
        peer.engine._take_events(seen)
        self._see(seen)
        if seen:
            self.kick()
        ask = Ask(self.new_flag(), peer, kind, what)
        self._asks.append(ask)
        try:
            peer.connect()
            self.kick()
            await self.wait(ask.flag)
        finally:
            if ask in self._asks:
                self._asks.remove(ask)
        if ask.error is not None:
            raise ask.error
        if self._error is not None:
            raise self._error
        if ask.answer is None:  # the engine is closed, which raises
            return peer._ask(kind, what)
        return ask.answer

    async def ended(self, transfer):
        """Waits until a transfer has ended."""
        while transfer._watch():
            flag = self.new_flag()
            self._transfers.setdefault(transfer, []).append(flag)
            self.kick()
            await self.wait(flag)
            if self._error is not None:
                return


class AsyncioDriver(Driver):
    """In a loop of asyncio that has add_reader."""

    def __init__(self, engine):
        super().__init__(engine)
        self._loop = asyncio.get_running_loop()
        self._timer = None
        self._loop.add_reader(self._descriptor.fileno(), self.turn)

    def is_current(self):
        # The running loop is told by a system call, and the thread is not.
        thread = getattr(self._loop, "_thread_id", None)
        if thread is not None:
            return thread == threading.get_ident()
        return self._loop is asyncio._get_running_loop()

    def is_over(self):
        return self._loop.is_closed() or not self._loop.is_running()

    def new_flag(self):
        return self._loop.create_future()

    def set_flag(self, flag):
        if not flag.done():
            flag.set_result(None)

    def wait(self, flag):
        return flag

    async def settle(self, transfer):
        while not transfer.done and self._error is None:
            try:
                await self.ended(transfer)
            except asyncio.CancelledError:
                pass  # it is being cancelled already

    def kick(self):
        if self._scheduled or self._detached or self._loop.is_closed():
            return
        self._scheduled = True
        if self.is_current():
            self._loop.call_soon(self.turn)
            return
        try:
            self._loop.call_soon_threadsafe(self.turn)
        except RuntimeError:
            pass  # it was closed just now

    def sleep(self, timeout):
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if timeout is not None:
            self._timer = self._loop.call_later(timeout, self.turn)

    def detach(self):
        self._detached = True
        if self.is_current() or not self._loop.is_running():
            self._leave()
            return
        try:
            self._loop.call_soon_threadsafe(self._leave)
        except RuntimeError:  # it was closed just now
            self._leave()

    def _leave(self):
        if self._timer is not None:
            self._timer.cancel()
        if not self._loop.is_closed() and self._descriptor.fileno() >= 0:
            self._loop.remove_reader(self._descriptor.fileno())
        self._descriptor.close()

    def closed(self):
        if self.is_current():
            self._wake_all()
            return
        try:
            self._loop.call_soon_threadsafe(self._wake_all)
        except RuntimeError:
            pass  # it is closed, and nobody waits


class TrioDriver(Driver):
    """In a run of trio, by a task of its own."""

    def __init__(self, engine):
        super().__init__(engine)
        import trio
        self._trio = trio
        self._token = trio.lowlevel.current_trio_token()
        self._timeout = 0.0
        self._kicked = trio.Event()
        self._over = False
        trio.lowlevel.spawn_system_task(self._run)

    async def _run(self):
        trio = self._trio
        try:
            while not self._detached:
                self._kicked = trio.Event()
                self._timeout = 0.0
                self.turn()
                if self._detached or self._engine() is None:
                    break
                timeout = float("inf") if self._timeout is None else self._timeout
                with trio.move_on_after(timeout) as scope:
                    async with trio.open_nursery() as nursery:
                        nursery.start_soon(self._readable, nursery)
                        await self._kicked.wait()
                        nursery.cancel_scope.cancel()
                del scope
        finally:
            self._over = True
            self._descriptor.close()

    async def _readable(self, nursery):
        await self._trio.lowlevel.wait_readable(self._descriptor.fileno())
        nursery.cancel_scope.cancel()

    def is_current(self):
        return self._trio.lowlevel.current_trio_token() is self._token

    def is_over(self):
        return self._over

    def new_flag(self):
        return self._trio.Event()

    def set_flag(self, flag):
        flag.set()

    def wait(self, flag):
        return flag.wait()

    async def settle(self, transfer):
        with self._trio.CancelScope(shield=True):
            while not transfer.done and self._error is None:
                await self.ended(transfer)

    def _in_run(self):
        try:
            return self.is_current()
        except RuntimeError:
            return False

    def _call(self, function):
        if self._in_run():
            function()
            return
        try:
            self._token.run_sync_soon(function)
        except self._trio.RunFinishedError:
            pass

    def kick(self):
        self._call(lambda: self._kicked.set())

    def sleep(self, timeout):
        self._timeout = timeout

    def detach(self):
        self._detached = True
        self.kick()

    def closed(self):
        self._call(self._wake_all)


def driver_of(engine):
    """The engine's driver in the loop that is running."""
    driver = engine._driver
    if driver is not None and driver.is_current():
        return driver
    if engine.closed:
        engine.fileno()  # raises why
    if driver is not None and not driver.is_over():
        raise RuntimeError("the engine is driven by another event loop that is running")
    if driver is not None:
        driver.detach()
    try:
        asyncio.get_running_loop()
        driver = AsyncioDriver(engine)
    except RuntimeError:
        if "trio" not in sys.modules:
            raise
        driver = TrioDriver(engine)
    engine._driver = driver
    return driver


async def _ended(transfer):
    driver = driver_of(transfer._engine)
    try:
        await driver.ended(transfer)
    except BaseException:
        transfer.cancel()
        await driver.settle(transfer)
        raise
    if driver._error is not None and not transfer.done:
        raise driver._error
    transfer.result()


async def _give_way():
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        trio = sys.modules.get("trio")
        try:
            if trio is not None:
                trio.lowlevel.current_task()
        except RuntimeError:
            trio = None
        if trio is not None:  # else a coroutine that is run by hand, where there are no others
            await trio.lowlevel.checkpoint()
    else:
        await asyncio.sleep(0)


async def next_message(inbox):
    """The next message of the inbox; StopAsyncIteration when it is closed."""
    while not inbox.closed:
        message = inbox.poll()
        if message is not None:
            return message
        await driver_of(inbox.engine).changed(inbox)
    raise StopAsyncIteration


# In one coroutine, for a coroutine inside another is resumed through it.
async def next_notification(self):
    """Awaits and takes a Notification. Raises ClosedError, DeviceError."""
    while (taken := self.poll_notification()) is None:
        driver = driver_of(self)
        flag = driver.begin("notification")
        try:
            await driver.wait(flag)
        except BaseException:
            driver.give_up("notification", flag)
            raise
        if driver._error is not None:
            raise driver._error
    return taken


async def next_event(self):
    """Awaits and takes an Event. Raises ClosedError, DeviceError."""
    while (taken := self.poll_event()) is None:
        await driver_of(self).changed("event")
    return taken


class Taken:
    """What comes, one after another, in an async for; it ends when the engine is closed."""

    __slots__ = ("_engine", "_next")

    def __init__(self, engine, next_):
        self._engine = engine
        self._next = next_

    def __aiter__(self):
        return self

    async def __anext__(self):
        if self._engine.closed:
            raise StopAsyncIteration
        try:
            return await self._next(self._engine)
        except ClosedError:
            raise StopAsyncIteration from None


def notifications(self):
    """All notifications as they come, in an async for; it ends when the engine is closed."""
    return Taken(self, next_notification)


def events(self):
    """All events as they come, in an async for; it ends when the engine is closed."""
    return Taken(self, next_event)


async def news(self):
    """Awaits that something was done, as wait() does in a thread: room for a message, say."""
    await driver_of(self).changed("news")


async def aremote(self, name):
    """Awaits and imports the peer's memory of this name, as remote(name) in a thread."""
    return (await driver_of(self.engine).asked(self, "r", name))[0]


async def avalue(self, name):
    """Awaits the value of this name, as value() in a thread."""
    return (await driver_of(self.engine).asked(self, "v", name))[0]


async def anames(self):
    """Awaits the list of what the peer publishes, as names() in a thread."""
    found, position = [], 0
    while True:
        info, position = await driver_of(self.engine).asked(self, "l", position)
        if info is ...:
            return found
        found.append(info)


async def _flush(engine, transfers):
    driver = driver_of(engine)
    for transfer in transfers:
        await driver.ended(transfer)
        if driver._error is not None and not transfer.done:
            raise driver._error
    engine.fileno()  # raises if it was closed


async def _flush_peer(self):
    """Awaits the end of all transfers and messages to this peer that are under way, as flush()."""
    await _flush(self.engine, self._under_way())


async def _flush_engine(self):
    """Awaits the end of all transfers and messages that are under way, as flush()."""
    await _flush(self, self._under_way())


class Hooks:
    """What the C part calls by name."""

    engines = weakref.WeakSet()

    @classmethod
    def opened(cls, engine):
        """Remembers an engine for the interpreter's end."""
        cls.engines.add(engine)

    @staticmethod
    def ended(transfer):
        """Transfer.__await__."""
        return _ended(transfer).__await__()

    @staticmethod
    def give_way():
        """Transfer.__await__ of one that is done: others run, now and then."""
        return _give_way().__await__()

    @staticmethod
    def next_message(inbox):
        """Inbox.__anext__."""
        return next_message(inbox)

    @classmethod
    def close_all(cls):
        """At the interpreter's end: peers are told, unless somebody is still at it."""
        for engine in list(cls.engines):
            if engine._users == 0 and engine.exports == 0:
                try:
                    engine.close()
                except WeirError:
                    pass


for _function in (next_notification, next_event, notifications, events, news):
    setattr(_weir.Engine, _function.__name__, _function)
for _function in (aremote, avalue, anames):
    setattr(_weir.Peer, _function.__name__, _function)
_weir.Peer.aflush = _flush_peer
_weir.Engine.aflush = _flush_engine
