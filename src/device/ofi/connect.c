/* SPDX-License-Identifier: Apache-2.0 */
/* connect.c: how a QP gets its connection.
 *
 * A device listens on a port of its own at the address that it chose. The side that connects first
 * dials; the other side takes the call for the QP that it names, also before it is asked to connect
 * that QP, so that neither has to wait for the other.
 *
 *   NONE ──called──► ACCEPTED ──established──► UP ──► DOWN
 *    └───dialled───► DIALLED ───established────▲        any failure ──► DOWN
 *
 * Both may be asked to connect at once. Of the two the one with the lesser cookie waits a while for
 * the other's call before it dials itself. If it has dialled when that call comes, since it was
 * long on its way, or was lost, its own call gives way; the other side refuses it.
 *
 * The caller says which QP it wants, and which of its own calls: cookies that only the two sides
 * know. Before anything is posted the caller must have turned out to be who the QP was told to
 * connect to.
 *
 * Owns the listener, and the endpoints of QPs until they are up. Nothing blocks. */
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/timerfd.h>

#include "fork.h"
#include "ofi.h"

#define NS_PER_S UINT64_C(1000000000)
#define CALL_NS  UINT64_C(1000000000) /* that the one waits for the other's call */
#define DIAL_NS  UINT64_C(3000000000) /* and for the answer to its own */
enum { LAST_LOOKS = 4 };

/* A caller's message. In its own byte order: a QP is named by bytes. */
struct call {
    uint8_t magic[4];
    uint8_t zero[4];
    uint64_t called, caller; /* cookies */
};
static const uint8_t call_magic[4] = {'W', 'E', 'I', 'R'};

/* An event, with the longest message that comes with one. */
union eq_entry {
    struct fi_eq_cm_entry cm;
    uint8_t bytes[sizeof(struct fi_eq_cm_entry) + 512];
};

/* ---- the listener ---- */

static uint16_t port_of(const struct sockaddr_storage *address) {
    return ntohs(address->ss_family == AF_INET ? ((const struct sockaddr_in *)address)->sin_port
                                               : ((const struct sockaddr_in6 *)address)->sin6_port);
}

int connect_open(struct weir_device *device) {
    struct sockaddr_storage *at = &device->listener;
    size_t size = sizeof *at;
    if (fi_passive_ep(device->fabric, device->choice.info, &device->pep, NULL) != 0 ||
        fi_pep_bind(device->pep, &device->eq->fid, 0) != 0 || fi_listen(device->pep) != 0 ||
        fi_getname(&device->pep->fid, at, &size) != 0)
        return WEIR_EDEVICE;
    device->port = port_of(at);
    inherit_note_listener(device);
    if (device->port == 0 || !ofi_address_of(at, device->ip))
        return WEIR_EDEVICE;
    return visitors_open(device);
}

void connect_close(struct weir_device *device) {
    for (int i = 0; device->pep != NULL && i < LAST_LOOKS; i++) {
        visitors_end(device);
        connect_look(device); /* the provider closes them */
    }
    fork_hold();
    if (device->listen_fd >= 0)
        fork_disown(device->listen_fd);
    if (device->pep != NULL)
        fi_close(&device->pep->fid);
    fork_release();
    device->pep = NULL;
}

/* ---- waiting ---- */

/* The alarm is for the first of all that wait. */
static void set_alarm(const struct weir_device *device) {
    uint64_t first = UINT64_MAX, now = device_now(device);
    for (uint32_t i = 0, seen = 0; seen < device->connecting && i < OFI_QPS_MAX; i++) {
        const struct weir_qp *qp = device->qps[i];
        if (qp == NULL || qp->due_ns == 0)
            continue;
        seen++;
        first = qp->due_ns < first ? qp->due_ns : first;
    }
    uint64_t left = first == UINT64_MAX ? 0 : first > now ? first - now : 1; /* 0 is never */
    struct itimerspec alarm = {
        .it_value = {.tv_sec = (time_t)(left / NS_PER_S), .tv_nsec = (long)(left % NS_PER_S)}};
    timerfd_settime(device->timer_fd, 0, &alarm, NULL);
}

