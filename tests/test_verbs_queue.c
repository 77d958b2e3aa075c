/* test_verbs_queue.c: the queues of the verbs backend over a provider that is played here:
 * it refuses posts anywhere, uses QP numbers again, and leaves completions behind. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "os.h"
#include "verbs.h"

enum { ASKED = 16, GRANTED = 31, CAPACITY = 100, CQES = 256, SRQ_DEPTH = 8 };

/* ---- the provider ---- */

static struct {
    struct ibv_wc cqes[CQES];
    int cqe_count;
    uint64_t posted[CQES]; /* wr_ids, as they came */
    uint32_t posted_count;
    uint32_t accepts; /* WRs of one post before the refusal */
    int refusal;      /* errno; 0: none */
    uint32_t next_number;
    uint32_t qps;
    int destroy_error;
    uint32_t inline_most;
    bool armed;
} fake;

/* Connects that block. */
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool held;
    uint32_t inside; /* threads */
    int error;
} slow = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void slow_hold(bool held) {
    pthread_mutex_lock(&slow.mutex);
    slow.held = held;
    pthread_cond_broadcast(&slow.changed);
    pthread_mutex_unlock(&slow.mutex);
}

static void slow_wait(uint32_t inside) {
    pthread_mutex_lock(&slow.mutex);
    while (slow.inside < inside)
        pthread_cond_wait(&slow.changed, &slow.mutex);
    pthread_mutex_unlock(&slow.mutex);
}

static struct ibv_context fake_context;

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr) {
    (void)pd;
    struct ibv_qp *qp = calloc(1, sizeof *qp);
    assert_non_null(qp);
    assert_int_equal(attr->cap.max_send_wr, ASKED);
    attr->cap.max_send_wr = GRANTED;
    if (attr->cap.max_inline_data > fake.inline_most)
        attr->cap.max_inline_data = fake.inline_most;
    qp->context = &fake_context;
    qp->qp_num = fake.next_number;
    fake.qps++;
    return qp;
}

int ibv_destroy_qp(struct ibv_qp *qp) {
    if (fake.destroy_error != 0)
        return fake.destroy_error;
    fake.qps--;
    free(qp);
    return 0;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask) {
    (void)qp;
    (void)mask;
    if (attr->qp_state == IBV_QPS_RTR) { /* on a thread of the connector's */
        pthread_mutex_lock(&slow.mutex);
        slow.inside++;
        pthread_cond_broadcast(&slow.changed);
        while (slow.held)
            pthread_cond_wait(&slow.changed, &slow.mutex);
        slow.inside--;
        pthread_mutex_unlock(&slow.mutex);
    }
    return attr->qp_state == IBV_QPS_RTR ? slow.error : 0;
}

static int fake_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
    (void)qp;
    for (uint32_t i = 0; wr != NULL; wr = wr->next, i++) {
        if (fake.refusal != 0 && i == fake.accepts) {
            *bad = wr;
            return fake.refusal;
        }
        fake.posted[fake.posted_count++ % CQES] = wr->wr_id;
    }
    return 0;
}

static int fake_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr,
                              struct ibv_recv_wr **bad) {
    (void)srq;
    (void)wr;
    (void)bad;
    return 0;
}

static int fake_poll(struct ibv_cq *cq, int max, struct ibv_wc *wcs) {
    (void)cq;
    int count = max < fake.cqe_count ? max : fake.cqe_count;
    memcpy(wcs, fake.cqes, (size_t)count * sizeof *wcs);
    fake.cqe_count -= count;
    memmove(fake.cqes, fake.cqes + count, (size_t)fake.cqe_count * sizeof *wcs);
    return count;
}

static int fake_notify(struct ibv_cq *cq, int solicited) {
    (void)cq;
    (void)solicited;
    fake.armed = true;
    return 0;
}

