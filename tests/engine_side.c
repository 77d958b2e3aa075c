/* SPDX-License-Identifier: Apache-2.0 */
/* engine_side.c: see engine_side.h. */
#include "engine_side.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

weir_engine_options side_options(void) {
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;

    options.transfers_max = 64;
    options.segments_max = 16384;
    options.peers_max = 4;
    options.memories_max = 16;
    options.names_max = 256;
    options.remotes_max = 16;
    options.sq_depth = 64;
    options.notifications_max = 64;
    if (getenv("WEIR_TEST_SERIAL") != NULL)
        options.flags = WEIR_ENGINE_SERIAL;
    return options;
}

void side_open_bytes(struct side *side, const weir_engine_options *options, uint64_t length) {
    weir_engine_options small = side_options();
    void *base;

    memset(side, 0, sizeof(*side));
    assert_int_equal(weir_engine_open(options != NULL ? options : &small, &side->engine), WEIR_OK);
    assert_int_equal(
        weir_memory_allocate(side->engine, length, WEIR_ACCESS_ALL, &side->memory, &base), WEIR_OK);
    side->bytes = base;
    side->length = length;
    int rc = weir_engine_address(side->engine, side->address, sizeof(side->address));
    assert_true(rc == WEIR_OK || rc == WEIR_ENOTSUP);
}

void side_open(struct side *side, const weir_engine_options *options) {
    side_open_bytes(side, options, SIDE_BYTES);
}

void side_close(struct side *side) {
    weir_engine_close(side->engine);
    memset(side, 0, sizeof(*side));
}

weir_remote side_import(struct side *side, weir_peer peer, struct side *other, weir_memory memory) {
    uint8_t descriptor[WEIR_DESCRIPTOR_MAX];
    size_t length = sizeof(descriptor);
    weir_remote remote = {0};

    assert_int_equal(weir_memory_export(other->engine, memory, descriptor, &length), WEIR_OK);
    assert_int_equal(weir_memory_import(side->engine, peer, descriptor, length, &remote), WEIR_OK);
    return remote;
}

void side_join(struct side *side, struct side *other) {
    assert_int_equal(weir_peer_open(side->engine, other->address, &side->peer), WEIR_OK);
    side->remote = side_import(side, side->peer, other, other->memory);
}

void pair_open(struct side *a, struct side *b, const weir_engine_options *options) {
    side_open(a, options);
    side_open(b, options);
    side_join(a, b);
    side_join(b, a);
    connect_now(a, b);
    connect_now(b, a);
}

void pair_close(struct side *a, struct side *b) {
    side_close(a);
    side_close(b);
}

uint64_t now_ns(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

void step(struct side *a, struct side *b) {
    int done = weir_engine_progress(a->engine);

    assert_true(done >= 0);
    if (b != NULL) {
        int more = weir_engine_progress(b->engine);
        assert_true(more >= 0);
        done += more;
    }
    if (done == 0) { /* control messages are looked at before sleeping */
        int rc = weir_engine_wait(a->engine, 20 * 1000);
        assert_true(rc == WEIR_OK || rc == WEIR_EINPROGRESS);
        if (b != NULL)
            weir_engine_wait(b->engine, 20 * 1000);
    }
}

weir_segment segment_of(const struct side *side, uint64_t local_offset, uint64_t remote_offset,
                        uint64_t length) {
    return (weir_segment){.local = side->memory,
                          .remote = side->remote,
                          .local_offset = local_offset,
                          .remote_offset = remote_offset,
                          .length = length};
}

int finish(struct side *a, struct side *b, weir_transfer transfer) {
    STEP_UNTIL(a, b, weir_transfer_status(a->engine, transfer) != WEIR_EINPROGRESS);
    int status = weir_transfer_status(a->engine, transfer);

    assert_int_equal(weir_transfer_waiting_for(a->engine, transfer), WEIR_WAITING_NOTHING);
    assert_int_equal(weir_transfer_wait(a->engine, transfer, 0), status);
    assert_int_equal(weir_transfer_release(a->engine, transfer), WEIR_OK);
    return status;
}

int write_now(struct side *a, struct side *b, const weir_segment *segments, size_t count,
              const weir_transfer_options *options) {
    weir_transfer transfer = {0};
    int rc = weir_write(a->engine, a->peer, segments, count, options, &transfer);

    return rc == WEIR_OK ? finish(a, b, transfer) : rc;
}

int read_now(struct side *a, struct side *b, const weir_segment *segments, size_t count,
             const weir_transfer_options *options) {
    weir_transfer transfer = {0};
    int rc = weir_read(a->engine, a->peer, segments, count, options, &transfer);

    return rc == WEIR_OK ? finish(a, b, transfer) : rc;
}

weir_peer_info info_of(struct side *side) {
    weir_peer_info info = WEIR_PEER_INFO_INIT;

    assert_int_equal(weir_peer_query(side->engine, side->peer, &info), WEIR_OK);
    return info;
}

bool is_connected(struct side *side) {
    return info_of(side).connected == 1;
}

void connect_now(struct side *a, struct side *b) {
    int rc = weir_peer_connect(a->engine, a->peer);

    assert_true(rc == WEIR_OK || rc == WEIR_ENOTREADY);
    STEP_UNTIL(a, b, is_connected(a));
}

weir_engine_info stats_of(struct side *side) {
    weir_engine_info stats = WEIR_ENGINE_INFO_INIT;

    assert_int_equal(weir_engine_query(side->engine, &stats), WEIR_OK);
    return stats;
}

weir_event next_event(struct side *a, struct side *b, weir_event_type type) {
    weir_event event = {0};
    uint64_t end = now_ns() + PATIENCE_NS;

    for (;;) {
        while (weir_event_take(a->engine, &event) == WEIR_OK) {
            if (event.type == type)
                return event;
        }
        if (now_ns() > end)
            fail_msg("event %d never came", (int)type);
        step(a, b);
    }
}

uint8_t pattern(uint64_t seed, uint64_t offset) {
    return (uint8_t)((seed * 31 + offset * 7 + (offset >> 8)) & 0xff);
}

void fill_pattern(uint8_t *bytes, uint64_t length, uint64_t seed) {
    for (uint64_t i = 0; i < length; i++)
        bytes[i] = pattern(seed, i);
}
