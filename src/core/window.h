/* SPDX-License-Identifier: Apache-2.0 */
/* window.h: which numbers of a growing sequence are over with.
 *
 * Both sides of the notification numbers between two instances keep one. The
 * sender marks numbers that are finished (delivered, or failed for good) and tells
 * its base with every notification; the receiver marks numbers that were delivered,
 * and follows that base only as far as a number beyond its window needs, so that
 * numbers that will never come do not stop it. It makes a replayed notification show
 * only once, and SETTLED carries it.
 *
 * All numbers <= base are over; bit i says it of base + 1 + i. base is a multiple
 * of 64. A sender uses no number above base + WINDOW_SIZE of its own window; one that
 * is beyond the receiver's even behind the base that it was told is a broken promise. */
#ifndef WEIR_WINDOW_H
#define WEIR_WINDOW_H

#include <stdbool.h>
#include <stdint.h>

enum { WINDOW_SIZE = 1024 };

struct window {
    uint64_t base;
    uint64_t bits[WINDOW_SIZE / 64];
};

enum window_verdict { WINDOW_NEW, WINDOW_SEEN, WINDOW_BEYOND };

enum window_verdict window_check(const struct window *window, uint64_t number);
/* Marks a WINDOW_NEW number. */
void window_mark(struct window *window, uint64_t number);
/* The other side says that all numbers <= base are over. Lower than ours: ignored. */
void window_advance(struct window *window, uint64_t base);

#endif
