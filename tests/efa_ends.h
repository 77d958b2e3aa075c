/* SPDX-License-Identifier: Apache-2.0 */
/* efa_ends.h: two efa devices with a QP each that say numbered messages to each other, for tests of
 * the device alone. A failure fails the test. */
#ifndef EFA_ENDS_H
#define EFA_ENDS_H

#include <stdbool.h>
#include <stdint.h>

#include "device.h"

enum {
    END_DEPTH = 16,
    END_RECEIVES = 64,
    END_MESSAGE = 64, /* bytes */
    END_WAITS = 60000 /* of a millisecond: what takes longer hangs */
};
#define END_NUMBERS 65536u /* of messages on one QP, at most */

struct end {
    struct weir_device *device;
    struct weir_qp *qp;
    struct weir_qp_granted granted;
    struct weir_mr mr;
    /* Of this QP: sends posted, completed, and not with OK; receives posted, with a message, and
     * flushed; messages that are too short, or with a number that came before. */
    uint32_t posted, ended, bad, receives, messages, flushed, wrong;
    bool qp_fatal, fatal;   /* events that came */
    bool seen[END_NUMBERS]; /* a message with this number has come */
    bool told[END_NUMBERS]; /* this side was told that the message was sent */
};

void end_pause(void); /* a millisecond */
void end_open(struct end *end, const struct weir_env *env);
/* A device whose endpoint is followed by another one has no QP for a moment. */
void end_make_qp(struct end *end);
void ends_connect(struct end *one, struct end *other);
/* As many receives as there is room for. */
void end_post_receives(struct end *end);
/* False: there is no room, or no number any more, and nothing was posted. */
bool end_say(struct end *end);
void end_say_all(struct end *end);
/* All completions and events that there are. */
void end_take(struct end *end);
void ends_take(struct end *one, struct end *other);
/* Each WR and each receive of both has had its end. */
bool ends_are_over(const struct end *one, const struct end *other);
/* Each message that one was told to be sent has come to the other. */
void ends_lost_nothing(const struct end *one, const struct end *other);
void end_destroy(struct end *end);
void end_close(struct end *end); /* without a QP */

#endif
