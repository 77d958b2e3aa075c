/* SPDX-License-Identifier: Apache-2.0 */
/* test_sendqueue_past.c: how the send queue of another engine failed, each failure in its own
 * schedule against this one, on the simulated device and on shm made to queue.
 *
 *   what happened there                                     what holds it here
 *   an early return on a time-out leaks slots               S1, below
 *   two transfers hold unsignalled WRs and wait             S3, below
 *   trouble on a healthy QP never ends                      S7, below
 *   degraded is cleared while the QP is in error            S10 in test_engine_dead.c
 *   one broken QP fails all that touch it                   S8, below; S11 in test_engine_dead.c
 *   small requests starve a full-depth one                  S4, below, and in test_fairness.c
 *   success becomes an error later                          S11, below
 *   an offset of -64 with length 64 is inside               S15, below; test_engine_submit.c has
 *                                                           all other kinds of bad segments
 *   wr_id 0 is that of unsignalled WRs                      S14, below
 *   the status dangles after a wait that timed out          S12, below, and in test_engine_end.c
 *   submit blocks for seconds                               S5, below, and in test_engine_end.c
 *   a waiting thread spins                                  S5 in test_sendqueue_waits.c
 */
#include <stdlib.h>
#include <string.h>

#include "sendqueue_world.h"

enum { RUNS = 20, UNIT = 8, MANY = 64 };

static const bool on_sim = true, on_shm = false;

static uint32_t draw(uint64_t *random, uint32_t below) {
    *random = *random * UINT64_C(6364136223846793005) + 1;
    return (uint32_t)(*random >> 33) % below;
}

/* A body with another seed, or on shm with another schedule of its own, each run. */
static void in_runs(void **state, void (*body)(uint64_t seed, uint64_t run), uint64_t runs) {
    bool sim = *(const bool *)*state;
    if (!sim && !qw_has_shm())
        skip();
    for (uint64_t run = 1; run <= runs; run++)
        body(sim ? run : 0, run);
}

static struct queue_world world;

/* Calls that may sleep: the simulated node is on the stack meanwhile. */
static void may_sleep(bool may) {
    if (world.sim != NULL)
        world.sim->nodes[0].stepping = may;
}

static uint64_t clock_now(void) {
    const struct weir_env *env = &world.ports[0].env;
    return env->ops->now(env->self);
}

static void pass(uint64_t ns) {
    uint64_t end = clock_now() + ns;
    while (clock_now() < end)
        qw_turn(&world);
}

static void open_depth(uint64_t seed, uint32_t depth, uint32_t chain, uint32_t engines) {
    struct qw_options options = qw_options(seed);
    options.engines = engines;
    options.limits.sq_depth = depth + 1; /* one is kept for the teardown */
    options.limits.chain_max = chain;
    options.limits.backoff_timeout_ns = 200 * 1000;
    options.limits.settle_grace_ns = 60 * 1000 * MS; /* no session goes since the machine is slow */
    qw_open(&world, &options);
    qw_connect(&world);
    for (uint32_t i = 1; i < engines; i++)
        assert_int_equal(qw_info(&world, i).sq_depth, depth);
}

/* So many units of its own from one place on, in both memories. */
static int submit(uint32_t peer, uint32_t at, uint32_t count, const weir_transfer_options *options,
                  weir_transfer *transfer) {
    static weir_segment segments[8192];
    assert_true(count <= 8192);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t offset = (uint64_t)(at + i) * UNIT;
        segments[i] = qw_segment(&world, peer, offset, offset, UNIT);
    }
    return weir_write(world.engines[0], world.peers[peer], segments, count, options, transfer);
}

/* S1: once more, every slot can be taken. */
static void assert_all_slots_usable(uint32_t peer) {
    uint32_t depth = qw_info(&world, peer).sq_depth;
    weir_transfer transfers[MANY];
    qw_assert_quiet(&world);
    world.stalled = true;
    for (uint32_t i = 0; i < depth + 1; i++)
        assert_int_equal(submit(peer, i, 1, NULL, &transfers[i]), WEIR_OK);
    for (int i = 0; i < 10; i++)
        qw_turn(&world);
    assert_int_equal(qw_info(&world, peer).sq_used, depth);
    world.stalled = false;
    for (uint32_t i = 0; i < depth + 1; i++)
        assert_int_equal(qw_finish(&world, transfers[i]), WEIR_OK);
    qw_assert_quiet(&world);
}

