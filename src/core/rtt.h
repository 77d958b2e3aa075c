/* SPDX-License-Identifier: Apache-2.0 */
/* rtt.h: how long answers take, and after what time without one something is said again.
 *
 * RFC 6298 with the engine's own bounds. A measure is the time from what was said once to its
 * answer; what was said twice gives none, since nobody can say which of the two was answered
 * (Karn). Until there is a measure, the first pause is long, as a crowd that all calls one engine
 * at once would else be most of what that engine hears: RTT_UNKNOWN times the least pause, but
 * no more than a fifth of the time that there is. The first measures are not trusted far: they
 * may be of a moment when nobody else was there. A pause that was too short is remembered, and
 * is the first one from then on, until a measure comes.
 *
 * Owns the estimate for one remote. It knows no clock and no message. */
#ifndef WEIR_RTT_H
#define WEIR_RTT_H

#include <stdbool.h>
#include <stdint.h>

enum {
    RTT_UNKNOWN = 100, /* least pauses before the first repetition, without a measure: 2 s */
    RTT_DOUBT = 7,     /* measures until pauses may be the least one: RTT_UNKNOWN, halved by each */
    RTT_DOUBLINGS = 4  /* of a pause: 16 times the first */
};

struct rtt { /* zeroed: nothing is known */
    uint64_t smooth_ns, variation_ns;
    uint64_t
        backed_ns;     /* the longest pause since the last measure that was followed by no answer */
    uint32_t measures; /* up to RTT_DOUBT */
};

/* Something said again and again until it is answered. */
struct rtt_pause {
    uint64_t next_ns; /* when to say it again; UINT64_MAX: not at all */
    uint64_t interval_ns, most_ns;
    uint64_t said_ns; /* when it was said, if it was once; UINT64_MAX: not what gives a measure */
};

/* An answer came after so long to what was said once. */
void rtt_measure(struct rtt *rtt, uint64_t ns);

/* It was said now, for the first time. least_ns: the shortest pause; there is time_ns to have an
 * answer. */
void rtt_say(const struct rtt *rtt, struct rtt_pause *pause, uint64_t now_ns, uint64_t least_ns,
             uint64_t time_ns);
/* It was said again, now. rtt: NULL if the answer does not come at once, but when something is
 * done over there. */
void rtt_say_again(struct rtt *rtt, struct rtt_pause *pause, uint64_t now_ns);
/* It was answered. */
void rtt_answered(struct rtt *rtt, struct rtt_pause *pause, uint64_t now_ns);

static inline void rtt_silence(struct rtt_pause *pause) {
    pause->next_ns = UINT64_MAX;
    pause->said_ns = UINT64_MAX;
}

#endif
