/* SPDX-License-Identifier: Apache-2.0 */
/* test_stress.c: many threads on an engine and its peers, each an engine as well (S16).
 *
 * Up to 16 threads submit writes, reads and notifications through send queues of 8 slots
 * and small pools, from both ends of up to four links; some wait for room, for 200 us at
 * most. Others take, cancel, release early, and register and release memory meanwhile.
 * Every transfer is accounted for, the bytes are those of the last write, and no
 * notification is lost or comes twice. Made for ThreadSanitizer; on shm, or on the device of
 * WEIR_TEST_DEVICE, of which less is asked. */
#include "sendqueue_sides.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LINKS_MAX = 4,
    ENGINES_MAX = 1 + LINKS_MAX,
    SUBMITTERS_MAX = 16,
    CHURNERS = 2,
    STRIPE = 4096,
    TURNS = 400,
    TURNS_MAX = 2000,
    BACKOFF_NS = 200 * 1000
};
enum { NOTES_MAX = SUBMITTERS_MAX * TURNS_MAX };

/* The shape of one run. Link i is between the first engine and engine i + 1. */
struct shape {
    int links, submitters;
    uint32_t qps, flags, turns;
};

/* One end of a link: an engine, and its peer at the other end. */
struct end {
    struct side side;
    int engine, other; /* their numbers */
};

/* A stripe of both memories belongs to one submitter: nobody else touches it. */
struct submitter {
    struct side *side;
    int engine, other;
    int number;
    uint32_t random;
    uint64_t ok, canceled, timed_out, again, unobserved;
    uint64_t notes;
    const char *wrong;
};

static struct shape shape;
static struct side sides[ENGINES_MAX];
static struct end ends[LINKS_MAX][2];
static pthread_barrier_t begin;
static atomic_bool stop;
static atomic_uint taken[ENGINES_MAX][NOTES_MAX]; /* how often each tag came, at engine i */
static atomic_ullong queue_taken[ENGINES_MAX];
static atomic_ullong queue_failed[ENGINES_MAX];
static atomic_ullong queue_sent[ENGINES_MAX];

static int engines(void) {
    return shape.links + 1;
}

static uint32_t draw(uint32_t *random, uint32_t below) {
    *random = *random * 1664525u + 1013904223u;
    return (*random >> 8) % below;
}

/* cmocka's asserts are for the main thread: others note what is wrong. */
#define CHECK(who, condition)                                                                      \
    do {                                                                                           \
        if (!(condition) && (who)->wrong == NULL)                                                  \
            (who)->wrong = #condition;                                                             \
    } while (0)

static int submit(struct submitter *me, bool read, const weir_segment *segments, size_t count,
                  const weir_transfer_options *options, weir_transfer *transfer) {
    for (;;) {
        int rc =
            read ? weir_read(me->side->engine, me->side->peer, segments, count, options, transfer)
                 : weir_write(me->side->engine, me->side->peer, segments, count, options, transfer);
        if (rc != WEIR_EAGAIN)
            return rc;
        me->again++;
        if (weir_engine_progress(me->side->engine) == 0)
            sched_yield();
    }
}

static int wait_for(struct submitter *me, weir_transfer transfer) {
    int rc = weir_transfer_wait(me->side->engine, transfer, sides_patience_ns());

    CHECK(me, rc != WEIR_EINPROGRESS);
    CHECK(me, weir_transfer_status(me->side->engine, transfer) == rc);
    CHECK(me, weir_transfer_release(me->side->engine, transfer) == WEIR_OK);
    return rc;
}

