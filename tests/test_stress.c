/* test_stress.c: many threads on two engines (S16).
 *
 * Eight threads submit writes, reads and notifications through send queues of 8 slots
 * and small pools, others take, cancel, release early, and register and release memory
 * meanwhile. Every transfer is accounted for, the bytes are those of the last write,
 * and no notification is lost or comes twice. Made for ThreadSanitizer. */
#include "engine_side.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { ENGINES = 2, SUBMITTERS = 8, CHURNERS = 2, STRIPE = 4096, TURNS = 400 };
enum { NOTES_MAX = SUBMITTERS * TURNS };

/* A stripe of both memories belongs to one submitter: nobody else touches it. */
struct submitter {
    struct side *side;
    int number;
    uint32_t random;
    uint64_t ok, canceled, timed_out, again, unobserved;
    uint64_t notes;
    const char *wrong;
};

static struct side sides[ENGINES];
static atomic_bool stop;
static atomic_uint taken[ENGINES][NOTES_MAX]; /* how often each tag came, at engine i */
static atomic_ullong queue_taken[ENGINES];
static atomic_ullong queue_failed[ENGINES];
static atomic_ullong queue_sent[ENGINES];

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
    int rc = weir_transfer_wait(me->side->engine, transfer, PATIENCE_NS);

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
    options.notify_tag = (uint64_t)me->number * TURNS + turn;
    bool plain = draw(&me->random, 3) == 0;
    int rc = submit(me, false, there, PIECES, plain ? NULL : &options, &transfer);
    CHECK(me, rc == WEIR_OK);
    CHECK(me, wait_for(me, transfer) == WEIR_OK);
    me->ok++;
    if (!plain && (options.flags & WEIR_TRANSFER_NOTIFY) != 0) {
        me->notes++;
        atomic_fetch_add(&taken[me->side == &sides[0]][options.notify_tag], 1000);
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
    uint64_t base = SUBMITTERS * STRIPE + 1024;
    weir_segment one = segment_of(me->side, base, base + 1024 + 64 * (uint64_t)me->number, 64);
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;

    options.flags = WEIR_TRANSFER_QUEUE;
    options.user_data = (uint64_t)me->number;
    CHECK(me, submit(me, false, &one, 1, &options, NULL) == WEIR_OK);
    atomic_fetch_add(&queue_sent[me->side - sides], 1);
}

