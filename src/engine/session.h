/* SPDX-License-Identifier: Apache-2.0 */
/* session.h: the QPs of a session: made, connected, taken down. */
#ifndef WEIR_ENGINE_SESSION_H
#define WEIR_ENGINE_SESSION_H

#include "state.h"

int session_create(weir_engine *engine, struct peer *peer, uint32_t number, uint64_t epoch,
                   struct wire_qp_set *local_out);
void session_qp_free(weir_engine *engine, struct qp *qp);
int session_connect(weir_engine *engine, struct peer *peer, const struct ep_effect *effect);
void session_retire(weir_engine *engine, struct peer *peer, uint32_t number);
void session_excuse(weir_engine *engine, struct peer *peer, uint64_t epoch, int reason);
/* The live session is over. Told once, and RECOVERED or GONE follows. */
void session_lost(weir_engine *engine, struct peer *peer, uint32_t number);
/* It had broken, and it turned out since that nobody answered. */
void session_unanswered(weir_engine *engine, struct peer *peer, uint32_t number);
void drain_feed(weir_engine *engine, struct qp *qp, enum drain_event event);
void session_qp_timer(weir_engine *engine, struct qp *qp);
int session_async(weir_engine *engine);
void session_poll_marks(weir_engine *engine);
void session_device_failed(weir_engine *engine);

#endif
