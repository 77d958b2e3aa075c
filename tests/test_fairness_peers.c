/* SPDX-License-Identifier: Apache-2.0 */
/* test_fairness_peers.c: how often a peer that waits is overtaken by other peers (S4, S18), on
 * the simulated device and on shm made a device that queues.
 *
 * 65 peers of one engine, each with one transfer of many segments or of few. The first engine's
 * post_send is wrapped: each chain of data is noted with its peer and the time, and so is each
 * submit. Send queues are deeper than all of it, so that nobody waits for slots. Between its
 * submit and its first chain, and between its chains, a peer is overtaken by each other peer
 * as often as docs/design.md states, and not more: by one chain while bytes in flight are
 * limited, and by one turn, of SERVICE_BUDGET chains, while they are not. */
#include "sendqueue_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state.h"

enum {
    PEERS = 65,
    SLICE = 32768, /* of the first engine's memory, for each peer */
    PIECE = 16,
    HUGE_PIECES = 2000,
    SMALL_PIECES = 20,
    CHAIN = 8,
    LIMIT = 40 * PIECE,
    NOTES_MAX = 1 << 17,
    SEEDS = 3
};

struct note {
    uint64_t at_ns;
    uint16_t peer; /* from 0 */
    bool submit;
};

static struct queue_world world;
static struct note notes[NOTES_MAX];
static uint32_t note_count;
static const struct weir_device_ops *below_ops;
static struct weir_device_ops noting_ops;
static weir_segment segments[HUGE_PIECES];

static void note(uint32_t peer, bool submit) {
    assert_true(note_count < NOTES_MAX && peer < PEERS);
    notes[note_count++] =
        (struct note){world.sim != NULL ? world.sim->now_ns : 0, (uint16_t)peer, submit};
}

static int noting_post(struct weir_qp *qp, const struct weir_wr *wrs, uint32_t count,
                       struct weir_post *post_out) {
    bool data = wrs->opcode == WEIR_OP_WRITE && wrs->length > 0;
    uint64_t offset = wrs->laddr - (uint64_t)(uintptr_t)world.bytes[0];
    int rc = below_ops->post_send(qp, wrs, count, post_out);
    if (data && post_out->accepted > 0)
        note((uint32_t)(offset / SLICE), false);
    return rc;
}

/* The chains that overtook a peer's, at worst. */
struct worst {
    uint32_t chains; /* of one other peer */
    uint32_t all;    /* of all others together */
    uint64_t wait_ns;
    uint32_t peer;
};

static struct worst worst_of(uint32_t mine) {
    uint32_t posted[PEERS] = {0};
    struct worst worst = {.peer = mine}, now = {0};
    uint64_t since_ns = 0;
    bool waits = false;
    for (uint32_t i = 0; i < note_count; i++) {
        const struct note *at = &notes[i];
        if (at->peer != mine && !at->submit) {
            now.all++;
            if (++posted[at->peer] > now.chains)
                now.chains = posted[at->peer];
        } else if (at->peer == mine) {
            if (waits && now.chains > worst.chains)
                worst.chains = now.chains;
            if (waits && now.all > worst.all)
                worst.all = now.all;
            if (waits && at->at_ns - since_ns > worst.wait_ns)
                worst.wait_ns = at->at_ns - since_ns;
            memset(posted, 0, sizeof(posted));
            now = (struct worst){0};
            waits = true;
            since_ns = at->at_ns;
        }
    }
    return worst;
}

static void open_peers(uint64_t seed, uint64_t limit) {
    struct qw_options options = qw_options(seed);
    options.engines = PEERS + 1;
    options.bytes = (uint64_t)PEERS * SLICE;
    options.small_others = true;
    options.limits.transfers_max = 128;
    options.limits.segments_max = 1 << 19;
    options.limits.peers_max = 96;
    options.limits.memories_max = options.limits.remotes_max = 96;
    options.limits.sq_depth = 2 * HUGE_PIECES + 2; /* a chain is a quarter of it at most */
    options.limits.chain_max = CHAIN;
    options.limits.inflight_bytes_max = limit;
    qw_open(&world, &options);
    qw_connect(&world);
    below_ops = world.engines[0]->device_ops;
    noting_ops = *below_ops;
    noting_ops.post_send = noting_post;
    world.engines[0]->device_ops = &noting_ops;
    note_count = 0;
    world.stalled = true; /* until all is submitted: the worst that there can be */
}

static void close_peers(void) {
    world.engines[0]->device_ops = below_ops;
    qw_assert_quiet(&world);
    qw_close(&world);
}

