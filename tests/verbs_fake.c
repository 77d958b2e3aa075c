/* SPDX-License-Identifier: Apache-2.0 */
/* verbs_fake.c: the provider of verbs_fake.h. */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "verbs_fake.h"

#include "device.h"
#include "os.h"

struct fake fake;

static struct ibv_device fake_device;
static struct ibv_context fake_context;
static struct ibv_comp_channel fake_channel;
static struct fake_cq {
    struct ibv_cq ibv; /* the first */
    bool used;
    uint32_t qps;
} fake_cqs[FAKE_CQS];
#define FIRST_CQ fake_cqs[0].ibv
static struct ibv_srq fake_srq;
static struct ibv_pd fake_pd;

/* ---- QPs ---- */

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool held;
    uint32_t inside; /* threads */
    int error;
} slow = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

void fake_hold_connects(bool held) {
    pthread_mutex_lock(&slow.mutex);
    slow.held = held;
    pthread_cond_broadcast(&slow.changed);
    pthread_mutex_unlock(&slow.mutex);
}

void fake_wait_connects(uint32_t inside) {
    pthread_mutex_lock(&slow.mutex);
    while (slow.inside < inside)
        pthread_cond_wait(&slow.changed, &slow.mutex);
    pthread_mutex_unlock(&slow.mutex);
}

void fake_connects_fail(int error) {
    pthread_mutex_lock(&slow.mutex);
    slow.error = error;
    pthread_mutex_unlock(&slow.mutex);
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr) {
    (void)pd;
    struct fake_qp *qp = calloc(1, sizeof *qp);
    assert_non_null(qp);
    assert_int_equal(attr->cap.max_send_wr, fake.sends_asked);
    attr->cap.max_send_wr = fake.sends_granted;
    if (attr->cap.max_inline_data > fake.inline_most)
        attr->cap.max_inline_data = fake.inline_most;
    qp->ibv.context = &fake_context;
    qp->ibv.qp_context = attr->qp_context;
    assert_ptr_equal(attr->send_cq, attr->recv_cq);
    qp->cq = attr->send_cq;
    ((struct fake_cq *)qp->cq)->qps++;
    qp->ibv.qp_num = fake.next_number;
    fake.next_number += fake.numbers_grow;
    fake.qps++;
    fake.newest = qp;
    return &qp->ibv;
}

void fake_pipe(void) {
    if (fake.pipes)
        raise(SIGPIPE);
}

/* ibv_get_async_event(3): waits until what was taken is acknowledged; what was not taken goes
 * with the QP. */
int ibv_destroy_qp(struct ibv_qp *ibv) {
    struct fake_qp *qp = (struct fake_qp *)ibv;
    if (fake.destroy_error != 0)
        return fake.destroy_error;
    fake_pipe();
    assert_int_equal(qp->events.taken, qp->events.acknowledged);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < fake.event_count; i++) {
        if (fake.events[i].element.qp != ibv)
            fake.events[kept++] = fake.events[i];
    }
    fake.event_count = kept;
    fake.qps--;
    ((struct fake_cq *)qp->cq)->qps--;
    free(qp);
    return 0;
}

int ibv_modify_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask) {
    struct fake_qp *qp = (struct fake_qp *)ibv;
    (void)mask;
    if (attr->qp_state == IBV_QPS_INIT) {
        qp->init = *attr;
        return fake.init_error;
    }
    if (attr->qp_state == IBV_QPS_ERR) {
        fake_pipe();
        qp->failed = true;
    }
    if (attr->qp_state != IBV_QPS_RTR)
        return 0;
    pthread_mutex_lock(&slow.mutex); /* this is a thread of the connector's */
    qp->rtr = *attr;
    slow.inside++;
    pthread_cond_broadcast(&slow.changed);
    while (slow.held)
        pthread_cond_wait(&slow.changed, &slow.mutex);
    slow.inside--;
    int error = slow.error;
    pthread_mutex_unlock(&slow.mutex);
    return error;
}

int ibv_query_qp(struct ibv_qp *ibv, struct ibv_qp_attr *attr, int mask,
                 struct ibv_qp_init_attr *init) {
    (void)mask;
    (void)init;
    attr->qp_state = ((struct fake_qp *)ibv)->failed ? IBV_QPS_ERR : IBV_QPS_RTS;
    return 0;
}

struct fake_qp *fake_qp_of(const struct weir_qp *qp) {
    return (struct fake_qp *)qp->ibv;
}

