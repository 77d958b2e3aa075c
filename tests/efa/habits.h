/* SPDX-License-Identifier: Apache-2.0 */
/* habits.h: the played NIC's ways with its user, as the environment says. habits.c has the table
 * of all variables.
 *
 * A domain reads them when it is opened, and all that belongs to it keeps those. */
#ifndef EFA_HABITS_H
#define EFA_HABITS_H

#include <stdbool.h>
#include <stdint.h>

enum { HABIT_PATH_MAX = 256 };

struct habits {
    uint64_t seed;
    uint64_t tx_size, rx_size;
    uint64_t nics;
    uint64_t chunk_bytes;
    uint64_t reorder, hold_us;
    uint64_t eagain, unwilling, handshake_us, away;
    uint64_t late, late_us;
    uint64_t no_wait;
    uint64_t rnr_retries;
    uint64_t emulates;
    uint64_t breaks, forgets, endpoints;
    uint64_t cut_ms, kill_ms;
    uint64_t nonsense, refuse_mr;
    char cut[HABIT_PATH_MAX];   /* empty: no such file */
    char stats[HABIT_PATH_MAX]; /* likewise */
};

void habits_read(struct habits *habits_out);

/* A sequence of its own for each that draws. */
struct draws {
    uint64_t state;
};
void draws_begin(struct draws *draws, uint64_t seed, uint64_t which);
uint64_t draw(struct draws *draws);
uint64_t draw_below(struct draws *draws, uint64_t bound); /* 0 when bound is 0 */
bool draw_percent(struct draws *draws, uint64_t percent);
bool draw_one_in(struct draws *draws, uint64_t n); /* never when n is 0 */

uint64_t now_ns(void);
/* Bytes that no seed gives: two processes never have the same. */
uint64_t unlike_any(void);

#endif
