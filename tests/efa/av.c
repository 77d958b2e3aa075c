/* SPDX-License-Identifier: Apache-2.0 */
/* av.c: address vectors. An address that is inserted again has the fi_addr_t that it has. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

static int av_close(struct fid *fid) {
    struct av *av = (struct av *)(void *)fid;
    if (atomic_load(&av->users) != 0)
        return -FI_EBUSY;
    for (size_t i = 0; i < av->size; i++)
        free(av->peers[i]);
    free(av->peers);
    pthread_mutex_destroy(&av->lock);
    atomic_fetch_sub(&av->domain->users, 1);
    free(av);
    return 0;
}

/* ---- with the lock held ---- */

static size_t free_place(struct av *av) {
    for (size_t i = 0; i < av->size; i++) {
        if (av->peers[i] == NULL)
            return i;
    }
    size_t old = av->size, size = old == 0 ? 16 : 2 * old;
    struct peer **peers = allocate(size * sizeof(struct peer *));
    if (old != 0)
        memcpy(peers, av->peers, old * sizeof(struct peer *));
    free(av->peers);
    av->peers = peers;
    av->size = size;
    return old;
}

static fi_addr_t insert_one(struct av *av, const struct address *address) {
    if (address->qpn == 0 || address->token == 0)
        return FI_ADDR_NOTAVAIL;
    for (size_t i = 0; i < av->size; i++) {
        struct peer *peer = av->peers[i];
        if (peer != NULL && memcmp(&peer->address, address, sizeof *address) == 0) {
            peer->inserted++;
            return i;
        }
    }
    size_t at = free_place(av);
    struct peer *peer = allocate(sizeof *peer);
    peer->address = *address;
    peer->inserted = 1;
    av->peers[at] = peer;
    return at;
}

static int remove_one(struct av *av, fi_addr_t at) {
    if (at >= av->size || av->peers[at] == NULL)
        return -FI_EINVAL;
    struct peer *peer = av->peers[at];
    if (--peer->inserted != 0)
        return 0;
    if (atomic_load(&peer->inflight) != 0)
        give_up("fi_av_remove of an address with operations in flight");
    free(peer);
    av->peers[at] = NULL;
    return 0;
}

int av_use(struct av *av, fi_addr_t at, const struct habits *habits, struct peer **peer_out) {
    int result = -FI_EINVAL;
    pthread_mutex_lock(&av->lock);
    if (at < av->size && av->peers[at] != NULL) {
        struct peer *peer = av->peers[at];
        uint64_t now = now_ns();
        if (peer->ready_ns == 0) {
            peer->ready_ns = now + NS_PER_US * draw_below(&av->draws, habits->handshake_us + 1);
            if (++av->spoken == habits->away)
                peer->ready_ns = UINT64_MAX;
        }
        result = peer->ready_ns > now ? -FI_EAGAIN : 0;
        if (result == 0) {
            atomic_fetch_add(&peer->inflight, 1);
            *peer_out = peer;
        }
    }
    pthread_mutex_unlock(&av->lock);
    return result;
}

/* ---- what the user calls ---- */

static int insert(struct fid_av *fid, const void *addresses, size_t count, fi_addr_t *at_out,
                  uint64_t flags, void *context) {
    (void)flags;
    (void)context;
    struct av *av = (struct av *)(void *)fid;
    int inserted = 0;
    pthread_mutex_lock(&av->lock);
    for (size_t i = 0; i < count; i++) {
        struct address address;
        memcpy(&address, (const uint8_t *)addresses + i * sizeof address, sizeof address);
        fi_addr_t at = insert_one(av, &address);
        inserted += at != FI_ADDR_NOTAVAIL;
        if (at_out != NULL)
            at_out[i] = at;
    }
    pthread_mutex_unlock(&av->lock);
    return inserted;
}

static int no_insert_service(struct fid_av *av, const char *node, const char *service,
                             fi_addr_t *at, uint64_t flags, void *context) {
    (void)av;
    (void)node;
    (void)service;
    (void)at;
    (void)flags;
    (void)context;
    return -FI_ENOSYS;
}

static int no_insert_symmetric(struct fid_av *av, const char *node, size_t nodes,
                               const char *service, size_t services, fi_addr_t *at, uint64_t flags,
                               void *context) {
    (void)nodes;
    (void)services;
    return no_insert_service(av, node, service, at, flags, context);
}

static int av_remove(struct fid_av *fid, fi_addr_t *at, size_t count, uint64_t flags) {
    (void)flags;
    struct av *av = (struct av *)(void *)fid;
    int result = 0;
    pthread_mutex_lock(&av->lock);
    for (size_t i = 0; i < count && result == 0; i++)
        result = remove_one(av, at[i]);
    pthread_mutex_unlock(&av->lock);
    return result;
}

static int lookup(struct fid_av *fid, fi_addr_t at, void *address_out, size_t *len) {
    struct av *av = (struct av *)(void *)fid;
    int result = -FI_EINVAL;
    pthread_mutex_lock(&av->lock);
    if (at < av->size && av->peers[at] != NULL) {
        size_t all = sizeof(struct address);
        memcpy(address_out, &av->peers[at]->address, *len < all ? *len : all);
        *len = all;
        result = 0;
    }
    pthread_mutex_unlock(&av->lock);
    return result;
}

static const char *address_text(struct fid_av *fid, const void *bytes, char *text, size_t *len) {
    (void)fid;
    struct address address;
    memcpy(&address, bytes, sizeof address);
    int needs = snprintf(text, *len, "fi_addr_efa://%llx:%u:%u", (unsigned long long)address.token,
                         address.qpn, address.connid);
    *len = (size_t)needs + 1;
    return text;
}

static struct fi_ops av_fid_ops = {.size = sizeof(struct fi_ops),
                                   .close = av_close,
                                   .bind = none_bind,
                                   .control = none_control,
                                   .ops_open = none_ops_open};
static struct fi_ops_av av_ops = {.size = offsetof(struct fi_ops_av, av_set),
                                  .insert = insert,
                                  .insertsvc = no_insert_service,
                                  .insertsym = no_insert_symmetric,
                                  .remove = av_remove,
                                  .lookup = lookup,
                                  .straddr = address_text};

int av_open(struct fid_domain *domain_fid, struct fi_av_attr *attr, struct fid_av **av_out,
            void *context) {
    if (attr != NULL && attr->type == FI_AV_MAP)
        return -FI_EINVAL;
    static atomic_uint opened;
    struct domain *domain = (struct domain *)(void *)domain_fid;
    struct av *av = allocate(sizeof *av);
    av->fid.fid = (struct fid){FI_CLASS_AV, context, &av_fid_ops};
    av->fid.ops = &av_ops;
    av->domain = domain;
    pthread_mutex_init(&av->lock, NULL);
    draws_begin(&av->draws, domain->habits.seed, 2000 + atomic_fetch_add(&opened, 1));
    atomic_fetch_add(&domain->users, 1);
    *av_out = &av->fid;
    return 0;
}