static void set_due(struct weir_qp *qp, uint64_t due_ns) {
    struct weir_device *device = qp->device;
    device->connecting -= qp->due_ns != 0;
    device->connecting += due_ns != 0;
    qp->due_ns = due_ns;
    set_alarm(device);
}

/* ---- endpoints ---- */

void connect_drop(struct weir_qp *qp) {
    if (qp->due_ns != 0)
        set_due(qp, 0);
    if (qp->ep != NULL)
        inherit_close(qp);
    qp->link = OFI_LINK_DOWN;
}

/* With what it needs before it is connected, its receives among them. */
static int make(struct weir_qp *qp, struct fi_info *info) {
    struct weir_device *device = qp->device;
    fork_hold();
    int rc = fi_endpoint(device->domain, info, &qp->ep, NULL);
    fork_release();
    if (rc != 0) {
        qp->ep = NULL;
        return fabric_error(rc);
    }
    qp->alive_ns = device_now(device);
    qp->fence_sent = qp->fence_done = device->fence;
    rc = fi_ep_bind(qp->ep, &device->eq->fid, 0);
    if (rc == 0)
        rc = fi_ep_bind(qp->ep, &device->cq->fid, FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION);
    if (rc == 0)
        rc = fi_enable(qp->ep);
    if (rc != 0)
        return fabric_error(rc);
    return receives_give(qp) ? WEIR_OK : WEIR_ENOMEM;
}

static void up(struct weir_qp *qp) {
    qp->link = OFI_LINK_UP;
    inherit_note(qp);
}

void connect_end(struct weir_qp *qp, int result) {
    if (qp->due_ns != 0)
        set_due(qp, 0);
    qp->state = result == WEIR_OK ? OFI_READY : OFI_FAILED;
    qp->connect_result = result;
    qp->tells_connected = true;
    qp->device->untold++;
    if (result != WEIR_OK)
        connect_drop(qp);
}

/* Of a call that nobody took: another connection may follow. The completions of its end are heard
 * before that, and its receives are the next endpoint's. */
static void take_back(struct weir_qp *qp) {
    connect_drop(qp);
    ofi_drain(qp->device);
    qp->rq_given = qp->rq_seen;
    qp->link = OFI_LINK_NONE;
}

/* ---- dialling ---- */

static void write_socket_address(const struct ofi_address *address, struct sockaddr_storage *out) {
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    memset(out, 0, sizeof *out);
    if (memcmp(address->ip, mapped, sizeof mapped) == 0) {
        struct sockaddr_in *v4 = (struct sockaddr_in *)out;
        v4->sin_family = AF_INET;
        v4->sin_port = htons(address->port);
        memcpy(&v4->sin_addr, address->ip + sizeof mapped, 4);
    } else {
        struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;
        v6->sin6_family = AF_INET6;
        v6->sin6_port = htons(address->port);
        memcpy(&v6->sin6_addr, address->ip, OFI_ADDRESS_BYTES);
    }
}

/* The endpoint gets a port of its own at this side's address. */
static int dial(struct weir_qp *qp) {
    struct weir_device *device = qp->device;
    struct sockaddr_storage to;
    struct call call = {.called = qp->there.cookie, .caller = qp->own.cookie};
    memcpy(call.magic, call_magic, sizeof call.magic);
    write_socket_address(&qp->there, &to);
    int rc = make(qp, device->choice.info);
    if (rc != WEIR_OK)
        return rc;
    rc = fi_connect(qp->ep, &to, &call, sizeof call);
    if (rc != 0)
        return rc == -FI_ENOMEM ? WEIR_ENOMEM : WEIR_EPEER;
    qp->link = OFI_LINK_DIALLED;
    qp->waits = false;
    set_due(qp, device_now(device) + DIAL_NS);
    return WEIR_OK;
}

