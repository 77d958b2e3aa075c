/* SPDX-License-Identifier: Apache-2.0 */
/* plan.c: see plan.h. */
#include "plan.h"

/* Past pieces without bytes, and past the ends of blocks. */
static void settle(const struct plan_block *blocks, struct plan_cursor *cursor) {
    while (!plan_done(cursor)) {
        const struct plan_block *block = &blocks[cursor->block];
        if (cursor->piece == block->count) {
            cursor->piece = 0;
            cursor->block = block->next;
        } else if (block->pieces[cursor->piece].length == 0) {
            cursor->piece++;
        } else {
            return;
        }
    }
}

struct plan_cursor plan_start(const struct plan_block *blocks, uint32_t first_block) {
    struct plan_cursor cursor = {.block = first_block};
    settle(blocks, &cursor);
    return cursor;
}

static void advance(const struct plan_block *blocks, struct plan_cursor *cursor) {
    cursor->offset = 0;
    cursor->piece++;
    settle(blocks, cursor);
}

uint32_t plan_fill(const struct plan_block *blocks, struct plan_cursor *cursor,
                   const struct plan_limits *limits, struct weir_wr *wrs_out, uint64_t *bytes) {
    uint32_t count = 0;
    uint64_t total = 0;
    while (count < limits->wrs_max && !plan_done(cursor)) {
        const struct plan_piece *piece = &blocks[cursor->block].pieces[cursor->piece];
        uint64_t length = plan_next_bytes(blocks, cursor, limits->message_bytes_max);
        if (count > 0 && length > limits->post_bytes_max - total)
            break;
        wrs_out[count++] = plan_wr(piece, cursor->offset, length, limits);
        total += length;
        cursor->offset += length;
        if (cursor->offset == piece->length)
            advance(blocks, cursor);
        if (total >= limits->post_bytes_max)
            break;
    }
    *bytes += total;
    return count;
}