static void complete(uint64_t wr_id, uint32_t number, enum ibv_wc_status status) {
    struct ibv_wc *wc = &fake.cqes[fake.cqe_count++];
    memset(wc, 0xee, sizeof *wc); /* what is not valid is noise */
    wc->wr_id = wr_id;
    wc->qp_num = number;
    wc->status = status;
    if (status == IBV_WC_SUCCESS) {
        wc->wc_flags = 0;
        wc->byte_len = 100;
    }
}

/* ---- the device ---- */

static struct ibv_cq fake_cq;
static struct ibv_srq fake_srq;

static struct weir_device *device_make(bool shared) {
    struct weir_env env;
    assert_int_equal(os_env_init(&env), 0);
    memset(&fake, 0, sizeof fake);
    fake.next_number = 7;
    fake_context.ops.post_send = fake_post_send;
    fake_context.ops.post_srq_recv = fake_post_srq_recv;
    fake_context.ops.poll_cq = fake_poll;
    fake_context.ops.req_notify_cq = fake_notify;
    fake_cq.context = fake_srq.context = &fake_context;
    struct weir_device *device = env.ops->alloc(env.self, sizeof *device);
    assert_non_null(device);
    device->env = env;
    device->cq = &fake_cq;
    device->cq_capacity = CAPACITY;
    device->stash = env.ops->alloc(env.self, CAPACITY * sizeof *device->stash);
    device->caps = (struct weir_device_caps){.sq_depth_max = 1024,
                                             .rq_depth_max = 1024,
                                             .message_bytes_max = 1 << 20,
                                             .rd_atomic_max = 4};
    device->choice.mtu = 1024;
    device->choice.port_attr.link_layer = IBV_LINK_LAYER_ETHERNET;
    memset(device->choice.gid.raw, 0x20, 16);
    if (shared) {
        device->srq = &fake_srq;
        device->srq_depth = device->cq_used = SRQ_DEPTH;
    }
    post_prepare(device);
    assert_int_equal(connector_open(device), 0);
    return device;
}

static void device_drop(struct weir_device *device) {
    struct weir_env env = device->env;
    connector_close(device);
    assert_int_equal(device->qp_count, 0);
    assert_int_equal(fake.qps, 0);
    assert_int_equal(device->cq_used, device->srq != NULL ? SRQ_DEPTH : 0);
    env.ops->free(env.self, device->stash, CAPACITY * sizeof *device->stash);
    env.ops->free(env.self, device, sizeof *device);
}

/* How the connect ended that is under way. */
static int connected(struct weir_device *device, uint32_t tag) {
    struct pollfd done = {.fd = device->connector.event_fd, .events = POLLIN};
    struct weir_async event;
    assert_int_equal(poll(&done, 1, 10000), 1);
    assert_int_equal(connector_events(device, &event, 1), 1);
    assert_int_equal(event.type, WEIR_ASYNC_CONNECTED);
    assert_int_equal(event.qp_tag, tag);
    assert_int_equal(poll(&done, 1, 0), 0);
    return event.error;
}

/* Connecting. */
static struct weir_qp *qp_begin(struct weir_device *device, uint32_t tag) {
    struct weir_qp_options options = {.tag = tag, .sq_depth = ASKED};
    struct weir_qp_granted granted;
    struct weir_qp *qp;
    assert_int_equal(verbs_qp_create(device, &options, &granted, &qp), 0);
    assert_int_equal(granted.sq_depth, GRANTED);
    struct weir_qp_path path = {
        .mtu = 1024, .rd_atomic = 1, .blob_length = granted.blob_length, .blob = granted.blob};
    assert_int_equal(verbs_qp_connect(qp, &path), WEIR_EINPROGRESS);
    assert_int_equal(verbs_qp_connect(qp, &path), WEIR_EINVAL); /* twice */
    return qp;
}

static struct weir_qp *qp_make(struct weir_device *device, uint32_t tag) {
    struct weir_qp *qp = qp_begin(device, tag);
    assert_int_equal(connected(device, tag), 0);
    assert_int_equal(qp->state, QP_READY);
    return qp;
}

