/* SPDX-License-Identifier: Apache-2.0 */
/* recovery_tap.c: see recovery_tap.h. */
#include "recovery_tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device.h"
#include "engine.h"
#include "os.h"
#include "sleep.h"
#include "state.h"
#ifdef WEIR_HAVE_VERBS
#include "verbs.h"
#endif

enum { TAPS = 2, TAP_QPS = 128, POLLED = 64, KEPT = 4096 };

struct tap_wr {
    struct weir_wr wr;
    bool sent; /* the device has it, and completes it later */
};

struct tap_qp {
    struct weir_qp *qp; /* NULL: free */
    bool connected, failed;
    uint32_t round; /* in which it was made */
    uint32_t granted, head, count;
    struct tap_wr *ring;
};

struct tap {
    bool used, queues;
    struct tap_shared *shared;
    weir_engine *engine;
    struct weir_ports ports;
    const struct weir_device_ops *real;
    struct weir_device_ops ops;
    struct weir_control control; /* the real one */
    struct tap_qp qps[TAP_QPS];
    struct weir_cqe kept[KEPT]; /* completions to be told */
    uint32_t kept_head, kept_count;
};

static struct tap taps[TAPS];

uint64_t tap_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

const char *tap_stamp_name(enum tap_stamp stamp) {
    static const char *const names[TAP_STAMPS] = {
        [TAP_BROKE] = "broke",           [TAP_SEEN] = "seen",     [TAP_DRAINED] = "drained",
        [TAP_SETTLED] = "settled heard", [TAP_MADE] = "QPs made", [TAP_CONNECTED] = "connected",
        [TAP_REPLAYED] = "replayed",
    };
    return names[stamp];
}

/* The first time, or the last. */
static void note_first(struct tap *tap, enum tap_stamp stamp) {
    uint64_t none = 0;
    if (atomic_load(&tap->shared->noting))
        atomic_compare_exchange_strong(&tap->shared->stamps[stamp], &none, tap_now());
}

static void note_last(struct tap *tap, enum tap_stamp stamp) {
    if (atomic_load(&tap->shared->noting) && atomic_load(&tap->shared->stamps[TAP_REPLAYED]) == 0)
        atomic_store(&tap->shared->stamps[stamp], tap_now());
}

/* Whether it was made since noting began. */
static bool is_fresh(const struct tap *tap, const struct tap_qp *qp) {
    return qp->round == atomic_load(&tap->shared->round);
}

/* ---- who is meant ------------------------------------------------------- */

static struct tap *tap_of(const struct weir_device *device) {
    for (uint32_t i = 0; i < TAPS; i++) {
        if (taps[i].used && taps[i].ports.device == device)
            return &taps[i];
    }
    abort();
}

/* Two engines have a thread each, and each looks at its own QPs first; a slot of the other's
 * that changes meanwhile is no match before or after. */
static struct tap_qp *qp_of(const struct weir_qp *qp, struct tap **tap_out) {
    for (uint32_t t = 0; t < TAPS; t++) {
        for (uint32_t i = 0; i < TAP_QPS && taps[t].used; i++) {
            if (__atomic_load_n(&taps[t].qps[i].qp, __ATOMIC_RELAXED) == qp) {
                *tap_out = &taps[t];
                return &taps[t].qps[i];
            }
        }
    }
    abort();
}

/* ---- completions of queued WRs ------------------------------------------ */

static void keep(struct tap *tap, struct weir_cqe cqe) {
    if (tap->kept_count == KEPT)
        abort();
    tap->kept[(tap->kept_head + tap->kept_count++) % KEPT] = cqe;
}

static void end_oldest(struct tap *tap, struct tap_qp *qp, uint32_t status) {
    const struct weir_wr *wr = &qp->ring[qp->head % qp->granted].wr;
    if (status != WEIR_CQE_OK || (wr->flags & WEIR_WR_SIGNALED) != 0)
        keep(tap, (struct weir_cqe){.wr_id = wr->wr_id, .status = status});
    qp->head++;
    qp->count--;
    atomic_fetch_sub(&tap->shared->queued, 1);
}

static bool spend(struct tap *tap) {
    uint64_t budget = atomic_load(&tap->shared->budget);
    return budget == UINT64_MAX || (budget > 0 && atomic_compare_exchange_strong(
                                                      &tap->shared->budget, &budget, budget - 1));
}

