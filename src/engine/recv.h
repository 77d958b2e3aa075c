/* SPDX-License-Identifier: Apache-2.0 */
/* recv.h: receives: posted, given back, missing. */
#ifndef WEIR_ENGINE_RECV_H
#define WEIR_ENGINE_RECV_H

#include "state.h"

int recv_post_all(weir_engine *engine, struct qp *qp);
bool recv_return(weir_engine *engine, struct qp *qp, uint32_t life, uint32_t buffer);
/* recv_return for a notification, which the application has: its sender gets a credit back. */
void recv_taken(weir_engine *engine, struct qp *qp, uint32_t life, uint32_t buffer,
                enum credit_class class);
void recv_connected(const weir_engine *engine, struct qp *qp);
/* QPs go down: the QPs that go on may lack nothing any more. */
void recv_fewer(weir_engine *engine);
void recv_timer(weir_engine *engine);
static inline uint8_t *recv_buffer(const weir_engine *engine, const struct qp *qp,
                                   uint32_t buffer) {
    size_t first = engine->caps.srq ? 0 : (size_t)qp_index(engine, qp) * engine->recvs_per_qp;
    return engine->recv_bytes + (first + buffer) * MESSAGE_BYTES;
}

#endif
