/* SPDX-License-Identifier: Apache-2.0 */
/* posted.c: a loop of plain one-segment writes on a device that completes them later, for
 * counting instructions by function: bench/instructions.sh runs it under callgrind twice. The
 * device is played and costs next to nothing: what is counted is the engine's.
 *
 *   posted COUNT [WINDOW]    WINDOW transfers in flight; 64
 */
#include "lone_engine.h"

#include <stdio.h>
#include <stdlib.h>

#define THERE "10.0.0.9:9"

enum { DEPTH = 64, WINDOW_MOST = 64, SIGNALED_MOST = 1024 };

static uint64_t signaled[SIGNALED_MOST];
static uint32_t first, last;

static int post_send(struct weir_qp *qp, const struct weir_wr *wrs, uint32_t count,
                     struct weir_post *post_out) {
    (void)qp;
    *post_out = (struct weir_post){.accepted = count};
    for (uint32_t i = 0; i < count; i++) {
        if ((wrs[i].flags & WEIR_WR_SIGNALED) != 0)
            signaled[last++ % SIGNALED_MOST] = wrs[i].wr_id;
    }
    return WEIR_OK;
}

static int device_poll(struct weir_device *device, struct weir_cqe *cqes_out, int max) {
    int count = 0;
    (void)device;
    while (count < max && first != last)
        cqes_out[count++] = (struct weir_cqe){.wr_id = signaled[first++ % SIGNALED_MOST]};
    return count;
}

static void finish(weir_engine *engine, weir_transfer transfer) {
    while (weir_transfer_status(engine, transfer) == WEIR_EINPROGRESS)
        weir_engine_progress(engine);
    assert_int_equal(weir_transfer_status(engine, transfer), WEIR_OK);
    weir_transfer_release(engine, transfer);
}

int main(int argc, char **argv) {
    static uint8_t bytes[4096];
    long count = argc > 1 ? atol(argv[1]) : 0;
    uint32_t window = argc > 2 ? (uint32_t)atol(argv[2]) : WINDOW_MOST;
    if (count < 1 || window < 1 || window > WINDOW_MOST) {
        fprintf(stderr, "usage: posted COUNT [WINDOW]\n");
        return 2;
    }
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    options.sq_depth = DEPTH;
    options.peers_max = 8;
    struct lone *lone = lone_open(&options);
    weir_engine *engine = lone->engine;
    struct weir_device_ops ops = *engine->device_ops;
    ops.post_send = post_send;
    ops.poll = device_poll;
    engine->device_ops = &ops;

    weir_peer peer;
    weir_memory memory;
    weir_remote remote;
    assert_int_equal(weir_peer_open(engine, THERE, &peer), WEIR_OK);
    weir_peer_connect(engine, peer);
    lone_run(lone);
    uint64_t conn = lone_dialled(lone, THERE);
    lone_say_iam(lone, conn, 1, THERE);
    lone_answer(lone, conn, 1, 1);
    lone_memories(lone, peer, 1, bytes, sizeof(bytes), &memory, &remote);
    weir_segment segment = {.local = memory, .remote = remote, .length = 8};
    weir_transfer flights[WINDOW_MOST] = {{0}};
    for (long i = 0; i < count; i++) {
        weir_transfer *flight = &flights[i % window];
        if (flight->id != 0)
            finish(engine, *flight);
        assert_int_equal(weir_write(engine, peer, &segment, 1, NULL, flight), WEIR_OK);
    }
    for (uint32_t i = 0; i < window; i++) {
        if (flights[i].id != 0)
            finish(engine, flights[i]);
    }
    printf("%llu transfers\n", (unsigned long long)engine->stats.transfers_ok);
    return 0;
}
