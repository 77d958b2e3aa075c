/* SPDX-License-Identifier: Apache-2.0 */
/* engines.c: engines over the device under test; see engines.h. */
#include "engines.h"

#include <stdio.h>
#include <string.h>

#include "engine_tests.h"

enum { SOME_TURNS = 300 };

static struct engines *the; /* there is one at a time */
static const struct weir_device_ops *real_ops;
static struct weir_device_ops ops;

/* ---- QPs that break ----------------------------------------------------- */

/* Breaks the QP, if it is time for that: in turn before the device gets the WRs, and behind. */
static bool breaks_now(struct weir_qp *qp, uint32_t wrs, bool is_behind) {
    if (the->break_wrs == 0 || the->break_wrs > wrs || is_behind != (the->breaks % 2 == 1))
        return false;
    the->break_wrs = 0;
    the->breaks++;
    real_ops->qp_error(qp);
    return true;
}

static void count_wrs(uint32_t wrs) {
    if (the->break_wrs > wrs)
        the->break_wrs -= wrs;
    else if (the->break_wrs > 0)
        the->break_wrs = 1; /* the next ones */
}

static int wrap_post(struct weir_qp *qp, const struct weir_wr *wrs, uint32_t count,
                     struct weir_post *post_out) {
    bool counts = wrs->opcode == WEIR_OP_SEND || wrs->length > 0;
    bool broke = counts && breaks_now(qp, count, false);
    int rc = real_ops->post_send(qp, wrs, count, post_out);
    if (counts && !broke && !breaks_now(qp, count, true))
        count_wrs(count);
    return rc;
}

/* A direct message is as good as a WR. */
static int wrap_direct(struct weir_qp *qp, const struct weir_direct_to *to,
                       const struct weir_direct *directs, uint32_t count, uint64_t *watch_out) {
    bool broke = breaks_now(qp, count, false);
    int rc = real_ops->post_direct(qp, to, directs, count, watch_out);
    if (!broke && !breaks_now(qp, count, true))
        count_wrs(count);
    return rc;
}

static uint32_t wrap_pieces(struct weir_qp *qp, const struct weir_span *span,
                            const weir_segment *segments, uint32_t count) {
    bool broke = breaks_now(qp, count, false);
    uint32_t done = real_ops->post_pieces(qp, span, segments, count);
    if (!broke && !breaks_now(qp, count, true))
        count_wrs(count);
    return done;
}

static void wrap(struct weir_ports *ports) {
    if (ports->device_ops != &ops) {
        real_ops = ports->device_ops;
        ops = *real_ops;
        ops.post_send = wrap_post;
        if (ops.post_pieces != NULL)
            ops.post_pieces = wrap_pieces;
        if (ops.post_direct != NULL)
            ops.post_direct = wrap_direct;
    }
    ports->device_ops = &ops;
}

/* ---- engines ------------------------------------------------------------ */

/* Time-outs are such that a slow machine breaks nothing by itself. */
static weir_engine_options limits_of(const struct engines *engines, const char *listen) {
    weir_engine_options limits = WEIR_ENGINE_OPTIONS_INIT;

    limits.listen = listen;
    limits.transfers_max = 128;
    limits.segments_max = 4096;
    limits.peers_max = 8;
    limits.memories_max = limits.remotes_max = 16;
    limits.qp_count = engines->options.qps;
    limits.sq_depth = 32;
    limits.recv_credits = 16;
    limits.notifications_max = 64;
    limits.connect_timeout_ns = 200 * SECOND;
    limits.stall_timeout_ns = 200 * SECOND;
    return limits;
}

/* Bytes of which no part looks like another, other ones for each engine. */
static void fill(uint8_t *bytes, uint64_t length, uint64_t seed) {
    uint64_t random = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;

    for (uint64_t i = 0; i < length; i++) {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        bytes[i] = (uint8_t)(random >> 56);
    }
}

static void create(struct engines *engines, uint32_t index, const char *listen) {
    struct weir_ports *ports = &engines->ports[index];
    void *base;

    assert_status(engines->world->boot(engines->world, index, ports), WEIR_OK, "boot");
    wrap(ports);
    weir_engine_options limits = limits_of(engines, listen);
    assert_status(engine_create(&limits, ports, &engines->of[index]), WEIR_OK, "engine");
    assert_status(weir_memory_allocate(engines->of[index], engines->options.bytes, WEIR_ACCESS_ALL,
                                       &engines->memory[index], &base),
                  WEIR_OK, "memory");
    engines->bytes[index] = base;
    fill(base, engines->options.bytes, index + 1);
    assert_status(weir_engine_address(engines->of[index], engines->address[index],
                                      sizeof(engines->address[index])),
                  WEIR_OK, "address");
}

