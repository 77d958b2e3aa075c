/* SPDX-License-Identifier: Apache-2.0 */
/* kept.c: what is kept of the receives that are posted to QPs, and of WRs that flush.
 *
 * Owns the notes, which all QPs share. A receive is 4 bytes in its QP's ring, if it stands in the
 * QP's *row*: buffers at equal distances that are numbered one after the other, as the engine's
 * are. One that does not has a note besides, and so has each WR that was posted in the error state.
 * A QP that is made reserves a note for each that it may ever need, in blocks that are mapped, and
 * backed when they are first used. So no post lacks one, and a QP that is idle hardly costs memory.
 *
 * The notes of a QP's receives are a list in the order of the posts:
 *
 *     rq_tail .... rq_seen .... rq_head      positions
 *     noted.first  noted_seen   noted.last   the first with a note, from there on */
#include <assert.h>

#include "efa.h"
#include "power.h"

/* ---- notes ---- */

static struct efa_note *note_at(const struct weir_device *device, uint32_t note) {
    return &device->notes.blocks[note / EFA_NOTES_BLOCK][note % EFA_NOTES_BLOCK];
}

int kept_reserve(struct weir_device *device, uint64_t count) {
    const struct weir_env *env = &device->env;
    struct efa_notes *notes = &device->notes;
    while ((uint64_t)notes->block_count * EFA_NOTES_BLOCK < count) {
        if (notes->block_count == EFA_NOTES_BLOCKS)
            return WEIR_EFULL;
        struct efa_note *block =
            env->ops->alloc(env->self, EFA_NOTES_BLOCK * sizeof(struct efa_note));
        if (block == NULL)
            return WEIR_ENOMEM;
        notes->blocks[notes->block_count++] = block;
    }
    return WEIR_OK;
}

void kept_close(struct weir_device *device) {
    const struct weir_env *env = &device->env;
    struct efa_notes *notes = &device->notes;
    while (notes->block_count > 0)
        env->ops->free(env->self, notes->blocks[--notes->block_count],
                       EFA_NOTES_BLOCK * sizeof(struct efa_note));
}

/* The one that was given back last, so that few are ever backed. */
static uint32_t note_push(struct weir_device *device, struct efa_list *list, uint64_t wr_id,
                          uint64_t buffer) {
    struct efa_notes *notes = &device->notes;
    uint32_t note = notes->free_plus_one;
    if (note > 0)
        notes->free_plus_one = note_at(device, --note)->next;
    else
        note = notes->used++;
    assert(note < (uint64_t)notes->block_count * EFA_NOTES_BLOCK);
    *note_at(device, note) = (struct efa_note){.wr_id = wr_id, .buffer = buffer, .next = EFA_NONE};
    if (list->first == EFA_NONE)
        list->first = note;
    else
        note_at(device, list->last)->next = note;
    list->last = note;
    return note;
}

static struct efa_note note_pop(struct weir_device *device, struct efa_list *list) {
    struct efa_notes *notes = &device->notes;
    uint32_t note = list->first;
    struct efa_note taken = *note_at(device, note);
    list->first = taken.next;
    note_at(device, note)->next = notes->free_plus_one;
    notes->free_plus_one = note + 1;
    return taken;
}

/* ---- receives ---- */

#define ROW_REACH INT64_C(0x7fff) /* numbers are at most so far from the first one */
#define NOTED     UINT16_MAX
_Static_assert(2 * ROW_REACH < NOTED, "no number says that there is a note");

size_t kept_bytes(const struct weir_qp *qp) {
    return sizeof *qp + ((size_t)qp->rq_mask + 1) * sizeof qp->receives[0];
}

void kept_start(struct weir_qp *qp, uint32_t rq_depth) {
    qp->rq_depth = rq_depth;
    qp->rq_mask = power_of_two(rq_depth + 1) - 1;
    qp->noted = qp->late = (struct efa_list){EFA_NONE, EFA_NONE};
    qp->noted_seen = EFA_NONE;
}

/* Its first receive begins the row, and the second one says at which distance they lie. */
static uint16_t number_in(struct efa_row *row, uint64_t wr_id, uint64_t buffer) {
    int64_t steps = (int64_t)(wr_id - row->wr_id);
    uint64_t way = buffer - row->buffer;
    if (steps < -ROW_REACH || steps > ROW_REACH)
        return NOTED;
    if (!row->is_known && steps != 0) {
        row->is_known = true;
        row->distance = (uint64_t)((int64_t)way / steps);
    }
    return way == (uint64_t)steps * row->distance ? (uint16_t)(steps + ROW_REACH) : NOTED;
}

static uint64_t steps_of(uint16_t number) {
    return (uint64_t)((int64_t)number - ROW_REACH);
}

static struct efa_receive *receive_at(struct weir_qp *qp, uint32_t position) {
    return &qp->receives[position & qp->rq_mask];
}

void kept_post(struct weir_qp *qp, uint64_t wr_id, void *to) {
    uint64_t buffer = (uint64_t)(uintptr_t)to;
    if (qp->rq_tail == qp->rq_head)
        qp->row = (struct efa_row){.wr_id = wr_id, .buffer = buffer};
    uint16_t number = number_in(&qp->row, wr_id, buffer);
    if (number == NOTED) {
        uint32_t note = note_push(qp->device, &qp->noted, wr_id, buffer);
        if (qp->noted_seen == EFA_NONE)
            qp->noted_seen = note;
    }
    *receive_at(qp, qp->rq_head++) = (struct efa_receive){.number = number};
}

void *kept_place(struct weir_qp *qp, uint32_t byte_length) {
    struct efa_receive *receive = receive_at(qp, qp->rq_seen++);
    uint64_t buffer = qp->row.buffer + steps_of(receive->number) * qp->row.distance;
    receive->byte_length = (uint16_t)byte_length;
    if (receive->number == NOTED) {
        const struct efa_note *note = note_at(qp->device, qp->noted_seen);
        buffer = note->buffer;
        qp->noted_seen = note->next;
    }
    return (void *)(uintptr_t)buffer;
}

void kept_take(struct weir_qp *qp, struct weir_cqe *cqe_out) {
    bool has_message = qp->rq_tail != qp->rq_seen;
    const struct efa_receive *receive = receive_at(qp, qp->rq_tail);
    *cqe_out = (struct weir_cqe){.wr_id = qp->row.wr_id + steps_of(receive->number),
                                 .status = has_message ? WEIR_CQE_OK : WEIR_CQE_FLUSHED,
                                 .qp_tag = qp->tag,
                                 .recv = true};
    if (!has_message)
        (void)kept_place(qp, 0); /* with none */
    cqe_out->byte_length = receive->byte_length;
    if (receive->number == NOTED)
        cqe_out->wr_id = note_pop(qp->device, &qp->noted).wr_id;
    qp->rq_tail++;
}

/* ---- WRs that flush ---- */

void kept_late(struct weir_qp *qp, uint64_t wr_id) {
    (void)note_push(qp->device, &qp->late, wr_id, 0);
}

uint64_t kept_take_late(struct weir_qp *qp) {
    return note_pop(qp->device, &qp->late).wr_id;
}

void kept_forget(struct weir_qp *qp) {
    while (qp->late.first != EFA_NONE)
        (void)note_pop(qp->device, &qp->late);
    while (qp->noted.first != EFA_NONE)
        (void)note_pop(qp->device, &qp->noted);
}