/* A stripe is written in pieces, read back into the other half, and compared. */
static void write_and_read(struct submitter *me, uint32_t turn) {
    enum { PIECES = 16, PIECE = STRIPE / 2 / PIECES };
    uint64_t base = (uint64_t)me->number * STRIPE;
    weir_segment there[PIECES];
    weir_segment back[PIECES];
    weir_transfer transfer = {0};
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    uint8_t *mine = me->side->bytes + base;

    fill_pattern(mine, STRIPE / 2, turn + 1000 * (uint64_t)me->number);
    for (uint64_t i = 0; i < PIECES; i++) {
        uint64_t at = base + i * PIECE;
        there[i] = segment_of(me->side, at, at, PIECE);
        back[i] = segment_of(me->side, at + STRIPE / 2, at, PIECE);
    }
    options.flags = draw(&me->random, 2) != 0 ? WEIR_TRANSFER_NOTIFY : WEIR_TRANSFER_ONCE;
    options.flags |= draw(&me->random, 2) != 0 ? WEIR_TRANSFER_BLOCK : 0;
    options.notify_tag = (uint64_t)me->number * TURNS_MAX + turn;
    bool plain = draw(&me->random, 3) == 0;
    int rc = submit(me, false, there, PIECES, plain ? NULL : &options, &transfer);
    CHECK(me, rc == WEIR_OK);
    CHECK(me, wait_for(me, transfer) == WEIR_OK);
    me->ok++;
    if (!plain && (options.flags & WEIR_TRANSFER_NOTIFY) != 0) {
        me->notes++;
        atomic_fetch_add(&taken[me->other][options.notify_tag], 1000);
    }
    CHECK(me, submit(me, true, back, PIECES, NULL, &transfer) == WEIR_OK);
    CHECK(me, wait_for(me, transfer) == WEIR_OK);
    me->ok++;
    CHECK(me, memcmp(mine, mine + STRIPE / 2, STRIPE / 2) == 0);
}

/* Ended early in one way or another; what was written does not matter. */
static void cut_short(struct submitter *me) {
    uint64_t base = (uint64_t)me->number * STRIPE;
    weir_segment one = segment_of(me->side, base, base, STRIPE / 2);
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_transfer transfer = {0};

    options.flags = WEIR_TRANSFER_ONCE;
    uint32_t how = draw(&me->random, 3);
    if (how == 2)
        options.timeout_ns = 1 + draw(&me->random, 20000);
    CHECK(me, submit(me, false, &one, 1, &options, &transfer) == WEIR_OK);
    if (how == 0) {
        CHECK(me, weir_transfer_release(me->side->engine, transfer) == WEIR_OK);
        me->unobserved++;
        return;
    }
    if (how == 1)
        CHECK(me, weir_transfer_cancel(me->side->engine, transfer) == WEIR_OK);
    int rc = wait_for(me, transfer);
    if (rc == WEIR_OK)
        me->ok++;
    else if (rc == WEIR_ECANCELED && how == 1)
        me->canceled++;
    else if (rc == WEIR_ETIMEDOUT && how == 2)
        me->timed_out++;
    else
        CHECK(me, !"an unexpected status");
}

/* From bytes that nobody changes: nobody waits for these. */
static void queued(struct submitter *me) {
    uint64_t base = SUBMITTERS_MAX * STRIPE + 1024;
    weir_segment one = segment_of(me->side, base, base + 1024 + 64 * (uint64_t)me->number, 64);
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;

    options.flags = WEIR_TRANSFER_QUEUE | WEIR_TRANSFER_BLOCK;
    options.user_data = (uint64_t)me->number;
    CHECK(me, submit(me, false, &one, 1, &options, NULL) == WEIR_OK);
    atomic_fetch_add(&queue_sent[me->engine], 1);
}

static void *submitter_main(void *argument) {
    struct submitter *me = argument;
    bool unobserved = false;

    pthread_barrier_wait(&begin);
    for (uint32_t turn = 0; turn < shape.turns && me->wrong == NULL; turn++) {
        uint32_t what = draw(&me->random, 8);
        if (what == 0)
            queued(me);
        else if (what == 1 &&
                 turn > shape.turns / 2) { /* may be written behind our back after it */
            cut_short(me);
            unobserved = unobserved || me->unobserved > 0;
        } else if (!unobserved && what != 1)
            write_and_read(me, turn);
    }
    return NULL;
}

