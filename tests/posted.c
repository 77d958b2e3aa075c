/* posted.c: a loop of plain one-segment writes on a device that completes them later, for
 * counting instructions by function: bench/instructions.sh runs it under callgrind twice. The
 * device is played and costs next to nothing: what is counted is the engine's.
 *
 *   posted COUNT [WINDOW]    WINDOW transfers in flight; 64
 */
#include "lone_engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static int mr_register(struct weir_device *device, void *base, uint64_t length, uint32_t access,
                       struct weir_mr *mr_out) {
    (void)device;
    (void)access;
    *mr_out = (struct weir_mr){.lkey = 1, .base = base, .length = length};
    return WEIR_OK;
}

static int mr_import(struct weir_device *device, const uint8_t *blob, uint32_t blob_length,
                     uint64_t length, uint32_t access, struct weir_rmr *rmr_out) {
    (void)device;
    (void)blob;
    (void)blob_length;
    (void)length;
    (void)access;
    *rmr_out = (struct weir_rmr){.rkey = 2};
    return WEIR_OK;
}

static weir_remote import(struct lone *lone, weir_peer peer, uint64_t length) {
    struct wire_descriptor descriptor = {
        .memory_id = 5, .length = length, .access = WEIR_ACCESS_ALL, .blob_length = 4};
    uint8_t bytes[WEIR_DESCRIPTOR_MAX];
    uint32_t written = 0;
    weir_remote remote;
    lone_instance(1, descriptor.instance);
    strcpy(descriptor.device, lone->engine->caps.name);
    assert_int_equal(wire_descriptor_encode(&descriptor, bytes, sizeof(bytes), &written), WEIR_OK);
    assert_int_equal(weir_memory_import(lone->engine, peer, bytes, written, &remote), WEIR_OK);
    return remote;
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
    ops.mr_register = mr_register;
    ops.mr_import = mr_import;
    engine->device_ops = &ops;

    weir_peer peer;
    weir_memory memory;
    assert_int_equal(weir_peer_open(engine, THERE, &peer), WEIR_OK);
    weir_peer_connect(engine, peer);
    lone_run(lone);
    uint64_t conn = lone_dialled(lone, THERE);
    lone_say_iam(lone, conn, 1, THERE);
    lone_answer(lone, conn, 1, 1);
    assert_int_equal(weir_memory_register(engine, bytes, sizeof(bytes), 0, &memory), WEIR_OK);
    weir_segment segment = {
        .local = memory, .remote = import(lone, peer, sizeof(bytes)), .length = 8};
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
