/* credit.h: who may send how many messages on one QP, both directions.
 *
 * The receiver posts `window` buffers for messages and CREDIT_RESERVE for credit
 * messages. The sender counts what it sent; the receiver tells, modulo 2^32, how
 * many it has taken up and posted anew. A credit message takes no credit; it is
 * sent when half the window is owed, so at most two are ever unread: the sender
 * of the messages stops after `window` and each credit message stands for half of
 * that (docs/protocol.md). */
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
/* A message of theirs that took a credit is here; false when they had none. */
static inline bool credit_arrived(struct credit *credit) {
    return ++credit->arrived - credit->told <= credit->window_local;
}
/* What the other side told; false when it claims more than was sent. Less than it
 * said before is old news: on unordered devices messages overtake each other. */
static inline bool credit_hear(struct credit *credit, uint32_t acked) {
    if ((int32_t)(acked - credit->sent) > 0)
        return false;
    if ((int32_t)(acked - credit->acked) > 0)
        credit->acked = acked;
    return true;
}

#endif