/* Takes whatever there is to take on one engine. */
static void *taker_main(void *argument) {
    struct side *side = argument;
    size_t which = (size_t)(side - sides);
    weir_notification note;
    weir_completion done;
    weir_event event;

    while (!atomic_load(&stop)) {
        bool idle = weir_engine_wait(side->engine, MS) != WEIR_OK;
        while (weir_notification_take(side->engine, &note) == WEIR_OK) {
            if (note.tag < NOTES_MAX)
                atomic_fetch_add(&taken[which][note.tag], 1);
            idle = false;
        }
        while (weir_completion_take(side->engine, &done) == WEIR_OK) {
            if (done.status != WEIR_OK)
                atomic_fetch_add(&queue_failed[which], 1);
            atomic_fetch_add(&queue_taken[which], 1);
            idle = false;
        }
        weir_event_take(side->engine, &event);
        if (idle)
            sched_yield();
    }
    return NULL;
}

/* Memory comes and goes meanwhile, on both sides of an import. */
struct churner {
    struct side *side, *other;
    int number;
    uint64_t rounds;
    const char *wrong;
};

/* While a peer is kept inside a write, the release goes on. */
static int release_memory(weir_engine *engine, weir_memory memory) {
    int rc;

    while ((rc = weir_memory_release(engine, memory)) == WEIR_EINPROGRESS)
        sched_yield();
    return rc;
}

static void *churner_main(void *argument) {
    struct churner *me = argument;
    static uint8_t bytes[CHURNERS][512];
    uint8_t *mine = bytes[me->number];

    do { /* once at least, however late it has its turn */
        uint8_t descriptor[WEIR_DESCRIPTOR_MAX];
        size_t length = sizeof(descriptor);
        weir_memory memory;
        weir_remote remote;
        weir_transfer transfer = {0};
        void *base = mine;

        int rc = me->rounds % 2 == 0
                     ? weir_memory_register(me->side->engine, mine, 512, WEIR_ACCESS_ALL, &memory)
                     : weir_memory_allocate(me->side->engine, 512, WEIR_ACCESS_ALL, &memory, &base);
        CHECK(me, rc == WEIR_OK);
        CHECK(me, weir_memory_export(me->side->engine, memory, descriptor, &length) == WEIR_OK);
        CHECK(me, weir_memory_import(me->other->engine, me->other->peer, descriptor, length,
                                     &remote) == WEIR_OK);
        weir_segment one = {me->other->memory, remote, SUBMITTERS_MAX * STRIPE, 0, 512};
        rc = weir_write(me->other->engine, me->other->peer, &one, 1, NULL, &transfer);
        CHECK(me, rc == WEIR_OK || rc == WEIR_EAGAIN);
        if (rc == WEIR_OK) {
            rc = weir_transfer_wait(me->other->engine, transfer, sides_patience_ns());
            CHECK(me, rc == WEIR_OK);
            weir_transfer_release(me->other->engine, transfer);
            CHECK(me, memcmp(base, me->other->bytes + SUBMITTERS_MAX * STRIPE, 512) == 0);
        }
        CHECK(me, weir_remote_release(me->other->engine, remote) == WEIR_OK);
        CHECK(me, release_memory(me->side->engine, memory) == WEIR_OK);
        CHECK(me, weir_memory_query(me->side->engine, memory, NULL, NULL) == WEIR_ESTALE);
        me->rounds++;
        weir_peer_info info = WEIR_PEER_INFO_INIT;
        weir_engine_info stats = WEIR_ENGINE_INFO_INIT;
        CHECK(me, weir_peer_query(me->side->engine, me->side->peer, &info) == WEIR_OK);
        CHECK(me, weir_engine_query(me->side->engine, &stats) == WEIR_OK);
    } while (!atomic_load(&stop) && me->wrong == NULL);
    return NULL;
}

static void open_all(void) {
    weir_engine_options limits = sides_options();

    limits.sq_depth = 8;
    limits.qp_count = shape.qps;
    limits.transfers_max = 12;
    limits.segments_max = 128;
    limits.recv_credits = 4;
    limits.notifications_max = 8;
    limits.peers_max = 4 * ENGINES_MAX;
    limits.backoff_timeout_ns = BACKOFF_NS;
    limits.flags = shape.flags;
    for (int i = 0; i < engines(); i++) {
        if (i == 0)
            sides_near();
        else
            sides_far();
        side_open_bytes(&sides[i], &limits, (SUBMITTERS_MAX + 1) * STRIPE);
        fill_pattern(sides[i].bytes + SUBMITTERS_MAX * STRIPE, STRIPE, 99 + (uint64_t)i);
    }
    for (int i = 0; i < shape.links; i++) {
        ends[i][0] = (struct end){.side = sides[0], .engine = 0, .other = i + 1};
        ends[i][1] = (struct end){.side = sides[i + 1], .engine = i + 1, .other = 0};
        side_join(&ends[i][0].side, &sides[i + 1]);
        side_join(&ends[i][1].side, &sides[0]);
    }
}

