/* SPDX-License-Identifier: Apache-2.0 */
/* av.c: the endpoints that QPs of ours, and messages of control.c, go to.
 *
 * Owns the table of them, by their raw addresses, and counts who uses each: an op is a user as long
 * as the provider has it. The provider's table goes with its endpoint; an entry of an old one stays
 * until its users are gone, and is not found. An address is inserted once, and removed when nobody
 * uses it any more. Both take a command to the network card, so that one thread does it, without
 * the mutex. */
#include <string.h>

#include "efa.h"
#include "power.h"

/* Lists for as many peers as the engine will have: where they lie far apart, each costs a page. */
static uint32_t heads_wanted(uint32_t qps) {
    return qps == 0 || qps > EFA_QPS_MAX ? EFA_QPS_MAX : power_of_two(qps);
}

int av_open(struct weir_device *device) {
    const struct weir_env *env = &device->env;
    device->peers_size = EFA_QPS_MAX + EFA_CONTROLS;
    device->peers_mask = heads_wanted(env->wishes.qps) - 1;
    device->peers_free = device->peers_leaving = EFA_NONE;
    device->peers = env->ops->alloc(env->self, device->peers_size * sizeof *device->peers);
    device->peer_heads =
        env->ops->alloc(env->self, ((size_t)device->peers_mask + 1) * sizeof *device->peer_heads);
    return device->peers != NULL && device->peer_heads != NULL ? WEIR_OK : WEIR_ENOMEM;
}

void av_close(struct weir_device *device) {
    const struct weir_env *env = &device->env;
    if (device->peers != NULL)
        env->ops->free(env->self, device->peers, device->peers_size * sizeof *device->peers);
    if (device->peer_heads != NULL)
        env->ops->free(env->self, device->peer_heads,
                       ((size_t)device->peers_mask + 1) * sizeof *device->peer_heads);
}

/* FNV-1a: addresses are told by peers, and one that chooses them makes its own way longer. The
 * lists are by number plus one. */
static uint32_t *head_of(const struct weir_device *device, const uint8_t name[EFA_NAME_BYTES]) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (uint32_t i = 0; i < EFA_NAME_BYTES; i++)
        hash = (hash ^ name[i]) * UINT64_C(0x100000001b3);
    return &device->peer_heads[(hash ^ hash >> 32) & device->peers_mask];
}

uint32_t av_find(struct weir_device *device, const uint8_t name[EFA_NAME_BYTES]) {
    for (uint32_t at = *head_of(device, name); at != 0; at = device->peers[at - 1].next) {
        struct efa_peer *peer = &device->peers[at - 1];
        if (memcmp(peer->name, name, EFA_NAME_BYTES) == 0) {
            peer->users++;
            return at - 1;
        }
    }
    return EFA_NONE;
}

static uint32_t entry_take(struct weir_device *device) {
    uint32_t at = device->peers_free;
    if (at != EFA_NONE)
        device->peers_free = device->peers[at].next;
    else if (device->peers_used < device->peers_size)
        at = device->peers_used++;
    return at;
}

static void entry_free(struct weir_device *device, uint32_t at) {
    device->peers[at].next = device->peers_free;
    device->peers_free = at;
}

static uint32_t add(struct weir_device *device, const uint8_t name[EFA_NAME_BYTES],
                    fi_addr_t address) {
    uint32_t at = entry_take(device);
    if (at == EFA_NONE)
        return EFA_NONE;
    uint32_t *head = head_of(device, name);
    device->peers[at] = (struct efa_peer){
        .address = address, .users = 1, .next = *head, .refused = {EFA_NONE, EFA_NONE}};
    memcpy(device->peers[at].name, name, EFA_NAME_BYTES);
    *head = at + 1;
    return at;
}

uint32_t av_look_up(struct weir_device *device, const uint8_t name[EFA_NAME_BYTES],
                    int *result_out) {
    uint32_t at = av_find(device, name);
    *result_out = WEIR_OK;
    if (at != EFA_NONE)
        return at;
    fi_addr_t address = FI_ADDR_NOTAVAIL;
    device->av_is_used = true;
    device_unlock(device);
    int rc = fi_av_insert(device->av, name, 1, &address, 0, NULL);
    device_lock(device);
    device->av_is_used = false;
    if (rc != 1 || address == FI_ADDR_NOTAVAIL) {
        *result_out = rc == -FI_ENOMEM ? WEIR_ENOMEM : WEIR_EDEVICE;
        return EFA_NONE;
    }
    at = add(device, name, address);
    if (at == EFA_NONE) {
        *result_out = WEIR_EFULL;
        fi_av_remove(device->av, &address, 1, 0);
    }
    return at;
}

void av_release(struct weir_device *device, uint32_t at) {
    struct efa_peer *peer = &device->peers[at];
    if (--peer->users > 0 || peer->leaves)
        return;
    if (peer->is_old) {
        entry_free(device, at);
        return;
    }
    peer->leaves = true;
    peer->leaving = device->peers_leaving;
    device->peers_leaving = at;
    efa_server_wake(device);
}

static void unlink_peer(struct weir_device *device, uint32_t at) {
    uint32_t *link = head_of(device, device->peers[at].name);
    while (*link != at + 1)
        link = &device->peers[*link - 1].next;
    *link = device->peers[at].next;
}

/* One that has users again stays. */
void av_leave(struct weir_device *device) {
    while (device->ep != NULL && device->peers_leaving != EFA_NONE) {
        uint32_t at = device->peers_leaving;
        struct efa_peer *peer = &device->peers[at];
        device->peers_leaving = peer->leaving;
        peer->leaves = false;
        if (peer->users > 0)
            continue;
        unlink_peer(device, at);
        device->av_is_used = true;
        device_unlock(device);
        fi_av_remove(device->av, &peer->address, 1, 0);
        device_lock(device);
        device->av_is_used = false;
        entry_free(device, at);
    }
}

/* QPs may use theirs until they are destroyed. */
void av_renew(struct weir_device *device) {
    memset(device->peer_heads, 0, ((size_t)device->peers_mask + 1) * sizeof *device->peer_heads);
    for (uint32_t at = 0; at < device->peers_used; at++)
        device->peers[at].is_old = true;
    while (device->peers_leaving != EFA_NONE) {
        uint32_t at = device->peers_leaving;
        device->peers_leaving = device->peers[at].leaving;
        device->peers[at].leaves = false;
        if (device->peers[at].users == 0)
            entry_free(device, at);
    }
}
