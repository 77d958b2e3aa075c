/* SPDX-License-Identifier: Apache-2.0 */
/* verbs_fake_cm.c: the connection manager of verbs_fake_cm.h. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "verbs_fake_cm.h"

struct fake_cm fake_cm;

enum { CM_PORT = 20049 };

struct queued {
    struct rdma_cm_event event;
    uint8_t said[FAKE_CALL_MAX];
};

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    pthread_t owner;
    bool holds_connects, holds_drops;
    struct rdma_cm_id *listener;
    struct queued queue[FAKE_CM_EVENTS];
    uint32_t count;
    struct fake_id *of_qps[64]; /* the ids that connect or are accepted */
} cm = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static struct fake_id *id_of(struct rdma_cm_id *id) {
    return (struct fake_id *)id;
}

void fake_cm_reset(void) {
    memset(&fake_cm, 0, sizeof fake_cm);
    fake_cm.port = CM_PORT;
    cm.owner = pthread_self();
    cm.holds_connects = cm.holds_drops = false;
    cm.listener = NULL;
    cm.count = 0;
    memset(cm.of_qps, 0, sizeof cm.of_qps);
}

static void count_up(uint32_t *count) {
    (*count)++;
    pthread_cond_broadcast(&cm.changed);
}

uint32_t fake_cm_count(const uint32_t *of) {
    pthread_mutex_lock(&cm.mutex);
    uint32_t count = *of;
    pthread_mutex_unlock(&cm.mutex);
    return count;
}

void fake_cm_wait(const uint32_t *of, uint32_t least) {
    pthread_mutex_lock(&cm.mutex);
    while (*of < least)
        pthread_cond_wait(&cm.changed, &cm.mutex);
    pthread_mutex_unlock(&cm.mutex);
}

static void hold(bool *what, bool held) {
    pthread_mutex_lock(&cm.mutex);
    *what = held;
    pthread_cond_broadcast(&cm.changed);
    pthread_mutex_unlock(&cm.mutex);
}

void fake_cm_hold_connects(bool held) {
    hold(&cm.holds_connects, held);
}

void fake_cm_hold_drops(bool held) {
    hold(&cm.holds_drops, held);
}

/* 0, or -1 with errno, as all of them answer. */
static int answer(int error) {
    errno = error;
    return error == 0 ? 0 : -1;
}

/* ---- the interface ---- */

static struct sockaddr_in address = {.sin_family = AF_INET};
static struct ifaddrs interface = {.ifa_addr = (struct sockaddr *)&address};

int getifaddrs(struct ifaddrs **list) {
    address.sin_addr.s_addr = htonl(0x0a4d0001);
    *list = &interface;
    return 0;
}

void freeifaddrs(struct ifaddrs *list) {
    assert_ptr_equal(list, &interface);
}

/* ---- channels ---- */

struct rdma_event_channel *rdma_create_event_channel(void) {
    if (fake_cm.channel_error != 0) {
        errno = fake_cm.channel_error;
        return NULL;
    }
    struct rdma_event_channel *channel = calloc(1, sizeof *channel);
    assert_non_null(channel);
    channel->fd = eventfd(0, EFD_CLOEXEC);
    assert_true(channel->fd >= 0);
    fake_cm.channels++;
    return channel;
}

void rdma_destroy_event_channel(struct rdma_event_channel *channel) {
    assert_int_equal(fake_cm_count(&fake_cm.ids), 0);
    fake_pipe();
    fake_cm.channels--;
    close(channel->fd);
    free(channel);
}

