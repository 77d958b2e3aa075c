/* plan.c: see plan.h. */
#include "plan.h"

static void advance(const struct plan_block *blocks, struct plan_cursor *cursor) {
    cursor->offset = 0;
    if (++cursor->piece < blocks[cursor->block].count)
        return;
    cursor->piece = 0;
    cursor->block = blocks[cursor->block].next;
}

uint32_t plan_fill(const struct plan_block *blocks, struct plan_cursor *cursor,
                   const struct plan_limits *limits, struct weir_wr *wrs_out, uint64_t *bytes) {
    uint32_t count = 0;
    uint64_t total = 0;
    while (count < limits->wrs_max && !plan_done(cursor)) {
        const struct plan_piece *piece = &blocks[cursor->block].pieces[cursor->piece];
        uint64_t length = piece->length - cursor->offset;
        if (length > limits->message_bytes_max)
            length = limits->message_bytes_max;
        if (count > 0 && length > limits->post_bytes_max - total)
            break;
        bool is_inline = limits->opcode == WEIR_OP_WRITE && length <= limits->inline_bytes_max;
        wrs_out[count++] = (struct weir_wr){
            .wr_id = limits->wr_id,
            .laddr = piece->laddr + cursor->offset,
            .raddr = piece->raddr + cursor->offset,
            .length = length,
            .lkey = piece->lkey,
            .rkey = piece->rkey,
            .opcode = limits->opcode,
            .flags = is_inline ? WEIR_WR_INLINE : 0,
        };
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
