/* SPDX-License-Identifier: Apache-2.0 */
/* post.h: from pending transfers to chains of WRs on QPs. */
#ifndef WEIR_ENGINE_POST_H
#define WEIR_ENGINE_POST_H

#include "state.h"

enum outcome {
    POST_MORE,     /* a chain was posted, more is left */
    POST_ALL,      /* everything is posted */
    POST_TOGETHER, /* several transfers were posted, and are on their lists */
    POST_SLOTS,    /* no QP has room */
    POST_FULL,     /* as many bytes, or WRs of a shared queue, are in flight as may be, or others
                    * wait for that */
    POST_NOTHING,  /* nothing is pending, or may be posted now */
    POST_CREDITS,  /* the notification has to wait for credits */
    POST_WAITS,    /* the next part has to wait for completions of the transfer */
    POST_STOPPED,  /* the transfer failed or its session broke: it is on another list now */
};

/* Whether a credit message of this QP is on its way still, so that another would overtake it. Never
 * on an ordered session, where none overtakes another. */
bool post_credit_under_way(struct qp *qp);
enum outcome post_parts(weir_engine *engine, struct peer *peer, struct transfer *transfer,
                        uint32_t *stuck_out);
enum outcome post_next(weir_engine *engine, struct peer *peer, struct transfer *transfer,
                       uint64_t *bytes, uint32_t *stuck_out);
enum outcome post_together(weir_engine *engine, struct peer *peer, uint64_t *bytes);
bool post_at_once(weir_engine *engine, struct peer *peer, struct transfer *transfer,
                  uint32_t index);
bool post_heal(weir_engine *engine, struct qp *qp);
bool post_life(weir_engine *engine, struct peer *peer);
bool post_empty(weir_engine *engine, struct qp *qp);
int post_message(weir_engine *engine, struct peer *peer, struct qp *qp, struct transfer *transfer,
                 uint8_t parts);

#endif
