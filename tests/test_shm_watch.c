/* SPDX-License-Identifier: Apache-2.0 */
/* test_shm_watch.c: the rings that a shm device looks at itself (poll.c, "watching"):
 * more QPs than places, QPs that lose theirs, and messages that come while the device
 * falls asleep. And when rings take memory. */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "os.h"
#include "shm.h"

#define QPS          7u /* more than SHM_WATCHED_MAX */
#define REGION_BYTES 65536u
#define RECV_BYTES   64u
#define RECV_DEPTH   8u
#define ROUNDS       500u
#define PINGS        20000u

_Static_assert(QPS > SHM_WATCHED_MAX, "somebody has no place");

static struct weir_env env;

struct end {
    struct weir_device *device;
    struct weir_mr mr;
    struct weir_qp *qps[QPS];
    struct weir_qp_granted granted[QPS];
    uint64_t sent[QPS];
    uint64_t taken[QPS];
};

/* ---- making ---- */

static void end_qp(struct end *end, uint32_t i) {
    struct weir_qp_options options = {
        .tag = i, .sq_depth = 16, .rq_depth = RECV_DEPTH, .recv_bytes_max = RECV_BYTES};
    assert_int_equal(
        shm_device_ops.qp_create(end->device, &options, &end->granted[i], &end->qps[i]), 0);
}

static void end_open(struct end *end) {
    memset(end, 0, sizeof *end);
    assert_int_equal(shm_device_ops.open(&env, &end->device), 0);
    assert_int_equal(
        shm_device_ops.mr_allocate(end->device, REGION_BYTES, WEIR_ACCESS_ALL, &end->mr), 0);
    for (uint32_t i = 0; i < QPS; i++)
        end_qp(end, i);
}

static void end_recv(struct end *end, uint32_t i, uint64_t slot) {
    uint64_t wr_id = i * RECV_DEPTH + slot % RECV_DEPTH;
    assert_int_equal(shm_device_ops.post_recv(end->device, end->qps[i], wr_id,
                                              (uint8_t *)end->mr.base + wr_id * RECV_BYTES,
                                              RECV_BYTES, end->mr.lkey),
                     0);
}

static void end_connect(struct end *end, uint32_t i, const struct end *other) {
    struct weir_qp_path path = {.blob_length = other->granted[i].blob_length,
                                .blob = other->granted[i].blob};
    assert_int_equal(shm_device_ops.qp_connect(end->qps[i], &path), 0);
    for (uint64_t slot = 0; slot < RECV_DEPTH; slot++)
        end_recv(end, i, slot);
}

static void ends_open(struct end *a, struct end *b) {
    end_open(a);
    end_open(b);
    for (uint32_t i = 0; i < QPS; i++) {
        end_connect(a, i, b);
        end_connect(b, i, a);
    }
}

static void end_close(struct end *end) {
    for (uint32_t i = 0; i < QPS; i++)
        assert_int_equal(shm_device_ops.qp_destroy(end->qps[i]), 0);
    assert_int_equal(shm_device_ops.mr_release(end->device, &end->mr), 0);
    shm_device_ops.close(end->device);
}

static void ends_close(struct end *a, struct end *b) {
    end_close(a);
    end_close(b);
}

/* ---- messages ---- */

/* Each says which one of its QP it is. False: not done. */
static bool send_one(struct end *end, uint32_t i) {
    uint64_t number = end->sent[i]++;
    struct weir_wr wr = {.laddr = (uint64_t)(uintptr_t)&number,
                         .length = sizeof number,
                         .opcode = WEIR_OP_SEND,
                         .flags = WEIR_WR_INLINE};
    struct weir_post post;
    return shm_device_ops.post_send(end->qps[i], &wr, 1, &post) == 0 && post.done == 1;
}

/* One poll; checks that the messages of each QP come once and in order. How many. */
static int take(struct end *end) {
    struct weir_cqe cqes[QPS];
    int count = shm_device_ops.poll(end->device, cqes, QPS);
    for (int k = 0; k < count; k++) {
        uint64_t number;
        assert_true(cqes[k].recv && cqes[k].status == WEIR_CQE_OK);
        uint32_t i = (uint32_t)(cqes[k].wr_id / RECV_DEPTH);
        memcpy(&number, (uint8_t *)end->mr.base + cqes[k].wr_id * RECV_BYTES, sizeof number);
        assert_int_equal(number, end->taken[i]);
        end->taken[i]++;
        end_recv(end, i, cqes[k].wr_id);
    }
    return count;
}

/* The message is on its way on QP i, and comes within some polls. */
static void assert_heard(struct end *a, struct end *b, uint32_t i) {
    assert_true(send_one(a, i));
    for (int polls = 0; polls < 4 && b->taken[i] < a->sent[i]; polls++)
        take(b);
    assert_int_equal(b->taken[i], a->sent[i]);
}

