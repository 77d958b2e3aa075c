/* SPDX-License-Identifier: Apache-2.0 */
/* groups.c: see groups.h. */
#include "groups.h"

#include <assert.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static size_t heads_bytes(uint32_t groups) {
    return (size_t)groups * sizeof(struct group);
}

size_t groups_bytes(uint32_t groups, uint32_t members) {
    return heads_bytes(groups) + (size_t)members * sizeof(struct group_link);
}

void groups_init(struct groups *groups, void *memory, uint32_t group_count, uint32_t member_count) {
    *groups = (struct groups){
        .heads = memory,
        .links = (struct group_link *)(void *)((uint8_t *)memory + heads_bytes(group_count)),
        .group_count = group_count,
        .member_count = member_count,
    };
}

void groups_join(struct groups *groups, uint32_t member, uint32_t group) {
    assert(member < groups->member_count && group < groups->group_count);
    struct group_link *link = &groups->links[member];
    struct group *head = &groups->heads[group];
    if (link->group == group + 1)
        return;
    groups_leave(groups, member);
    *link = (struct group_link){.prev = head->tail, .group = group + 1};
    if (head->tail == 0)
        head->head = member + 1;
    else
        groups->links[head->tail - 1].next = member + 1;
    head->tail = member + 1;
    groups->used++;
}

void groups_leave(struct groups *groups, uint32_t member) {
    assert(member < groups->member_count);
    struct group_link *link = &groups->links[member];
    if (link->group == 0)
        return;
    struct group *head = &groups->heads[link->group - 1];
    if (link->prev == 0)
        head->head = link->next;
    else
        groups->links[link->prev - 1].next = link->next;
    if (link->next == 0)
        head->tail = link->prev;
    else
        groups->links[link->next - 1].prev = link->prev;
    *link = (struct group_link){0};
    groups->used--;
}

uint64_t groups_hash(const void *bytes, size_t length, uint64_t seed) {
    return XXH3_64bits_withSeed(bytes, length, seed);
}

const char *groups_verify(const struct groups *groups) {
    uint32_t seen = 0;
    for (uint32_t group = 0; group < groups->group_count; group++) {
        uint32_t before = 0;
        if (groups->heads[group].head == 0 && groups->heads[group].tail == 0)
            continue; /* as most are */
        for (uint32_t m = groups->heads[group].head; m != 0; m = groups->links[m - 1].next) {
            if (m > groups->member_count || ++seen > groups->used)
                return "groups: a list leads nowhere, or in a circle";
            if (groups->links[m - 1].group != group + 1 || groups->links[m - 1].prev != before)
                return "groups: a member does not know where it is";
            before = m;
        }
        if (groups->heads[group].tail != before)
            return "groups: the last of a list is another";
    }
    return seen == groups->used ? NULL : "groups: members are in no list";
}