/* Readable when there is something. */
static void show(void) {
    const uint64_t one = 1;
    uint64_t drained;
    int fd = cm.listener->channel->fd;
    assert_true((fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    ssize_t got = read(fd, &drained, sizeof drained);
    (void)got;
    if (cm.count > 0)
        assert_int_equal(write(fd, &one, sizeof one), sizeof one);
}

static struct queued *push(struct rdma_cm_id *id, enum rdma_cm_event_type type) {
    assert_true(cm.count < FAKE_CM_EVENTS);
    struct queued *queued = &cm.queue[cm.count++];
    *queued = (struct queued){.event = {.id = id, .event = type}};
    show();
    return queued;
}

void fake_cm_event(struct fake_id *id, enum rdma_cm_event_type type) {
    pthread_mutex_lock(&cm.mutex);
    assert_non_null(id);
    assert_ptr_equal(id->cm.channel, cm.listener->channel); /* else nobody would hear it */
    id->calls = false;
    id->answered |= type != RDMA_CM_EVENT_ESTABLISHED; /* who called is gone */
    push(&id->cm, type);
    pthread_cond_broadcast(&cm.changed);
    pthread_mutex_unlock(&cm.mutex);
}

void fake_cm_call(const void *said, uint32_t length) {
    assert_true(length <= FAKE_CALL_MAX);
    pthread_mutex_lock(&cm.mutex);
    struct queued *queued = push(cm.listener, RDMA_CM_EVENT_CONNECT_REQUEST);
    if (length > 0)
        memcpy(queued->said, said, length);
    queued->event.param.conn.private_data_len = (uint8_t)length;
    pthread_mutex_unlock(&cm.mutex);
}

uint32_t fake_cm_waiting(void) {
    return fake_cm_count(&cm.count);
}

/* ---- ids ---- */

static struct fake_id *id_new(struct rdma_event_channel *channel, void *context) {
    struct fake_id *id = calloc(1, sizeof *id);
    assert_non_null(id);
    id->cm.channel = channel;
    if (channel == NULL) { /* its calls block */
        id->own.fd = eventfd(0, EFD_CLOEXEC);
        assert_true(id->own.fd >= 0);
        id->cm.channel = &id->own;
    }
    id->cm.context = context;
    id->cm.ps = RDMA_PS_TCP;
    count_up(&fake_cm.ids);
    return id;
}

int rdma_create_id(struct rdma_event_channel *channel, struct rdma_cm_id **id_out, void *context,
                   enum rdma_port_space ps) {
    assert_int_equal(ps, RDMA_PS_TCP);
    pthread_mutex_lock(&cm.mutex);
    *id_out = &id_new(channel, context)->cm;
    pthread_mutex_unlock(&cm.mutex);
    return 0;
}

static void remember(struct fake_id *id) {
    for (size_t i = 0; i < sizeof cm.of_qps / sizeof cm.of_qps[0]; i++) {
        if (cm.of_qps[i] == NULL) {
            cm.of_qps[i] = id;
            return;
        }
    }
    fail_msg("too many connections");
}

static void forget(const struct fake_id *id) {
    for (size_t i = 0; i < sizeof cm.of_qps / sizeof cm.of_qps[0]; i++) {
        if (cm.of_qps[i] == id)
            cm.of_qps[i] = NULL;
    }
}

struct fake_id *fake_cm_id_of(const struct weir_qp *qp) {
    struct fake_id *found = NULL;
    pthread_mutex_lock(&cm.mutex);
    for (size_t i = 0; i < sizeof cm.of_qps / sizeof cm.of_qps[0]; i++) {
        if (cm.of_qps[i] != NULL && cm.of_qps[i]->qp_num == qp->qpn)
            found = cm.of_qps[i];
    }
    pthread_mutex_unlock(&cm.mutex);
    return found;
}

int rdma_destroy_id(struct rdma_cm_id *base) {
    struct fake_id *id = id_of(base);
    bool may_wait = !pthread_equal(cm.owner, pthread_self());
    if (base == cm.listener)
        fake_pipe(); /* a call that nobody took is rejected */
    pthread_mutex_lock(&cm.mutex);
    if (id->calls) {
        assert_true(may_wait); /* for the answer */
        while (cm.holds_drops && id->calls)
            pthread_cond_wait(&cm.changed, &cm.mutex);
        count_up(&fake_cm.drops);
    }
    while (may_wait && id->events.taken != id->events.acknowledged)
        pthread_cond_wait(&cm.changed, &cm.mutex);
    assert_int_equal(id->events.taken, id->events.acknowledged);
    assert_true(!id->is_call || id->answered);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < cm.count; i++) {
        if (cm.queue[i].event.id != base)
            cm.queue[kept++] = cm.queue[i];
    }
    if (kept != cm.count) {
        cm.count = kept;
        show();
    }
    forget(id);
    if (base->channel == &id->own)
        close(id->own.fd);
    if (cm.listener == base)
        cm.listener = NULL;
    fake_cm.ids--;
    pthread_mutex_unlock(&cm.mutex);
    free(id);
    return 0;
}

int rdma_bind_addr(struct rdma_cm_id *id, struct sockaddr *at) {
    assert_int_equal(at->sa_family, AF_INET);
    if (fake_cm.bind_error == 0)
        id->verbs = fake_context_of();
    return answer(fake_cm.bind_error);
}

int rdma_listen(struct rdma_cm_id *id, int backlog) {
    assert_true(backlog > 0);
    if (fake_cm.listen_error == 0)
        cm.listener = id;
    return answer(fake_cm.listen_error);
}

__be16 rdma_get_src_port(struct rdma_cm_id *id) {
    (void)id;
    return htons(fake_cm.port);
}

/* ---- calling ---- */

int rdma_resolve_addr(struct rdma_cm_id *id, struct sockaddr *from, struct sockaddr *to,
                      int timeout_ms) {
    assert_ptr_equal(id->channel, &id_of(id)->own); /* synchronous */
    assert_true(timeout_ms > 0);
    assert_int_equal(from->sa_family, AF_INET);
    const struct sockaddr_in *there = (const struct sockaddr_in *)(const void *)to;
    id_of(id)->to_port = ntohs(there->sin_port);
    assert_true(timeout_ms <= 100);
    if (fake_cm.late_answers > 0) {
        fake_cm.late_answers--;
        return answer(ETIMEDOUT);
    }
    return answer(fake_cm.resolve_error);
}

int rdma_set_option(struct rdma_cm_id *id, int level, int name, void *value, size_t length) {
    assert_int_equal(level, RDMA_OPTION_ID);
    assert_int_equal(name, RDMA_OPTION_ID_TOS);
    assert_int_equal(length, 1);
    memcpy(&id_of(id)->tos, value, 1);
    return 0;
}

int rdma_resolve_route(struct rdma_cm_id *id, int timeout_ms) {
    assert_ptr_equal(id->channel, &id_of(id)->own);
    assert_true(timeout_ms >= 1000);
    return answer(fake_cm.route_error);
}

int rdma_migrate_id(struct rdma_cm_id *id, struct rdma_event_channel *channel) {
    if (fake_cm.migrate_error == 0) {
        assert_ptr_equal(id->channel, &id_of(id)->own);
        close(id->channel->fd);
        id->channel = channel;
    }
    return answer(fake_cm.migrate_error);
}

static void note(struct fake_id *id, const struct rdma_conn_param *asked) {
    id->qp_num = asked->qp_num;
    id->responder_resources = asked->responder_resources;
    id->initiator_depth = asked->initiator_depth;
    id->rnr_retry_count = asked->rnr_retry_count;
    id->srq = asked->srq;
    id->said_length = asked->private_data_len;
    if (asked->private_data_len > 0)
        memcpy(id->said, asked->private_data, asked->private_data_len);
    remember(id);
}

int rdma_connect(struct rdma_cm_id *base, struct rdma_conn_param *asked) {
    struct fake_id *id = id_of(base);
    pthread_mutex_lock(&cm.mutex);
    assert_non_null(base->channel);
    assert_true(asked->private_data_len <= FAKE_CALL_MAX);
    while (cm.holds_connects)
        pthread_cond_wait(&cm.changed, &cm.mutex);
    int error = fake_cm.connect_error;
    if (error == 0) {
        note(id, asked);
        id->calls = true;
        count_up(&fake_cm.dials);
    }
    pthread_mutex_unlock(&cm.mutex);
    return answer(error);
}

/* ---- being called ---- */

int rdma_accept(struct rdma_cm_id *base, struct rdma_conn_param *granted) {
    struct fake_id *id = id_of(base);
    pthread_mutex_lock(&cm.mutex);
    assert_true(id->is_call && !id->answered);
    fake_pipe();
    id->answered = true; /* also by an error: the stream is closed */
    if (fake_cm.accept_error == 0) {
        note(id, granted);
        count_up(&fake_cm.accepts);
    }
    pthread_mutex_unlock(&cm.mutex);
    return answer(fake_cm.accept_error);
}

int rdma_reject(struct rdma_cm_id *base, const void *said, uint8_t length) {
    struct fake_id *id = id_of(base);
    (void)said;
    assert_int_equal(length, 0);
    pthread_mutex_lock(&cm.mutex);
    assert_true(id->is_call && !id->answered);
    fake_pipe();
    id->answered = true;
    count_up(&fake_cm.rejects);
    pthread_mutex_unlock(&cm.mutex);
    return 0;
}

/* ---- events ---- */

int rdma_get_cm_event(struct rdma_event_channel *channel, struct rdma_cm_event **event_out) {
    pthread_mutex_lock(&cm.mutex);
    assert_ptr_equal(channel, cm.listener->channel);
    if (cm.count == 0) {
        pthread_mutex_unlock(&cm.mutex);
        return answer(EAGAIN);
    }
    struct queued *taken = calloc(1, sizeof *taken);
    assert_non_null(taken);
    *taken = cm.queue[0];
    memmove(cm.queue, cm.queue + 1, --cm.count * sizeof *cm.queue);
    struct rdma_cm_event *event = &taken->event;
    if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
        uint32_t length = event->param.conn.private_data_len;
        event->listen_id = cm.listener;
        struct fake_id *id = id_new(channel, cm.listener->context);
        id->is_call = true;
        event->id = &id->cm;
        /* On its own, and as long as it says: who reads on is seen by the sanitizers. */
        uint8_t *said = malloc(length > 0 ? length : 1);
        assert_non_null(said);
        memcpy(said, taken->said, length);
        event->param.conn.private_data = length > 0 ? said : NULL;
        if (length == 0)
            free(said);
    }
    id_of(event->id)->events.taken++;
    show();
    pthread_mutex_unlock(&cm.mutex);
    *event_out = event;
    return 0;
}