/* ---- S1: time-outs and slots -------------------------------------------- */

static const struct {
    uint32_t depth, chain;
} shapes[] = {{10, 4}, {16, 4}, {19, 4}, {1, 1}, {2, 4}};
enum { SHAPES = sizeof(shapes) / sizeof(shapes[0]), REQUESTS = 12 };

/* Twelve requests into a queue that stands still, until their time is up while they wait
 * for slots; those whose WRs are in the queue already end when these are done. */
static void time_out_in_the_queue(uint64_t seed, uint64_t run) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_transfer transfers[REQUESTS];
    uint64_t random = run;
    uint32_t late = 0;

    options.timeout_ns = 200 * 1000;
    open_depth(seed, shapes[run % SHAPES].depth, shapes[run % SHAPES].chain, 2);
    for (int round = 0; round < 3; round++) {
        world.stalled = true;
        for (uint32_t i = 0; i < REQUESTS; i++) {
            assert_int_equal(submit(1, 100 * i, 1 + draw(&random, 6), &options, &transfers[i]),
                             WEIR_OK);
            if (draw(&random, 3) == 0)
                qw_turn(&world);
        }
        pass(2 * options.timeout_ns);
        for (uint32_t i = 0; i < REQUESTS; i++) { /* nothing of these was posted */
            int status = qw_status(&world, transfers[i]);
            assert_true(status == WEIR_ETIMEDOUT || status == WEIR_EINPROGRESS);
            late += status == WEIR_ETIMEDOUT;
        }
        world.stalled = false;
        for (uint32_t i = 0; i < REQUESTS; i++) {
            int status = qw_finish(&world, transfers[i]);
            assert_true(status == WEIR_ETIMEDOUT || status == WEIR_OK);
        }
        assert_all_slots_usable(1);
    }
    assert_true(late > 0);
    assert_int_equal(qw_info(&world, 1).sessions, 1); /* no QP had to go for it */
    qw_close(&world);
}

static void test_S1_requests_that_time_out_leak_no_slot(void **state) {
    in_runs(state, time_out_in_the_queue, RUNS);
}

/* The same with callers that wait for room and give up. */
static void give_up_waiting(uint64_t seed, uint64_t run) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    struct qw_options small = qw_options(seed);
    weir_transfer transfers[REQUESTS];
    uint64_t random = run;
    uint32_t gave_up = 0, count = 0;

    options.flags = WEIR_TRANSFER_BLOCK;
    small.limits.transfers_max = 8;
    small.limits.sq_depth = shapes[run % SHAPES].depth + 1;
    small.limits.chain_max = shapes[run % SHAPES].chain;
    small.limits.backoff_timeout_ns = 200 * 1000;
    qw_open(&world, &small);
    qw_connect(&world);
    for (int round = 0; round < 3; round++) {
        world.stalled = true;
        for (uint32_t i = 0; i < REQUESTS; i++) {
            may_sleep(true);
            int rc = submit(1, 100 * i, 1 + draw(&random, 6), &options, &transfers[count]);
            may_sleep(false);
            assert_true(rc == WEIR_OK || rc == WEIR_EAGAIN);
            count += rc == WEIR_OK;
            gave_up += rc == WEIR_EAGAIN;
        }
        world.stalled = false;
        while (count > 0)
            assert_int_equal(qw_finish(&world, transfers[--count]), WEIR_OK);
        qw_assert_quiet(&world);
    }
    assert_true(gave_up >= 3 * (REQUESTS - 8));
    assert_int_equal(qw_stats(&world).transfers_ok, 3 * REQUESTS - gave_up);
    /* As many as ever fit in now; and the depth was reached, no more than that. */
    world.stalled = true;
    while (submit(1, count, 7, NULL, &transfers[count]) == WEIR_OK)
        count++;
    assert_in_range(count, 7, 8); /* one is kept in reserve */
    assert_int_equal(qw_info(&world, 1).sq_used, small.limits.sq_depth - 1);
    world.stalled = false;
    while (count > 0)
        assert_int_equal(qw_finish(&world, transfers[--count]), WEIR_OK);
    qw_assert_quiet(&world);
    qw_close(&world);
}

static void test_S1_submitters_that_give_up_leak_no_slot(void **state) {
    in_runs(state, give_up_waiting, RUNS);
}

/* ---- S3: each needs more than is left ----------------------------------- */

