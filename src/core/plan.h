/* SPDX-License-Identifier: Apache-2.0 */
/* plan.h: the pieces of a transfer, and how they become chains of WRs.
 *
 * Owns the form in which an unfinished transfer keeps its segments: resolved
 * pieces in blocks of a bounded pool, and a cursor that says how far they have
 * been posted. The array of WRs that plan_fill writes is what the device posts.
 * A cursor that is copied before a fill and put back forgets the fill: that is how
 * a partial post and a replay start over.
 */
#ifndef WEIR_PLAN_H
#define WEIR_PLAN_H

#include "ports.h"

enum { PLAN_BLOCK_PIECES = 5, PLAN_BLOCK_BYTES = 256 };
#define PLAN_NO_BLOCK UINT32_MAX

struct plan_piece {
    uint64_t laddr;
    uint64_t raddr;
    uint64_t length; /* 0: nothing to post, but it names memory */
    uint32_t lkey;
    uint32_t rkey;
    uint32_t local; /* index of the memory, whose users it counts among */
    uint32_t remote;
};

struct plan_block {
    _Alignas(64) uint32_t next; /* PLAN_NO_BLOCK: last */
    uint32_t count;
    struct plan_piece pieces[PLAN_BLOCK_PIECES];
};
_Static_assert(sizeof(struct plan_block) == PLAN_BLOCK_BYTES, "whole cache lines");

struct plan_cursor {
    uint32_t block; /* PLAN_NO_BLOCK: nothing left */
    uint32_t piece;
    uint64_t offset; /* into the piece */
};

struct plan_limits {
    uint32_t wrs_max;
    uint64_t message_bytes_max;
    uint64_t post_bytes_max; /* at least one WR is written, whatever this says */
    uint64_t wr_id;          /* for all of the chain */
    uint8_t opcode;
    uint32_t inline_bytes_max; /* of writes */
};

static inline bool plan_done(const struct plan_cursor *cursor) {
    return cursor->block == PLAN_NO_BLOCK;
}

/* length bytes of the piece from offset on, unsignalled. */
static inline struct weir_wr plan_wr(const struct plan_piece *piece, uint64_t offset,
                                     uint64_t length, const struct plan_limits *limits) {
    bool is_inline = limits->opcode == WEIR_OP_WRITE && length <= limits->inline_bytes_max;
    return (struct weir_wr){
        .wr_id = limits->wr_id,
        .laddr = piece->laddr + offset,
        .raddr = piece->raddr + offset,
        .length = length,
        .lkey = piece->lkey,
        .rkey = piece->rkey,
        .opcode = limits->opcode,
        .flags = is_inline ? WEIR_WR_INLINE : 0,
    };
}

/* Bytes of the WR that plan_fill would write first; the cursor is not done. */
static inline uint64_t plan_next_bytes(const struct plan_block *blocks,
                                       const struct plan_cursor *cursor,
                                       uint64_t message_bytes_max) {
    uint64_t left = blocks[cursor->block].pieces[cursor->piece].length - cursor->offset;
    return left < message_bytes_max ? left : message_bytes_max;
}

/* A cursor before the first piece that has bytes. */
struct plan_cursor plan_start(const struct plan_block *blocks, uint32_t first_block);

/* Writes the next WRs, unsignalled, moves the cursor behind them, returns how many;
 * adds their bytes to *bytes. */
uint32_t plan_fill(const struct plan_block *blocks, struct plan_cursor *cursor,
                   const struct plan_limits *limits, struct weir_wr *wrs_out, uint64_t *bytes);

#endif