/* Executes what waits, in order, as far as that is allowed. */
static void run_queue(struct tap *tap, struct tap_qp *qp) {
    while (qp->count > 0) {
        struct tap_wr *oldest = &qp->ring[qp->head % qp->granted];
        struct weir_wr wr = oldest->wr;
        struct weir_post post;
        if (oldest->sent)
            return;
        if (qp->failed) {
            end_oldest(tap, qp, WEIR_CQE_FLUSHED);
            continue;
        }
        if (!spend(tap))
            return;
        wr.flags |= WEIR_WR_SIGNALED;
        int rc = tap->real->post_send(qp->qp, &wr, 1, &post);
        if (rc == WEIR_EAGAIN)
            return;
        if (rc == WEIR_OK && post.done == 0) {
            oldest->sent = true;
            return;
        }
        end_oldest(tap, qp, rc == WEIR_OK ? WEIR_CQE_OK : WEIR_CQE_DEVICE);
        if (rc != WEIR_OK)
            tap->real->qp_error(qp->qp);
        qp->failed |= rc != WEIR_OK;
    }
}

static bool was_queued(struct tap *tap, const struct weir_cqe *cqe) {
    for (uint32_t i = 0; i < TAP_QPS && !cqe->recv; i++) {
        struct tap_qp *qp = &tap->qps[i];
        if (qp->qp == NULL || qp->count == 0)
            continue;
        const struct tap_wr *oldest = &qp->ring[qp->head % qp->granted];
        if (oldest->sent && oldest->wr.wr_id == cqe->wr_id) {
            qp->failed |= cqe->status != WEIR_CQE_OK;
            end_oldest(tap, qp, cqe->status);
            return true;
        }
    }
    return false;
}

/* ---- the break ---------------------------------------------------------- */

/* As if the device had found the QP at fault: what the backend itself remembers of its state
 * stays as it was, where that can be told apart. */
static void break_qp(struct tap *tap, struct tap_qp *qp) {
    note_first(tap, TAP_BROKE);
#ifdef WEIR_HAVE_VERBS
    if (strcmp(tap->real->name, "verbs") == 0) {
        struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
        ibv_modify_qp(qp->qp->ibv, &attr, IBV_QP_STATE);
        return;
    }
#endif
    tap->real->qp_error(qp->qp);
    qp->failed = true;
}

static void break_one(struct tap *tap) {
    for (uint32_t i = 0; i < TAP_QPS; i++) {
        struct tap_qp *qp = &tap->qps[i];
        if (qp->qp != NULL && qp->connected && !is_fresh(tap, qp)) {
            break_qp(tap, qp);
            return;
        }
    }
}

/* ---- the device's operations -------------------------------------------- */

static void tap_query(struct weir_device *device, struct weir_device_caps *caps_out) {
    struct tap *tap = tap_of(device);
    tap->real->query(device, caps_out);
    if (tap->queues) {
        caps_out->completes_inline = false;
        caps_out->inline_bytes_max = 0;
        caps_out->post_bytes_max = UINT64_MAX;
    }
}

static int tap_create(struct weir_device *device, const struct weir_qp_options *options,
                      struct weir_qp_granted *granted_out, struct weir_qp **qp_out) {
    struct tap *tap = tap_of(device);
    int rc = tap->real->qp_create(device, options, granted_out, qp_out);
    if (rc != WEIR_OK)
        return rc;
    struct tap_qp *qp = tap->qps;
    while (qp->qp != NULL) {
        if (++qp == tap->qps + TAP_QPS)
            abort();
    }
    bool noting = atomic_load(&tap->shared->noting);
    struct tap_wr *ring = calloc(granted_out->sq_depth, sizeof(*ring));
    if (ring == NULL)
        abort();
    qp->connected = qp->failed = false;
    qp->round = atomic_load(&tap->shared->round);
    qp->granted = granted_out->sq_depth;
    qp->head = qp->count = 0;
    qp->ring = ring;
    __atomic_store_n(&qp->qp, *qp_out, __ATOMIC_RELAXED);
    atomic_fetch_add(&tap->shared->qps, 1);
    atomic_fetch_add(&tap->shared->made, noting);
    note_last(tap, TAP_MADE);
    return WEIR_OK;
}

static int tap_connect(struct weir_qp *qp, const struct weir_qp_path *path) {
    struct tap *tap;
    struct tap_qp *mine = qp_of(qp, &tap);
    int rc = tap->real->qp_connect(qp, path);
    mine->connected = rc == WEIR_OK || rc == WEIR_EINPROGRESS;
    if (rc == WEIR_OK)
        note_last(tap, TAP_CONNECTED);
    return rc;
}

static int tap_events(struct weir_device *device, struct weir_async *events_out, int max) {
    struct tap *tap = tap_of(device);
    int count = tap->real->events(device, events_out, max);
    for (int i = 0; i < count; i++) {
        if (events_out[i].type == WEIR_ASYNC_CONNECTED)
            note_last(tap, TAP_CONNECTED);
    }
    return count;
}

