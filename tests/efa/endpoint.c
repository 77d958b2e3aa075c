/* SPDX-License-Identifier: Apache-2.0 */
/* endpoint.c: endpoints, from fi_endpoint(3) to fi_close(3), and the contexts that are in flight.
 *
 * With efa-direct a context is the provider's from the post until its completion: it is scribbled
 * over, and must not be posted again. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>

#include "fake.h"

enum { CONTEXT_WORDS = sizeof(struct fi_context2) / sizeof(void *) };

/* ---- contexts: with the lock held ---- */

static size_t home_of(const struct contexts *contexts, const void *context) {
    uint64_t hash = (uint64_t)(uintptr_t)context >> 3;
    hash ^= hash >> 17;
    return (size_t)(hash ^ (hash >> 31)) & contexts->mask;
}

void context_scribble(struct endpoint *endpoint, void *context) {
    struct fi_context2 *words = context;
    if (!endpoint->direct)
        return;
    for (int i = 0; i < CONTEXT_WORDS; i++)
        words->internal[i] = (void *)(uintptr_t)draw(&endpoint->draws);
}

void contexts_add(struct endpoint *endpoint, void *context) {
    struct contexts *contexts = &endpoint->contexts;
    if (!endpoint->direct)
        return;
    if (context == NULL)
        give_up("an operation has no context");
    size_t at = home_of(contexts, context);
    for (; contexts->slots[at] != NULL; at = (at + 1) & contexts->mask) {
        if (contexts->slots[at] == context)
            give_up("a context is posted that is in flight");
    }
    contexts->slots[at] = context;
    context_scribble(endpoint, context);
}

void contexts_remove(struct endpoint *endpoint, void *context) {
    struct contexts *contexts = &endpoint->contexts;
    if (!endpoint->direct)
        return;
    size_t at = home_of(contexts, context);
    while (contexts->slots[at] != context)
        at = (at + 1) & contexts->mask;
    contexts->slots[at] = NULL;
    /* The entries behind it must be found from their homes. */
    for (size_t next = (at + 1) & contexts->mask; contexts->slots[next] != NULL;
         next = (next + 1) & contexts->mask) {
        size_t home = home_of(contexts, contexts->slots[next]);
        if (((next - home) & contexts->mask) < ((next - at) & contexts->mask))
            continue;
        contexts->slots[at] = contexts->slots[next];
        contexts->slots[next] = NULL;
        at = next;
    }
}

/* ---- the end ---- */

static void forget_operations(struct endpoint *endpoint) {
    for (uint32_t i = 0; i < endpoint->ops_made; i++) {
        if (endpoint->ops[i].peer != NULL)
            atomic_fetch_sub(&endpoint->ops[i].peer->inflight, 1);
    }
}

static int endpoint_close(struct fid *fid) {
    struct endpoint *endpoint = (struct endpoint *)(void *)fid;
    if (endpoint->nic != NULL && !nic_is_ours(endpoint->nic))
        return 0;
    if (endpoint->nic != NULL)
        nic_close(endpoint);
    if (endpoint->tx_cq != NULL) {
        cq_forget(endpoint->tx_cq, endpoint);
        atomic_fetch_sub(&endpoint->tx_cq->users, 1);
    }
    if (endpoint->rx_cq != NULL) {
        cq_forget(endpoint->rx_cq, endpoint);
        atomic_fetch_sub(&endpoint->rx_cq->users, 1);
    }
    forget_operations(endpoint);
    if (endpoint->av != NULL)
        atomic_fetch_sub(&endpoint->av->users, 1);
    atomic_fetch_sub(&endpoint->domain->users, 1);
    pthread_mutex_destroy(&endpoint->lock);
    free(endpoint->ops);
    free(endpoint->receives);
    free(endpoint->contexts.slots);
    free(endpoint);
    return 0;
}

/* ---- what the user calls ---- */