/* The counts of all add up. */
static void account(const struct submitter *submitters) {
    for (int i = 0; i < engines(); i++) {
        uint64_t ok = 0;
        uint64_t unobserved = 0;
        uint64_t failed = 0;
        for (int s = 0; s < shape.submitters; s++) {
            if (submitters[s].engine != i)
                continue;
            ok += submitters[s].ok;
            unobserved += submitters[s].unobserved;
            failed += submitters[s].canceled + submitters[s].timed_out;
        }
        weir_engine_info stats = stats_of(&sides[i]);
        assert_int_equal(atomic_load(&queue_failed[i]), 0);
        assert_int_equal(atomic_load(&queue_taken[i]), atomic_load(&queue_sent[i]));
        assert_true(stats.transfers_ok >= ok + unobserved + queue_taken[i]); /* and churners' */
        assert_int_equal(stats.transfers_failed, failed);
        assert_int_equal(stats.sessions_failed, 0);
        assert_int_equal(stats.completions_stale, 0);
        printf(
            "# engine %d: %u transfers, %u in their submit, %u handed over; %u refused, %u waits "
            "for slots, %u for credits\n",
            i, (unsigned)stats.transfers_ok, (unsigned)stats.transfers_inline,
            (unsigned)stats.submit_queued, (unsigned)stats.submit_eagain,
            (unsigned)stats.admission_waits, (unsigned)stats.credit_waits);
    }
    for (int i = 0; i < 2 * shape.links; i++) {
        weir_peer_info info = info_of(&ends[i / 2][i % 2].side);
        assert_int_equal(info.sessions, 1);
        assert_int_equal(info.sq_used, 0);
        assert_int_equal(info.pending, 0);
        assert_true(info.sq_high_water <= info.sq_depth);
    }
}

static bool all_quiet(void) {
    for (int i = 0; i < 2 * shape.links; i++) {
        weir_peer_info info = info_of(&ends[i / 2][i % 2].side);
        if (info.pending > 0 || info.sq_used > 0)
            return false;
    }
    for (int i = 0; i < engines(); i++) {
        if (queue_taken[i] != queue_sent[i])
            return false;
        for (size_t tag = 0; tag < NOTES_MAX; tag++) {
            if (taken[i][tag] == 1000)
                return false;
        }
    }
    return true;
}

static void report_lost(void) {
    for (int i = 0; i < engines(); i++) {
        for (size_t tag = 0; tag < NOTES_MAX; tag++) {
            if (taken[i][tag] != 0 && taken[i][tag] != 1001)
                print_error("engine %d: notification %zu came %u times\n", i, tag,
                            taken[i][tag] % 1000);
        }
    }
}

static void check_all(const struct submitter *submitters, const struct churner *churners) {
    for (int i = 0; i < shape.submitters; i++) {
        if (submitters[i].wrong != NULL)
            fail_msg("submitter %d: %s", i, submitters[i].wrong);
    }
    for (int i = 0; i < CHURNERS; i++) {
        if (churners[i].wrong != NULL)
            fail_msg("churner %d: %s", i, churners[i].wrong);
        assert_true(churners[i].rounds > 0);
    }
    for (int i = 0; i < engines(); i++) {
        for (size_t tag = 0; tag < NOTES_MAX; tag++)
            assert_true(taken[i][tag] == 0 || taken[i][tag] == 1001); /* sent once, came once */
    }
    account(submitters);
}