/* ---- queues ---- */

static int fake_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
    (void)qp;
    fake_pipe();
    for (uint32_t i = 0; wr != NULL; wr = wr->next, i++) {
        if (fake.refusal != 0 && i == fake.accepts) {
            *bad = wr;
            return fake.refusal;
        }
        struct fake_wr *sent = &fake.sent[fake.posted_count % CQES];
        *sent = (struct fake_wr){.wr = *wr};
        if (wr->num_sge > 0)
            sent->sge = wr->sg_list[0];
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

static int fake_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
    (void)qp;
    (void)wr;
    (void)bad;
    return 0;
}

static int fake_poll(struct ibv_cq *cq, int max, struct ibv_wc *wcs) {
    int count = 0, kept = 0;
    for (int i = 0; i < fake.cqe_count; i++) {
        if (fake.cqe_of[i] == cq && count < max) {
            wcs[count++] = fake.cqes[i];
        } else {
            fake.cqe_of[kept] = fake.cqe_of[i];
            fake.cqes[kept++] = fake.cqes[i];
        }
    }
    fake.cqe_count = kept;
    return count;
}

static int fake_notify(struct ibv_cq *cq, int solicited) {
    (void)cq;
    (void)solicited;
    fake.arms++;
    fake.armed = fake.arm_error == 0;
    return fake.arm_error;
}

void fake_complete(uint64_t wr_id, uint32_t number, enum ibv_wc_status status) {
    assert_true(fake.cqe_count < CQES);
    fake.cqe_of[fake.cqe_count] = fake.completes_in != NULL ? fake.completes_in : &FIRST_CQ;
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

/* ---- events ---- */

static bool is_of_qp(enum ibv_event_type type) {
    return type == IBV_EVENT_QP_FATAL || type == IBV_EVENT_QP_REQ_ERR ||
           type == IBV_EVENT_QP_ACCESS_ERR || type == IBV_EVENT_COMM_EST ||
           type == IBV_EVENT_SQ_DRAINED || type == IBV_EVENT_PATH_MIG ||
           type == IBV_EVENT_PATH_MIG_ERR || type == IBV_EVENT_QP_LAST_WQE_REACHED;
}

static bool is_of_srq(enum ibv_event_type type) {
    return type == IBV_EVENT_SRQ_ERR || type == IBV_EVENT_SRQ_LIMIT_REACHED;
}

/* Where the events of its object are counted; NULL: of none that is destroyed. */
static struct fake_count *count_of(const struct ibv_async_event *event) {
    if (is_of_qp(event->event_type))
        return &((struct fake_qp *)event->element.qp)->events;
    if (event->event_type == IBV_EVENT_CQ_ERR)
        return &fake.of_cq;
    return is_of_srq(event->event_type) ? &fake.of_srq : NULL;
}

void fake_event(enum ibv_event_type type, const struct weir_qp *qp) {
    assert_true(fake.event_count < FAKE_EVENTS);
    struct ibv_async_event *event = &fake.events[fake.event_count++];
    memset(event, 0, sizeof *event);
    event->event_type = type;
    if (is_of_qp(type))
        event->element.qp = qp->ibv;
    else if (type == IBV_EVENT_CQ_ERR)
        event->element.cq = &FIRST_CQ;
    else if (is_of_srq(type))
        event->element.srq = &fake_srq;
    else if (type != IBV_EVENT_DEVICE_FATAL)
        event->element.port_num = 1;
}

int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event) {
    (void)context;
    if (fake.event_count == 0) {
        errno = fake.event_error != 0 ? fake.event_error : EAGAIN;
        return -1;
    }
    *event = fake.events[0];
    memmove(fake.events, fake.events + 1, --fake.event_count * sizeof *event);
    struct fake_count *count = count_of(event);
    if (count != NULL)
        count->taken++;
    fake.async.taken++;
    return 0;
}

void ibv_ack_async_event(struct ibv_async_event *event) {
    struct fake_count *count = count_of(event);
    assert_true(fake.async.acknowledged < fake.async.taken);
    fake.async.acknowledged++;
    if (count == NULL)
        return;
    assert_true(count->acknowledged < count->taken);
    count->acknowledged++;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **context) {
    assert_ptr_equal(channel, &fake_channel);
    if (fake.cq_event_count == 0) {
        errno = fake.channel_error != 0 ? fake.channel_error : EAGAIN;
        return -1;
    }
    fake.cq_event_count--;
    fake.of_channel.taken++;
    *cq = &FIRST_CQ;
    *context = FIRST_CQ.cq_context;
    return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned count) {
    assert_ptr_equal(cq, &FIRST_CQ);
    assert_true(count > 0 && count <= fake.of_channel.taken - fake.of_channel.acknowledged);
    fake.of_channel.acknowledged += count;
}