int rdma_ack_cm_event(struct rdma_cm_event *event) {
    pthread_mutex_lock(&cm.mutex);
    struct fake_count *events = &id_of(event->id)->events;
    assert_true(events->acknowledged < events->taken);
    events->acknowledged++;
    pthread_cond_broadcast(&cm.changed);
    pthread_mutex_unlock(&cm.mutex);
    free((void *)(uintptr_t)event->param.conn.private_data);
    free((struct queued *)(void *)event);
    return 0;
}

/* ---- devices ---- */

static struct weir_device *open_as(uint32_t vendor_id) {
    fake_reset();
    fake_iwarp();
    fake.attr.vendor_id = vendor_id;
    fake_cm_reset();
    fake.numbers_grow = true;
    fake.inline_most = 64;
    struct weir_device *device =
        device_open_with((struct weir_device_wishes){.cq_depth = IWARP_CQ});
    assert_true(device->fenced);
    assert_int_equal(device->cqs[0]->capacity, IWARP_CQ);
    assert_int_equal(fake_cm.ids, 1); /* it listens */
    return device;
}

struct weir_device *iwarp_open(void) {
    return open_as(0);
}

struct weir_device *iwarp_open_siw(void) {
    return open_as(0x626d74);
}

void iwarp_close(struct weir_device *device) {
    assert_int_equal(fake_cm_count(&fake_cm.ids), 1);
    assert_int_equal(device->cqs[0]->used, device->srq_depth);
    device_close(device);
    assert_int_equal(fake_cm.ids, 0);
    assert_int_equal(fake_cm.channels, 0);
}

