/* SPDX-License-Identifier: Apache-2.0 */
/* faulty.c: a library for LD_PRELOAD that stands between a program and the provider of its RDMA
 * devices, and does to the program what providers and hardware may do (faults_plan.h says what).
 *
 * ibv_post_send(3), ibv_poll_cq(3) and their kin are inline calls through the operations of the
 * opened context: those are replaced when a device is opened. Everything underneath is the real
 * provider, so that what follows from a fault is what really follows:
 *
 *  - The part of a chain that is said to be taken was posted, the rest never was.
 *  - A chain whose doorbell is lost is copied, and posted with the next post to its QP, or by the
 *    first poll after its time. A QP that does nothing any more (`never`) gets what was posted to
 *    it when it is put into the error state, and then it flushes.
 *  - Completions that are late were taken from the CQ and are given later, those of a QP in
 *    order; other QPs overtake. When a QP is destroyed, what is left of it is there at once.
 *  - Who sleeps is woken: an armed CQ whose late completions (or lost doorbells) come due gives
 *    an event, by way of a timer beside the completion channel's own descriptor. So nobody
 *    notices by polling only, and none of the delays ends because somebody went to sleep.
 *
 * One lock for everything. Completion channels are as if O_NONBLOCK were always set. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "faults_plan.h"

#define EXPORTED __attribute__((visibility("default")))

enum { DEVICES_MAX = 16, CHANNELS_MAX = 16, CQS_MAX = 64, SGES_MAX = 2, INLINE_MAX = 512 };
#define DUE_NEVER UINT64_MAX

struct device {
    struct ibv_context *context; /* NULL: free */
    struct ibv_context_ops real;
};

/* A completion channel; its fd is our epoll descriptor, of its own and the timer. */
struct channel {
    struct ibv_comp_channel *channel; /* NULL: free */
    int real_fd, epoll_fd, timer_fd;
    uint64_t timer_ns; /* set to this; 0: not set */
};

struct cq {
    struct ibv_cq *cq; /* NULL: free */
    bool armed;
    unsigned made_up; /* events of ours that are not acknowledged */
};

/* A work request that the program posted and the provider does not know. */
struct held_post {
    struct held_post *next;
    struct ibv_qp *qp;
    uint64_t due_ns;
    struct ibv_send_wr wr;
    struct ibv_sge sges[SGES_MAX];
    uint8_t payload[INLINE_MAX];
};

