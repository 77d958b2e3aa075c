/* SPDX-License-Identifier: Apache-2.0 */
/* cm.c: connections of iWARP QPs, which only the connection manager makes (rdma_cm(7)): it
 * dials over TCP, speaks MPA (RFC 5044, RFC 6581) and takes the QP to RTS itself.
 *
 * A device listens on a port of its own at the address that it chose. The side that connects first
 * dials; the other side takes the call for the QP that it names, also before it is asked to connect
 * that QP, so that neither has to wait for the other.
 *
 *   NONE ──called──► ACCEPTED ──established──► UP ──► DOWN
 *    └───dialled───► DIALLED ───established────▲        any failure ──► DOWN
 *
 * Both may be asked to connect at once. A QP that has called is of no more use for another
 * connection, so of the two the one with the lesser cookie waits a while for the other's call
 * before it dials itself. If both dial all the same both are rejected, and the attempt has failed.
 *
 * The caller says which QP it wants, and which of its own calls: cookies that only the two
 * sides know. Before anything is posted the caller must have turned out to be who the QP was
 * told to connect to.
 *
 * Owns the channel, the listener, the memory that fences read (fence.c), and the ids of all
 * connections. Invariants: an id belongs to one QP, as its context says, which is set before
 * any event of it can come, and goes before its QP; a QP has one id.
 * Work that blocks (addresses are resolved, software devices wait for TCP, and a call for its
 * answer) is done by a connector's thread: cm_dial, cm_drop. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "fork.h"
#include "verbs.h"

enum { RESOLVE_MS = 100, RESOLVES = 20, ROUTE_MS = 2000, BACKLOG = 1024, TRIES = 4 };
#define NS_PER_S UINT64_C(1000000000)
#define CALL_NS  UINT64_C(200000000) /* that the one waits for the other's call */

/* A caller's message (private data). In its own byte order: a QP is named by bytes. */
struct call {
    uint8_t magic[4];
    uint8_t zero[4];
    uint64_t called, caller; /* cookies */
};
static const uint8_t call_magic[4] = {'W', 'E', 'I', 'R'};
/* ---- addresses ---- */

static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff}; /* ::ffff:a.b.c.d */

union socket_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_storage storage;
};

static union socket_address socket_of(const union ibv_gid *gid, uint16_t port) {
    union socket_address address = {.storage = {0}};
    if (memcmp(gid->raw, mapped, sizeof mapped) == 0) {
        address.v4.sin_family = AF_INET;
        address.v4.sin_port = htons(port);
        memcpy(&address.v4.sin_addr, gid->raw + sizeof mapped, 4);
    } else {
        address.v6.sin6_family = AF_INET6;
        address.v6.sin6_port = htons(port);
        memcpy(&address.v6.sin6_addr, gid->raw, sizeof gid->raw);
    }
    return address;
}

static bool gid_of(const struct sockaddr *address, union ibv_gid *gid_out) {
    const union socket_address *any = (const union socket_address *)address;
    memset(gid_out, 0, sizeof *gid_out);
    if (address->sa_family == AF_INET) {
        memcpy(gid_out->raw, mapped, sizeof mapped);
        memcpy(gid_out->raw + sizeof mapped, &any->v4.sin_addr, 4);
        return true;
    }
    if (address->sa_family != AF_INET6)
        return false;
    memcpy(gid_out->raw, &any->v6.sin6_addr, sizeof gid_out->raw);
    return true;
}

/* ---- channels, whose descriptors no child may inherit (fork.h): a connection lives as long
 * as a descriptor of its channel is open anywhere ---- */

static struct rdma_event_channel *channel_open(void) {
    fork_hold();
    struct rdma_event_channel *channel = rdma_create_event_channel();
    if (channel != NULL && !fork_note(channel->fd)) {
        rdma_destroy_event_channel(channel);
        channel = NULL;
    }
    fork_release();
    return channel;
}

static void channel_close(struct rdma_event_channel *channel) {
    fork_hold();
    fork_disown(channel->fd);
    rdma_destroy_event_channel(channel);
    fork_release();
}

/* An id with a channel of its own: its calls block. NULL: errno says why. */
static struct rdma_cm_id *dialler_open(struct weir_qp *qp) {
    struct rdma_cm_id *id = NULL;
    fork_hold();
    if (rdma_create_id(NULL, &id, qp, RDMA_PS_TCP) != 0)
        id = NULL;
    if (id != NULL && !fork_note(id->channel->fd)) {
        rdma_destroy_id(id);
        id = NULL;
        errno = ENOMEM;
    }
    fork_release();
    return id;
}