static int endpoint_bind(struct fid *fid, struct fid *other, uint64_t flags) {
    struct endpoint *endpoint = (struct endpoint *)(void *)fid;
    if (endpoint->enabled)
        return -FI_EOPBADSTATE;
    if (other->fclass == FI_CLASS_AV) {
        if (endpoint->av != NULL)
            return -FI_EINVAL;
        endpoint->av = (struct av *)(void *)other;
        atomic_fetch_add(&endpoint->av->users, 1);
        return 0;
    }
    if (other->fclass == FI_CLASS_EQ)
        return 0;
    if (other->fclass != FI_CLASS_CQ || (flags & ~(FI_TRANSMIT | FI_RECV)) != 0)
        return -FI_EINVAL;
    struct cq *cq = (struct cq *)(void *)other;
    if (((flags & FI_TRANSMIT) != 0 && endpoint->tx_cq != NULL) ||
        ((flags & FI_RECV) != 0 && endpoint->rx_cq != NULL))
        return -FI_EINVAL;
    if ((flags & FI_TRANSMIT) != 0) {
        endpoint->tx_cq = cq;
        atomic_fetch_add(&cq->users, 1);
    }
    if ((flags & FI_RECV) != 0) {
        endpoint->rx_cq = cq;
        atomic_fetch_add(&cq->users, 1);
    }
    return 0;
}

static int endpoint_control(struct fid *fid, int command, void *arg) {
    (void)arg;
    struct endpoint *endpoint = (struct endpoint *)(void *)fid;
    if (command != FI_ENABLE)
        return -FI_ENOSYS;
    if (endpoint->enabled)
        return 0;
    if (endpoint->av == NULL)
        return -FI_ENOAV;
    if (endpoint->tx_cq == NULL || endpoint->rx_cq == NULL)
        return -FI_ENOCQ;
    int result = nic_open(endpoint);
    endpoint->enabled = result == 0;
    return result;
}

static ssize_t no_cancel(fid_t fid, void *context) {
    (void)fid;
    (void)context;
    return -FI_ENOSYS;
}

/* fi_ext.h of libfabric 1.18 and later. */
enum {
    OPT_RNR_RETRY = -(0xefa << 16),
    OPT_EMULATED_READ,
    OPT_EMULATED_WRITE,
    OPT_EMULATED_ATOMICS,
    OPT_USE_DEVICE_RDMA
};
enum { RNR_ENDLESS = 7 };

/* The card reads and writes by itself. */
static int endpoint_getopt(fid_t fid, int level, int name, void *value, size_t *len) {
    const struct endpoint *endpoint = (struct endpoint *)(void *)fid;
    if (level != FI_OPT_ENDPOINT || name < OPT_EMULATED_READ || name > OPT_EMULATED_ATOMICS)
        return -FI_ENOPROTOOPT;
    if (*len < sizeof(bool))
        return -FI_EINVAL;
    *(bool *)value = endpoint->domain->habits.emulates != 0;
    *len = sizeof(bool);
    return 0;
}

/* How often a sender tries is the sender's on a real card, and the receiver's here. */
static int endpoint_setopt(fid_t fid, int level, int name, const void *value, size_t len) {
    struct endpoint *endpoint = (struct endpoint *)(void *)fid;
    if (level != FI_OPT_ENDPOINT)
        return -FI_ENOPROTOOPT;
    if (name == OPT_USE_DEVICE_RDMA)
        return len == sizeof(bool) ? 0 : -FI_EINVAL;
    if (name != OPT_RNR_RETRY)
        return -FI_ENOPROTOOPT;
    size_t tries = len == sizeof(size_t) ? *(const size_t *)value : SIZE_MAX;
    if (tries > RNR_ENDLESS || endpoint->enabled)
        return -FI_EINVAL;
    endpoint->rnr_tries = tries < RNR_ENDLESS ? tries : 0;
    return 0;
}

static ssize_t no_size_left(struct fid_ep *endpoint) {
    (void)endpoint;
    return -FI_ENOSYS;
}