static void wait_for_each_other(uint64_t seed, uint64_t run) {
    static const uint32_t depths[] = {1, 2, 3, 4, 7, 8, 10, 13};
    enum { MOST = 4 };
    weir_transfer_options notify = WEIR_TRANSFER_OPTIONS_INIT;
    uint32_t depth = depths[run % (sizeof(depths) / sizeof(depths[0]))];
    uint32_t number = 2 + (uint32_t)run % (MOST - 1);
    weir_transfer transfers[MOST];
    uint64_t random = run;

    notify.flags = WEIR_TRANSFER_NOTIFY;
    open_depth(seed, depth, 1 + (uint32_t)run % 5, 2);
    for (int round = 0; round < 10; round++) {
        uint32_t counts[MOST];
        memset(world.bytes[1], 0, 1 << 16);
        memset(world.bytes[0], 1 + round, 1 << 16);
        for (uint32_t i = 0; i < number; i++) {
            counts[i] = depth - depth / 2 + draw(&random, 3 * depth);
            assert_int_equal(
                submit(1, 1000 * i, counts[i], draw(&random, 4) ? NULL : &notify, &transfers[i]),
                WEIR_OK);
            world.stalled = draw(&random, 3) == 0;
            for (uint32_t turns = draw(&random, 3); turns > 0; turns--)
                qw_turn(&world);
        }
        world.stalled = false;
        for (uint32_t i = 0; i < number; i++) { /* nothing else is submitted meanwhile */
            assert_int_equal(qw_finish(&world, transfers[i]), WEIR_OK);
            assert_memory_equal(world.bytes[0] + (size_t)8000 * i,
                                world.bytes[1] + (size_t)8000 * i, (size_t)counts[i] * UNIT);
        }
        qw_assert_quiet(&world);
        weir_notification got;
        while (weir_notification_take(world.engines[1], &got) == WEIR_OK)
            continue;
    }
    assert_int_equal(qw_info(&world, 1).sessions, 1);
    qw_close(&world);
}

static void test_S3_transfers_never_wait_for_each_other(void **state) {
    in_runs(state, wait_for_each_other, 5 * RUNS);
}

/* ---- S7: a chain taken in part ------------------------------------------ */

/* One transfer of two chains; of one of them the device takes k WRs, the unsignalled ones at
 * its front, and says `error` of the rest. Nothing else is submitted: what is in the queue is
 * accounted for all the same. */
static void take_in_part(uint64_t seed, uint32_t k, int error, bool second) {
    enum { CHAIN = 8 };
    weir_transfer transfer;

    open_depth(seed, 4 * CHAIN, CHAIN, 2);
    memset(world.bytes[0], 7, 1 << 16);
    if (second) { /* a queue with nothing in it, and behind what is under way */
        weir_transfer first;
        assert_int_equal(submit(1, 4000, CHAIN, NULL, &first), WEIR_OK);
        assert_int_equal(weir_transfer_release(world.engines[0], first), WEIR_OK);
    }
    world.take_of_next = k;
    world.take_error = error;
    assert_int_equal(submit(1, 0, 2 * CHAIN, NULL, &transfer), WEIR_OK);
    int status = qw_finish(&world, transfer);
    assert_int_equal(world.takes, 1);
    assert_int_equal(status, error == WEIR_EINVAL ? WEIR_EINVAL : WEIR_OK);
    if (status == WEIR_OK)
        assert_memory_equal(world.bytes[0], world.bytes[1], (size_t)2 * CHAIN * UNIT);
    qw_assert_quiet(&world);
    weir_engine_info stats = qw_stats(&world);
    if (error == WEIR_EDEVICE) { /* the QP is gone with them: another one, by itself (S9) */
        assert_int_equal(qw_info(&world, 1).sessions, 2);
    } else {
        assert_int_equal(stats.partial_posts, k > 0);
        assert_int_equal(stats.orphans, k);
        assert_int_equal(stats.orphans_healed, k);
        assert_int_equal(qw_info(&world, 1).sessions, 1);
    }
    assert_all_slots_usable(1);
    qw_close(&world);
}

static void take_every_part(uint64_t seed, uint64_t run) {
    static const int errors[] = {WEIR_EAGAIN, WEIR_EINVAL, WEIR_EDEVICE};
    for (uint32_t k = 0; k < 8; k++) {
        for (int e = 0; e < 3; e++)
            take_in_part(seed, k, errors[e], run % 2 == 0);
    }
}