/* Moves the id to this channel, on which its connection's events come then; its own channel is
 * closed. 0, or -1 and errno. */
static int dialler_move(struct rdma_cm_id *id, struct rdma_event_channel *channel) {
    fork_hold();
    fork_disown(id->channel->fd);
    int rc = rdma_migrate_id(id, channel);
    if (rc != 0)
        fork_note(id->channel->fd); /* there is room: it was noted before */
    fork_release();
    return rc;
}

static void dialler_close(struct rdma_cm_id *id, const struct rdma_event_channel *moved_to) {
    if (id->channel == moved_to) {
        rdma_destroy_id(id);
        return;
    }
    fork_hold();
    fork_disown(id->channel->fd);
    rdma_destroy_id(id);
    fork_release();
}

/* Whether the connection manager finds this device at an address. */
static bool belongs(struct rdma_event_channel *channel, const union ibv_gid *gid,
                    const char *device_name) {
    struct rdma_cm_id *id;
    union socket_address at = socket_of(gid, 0);
    if (rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) != 0)
        return false;
    bool found = rdma_bind_addr(id, &at.any) == 0 && id->verbs != NULL &&
                 strcmp(ibv_get_device_name(id->verbs->device), device_name) == 0;
    rdma_destroy_id(id);
    return found;
}

bool cm_has_address(const char *device_name, const union ibv_gid *address) {
    struct rdma_event_channel *channel = channel_open();
    if (channel == NULL)
        return false;
    bool found = belongs(channel, address, device_name);
    channel_close(channel);
    return found;
}

/* An address of this link only would need its scope as well, and a loopback address is found
 * on any device. */
bool cm_address(const char *device_name, union ibv_gid *address_out, const char **why_out) {
    struct rdma_event_channel *channel = channel_open();
    struct ifaddrs *interfaces = NULL;
    int best = GID_LINK_LOCAL;
    *why_out = "iWARP needs the kernel's rdma_ucm";
    if (channel == NULL)
        return false;
    *why_out = "iWARP, and its interface has no IP address";
    fork_hold(); /* it opens a socket */
    if (getifaddrs(&interfaces) != 0)
        interfaces = NULL;
    fork_release();
    for (const struct ifaddrs *at = interfaces; at != NULL; at = at->ifa_next) {
        union ibv_gid gid;
        if (at->ifa_addr == NULL || (at->ifa_flags & IFF_LOOPBACK) != 0 ||
            !gid_of(at->ifa_addr, &gid) || gid_rank(&gid) <= best ||
            !belongs(channel, &gid, device_name))
            continue;
        best = gid_rank(&gid);
        *address_out = gid;
    }
    freeifaddrs(interfaces);
    channel_close(channel);
    return best > GID_LINK_LOCAL;
}

/* ---- open, close ---- */

static int listen_at(struct weir_device *device) {
    struct verbs_cm *cm = &device->cm;
    union socket_address at = socket_of(&device->choice.gid, 0);
    if (rdma_create_id(cm->channel, &cm->listener, NULL, RDMA_PS_TCP) != 0)
        return WEIR_EDEVICE;
    if (rdma_bind_addr(cm->listener, &at.any) != 0 || rdma_listen(cm->listener, BACKLOG) != 0)
        return WEIR_EDEVICE;
    cm->port = ntohs(rdma_get_src_port(cm->listener));
    return cm->port != 0 ? WEIR_OK : WEIR_EDEVICE;
}