/* ---- calls of others ---- */

static struct weir_qp *qp_by_cookie(const struct weir_device *device, uint64_t cookie) {
    for (uint32_t i = 0, seen = 0; seen < device->qp_count && i < OFI_QPS_MAX; i++) {
        struct weir_qp *qp = device->qps[i];
        seen += qp != NULL;
        if (qp != NULL && qp->own.cookie == cookie)
            return qp;
    }
    return NULL;
}

/* Takes a call for a QP that has no connection. The information is of the call, and has its
 * socket until the endpoint has it. */
static bool take_call(struct weir_qp *qp, struct fi_info *info, uint64_t caller) {
    if (qp->link == OFI_LINK_DIALLED)
        take_back(qp);
    int rc = make(qp, info);
    if (rc == WEIR_OK) {
        inherit_note(qp);
        rc = fi_accept(qp->ep, NULL, 0);
    }
    if (rc != 0) { /* the endpoint looks at the call that reject frees */
        connect_drop(qp);
        fi_reject(qp->device->pep, info->handle, NULL, 0);
        return false;
    }
    qp->caller = caller;
    qp->link = OFI_LINK_ACCEPTED;
    qp->waits = false;
    if (qp->state == OFI_CONNECTING)
        set_due(qp, device_now(qp->device) + DIAL_NS);
    return true;
}

static bool is_wanted(const struct weir_qp *qp, const struct call *call) {
    if (qp == NULL || call->caller == 0)
        return false;
    if (qp->state == OFI_INIT)
        return qp->link == OFI_LINK_NONE;
    return qp->state == OFI_CONNECTING && qp->crosses && call->caller == qp->there.cookie &&
           (qp->waits || qp->link == OFI_LINK_DIALLED);
}

static void called(struct weir_device *device, const union eq_entry *entry, size_t length) {
    struct call call = {.caller = 0};
    struct weir_qp *qp = NULL;
    if (length >= sizeof entry->cm + sizeof call) {
        memcpy(&call, entry->cm.data, sizeof call);
        if (memcmp(call.magic, call_magic, sizeof call_magic) == 0)
            qp = qp_by_cookie(device, call.called);
    }
    if (!is_wanted(qp, &call))
        fi_reject(device->pep, entry->cm.info->handle, NULL, 0);
    else if (!take_call(qp, entry->cm.info, call.caller) && qp->state == OFI_CONNECTING)
        connect_end(qp, WEIR_EPEER);
    device->library->freeinfo(entry->cm.info);
}

/* ---- connecting ---- */

/* Without a call so far: waits for one, or dials. */
static int begin(struct weir_qp *qp, bool crossing) {
    qp->state = OFI_CONNECTING;
    qp->crosses = crossing && qp->own.cookie < qp->there.cookie;
    qp->waits = qp->crosses;
    int rc = WEIR_OK;
    if (qp->waits)
        set_due(qp, device_now(qp->device) + CALL_NS);
    else
        rc = dial(qp);
    if (rc == WEIR_OK)
        return WEIR_EINPROGRESS;
    connect_drop(qp);
    qp->state = OFI_FAILED;
    return rc;
}

static int connect_locked(struct weir_qp *qp, const struct weir_qp_path *path) {
    if (qp->state != OFI_INIT ||
        ofi_blob_read_address(path->blob, path->blob_length, &qp->there) != WEIR_OK)
        return WEIR_EINVAL;
    if (qp->link == OFI_LINK_NONE)
        return begin(qp, path->crossing);
    /* The connection is down already, or its caller knew the cookie and is not the peer. */
    if (qp->link == OFI_LINK_DOWN || qp->caller != qp->there.cookie) {
        connect_drop(qp);
        qp->state = OFI_FAILED;
        return WEIR_EPEER;
    }
    if (qp->link == OFI_LINK_UP) {
        qp->state = OFI_READY;
        return WEIR_OK;
    }
    qp->state = OFI_CONNECTING;
    set_due(qp, device_now(qp->device) + DIAL_NS);
    return WEIR_EINPROGRESS;
}