static int get_name(fid_t fid, void *address_out, size_t *len) {
    const struct endpoint *endpoint = (struct endpoint *)(void *)fid;
    size_t room = *len;
    *len = sizeof endpoint->address;
    if (!endpoint->enabled)
        return -FI_EOPBADSTATE;
    memcpy(address_out, &endpoint->address, room < *len ? room : *len);
    return room < *len ? -FI_ETOOSMALL : 0;
}

static int no_setname(fid_t fid, void *address, size_t len) {
    (void)fid;
    (void)address;
    (void)len;
    return -FI_ENOSYS;
}

static int no_getpeer(struct fid_ep *endpoint, void *address, size_t *len) {
    (void)endpoint;
    (void)address;
    (void)len;
    return -FI_ENOSYS;
}

static struct fi_ops endpoint_fid_ops = {.size = sizeof(struct fi_ops),
                                         .close = endpoint_close,
                                         .bind = endpoint_bind,
                                         .control = endpoint_control,
                                         .ops_open = none_ops_open};
static struct fi_ops_ep endpoint_ops = {.size = sizeof(struct fi_ops_ep),
                                        .cancel = no_cancel,
                                        .getopt = endpoint_getopt,
                                        .setopt = endpoint_setopt,
                                        .rx_size_left = no_size_left,
                                        .tx_size_left = no_size_left};
static struct fi_ops_cm cm_ops = {.size = offsetof(struct fi_ops_cm, connect),
                                  .setname = no_setname,
                                  .getname = get_name,
                                  .getpeer = no_getpeer};

/* An endpoint's address is like no other's, also when its QPN is given again. */
static void name(struct endpoint *endpoint) {
    static atomic_uint qpns;
    endpoint->address = (struct address){.prefix = UINT64_C(0x80fe), /* fe80:: */
                                         .token = endpoint->domain->token,
                                         .qpn = (uint16_t)(1 + atomic_fetch_add(&qpns, 1) % 65535),
                                         .connid = (uint32_t)(unlike_any() >> 16)};
}

int endpoint_open(struct fid_domain *domain_fid, struct fi_info *info, struct fid_ep **ep_out,
                  void *context) {
    static atomic_uint opened;
    struct domain *domain = (struct domain *)(void *)domain_fid;
    const struct habits *habits = &domain->habits;
    if (info->ep_attr == NULL || info->ep_attr->type != FI_EP_RDM)
        return -FI_EINVAL;
    if (habits->endpoints != 0 && atomic_fetch_add(&domain->endpoints, 1) >= habits->endpoints)
        return -FI_ENODEV;
    struct endpoint *endpoint = allocate(sizeof *endpoint);
    endpoint->fid.fid = (struct fid){FI_CLASS_EP, context, &endpoint_fid_ops};
    endpoint->fid.ops = &endpoint_ops;
    endpoint->fid.cm = &cm_ops;
    endpoint->fid.msg = &post_msg_ops;
    endpoint->fid.rma = &post_rma_ops;
    endpoint->domain = domain;
    endpoint->direct = fabric_is_direct(info);
    name(endpoint);
    pthread_mutex_init(&endpoint->lock, NULL);
    TAILQ_INIT(&endpoint->free);
    TAILQ_INIT(&endpoint->staged);
    TAILQ_INIT(&endpoint->submitted);
    endpoint->ops = allocate(habits->tx_size * sizeof endpoint->ops[0]);
    endpoint->receives = allocate(habits->rx_size * sizeof endpoint->receives[0]);
    size_t slots = 64;
    while (slots < 2 * (habits->tx_size + habits->rx_size))
        slots *= 2;
    endpoint->contexts.slots = allocate(slots * sizeof endpoint->contexts.slots[0]);
    endpoint->contexts.mask = slots - 1;
    draws_begin(&endpoint->draws, habits->seed, 4000 + atomic_fetch_add(&opened, 1));
    atomic_fetch_add(&domain->users, 1);
    *ep_out = &endpoint->fid;
    return 0;
}