int cm_open(struct weir_device *device) {
    struct verbs_cm *cm = &device->cm;
    /* Peers read the one word, and we fill the other: nothing that is there matters. */
    cm->fence_mr =
        ibv_reg_mr(device->pd, cm->fence, sizeof cm->fence,
                   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
    cm->channel = channel_open();
    fork_hold();
    cm->timer_fd = fork_own(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    fork_release();
    if (cm->fence_mr == NULL || cm->channel == NULL || cm->timer_fd < 0)
        return WEIR_EDEVICE;
    cm->fd = cm->channel->fd;
    int flags = fcntl(cm->fd, F_GETFL);
    if (flags < 0 || fcntl(cm->fd, F_SETFL, flags | O_NONBLOCK) != 0)
        return WEIR_EDEVICE;
    return listen_at(device);
}

void cm_close(struct weir_device *device) {
    struct verbs_cm *cm = &device->cm;
    enum verbs_sigpipe hold = sigpipe_hold(device); /* calls that nobody took are rejected */
    if (cm->listener != NULL)
        rdma_destroy_id(cm->listener);
    if (cm->channel != NULL)
        channel_close(cm->channel);
    sigpipe_release(hold);
    if (cm->timer_fd > 0)
        fork_close(cm->timer_fd);
    if (cm->fence_mr != NULL)
        ibv_dereg_mr(cm->fence_mr);
    *cm = (struct verbs_cm){0};
}

/* ---- dialling ---- */

static struct rdma_conn_param parameters(const struct weir_qp *qp) {
    return (struct rdma_conn_param){.responder_resources = qp->to_rtr.max_dest_rd_atomic,
                                    .initiator_depth = qp->to_rts.max_rd_atomic,
                                    .retry_count = qp->to_rts.retry_cnt,
                                    .rnr_retry_count = qp->to_rts.rnr_retry,
                                    .srq = qp->device->srq != NULL,
                                    .qp_num = qp->qpn};
}

/* EPEER: the address does not answer now, and may later. */
static int dial_error(int error) {
    switch (error) {
    case EMFILE:
    case ENFILE:
        return WEIR_EMFILE;
    case ENOMEM:
        return WEIR_ENOMEM;
    case ECONNREFUSED:
    case ECONNRESET:
    case ETIMEDOUT:
    case ENETUNREACH:
    case EHOSTUNREACH:
    case EADDRNOTAVAIL:
        return WEIR_EPEER;
    default:
        return WEIR_EDEVICE;
    }
}

/* In many short tries: Linux overlooks a neighbour that answers before it has begun to wait for
 * the answer, as on a fast link, and sees it when the time is over. */
static int resolve(const struct weir_qp *qp, struct rdma_cm_id *id) {
    union socket_address from = socket_of(&qp->source.address.gid, 0);
    union socket_address to = socket_of(&qp->there.gid, qp->there.tcp_port);
    int rc, left = RESOLVES;
    do
        rc = rdma_resolve_addr(id, &from.any, &to.any, RESOLVE_MS);
    while (rc != 0 && errno == ETIMEDOUT && --left > 0);
    return rc;
}

static int dial(const struct weir_qp *qp, struct rdma_cm_id *id) {
    const struct weir_device *device = qp->device;
    uint8_t class = (uint8_t)device->settings.traffic_class;
    struct call call = {.called = qp->there.cookie, .caller = qp->source.address.cookie};
    memcpy(call.magic, call_magic, sizeof call.magic);
    struct rdma_conn_param wanted = parameters(qp);
    wanted.private_data = &call;
    wanted.private_data_len = sizeof call;
    if (resolve(qp, id) != 0)
        return dial_error(errno);
    if (class != 0)
        rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &class, sizeof class);
    if (rdma_resolve_route(id, ROUTE_MS) != 0 || dialler_move(id, device->cm.channel) != 0 ||
        rdma_connect(id, &wanted) != 0)
        return dial_error(errno);
    return WEIR_OK;
}

/* An id with a channel of its own is synchronous: its calls block, and no other id
 * has events there. The answer comes to the device's channel. */
int cm_dial(struct weir_qp *qp) {
    struct rdma_cm_id *id = dialler_open(qp);
    if (id == NULL)
        return dial_error(errno);
    int rc = dial(qp, id);
    if (rc == WEIR_OK)
        qp->link_id = id;
    else
        dialler_close(id, qp->device->cm.channel);
    return rc;
}

/* ---- those that wait for a call ---- */

static uint64_t now_ns(const struct weir_device *device) {
    return device->env.ops->now(device->env.self);
}

/* Sets the alarm for the first QP that waits. If none waits it takes the alarm back, also one that
 * has fired and was not read. */
static void set_alarm(const struct verbs_cm *cm, uint64_t now) {
    uint64_t due = cm->wait_first != NULL ? cm->wait_first->dial_ns : 0;
    uint64_t left = due > now ? due - now : due != 0; /* 0 is never */
    struct itimerspec alarm = {
        .it_value = {.tv_sec = (time_t)(left / NS_PER_S), .tv_nsec = (long)(left % NS_PER_S)}};
    timerfd_settime(cm->timer_fd, 0, &alarm, NULL);
}

static void stop_waiting(struct weir_qp *qp) {
    struct verbs_cm *cm = &qp->device->cm;
    if (!qp->waits)
        return;
    struct weir_qp **at = &cm->wait_first, *before = NULL;
    while (*at != qp) {
        before = *at;
        at = &before->connect_next;
    }
    *at = qp->connect_next;
    if (cm->wait_last == qp)
        cm->wait_last = before;
    if (cm->wait_first == NULL)
        set_alarm(cm, 0);
    qp->waits = false;
}

void cm_give_up(struct weir_qp *qp) {
    stop_waiting(qp);
}

/* ---- calls of others ---- */

static void reject(const struct weir_device *device, struct rdma_cm_id *id) {
    enum verbs_sigpipe hold = sigpipe_hold(device);
    rdma_reject(id, NULL, 0);
    rdma_destroy_id(id);
    sigpipe_release(hold);
}

static void link_down(struct weir_qp *qp) {
    enum verbs_sigpipe hold = sigpipe_hold(qp->device);
    if (qp->link_id != NULL)
        rdma_destroy_id(qp->link_id);
    sigpipe_release(hold);
    qp->link_id = NULL;
    qp->link = LINK_DOWN;
}

/* Takes a call for a QP that has no connection. False: it was gone. */
static bool take_call(struct weir_qp *qp, struct rdma_cm_id *id, uint64_t caller) {
    /* Not asked to connect yet, it has no limits of its own. */
    uint8_t reads = (uint8_t)qp->device->caps.rd_atomic_max;
    struct rdma_conn_param granted = {.responder_resources = reads,
                                      .initiator_depth = reads,
                                      .rnr_retry_count = 6,
                                      .srq = qp->device->srq != NULL,
                                      .qp_num = qp->qpn};
    stop_waiting(qp);
    id->context = qp;
    qp->link_id = id;
    qp->caller = caller;
    qp->link = LINK_ACCEPTED;
    enum verbs_sigpipe hold = sigpipe_hold(qp->device);
    bool accepted = rdma_accept(id, &granted) == 0;
    sigpipe_release(hold);
    if (!accepted)
        link_down(qp);
    return accepted;
}

static struct weir_qp *qp_by_cookie(const struct weir_device *device, uint64_t cookie) {
    uint32_t seen = 0;
    for (uint32_t i = 0; seen < device->qp_count && i < VERBS_QPS_MAX; i++) {
        struct weir_qp *qp = device->qps[i];
        seen += qp != NULL;
        if (qp != NULL && qp->source.address.cookie == cookie)
            return qp;
    }
    return NULL;
}

static bool read_call(const struct rdma_cm_event *event, struct call *call_out) {
    if (event->param.conn.private_data_len < sizeof *call_out)
        return false;
    memcpy(call_out, event->param.conn.private_data, sizeof *call_out);
    return memcmp(call_out->magic, call_magic, sizeof call_magic) == 0;
}

/* The event is acknowledged already. */
static void called(struct weir_device *device, struct rdma_cm_id *id, const struct call *call) {
    struct weir_qp *qp = qp_by_cookie(device, call->called);
    bool wanted = qp != NULL && call->caller != 0 && qp->link == LINK_NONE &&
                  (qp->state == QP_INIT || (qp->expects && call->caller == qp->there.cookie));
    if (!wanted)
        reject(device, id);
    else if (!take_call(qp, id, call->caller) && qp->expects)
        connector_fail(qp, WEIR_EPEER);
}

/* ---- connecting ---- */

/* Expects the other side's call, and dials when it did not come: dial_late. */
static void await_call(struct weir_qp *qp) {
    struct verbs_cm *cm = &qp->device->cm;
    qp->state = QP_CONNECTING;
    qp->expects = qp->waits = true;
    qp->dial_ns = now_ns(qp->device) + CALL_NS;
    qp->connect_next = NULL;
    if (cm->wait_last != NULL)
        cm->wait_last->connect_next = qp;
    else
        cm->wait_first = qp;
    cm->wait_last = qp;
    set_alarm(cm, qp->dial_ns - CALL_NS);
}

int cm_connect(struct weir_qp *qp) {
    if (qp->link == LINK_NONE && qp->crosses && qp->source.address.cookie < qp->there.cookie) {
        await_call(qp);
        return WEIR_EINPROGRESS;
    }
    if (qp->link == LINK_NONE)
        return WEIR_EAGAIN;
    /* The connection is down already, or its caller knew the cookie and is not the peer. */
    if (qp->link == LINK_DOWN || qp->caller != qp->there.cookie)
        return WEIR_EPEER;
    qp->expects = qp->link == LINK_ACCEPTED;
    qp->state = qp->expects ? QP_CONNECTING : QP_READY;
    qp->was_ready = qp->state == QP_READY;
    return qp->expects ? WEIR_EINPROGRESS : WEIR_OK;
}

/* Dials for the QPs whose wait is over. The waits are in the order of their ends. */
static void dial_late(struct weir_device *device) {
    struct verbs_cm *cm = &device->cm;
    uint64_t now = now_ns(device), taken;
    if (read(cm->timer_fd, &taken, sizeof taken) < 0)
        taken = 0; /* EAGAIN: it is not time, or another turn was first */
    while (cm->wait_first != NULL && cm->wait_first->dial_ns <= now) {
        struct weir_qp *qp = cm->wait_first;
        stop_waiting(qp);
        qp->expects = false;
        if (!connector_dial(qp))
            connector_fail(qp, WEIR_EDEVICE);
    }
    if (cm->wait_first != NULL)
        set_alarm(cm, now);
}

/* The answer may have been here before we hear that there was a call. */
bool cm_dialled(struct weir_qp *qp) {
    if (qp->connect_result != WEIR_OK) {
        if (qp->link_id == NULL)
            qp->link = LINK_DOWN;
        return true;
    }
    if (qp->link == LINK_NONE)
        qp->link = LINK_DIALLED;
    if (qp->link == LINK_DOWN || qp->error_wanted)
        qp->connect_result = qp->error_wanted ? WEIR_EDEVICE : WEIR_EPEER;
    qp->expects = qp->connect_result == WEIR_OK && qp->link != LINK_UP;
    return !qp->expects;
}

/* To destroy an id whose connection is half made blocks until the other side has answered, or MPA
 * gives up, which takes seconds. So a thread waits for that. */
int cm_hangup(struct weir_qp *qp) {
    stop_waiting(qp);
    if (qp->link_id == NULL)
        return WEIR_OK;
    if (qp->link < LINK_UP) {
        connector_hangup(qp);
        return WEIR_EBUSY;
    }
    link_down(qp);
    return WEIR_OK;
}

void cm_drop(struct weir_qp *qp) {
    rdma_destroy_id(qp->link_id);
}

/* ---- events ---- */

/* The connection is there, or is not (any more). type 0: nobody needs to hear of it. */
static struct weir_async link_event(struct weir_qp *qp, bool up) {
    struct weir_async told = {.type = 0, .qp_tag = qp->tag};
    bool expected = qp->expects;
    qp->link = up ? LINK_UP : LINK_DOWN;
    if (expected) {
        qp->expects = false;
        qp->state = up ? QP_READY : QP_FAILED;
        qp->was_ready = up;
        told.type = WEIR_ASYNC_CONNECTED;
        told.error = up ? WEIR_OK : WEIR_EPEER;
    } else if (!up && qp->state == QP_READY) {
        told.type = WEIR_ASYNC_QP_FATAL;
        verbs_qp_error(qp);
    }
    return told;
}

static struct weir_async event_of(struct weir_device *device, struct rdma_cm_event *event) {
    struct weir_async nothing = {.type = 0};
    enum rdma_cm_event_type type = event->event;
    struct rdma_cm_id *id = event->id;
    struct weir_qp *qp = id->context;
    struct call call;
    bool is_call = type == RDMA_CM_EVENT_CONNECT_REQUEST && read_call(event, &call);
    rdma_ack_cm_event(event); /* to destroy an id waits for this */
    switch (type) {
    case RDMA_CM_EVENT_CONNECT_REQUEST:
        if (is_call)
            called(device, id, &call);
        else
            reject(device, id);
        return nothing;
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
        return (struct weir_async){.type = WEIR_ASYNC_DEVICE_FATAL, .qp_tag = UINT32_MAX};
    case RDMA_CM_EVENT_ESTABLISHED:
        return qp != NULL ? link_event(qp, true) : nothing;
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_REJECTED:
    case RDMA_CM_EVENT_DISCONNECTED:
        return qp != NULL ? link_event(qp, false) : nothing;
    default:
        return nothing;
    }
}

int cm_events(struct weir_device *device, struct weir_async *events_out, int max) {
    int count = 0;
    if (device->cm.wait_first != NULL)
        dial_late(device);
    for (int reads = 0; device->fenced && count < max && reads < TRIES * max; reads++) {
        struct rdma_cm_event *event;
        if (rdma_get_cm_event(device->cm.channel, &event) != 0)
            break; /* EAGAIN; or for good, and then the device's own events say so */
        struct weir_async told = event_of(device, event);
        if (told.type != 0)
            events_out[count++] = told;
    }
    return count;
}