static void idle_polls(struct end *end, uint32_t polls) {
    while (polls-- > 0)
        assert_int_equal(take(end), 0);
}

/* The device's belief and its senders' view agree. */
static bool is_watched(const struct end *end, uint32_t i) {
    const struct weir_qp *qp = end->qps[i];
    uint32_t listed = 0;
    for (uint32_t k = 0; k < end->device->watched_count; k++)
        listed += end->device->watched[k] == qp;
    assert_int_equal(listed, qp->is_watched);
    assert_int_equal(atomic_load(&qp->shared->watched), qp->is_watched);
    return qp->is_watched;
}

static uint32_t count_watched(const struct end *end) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < QPS; i++)
        count += is_watched(end, i);
    assert_int_equal(count, end->device->watched_count);
    return count;
}

/* QPs 0 to SHM_WATCHED_MAX - 1 of b are watched. */
static void watch_first(struct end *a, struct end *b) {
    for (uint32_t i = 0; i < SHM_WATCHED_MAX; i++)
        assert_heard(a, b, i);
    for (uint32_t i = 0; i < QPS; i++)
        assert_int_equal(is_watched(b, i), i < SHM_WATCHED_MAX);
}

/* ---- the tests ---- */

/* S18: with more busy rings than places all are heard, and the places are bounded. */
static void test_S18_every_ring_is_heard(void **state) {
    (void)state;
    struct end a, b;
    ends_open(&a, &b);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t total = 0;
        for (uint32_t i = 0; i < QPS; i++) {
            /* Now and then some are quiet for long enough to lose their place. */
            if (round % 50 == 49 && (round / 50 + i) % 2 == 0)
                continue;
            assert_true(send_one(&a, i));
            total++;
        }
        for (int polls = 0; polls < 4 && total > 0; polls++)
            total -= (uint32_t)take(&b);
        assert_int_equal(total, 0);
        assert_in_range(count_watched(&b), 1, SHM_WATCHED_MAX);
        if (round % 50 == 48)
            idle_polls(&b, SHM_WATCH_IDLE_POLLS + 2);
    }
    assert_memory_equal(a.sent, b.taken, sizeof a.sent);
    ends_close(&a, &b);
}

/* A ring that got nothing for long makes room for one that gets messages, and no other
 * does; it is heard afterwards all the same. */
static void test_S18_idle_ring_loses_its_place(void **state) {
    (void)state;
    const uint32_t late = SHM_WATCHED_MAX;
    struct end a, b;
    ends_open(&a, &b);
    watch_first(&a, &b);
    assert_heard(&a, &b, late);
    assert_false(is_watched(&b, late)); /* nobody was idle */
    idle_polls(&b, SHM_WATCH_IDLE_POLLS / 2);
    for (uint32_t i = 0; i < SHM_WATCHED_MAX; i++)
        if (i != 2)
            assert_heard(&a, &b, i);
    idle_polls(&b, SHM_WATCH_IDLE_POLLS / 2 + 1);
    assert_heard(&a, &b, late);
    assert_true(is_watched(&b, late));
    for (uint32_t i = 0; i < SHM_WATCHED_MAX; i++)
        assert_int_equal(is_watched(&b, i), i != 2);
    for (uint32_t i = 0; i < QPS; i++)
        assert_heard(&a, &b, i);
    ends_close(&a, &b);
}

/* The sender saw the ring watched, and marked nothing, just before it is not any more. */
static void test_unwatched_ring_keeps_its_message(void **state) {
    (void)state;
    struct end a, b;
    ends_open(&a, &b);
    watch_first(&a, &b);
    assert_true(send_one(&a, 1));
    qp_unwatch(b.qps[1]);
    assert_int_equal(take(&b), 1);
    assert_heard(&a, &b, 1);
    ends_close(&a, &b);
}

static int readable(const struct end *end, int timeout_ms) {
    struct pollfd poll_fd = {.fd = shm_device_ops.fd(end->device), .events = POLLIN};
    return poll(&poll_fd, 1, timeout_ms);
}

