# SPDX-License-Identifier: Apache-2.0
"""kvpages.py: KV pages from prefill to decode, in Python. It says what kvpages.c says, so that either
side may be that program.

    python3 kvpages.py prefill 127.0.0.1:7501
    python3 kvpages.py prefill 127.0.0.1:7502 20       killed after so many layers
    python3 kvpages.py decode 100 127.0.0.1:7501 127.0.0.1:7502

With "-d ofi" before that, over TCP. The recipe is that of kvpages.c, and in Python besides:

  1. Each request is a coroutine, on both sides. One task takes all notifications, and one all events;
     they hand them to the request that they are about.
  2. The cache is an array of numpy. It is registered once for each prefill worker: a release ends
     that worker's right to write, and leaves the array alone.
  3. A transfer keeps the memory that it reads, whatever the program drops.
"""
import asyncio
import itertools
import os
import signal
import struct
import sys

import numpy
import weir

LAYERS, PAGE, PAGES = 8, 8 << 10, 256           # of the cache: pages of each layer
REQUEST_PAGES, JOBS = 16, 4                     # at most; requests at each worker at a time
REQUESTS = 1                                    # the number of the workers' inbox
REQUEST = struct.Struct("=QIII16I4x")           # attempt, number, worker, count of pages, pages
LAYER_BITS = 8


def words_of(number, layer, count):
    """In the place of a model: the words of this layer's pages."""
    index = numpy.arange(count, dtype=numpy.uint64)[:, None] << numpy.uint64(16)
    word = numpy.arange(PAGE // 8, dtype=numpy.uint64)
    return (numpy.uint64(number << 40 ^ layer << 32) ^ index ^ word) * numpy.uint64(0x9e3779b97f4a7c15)


# ---- prefill ----


async def do_request(engine, peer, request, computed):
    """Computes the layers of a request, and writes each where decode wants it."""
    attempt, number, worker, count, *pages = request
    try:
        cache = await peer.aremote(f"kv/{worker}")
        sent = []
        for layer in range(LAYERS):
            layers = engine.register(words_of(number, layer, count), access="")
            segments = [(layers, i * PAGE, cache, (layer * PAGES + page) * PAGE, PAGE)
                        for i, page in enumerate(pages[:count])]
            sent.append(peer.write(segments, notify=attempt << LAYER_BITS | layer))
            computed()
            await asyncio.sleep(0)              # other requests have their turn
        for transfer in sent:
            await transfer
    except (weir.WeirError, ValueError) as error:
        print(f"request {number}: {error}", file=sys.stderr)


async def prefill(engine, die_after):
    """Serves requests, JOBS at a time, for ever."""
    room, tasks, layers = asyncio.Semaphore(JOBS), set(), itertools.count(1)

    def computed():
        if next(layers) == die_after:
            os.kill(os.getpid(), signal.SIGKILL)

    def over(task):
        tasks.discard(task)
        room.release()
        task.result()                           # raises an error that is none of weir's

    async for message in engine.inbox(REQUESTS, REQUEST.size):
        with message:
            peer, request = message.peer, REQUEST.unpack(message)
        await room.acquire()
        task = asyncio.create_task(do_request(engine, peer, request, computed))
        tasks.add(task)
        task.add_done_callback(over)


# ---- decode ----


class Worker:
    """A prefill worker: its grant is the cache, registered and published for it alone."""

    def __init__(self, engine, number, address, cache):
        self.number, self.peer, self.gone = number, engine.peer(address), None
        self.grant = engine.register(cache, access="w")
        self.layers = {}                        # attempt: the queue of its layers
        self.room = asyncio.Semaphore(JOBS)
        engine.publish(f"kv/{number}", self.grant)

    def lose(self, error):
        """Nothing of it arrives any more when this returns, and its requests are told."""
        if self.gone is None:
            self.gone = error
            self.grant.release()
            for queue in self.layers.values():
                queue.put_nowait(None)


class Decode:
    """The side that has the cache, and wants requests computed."""

    def __init__(self, engine, addresses):
        self.cache = numpy.zeros((LAYERS, PAGES, PAGE // 8), numpy.uint64)
        self.workers = [Worker(engine, *worker, self.cache) for worker in enumerate(addresses)]
        self.free, self.freed = list(range(PAGES)), asyncio.Event()
        self.attempts, self.turn, self.failures = itertools.count(1), itertools.count(), 0

    async def take_notifications(self, engine):
        """A layer is there: the request that waits for it is told."""
        async for note in engine.notifications():
            for worker in self.workers:
                if note.tag >> LAYER_BITS in worker.layers:
                    worker.layers[note.tag >> LAYER_BITS].put_nowait(note.tag & (1 << LAYER_BITS) - 1)

    async def take_events(self, engine):
        """GONE is the end of a worker."""
        async for event in engine.events():
            for worker in self.workers:
                if event.type == "gone" and event.peer == worker.peer:
                    worker.lose("it is gone")

    async def pages(self, count):
        """So many free pages."""
        while len(self.free) < count:
            self.freed.clear()
            await self.freed.wait()
        return [self.free.pop() for _ in range(count)]

    async def attempt(self, worker, number, pages):
        """One try at a worker. True: all layers are there, and right."""
        attempt, come = next(self.attempts), 0
        queue = worker.layers[attempt] = asyncio.Queue()
        try:
            await worker.peer.send(REQUESTS, REQUEST.pack(
                attempt, number, worker.number, len(pages), *pages, *[0] * (REQUEST_PAGES - len(pages))))
            while come < LAYERS and worker.gone is None:
                layer = await queue.get()
                if layer is None:
                    break
                if not (self.cache[layer, pages] == words_of(number, layer, len(pages))).all():
                    sys.exit(f"request {number}: layer {layer} is wrong")
                come += 1
        except weir.WeirError as error:         # the request was not delivered
            worker.lose(error)
        del worker.layers[attempt]
        if come < LAYERS:
            print(f"request {number} failed, with {come} of {LAYERS} layers: {worker.gone}")
        return come == LAYERS

    async def request(self, number):
        """One request, until a worker has done it."""
        done = False
        while not done:
            alive = [worker for worker in self.workers if worker.gone is None]
            if not alive:
                sys.exit("no prefill worker is left")
            worker = alive[next(self.turn) % len(alive)]
            async with worker.room:
                if worker.gone is not None:
                    continue
                pages = await self.pages(1 + number % REQUEST_PAGES)
                done = await self.attempt(worker, number, pages)
                self.failures += not done
                self.free += pages
                self.freed.set()


async def decode(engine, count, addresses):
    """Has all requests done."""
    side = Decode(engine, addresses)
    tasks = [asyncio.create_task(side.take_notifications(engine)),
             asyncio.create_task(side.take_events(engine))]
    await asyncio.gather(*(side.request(number) for number in range(count)))
    for task in tasks:
        task.cancel()
    print(f"{count} requests are there and right; {side.failures} tries failed")


def main(words):
    """The command."""
    device = None
    if words[:1] == ["-d"]:
        device, words = words[1], words[2:]
    if words[:1] == ["prefill"] and len(words) in (2, 3):
        with weir.Engine(device, words[1]) as engine:
            asyncio.run(prefill(engine, int(words[2]) if len(words) == 3 else 0))
    elif words[:1] == ["decode"] and len(words) > 2:
        with weir.Engine(device) as engine:
            asyncio.run(decode(engine, int(words[1]), words[2:]))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