/* Takers, churners, submitters: from `first` on they end by themselves. */
static size_t start_all(struct submitter *submitters, struct churner *churners, pthread_t *threads,
                        size_t *first) {
    size_t count = 0;

    for (int i = 0; i < engines(); i++)
        assert_int_equal(pthread_create(&threads[count++], NULL, taker_main, &sides[i]), 0);
    for (int i = 0; i < CHURNERS; i++) {
        churners[i] =
            (struct churner){.side = &ends[0][i].side, .other = &ends[0][1 - i].side, .number = i};
        assert_int_equal(pthread_create(&threads[count++], NULL, churner_main, &churners[i]), 0);
    }
    *first = count;
    for (int i = 0; i < shape.submitters; i++) {
        struct end *end = &ends[i / 2 % shape.links][i % 2];
        submitters[i] = (struct submitter){.side = &end->side,
                                           .engine = end->engine,
                                           .other = end->other,
                                           .number = i,
                                           .random = (uint32_t)i * 7919 + shape.qps};
        assert_int_equal(pthread_create(&threads[count++], NULL, submitter_main, &submitters[i]),
                         0);
    }
    return count;
}

static void run(struct shape wanted) {
    struct submitter submitters[SUBMITTERS_MAX];
    struct churner churners[CHURNERS];
    pthread_t threads[SUBMITTERS_MAX + CHURNERS + ENGINES_MAX];
    size_t first;

    shape = wanted;
    if (!sides_long())
        shape.turns = shape.turns / 8;
    memset(taken, 0, sizeof(taken));
    memset(queue_taken, 0, sizeof(queue_taken));
    memset(queue_failed, 0, sizeof(queue_failed));
    memset(queue_sent, 0, sizeof(queue_sent));
    atomic_store(&stop, false);
    pthread_barrier_init(&begin, NULL, (unsigned)shape.submitters);
    open_all();
    size_t count = start_all(submitters, churners, threads, &first);
    for (size_t i = first; i < count; i++)
        pthread_join(threads[i], NULL);
    uint64_t end = now_ns() + sides_patience_ns();
    bool quiet = all_quiet();
    while (!quiet && now_ns() < end) {
        for (int i = 0; i < engines(); i++)
            weir_engine_wait(sides[i].engine, 20 * 1000);
        quiet = all_quiet();
    }
    atomic_store(&stop, true);
    for (size_t i = 0; i < first; i++)
        pthread_join(threads[i], NULL);
    report_lost();
    check_all(submitters, churners);
    assert_true(quiet);
    for (int i = 0; i < engines(); i++)
        side_close(&sides[i]);
    pthread_barrier_destroy(&begin);
}

static void test_S16_eight_threads_two_engines(void **state) {
    (void)state;
    run((struct shape){.links = 1, .submitters = 8, .qps = 1, .turns = TURNS});
}

static void test_S16_several_qps(void **state) {
    (void)state;
    run((struct shape){.links = 1, .submitters = 8, .qps = 3, .turns = TURNS});
}

static void test_S16_engines_with_threads_of_their_own(void **state) {
    (void)state;
    run((struct shape){
        .links = 1, .submitters = 8, .qps = 2, .flags = WEIR_ENGINE_THREAD, .turns = TURNS});
}

static void test_S16_sixteen_threads_four_endpoints(void **state) {
    (void)state;
    run((struct shape){.links = 4, .submitters = 16, .qps = 1, .turns = TURNS_MAX});
}

static void test_S16_sixteen_threads_four_endpoints_with_threads(void **state) {
    (void)state;
    run((struct shape){
        .links = 4, .submitters = 16, .qps = 2, .flags = WEIR_ENGINE_THREAD, .turns = TURNS_MAX});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_S16_eight_threads_two_engines),
        cmocka_unit_test(test_S16_several_qps),
        cmocka_unit_test(test_S16_engines_with_threads_of_their_own),
        cmocka_unit_test(test_S16_sixteen_threads_four_endpoints),
        cmocka_unit_test(test_S16_sixteen_threads_four_endpoints_with_threads),
    };
    int missing = sides_missing();

    setvbuf(stdout, NULL, _IOLBF, 0);
    return missing != 0 ? missing : cmocka_run_group_tests(tests, NULL, NULL);
}