struct held_completion {
    struct held_completion *next;
    struct ibv_cq *cq;
    uint64_t due_ns; /* never less than that of one before it of the same QP */
    struct ibv_wc wc;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct device devices[DEVICES_MAX];
static struct channel channels[CHANNELS_MAX];
static struct cq cqs[CQS_MAX];
static struct held_post *posts;             /* oldest first */
static struct held_completion *completions; /* oldest first */

static _Noreturn void give_up(const char *why) {
    fprintf(stderr, "faulty: %s\n", why);
    fflush(stderr);
    abort();
}

/* The provider's library has two versions of nearly everything. */
static void *real(const char *name, const char *version) {
    void *address = dlvsym(RTLD_NEXT, name, version);

    if (address == NULL)
        give_up(name);
    return address;
}
#define REAL(type, name, version) ((type)real(#name, version))

static uint64_t now_ns(void) {
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void *allocate(size_t bytes) {
    void *memory = calloc(1, bytes);

    if (memory == NULL)
        give_up("out of memory");
    return memory;
}

/* ---- what is known of the program's objects ---- */

static struct device *device_of(const struct ibv_context *context) {
    for (size_t i = 0; i < DEVICES_MAX; i++) {
        if (devices[i].context == context)
            return &devices[i];
    }
    give_up("no such device is open, or too many are");
}

static struct cq *cq_of(const struct ibv_cq *cq) {
    for (size_t i = 0; i < CQS_MAX; i++) {
        if (cqs[i].cq == cq)
            return &cqs[i];
    }
    give_up("no such CQ, or too many");
}

static struct channel *channel_of(const struct ibv_comp_channel *channel) {
    for (size_t i = 0; i < CHANNELS_MAX; i++) {
        if (channels[i].channel == channel)
            return &channels[i];
    }
    give_up("no such completion channel, or too many");
}

/* ---- waking who sleeps ---- */

/* When something of this CQ comes due; 0: nothing will. */
static uint64_t next_due(const struct ibv_cq *cq) {
    uint64_t due = DUE_NEVER;

    for (const struct held_completion *held = completions; held != NULL; held = held->next) {
        if (held->cq == cq && held->due_ns < due)
            due = held->due_ns;
    }
    for (const struct held_post *held = posts; held != NULL; held = held->next) {
        if (held->qp->send_cq == cq && held->due_ns < due)
            due = held->due_ns;
    }
    return due == DUE_NEVER ? 0 : due > 0 ? due : 1;
}

/* Sets the timer of an armed CQ to what is held now. */
static void timer_follow(struct cq *cq) {
    uint64_t due = cq->armed && cq->cq->channel != NULL ? next_due(cq->cq) : 0;

    if (due == 0)
        return; /* one that goes off for nothing does no harm */
    struct channel *channel = channel_of(cq->cq->channel);
    if (channel->timer_ns == due)
        return;
    struct itimerspec at = {
        .it_value = {.tv_sec = (time_t)(due / 1000000000u), .tv_nsec = (long)(due % 1000000000u)}};
    if (timerfd_settime(channel->timer_fd, TFD_TIMER_ABSTIME, &at, NULL) != 0)
        give_up("timer");
    channel->timer_ns = due;
}

static int faulty_req_notify_cq(struct ibv_cq *ibv, int solicited_only) {
    pthread_mutex_lock(&lock);
    struct cq *cq = cq_of(ibv);
    int rc = device_of(ibv->context)->real.req_notify_cq(ibv, solicited_only);
    cq->armed = rc == 0;
    timer_follow(cq);
    pthread_mutex_unlock(&lock);
    return rc;
}

/* ---- posts that the provider does not get at once ---- */

static void hold_wr(struct ibv_qp *qp, const struct ibv_send_wr *wr, uint64_t due_ns) {
    struct held_post *held = allocate(sizeof(*held)), **last = &posts;

    if (wr->num_sge > SGES_MAX)
        give_up("a work request with so many pieces cannot be copied");
    held->qp = qp;
    held->due_ns = due_ns;
    held->wr = *wr;
    held->wr.next = NULL;
    for (int i = 0, used = 0; i < wr->num_sge; i++) {
        held->sges[i] = wr->sg_list[i];
        if ((wr->send_flags & IBV_SEND_INLINE) == 0)
            continue;
        /* ibv_post_send(3): the program may overwrite these bytes as soon as it returns. */
        if (wr->sg_list[i].length > (uint32_t)(INLINE_MAX - used))
            give_up("so much inline data cannot be copied");
        memcpy(held->payload + used, (void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
        held->sges[i].addr = (uintptr_t)held->payload + (uintptr_t)used;
        used += (int)wr->sg_list[i].length;
    }
    held->wr.sg_list = held->sges;
    while (*last != NULL)
        last = &(*last)->next;
    *last = held;
}

static void hold_chain(struct ibv_qp *qp, const struct ibv_send_wr *wr, uint64_t due_ns) {
    for (; wr != NULL; wr = wr->next)
        hold_wr(qp, wr, due_ns);
    timer_follow(cq_of(qp->send_cq));
}

static const struct held_post *held_of(const struct ibv_qp *qp) {
    const struct held_post *held = posts;

    while (held != NULL && held->qp != qp)
        held = held->next;
    return held;
}

/* The QP's held posts go to the provider: its doorbell is rung. */
static void give_posts(struct ibv_qp *qp) {
    struct held_post **at = &posts;

    while (*at != NULL) {
        struct held_post *held = *at;
        struct ibv_send_wr *bad;
        if (held->qp != qp) {
            at = &held->next;
            continue;
        }
        /* The program posted no more than the queue takes. */
        if (device_of(qp->context)->real.post_send(qp, &held->wr, &bad) != 0)
            give_up("the provider refuses what was said to be posted");
        *at = held->next;
        free(held);
    }
}

static void give_due_posts(const struct ibv_cq *cq) {
    uint64_t now = posts != NULL ? now_ns() : 0;
    struct held_post *held = posts;

    while (held != NULL) {
        if (held->qp->send_cq == cq && held->due_ns <= now) {
            give_posts(held->qp); /* all of the QP: begin again */
            held = posts;
        } else {
            held = held->next;
        }
    }
}

/* The first `count` of the chain go to the provider; bad_out is then the next one, which was
 * refused with `error`. */
static int post_part(struct ibv_qp *qp, struct ibv_send_wr *wr, uint32_t count, int error,
                     struct ibv_send_wr **bad_out) {
    struct ibv_send_wr *last = NULL, *next = wr;

    for (uint32_t i = 0; i < count; i++) {
        last = next;
        next = next->next;
    }
    if (last != NULL) {
        last->next = NULL;
        int rc = device_of(qp->context)->real.post_send(qp, wr, bad_out);
        last->next = next;
        if (rc != 0)
            return rc;
    }
    *bad_out = next;
    return error;
}

/* One of the work requests that carry bytes, by its place; -1: there is none. The others are
 * how a program finds out what became of its own, and are in order by any provider's rules. */
static int any_with_bytes(const struct ibv_send_wr *wr, uint32_t count) {
    uint32_t from = faults_pick(count);
    int first = -1, at = 0;

    for (; wr != NULL; wr = wr->next, at++) {
        if (wr->num_sge > 0 && (first < 0 || at == (int)from))
            first = at;
    }
    return first;
}

static int post_with_faults(struct ibv_qp *qp, struct ibv_send_wr *wr,
                            struct ibv_send_wr **bad_out) {
    uint32_t count = 0;
    bool flushes = qp->state == IBV_QPS_ERR;

    for (const struct ibv_send_wr *each = wr; each != NULL; each = each->next)
        count++;
    if (faults_draw(FAULT_enomem))
        return post_part(qp, wr, 0, ENOMEM, bad_out);
    if (faults_draw(FAULT_partial))
        return post_part(qp, wr, faults_split(count), ENOMEM, bad_out);
    int at = any_with_bytes(wr, count);
    if (at >= 0 && faults_draw(FAULT_einval))
        return post_part(qp, wr, (uint32_t)at, EINVAL, bad_out);
    if (!flushes && faults_draw(FAULT_never)) {
        hold_chain(qp, wr, DUE_NEVER);
        return 0;
    }
    if (faults_draw(FAULT_lost)) {
        hold_chain(qp, wr, now_ns() + faults_delay_ns(FAULT_lost));
        return 0;
    }
    return device_of(qp->context)->real.post_send(qp, wr, bad_out);
}

static int faulty_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
                            struct ibv_send_wr **bad_out) {
    int rc = 0;

    pthread_mutex_lock(&lock);
    const struct held_post *held = held_of(qp);
    if (held != NULL && held->due_ns == DUE_NEVER) {
        hold_chain(qp, wr, DUE_NEVER);
    } else {
        give_posts(qp);
        rc = post_with_faults(qp, wr, bad_out);
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

static int faulty_post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr,
                                struct ibv_recv_wr **bad_out) {
    int rc;

    pthread_mutex_lock(&lock);
    if (faults_draw(FAULT_srq)) {
        *bad_out = wr;
        rc = ENOMEM;
    } else {
        rc = device_of(srq->context)->real.post_srq_recv(srq, wr, bad_out);
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

/* ---- completions that are late ---- */

/* The last one that is held of a QP. */
static struct held_completion *last_of(const struct ibv_cq *cq, uint32_t qp_num) {
    struct held_completion *last = NULL;

    for (struct held_completion *held = completions; held != NULL; held = held->next) {
        if (held->cq == cq && held->wc.qp_num == qp_num)
            last = held;
    }
    return last;
}

/* Behind the others of its QP, or because it is drawn. */
static bool hold_completion(struct ibv_cq *cq, const struct ibv_wc *wc) {
    const struct held_completion *before = completions != NULL ? last_of(cq, wc->qp_num) : NULL;
    struct held_completion **last = &completions;
    uint64_t due_ns;

    if (before != NULL)
        due_ns = before->due_ns;
    else if (faults_draw(FAULT_late))
        due_ns = now_ns() + faults_delay_ns(FAULT_late);
    else
        return false;
    struct held_completion *held = allocate(sizeof(*held));
    held->cq = cq;
    held->due_ns = due_ns;
    held->wc = *wc;
    while (*last != NULL)
        last = &(*last)->next;
    *last = held;
    return true;
}

/* Gives the completions that are due; how many. */
static int give_completions(const struct ibv_cq *cq, int max, struct ibv_wc *wcs_out) {
    struct held_completion **at = &completions;
    uint64_t now = completions != NULL ? now_ns() : 0;
    int count = 0;

    while (*at != NULL && count < max) {
        struct held_completion *held = *at;
        if (held->cq != cq || held->due_ns > now) {
            at = &held->next;
            continue;
        }
        wcs_out[count++] = held->wc;
        *at = held->next;
        free(held);
    }
    return count;
}

static int faulty_poll_cq(struct ibv_cq *ibv, int max, struct ibv_wc *wcs_out) {
    int count, got = 1;

    pthread_mutex_lock(&lock);
    give_due_posts(ibv);
    count = give_completions(ibv, max, wcs_out);
    while (count < max && got > 0) {
        got = device_of(ibv->context)->real.poll_cq(ibv, max - count, wcs_out + count);
        int from = count;
        for (int i = 0; i < got; i++) {
            struct ibv_wc wc = wcs_out[from + i];
            if (!hold_completion(ibv, &wc))
                wcs_out[count++] = wc;
        }
    }
    timer_follow(cq_of(ibv));
    pthread_mutex_unlock(&lock);
    return got < 0 && count == 0 ? got : count;
}

/* ---- libibverbs, as the program calls it ---- */

EXPORTED struct ibv_context *ibv_open_device(struct ibv_device *ibv) {
    typedef struct ibv_context *(*open_fn)(struct ibv_device *);
    struct ibv_context *context = REAL(open_fn, ibv_open_device, "IBVERBS_1.1")(ibv);

    if (context == NULL)
        return NULL;
    pthread_mutex_lock(&lock);
    faults_read();
    *device_of(NULL) = (struct device){.context = context, .real = context->ops};
    context->ops.post_send = faulty_post_send;
    context->ops.post_srq_recv = faulty_post_srq_recv;
    context->ops.poll_cq = faulty_poll_cq;
    context->ops.req_notify_cq = faulty_req_notify_cq;
    pthread_mutex_unlock(&lock);
    return context;
}

EXPORTED int ibv_close_device(struct ibv_context *context) {
    typedef int (*close_fn)(struct ibv_context *);

    pthread_mutex_lock(&lock);
    struct device *device = device_of(context);
    context->ops = device->real;
    *device = (struct device){0};
    pthread_mutex_unlock(&lock);
    return REAL(close_fn, ibv_close_device, "IBVERBS_1.1")(context);
}

/* Its descriptor is readable when the channel's own is, or when the timer went off. */
EXPORTED struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context) {
    typedef struct ibv_comp_channel *(*create_fn)(struct ibv_context *);
    struct ibv_comp_channel *ibv = REAL(create_fn, ibv_create_comp_channel, "IBVERBS_1.0")(context);

    if (ibv == NULL)
        return NULL;
    struct channel channel = {
        .channel = ibv,
        .real_fd = ibv->fd,
        .epoll_fd = epoll_create1(EPOLL_CLOEXEC),
        .timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC),
    };
    struct epoll_event event = {.events = EPOLLIN};
    if (fcntl(channel.real_fd, F_SETFL, O_NONBLOCK) != 0 ||
        epoll_ctl(channel.epoll_fd, EPOLL_CTL_ADD, channel.real_fd, &event) != 0 ||
        epoll_ctl(channel.epoll_fd, EPOLL_CTL_ADD, channel.timer_fd, &event) != 0)
        give_up("descriptors of a completion channel");
    pthread_mutex_lock(&lock);
    ibv->fd = channel.epoll_fd;
    *channel_of(NULL) = channel;
    pthread_mutex_unlock(&lock);
    return ibv;
}

EXPORTED int ibv_destroy_comp_channel(struct ibv_comp_channel *ibv) {
    typedef int (*destroy_fn)(struct ibv_comp_channel *);

    pthread_mutex_lock(&lock);
    struct channel *channel = channel_of(ibv), was = *channel;
    ibv->fd = was.real_fd;
    *channel = (struct channel){0};
    pthread_mutex_unlock(&lock);
    int rc = REAL(destroy_fn, ibv_destroy_comp_channel, "IBVERBS_1.0")(ibv);
    if (rc != 0)
        give_up("a completion channel is destroyed that is in use");
    close(was.epoll_fd);
    close(was.timer_fd);
    return 0;
}

EXPORTED struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
                                      struct ibv_comp_channel *channel, int comp_vector) {
    typedef struct ibv_cq *(*create_fn)(struct ibv_context *, int, void *,
                                        struct ibv_comp_channel *, int);
    create_fn create = REAL(create_fn, ibv_create_cq, "IBVERBS_1.1");

    pthread_mutex_lock(&lock);
    if (channel != NULL) /* the kernel wants its own descriptor */
        channel->fd = channel_of(channel)->real_fd;
    struct ibv_cq *ibv = create(context, cqe, cq_context, channel, comp_vector);
    int error = errno;
    if (channel != NULL)
        channel->fd = channel_of(channel)->epoll_fd;
    if (ibv != NULL)
        *cq_of(NULL) = (struct cq){.cq = ibv};
    pthread_mutex_unlock(&lock);
    errno = error;
    return ibv;
}

EXPORTED int ibv_destroy_cq(struct ibv_cq *ibv) {
    typedef int (*destroy_fn)(struct ibv_cq *);
    struct held_completion **at = &completions;
    int rc = REAL(destroy_fn, ibv_destroy_cq, "IBVERBS_1.1")(ibv);

    if (rc != 0)
        return rc;
    pthread_mutex_lock(&lock);
    *cq_of(ibv) = (struct cq){0};
    while (*at != NULL) {
        struct held_completion *held = *at;
        if (held->cq != ibv) {
            at = &held->next;
            continue;
        }
        *at = held->next;
        free(held);
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

/* An armed CQ of this channel for which something is due. */
static struct cq *due_cq(const struct ibv_comp_channel *channel) {
    uint64_t now = now_ns();

    for (size_t i = 0; i < CQS_MAX; i++) {
        uint64_t due = cqs[i].cq != NULL && cqs[i].armed && cqs[i].cq->channel == channel
                           ? next_due(cqs[i].cq)
                           : 0;
        if (due != 0 && due <= now)
            return &cqs[i];
    }
    return NULL;
}

EXPORTED int ibv_get_cq_event(struct ibv_comp_channel *ibv, struct ibv_cq **cq_out,
                              void **context_out) {
    typedef int (*get_fn)(struct ibv_comp_channel *, struct ibv_cq **, void **);
    get_fn get = REAL(get_fn, ibv_get_cq_event, "IBVERBS_1.1");
    struct ibv_comp_channel copy = *ibv;
    uint64_t expirations;

    pthread_mutex_lock(&lock);
    struct channel *channel = channel_of(ibv);
    copy.fd = channel->real_fd;
    int rc = get(&copy, cq_out, context_out);
    int error = errno;
    if (rc == 0) {
        cq_of(*cq_out)->armed = false;
    } else if (error == EAGAIN) {
        if (read(channel->timer_fd, &expirations, sizeof(expirations)) > 0)
            channel->timer_ns = 0;
        struct cq *cq = due_cq(ibv);
        if (cq != NULL) {
            cq->armed = false;
            cq->made_up++;
            *cq_out = cq->cq;
            *context_out = cq->cq->cq_context;
            rc = 0;
        }
    }
    pthread_mutex_unlock(&lock);
    errno = error;
    return rc;
}

/* The kernel knows nothing of the events that we made up. */
EXPORTED void ibv_ack_cq_events(struct ibv_cq *ibv, unsigned int count) {
    typedef void (*ack_fn)(struct ibv_cq *, unsigned int);

    pthread_mutex_lock(&lock);
    struct cq *cq = cq_of(ibv);
    unsigned ours = count < cq->made_up ? count : cq->made_up;
    cq->made_up -= ours;
    pthread_mutex_unlock(&lock);
    if (count > ours)
        REAL(ack_fn, ibv_ack_cq_events, "IBVERBS_1.1")(ibv, count - ours);
}

EXPORTED int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask) {
    typedef int (*modify_fn)(struct ibv_qp *, struct ibv_qp_attr *, int);
    int rc = REAL(modify_fn, ibv_modify_qp, "IBVERBS_1.1")(qp, attr, mask);

    if (rc == 0 && (mask & IBV_QP_STATE) != 0 && attr->qp_state == IBV_QPS_ERR) {
        pthread_mutex_lock(&lock);
        give_posts(qp); /* and they flush */
        pthread_mutex_unlock(&lock);
    }
    return rc;
}

EXPORTED int ibv_destroy_qp(struct ibv_qp *qp) {
    typedef int (*destroy_fn)(struct ibv_qp *);
    struct held_post **at = &posts;
    const struct ibv_cq *cq = qp->send_cq;
    uint32_t qp_num = qp->qp_num;
    int rc = REAL(destroy_fn, ibv_destroy_qp, "IBVERBS_1.1")(qp);

    if (rc != 0)
        return rc;
    pthread_mutex_lock(&lock);
    while (*at != NULL) {
        struct held_post *held = *at;
        if (held->qp != qp) {
            at = &held->next;
            continue;
        }
        *at = held->next;
        free(held);
    }
    for (struct held_completion *held = completions; held != NULL; held = held->next) {
        if (held->cq == cq && held->wc.qp_num == qp_num)
            held->due_ns = 0;
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

/* ---- for the program that runs under the faults ---- */

EXPORTED void faults_stop(void);
EXPORTED void faults_stop(void) {
    pthread_mutex_lock(&lock);
    faults_stop_drawing();
    pthread_mutex_unlock(&lock);
}

EXPORTED uint64_t faults_count(const char *name);
EXPORTED uint64_t faults_count(const char *name) {
    pthread_mutex_lock(&lock);
    uint64_t count = faults_counted(name);
    pthread_mutex_unlock(&lock);
    return count;
}

static __attribute__((destructor)) void report(void) {
    pthread_mutex_lock(&lock);
    faults_report();
    pthread_mutex_unlock(&lock);
}