/* Posts count writes with wr_ids from first on, the last one signalled. */
static int post(struct weir_qp *qp, uint64_t first, uint32_t count, struct weir_post *result) {
    struct weir_wr wrs[2 * GRANTED];
    memset(wrs, 0, sizeof wrs);
    for (uint32_t i = 0; i < count; i++)
        wrs[i].wr_id = first + i;
    wrs[count - 1].flags = WEIR_WR_SIGNALED;
    fake.posted_count = 0;
    return verbs_post_send(qp, wrs, count, result);
}

static void expect_cqe(struct weir_device *device, uint64_t wr_id, uint32_t status) {
    struct weir_cqe cqe;
    assert_int_equal(verbs_poll(device, &cqe, 1), 1);
    assert_int_equal(cqe.wr_id, wr_id);
    assert_int_equal(cqe.status, status);
}

static void expect_none(struct weir_device *device) {
    struct weir_cqe cqes[4];
    assert_int_equal(verbs_poll(device, cqes, 4), 0);
}

/* ---- tests ---- */

/* The provider would take more than it reported: it is not asked to. */
static void test_S1_granted_depth_is_the_depth(void **state) {
    (void)state;
    struct weir_device *device = device_make(true);
    struct weir_qp *qp = qp_make(device, 1);
    struct weir_post result;
    for (uint32_t count = 1; count <= GRANTED; count++) {
        assert_int_equal(post(qp, 1000, count, &result), 0);
        assert_int_equal(result.accepted, count);
        struct weir_post more;
        uint64_t last = fake.posted[count - 1];
        assert_int_equal(post(qp, 5000, GRANTED - count + 1, &more), WEIR_EAGAIN);
        assert_int_equal(more.accepted, GRANTED - count);
        complete(last, 7, IBV_WC_SUCCESS);
        expect_cqe(device, 1000 + count - 1, WEIR_CQE_OK);
        if (more.accepted > 0) { /* those have no signalled tail: one write closes them */
            assert_int_equal(post(qp, 9000, 1, &result), 0);
            complete(fake.posted[0], 7, IBV_WC_SUCCESS);
            expect_cqe(device, 9000, WEIR_CQE_OK);
        }
        assert_int_equal(qp->head, qp->tail);
    }
    assert_int_equal(verbs_qp_destroy(qp), 0);
    device_drop(device);
}

static void test_S6_partial_post_every_index(void **state) {
    (void)state;
    static const struct {
        int error, expected;
    } refusals[] = {{ENOMEM, WEIR_EAGAIN}, {EINVAL, WEIR_EINVAL},  {EIO, WEIR_EDEVICE},
                    {EAGAIN, WEIR_EAGAIN}, {-ENOMEM, WEIR_EAGAIN}, {-1, WEIR_EDEVICE}};
    struct weir_device *device = device_make(true);
    struct weir_qp *qp = qp_make(device, 1);
    for (size_t r = 0; r < sizeof refusals / sizeof refusals[0]; r++) {
        for (uint32_t k = 0; k < GRANTED; k++) {
            struct weir_post result = {9, 9};
            fake.refusal = refusals[r].error;
            fake.accepts = k;
            assert_int_equal(post(qp, 0, GRANTED, &result), refusals[r].expected);
            assert_int_equal(result.accepted, k);
            assert_int_equal(result.done, 0);
            assert_int_equal(qp->head - qp->tail, k);
            fake.refusal = 0;
            assert_int_equal(post(qp, 77, 1, &result), 0);
            complete(fake.posted[0], 7, IBV_WC_SUCCESS);
            expect_cqe(device, 77, WEIR_CQE_OK);
            assert_int_equal(qp->head, qp->tail);
        }
    }
    assert_int_equal(verbs_qp_destroy(qp), 0);
    device_drop(device);
}