/* A message that comes at any point of falling asleep is either seen by arm or rings. */
static void test_arm_and_watched_rings(void **state) {
    (void)state;
    struct end a, b;
    ends_open(&a, &b);
    for (uint32_t i = 0; i < QPS; i++) {
        /* Before arm: in a watched ring, or marked. */
        watch_first(&a, &b);
        assert_true(send_one(&a, i));
        assert_int_equal(shm_device_ops.arm(b.device), WEIR_EAGAIN);
        assert_int_equal(take(&b), 1);
        /* After arm has given the rings up, before it says that it sleeps. */
        for (uint32_t k = 0; k < QPS; k++)
            qp_unwatch(b.qps[k]);
        assert_true(send_one(&a, i));
        assert_int_equal(readable(&b, 0), 0);
        assert_int_equal(shm_device_ops.arm(b.device), WEIR_EAGAIN);
        assert_int_equal(take(&b), 1);
        /* Asleep: it watches nothing, and the message rings. */
        assert_int_equal(shm_device_ops.arm(b.device), 0);
        assert_int_equal(count_watched(&b), 0);
        assert_int_equal(readable(&b, 0), 0);
        assert_true(send_one(&a, i));
        assert_int_equal(readable(&b, 10000), 1);
        shm_device_ops.disarm(b.device);
        assert_int_equal(readable(&b, 0), 0);
        assert_int_equal(take(&b), 1);
        idle_polls(&b, SHM_WATCH_IDLE_POLLS + 1);
        /* Nothing of this marks or rings again. */
        assert_int_equal(shm_device_ops.arm(b.device), 0);
        shm_device_ops.disarm(b.device);
    }
    ends_close(&a, &b);
}

/* A watched QP that is destroyed leaves its place; the next one at its number is heard. */
static void test_T6_destroyed_ring_is_not_watched(void **state) {
    (void)state;
    struct end a, b;
    ends_open(&a, &b);
    for (int life = 0; life < 10; life++) {
        watch_first(&a, &b);
        assert_int_equal(shm_device_ops.qp_destroy(b.qps[0]), 0);
        assert_int_equal(shm_device_ops.qp_destroy(a.qps[0]), 0);
        assert_int_equal(b.device->watched_count, SHM_WATCHED_MAX - 1);
        idle_polls(&b, 2);
        for (uint32_t i = 1; i < SHM_WATCHED_MAX; i++)
            assert_heard(&a, &b, i);
        a.sent[0] = b.taken[0] = 0;
        end_qp(&a, 0);
        end_qp(&b, 0);
        end_connect(&a, 0, &b);
        end_connect(&b, 0, &a);
    }
    ends_close(&a, &b);
}

/* ---- the same with a sender of its own time ---- */

struct race {
    struct end *a;
    _Atomic uint64_t taken; /* by b */
    _Atomic bool failed;
};

static uint32_t draw(uint64_t *seed, uint32_t below) {
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*seed >> 33) % below;
}

static void spin(uint32_t turns) {
    for (volatile uint32_t i = 0; i < turns; i++) {
    }
}

static void *race_sender(void *argument) {
    struct race *race = argument;
    uint64_t seed = 1;
    for (uint64_t i = 0; i < PINGS && !atomic_load(&race->failed); i++) {
        spin(draw(&seed, 300));
        if (!send_one(race->a, draw(&seed, QPS)))
            atomic_store(&race->failed, true);
        while (atomic_load(&race->taken) <= i && !atomic_load(&race->failed))
            spin(10);
    }
    return NULL;
}

/* Falls asleep after few polls, so that most messages come somewhere in between. */
static void test_no_wakeup_is_lost_on_any_ring(void **state) {
    (void)state;
    struct end a, b;
    ends_open(&a, &b);
    struct race race = {.a = &a};
    pthread_t thread;
    uint64_t seed = 2;
    uint64_t taken = 0;
    assert_int_equal(pthread_create(&thread, NULL, race_sender, &race), 0);
    while (taken < PINGS && !atomic_load(&race.failed)) {
        for (uint32_t polls = draw(&seed, 6); polls > 0; polls--) {
            int got = take(&b);
            taken += (uint64_t)got;
            atomic_store(&race.taken, taken);
        }
        if (taken == PINGS || shm_device_ops.arm(b.device) != 0)
            continue;
        spin(draw(&seed, 100));
        if (readable(&b, 5000) != 1)
            atomic_store(&race.failed, true); /* a wake-up was lost */
        shm_device_ops.disarm(b.device);
    }
    pthread_join(thread, NULL);
    assert_false(race.failed);
    ends_close(&a, &b);
}

/* Asleep: nothing more is to do. */
static void fall_asleep(struct end *end) {
    for (int polls = 0; polls < 8; polls++)
        take(end);
    assert_int_equal(shm_device_ops.arm(end->device), 0);
}

static void assert_woken(struct end *end) {
    struct pollfd polled = {.fd = shm_device_ops.fd(end->device), .events = POLLIN};
    assert_int_equal(poll(&polled, 1, 0), 1);
    shm_device_ops.disarm(end->device);
}

/* W4: a sender is stopped, or dies, between its look whether the owner sleeps and the bell. Others
 * ring all the same. Once somebody has, nobody else has to; and one that goes on late takes the
 * bell from no later sleep. */