struct weir_qp *iwarp_create(struct weir_device *device, uint32_t tag) {
    struct weir_qp_granted granted;
    return qp_create(device, tag, &granted);
}

int iwarp_connect(struct weir_qp *qp, uint64_t cookie, bool crossing) {
    struct verbs_address there = {.fabric = FABRIC_IWARP,
                                  .gid.raw = {[10] = 0xff, [11] = 0xff, 10, 77, 0, 2},
                                  .tcp_port = PEER_PORT,
                                  .cookie = cookie,
                                  .fence = PEER_FENCE,
                                  .fence_key = PEER_FENCE_KEY};
    uint8_t blob[WEIR_QP_BLOB_MAX];
    struct weir_qp_path path = {.mtu = 1024, .rd_atomic = 3, .blob = blob, .crossing = crossing};
    path.blob_length = blob_write_address(&there, blob);
    return verbs_qp_connect(qp, &path);
}

struct weir_async iwarp_event(struct weir_device *device) {
    struct weir_async event;
    for (;;) {
        struct pollfd something = {.fd = verbs_fd(device), .events = POLLIN};
        assert_int_equal(poll(&something, 1, 10000), 1);
        int count = verbs_events(device, &event, 1);
        assert_true(count >= 0);
        if (count == 1)
            return event;
    }
}

