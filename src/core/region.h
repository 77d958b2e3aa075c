/* SPDX-License-Identifier: Apache-2.0 */
/* region.h: the tables of local and imported memory, and the bounds of segments.
 *
 * Owns the rule for when a segment may be used: both handles current, the remote
 * one of the very incarnation of the peer that the transfer goes to, the right
 * granted, both ranges inside. No sum that could wrap is formed (offset + length is
 * never computed before the check). It leaves registration to the device.
 */
#ifndef WEIR_REGION_H
#define WEIR_REGION_H

#include <stdatomic.h>

#include "handle.h"
#include "ports.h"

struct region_local {
    uint64_t id;
    uint64_t base;
    uint64_t length;
    uint32_t lkey;
    _Atomic uint32_t users; /* segments of unfinished transfers that name it */
    uint32_t access;
    uint32_t next_free;
    bool live;
    bool leaving; /* its release has begun, and failed so far: nothing else may be done with it */
    bool allocated;
    bool mapped; /* the application can read it at base */
    bool named;  /* it was published */
    struct weir_mr mr;
};

struct region_remote {
    uint64_t id;
    uint64_t named; /* it was opened by this entry's name (asked.h); 0: by a descriptor */
    uint64_t party; /* region_party() of the incarnation that exported it; 0: of a dead one */
    uint64_t raddr;
    uint64_t length;
    uint32_t rkey;
    uint32_t access;
    _Atomic uint32_t users;
    uint32_t next_free;
    bool live;
    uint8_t instance[16];
    struct weir_rmr rmr;
    uint64_t here; /* the memory of this engine's that it is; 0: a peer's, which the device has */
};

struct regions {
    uint64_t version; /* grows with every change of what a pair was made of; never 0 */
    struct region_local *locals;
    struct region_remote *remotes;
    uint32_t local_count;
    uint32_t remote_count;
};

/* Names one incarnation of one peer: never 0. */
static inline uint64_t region_party(uint32_t peer, uint32_t incarnation) {
    return ((uint64_t)(incarnation + 1) << 32) | peer;
}

/* NULL: stale. */
static inline struct region_local *region_local(const struct regions *regions, uint64_t id) {
    uint32_t index = handle_index(id);
    if (index >= regions->local_count || regions->locals[index].id != id ||
        !regions->locals[index].live)
        return NULL;
    return &regions->locals[index];
}
static inline struct region_remote *region_remote(const struct regions *regions, uint64_t id) {
    uint32_t index = handle_index(id);
    if (index >= regions->remote_count || regions->remotes[index].id != id ||
        !regions->remotes[index].live)
        return NULL;
    return &regions->remotes[index];
}

/* One (local, remote) pair that was checked, for the segments that follow. */
struct region_pair {
    uint64_t version; /* of the tables; 0: names nothing */
    uint64_t local_id;
    uint64_t remote_id;
    uint64_t local_length;
    uint64_t remote_length;
    uint64_t length_max; /* of one segment: the smaller of the two */
    struct weir_span span;
};

/* A pair that no segment names. */
#define REGION_PAIR_NONE                                                                           \
    { .local_id = UINT64_MAX }

/* Looks both handles up for a transfer to `party` that needs `access` over there. */
int region_pair(const struct regions *regions, uint64_t party, uint32_t access, uint64_t local_id,
                uint64_t remote_id, struct region_pair *pair_out);

static inline bool region_pair_names(const struct region_pair *pair, const weir_segment *segment) {
    return pair->local_id == segment->local.id && pair->remote_id == segment->remote.id;
}
/* Both ranges inside. */
static inline bool region_pair_holds(const struct region_pair *pair, const weir_segment *segment) {
    uint64_t length = segment->length;
    return length <= pair->length_max && segment->local_offset <= pair->local_length - length &&
           segment->remote_offset <= pair->remote_length - length;
}

#endif