/* The WR at index k fails: it gives the first completion, all behind it flush. */
static void test_S1_error_frees_what_it_covers(void **state) {
    (void)state;
    struct weir_device *device = device_make(true);
    for (uint32_t k = 0; k < GRANTED; k++) {
        struct weir_qp *qp = qp_make(device, 1);
        struct weir_post result;
        assert_int_equal(post(qp, 100, GRANTED, &result), 0);
        for (uint32_t i = k; i < GRANTED; i++)
            complete(fake.posted[i], 7, i == k ? IBV_WC_REM_ACCESS_ERR : IBV_WC_WR_FLUSH_ERR);
        expect_cqe(device, 100 + k, WEIR_CQE_REMOTE_ACCESS);
        assert_int_equal(qp->tail, k + 1);
        for (uint32_t i = k + 1; i < GRANTED; i++)
            expect_cqe(device, 100 + i, WEIR_CQE_FLUSHED);
        assert_int_equal(qp->head, qp->tail);
        complete(fake.posted[GRANTED - 1], 7, IBV_WC_WR_FLUSH_ERR); /* twice */
        expect_none(device);
        assert_int_equal(verbs_qp_destroy(qp), 0);
    }
    device_drop(device);
}

static void test_T8_number_used_again(void **state) {
    (void)state;
    struct weir_device *device = device_make(true);
    struct weir_qp *old = qp_make(device, 1);
    struct weir_post result;
    struct weir_cqe cqe;
    assert_int_equal(post(old, 100, 3, &result), 0);
    assert_int_equal(verbs_post_recv(device, NULL, 55, &cqe, 8, 0), 0);
    assert_int_equal(verbs_post_recv(device, NULL, 56, &cqe, 8, 0), 0);
    uint64_t late = fake.posted[2];
    complete(late, 7, IBV_WC_SUCCESS);
    complete(55, 7, IBV_WC_SUCCESS);
    assert_int_equal(verbs_qp_destroy(old), 0);
    device->qp_hint = 0; /* the same place, too */
    struct weir_qp *qp = qp_make(device, 2);
    complete(late, 7, IBV_WC_WR_FLUSH_ERR);
    complete(56, 7, IBV_WC_SUCCESS);
    assert_int_equal(device->srq_used, 2);
    assert_int_equal(verbs_poll(device, &cqe, 1), 1); /* the buffer comes back, with the old tag */
    assert_int_equal(cqe.wr_id, 55);
    assert_int_equal(cqe.qp_tag, 1);
    assert_true(cqe.recv);
    assert_int_equal(verbs_poll(device, &cqe, 1), 1);
    assert_int_equal(cqe.wr_id, 56);
    assert_int_equal(cqe.qp_tag, 2);
    assert_int_equal(cqe.byte_length, 100);
    assert_int_equal(device->srq_used, 0);
    expect_none(device);
    assert_int_equal(verbs_qp_destroy(qp), 0);
    device_drop(device);
}

/* T6: what is in the CQ of others, when a QP goes, comes in its order. */
static void test_T6_siblings_lose_nothing(void **state) {
    (void)state;
    struct weir_device *device = device_make(true);
    fake.next_number = 8;
    struct weir_qp *other = qp_make(device, 2);
    fake.next_number = 7;
    struct weir_qp *qp = qp_make(device, 1);
    struct weir_post result;
    for (int round = 0; round < 20; round++) { /* round the stash's end */
        uint64_t ids[10];
        for (uint32_t i = 0; i < 10; i++) {
            assert_int_equal(post(other, 200 + i, 1, &result), 0);
            ids[i] = fake.posted[0];
        }
        assert_int_equal(post(qp, 100, 1, &result), 0);
        for (uint32_t i = 0; i < 10; i++) {
            if (i == 5)
                complete(fake.posted[0], 7, IBV_WC_SUCCESS);
            complete(ids[i], 8, IBV_WC_SUCCESS);
        }
        fake.destroy_error = EBUSY;
        assert_int_equal(verbs_qp_destroy(qp), WEIR_EBUSY);
        fake.destroy_error = 0;
        assert_int_equal(verbs_arm(device), WEIR_EAGAIN);
        expect_cqe(device, 200, WEIR_CQE_OK);
        assert_int_equal(verbs_qp_destroy(qp), 0);
        for (uint32_t i = 1; i < 10; i++)
            expect_cqe(device, 200 + i, WEIR_CQE_OK);
        expect_none(device);
        assert_int_equal(verbs_arm(device), 0);
        assert_true(fake.armed);
        qp = qp_make(device, 1);
    }
    assert_int_equal(verbs_qp_destroy(qp), 0);
    assert_int_equal(verbs_qp_destroy(other), 0);
    device_drop(device);
}