static void test_S6_S7_a_chain_taken_in_part_heals_by_itself(void **state) {
    in_runs(state, take_every_part, 4);
}

/* ---- S8: a broken QP and the others ------------------------------------- */

/* One peer's QP breaks, and that peer is stopped, so that nothing of it can be settled.
 * Transfers to the other go on; when it runs again its own come through, too. */
static void break_one(uint64_t seed, uint64_t run) {
    enum { EACH = 6 };
    weir_transfer here[EACH], there[EACH];

    open_depth(seed, 10, 4, 3);
    memset(world.bytes[0], (int)run, 1 << 16);
    world.break_posts = 1 + (uint32_t)run % 6;
    world.frozen[1] = true;
    for (uint32_t i = 0; i < EACH; i++)
        assert_int_equal(submit(1, 100 * i, 7, NULL, &there[i]), WEIR_OK);
    QW_UNTIL(&world, qw_info(&world, 1).connected == 0);
    assert_int_equal(world.break_posts, 0);
    for (uint32_t round = 0; round < 30; round++) {
        for (uint32_t i = 0; i < EACH; i++)
            assert_int_equal(submit(2, 100 * i, 7, NULL, &here[i]), WEIR_OK);
        for (uint32_t i = 0; i < EACH; i++)
            assert_int_equal(qw_finish(&world, here[i]), WEIR_OK);
    }
    assert_int_equal(qw_info(&world, 2).sessions, 1);
    assert_int_equal(qw_info(&world, 1).connected, 0);
    world.frozen[1] = false;
    for (uint32_t i = 0; i < EACH; i++)
        assert_int_equal(qw_finish(&world, there[i]), WEIR_OK);
    assert_memory_equal(world.bytes[0], world.bytes[1], 7 * UNIT);
    assert_memory_equal(world.bytes[0], world.bytes[2], 7 * UNIT);
    assert_int_equal(qw_info(&world, 1).sessions, 2);
    assert_int_equal(qw_stats(&world).transfers_failed, 0);
    assert_all_slots_usable(1);
    assert_all_slots_usable(2);
    qw_close(&world);
}

static void test_S8_a_broken_qp_fails_nobody(void **state) {
    in_runs(state, break_one, RUNS);
}

/* ---- S4: a full-depth transfer among thousands of small ones ------------ */

enum { SMALL_ALL = 45000, SMALL_NOW = 50, DEEP = 10 };

struct crowd {
    weir_transfer small[SMALL_NOW], large;
    uint32_t submitted, done; /* small ones */
    uint32_t large_count, since;
};

/* As many small ones as may be, and a large one behind them. */
static void refill(struct crowd *crowd) {
    for (uint32_t i = 0; i < SMALL_NOW && crowd->submitted < SMALL_ALL; i++) {
        if (crowd->small[i].id == 0) {
            assert_int_equal(submit(1, i, 1, NULL, &crowd->small[i]), WEIR_OK);
            crowd->submitted++;
        }
    }
    if (crowd->large.id == 0 && crowd->submitted < SMALL_ALL) {
        assert_int_equal(submit(1, 1000, DEEP, NULL, &crowd->large), WEIR_OK);
        crowd->since = crowd->done;
    }
}

/* True: it is over, and its handle is given back. */
static bool ended(weir_transfer *transfer) {
    if (transfer->id == 0 || qw_status(&world, *transfer) == WEIR_EINPROGRESS)
        return false;
    assert_int_equal(qw_finish(&world, *transfer), WEIR_OK);
    transfer->id = 0;
    return true;
}

/* Small transfers are always waiting, and one that fills the queue after the other: while
 * one of these is under way each of those that wait passes it once a chain. */
static void starve(uint64_t seed, uint64_t run) {
    const uint32_t chains = DEEP / (DEEP / 4) + 1;
    const uint32_t most = (chains + 1) * (SMALL_NOW + DEEP);
    struct crowd crowd = {.done = 0};

    (void)run;
    open_depth(seed, DEEP, 4, 2);
    while (crowd.done < SMALL_ALL) {
        refill(&crowd);
        qw_turn(&world);
        for (uint32_t i = 0; i < SMALL_NOW; i++)
            crowd.done += ended(&crowd.small[i]);
        crowd.large_count += ended(&crowd.large);
        assert_true(crowd.large.id == 0 || crowd.done - crowd.since <= most);
    }
    assert_true(crowd.large_count >= SMALL_ALL / most);
    if (crowd.large.id != 0)
        assert_int_equal(qw_finish(&world, crowd.large), WEIR_OK);
    qw_assert_quiet(&world);
    qw_close(&world);
}

