/* SPDX-License-Identifier: Apache-2.0 */
/* lone_device.c: the device of lone_engine.h, and what arrives there. */
#include <string.h>

#include "lone_engine.h"

#include "lone_parts.h"
#include "wire_data.h"

/* ---- the port ---- */

static void device_query(struct weir_device *device, struct weir_device_caps *caps_out) {
    (void)device;
    *caps_out = (struct weir_device_caps){.name = "lone",
                                          .message_bytes_max = 1 << 20,
                                          .post_bytes_max = UINT64_MAX,
                                          .sq_depth_max = 64,
                                          .rq_depth_max = 1024,
                                          .cq_capacity = 1 << 20,
                                          .pieces_max = 9,
                                          .ordered = true,
                                          .srq = !the->own_queues};
}

static int mr_register(struct weir_device *device, void *base, uint64_t length, uint32_t access,
                       struct weir_mr *mr_out) {
    (void)device;
    (void)access;
    if (the->on_register != NULL)
        the->on_register(the);
    the->memories++;
    *mr_out = (struct weir_mr){.lkey = 1, .base = base, .length = length};
    return WEIR_OK;
}

/* It has none, and counts the questions. */
static int mr_allocate(struct weir_device *device, uint64_t length, uint32_t access,
                       struct weir_mr *mr_out) {
    (void)device, (void)length, (void)access, (void)mr_out;
    the->allocations++;
    return WEIR_EAGAIN;
}

static int mr_release(struct weir_device *device, const struct weir_mr *mr) {
    (void)device;
    (void)mr;
    if (the->on_register != NULL)
        the->on_register(the);
    if (the->release_error == 0)
        the->memories--;
    return the->release_error;
}

static int mr_import(struct weir_device *device, const uint8_t *blob, uint32_t blob_length,
                     uint64_t length, uint32_t access, uint32_t wait_ms, struct weir_rmr *rmr_out) {
    (void)device;
    (void)length;
    (void)access;
    (void)wait_ms;
    the->imports++;
    if (the->import_error != WEIR_OK)
        return the->import_error;
    *rmr_out = (struct weir_rmr){.raddr = 4096};
    assert_int_equal(blob_length, sizeof(rmr_out->rkey));
    memcpy(&rmr_out->rkey, blob, sizeof(rmr_out->rkey));
    return WEIR_OK;
}

static void mr_forget(struct weir_device *device, const struct weir_rmr *rmr) {
    (void)device;
    (void)rmr;
}

/* A QP is its number; NULL is none. */
static uint32_t number_of(const struct weir_qp *qp) {
    return (uint32_t)((uintptr_t)qp - 1);
}

static int qp_create(struct weir_device *device, const struct weir_qp_options *options,
                     struct weir_qp_granted *granted_out, struct weir_qp **qp_out) {
    (void)device;
    if (the->no_qps)
        return the->qps_error != 0 ? the->qps_error : WEIR_EAGAIN;
    assert_true(the->qp_count < LONE_QPS);
    uint32_t number = the->qp_count++;
    the->made[number] = true;
    the->tags[number] = options->tag;
    *granted_out = (struct weir_qp_granted){
        .sq_depth = options->sq_depth, .rq_depth = options->rq_depth, .blob_length = 4};
    *qp_out = (struct weir_qp *)(uintptr_t)(number + 1);
    return WEIR_OK;
}

static int qp_connect(struct weir_qp *qp, const struct weir_qp_path *path) {
    (void)path;
    uint32_t number = number_of(qp);
    assert_true(the->made[number]);
    if (the->connect_ns == 0)
        return the->connect_error;
    the->connecting_until[number] = the->now_ns + the->connect_ns;
    return WEIR_EINPROGRESS;
}

static struct weir_cqe *cqe_new(void) {
    assert_true(the->cqe_last - the->cqe_first < LONE_CQES);
    return &the->cqes[the->cqe_last++ % LONE_CQES];
}

static void complete(uint64_t wr_id, uint32_t status) {
    *cqe_new() = (struct weir_cqe){.wr_id = wr_id, .status = status};
}

