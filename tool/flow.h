/* SPDX-License-Identifier: Apache-2.0 */
/* flow.h: a stream of writes that goes on while its session breaks, or its target dies.
 *
 * Each write has content of its own and a notification. The target compares all of its bytes and
 * answers. A lane, a page here and a page there, is used again when its write has ended and the
 * answer has come; so a write that is lost, cut, done at a wrong place or done again later is seen.
 * Ends are taken in passes, and counted where `counts` points meanwhile. One thread. */
#ifndef TOOL_FLOW_H
#define TOOL_FLOW_H

#include <stdbool.h>
#include <stdint.h>

#include "histogram.h"
#include "host.h"
#include "session.h"
#include "timeline.h"

#define FLOW_SEED     0x7765697200000003u
#define FLOW_STATUSES 64 /* negated codes are below */

struct flow_counts {
    uint64_t writes; /* that ended with success */
    uint64_t checked_bytes;
    uint64_t wrong_bytes;
    uint64_t lost;       /* ended with success, but wrong or missing at the target */
    uint64_t twice;      /* answers that no write waits for: a notification came again */
    uint64_t ended;      /* with an error, as the target had been killed */
    uint64_t unanswered; /* ended with success, and the target was killed before it answered */
    uint64_t statuses[FLOW_STATUSES]; /* of `ended`, by negated code */
};

struct flow_lane {
    weir_transfer transfer; /* while it flies; id 0: it ended in its submit */
    uint64_t round;         /* of its content */
    uint64_t started_ns;
    bool flies; /* no status was taken yet */
    bool asks;  /* no answer has come yet */
};

struct flow {
    struct session *session;
    struct flow_counts *counts;
    struct flow_lane *lanes; /* options->window of them */
    uint64_t stride;
    uint64_t start_ns;
    struct timeline timeline;
    struct outage outage; /* the present fault's */
    struct histogram *latency;
    bool held; /* nothing is submitted */
    uint64_t eagain;
    uint64_t moved; /* submits, ends and answers */
    struct idler idler;
    struct patience patience;
    weir_notification answer; /* another message of the target than an answer to a lane, */
    bool answered;            /* and that it has come */
};

/* All that return int: 0, or -1 after complaining. The session is open, with a page for each lane
 * on either side, `stride` apart. */
int flow_begin(struct flow *flow, uint64_t step_ns);
void flow_free(struct flow *flow);

/* Time since flow_begin. */
uint64_t flow_now(const struct flow *flow);

/* Takes what came and ended, and submits what goes. A write that ends badly is a failure, unless
 * the target was killed. */
int flow_pass(struct flow *flow);
int flow_for(struct flow *flow, uint64_t ns);
/* Until the target has sent a message of this type; any but an answer to a lane is a failure. */
int flow_await(struct flow *flow, enum proto_type type);
/* Sends a message without a payload, and awaits the answer. */
int flow_ask(struct flow *flow, enum proto_type type, enum proto_type answer);
/* Until no write flies. Hold it before. */
int flow_settle(struct flow *flow);
/* The target was killed: answers that have not come do not come any more. */
void flow_forget(struct flow *flow);
/* Holds the stream until all writes have ended and all answers have come. Writes that ended with
 * success, and of which nothing is heard while nothing else comes either, are lost. */
int flow_drain(struct flow *flow);

#endif