void iwarp_expect(struct weir_device *device, uint32_t type, const struct weir_qp *qp, int error) {
    struct weir_async event = iwarp_event(device);
    assert_int_equal(event.type, type);
    assert_int_equal(event.qp_tag, qp->tag);
    assert_int_equal(event.error, error);
}

/* A thread that is calling may bring the manager another event behind a look. */
void iwarp_expect_none(struct weir_device *device) {
    struct weir_async events[4];
    int looks = 0;
    do {
        assert_int_equal(verbs_events(device, events, 4), 0);
    } while (fake_cm_waiting() != 0 && ++looks < 100);
    assert_int_equal(fake_cm_waiting(), 0);
}

void iwarp_until(struct weir_device *device, const struct weir_qp *qp, enum verbs_link link) {
    while (qp->link != link) {
        struct pollfd something = {.fd = verbs_fd(device), .events = POLLIN};
        struct weir_async events[4];
        assert_int_equal(poll(&something, 1, 10000), 1);
        assert_int_equal(verbs_events(device, events, 4), 0);
    }
}

struct fake_id *iwarp_dial(struct weir_qp *qp) {
    uint32_t before = fake_cm_count(&fake_cm.dials);
    assert_int_equal(iwarp_connect(qp, PEER_COOKIE, false), WEIR_EINPROGRESS);
    fake_cm_wait(&fake_cm.dials, before + 1);
    iwarp_until(qp->device, qp, LINK_DIALLED);
    return fake_cm_id_of(qp);
}

struct weir_qp *iwarp_make(struct weir_device *device, uint32_t tag) {
    struct weir_qp *qp = iwarp_create(device, tag);
    fake_cm_event(iwarp_dial(qp), RDMA_CM_EVENT_ESTABLISHED);
    iwarp_expect(device, WEIR_ASYNC_CONNECTED, qp, 0);
    assert_int_equal(qp->state, QP_READY);
    return qp;
}

void iwarp_destroy(struct weir_qp *qp) {
    const struct timespec pause = {.tv_nsec = 1000000};
    int rc = verbs_qp_destroy(qp);
    for (int tries = 0; rc == WEIR_EBUSY && tries < 300000; tries++) {
        nanosleep(&pause, NULL);
        rc = verbs_qp_destroy(qp);
    }
    assert_int_equal(rc, 0);
}