/* The WRs posted on this QP end with it. If it failed, the first of them is to blame. */
static void cut_short(uint32_t qp) {
    uint32_t kept = 0;
    uint32_t status = the->news[qp] != NEWS_NONE ? the->bad_status : WEIR_CQE_FLUSHED;
    for (uint32_t i = 0; i < the->posted_count; i++) {
        if (the->posted[i].qp != qp) {
            the->posted[kept++] = the->posted[i];
        } else if (!the->slow_lands || the->news[qp] != NEWS_NONE) {
            complete(the->posted[i].wr_id, status);
            status = WEIR_CQE_FLUSHED;
        } else if (the->posted[i].signaled) {
            complete(the->posted[i].wr_id, WEIR_CQE_OK);
        }
    }
    the->posted_count = kept;
}

/* Each QP executes what is posted on it, until it fails or meets what is slow. */
static void execute(void) {
    bool stops[LONE_QPS] = {false};
    uint32_t kept = 0;
    for (uint32_t i = 0; i < the->posted_count; i++) {
        uint32_t qp = the->posted[i].qp;
        uint32_t length = the->posted[i].length;
        bool bad = length != 0 && length == the->bad_bytes;
        if (the->failed[qp]) {
            complete(the->posted[i].wr_id, WEIR_CQE_FLUSHED);
            continue;
        }
        stops[qp] |= length != 0 && length == the->slow_bytes;
        if (bad && !stops[qp] && the->news_first) {
            stops[qp] = true;
            if (the->news[qp] == NEWS_NONE)
                the->news[qp] = NEWS_DUE;
        }
        if (stops[qp]) {
            the->posted[kept++] = the->posted[i];
        } else if (bad) {
            the->failed[qp] = true;
            complete(the->posted[i].wr_id, the->bad_status);
        } else if (the->posted[i].signaled) {
            complete(the->posted[i].wr_id, WEIR_CQE_OK);
        }
    }
    the->posted_count = kept;
}

/* The receive that the QP takes next, which is its from here on; NONE: no receive is posted. */
static uint32_t recv_take(uint32_t qp) {
    uint32_t at = the->recv_first;
    while (at != the->recv_last && (the->recvs[at % LONE_RECVS].buffer == NULL ||
                                    (the->own_queues && the->recvs[at % LONE_RECVS].qp != qp)))
        at++;
    if (at == the->recv_last)
        return NONE;
    if (at == the->recv_first)
        the->recv_first++;
    return at % LONE_RECVS;
}

static int qp_error(struct weir_qp *qp) {
    uint32_t number = number_of(qp), recv;
    if (the->executes)
        cut_short(number);
    the->failed[number] = true;
    while (the->own_queues && (recv = recv_take(number)) != NONE) {
        the->recvs[recv].buffer = NULL;
        complete(the->recvs[recv].wr_id, WEIR_CQE_FLUSHED);
    }
    return WEIR_OK;
}

static int qp_destroy(struct weir_qp *qp) {
    uint32_t number = number_of(qp);
    if (the->no_destroy || the->connecting_until[number] > the->now_ns)
        return WEIR_EBUSY;
    assert_true(the->made[number]);
    the->made[number] = false;
    the->connecting_until[number] = 0;
    return WEIR_OK;
}

static int post_send(struct weir_qp *qp, const struct weir_wr *wrs, uint32_t count,
                     struct weir_post *post_out) {
    int rc = WEIR_OK;
    if (the->refuse != NULL)
        rc = the->refuse(the, &count);
    *post_out = (struct weir_post){.accepted = count};
    bool failed = the->failed[number_of(qp)];
    for (uint32_t i = 0; i < count; i++) {
        if (the->on_post != NULL)
            the->on_post(the, number_of(qp), &wrs[i]);
        if (failed || the->fail_all != 0) {
            complete(wrs[i].wr_id, failed ? WEIR_CQE_FLUSHED : the->fail_all);
        } else if (the->executes || the->poison != 0) {
            assert_true(the->posted_count < LONE_CQES);
            the->posted[the->posted_count].wr_id = wrs[i].wr_id;
            the->posted[the->posted_count].qp = number_of(qp);
            the->posted[the->posted_count].length = (uint32_t)wrs[i].length;
            the->posted[the->posted_count++].signaled = (wrs[i].flags & WEIR_WR_SIGNALED) != 0;
            the->poisoned |= wrs[i].length == the->poison;
        }
    }
    return rc;
}