static bool is_even(const struct fake_count *count) {
    return count->taken == count->acknowledged;
}

bool fake_all_acknowledged(void) {
    return is_even(&fake.async) && is_even(&fake.of_cq) && is_even(&fake.of_srq) &&
           is_even(&fake.of_channel);
}

/* ---- what all share ---- */

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context) {
    fake_pd.context = context;
    return &fake_pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd) {
    (void)pd;
    assert_int_equal(fake.qps, 0);
    assert_int_equal(fake.mrs, 0);
    return 0;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *context) {
    fake_channel.context = context;
    fake_channel.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    assert_true(fake_channel.fd >= 0);
    return &fake_channel;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *channel) {
    return close(channel->fd);
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int cqe, void *cq_context,
                             struct ibv_comp_channel *channel, int vector) {
    (void)channel;
    (void)vector;
    uint32_t at = 0;
    while (at < FAKE_CQS && fake_cqs[at].used)
        at++;
    if (at == FAKE_CQS || (fake.cqs_most != 0 && fake.cqs >= fake.cqs_most)) {
        errno = ENOMEM;
        return NULL;
    }
    fake.cqs++;
    fake_cqs[at].used = true;
    cqe = fake.cqe_most != 0 && fake.cqe_most < cqe ? fake.cqe_most : cqe;
    fake_cqs[at].ibv = (struct ibv_cq){.context = context, .cq_context = cq_context, .cqe = cqe};
    return &fake_cqs[at].ibv;
}

int ibv_destroy_cq(struct ibv_cq *cq) {
    struct fake_cq *at = (struct fake_cq *)cq;
    assert_true(at->used);
    assert_int_equal(at->qps, 0);
    assert_true(is_even(&fake.of_cq) && is_even(&fake.of_channel));
    if (cq == &FIRST_CQ)
        fake.cq_event_count = 0; /* they go with it */
    at->used = false;
    fake.cqs--;
    return 0;
}

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *attr) {
    (void)attr;
    fake_srq.context = pd->context;
    return &fake_srq;
}

int ibv_destroy_srq(struct ibv_srq *srq) {
    assert_ptr_equal(srq, &fake_srq);
    assert_true(is_even(&fake.of_srq));
    return 0;
}

/* ---- the choice ---- */

struct ibv_device **ibv_get_device_list(int *count) {
    static struct ibv_device *list[2];
    list[0] = fake.absent ? NULL : &fake_device;
    *count = !fake.absent;
    return list;
}

void ibv_free_device_list(struct ibv_device **list) {
    (void)list;
}

const char *ibv_get_device_name(struct ibv_device *device) {
    assert_ptr_equal(device, &fake_device);
    return "fake0";
}

struct ibv_context *ibv_open_device(struct ibv_device *device) {
    fake_context.device = device;
    fake_context.async_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    fake_context.cmd_fd = fake.file_fd >= 0 ? dup(fake.file_fd) : eventfd(0, EFD_CLOEXEC);
    assert_true(fake_context.async_fd >= 0 && fake_context.cmd_fd >= 0);
    fake.closed = false;
    return &fake_context;
}

struct ibv_device *fake_device_of(void) {
    return &fake_device;
}

struct ibv_context *fake_context_of(void) {
    return &fake_context;
}

int ibv_close_device(struct ibv_context *context) {
    assert_true(is_even(&fake.async));
    fake.closed = true;
    return close(context->async_fd) | close(context->cmd_fd);
}

int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr) {
    (void)context;
    *attr = fake.attr;
    return 0;
}

#undef ibv_query_port
int ibv_query_port(struct ibv_context *context, uint8_t number,
                   struct _compat_ibv_port_attr *attr) {
    (void)context;
    if (number != 1)
        return EINVAL;
    if (fake.port_error != 0)
        return fake.port_error;
    memcpy((void *)attr, &fake.port, sizeof fake.port);
    return 0;
}

