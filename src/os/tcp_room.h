/* SPDX-License-Identifier: Apache-2.0 */
/* tcp_room.h: the room that a connection of tcp.c needs only for a while: for what is half
 * received, unsent, or being dialled.
 *
 * Owns a stack of rooms, over memory given at open, one for each connection that there may be. The
 * last one that was given back is taken first, so as many are backed with pages as were in use at
 * once, and an idle connection has none. */
#ifndef WEIR_OS_TCP_ROOM_H
#define WEIR_OS_TCP_ROOM_H

#include <assert.h>

#include "address.h"
#include "ports.h"

enum {
    TCP_HEADER = 4,
    TCP_IN_BYTES = TCP_HEADER + WEIR_CONTROL_MESSAGE_MAX,
    TCP_OUT_BYTES = 4 * TCP_IN_BYTES
};

struct tcp_room {
    struct tcp_room *next; /* of those that are free */
    uint16_t port;
    char host[ADDRESS_HOST_MAX];
    struct address_list addresses;
    uint8_t in[TCP_IN_BYTES];
    uint8_t out[TCP_OUT_BYTES];
};

struct tcp_rooms {
    struct tcp_room *rooms; /* count of them; those from fresh on were never used */
    struct tcp_room *free;
    uint32_t fresh, count;
};

static inline size_t tcp_rooms_bytes(uint32_t count) {
    return count * sizeof(struct tcp_room);
}

/* Harmless when it has one. */
static inline void tcp_room_take(struct tcp_rooms *rooms, struct tcp_room **room) {
    if (*room != NULL) {
        return;
    }
    if (rooms->free != NULL) {
        *room = rooms->free;
        rooms->free = (*room)->next;
    } else {
        assert(rooms->fresh < rooms->count);
        *room = &rooms->rooms[rooms->fresh++];
    }
}

/* Harmless when it has none. */
static inline void tcp_room_give(struct tcp_rooms *rooms, struct tcp_room **room) {
    if (*room == NULL) {
        return;
    }
    (*room)->next = rooms->free;
    rooms->free = *room;
    *room = NULL;
}

#endif
