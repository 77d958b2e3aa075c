/* SPDX-License-Identifier: Apache-2.0 */
/* sends.h: what posts of SENDs have in common, for post.c and share.c.
 *
 * Owns where a SEND's bytes are made, and what is accounted for when the device has it. */
#ifndef WEIR_ENGINE_SENDS_H
#define WEIR_ENGINE_SENDS_H

#include "inflight.h"
#include "state.h"

/* The newest run is signalled and was accepted whole. */
static inline void run_cover(weir_engine *engine, struct qp *qp, uint32_t signaled) {
    ledger_cover(&qp->ledger);
    engine->stats.signaled += signaled;
}

/* ledger_take, and the engine's sum. */
static inline uint64_t run_take(weir_engine *engine, struct qp *qp, uint32_t transfer,
                                uint32_t count, uint32_t sends, uint64_t bytes) {
    inflight_take(engine, count, bytes);
    return ledger_take(&qp->ledger, transfer, count, sends, bytes);
}

/* Whether the SEND's bytes may be in the one scratch buffer: the device copies them in
 * the post. */
static inline bool uses_scratch(const weir_engine *engine, uint32_t length) {
    return length <= engine->caps.inline_bytes_max;
}

/* Room for one more SEND's bytes. */
static inline bool send_room(const weir_engine *engine, const struct qp *qp) {
    return uses_scratch(engine, MESSAGE_BYTES) || qp->sbufs_used < qp->sbuf_count;
}

static inline enum credit_class send_class(const struct transfer *transfer) {
    return transfer->kind == TRANSFER_PLAIN ? CREDIT_NOTES : CREDIT_WORDS;
}

/* Where the SEND's bytes are made. */
static inline uint8_t *send_bytes(weir_engine *engine, const struct qp *qp, uint32_t length) {
    size_t index = qp_index(engine, qp);
    return uses_scratch(engine, length)
               ? engine->scratch
               : engine->send_bytes +
                     (index * engine->recvs_per_qp + qp->sbuf_next) * MESSAGE_BYTES;
}

static inline struct weir_wr send_wr(const weir_engine *engine, const uint8_t *bytes,
                                     uint32_t length, uint64_t wr_id) {
    return (struct weir_wr){.wr_id = wr_id,
                            .laddr = (uint64_t)(uintptr_t)bytes,
                            .length = length,
                            .lkey = engine->send_mr.lkey,
                            .opcode = WEIR_OP_SEND,
                            .flags = uses_scratch(engine, length) ? WEIR_WR_INLINE : 0};
}

/* The device has it: credits and buffer are taken. */
static inline void send_posted(weir_engine *engine, struct qp *qp, const struct weir_wr *wr,
                               const struct transfer *transfer, bool done) {
    if (transfer != NULL)
        qp->credit.sent[send_class(transfer)]++;
    credit_told(&qp->credit);
    qp->credit_due = credit_owed(&qp->credit);
    if (wr->laddr != (uint64_t)(uintptr_t)engine->scratch && !done) {
        qp->sbufs_used++;
        qp->sbuf_next = (qp->sbuf_next + 1) % qp->sbuf_count;
    }
}

static inline bool wants_buffer(const weir_engine *engine, const struct weir_wr *wr) {
    return wr->laddr != (uint64_t)(uintptr_t)engine->scratch;
}

/* The number under which the target knows the notification: one for all replays.
 * False: too many are unfinished. */
static inline bool send_number(const weir_engine *engine, struct peer *peer,
                               struct transfer *transfer) {
    if (transfer->number != 0)
        return true;
    if (peer->number_next - peer->sent.base > engine->numbers_max)
        return false;
    transfer->number = peer->number_next++;
    return true;
}

#endif