int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
                      struct ibv_gid_entry *entry, uint32_t flags, size_t size) {
    (void)context;
    (void)port;
    (void)flags;
    assert_int_equal(size, sizeof *entry);
    if (index >= FAKE_ENTRIES || fake.gids[index].gid.global.interface_id == 0)
        return ENODATA;
    *entry = fake.gids[index];
    return 0;
}

int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey) {
    (void)context;
    (void)port;
    if (fake.pkeys_unreadable || index < 0 || index >= FAKE_ENTRIES)
        return -1;
    *pkey = htons(fake.pkeys[index]);
    return 0;
}

/* ---- memory ---- */

struct fake_mr {
    struct ibv_mr ibv; /* the first */
    unsigned access;
};

unsigned fake_access_of(const struct ibv_mr *mr) {
    return ((const struct fake_mr *)mr)->access;
}

#undef ibv_reg_mr
struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *base, size_t length, uint64_t iova,
                                unsigned access) {
    static uint32_t keys;
    (void)pd;
    (void)base;
    (void)length;
    (void)iova;
    if ((access & fake.forbidden_access) != 0) {
        errno = fake.forbidden_error != 0 ? fake.forbidden_error : EFAULT;
        return NULL;
    }
    struct fake_mr *mr = calloc(1, sizeof *mr);
    mr->ibv.lkey = mr->ibv.rkey = __atomic_add_fetch(&keys, 1, __ATOMIC_RELAXED);
    mr->access = access;
    __atomic_add_fetch(&fake.mrs, 1, __ATOMIC_RELAXED);
    return &mr->ibv;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *base, size_t length, int access) {
    return ibv_reg_mr_iova2(pd, base, length, (uintptr_t)base, (unsigned)access);
}

struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
                                 int fd, int access) {
    (void)offset;
    (void)fd;
    if (fake.dmabuf_error != 0) {
        errno = fake.dmabuf_error;
        return NULL;
    }
    return ibv_reg_mr_iova2(pd, NULL, length, iova, (unsigned)access);
}

int ibv_dereg_mr(struct ibv_mr *mr) {
    if (fake.dereg_error != 0 && mr->lkey == fake.dereg_refused)
        return fake.dereg_error;
    __atomic_sub_fetch(&fake.mrs, 1, __ATOMIC_RELAXED);
    free(mr);
    return 0;
}

/* ---- devices ---- */

void fake_reset(void) {
    memset(&fake, 0, sizeof fake);
    memset(fake_cqs, 0, sizeof fake_cqs);
    fake.next_number = 7;
    fake.file_fd = -1;
    fake_device.dev_path[0] = '\0';
    fake_device.ibdev_path[0] = '\0';
    fake.sends_asked = ASKED;
    fake.sends_granted = GRANTED;
    fake_context.ops.post_send = fake_post_send;
    fake_context.ops.post_recv = fake_post_recv;
    fake_context.ops.post_srq_recv = fake_post_srq_recv;
    fake_context.ops.poll_cq = fake_poll;
    fake_context.ops.req_notify_cq = fake_notify;
    fake_device.transport_type = IBV_TRANSPORT_IB;
    fake_device.node_type = IBV_NODE_CA;
    fake.attr = (struct ibv_device_attr){.phys_port_cnt = 1,
                                         .max_mr_size = UINT64_MAX,
                                         .max_qp_wr = 1024,
                                         .max_cqe = 4096,
                                         .max_srq = 1,
                                         .max_srq_wr = 1024,
                                         .max_qp_rd_atom = 4,
                                         .max_qp_init_rd_atom = 4};
    fake.port = (struct ibv_port_attr){.state = IBV_PORT_ACTIVE,
                                       .active_mtu = IBV_MTU_1024,
                                       .gid_tbl_len = FAKE_ENTRIES,
                                       .pkey_tbl_len = FAKE_ENTRIES,
                                       .max_msg_sz = 1u << 30,
                                       .link_layer = IBV_LINK_LAYER_ETHERNET};
    fake.gids[1] = (struct ibv_gid_entry){
        .gid.raw = {[10] = 0xff, [11] = 0xff, [12] = 10, [13] = 77, [15] = 1},
        .gid_type = IBV_GID_TYPE_ROCE_V2};
    fake.pkeys[0] = 0xffff;
}

/* One WR more than twice the depth, which makes no slot. */
void fake_iwarp(void) {
    fake_device.transport_type = IBV_TRANSPORT_IWARP;
    fake_device.node_type = IBV_NODE_RNIC;
    fake.sends_asked = 2 * ASKED;
    fake.sends_granted = 2 * GRANTED + 1;
}

