/* SPDX-License-Identifier: Apache-2.0 */
/* credit.h: how many messages each side may send on one QP, both directions.
 *
 * The receiver posts `window` buffers for messages and CREDIT_RESERVE for credit
 * messages. The sender counts what it sent; the receiver tells, modulo 2^32, how
 * many it has taken up and posted anew. A credit message takes no credit; it is
 * sent when half the window is owed.
 *
 * At most two credit messages are ever unread, in flight or in a buffer. Say that k
 * are, and that b was told last before the first of them. Each tells half a window
 * more than what was told before it, so the last tells b + k * half at least. If the
 * other side has heard of b at most, it has sent b + window at most, and no more can
 * have been taken up: k * half <= window.
 *
 * It has heard of b at most: on an ordered session, because it reads what was sent
 * before the first unread one only. Elsewhere a later message may overtake it, so
 *  - until a credit message is known to be in a buffer over there, which its completion
 *    says, no other is sent, and notifications tell what was told before it;
 *  - what is sent after that is read after it: receives are polled as they were filled.
 */
#ifndef WEIR_CREDIT_H
#define WEIR_CREDIT_H

#include <stdbool.h>
#include <stdint.h>

enum { CREDIT_RESERVE = 2, CREDIT_WINDOW_MAX = 512 };

struct credit {
    uint32_t window_remote; /* buffers that the other side posted for our messages */
    uint32_t sent;
    uint32_t acked; /* of ours, taken up over there */
    uint32_t window_local;
    uint32_t arrived; /* of theirs */
    uint32_t taken;   /* of theirs, taken up here */
    uint32_t told;    /* of taken, the last value sent */
    /* A credit message that may be overtaken: */
    bool under_way;
    uint32_t told_before;   /* told, before it */
    uint64_t under_way_seq; /* its run */
};

static inline void credit_init(struct credit *credit, uint32_t window_local,
                               uint32_t window_remote) {
    *credit = (struct credit){.window_remote = window_remote, .window_local = window_local};
}
static inline bool credit_available(const struct credit *credit) {
    return credit->sent - credit->acked < credit->window_remote;
}
/* A credit message is due. The half is rounded up: of a window of 3, three messages of
 * one each could be unread otherwise. */
static inline bool credit_owed(const struct credit *credit) {
    uint32_t half = (credit->window_local + 1) / 2;
    return credit->taken - credit->told >= half;
}
/* The number taken up that a message posted now tells. */
static inline uint32_t credit_to_tell(const struct credit *credit) {
    return credit->under_way ? credit->told_before : credit->taken;
}
/* One was posted. */
static inline void credit_told(struct credit *credit) {
    if (!credit->under_way)
        credit->told = credit->taken;
}
/* A credit message was posted, on an unordered session: no other may be posted before
 * credit_landed. */
static inline void credit_launched(struct credit *credit, uint64_t seq) {
    credit->told_before = credit->told;
    credit->told = credit->taken;
    credit->under_way = true;
    credit->under_way_seq = seq;
}
static inline void credit_landed(struct credit *credit) {
    credit->under_way = false;
}
/* A message of theirs that took a credit is here; false when they had none. */
static inline bool credit_arrived(struct credit *credit) {
    return ++credit->arrived - credit->told <= credit->window_local;
}
/* Hears what the other side told; false when it claims more than was sent. Less than it said before
 * is old news: on unordered devices messages overtake each other. */
static inline bool credit_hear(struct credit *credit, uint32_t acked) {
    if ((int32_t)(acked - credit->sent) > 0)
        return false;
    if ((int32_t)(acked - credit->acked) > 0)
        credit->acked = acked;
    return true;
}

#endif
