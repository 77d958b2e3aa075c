/* SPDX-License-Identifier: Apache-2.0 */
/* receives.c: see receives.h. Owns the lists of the buffers by their state, and the doubts. */
#include "receives.h"

#include <assert.h>
#include <stddef.h>

static void list_add(struct receives *receives, uint32_t buffer, enum receive_state state) {
    struct receives_list *list = &receives->lists[state];
    struct receive *receive = &receives->buffers[buffer];
    receive->state = state;
    receive->next = RECEIVES_NONE;
    receive->previous = list->last;
    if (list->last != RECEIVES_NONE)
        receives->buffers[list->last].next = buffer;
    else
        list->first = buffer;
    list->last = buffer;
    list->count++;
}

static void move(struct receives *receives, uint32_t buffer, enum receive_state state) {
    struct receive *receive = &receives->buffers[buffer];
    struct receives_list *list = &receives->lists[receive->state];
    if (receive->previous != RECEIVES_NONE)
        receives->buffers[receive->previous].next = receive->next;
    else
        list->first = receive->next;
    if (receive->next != RECEIVES_NONE)
        receives->buffers[receive->next].previous = receive->previous;
    else
        list->last = receive->previous;
    list->count--;
    list_add(receives, buffer, state);
}

void receives_init(struct receives *receives, struct receive *buffers, uint32_t total) {
    *receives = (struct receives){.buffers = buffers, .total = total};
    for (int state = 0; state < RECEIVE_STATES; state++)
        receives->lists[state] = (struct receives_list){RECEIVES_NONE, RECEIVES_NONE, 0};
    for (uint32_t i = 0; i < total; i++)
        list_add(receives, i, RECEIVE_FREE);
}

uint32_t receives_take(struct receives *receives) {
    uint32_t most = receives->wanted + receives->doubts;
    if (receives->lists[RECEIVE_POSTED].count >= most)
        return RECEIVES_NONE;
    /* Last in, first out: the memory of few buffers stays in the cache. */
    uint32_t buffer = receives->lists[RECEIVE_FREE].last;
    if (buffer == RECEIVES_NONE)
        buffer = receives->lists[RECEIVE_LOST].first;
    if (buffer != RECEIVES_NONE)
        move(receives, buffer, RECEIVE_TAKEN);
    return buffer;
}

void receives_posted(struct receives *receives, uint32_t buffer) {
    assert(receives->buffers[buffer].state == RECEIVE_TAKEN);
    receives->buffers[buffer].number = ++receives->posts;
    receives->buffers[buffer].wanted = receives->wanted;
    move(receives, buffer, RECEIVE_POSTED);
}

static bool is_overtaken(const struct receives *receives, const struct receive *receive) {
    uint64_t queue = receive->wanted > receives->wanted ? receive->wanted : receives->wanted;
    return receive->number + RECEIVES_BEHIND * queue < receives->back_newest;
}

/* Moves overtaken buffers to the lost ones. Each ends a doubt, and the doubts are over when no
 * buffer is posted that was posted before them. */
static void find_lost(struct receives *receives) {
    const struct receives_list *posted = &receives->lists[RECEIVE_POSTED];
    while (posted->first != RECEIVES_NONE &&
           is_overtaken(receives, &receives->buffers[posted->first])) {
        move(receives, posted->first, RECEIVE_LOST);
        receives->lost++;
        if (receives->doubts > 0)
            receives->doubts--;
    }
    if (posted->first == RECEIVES_NONE ||
        receives->buffers[posted->first].number > receives->doubts_number)
        receives->doubts = 0;
}

bool receives_back(struct receives *receives, uint32_t buffer) {
    if (buffer >= receives->total)
        return false;
    const struct receive *receive = &receives->buffers[buffer];
    if (receive->state != RECEIVE_POSTED && receive->state != RECEIVE_LOST)
        return false;
    if (receive->number > receives->back_newest)
        receives->back_newest = receive->number;
    move(receives, buffer, RECEIVE_TAKEN);
    find_lost(receives);
    return true;
}

void receives_free(struct receives *receives, uint32_t buffer) {
    assert(receives->buffers[buffer].state == RECEIVE_TAKEN);
    move(receives, buffer, RECEIVE_FREE);
}

void receives_doubt(struct receives *receives) {
    if (receives->doubts < receives->total / 4)
        receives->doubts++;
    receives->doubts_number = receives->posts;
}

bool receives_short(const struct receives *receives) {
    return receives->lists[RECEIVE_POSTED].count < receives->wanted;
}

static bool is_linked(const struct receives *receives, uint32_t buffer) {
    const struct receive *receive = &receives->buffers[buffer];
    const struct receives_list *list = &receives->lists[receive->state];
    bool forward = receive->next == RECEIVES_NONE
                       ? list->last == buffer
                       : receives->buffers[receive->next].previous == buffer &&
                             receives->buffers[receive->next].state == receive->state;
    bool backward = receive->previous == RECEIVES_NONE
                        ? list->first == buffer
                        : receives->buffers[receive->previous].next == buffer;
    return forward && backward;
}

const char *receives_verify(const struct receives *receives, uint64_t turn) {
    uint32_t count = 0;
    for (int state = 0; state < RECEIVE_STATES; state++)
        count += receives->lists[state].count;
    if (count != receives->total)
        return "receives: a buffer is in no state";
    for (uint32_t i = 0; i < RECEIVES_LOOKED_AT && receives->total > 0; i++) {
        if (!is_linked(receives, (uint32_t)((turn * RECEIVES_LOOKED_AT + i) % receives->total)))
            return "receives: a buffer is not on the list of its state";
    }
    return NULL;
}
