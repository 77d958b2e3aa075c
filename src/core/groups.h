/* SPDX-License-Identifier: Apache-2.0 */
/* groups.h: numbered things in numbered groups: lists of what belongs together, and hash tables.
 *
 * Members are 0..members-1, groups 0..groups-1; a member is in at most one group, behind those
 * that joined before it. Joining, leaving and the way from one to the next take a time that
 * depends on no size. A hash table is the same with a power of two of groups: those whose keys
 * have the same hash modulo that; keys are the user's to compare.
 *
 * Owns the links, over memory given at init, of which only what is used is ever written. A member
 * that leaves while the list is walked takes its place with it: take the next one before, or
 * begin again.
 */
#ifndef WEIR_GROUPS_H
#define WEIR_GROUPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GROUPS_NONE UINT32_MAX

/* Numbers are stored plus 1: zeroed memory is empty. */
struct group {
    uint32_t head, tail;
};
struct group_link {
    uint32_t next, prev;
    uint32_t group;
};

struct groups {
    struct group *heads;
    struct group_link *links;
    uint32_t group_count, member_count;
    uint32_t used; /* members that are in a group */
};

size_t groups_bytes(uint32_t groups, uint32_t members);
/* memory: groups_bytes(groups, members), zeroed, aligned for a uint32_t. */
void groups_init(struct groups *groups, void *memory, uint32_t group_count, uint32_t member_count);
/* The last of its group from here on; it leaves the one that it is in, unless it is the same. */
void groups_join(struct groups *groups, uint32_t member, uint32_t group);
/* Harmless when it is in none. */
void groups_leave(struct groups *groups, uint32_t member);

/* The member's group, the first and the last member of a group, the next one and the one before of
 * the same: GROUPS_NONE: none. */
static inline uint32_t groups_of(const struct groups *groups, uint32_t member) {
    return groups->links[member].group - 1;
}
static inline uint32_t groups_first(const struct groups *groups, uint32_t group) {
    return groups->heads[group].head - 1;
}
static inline uint32_t groups_last(const struct groups *groups, uint32_t group) {
    return groups->heads[group].tail - 1;
}
static inline uint32_t groups_next(const struct groups *groups, uint32_t member) {
    return groups->links[member].next - 1;
}

static inline uint32_t groups_before(const struct groups *groups, uint32_t member) {
    return groups->links[member].prev - 1;
}

/* A hash of bytes that others may choose: seed is a secret of the table's. */
uint64_t groups_hash(const void *bytes, size_t length, uint64_t seed);

/* NULL, or a sentence about links that are wrong. Looks at everything. */
const char *groups_verify(const struct groups *groups);

#endif