static void *submitter_main(void *argument) {
    struct submitter *me = argument;
    bool unobserved = false;

    for (uint32_t turn = 0; turn < TURNS && me->wrong == NULL; turn++) {
        uint32_t what = draw(&me->random, 8);
        if (what == 0)
            queued(me);
        else if (what == 1 && turn > TURNS / 2) { /* may be written behind our back after it */
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
    uint64_t rounds;
    const char *wrong;
};

static void *churner_main(void *argument) {
    struct churner *me = argument;
    static uint8_t bytes[CHURNERS][512];
    uint8_t *mine = bytes[me->side - sides];

    while (!atomic_load(&stop) && me->wrong == NULL) {
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
        weir_segment one = {me->other->memory, remote, SUBMITTERS * STRIPE, 0, 512};
        rc = weir_write(me->other->engine, me->other->peer, &one, 1, NULL, &transfer);
        CHECK(me, rc == WEIR_OK || rc == WEIR_EAGAIN);
        if (rc == WEIR_OK) {
            rc = weir_transfer_wait(me->other->engine, transfer, PATIENCE_NS);
            CHECK(me, rc == WEIR_OK);
            weir_transfer_release(me->other->engine, transfer);
            CHECK(me, memcmp(base, me->other->bytes + SUBMITTERS * STRIPE, 512) == 0);
        }
        CHECK(me, weir_remote_release(me->other->engine, remote) == WEIR_OK);
        CHECK(me, weir_memory_release(me->side->engine, memory) == WEIR_OK);
        CHECK(me, weir_memory_info(me->side->engine, memory, NULL, NULL) == WEIR_ESTALE);
        me->rounds++;
        weir_peer_info info = WEIR_PEER_INFO_INIT;
        weir_stats stats = WEIR_STATS_INIT;
        CHECK(me, weir_peer_query(me->side->engine, me->side->peer, &info) == WEIR_OK);
        CHECK(me, weir_engine_stats(me->side->engine, &stats) == WEIR_OK);
    }
    return NULL;
}

static void open_both(uint32_t qp_count, uint32_t flags) {
    weir_engine_options limits = side_options();

    limits.sq_depth = 8;
    limits.qp_count = qp_count;
    limits.transfers_max = 12;
    limits.segments_max = 128;
    limits.recv_credits = 4;
    limits.notifications_max = 8;
    limits.flags = flags;
    for (int i = 0; i < ENGINES; i++) {
        side_open_bytes(&sides[i], &limits, (SUBMITTERS + 1) * STRIPE);
        fill_pattern(sides[i].bytes + SUBMITTERS * STRIPE, STRIPE, 99 + (uint64_t)i);
    }
    side_join(&sides[0], &sides[1]);
    side_join(&sides[1], &sides[0]);
}

/* What everybody did adds up. */
static void account(const struct submitter *submitters) {
    for (int i = 0; i < ENGINES; i++) {
        uint64_t ok = 0;
        uint64_t unobserved = 0;
        uint64_t failed = 0;
        for (int s = 0; s < SUBMITTERS; s++) {
            if (submitters[s].side != &sides[i])
                continue;
            ok += submitters[s].ok;
            unobserved += submitters[s].unobserved;
            failed += submitters[s].canceled + submitters[s].timed_out;
        }
        weir_stats stats = stats_of(&sides[i]);
        assert_int_equal(atomic_load(&queue_failed[i]), 0);
        assert_int_equal(atomic_load(&queue_taken[i]), atomic_load(&queue_sent[i]));
        assert_true(stats.transfers_ok >= ok + unobserved + queue_taken[i]); /* and churners' */
        assert_int_equal(stats.transfers_failed, failed);
        assert_int_equal(stats.sessions_failed, 0);
        assert_int_equal(stats.completions_stale, 0);
        assert_int_equal(info_of(&sides[i]).sessions, 1);
        assert_int_equal(info_of(&sides[i]).sq_used, 0);
        assert_int_equal(info_of(&sides[i]).pending, 0);
    }
}

static bool all_quiet(void) {
    for (int i = 0; i < ENGINES; i++) {
        weir_peer_info info = info_of(&sides[i]);
        if (info.pending > 0 || info.sq_used > 0 || queue_taken[i] != queue_sent[i])
            return false;
        for (size_t tag = 0; tag < NOTES_MAX; tag++) {
            if (taken[i][tag] == 1000)
                return false;
        }
    }
    return true;
}

static void report_lost(void) {
    for (int i = 0; i < ENGINES; i++) {
        for (size_t tag = 0; tag < NOTES_MAX; tag++) {
            if (taken[i][tag] != 0 && taken[i][tag] != 1001)
                print_error("engine %d: notification %zu came %u times\n", i, tag,
                            taken[i][tag] % 1000);
        }
    }
}

static void check_all(const struct submitter *submitters, const struct churner *churners) {
    for (int i = 0; i < SUBMITTERS; i++) {
        if (submitters[i].wrong != NULL)
            fail_msg("submitter %d: %s", i, submitters[i].wrong);
    }
    for (int i = 0; i < CHURNERS; i++) {
        if (churners[i].wrong != NULL)
            fail_msg("churner %d: %s", i, churners[i].wrong);
        assert_true(churners[i].rounds > 0);
    }
    for (int i = 0; i < ENGINES; i++) {
        for (size_t tag = 0; tag < NOTES_MAX; tag++)
            assert_true(taken[i][tag] == 0 || taken[i][tag] == 1001); /* sent once, came once */
    }
    account(submitters);
}

static void run(uint32_t qp_count, uint32_t flags) {
    struct submitter submitters[SUBMITTERS];
    struct churner churners[CHURNERS];
    pthread_t threads[SUBMITTERS + CHURNERS + ENGINES];
    size_t count = 0;

    memset(taken, 0, sizeof(taken));
    memset(queue_taken, 0, sizeof(queue_taken));
    memset(queue_failed, 0, sizeof(queue_failed));
    memset(queue_sent, 0, sizeof(queue_sent));
    atomic_store(&stop, false);
    open_both(qp_count, flags);
    for (int i = 0; i < ENGINES; i++)
        assert_int_equal(pthread_create(&threads[count++], NULL, taker_main, &sides[i]), 0);
    for (int i = 0; i < CHURNERS; i++) {
        churners[i] = (struct churner){.side = &sides[i], .other = &sides[1 - i]};
        assert_int_equal(pthread_create(&threads[count++], NULL, churner_main, &churners[i]), 0);
    }
    for (int i = 0; i < SUBMITTERS; i++) {
        submitters[i] = (struct submitter){
            .side = &sides[i % ENGINES], .number = i, .random = (uint32_t)i * 7919 + qp_count};
        assert_int_equal(pthread_create(&threads[count++], NULL, submitter_main, &submitters[i]),
                         0);
    }
    for (size_t i = ENGINES + CHURNERS; i < count; i++)
        pthread_join(threads[i], NULL);
    uint64_t end = now_ns() + PATIENCE_NS;
    bool quiet = all_quiet();
    while (!quiet && now_ns() < end) {
        step(&sides[0], &sides[1]);
        quiet = all_quiet();
    }
    atomic_store(&stop, true);
    for (size_t i = 0; i < ENGINES + CHURNERS; i++)
        pthread_join(threads[i], NULL);
    report_lost();
    assert_true(quiet);
    check_all(submitters, churners);
    pair_close(&sides[0], &sides[1]);
}

static void test_S16_eight_threads_two_engines(void **state) {
    (void)state;
    run(1, 0);
}

static void test_S16_several_qps(void **state) {
    (void)state;
    run(3, 0);
}

static void test_S16_engines_with_threads_of_their_own(void **state) {
    (void)state;
    run(2, WEIR_ENGINE_THREAD);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_S16_eight_threads_two_engines),
        cmocka_unit_test(test_S16_several_qps),
        cmocka_unit_test(test_S16_engines_with_threads_of_their_own),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
