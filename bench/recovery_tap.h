/* SPDX-License-Identifier: Apache-2.0 */
/* recovery_tap.h: an engine over a device that can be broken, and that notes when what happens.
 *
 * The engine's device and control channel are the real ones, with a thin wrapper around: it puts
 * a QP into the error state behind the engine's back, and stamps the steps of the recovery with
 * the clock. A device that is done with its work in the post (shm) has nothing in flight that
 * could be lost; so the wrapper can keep WRs in a queue, and hand them to the device when they
 * are polled for, as many as it is allowed to. */
#ifndef RECOVERY_TAP_H
#define RECOVERY_TAP_H

#include <stdatomic.h>

#include "ports.h"

enum tap_stamp {
    TAP_BROKE,     /* the QP was put into the error state */
    TAP_SEEN,      /* the engine retires the session */
    TAP_DRAINED,   /* the last of its QPs is destroyed */
    TAP_SETTLED,   /* the other side has said so, too */
    TAP_MADE,      /* the new QPs are there */
    TAP_CONNECTED, /* ...and connected */
    TAP_REPLAYED,  /* the first data was posted on them */
    TAP_STAMPS
};

/* The words that another thread, or the process that leads, asks by and reads: they may lie in
 * shared memory. */
struct tap_shared {
    _Atomic uint64_t stamps[TAP_STAMPS]; /* 0: not yet */
    _Atomic bool noting;                 /* stamps are taken */
    _Atomic uint32_t round;              /* of noting, from 1 */
    _Atomic bool break_wanted;           /* with the next poll... */
    _Atomic uint32_t break_after;        /* ...or with this post of data from now on; 0: none */
    _Atomic uint64_t budget;             /* queued WRs that may be executed */
    _Atomic uint64_t queued;             /* WRs that wait now */
    _Atomic uint32_t qps;                /* that exist */
    _Atomic uint32_t made;               /* since noting began */
};

struct tap;

/* Opens an engine on the named device; options as for weir_engine_open. queues: nothing is done
 * in the post. NULL: it said why. */
struct tap *tap_open(const weir_engine_options *options, bool queues, struct tap_shared *shared);
void tap_close(struct tap *tap);
weir_engine *tap_engine(const struct tap *tap);
/* Its thread looks at the device, if it sleeps. */
void tap_wake(struct tap *tap);

uint64_t tap_now(void);
const char *tap_stamp_name(enum tap_stamp stamp);

#endif