static weir_transfer submit(uint32_t peer, uint32_t count) {
    weir_transfer transfer;
    for (uint32_t k = 0; k < count; k++)
        segments[k] = qw_segment(&world, peer + 1, (uint64_t)peer * SLICE + k * PIECE,
                                 (uint64_t)k * PIECE, PIECE);
    note(peer, true);
    assert_int_equal(
        weir_write(world.engines[0], world.peers[peer + 1], segments, count, NULL, &transfer),
        WEIR_OK);
    return transfer;
}

/* Peers [0, huge) have a huge batch each, the others a small one. */
static void run(const char *what, uint64_t seed, uint32_t huge, uint64_t limit, uint32_t bound) {
    static weir_transfer transfers[PEERS];
    open_peers(seed, limit);
    for (uint32_t i = 0; i < PEERS; i++)
        transfers[i] = submit(i, i < huge ? HUGE_PIECES : SMALL_PIECES);
    world.stalled = false;
    for (uint32_t i = PEERS; i-- > 0;)
        assert_int_equal(qw_finish(&world, transfers[i]), WEIR_OK);
    assert_int_equal(qw_stats(&world).admission_waits, 0);
    assert_true(limit == 0 || qw_stats(&world).inflight_bytes_high_water <= limit);
    struct worst worst = {0};
    for (uint32_t i = 0; i < PEERS; i++) {
        struct worst one = worst_of(i);
        worst.all = one.all > worst.all ? one.all : worst.all;
        worst.wait_ns = one.wait_ns > worst.wait_ns ? one.wait_ns : worst.wait_ns;
        if (one.chains > worst.chains) {
            worst.chains = one.chains;
            worst.peer = i;
        }
    }
    printf("# %-28s %-6s %6u chains; overtaken by one other at most %3u, by all %5u; longest "
           "wait %8.1f us%s\n",
           what, limit != 0 ? "limit" : "turns", note_count - PEERS, worst.chains, worst.all,
           (double)worst.wait_ns / 1e3, seed != 0 ? "" : " (shm: not measured)");
    if (worst.chains > bound)
        fail_msg("%s: peer %u is overtaken by %u chains of another", what, worst.peer,
                 worst.chains);
    close_peers();
}

static void on_both(const char *what, uint32_t huge, uint64_t limit, uint32_t bound) {
    char name[64];
    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        snprintf(name, sizeof(name), "%s, sim %u", what, (unsigned)seed);
        run(name, seed, huge, limit, bound);
    }
    if (!qw_has_shm())
        return;
    snprintf(name, sizeof(name), "%s, shm", what);
    run(name, 0, huge, limit, bound);
}

static void test_S4_one_huge_64_small_peers_limited(void **state) {
    (void)state;
    on_both("1 huge, 64 small", 1, LIMIT, 1);
}

static void test_S4_64_huge_one_small_peer_limited(void **state) {
    (void)state;
    on_both("64 huge, 1 small", PEERS - 1, LIMIT, 1);
}

static void test_S18_one_huge_64_small_peers(void **state) {
    (void)state;
    on_both("1 huge, 64 small", 1, 0, SERVICE_BUDGET);
}

static void test_S18_64_huge_one_small_peer(void **state) {
    (void)state;
    on_both("64 huge, 1 small", PEERS - 1, 0, SERVICE_BUDGET);
}

/* A peer that has had its turn has no other one out of order for being submitted to: such a
 * submit brings the next turn to whoever is first in line. */
static void test_S18_submits_give_turns_in_order(void **state) {
    weir_transfer transfers[2 + 20];
    (void)state;
    for (uint64_t seed = qw_has_shm() ? 0 : 1; seed <= SEEDS; seed++) {
        open_peers(seed, 0);
        for (uint32_t i = 0; i < 2; i++)
            transfers[i] = submit(i, HUGE_PIECES);
        for (uint32_t i = 2; i < 22; i++)
            transfers[i] = submit(0, SMALL_PIECES);
        uint32_t chains[2] = {0};
        for (uint32_t i = 0; i < note_count; i++)
            chains[notes[i].peer] += !notes[i].submit;
        assert_int_equal(chains[0], 22 / 2 * SERVICE_BUDGET);
        assert_int_equal(chains[1], 22 / 2 * SERVICE_BUDGET);
        world.stalled = false;
        for (uint32_t i = 0; i < 22; i++)
            assert_int_equal(qw_finish(&world, transfers[i]), WEIR_OK);
        assert_true(worst_of(1).chains <= SERVICE_BUDGET);
        close_peers();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_S4_one_huge_64_small_peers_limited),
        cmocka_unit_test(test_S4_64_huge_one_small_peer_limited),
        cmocka_unit_test(test_S18_one_huge_64_small_peers),
        cmocka_unit_test(test_S18_64_huge_one_small_peer),
        cmocka_unit_test(test_S18_submits_give_turns_in_order),
    };
    return cmocka_run_group_tests_name("fairness_peers", tests, NULL, NULL);
}
