/* SPDX-License-Identifier: Apache-2.0 */
/* busy.c: see busy.h. */
#include "busy.h"

#include "bench.h"
#include "host.h"

#define WINDOW 16
#define WHAT   "bench storm: the writes to one peer"

struct busy {
    weir_engine *engine;
    weir_peer peer;
    weir_segment segment;
    weir_transfer flying[WINDOW]; /* a ring; one with id 0 has ended in its submit */
    uint64_t begun, ended;        /* transfers */
};

static int fail(int rc) {
    return complain("%s: %s (%s)", WHAT, weir_strerror(rc), weir_error_name(rc));
}

int busy_allocate(weir_engine *engine, struct busy_memory *memory_out) {
    weir_memory memory;
    void *base;
    int rc = weir_memory_allocate(engine, BUSY_BYTES, WEIR_ACCESS_ALL, &memory, &base);

    memory_out->length = sizeof(memory_out->descriptor);
    if (rc == 0)
        rc = weir_memory_export(engine, memory, memory_out->descriptor, &memory_out->length);
    if (rc == 0)
        rc = weir_engine_address(engine, memory_out->address, sizeof(memory_out->address));
    return rc == 0 ? 0 : fail(rc);
}

static int open_peer(struct busy *busy, const struct busy_memory *memory) {
    void *base;
    int rc = weir_peer_open(busy->engine, memory->address, &busy->peer);

    if (rc == 0)
        rc = weir_memory_allocate(busy->engine, BUSY_BYTES, 0, &busy->segment.local, &base);
    if (rc == 0)
        rc = weir_memory_import(busy->engine, busy->peer, memory->descriptor, memory->length,
                                &busy->segment.remote);
    busy->segment.length = BUSY_BYTES;
    return rc == 0 ? 0 : fail(rc);
}

/* Begins one, if there is room. */
static int begin(struct busy *busy) {
    weir_transfer *transfer = &busy->flying[busy->begun % WINDOW];
    int rc;

    if (busy->begun - busy->ended == WINDOW)
        return 0;
    rc = weir_write(busy->engine, busy->peer, &busy->segment, 1, NULL, transfer);
    busy->begun += rc == 0;
    return rc == 0 || rc == WEIR_EAGAIN ? 0 : fail(rc);
}

/* Takes those that have ended, in their order. */
static int take(struct busy *busy) {
    while (busy->ended < busy->begun) {
        weir_transfer transfer = busy->flying[busy->ended % WINDOW];
        int rc = transfer.id != 0 ? weir_transfer_status(busy->engine, transfer) : 0;
        if (rc == WEIR_EINPROGRESS)
            return 0;
        if (transfer.id != 0)
            weir_transfer_release(busy->engine, transfer);
        if (rc != 0)
            return fail(rc);
        busy->ended++;
    }
    return 0;
}

/* Until the clock says so, and then until nothing flies. */
static int run(struct busy *busy, uint64_t until_ns) {
    int rc;

    while (host_now_ns() < until_ns || busy->ended < busy->begun) {
        if (host_interrupted())
            return complain("interrupted");
        if (host_now_ns() < until_ns && begin(busy) != 0)
            return -1;
        if ((rc = weir_engine_progress(busy->engine)) < 0)
            return fail(rc);
        if (take(busy) != 0)
            return -1;
    }
    return 0;
}

int busy_write(weir_engine *engine, const struct busy_memory *memory, uint64_t ns,
               double *per_s_out) {
    struct busy busy = {.engine = engine};
    uint64_t from;

    if (open_peer(&busy, memory) != 0 || begin(&busy) != 0 || run(&busy, 0) != 0)
        return -1;
    busy.begun = busy.ended = 0;
    from = host_now_ns();
    if (run(&busy, from + ns) != 0)
        return -1;
    *per_s_out = (double)busy.ended / ((double)(host_now_ns() - from) / 1e9);
    return 0;
}