void engines_meet(struct engines *engines, uint32_t index, uint32_t peer) {
    assert_status(
        weir_peer_open(engines->of[index], engines->address[peer], &engines->peers[index][peer]),
        WEIR_OK, "peer");
}

void engines_open(struct engines *engines, void **state, const struct engines_options *options) {
    memset(engines, 0, sizeof(*engines));
    engines->world = *state;
    engines->options = options != NULL
                           ? *options
                           : (struct engines_options){.count = 2, .qps = 1, .bytes = ENGINE_BYTES};
    the = engines;
    assert_status(engines->world->open(engines->world, engines), WEIR_OK, "world");
    for (uint32_t i = 0; i < engines->options.count; i++)
        create(engines, i, engines->world->listen(engines->world, i));
    for (uint32_t i = 1; i < engines->options.count; i++) {
        engines_meet(engines, i, 0);
        engines_meet(engines, 0, i);
    }
}

void engine_shut(struct engines *engines, uint32_t index) {
    weir_engine *engine = engines->of[index];

    assert_null(engine_verify(engine));
    uint64_t malformed = engine_stats(engines, index).data_malformed;
    if (engines->world->sends_repeated && malformed > 0)
        printf("# the driver repeated SENDs: %d had no credit\n", (int)malformed);
    else
        assert_int_equal(malformed, 0);
    engines->of[index] = NULL;
    weir_engine_close(engine);
    engines->world->shut(engines->world, index, &engines->ports[index]);
}

void engine_again(struct engines *engines, uint32_t index) {
    char address[WEIR_ADDRESS_MAX];

    memcpy(address, engines->address[index], sizeof(address));
    create(engines, index, address);
    assert_string_equal(engines->address[index], address);
}

void engines_close(struct engines *engines) {
    engines->break_wrs = 0;
    for (uint32_t i = ENGINES_MAX; i > 0; i--) {
        if (engines->of[i - 1] != NULL)
            engine_shut(engines, i - 1);
    }
    engines->world->close(engines->world);
    the = NULL;
}

/* ---- time --------------------------------------------------------------- */

uint64_t engines_now(struct engines *engines) {
    for (uint32_t i = 0; i < ENGINES_MAX; i++) {
        const struct weir_env *env = &engines->ports[i].env;
        if (engines->of[i] != NULL)
            return env->ops->now(env->self);
    }
    fail_msg("there is no engine");
    return 0;
}

void turn(struct engines *engines) {
    engines->world->turn(engines->world, engines);
}

void some_turns(struct engines *engines) {
    for (int i = 0; i < SOME_TURNS; i++)
        turn(engines);
}

/* ---- what engines say --------------------------------------------------- */

weir_engine_info engine_stats(struct engines *engines, uint32_t index) {
    weir_engine_info stats = WEIR_ENGINE_INFO_INIT;

    assert_status(weir_engine_query(engines->of[index], &stats), WEIR_OK, "query");
    return stats;
}

weir_peer_info peer_of(struct engines *engines, uint32_t index, uint32_t peer) {
    weir_peer_info info = WEIR_PEER_INFO_INIT;

    assert_status(weir_peer_query(engines->of[index], engines->peers[index][peer], &info), WEIR_OK,
                  "peer query");
    return info;
}

void assert_status(int status, int expected, const char *what) {
    if (status != expected)
        fail_msg("%s: %s, and not %s", what, weir_error_name(status), weir_error_name(expected));
}

int status_of(struct engines *engines, uint32_t index, weir_transfer transfer) {
    return weir_transfer_status(engines->of[index], transfer);
}

int finish(struct engines *engines, uint32_t index, weir_transfer transfer) {
    UNTIL(engines, status_of(engines, index, transfer) != WEIR_EINPROGRESS);
    int status = status_of(engines, index, transfer);

    if (transfer.id != 0)
        assert_status(weir_transfer_release(engines->of[index], transfer), WEIR_OK, "release");
    return status;
}

#define TEST(name) {#name, name, NULL, NULL, world},

int engines_run(struct engines_world *world) {
    const struct CMUnitTest tests[] = {ENGINE_TESTS(TEST)};
    return cmocka_run_group_tests_name(world->name, tests, NULL, NULL);
}