static void test_S4_a_full_depth_transfer_among_thousands_of_small_ones(void **state) {
    in_runs(state, starve, 2);
}

/* ---- S11: what was said stays ------------------------------------------- */

static void keep_the_word(uint64_t seed, uint64_t run) {
    weir_transfer_options soon = WEIR_TRANSFER_OPTIONS_INIT;
    weir_transfer well[3], bad[2], other;

    soon.timeout_ns = 3 * MS;
    open_depth(seed, 10, 4, 2);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(submit(1, 100 * i, 7, i == 1 ? &soon : NULL, &well[i]), WEIR_OK);
    int said[3];
    for (uint32_t i = 0; i < 3; i++) {
        QW_UNTIL(&world, qw_status(&world, well[i]) != WEIR_EINPROGRESS);
        said[i] = qw_status(&world, well[i]);
        assert_true(said[i] == WEIR_OK || (i == 1 && world.sim == NULL)); /* a slow machine */
    }
    world.stalled = true; /* fills the queue, so that nothing of the others is posted */
    assert_int_equal(submit(1, 3000, 30, NULL, &other), WEIR_OK);
    assert_int_equal(submit(1, 0, 5, NULL, &bad[0]), WEIR_OK);
    assert_int_equal(submit(1, 0, 5, &soon, &bad[1]), WEIR_OK);
    assert_int_equal(weir_transfer_cancel(world.engines[0], bad[0]), WEIR_OK);
    pass(5 * MS);
    world.stalled = false;
    assert_int_equal(qw_finish(&world, other), WEIR_OK);
    for (int step = 0; step < 4; step++) {
        if (step == 0)
            assert_int_equal(weir_transfer_cancel(world.engines[0], well[0]), WEIR_OK);
        if (step == 1) { /* the QP that carried them breaks, with others on it */
            world.break_posts = 1 + (uint32_t)run % 3;
            assert_int_equal(submit(1, 2000, 30, NULL, &other), WEIR_OK);
            assert_int_equal(qw_finish(&world, other), WEIR_OK);
            assert_int_equal(qw_info(&world, 1).sessions, 2);
        }
        if (step == 2) { /* completions that were there before come again */
            qw_invent(&world, world.last_signaled, WEIR_CQE_FLUSHED);
            pass(MS);
        }
        if (step == 3)
            assert_int_equal(weir_peer_close(world.engines[0], world.peers[1]), WEIR_OK);
        pass(MS);
        for (uint32_t i = 0; i < 3; i++)
            assert_int_equal(qw_status(&world, well[i]), said[i]);
        assert_int_equal(qw_status(&world, bad[0]), WEIR_ECANCELED);
        assert_int_equal(qw_status(&world, bad[1]), WEIR_ETIMEDOUT);
    }
    qw_close(&world);
}

static void test_S11_a_status_never_changes(void **state) {
    in_runs(state, keep_the_word, RUNS);
}

/* ---- S14: wr_id 0 -------------------------------------------------------- */

static void tell_of_zero(uint64_t seed, uint64_t run) {
    static const uint32_t statuses[] = {WEIR_CQE_OK, WEIR_CQE_FLUSHED, WEIR_CQE_RETRY};
    weir_transfer transfers[4];
    (void)run;

    open_depth(seed, 16, 4, 2);
    assert_int_equal(submit(1, 0, 1, NULL, &transfers[0]), WEIR_OK); /* the first of all */
    assert_int_equal(qw_finish(&world, transfers[0]), WEIR_OK);
    uint64_t old = world.last_signaled;
    world.stalled = true;
    for (uint32_t i = 0; i < 4; i++) /* with unsignalled WRs among theirs */
        assert_int_equal(submit(1, 100 * i, 5, NULL, &transfers[i]), WEIR_OK);
    uint32_t used = qw_info(&world, 1).sq_used;
    uint64_t before = qw_stats(&world).completions_stale;
    for (uint32_t s = 0; s < 3; s++) {
        qw_invent(&world, 0, statuses[s]);
        qw_invent(&world, old, statuses[s]); /* and one that was there before */
    }
    for (int i = 0; i < 10; i++)
        qw_turn(&world);
    assert_int_equal(qw_stats(&world).completions_stale, before + 6);
    assert_int_equal(qw_info(&world, 1).sq_used, used);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(qw_status(&world, transfers[i]), WEIR_EINPROGRESS);
    world.stalled = false;
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(qw_finish(&world, transfers[i]), WEIR_OK);
    assert_int_equal(qw_info(&world, 1).sessions, 1);
    assert_int_equal(world.wr_ids_zero, 0);
    assert_all_slots_usable(1);
    qw_close(&world);
}