static int post_recv(struct weir_device *device, struct weir_qp *qp, uint64_t wr_id, void *buffer,
                     uint32_t length, uint32_t lkey) {
    (void)device;
    (void)length;
    (void)lkey;
    the->recv_asked++;
    if (the->recv_error != 0 &&
        (the->recv_error_of == 0 || the->recv_asked % the->recv_error_of == 0))
        return the->recv_error;
    assert_true(the->recv_last - the->recv_first < LONE_RECVS);
    the->recvs[the->recv_last % LONE_RECVS].wr_id = wr_id;
    the->recvs[the->recv_last % LONE_RECVS].qp = the->own_queues ? number_of(qp) : 0;
    the->recvs[the->recv_last++ % LONE_RECVS].buffer = buffer;
    return WEIR_OK;
}

static int device_poll(struct weir_device *device, struct weir_cqe *cqes_out, int max) {
    (void)device;
    int count = 0;
    the->polls++;
    if (the->poll_error != 0)
        return the->poll_error;
    if (the->executes)
        execute();
    for (uint32_t i = 0; !the->executes && i < the->posted_count; i++) {
        if (the->poisoned || the->posted[i].signaled)
            complete(the->posted[i].wr_id, the->poisoned ? WEIR_CQE_FLUSHED : WEIR_CQE_OK);
    }
    if (!the->executes)
        the->posted_count = 0;
    the->poisoned = false;
    while (count < max && the->cqe_first != the->cqe_last)
        cqes_out[count++] = the->cqes[the->cqe_first++ % LONE_CQES];
    return count;
}

static int device_events(struct weir_device *device, struct weir_async *events_out, int max) {
    (void)device;
    int count = 0;
    if (the->fails)
        events_out[count++] =
            (struct weir_async){.type = WEIR_ASYNC_DEVICE_FATAL, .qp_tag = UINT32_MAX};
    the->fails = false;
    for (uint32_t i = 0; i < the->qp_count && count < max; i++) {
        if (the->news[i] == NEWS_DUE || the->news[i] == NEWS_DEATH) {
            events_out[count++] = (struct weir_async){
                .type = the->news[i] == NEWS_DUE ? WEIR_ASYNC_QP_FATAL : WEIR_ASYNC_PEER_DEAD,
                .qp_tag = the->tags[i]};
            the->news[i] = NEWS_TOLD;
            continue;
        }
        if (the->connecting_until[i] == 0 || the->connecting_until[i] > the->now_ns)
            continue;
        the->connecting_until[i] = 0;
        events_out[count++] = (struct weir_async){
            .type = WEIR_ASYNC_CONNECTED, .qp_tag = the->tags[i], .error = the->connect_error};
    }
    return count;
}

static void device_close(struct weir_device *device) {
    (void)device;
    atomic_store(&the->device_gone, true);
}

static int device_let_go(struct weir_device *device) {
    (void)device;
    for (uint32_t i = 0; i < the->qp_count; i++)
        assert_false(the->made[i]);
    the->let_go++;
    return the->let_go_error;
}

static int device_arm(struct weir_device *device) {
    (void)device;
    the->arms++;
    return WEIR_OK;
}

static void device_disarm(struct weir_device *device) {
    (void)device;
}

static bool device_has_served(struct weir_device *device) {
    (void)device;
    the->asked++;
    if (the->serves == 0)
        return false;
    the->serves--;
    return true;
}

static int64_t device_peer_process(struct weir_qp *qp) {
    assert_true(the->made[number_of(qp)]);
    return 77;
}

static bool device_process_is_stopped(int64_t process) {
    assert_int_equal(process, 77);
    return the->stopped;
}

static bool device_link_is_down(struct weir_device *device) {
    (void)device;
    return the->link_is_down;
}

static bool device_counts(struct weir_device *device, struct weir_device_counts *out) {
    (void)device;
    *out = the->counted;
    return the->counts;
}

static void device_tally(struct weir_device *device, struct weir_device_tally *out) {
    (void)device;
    *out = the->tally;
}