/* A QP whose queue the CQ has no room for is not made. */
static void test_cq_never_overflows(void **state) {
    (void)state;
    for (int shared = 0; shared < 2; shared++) {
        struct weir_device *device = device_make(shared);
        struct weir_qp_options options = {
            .tag = 1, .sq_depth = ASKED, .rq_depth = shared ? 0 : 10, .recv_bytes_max = 8};
        struct weir_qp_granted granted;
        struct weir_qp *qps[CAPACITY / GRANTED] = {NULL};
        uint32_t most = shared ? (CAPACITY - SRQ_DEPTH) / GRANTED : CAPACITY / (GRANTED + 10);
        for (int round = 0; round < 3; round++) {
            for (uint32_t i = 0; i < most; i++, fake.next_number++)
                assert_int_equal(verbs_qp_create(device, &options, &granted, &qps[i]), 0);
            struct weir_qp *more;
            assert_int_equal(verbs_qp_create(device, &options, &granted, &more), WEIR_EAGAIN);
            assert_int_equal(fake.qps, most);
            for (uint32_t i = 0; i < most; i++)
                assert_int_equal(verbs_qp_destroy(qps[i]), 0);
        }
        device_drop(device);
    }
}

static void test_M6_shared_receives_are_bounded(void **state) {
    (void)state;
    struct weir_device *device = device_make(true);
    uint8_t buffer[8];
    for (uint32_t i = 0; i < SRQ_DEPTH; i++)
        assert_int_equal(verbs_post_recv(device, NULL, i, buffer, 8, 0), 0);
    assert_int_equal(verbs_post_recv(device, NULL, 99, buffer, 8, 0), WEIR_EAGAIN);
    complete(3, 4711, IBV_WC_LOC_LEN_ERR); /* of nobody that we know */
    expect_cqe(device, 3, WEIR_CQE_LENGTH);
    assert_int_equal(verbs_post_recv(device, NULL, 99, buffer, 8, 0), 0);
    assert_int_equal(verbs_post_recv(device, NULL, WEIR_WR_ID_MAX + 1, buffer, 8, 0), WEIR_EINVAL);
    device_drop(device);
}

/* A provider may grant less inline payload than it was asked for, and say so. */
static void test_S1_granted_inline_counts(void **state) {
    (void)state;
    struct weir_qp_options options = {.tag = 1, .sq_depth = ASKED};
    struct weir_qp_granted granted;
    struct weir_qp *qp;
    struct weir_device *device = device_make(true);
    fake.inline_most = 60;
    assert_int_equal(qp_try_inline(device), 0);
    assert_int_equal(device->inline_bytes, 60);
    assert_int_equal(verbs_qp_create(device, &options, &granted, &qp), 0);
    assert_int_equal(verbs_qp_destroy(qp), 0);
    device_drop(device);
}

/* However many completions of nobody come first, arming sees the one behind them. */
static void test_arm_looks_behind_strangers(void **state) {
    (void)state;
    struct weir_qp_options options = {.tag = 1, .sq_depth = ASKED};
    struct weir_qp_granted granted;
    struct weir_qp *qp;
    struct weir_device *device = device_make(true);
    assert_int_equal(verbs_qp_create(device, &options, &granted, &qp), 0);
    for (uint64_t i = 0; i < 3 * VERBS_POLL_BATCH; i++)
        complete(VERBS_ID_SEND | (qp->index + 1) << VERBS_POSITION_BITS | i, 99, IBV_WC_SUCCESS);
    assert_int_equal(verbs_post_recv(device, NULL, 5, device, 64, 0), 0);
    complete(5, qp->qpn, IBV_WC_SUCCESS);
    assert_int_equal(verbs_arm(device), WEIR_EAGAIN);
    struct weir_cqe cqe;
    assert_int_equal(verbs_poll(device, &cqe, 1), 1);
    assert_int_equal(cqe.wr_id, 5);
    assert_int_equal(verbs_qp_destroy(qp), 0);
    device_drop(device);
}

