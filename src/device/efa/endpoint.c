/* SPDX-License-Identifier: Apache-2.0 */
/* endpoint.c: the endpoint with its queues and its table of addresses: opened, given up, renewed.
 *
 * An endpoint is given up where the provider says that it is broken, or has failed itself, where
 * its completion queue says nonsense, and where an operation has no end: only fi_close(3) ends
 * that, of all others of the endpoint too. All QPs fail then, and the thread of serve.c opens
 * another endpoint, whose name QPs that are made from then on tell their peers. Regions are the
 * domain's, and stay. The device is lost if there is no other endpoint, or one after the other is
 * broken at once.
 *
 *   state       ep    broken  lost   left by
 *   up          is    no      no     a sign of the end: broken. An operation without end, or a
 *                                    failure of the provider's own: leaving
 *   leaving     is    no      no     (stops_ns) all QPs have stopped, and by then no message that
 *                                    comes counts as taken by whoever has sent it: broken
 *   broken      is    yes     no     what had come is taken, and it is closed: gone
 *   gone        NULL  no      no     another one: up. None for too long: lost
 *   lost        NULL  no      yes
 *
 * Owns these objects. Left to others: what is on them, which vqp.c, receive.c and av.c end. */
#include <string.h>
#include <sys/epoll.h>

#include "efa.h"
#include "fork.h"

#define SECOND_NS UINT64_C(1000000000)

/* ---- open and close ---- */

/* A queue that overflows is not told of by the provider: it has room for all that may come. Not all
 * versions have descriptors to wait for. */
static int open_cq(struct weir_device *device) {
    struct fi_cq_attr attr = {.size = device->depth + device->receives,
                              .format = FI_CQ_FORMAT_MSG,
                              .wait_obj = FI_WAIT_FD};
    int rc = fi_cq_open(device->domain, &attr, &device->cq, NULL);
    if (rc == 0) {
        if (fi_control(&device->cq->fid, FI_GETWAIT, &device->cq_fd) != 0)
            device->cq_fd = -1;
        return 0;
    }
    attr.wait_obj = FI_WAIT_NONE;
    return fi_cq_open(device->domain, &attr, &device->cq, NULL);
}

/* fi_efa(7), and fi_ext.h of libfabric 1.18 and later, by number: the headers may be older. */
enum {
    OPT_RNR_RETRY = -(0xefa << 16),
    OPT_EMULATED_READ,
    OPT_EMULATED_WRITE,
    OPT_EMULATED_ATOMICS,
    OPT_USE_DEVICE_RDMA
};
enum { RNR_TRIES = 6 }; /* the most that are not without end */

/* A receiver that takes nothing holds a place of the send queue for a while only. Reads and writes
 * that the other side's process would have to do are none: keys would be its word, and to release
 * memory no barrier. */
static int settle(struct fid_ep *ep) {
    size_t tries = RNR_TRIES;
    bool yes = true;
    (void)fi_setopt(&ep->fid, FI_OPT_ENDPOINT, OPT_RNR_RETRY, &tries, sizeof tries);
    (void)fi_setopt(&ep->fid, FI_OPT_ENDPOINT, OPT_USE_DEVICE_RDMA, &yes, sizeof yes);
    for (int option = OPT_EMULATED_READ; option <= OPT_EMULATED_WRITE; option++) {
        bool is_emulated = true;
        size_t length = sizeof is_emulated;
        if (fi_getopt(&ep->fid, FI_OPT_ENDPOINT, option, &is_emulated, &length) != 0 || is_emulated)
            return -FI_ENOSYS;
    }
    return 0;
}

/* The engine that sleeps is woken by completions. */
static int hear(struct weir_device *device) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = device->cq_fd};
    if (device->cq_fd < 0)
        return WEIR_OK;
    fork_hold();
    bool noted = fork_note(device->cq_fd);
    fork_release();
    return noted && epoll_ctl(device->epoll_fd, EPOLL_CTL_ADD, device->cq_fd, &event) == 0
               ? WEIR_OK
               : WEIR_EMFILE;
}

static int open_ep(struct weir_device *device) {
    size_t length = sizeof device->name;
    int rc = fi_endpoint(device->domain, device->choice.info, &device->ep, NULL);
    if (rc == 0)
        rc = fi_ep_bind(device->ep, &device->av->fid, 0);
    if (rc == 0)
        rc = fi_ep_bind(device->ep, &device->eq->fid, 0);
    if (rc == 0)
        rc = fi_ep_bind(device->ep, &device->cq->fid, FI_TRANSMIT | FI_RECV);
    if (rc == 0)
        rc = settle(device->ep);
    if (rc == 0)
        rc = fi_enable(device->ep);
    if (rc == 0)
        rc = fi_getname(&device->ep->fid, device->name, &length);
    memset(device->name + EFA_NAME_MEANS, 0, EFA_NAME_BYTES - EFA_NAME_MEANS);
    return rc;
}