static void test_S14_a_completion_of_wr_id_0_is_nobodys(void **state) {
    in_runs(state, tell_of_zero, RUNS);
}

/* ---- S12: a wait that timed out ----------------------------------------- */

static int wait_so_long(weir_transfer transfer, uint64_t ns) {
    may_sleep(true);
    int rc = weir_transfer_wait(world.engines[0], transfer, ns);
    may_sleep(false);
    return rc;
}

static void wait_in_vain(uint64_t seed, uint64_t run) {
    weir_transfer transfers[MANY], more[MANY];
    uint32_t count = 0, kept = (uint32_t)run % 5;

    open_depth(seed, 10, 4, 2);
    memset(world.bytes[0], 9, 1 << 16);
    world.stalled = true;
    for (; count < 20; count++)
        assert_int_equal(submit(1, 10 * count, 3, NULL, &transfers[count]), WEIR_OK);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(wait_so_long(transfers[i], 0), WEIR_EINPROGRESS);
        assert_int_equal(wait_so_long(transfers[i], 20 * 1000), WEIR_EINPROGRESS);
        assert_int_equal(qw_status(&world, transfers[i]), WEIR_EINPROGRESS);
    }
    /* Most callers give up on them; what they had is used again as soon as it may be. */
    for (uint32_t i = kept; i < count; i++)
        assert_int_equal(weir_transfer_release(world.engines[0], transfers[i]), WEIR_OK);
    for (uint32_t i = 0; i < 30; i++)
        assert_int_equal(submit(1, 10 * (i + 30), 3, NULL, &more[i]), WEIR_OK);
    world.stalled = false;
    for (uint32_t i = 0; i < kept; i++) {
        assert_int_equal(wait_so_long(transfers[i], SECOND), WEIR_OK);
        assert_int_equal(qw_status(&world, transfers[i]), WEIR_OK);
        assert_int_equal(weir_transfer_release(world.engines[0], transfers[i]), WEIR_OK);
    }
    for (uint32_t i = 0; i < 30; i++)
        assert_int_equal(qw_finish(&world, more[i]), WEIR_OK);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(qw_status(&world, transfers[i]), WEIR_ESTALE);
    QW_UNTIL(&world, qw_stats(&world).transfers_ok == count + 30); /* unobserved ones, too */
    for (uint32_t i = 0; i < count + 30; i++) {
        uint32_t at = 10 * (i < count ? i : i - count + 30) * UNIT;
        assert_memory_equal(world.bytes[0] + at, world.bytes[1] + at, 3 * UNIT);
    }
    qw_assert_quiet(&world);
    qw_close(&world);
}

static void test_S12_a_status_after_a_wait_that_timed_out(void **state) {
    in_runs(state, wait_in_vain, RUNS);
}

/* ---- S5: a full queue and its submitters -------------------------------- */

/* However full: a submit neither sleeps nor looks at the device more than a few times. Asked
 * to wait it does for as long as it may, nearly all of that asleep. */
