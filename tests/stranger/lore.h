/* SPDX-License-Identifier: Apache-2.0 */
/* lore.h: the stranger's knowledge, and what it makes of that: messages (says.c), and deeds where
 * descriptors are handed over (hands.c). */
#ifndef STRANGER_LORE_H
#define STRANGER_LORE_H

#include "board.h"

enum { SELVES = 24, SETS = 24, PASSES = 64, OWN_QPS = 8 };

struct lore {
    struct prng prng;
    /* Of the two of the pair: what IAM tells, and their highest epoch that was heard. */
    bool known[2];
    uint8_t instances[2][WIRE_INSTANCE_SIZE];
    uint64_t epochs[2];
    char addresses[3][WEIR_ADDRESS_MAX];        /* of the pair, and our own */
    uint8_t selves[SELVES][WIRE_INSTANCE_SIZE]; /* whom it says to be, besides */
    struct wire_qp_set sets[SETS];              /* heard from anybody, and our own */
    uint32_t set_count, set_next;
    uint64_t passes[PASSES]; /* given to us, or shown to us */
    uint32_t pass_count;
    uint64_t nonces[3]; /* of the pair's devices, and of our own place */
    int32_t pids[3];
    uint8_t fabric[WEIR_FABRIC_ID_SIZE];
};
extern struct lore lore;

/* ---- says.c ---- */

/* Learns what the descriptors of memory tell, that go from one to the other by any means. */
void lore_begin(void);
/* Notes a message heard on a connection with one of the pair. */
void lore_hear(int target, const struct wire_message *message);
/* A message to one of the pair: of any type, from and to anybody. */
void say_any(int target, struct wire_message *out);
/* The answer that a peer would give, or nearly; false: none. as: whom the connection speaks for. */
bool say_answer(int target, const uint8_t *as, const struct wire_message *heard,
                struct wire_message *out);
/* HELLO with a QP set of the stranger's own, as one who is there for the first time. */
void say_hello(int target, const uint8_t *as, struct wire_message *out);
/* Somebody whom the stranger says to be on a new connection: itself, mostly. */
void choose_self(int target, uint8_t *as_out);

/* ---- hands.c ---- */

/* A place of our own, where those call that were told of it. */
void hands_begin(void);
/* One deed at a place of the pair's devices, or at our own. */
void hands_step(void);
void hands_end(void);

#endif