const struct weir_device_ops lone_device_ops = {
    .name = "lone",
    .let_go = device_let_go,
    .query = device_query,
    .close = device_close,
    .mr_register = mr_register,
    .mr_allocate = mr_allocate,
    .mr_release = mr_release,
    .mr_import = mr_import,
    .mr_forget = mr_forget,
    .qp_create = qp_create,
    .qp_connect = qp_connect,
    .qp_error = qp_error,
    .qp_destroy = qp_destroy,
    .post_send = post_send,
    .post_recv = post_recv,
    .poll = device_poll,
    .events = device_events,
    .arm = device_arm,
    .disarm = device_disarm,
    .has_served = device_has_served,
    .peer_process = device_peer_process,
    .process_is_stopped = device_process_is_stopped,
    .link_is_down = device_link_is_down,
    .counts = device_counts,
    .tally = device_tally,
};

/* ---- what arrives ---- */

/* Completes the receive that was posted first, on a QP. */
static bool arrive(struct lone *lone, uint32_t qp, const struct wire_data *data,
                   const void *payload, uint32_t length) {
    uint32_t recv = recv_take(qp);
    if (recv == NONE)
        return false;
    if (data != NULL)
        wire_data_encode(data, lone->recvs[recv].buffer);
    if (length > 0)
        memcpy(lone->recvs[recv].buffer + WIRE_DATA_SIZE, payload, length);
    lone->recvs[recv].buffer = NULL;
    *cqe_new() = (struct weir_cqe){.wr_id = lone->recvs[recv].wr_id,
                                   .recv = true,
                                   .byte_length = WIRE_DATA_SIZE + length,
                                   .has_imm = data == NULL,
                                   .qp_tag = lone->tags[qp]};
    if (!lone->piles_up)
        lone_run(lone);
    return true;
}

bool lone_message(struct lone *lone, uint32_t qp, const struct wire_data *data) {
    return arrive(lone, qp, data, NULL, 0);
}

bool lone_immediate(struct lone *lone, uint32_t qp) {
    return arrive(lone, qp, NULL, NULL, 0);
}

void lone_notify(struct lone *lone, uint64_t number, uint64_t tag) {
    struct wire_data data = {.kind = WIRE_NOTIFY, .parts = 1, .number = number, .tag = tag};
    data.base = number > WINDOW_SIZE ? (number - WINDOW_SIZE + 63) & ~(uint64_t)63 : 0;
    assert_true(lone->qp_count > 0 && lone_message(lone, lone->qp_count - 1, &data));
}

void lone_swallow(struct lone *lone) {
    assert_true(lone->recv_first != lone->recv_last && lone->qp_count > 0);
    lone->recv_first++;
}

bool lone_words(struct lone *lone, uint32_t qp, uint64_t number, const struct word *word) {
    struct wire_data data = {.kind = WIRE_WORDS, .parts = 1, .number = number};
    uint8_t bytes[WEIR_NOTIFY_MAX];
    uint32_t length;
    assert_int_equal(word_encode(word, bytes, sizeof(bytes), &length), WEIR_OK);
    data.payload_length = (uint16_t)length;
    return arrive(lone, qp, &data, bytes, length);
}

bool lone_notes(struct lone *lone, uint32_t qp, uint64_t number, uint64_t base, const void *bytes,
                uint32_t length) {
    struct wire_data data = {.kind = WIRE_NOTES,
                             .parts = 1,
                             .payload_length = (uint16_t)length,
                             .number = number,
                             .base = base};
    return arrive(lone, qp, &data, bytes, length);
}

bool lone_inbox(struct lone *lone, uint32_t qp, uint64_t number, uint32_t n, uint32_t inbox) {
    struct word meet = {.kind = WORD_MEET,
                        .inbox = inbox,
                        .meet = {.chunk_bytes = 4096,
                                 .message_bytes_max = 1024,
                                 .memory = {.memory_id = 1,
                                            .length = room_memory(4096, 1),
                                            .access = WEIR_ACCESS_REMOTE_WRITE,
                                            .device = "lone",
                                            .blob_length = 4}}};
    lone_instance(n, meet.meet.memory.instance);
    return lone_words(lone, qp, number, &meet);
}
