/* SPDX-License-Identifier: Apache-2.0 */
/* credit.h: how many messages each side may send on one QP, both directions.
 *
 * Messages are of two classes with windows of their own: notifications, which wait in their buffers
 * until the application takes them, and all that the engine takes up at once. So an application
 * that takes no notifications holds up nothing else.
 *
 * The receiver posts `window` buffers for each class, and CREDIT_RESERVE for credit messages. The
 * sender counts what it sent; the receiver tells, modulo 2^32, how many it has taken up and posted
 * anew. A message that others overtake tells old numbers, which are known as such for as long as
 * fewer than 2^31 are newer. A credit message takes no credit, and tells of both classes; it is
 * sent when half of a window is owed.
 *
 * At most two credit messages for the sake of each class are ever unread, in flight or in a buffer.
 * Say that k are, and that b was told of the class last before the first of them. Each tells half a
 * window more than what was told before it, so the last tells b + k * half at least. If the other
 * side has heard of b at most, it has sent b + window at most, and no more can have been taken up:
 * k * half <= window.
 *
 * It has heard of b at most: on an ordered session, because it reads what was sent
 * before the first unread one only. Elsewhere a later message may overtake it, so
 *  - until a credit message is known to be in a buffer over there, which its completion
 *    says, no other is sent, and other messages tell what was told before it;
 *  - what is sent after that is read after it: receives are polled as they were filled.
 */
#ifndef WEIR_CREDIT_H
#define WEIR_CREDIT_H

#include <stdbool.h>
#include <stdint.h>

enum credit_class {
    CREDIT_NOTES,   /* notifications */
    CREDIT_WORDS,   /* words about messages, and notes of them */
    CREDIT_CLASSES, /* messages of no class take no credit */
};

enum {
    CREDIT_RESERVE = 2 * CREDIT_CLASSES,
    CREDIT_WINDOW_MAX = 512, /* of notifications */
    CREDIT_WORDS_WINDOW = 16,
    CREDIT_BESIDE =
        CREDIT_WORDS_WINDOW + CREDIT_RESERVE /* buffers beside those for notifications */
};

/* Counts are modulo 2^32. */
struct credit {
    uint16_t window_remote[CREDIT_CLASSES]; /* buffers that the other side posted for ours */
    uint16_t window_local[CREDIT_CLASSES];
    uint32_t sent[CREDIT_CLASSES];
    uint32_t acked[CREDIT_CLASSES];   /* of ours, taken up over there */
    uint32_t arrived[CREDIT_CLASSES]; /* of theirs */
    uint32_t taken[CREDIT_CLASSES];   /* of theirs, taken up here */
    uint32_t told[CREDIT_CLASSES];    /* of taken, the last value sent */
    /* A credit message that may be overtaken: */
    bool under_way;
    uint32_t told_before[CREDIT_CLASSES]; /* told, before it */
    uint64_t under_way_seq;               /* its run */
};

static inline uint32_t credit_between(uint32_t later, uint32_t earlier) {
    return later - earlier;
}
/* notes: the window of notifications, the same on both sides, as that of words is. */
static inline void credit_init(struct credit *credit, uint16_t notes) {
    *credit = (struct credit){.window_remote = {notes, CREDIT_WORDS_WINDOW},
                              .window_local = {notes, CREDIT_WORDS_WINDOW}};
}
/* Both sides have agreed on a window. Messages of theirs may have come before. */
static inline void credit_agree(struct credit *credit, uint16_t notes) {
    credit->window_remote[CREDIT_NOTES] = credit->window_local[CREDIT_NOTES] = notes;
    credit->window_remote[CREDIT_WORDS] = CREDIT_WORDS_WINDOW;
}
static inline bool credit_available(const struct credit *credit, enum credit_class class) {
    return credit_between(credit->sent[class], credit->acked[class]) < credit->window_remote[class];
}
/* Half of a window is rounded up: of a window of 3, three messages of one each could be unread
 * otherwise. */
static inline bool credit_owed_of(const struct credit *credit, enum credit_class class) {
    return credit_between(credit->taken[class], credit->told[class]) >=
           (credit->window_local[class] + 1u) / 2;
}
/* A credit message is due. */
static inline bool credit_owed(const struct credit *credit) {
    return credit_owed_of(credit, CREDIT_NOTES) || credit_owed_of(credit, CREDIT_WORDS);
}
/* The numbers taken up that a message posted now tells: 32 bits each, those of words above. */
static inline uint64_t credit_to_tell(const struct credit *credit) {
    const uint32_t *taken = credit->under_way ? credit->told_before : credit->taken;
    return taken[CREDIT_NOTES] | (uint64_t)taken[CREDIT_WORDS] << 32;
}
static inline void credit_all_told(struct credit *credit) {
    credit->told[CREDIT_NOTES] = credit->taken[CREDIT_NOTES];
    credit->told[CREDIT_WORDS] = credit->taken[CREDIT_WORDS];
}
/* One was posted. */
static inline void credit_told(struct credit *credit) {
    if (!credit->under_way)
        credit_all_told(credit);
}
/* A credit message was posted, on an unordered session: no other may be posted before
 * credit_landed. */
static inline void credit_launched(struct credit *credit, uint64_t seq) {
    credit->told_before[CREDIT_NOTES] = credit->told[CREDIT_NOTES];
    credit->told_before[CREDIT_WORDS] = credit->told[CREDIT_WORDS];
    credit_all_told(credit);
    credit->under_way = true;
    credit->under_way_seq = seq;
}
static inline void credit_landed(struct credit *credit) {
    credit->under_way = false;
}
/* A message of theirs that took a credit is here; false when they had none. */
static inline bool credit_arrived(struct credit *credit, enum credit_class class) {
    credit->arrived[class]++;
    return credit_between(credit->arrived[class], credit->told[class]) <=
           credit->window_local[class];
}
static inline bool credit_hear_of(struct credit *credit, enum credit_class class, uint32_t acked) {
    uint32_t more = credit_between(acked, credit->acked[class]);
    if (more - 1 >= INT32_MAX) /* none, or it was told before */
        return true;
    if (more > credit_between(credit->sent[class], credit->acked[class]))
        return false;
    credit->acked[class] = acked;
    return true;
}
/* Hears what the other side told; false when it claims more than was sent. Less than it said before
 * is old news: on unordered devices messages overtake each other. */
static inline bool credit_hear(struct credit *credit, uint64_t acked) {
    return credit_hear_of(credit, CREDIT_NOTES, (uint32_t)acked) &&
           credit_hear_of(credit, CREDIT_WORDS, (uint32_t)(acked >> 32));
}

#endif
