# SPDX-License-Identifier: Apache-2.0
"""weir moves bytes between registered memory of processes: one-sided reads and writes, with
notifications, and messages, over shared memory, TCP or RDMA.

    import weir

    with weir.Engine() as engine:                    # a device, and connections to others
        memory = engine.allocate(1 << 20)            # bytes that peers may read and write
        engine.publish("kv", memory)                 # under a name; peers need engine.address
        engine.notification()                        # somebody has written to it

    with weir.Engine() as engine:                    # another process
        peer = engine.peer(address)
        there = peer.remote("kv")
        mine = engine.allocate(4096)
        peer.write(mine, there[:4096], notify=42).wait()

Each engine needs somebody who makes progress: a thread in Engine.wait(), or any call with a
time-out; an event loop that awaits anything of the engine's; or Engine(thread=True).

Lifetimes
    Everything refers to its engine. Published memory is kept by the engine. A transfer under way
    keeps its memory, its remotes and its peer, also when the application drops them all. Memory that
    was registered keeps the object that it is of. Memory is not released, an engine not closed, a
    message not given back while a numpy array or memoryview of it exists: BufferError.

Threads
    Any thread may call anything at any time. Calls that may take long run without the GIL; a
    status, polls and short submits keep it.

Event loops
    A Transfer may be awaited; `async for message in inbox`; `async for note in
    engine.notifications()`; `await engine.next_event()`; `await peer.aremote("kv")`, and so with
    avalue(), anames() and aflush(). asyncio, and trio. One descriptor in the loop, no thread. A
    cancelled await cancels the transfer, and the exception comes when no device touches its memory
    any more. An engine is driven by one loop at a time.

Units
    Lengths and offsets are bytes; time-outs are seconds, None: no limit; fields that end in _ns are
    nanoseconds. Codes are negative ints: EAGAIN, ...

Errors
    WeirError, and below it a class for each code, in three classes: RetryError, TransferError,
    EndpointError. TypeError, ValueError, OverflowError, IndexError and BufferError for what was
    given; nothing was posted then.

The manual of the library, weir(3), has every field, limit and error; docs/python.md is a tutorial.
"""
import atexit as _atexit
import collections as _collections

from . import _aio, _errors, _weir
from ._errors import *  # noqa: F401,F403
from ._errors import CODES as _CODES
from ._weir import (  # noqa: F401
    ADDRESS_MAX, DESCRIPTOR_MAX, INBOXES_MAX, LOANS_MAX, MESSAGE_COPY_MAX, NAME_MAX, NOTIFY_MAX, QPS_MAX,
    VALUE_MAX, DeviceInfo, Engine, Event, Export, Inbox, InboxInfo, Loan, Memory, MemorySlice, Message,
    NameInfo, Notification, Peer, PeerInfo, QPInfo, Remote, RemoteSlice, Setting, StallInfo, Stats, Stray,
    Transfer, __version__, choose_device, devices, name_hash, process_trace, settings, strays)

_weir._set_hooks(_errors.CLASSES, _aio.Hooks, _collections.deque)
_atexit.register(_aio.Hooks.close_all)
globals().update(_CODES)
for _class in [_errors.WeirError, _errors.RetryError, _errors.TransferError, _errors.EndpointError,
               *_errors.CLASSES.values()]:
    _class.__module__ = "weir"

__all__ = sorted(
    [name for name in dir(_weir) if not name.startswith("_") and name != "ERRORS"]
    + [name for name in dir(_errors) if name.endswith("Error")] + list(_CODES)) + ["__version__", "error"]