static int tap_error(struct weir_qp *qp) {
    struct tap *tap;
    struct tap_qp *mine = qp_of(qp, &tap);
    if (mine->connected && !is_fresh(tap, mine))
        note_first(tap, TAP_SEEN);
    mine->failed = true;
    return tap->real->qp_error(qp);
}

static int tap_destroy(struct weir_qp *qp) {
    struct tap *tap;
    struct tap_qp *mine = qp_of(qp, &tap);
    __atomic_store_n(&mine->qp, NULL, __ATOMIC_RELAXED); /* the other engine may get its memory */
    int rc = tap->real->qp_destroy(qp);
    if (rc != WEIR_OK) {
        __atomic_store_n(&mine->qp, qp, __ATOMIC_RELAXED);
        return rc;
    }
    if (!is_fresh(tap, mine))
        note_last(tap, TAP_DRAINED);
    atomic_fetch_sub(&tap->shared->queued, mine->count);
    free(mine->ring);
    atomic_fetch_sub(&tap->shared->qps, 1);
    return WEIR_OK;
}

/* Data is about to be posted: it is a replay, or the one that the break was to come with. */
static void data_posted(struct tap *tap, const struct tap_qp *qp) {
    uint32_t after = atomic_load(&tap->shared->break_after);
    if (is_fresh(tap, qp))
        note_first(tap, TAP_REPLAYED);
    if (after == 0)
        return;
    atomic_store(&tap->shared->break_after, after - 1);
    if (after == 1)
        break_one(tap);
}

static int tap_post(struct weir_qp *qp, const struct weir_wr *wrs, uint32_t count,
                    struct weir_post *post_out) {
    struct tap *tap;
    struct tap_qp *mine = qp_of(qp, &tap);
    if (wrs->length > 0 && wrs->opcode != WEIR_OP_SEND)
        data_posted(tap, mine);
    if (!tap->queues)
        return tap->real->post_send(qp, wrs, count, post_out);
    *post_out = (struct weir_post){.accepted = count};
    if (mine->count + count > mine->granted)
        abort(); /* the slots are the engine's to count */
    for (uint32_t i = 0; i < count; i++)
        mine->ring[(mine->head + mine->count++) % mine->granted] = (struct tap_wr){.wr = wrs[i]};
    atomic_fetch_add(&tap->shared->queued, count);
    return WEIR_OK;
}

static uint32_t tap_pieces(struct weir_qp *qp, const struct weir_span *span,
                           const weir_segment *segments, uint32_t count) {
    struct tap *tap;
    const struct tap_qp *mine = qp_of(qp, &tap);
    if (tap->queues)
        return 0;
    data_posted(tap, mine);
    return tap->real->post_pieces(qp, span, segments, count);
}

static int tap_poll(struct weir_device *device, struct weir_cqe *cqes_out, int max) {
    struct tap *tap = tap_of(device);
    struct weir_cqe some[POLLED];
    int count = 0;
    if (!tap->queues) {
        if (atomic_exchange(&tap->shared->break_wanted, false))
            break_one(tap);
        return tap->real->poll(device, cqes_out, max);
    }
    for (uint32_t i = 0; i < TAP_QPS; i++) {
        if (tap->qps[i].qp != NULL)
            run_queue(tap, &tap->qps[i]);
    }
    if (atomic_exchange(&tap->shared->break_wanted, false)) {
        break_one(tap);
        atomic_store(&tap->shared->budget, UINT64_MAX);
    }
    int got = tap->real->poll(device, some, POLLED);
    for (int i = 0; i < got; i++) {
        if (!was_queued(tap, &some[i]))
            keep(tap, some[i]);
    }
    for (; count < max && tap->kept_count > 0; tap->kept_count--)
        cqes_out[count++] = tap->kept[tap->kept_head++ % KEPT];
    return count;
}

static int tap_arm(struct weir_device *device) {
    struct tap *tap = tap_of(device);
    if (atomic_load(&tap->shared->break_wanted) || tap->kept_count > 0)
        return WEIR_EAGAIN;
    for (uint32_t i = 0; i < TAP_QPS; i++) {
        const struct tap_qp *qp = &tap->qps[i];
        if (qp->qp != NULL && qp->count > 0 && !qp->ring[qp->head % qp->granted].sent &&
            (qp->failed || atomic_load(&tap->shared->budget) > 0))
            return WEIR_EAGAIN;
    }
    return tap->real->arm(device);
}

/* ---- the control channel ------------------------------------------------ */

static const struct weir_control *control_of(void *self) {
    return &((struct tap *)self)->control;
}

static int control_check(void *self, const char *address) {
    return control_of(self)->ops->check(control_of(self)->self, address);
}