struct weir_device *device_make(bool shared) {
    struct weir_env env;
    assert_int_equal(os_env_init(&env), 0);
    fake_reset();
    fake_srq.context = &fake_context;
    struct weir_device *device = env.ops->alloc(env.self, sizeof *device);
    assert_non_null(device);
    device->env = env;
    device->watch_fd = -1;
    device->env.wishes.cq_depth = CAPACITY;
    device->choice.attr.max_cqe = CAPACITY;
    device->choice.context = &fake_context;
    fake.cqs_most = 1;
    assert_int_equal(cqs_open(device), 0);
    device->caps = (struct weir_device_caps){.sq_depth_max = 1024,
                                             .rq_depth_max = 1024,
                                             .message_bytes_max = 1 << 20,
                                             .rd_atomic_max = 4};
    fake_context.device = &fake_device;
    device->choice.context = &fake_context;
    device->choice.mtu = 1024;
    device->choice.fabric = FABRIC_ROCE;
    memset(device->choice.gid.raw, 0x20, 16);
    if (shared) {
        device->srq = &fake_srq;
        device->srq_depth = SRQ_DEPTH;
        cqs_reserve(device);
    }
    post_prepare(device);
    assert_int_equal(connector_open(device), 0);
    return device;
}

void device_drop(struct weir_device *device) {
    struct weir_env env = device->env;
    connector_close(device);
    assert_int_equal(device->qp_count, 0);
    assert_int_equal(fake.qps, 0);
    assert_int_equal(device->cqs[0]->used, device->srq != NULL ? SRQ_DEPTH : 0);
    cqs_close(device);
    env.ops->free(env.self, device->stash, device->stash_size * sizeof *device->stash);
    env.ops->free(env.self, device, sizeof *device);
}

struct weir_device *device_open_with(struct weir_device_wishes wishes) {
    struct weir_env env;
    struct weir_device *device = NULL;
    assert_int_equal(os_env_init(&env), 0);
    env.wishes = wishes;
    assert_int_equal(verbs_device_ops.open(&env, &device), 0);
    return device;
}

struct weir_device *device_open(void) {
    return device_open_with((struct weir_device_wishes){0});
}

void device_close(struct weir_device *device) {
    verbs_device_ops.close(device);
    assert_true(fake.closed);
    assert_int_equal(fake.qps, 0);
    assert_int_equal(fake.mrs, 0);
    assert_true(fake_all_acknowledged());
}

int connected(struct weir_device *device, uint32_t tag) {
    struct pollfd done = {.fd = device->connector.event_fd, .events = POLLIN};
    struct weir_async event;
    assert_int_equal(poll(&done, 1, 10000), 1);
    assert_int_equal(connector_events(device, &event, 1), 1);
    assert_int_equal(event.type, WEIR_ASYNC_CONNECTED);
    assert_int_equal(event.qp_tag, tag);
    assert_int_equal(poll(&done, 1, 0), 0);
    return event.error;
}

struct weir_qp *qp_create(struct weir_device *device, uint32_t tag,
                          struct weir_qp_granted *granted_out) {
    struct weir_qp_options options = {.tag = tag, .sq_depth = ASKED};
    struct weir_qp *qp;
    assert_int_equal(verbs_qp_create(device, &options, granted_out, &qp), 0);
    assert_int_equal(granted_out->sq_depth, GRANTED);
    return qp;
}

void qp_begin_to(struct weir_qp *qp, const struct weir_qp_granted *there) {
    struct weir_qp_path path = {
        .mtu = 1024, .rd_atomic = 1, .blob_length = there->blob_length, .blob = there->blob};
    assert_int_equal(verbs_qp_connect(qp, &path), WEIR_EINPROGRESS);
    assert_int_equal(verbs_qp_connect(qp, &path), WEIR_EINVAL); /* twice */
}

struct weir_qp *qp_begin(struct weir_device *device, uint32_t tag) {
    struct weir_qp_granted granted;
    struct weir_qp *qp = qp_create(device, tag, &granted);
    qp_begin_to(qp, &granted);
    return qp;
}

struct weir_qp *qp_make(struct weir_device *device, uint32_t tag) {
    struct weir_qp *qp = qp_begin(device, tag);
    assert_int_equal(connected(device, tag), 0);
    assert_int_equal(qp->state, QP_READY);
    return qp;
}