int efa_ep_open(struct weir_device *device) {
    struct fi_av_attr av = {.type = FI_AV_TABLE};
    struct fi_eq_attr eq = {.wait_obj = FI_WAIT_NONE};
    int rc = fi_av_open(device->domain, &av, &device->av, NULL);
    if (rc == 0)
        rc = fi_eq_open(device->fabric, &eq, &device->eq, NULL);
    if (rc == 0)
        rc = open_cq(device);
    if (rc == 0)
        rc = open_ep(device);
    device->opened_ns = device_now(device);
    return rc == 0 ? hear(device) : fabric_error(rc);
}

/* The descriptor may stay readable for good: it must not wake anybody. */
static void close_ep(struct weir_device *device) {
    EFA_CLOSE(device->ep); /* may take long: it waits for what was sent */
    device->ep = NULL;
    if (device->cq_fd >= 0)
        epoll_ctl(device->epoll_fd, EPOLL_CTL_DEL, device->cq_fd, NULL);
}

void efa_ep_close(struct weir_device *device) {
    close_ep(device);
    fork_hold();
    if (device->cq_fd >= 0)
        fork_disown(device->cq_fd);
    EFA_CLOSE(device->cq);
    EFA_CLOSE(device->eq);
    EFA_CLOSE(device->av);
    fork_release();
    device->cq = NULL;
    device->eq = NULL;
    device->av = NULL;
    device->cq_fd = -1;
}

/* ---- its end ---- */

enum { TRIES = 8 }; /* in a row, of which no endpoint lived for long */
#define LIVED_NS (10 * SECOND_NS)

/* Before the next try: none, then a quarter of a second, and twice as long each time. Behind the
 * last one nothing is waited for. */
static uint64_t pause_of(uint32_t tries) {
    return tries == 0 || tries >= TRIES ? 0 : (SECOND_NS / 8) << tries;
}

/* Packets of what was sent may still be under way: that is over when they cannot be any more. */
void efa_ep_bury(struct weir_device *device) {
    static const struct efa_end flushed = {.status = WEIR_CQE_FLUSHED, .is_open = true};
    uint64_t now = device_now(device);
    if (device->av_is_used)
        return;
    close_ep(device);
    device->broken = false;
    device->stops_ns = UINT64_MAX;
    device->stranger_count = 0;
    for (uint32_t i = 0; i < device->depth; i++) {
        if (device->ops[i].state == EFA_OP_SENT)
            op_over(device, i, &flushed);
    }
    receives_bury(device);
    vqps_bury(device);
    if (now - device->opened_ns >= LIVED_NS)
        device->tries = 0;
    device->renew_ns = now + pause_of(device->tries);
    efa_server_wake(device);
}

enum { LOOKS = 7 }; /* that an operation outlives only if it has no end: a minute */
#define LOOK_NS (10 * SECOND_NS)

/* On fabric efa, before libfabric 2.5, fi_close(3) waits for what was sent, and would never return
 * (efa_rdm_ep_wait_send). */
static bool may_close(const struct fi_fabric_attr *fabric) {
    return strcmp(fabric->name, "efa-direct") == 0 || FI_MAJOR(fabric->prov_version) >= 205;
}

static bool find_endless(struct weir_device *device) {
    bool found = false;
    if (!may_close(device->choice.info->fabric_attr))
        return false;
    for (uint32_t i = 0; i < device->depth; i++) {
        struct efa_op *op = &device->ops[i];
        found = (op->state == EFA_OP_SENT && ++op->looks >= LOOKS) || found;
    }
    return found;
}

void efa_ep_leave(struct weir_device *device) {
    if (device->stops_ns != UINT64_MAX)
        return;
    device->stops_ns = device_now(device) + LINK_LEASE_NS + LINK_MARGIN_NS;
    vqps_fail(device);
}

/* Looks are counted, and not time: a process that was stopped has seen none of it. A burial that
 * was put off is due. */
uint64_t efa_ep_look(struct weir_device *device) {
    if (device->ep == NULL)
        return UINT64_MAX;
    if (device->broken)
        return device->now_ns;
    if (device->stops_ns != UINT64_MAX) {
        device->broken = device->now_ns >= device->stops_ns;
        return device->stops_ns;
    }
    if (device->free_count == device->depth)
        return UINT64_MAX;
    if (device->now_ns >= device->look_ns) {
        device->look_ns = device->now_ns + LOOK_NS;
        if (find_endless(device)) {
            efa_ep_leave(device);
            return device->stops_ns;
        }
    }
    return device->look_ns;
}

/* ---- another one ---- */

static int open_next(struct weir_device *device) {
    efa_ep_close(device);
    av_renew(device);
    device->complaints = 0;
    int rc = efa_ep_open(device);
    return rc == WEIR_OK ? receives_start(device) : rc;
}

uint64_t efa_ep_renew(struct weir_device *device) {
    uint64_t now = device_now(device);
    if (device->ep != NULL || device->lost)
        return UINT64_MAX;
    if (now < device->renew_ns)
        return device->renew_ns;
    if (device->tries++ < TRIES && open_next(device) == WEIR_OK) {
        device->renewals++;
        return UINT64_MAX;
    }
    efa_ep_close(device);
    device->renew_ns = now + pause_of(device->tries);
    device->lost = device->tries > TRIES;
    if (device->lost)
        efa_wake(device);
    return device->lost ? UINT64_MAX : device->renew_ns;
}
