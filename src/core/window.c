/* SPDX-License-Identifier: Apache-2.0 */
/* window.c: see window.h. The bitmap moves by whole words only: a mark is O(1) but
 * for a shift of 15 words once in 64 marks. */
#include "window.h"

#include <string.h>

enum { WORDS = WINDOW_SIZE / 64 };

enum window_verdict window_check(const struct window *window, uint64_t number) {
    if (number <= window->base)
        return WINDOW_SEEN;
    uint64_t i = number - window->base - 1;
    if (i >= WINDOW_SIZE)
        return WINDOW_BEYOND;
    return (window->bits[i / 64] >> (i % 64)) & 1 ? WINDOW_SEEN : WINDOW_NEW;
}

static void shift(struct window *window, uint64_t words) {
    if (words > WORDS)
        words = WORDS;
    memmove(&window->bits[0], &window->bits[words], (WORDS - words) * sizeof(window->bits[0]));
    memset(&window->bits[WORDS - words], 0, words * sizeof(window->bits[0]));
}

static __attribute__((noinline)) void pass_full_words(struct window *window) {
    while (window->bits[0] == UINT64_MAX) {
        window->base += 64;
        shift(window, 1);
    }
}

void window_mark(struct window *window, uint64_t number) {
    uint64_t i = number - window->base - 1;
    window->bits[i / 64] |= (uint64_t)1 << (i % 64);
    if (__builtin_expect(window->bits[0] == UINT64_MAX, 0))
        pass_full_words(window);
}

void window_advance(struct window *window, uint64_t base) {
    base &= ~(uint64_t)63;
    if (base <= window->base)
        return;
    shift(window, (base - window->base) / 64);
    window->base = base;
}