int ofi_qp_connect(struct weir_qp *qp, const struct weir_qp_path *path) {
    device_lock(qp->device);
    int rc = connect_locked(qp, path);
    device_unlock(qp->device);
    return rc;
}

/* ---- what comes of it ---- */

static struct weir_qp *qp_by_endpoint(const struct weir_device *device, fid_t fid) {
    for (uint32_t i = 0, seen = 0; seen < device->qp_count && i < OFI_QPS_MAX; i++) {
        struct weir_qp *qp = device->qps[i];
        seen += qp != NULL;
        if (qp != NULL && qp->ep != NULL && &qp->ep->fid == fid)
            return qp;
    }
    return NULL;
}

static void established(struct weir_qp *qp) {
    if (qp->link != OFI_LINK_DIALLED && qp->link != OFI_LINK_ACCEPTED)
        return;
    up(qp);
    if (qp->state == OFI_CONNECTING)
        connect_end(qp, WEIR_OK);
}

/* Its call was refused, since the other side has called meanwhile: that call is on its way. */
static void wait_on(struct weir_qp *qp) {
    take_back(qp);
    qp->waits = true;
    qp->is_last = true;
    set_due(qp, device_now(qp->device) + DIAL_NS);
}

void connect_lost(struct weir_qp *qp) {
    if (qp->state == OFI_CONNECTING && qp->crosses && qp->link == OFI_LINK_DIALLED)
        wait_on(qp);
    else if (qp->state == OFI_CONNECTING)
        connect_end(qp, WEIR_EPEER);
    else if (qp->state == OFI_READY)
        qp_note_failure(qp);
    else if (qp->state == OFI_INIT)
        connect_drop(qp); /* it was taken before this side was asked */
}

static bool look_at_one(struct weir_device *device) {
    union eq_entry entry;
    uint32_t event = 0;
    int before = errno;
    errno = 0; /* tcp of libfabric 1.17 takes one that was left there for that of a socket's end */
    ssize_t got = fi_eq_read(device->eq, &event, &entry, sizeof entry, 0);
    struct weir_qp *qp = NULL;
    errno = before;
    if (got == -FI_EAVAIL) {
        struct fi_eq_err_entry error = {.err = 0};
        if (fi_eq_readerr(device->eq, &error, 0) <= 0)
            return false;
        qp = qp_by_endpoint(device, error.fid);
        event = FI_SHUTDOWN;
    } else if (got < (ssize_t)sizeof entry.cm) {
        return false;
    } else if (event == FI_CONNREQ) {
        called(device, &entry, (size_t)got);
        return true;
    } else {
        qp = qp_by_endpoint(device, entry.cm.fid);
    }
    if (qp != NULL && event == FI_CONNECTED)
        established(qp);
    else if (qp != NULL && event == FI_SHUTDOWN)
        connect_lost(qp);
    return true;
}

/* Dials where no call came, and gives up where no answer did. */
static void look_at_time(struct weir_device *device) {
    uint64_t now = device_now(device);
    for (uint32_t i = 0, left = device->connecting; left > 0 && i < OFI_QPS_MAX; i++) {
        struct weir_qp *qp = device->qps[i];
        if (qp == NULL || qp->due_ns == 0)
            continue;
        left--;
        if (qp->due_ns > now)
            continue;
        int rc = qp->waits && !qp->is_last ? dial(qp) : WEIR_EPEER;
        if (rc != WEIR_OK)
            connect_end(qp, rc);
    }
}

enum { EVENTS = 64 };

bool connect_look(struct weir_device *device) {
    int left = EVENTS;
    while (left > 0 && !device->lost && look_at_one(device))
        left--;
    if (device->connecting > 0)
        look_at_time(device);
    visitors_look(device);
    return left > 0;
}
