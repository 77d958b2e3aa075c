/* SPDX-License-Identifier: Apache-2.0 */
/* message_side.h: engines that send each other messages whose bytes follow from their tags, through
 * weir.h, over the shm device: what the tests of messages and of inboxes share. */
#ifndef MESSAGE_SIDE_H
#define MESSAGE_SIDE_H

#include "engine_side.h"

enum { MIB = 1 << 20, LONG = 60000 }; /* LONG: a chunk holds one of them */

/* The two of pair_open, whose memory is filled for what is sent from there. */
void open_pair(struct side *a, struct side *b);
/* Likewise, and c, who knows b as well. b's messages are of both. */
void open_three(struct side *a, struct side *b, struct side *c);

/* The longest message has so many bytes, and there is room for so many of them, of one peer and of
 * all. */
int try_inbox(struct side *side, uint32_t number, uint64_t longest, uint32_t of_peer, uint32_t all,
              weir_inbox *inbox);
weir_inbox inbox_of(struct side *side, uint32_t number, uint64_t longest, uint32_t count);
weir_inbox_info look(struct side *side, weir_inbox inbox);

/* With this tag, which is the user data as well. */
weir_transfer_options tagged(uint64_t tag, uint32_t flags);
/* A short message's bytes follow from its tag. A long one is the front of the side's memory. */
int try_send(struct side *from, weir_peer peer, uint32_t inbox, uint64_t length,
             const weir_transfer_options *options, weir_transfer *transfer);
weir_transfer send_with(struct side *from, uint32_t inbox, uint64_t length,
                        const weir_transfer_options *options);
weir_transfer send_one(struct side *from, uint32_t inbox, uint64_t tag, uint64_t length);
int status_of(struct side *side, weir_transfer transfer);

void assert_content(const weir_message *message, uint64_t length);
/* The next message of the inbox, which is the one with this tag. */
weir_message take(struct side *to, struct side *from, weir_inbox inbox, uint64_t tag,
                  uint64_t length);
void give_back(struct side *to, const weir_message *message);
void take_and_give_back(struct side *to, struct side *from, weir_inbox inbox, uint64_t tag,
                        uint64_t length);
void assert_none(struct side *to, weir_inbox inbox);
/* Enough for all that can happen without the application. */
void some_steps(struct side *a, struct side *b);

#endif