static bool control_numeric(void *self, const char *address) {
    return control_of(self)->ops->numeric(control_of(self)->self, address);
}

static int control_listen(void *self, const char *address, char *actual_out, size_t actual_size) {
    return control_of(self)->ops->listen(control_of(self)->self, address, actual_out, actual_size);
}

static int control_dial_(void *self, const char *address, uint64_t *conn_out) {
    return control_of(self)->ops->dial(control_of(self)->self, address, conn_out);
}

static int control_send_(void *self, uint64_t conn, const uint8_t *message, uint32_t length) {
    return control_of(self)->ops->send(control_of(self)->self, conn, message, length);
}

static void control_hangup_(void *self, uint64_t conn) {
    control_of(self)->ops->hangup(control_of(self)->self, conn);
}

static void control_keep(void *self, uint64_t conn) {
    control_of(self)->ops->keep(control_of(self)->self, conn);
}

static void control_from(void *self, uint64_t conn, char *host_out, size_t size) {
    control_of(self)->ops->from(control_of(self)->self, conn, host_out, size);
}

static int control_poll_(void *self, struct weir_control_event *event_out) {
    struct wire_message message;
    int count = control_of(self)->ops->poll(control_of(self)->self, event_out);
    if (count > 0 && event_out->type == WEIR_CONTROL_MESSAGE &&
        wire_decode(event_out->message, event_out->length, &message) == WEIR_OK &&
        message.type == WIRE_SETTLED)
        note_last(self, TAP_SETTLED);
    return count;
}

static int control_fd(void *self) {
    return control_of(self)->ops->fd(control_of(self)->self);
}

static const struct weir_control_ops control_ops = {
    .check = control_check,
    .numeric = control_numeric,
    .listen = control_listen,
    .dial = control_dial_,
    .send = control_send_,
    .hangup = control_hangup_,
    .keep = control_keep,
    .from = control_from,
    .poll = control_poll_,
    .fd = control_fd,
};

/* ---- open, close -------------------------------------------------------- */

static int open_ports(struct tap *tap, const char *device) {
    struct weir_ports *ports = &tap->ports;
    for (size_t i = 0; i < device_table_count; i++) {
        if (strcmp(device_table[i]->name, device) == 0)
            tap->real = device_table[i];
    }
    if (tap->real == NULL)
        return WEIR_ENODEVICE;
    tap->ops = *tap->real;
    tap->ops.query = tap_query;
    tap->ops.qp_create = tap_create;
    tap->ops.qp_connect = tap_connect;
    tap->ops.qp_error = tap_error;
    tap->ops.qp_destroy = tap_destroy;
    tap->ops.post_send = tap_post;
    tap->ops.post_pieces = tap_pieces;
    tap->ops.poll = tap_poll;
    tap->ops.arm = tap_arm;
    tap->ops.events = tap_events;
    ports->device_ops = &tap->ops;
    int rc = os_env_init(&ports->env);
    if (rc == WEIR_OK)
        rc = tap->real->open(&ports->env, &ports->device);
    if (rc == WEIR_OK)
        rc = tcp_open(&ports->env, 0, &tap->control);
    if (rc == WEIR_OK)
        rc = wait_open(&ports->env, &ports->wait);
    if (rc != WEIR_OK)
        return rc;
    ports->control = (struct weir_control){.ops = &control_ops, .self = tap};
    rc = ports->wait.ops->add(ports->wait.self, control_fd(tap));
    return rc == WEIR_OK ? ports->wait.ops->add(ports->wait.self, tap->real->fd(ports->device))
                         : rc;
}

struct tap *tap_open(const weir_engine_options *options, bool queues, struct tap_shared *shared) {
    struct tap *tap = taps;
    while (tap->used)
        tap++;
    memset(tap, 0, sizeof(*tap));
    *tap = (struct tap){.used = true, .queues = queues, .shared = shared};
    atomic_store(&shared->budget, UINT64_MAX);
    int rc = open_ports(tap, options->device);
    if (rc == WEIR_OK)
        rc = engine_create(options, &tap->ports, &tap->engine);
    if (rc == WEIR_OK)
        rc = engine_sleeping_open(tap->engine);
    if (rc == WEIR_OK)
        return tap;
    fprintf(stderr, "recovery: engine on %s: %s\n", options->device, weir_strerror(rc));
    return NULL;
}

void tap_close(struct tap *tap) {
    weir_engine_close(tap->engine);
    wait_close(&tap->ports.wait);
    tcp_close(&tap->control);
    tap->real->close(tap->ports.device);
    tap->used = false;
}

weir_engine *tap_engine(const struct tap *tap) {
    return tap->engine;
}

void tap_wake(struct tap *tap) {
    tap->ports.wait.ops->wake(tap->ports.wait.self);
}