static void submit_into_a_full_queue(uint64_t seed, uint64_t run) {
    enum { CALL_MOST = 40 }; /* posts and polls of one call */
    weir_transfer_options block = WEIR_TRANSFER_OPTIONS_INIT;
    const uint64_t backoff_ns = seed != 0 ? 2 * MS : 20 * MS;
    struct qw_options full = qw_options(seed);
    static weir_transfer transfers[MANY];
    uint32_t count = 0;

    (void)run;
    block.flags = WEIR_TRANSFER_BLOCK;
    full.limits.backoff_timeout_ns = backoff_ns;
    full.limits.segments_max = 8192;
    qw_open(&world, &full);
    qw_connect(&world);
    world.stalled = true;
    for (int i = 0; i < 1000; i++) {
        uint64_t sleeps = world.sleeps, work = world.posts + world.polls;
        int rc = submit(1, 0, 1 + (uint32_t)i % 300, NULL, &transfers[count]);
        assert_true(rc == WEIR_OK || rc == WEIR_EAGAIN);
        count += rc == WEIR_OK;
        assert_int_equal(world.sleeps, sleeps);
        assert_true(world.posts + world.polls - work <= CALL_MOST);
    }
    assert_true(count < 1000);
    uint64_t begin = clock_now(), sleeps = world.sleeps, work = world.posts + world.polls;
    may_sleep(true);
    assert_int_equal(submit(1, 0, 1, &block, &transfers[count]), WEIR_EAGAIN);
    may_sleep(false);
    assert_true(clock_now() - begin >= backoff_ns);
    assert_true(world.sim == NULL || clock_now() - begin < backoff_ns + MS);
    /* Each longer than the one before; how long a sleep takes in the end, the machine decides. */
    assert_true(world.sleeps - sleeps > (world.sim != NULL ? 4 : 0));
    assert_true(world.posts + world.polls - work <= 200 + 8 * (world.sleeps - sleeps));
    world.stalled = false;
    while (count > 0)
        assert_int_equal(qw_finish(&world, transfers[--count]), WEIR_OK);
    /* Submits that were refused have kept nothing. */
    assert_int_equal(submit(1, 0, full.limits.segments_max, NULL, &transfers[0]), WEIR_OK);
    assert_int_equal(qw_finish(&world, transfers[0]), WEIR_OK);
    qw_assert_quiet(&world);
    qw_close(&world);
}

static void test_S5_a_submit_into_a_full_queue(void **state) {
    in_runs(state, submit_into_a_full_queue, 4);
}

/* ---- S15: an offset below 0 --------------------------------------------- */

static void begin_below_zero(uint64_t seed, uint64_t run) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_transfer transfer = {5};

    (void)run;
    open_depth(seed, 10, 4, 2);
    memset(world.bytes[0], 3, 1 << 16);
    uint64_t before = qw_stats(&world).wrs_posted;
    for (uint64_t length = 64; length <= 65536; length *= 4) {
        for (int way = 1; way < 32; way++) {
            if ((way & 3) == 0)
                continue;
            weir_segment pair[2] = {qw_segment(&world, 1, 0, 0, 64)};
            pair[1] = qw_segment(&world, 1, way & 1 ? -length : 0, way & 2 ? -length : 0, length);
            weir_segment *from = way & 4 ? pair : &pair[1];
            options.flags = way & 8 ? WEIR_TRANSFER_ONCE : 0;
            assert_int_equal((way & 16 ? weir_read : weir_write)(
                                 world.engines[0], world.peers[1], from, way & 4 ? 2 : 1,
                                 way & 8 ? &options : NULL, &transfer),
                             WEIR_EBOUNDS);
        }
    }
    pass(MS);
    assert_int_equal(qw_stats(&world).wrs_posted, before);
    assert_int_equal(transfer.id, 5);
    for (uint32_t i = 0; i < 64; i++)
        assert_int_equal(world.bytes[1][i], 0);
    qw_close(&world);
}

static void test_S15_an_offset_below_zero(void **state) {
    in_runs(state, begin_below_zero, 2);
}

#define ON_BOTH(test)                                                                              \
    {#test "_sim", test, NULL, NULL, (void *)(uintptr_t)&on_sim}, {                                \
#test "_shm", test, NULL, NULL, (void *)(uintptr_t)&on_shm                                 \
    }

int main(void) {
    const struct CMUnitTest tests[] = {
        ON_BOTH(test_S1_requests_that_time_out_leak_no_slot),
        ON_BOTH(test_S1_submitters_that_give_up_leak_no_slot),
        ON_BOTH(test_S3_transfers_never_wait_for_each_other),
        ON_BOTH(test_S4_a_full_depth_transfer_among_thousands_of_small_ones),
        ON_BOTH(test_S5_a_submit_into_a_full_queue),
        ON_BOTH(test_S6_S7_a_chain_taken_in_part_heals_by_itself),
        ON_BOTH(test_S8_a_broken_qp_fails_nobody),
        ON_BOTH(test_S11_a_status_never_changes),
        ON_BOTH(test_S12_a_status_after_a_wait_that_timed_out),
        ON_BOTH(test_S14_a_completion_of_wr_id_0_is_nobodys),
        ON_BOTH(test_S15_an_offset_below_zero),
    };
    return cmocka_run_group_tests_name("sendqueue_past", tests, NULL, NULL);
}
