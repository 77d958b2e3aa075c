/* SPDX-License-Identifier: Apache-2.0 */
/* habits.c: the table of the environment's variables, and what is drawn from them.
 *
 *   variable             default  what
 *   EFA_FAKE_SEED        1        of all that is drawn
 *   EFA_FAKE_TX          4096     depth of an endpoint's sends, shared by its peers
 *   EFA_FAKE_RX          8192     depth of its receives
 *   EFA_FAKE_NICS        1        1 or 2: rdmap0s6-rdm, rdmap1s6-rdm
 *   EFA_FAKE_CHUNK       32768    bytes of a packet of reads and writes, 8192 to 65536
 *   EFA_FAKE_REORDER     30       percent of incoming packets that are held, and overtaken
 *   EFA_FAKE_HOLD_US     1000     that such a packet is held at most, 2000 or less
 *   EFA_FAKE_EAGAIN      2        percent of posts that are refused for no reason
 *   EFA_FAKE_UNWILLING   0        n: one post in n is answered with -FI_EOPNOTSUPP, for good
 *   EFA_FAKE_HANDSHAKE_US 1000    that posts to a new peer are refused at most
 *   EFA_FAKE_AWAY        0        n: posts to the n-th new peer are always refused
 *   EFA_FAKE_LATE        20       percent of completions that are late
 *   EFA_FAKE_LATE_US     300      that such a completion is late at most
 *   EFA_FAKE_NOWAIT      0        1: CQs have no wait object
 *   EFA_FAKE_RNR_RETRIES 0        tries, one a millisecond, of a message that finds no receive,
 *                                 before it fails with status 10; 0: without end
 *   EFA_FAKE_EMULATED    0        1: says that reads and writes are the provider's, not the card's
 *   EFA_FAKE_BREAK       0        n: with the n-th message that comes to it an endpoint is broken:
 *                                 all it has is flushed (status 1), and nothing is answered
 *   EFA_FAKE_FORGET      0        n: the n-th operation of an endpoint is never completed
 *   EFA_FAKE_ENDPOINTS   0        n: a domain has no more than n endpoints, one after the other
 *   EFA_FAKE_CUT         none     path of a file; while it is there, the cable is out
 *   EFA_FAKE_CUT_MS      2000     after which operations fail with status 13 while it is
 *   EFA_FAKE_KILL_MS     20       at most, and 1 at least: until operations to an endpoint that is
 *                                 gone fail with status 9
 *   EFA_FAKE_NONSENSE    0        n: one completion in n is given twice, or comes with a context
 *                                 that was never posted, or a fi_cq_read returns -FI_EOTHER
 *   EFA_FAKE_REFUSE_MR   0        n: one registration in n fails with -FI_ENOMEM
 *   EFA_FAKE_STATS       none     path of a file: one line is appended as an endpoint closes */
#define _GNU_SOURCE
#include "habits.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#define NS_PER_S UINT64_C(1000000000)

static const struct number {
    const char *name;
    size_t offset;
    uint64_t usual, least, most;
} numbers[] = {
    {"EFA_FAKE_SEED", offsetof(struct habits, seed), 1, 0, UINT64_MAX},
    {"EFA_FAKE_TX", offsetof(struct habits, tx_size), 4096, 1, 65536},
    {"EFA_FAKE_RX", offsetof(struct habits, rx_size), 8192, 1, 65536},
    {"EFA_FAKE_NICS", offsetof(struct habits, nics), 1, 1, 2},
    {"EFA_FAKE_CHUNK", offsetof(struct habits, chunk_bytes), 32768, 8192, 65536},
    {"EFA_FAKE_REORDER", offsetof(struct habits, reorder), 30, 0, 100},
    {"EFA_FAKE_HOLD_US", offsetof(struct habits, hold_us), 1000, 0, 2000},
    {"EFA_FAKE_EAGAIN", offsetof(struct habits, eagain), 2, 0, 100},
    {"EFA_FAKE_UNWILLING", offsetof(struct habits, unwilling), 0, 0, UINT64_MAX},
    {"EFA_FAKE_AWAY", offsetof(struct habits, away), 0, 0, UINT64_MAX},
    {"EFA_FAKE_HANDSHAKE_US", offsetof(struct habits, handshake_us), 1000, 0, 10000000},
    {"EFA_FAKE_LATE", offsetof(struct habits, late), 20, 0, 100},
    {"EFA_FAKE_LATE_US", offsetof(struct habits, late_us), 300, 0, 10000000},
    {"EFA_FAKE_NOWAIT", offsetof(struct habits, no_wait), 0, 0, 1},
    {"EFA_FAKE_RNR_RETRIES", offsetof(struct habits, rnr_retries), 0, 0, 1000000},
    {"EFA_FAKE_EMULATED", offsetof(struct habits, emulates), 0, 0, 1},
    {"EFA_FAKE_BREAK", offsetof(struct habits, breaks), 0, 0, UINT64_MAX},
    {"EFA_FAKE_FORGET", offsetof(struct habits, forgets), 0, 0, UINT64_MAX},
    {"EFA_FAKE_ENDPOINTS", offsetof(struct habits, endpoints), 0, 0, UINT64_MAX},
    {"EFA_FAKE_CUT_MS", offsetof(struct habits, cut_ms), 2000, 1, 1000000},
    {"EFA_FAKE_KILL_MS", offsetof(struct habits, kill_ms), 20, 1, 1000000},
    {"EFA_FAKE_NONSENSE", offsetof(struct habits, nonsense), 0, 0, UINT64_MAX},
    {"EFA_FAKE_REFUSE_MR", offsetof(struct habits, refuse_mr), 0, 0, UINT64_MAX},
};

static uint64_t number_of(const struct number *number) {
    const char *text = getenv(number->name);
    if (text == NULL || *text == '\0')
        return number->usual;
    char *end;
    uint64_t value = strtoull(text, &end, 0);
    if (*end != '\0' || value < number->least || value > number->most) {
        fprintf(stderr, "efa-fi: %s=%s is no number, or out of bounds\n", number->name, text);
        abort();
    }
    return value;
}

static void path_of(const char *name, char *path_out) {
    const char *text = getenv(name);
    snprintf(path_out, HABIT_PATH_MAX, "%s", text != NULL ? text : "");
}

void habits_read(struct habits *habits_out) {
    memset(habits_out, 0, sizeof *habits_out);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        uint64_t value = number_of(&numbers[i]);
        memcpy((char *)habits_out + numbers[i].offset, &value, sizeof value);
    }
    path_of("EFA_FAKE_CUT", habits_out->cut);
    path_of("EFA_FAKE_STATS", habits_out->stats);
}

/* ---- draws: splitmix64 ---- */

#if defined(__clang__)
__attribute__((no_sanitize("unsigned-integer-overflow")))
#endif
uint64_t
draw(struct draws *draws) {
    uint64_t z = draws->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

void draws_begin(struct draws *draws, uint64_t seed, uint64_t which) {
    draws->state = seed;
    draws->state = draw(draws) ^ which;
    draw(draws);
}

uint64_t draw_below(struct draws *draws, uint64_t bound) {
    return bound == 0 ? 0 : draw(draws) % bound;
}

bool draw_percent(struct draws *draws, uint64_t percent) {
    return percent != 0 && draw_below(draws, 100) < percent;
}

bool draw_one_in(struct draws *draws, uint64_t n) {
    return n != 0 && draw_below(draws, n) == 0;
}

uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

uint64_t unlike_any(void) {
    uint64_t bytes = 0;
    if (getrandom(&bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        bytes = now_ns();
    return bytes | 1;
}