static void test_W4_a_stopped_sender_keeps_nobody_asleep(void **state) {
    (void)state;
    struct end a, b;
    ends_open(&a, &b);
    fall_asleep(&b);
    uint32_t stopped = seg_notify(b.device->map, b.qps[1]->index);
    assert_int_not_equal(stopped, 0);
    assert_true(send_one(&a, 0));
    assert_int_equal(seg_notify(b.device->map, b.qps[1]->index), 0);
    assert_woken(&b);
    fall_asleep(&b);
    seg_rung(b.device->map, stopped);
    assert_true(send_one(&a, 0));
    assert_woken(&b);
    take(&b);
    ends_close(&a, &b);
}

/* ---- memory ---- */

/* The bytes that the segment has. */
static uint64_t segment_bytes(const struct end *end) {
    struct stat st;
    assert_int_equal(fstat(end->device->map_fd, &st), 0);
    return (uint64_t)st.st_blocks * 512;
}

/* As if each of its QPs had something new. */
static void mark_all(const struct end *end) {
    atomic_store(&end->device->map->leaf[0], UINT64_MAX);
    atomic_store(&end->device->map->head.top[0], 1);
}

/* Before Linux 5.14 owners back their rings. */
static bool senders_back(const struct end *end) {
    if (end->device->backs_rings)
        skip();
    return !end->device->backs_rings;
}

/* A connected QP has a ring, which takes memory when the first message is sent, and whoever looks
 * for messages before takes none for it. */
static void test_W8_a_ring_on_which_nothing_is_sent_takes_no_memory(void **state) {
    (void)state;
    struct end a, b;
    ends_open(&a, &b);
    if (senders_back(&b)) {
        uint64_t of_a = segment_bytes(&a), of_b = segment_bytes(&b);
        mark_all(&b);
        idle_polls(&b, 4);
        assert_int_equal(segment_bytes(&b), of_b);
        assert_heard(&a, &b, 3);
        assert_int_equal(segment_bytes(&b), of_b + SHM_CHUNK_BYTES);
        assert_heard(&a, &b, 3);
        assert_int_equal(segment_bytes(&b), of_b + SHM_CHUNK_BYTES);
        assert_int_equal(segment_bytes(&a), of_a + SHM_CHUNK_BYTES); /* ready for the way back */
        for (uint32_t i = 0; i < QPS; i++)
            assert_int_equal(shm_device_ops.qp_error(a.qps[i]), 0);
        struct weir_cqe cqes[QPS];
        for (int left = QPS * RECV_DEPTH; left > 0;) {
            int count = shm_device_ops.poll(a.device, cqes, QPS);
            for (int k = 0; k < count; k++)
                assert_int_equal(cqes[k].status, WEIR_CQE_FLUSHED);
            left -= count;
        }
        assert_int_equal(segment_bytes(&a), of_a + SHM_CHUNK_BYTES);
    }
    ends_close(&a, &b);
}

/* No memory for a ring is an error of the message, and no signal. */
static void test_E5_no_memory_for_a_ring(void **state) {
    (void)state;
    struct end a, b;
    struct weir_cqe cqe;
    ends_open(&a, &b);
    if (senders_back(&b)) {
        assert_int_equal(munmap(a.qps[0]->tx_ring, SHM_CHUNK_BYTES), 0);
        assert_false(send_one(&a, 0));
        assert_int_equal(shm_device_ops.poll(a.device, &cqe, 1), 1);
        assert_int_equal(cqe.status, WEIR_CQE_RNR);
        assert_heard(&a, &b, 1);
    }
    ends_close(&a, &b);
}

int main(void) {
    struct weir_device_caps caps;
    if (shm_device_ops.probe(NULL, &caps) != 0)
        return 77; /* meson: skipped */
    if (os_env_init(&env) != 0)
        return EXIT_FAILURE;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_S18_every_ring_is_heard),
        cmocka_unit_test(test_S18_idle_ring_loses_its_place),
        cmocka_unit_test(test_unwatched_ring_keeps_its_message),
        cmocka_unit_test(test_arm_and_watched_rings),
        cmocka_unit_test(test_T6_destroyed_ring_is_not_watched),
        cmocka_unit_test(test_no_wakeup_is_lost_on_any_ring),
        cmocka_unit_test(test_W4_a_stopped_sender_keeps_nobody_asleep),
        cmocka_unit_test(test_W8_a_ring_on_which_nothing_is_sent_takes_no_memory),
        cmocka_unit_test(test_E5_no_memory_for_a_ring),
    };
    return cmocka_run_group_tests_name("shm watched rings", tests, NULL, NULL);
}
