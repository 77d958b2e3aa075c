/* SPDX-License-Identifier: Apache-2.0 */
/* flows.h: messages between the engines of engines.h, whose bytes follow from their sender and tag;
 * and flows, which are so many of them from one engine to one inbox, checked to come once and in
 * order. */
#ifndef WEIR_CONFORMANCE_FLOWS_H
#define WEIR_CONFORMANCE_FLOWS_H

#include "engines.h"

/* A chunk holds one of LONG bytes. SHORT ones travel beside their notes. */
enum { LONG = 60000, SHORT = WEIR_MESSAGE_COPY_MAX, UNDER_WAY = 32, FLOWS_MAX = 2, HELD_MAX = 16 };

/* Room for so many of the longest, of one peer as of all. */
weir_inbox inbox_of(struct engines *engines, uint32_t index, uint32_t number, uint64_t longest,
                    uint32_t count);
weir_inbox_info look(struct engines *engines, uint32_t index, weir_inbox inbox);

/* A message's tag names its sender as well. */
uint64_t tag_of(uint32_t from, uint64_t number);
weir_transfer_options tagged(uint64_t tag, uint32_t flags);
/* The result of the call. */
int try_send(struct engines *engines, uint32_t from, uint32_t to, uint32_t number, uint64_t length,
             const weir_transfer_options *options, weir_transfer *transfer_out);
/* Must be taken. The tag is tag_of(from, tag). */
weir_transfer send_to(struct engines *engines, uint32_t from, uint32_t to, uint32_t number,
                      uint64_t tag, uint64_t length);
void assert_content(struct engines *engines, const weir_message *message);

/* Takes the next message within time, which is this one. */
weir_message take(struct engines *engines, uint32_t index, weir_inbox inbox, uint32_t from,
                  uint64_t tag, uint64_t length);
void give_back(struct engines *engines, uint32_t index, const weir_message *message);
void take_and_give_back(struct engines *engines, uint32_t index, weir_inbox inbox, uint32_t from,
                        uint64_t tag, uint64_t length);
void assert_none(struct engines *engines, uint32_t index, weir_inbox inbox);

struct flow {
    uint32_t from, to, number;
    weir_inbox inbox;
    uint64_t total;
    uint64_t longest;
    uint32_t window; /* so many are under way at most; 0: UNDER_WAY */
    bool loans;      /* messages are made in place */
    uint64_t sent, ended, taken;
    weir_transfer under_way[UNDER_WAY];
};

/* The manner in which flows are run. */
struct course {
    struct flow flows[FLOWS_MAX];
    uint32_t count;
    uint32_t hold;        /* so many messages are held, and given back in any order */
    uint32_t break_every; /* a QP breaks after so many WRs, or up to twice as many; 0: none does */
    uint32_t held_count;
    weir_message held[HELD_MAX];
    uint32_t held_at[HELD_MAX];
    uint32_t random;
};

/* Between 0 and longest bytes. */
uint64_t length_of(uint64_t tag, uint64_t longest);
/* Sends what may be under way, and takes up the ends of the oldest, which are good. */
void flow_send(struct engines *engines, struct flow *flow);
/* Until all is sent, taken and given back, and nothing more comes. */
void course_run(struct engines *engines, struct course *course);

#endif
