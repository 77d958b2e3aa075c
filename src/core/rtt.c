/* SPDX-License-Identifier: Apache-2.0 */
/* rtt.c: see rtt.h. */
#include "rtt.h"

#include <stddef.h>

static uint64_t after(uint64_t now_ns, uint64_t delay_ns) {
    return delay_ns > UINT64_MAX - 1 - now_ns ? UINT64_MAX - 1 : now_ns + delay_ns;
}

static uint64_t times(uint64_t ns, uint64_t factor) {
    return ns > UINT64_MAX / factor ? UINT64_MAX : ns * factor;
}

static uint64_t smaller(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static uint64_t larger(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

void rtt_measure(struct rtt *rtt, uint64_t ns) {
    uint64_t difference = ns > rtt->smooth_ns ? ns - rtt->smooth_ns : rtt->smooth_ns - ns;
    rtt->backed_ns = 0;
    if (rtt->measures == 0) { /* RFC 6298, 2.2 */
        rtt->smooth_ns = ns;
        rtt->variation_ns = ns / 2;
    } else { /* 2.3, with alpha 1/8 and beta 1/4 */
        rtt->variation_ns = rtt->variation_ns - rtt->variation_ns / 4 + difference / 4;
        rtt->smooth_ns = rtt->smooth_ns - rtt->smooth_ns / 8 + ns / 8;
    }
    if (rtt->measures < RTT_DOUBT)
        rtt->measures++;
}

void rtt_say(const struct rtt *rtt, struct rtt_pause *pause, uint64_t now_ns, uint64_t least_ns,
             uint64_t time_ns) {
    uint64_t first_ns;
    if (rtt->measures == 0) {
        first_ns = smaller(times(least_ns, RTT_UNKNOWN), time_ns / 5);
    } else {
        uint64_t doubt_ns = larger(times(least_ns, RTT_UNKNOWN) >> rtt->measures, least_ns);
        first_ns = rtt->smooth_ns + larger(doubt_ns, times(rtt->variation_ns, 4));
    }
    first_ns = larger(first_ns, rtt->backed_ns);
    /* A quarter of the time that there is at most, or 16 least pauses if that is more. */
    uint64_t share_ns = larger(time_ns / 4, times(least_ns, 1 << RTT_DOUBLINGS));
    first_ns = larger(smaller(first_ns, share_ns), least_ns);
    pause->interval_ns = first_ns;
    pause->most_ns = larger(smaller(times(first_ns, 1 << RTT_DOUBLINGS), share_ns), first_ns);
    pause->said_ns = now_ns;
    pause->next_ns = after(now_ns, first_ns);
}

void rtt_say_again(struct rtt *rtt, struct rtt_pause *pause, uint64_t now_ns) {
    pause->interval_ns = smaller(times(pause->interval_ns, 2), pause->most_ns);
    pause->said_ns = UINT64_MAX;
    pause->next_ns = after(now_ns, pause->interval_ns);
    if (rtt != NULL)
        rtt->backed_ns = larger(rtt->backed_ns, pause->interval_ns);
}

void rtt_answered(struct rtt *rtt, struct rtt_pause *pause, uint64_t now_ns) {
    if (pause->said_ns != UINT64_MAX && now_ns >= pause->said_ns)
        rtt_measure(rtt, now_ns - pause->said_ns);
    rtt_silence(pause);
}