/* ---- connects that block ---- */

static void test_H10_connects_that_block_hold_up_nobody(void **state) {
    (void)state;
    enum { MORE = CONNECTORS + 4 };
    struct weir_device *device = device_make(true);
    struct weir_qp *qps[MORE];
    struct weir_wr wr = {.wr_id = 1, .flags = WEIR_WR_SIGNALED};
    struct weir_post result;
    device->cq_capacity = MORE * GRANTED + SRQ_DEPTH;
    slow_hold(true);
    for (uint32_t i = 0; i < MORE; i++) {
        fake.next_number = 100 + i;
        qps[i] = qp_begin(device, i);
    }
    slow_wait(CONNECTORS); /* all threads are in the kernel */
    assert_int_equal(verbs_post_send(qps[0], &wr, 1, &result), WEIR_EINVAL);
    assert_int_equal(verbs_qp_destroy(qps[0]), WEIR_EBUSY);
    assert_int_equal(verbs_qp_destroy(qps[MORE - 1]), 0); /* its turn had not come */
    assert_int_equal(verbs_qp_error(qps[1]), 0);
    slow_hold(false);
    bool seen[MORE] = {false};
    for (uint32_t i = 0; i < MORE - 2; i++) {
        struct pollfd done = {.fd = device->connector.event_fd, .events = POLLIN};
        struct weir_async event;
        assert_int_equal(poll(&done, 1, 10000), 1);
        assert_int_equal(connector_events(device, &event, 1), 1);
        assert_true(event.qp_tag < MORE - 1 && !seen[event.qp_tag] && event.error == 0);
        seen[event.qp_tag] = true;
        assert_int_equal(qps[event.qp_tag]->state, event.qp_tag == 1 ? QP_ERROR : QP_READY);
    }
    /* Done, and not yet taken. */
    for (uint32_t i = 0; i < MORE - 1; i++) {
        if (!seen[i]) {
            struct pollfd done = {.fd = device->connector.event_fd, .events = POLLIN};
            assert_int_equal(poll(&done, 1, 10000), 1);
            assert_int_equal(verbs_qp_destroy(qps[i]), 0);
            assert_int_equal(poll(&done, 1, 0), 0);
        } else {
            assert_int_equal(verbs_qp_destroy(qps[i]), 0);
        }
    }
    device->cq_capacity = CAPACITY;
    device_drop(device);
}

static void test_H10_nobody_answers_for_the_address(void **state) {
    (void)state;
    struct weir_device *device = device_make(true);
    slow.error = ETIMEDOUT;
    struct weir_qp *qp = qp_begin(device, 5);
    assert_int_equal(connected(device, 5), WEIR_EPEER);
    assert_int_equal(qp->state, QP_FAILED);
    slow.error = 0;
    assert_int_equal(verbs_qp_destroy(qp), 0);
    device_drop(device);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_S1_granted_depth_is_the_depth),
        cmocka_unit_test(test_S6_partial_post_every_index),
        cmocka_unit_test(test_S1_error_frees_what_it_covers),
        cmocka_unit_test(test_T8_number_used_again),
        cmocka_unit_test(test_T6_siblings_lose_nothing),
        cmocka_unit_test(test_cq_never_overflows),
        cmocka_unit_test(test_M6_shared_receives_are_bounded),
        cmocka_unit_test(test_S1_granted_inline_counts),
        cmocka_unit_test(test_arm_looks_behind_strangers),
        cmocka_unit_test(test_H10_connects_that_block_hold_up_nobody),
        cmocka_unit_test(test_H10_nobody_answers_for_the_address),
    };
    return cmocka_run_group_tests_name("verbs_queue", tests, NULL, NULL);
}
