/* SPDX-License-Identifier: Apache-2.0 */
/* records.c: the records of transfers: taken, filled, found by their handles, given back.
 *
 * Owns the pools of records and of blocks of pieces, the initial state of a record and its pieces,
 * and the reserve of the fast way in: one record, and blocks for FAST_SEGMENTS pieces. A record has
 * a reference of its handle and one of the engine; the record is free when the last is dropped. The
 * life of a filled transfer is transfer.c's.
 */
#include "records.h"

#include "news.h"
#include "tables.h"

/* ---- what a record says ------------------------------------------------ */

bool transfer_is_suspect(const struct transfer *transfer) {
    return transfer->breaks >= BREAKS_SHARED || transfer->lost >= LOST_SHARED;
}

bool transfer_notifies(const struct transfer *transfer) {
    return (transfer->flags & WEIR_TRANSFER_NOTIFY) != 0;
}

/* All of it is one WR of data, and nothing of it was ever posted. */
bool transfer_is_one_wr(const weir_engine *engine, const struct transfer *transfer) {
    const struct plan_block *block = &engine->blocks[transfer_index(engine, transfer)];
    return !transfer_notifies(transfer) && block->count == 1 && !plan_done(&transfer->cursor) &&
           transfer->cursor.offset == 0 && transfer->outstanding == 0 && transfer->result == 0 &&
           !transfer_was_replayed(transfer) && transfer->bytes <= engine->caps.message_bytes_max;
}

bool transfer_all_posted(const struct transfer *transfer) {
    return plan_done(&transfer->cursor) &&
           (!transfer_notifies(transfer) ||
            (transfer->parts_need != 0 && transfer->parts_mask == transfer->parts_need));
}

/* ---- handles ----------------------------------------------------------- */

struct transfer *record_find(const weir_engine *engine, uint64_t id) {
    uint32_t index = handle_index(id);
    if (index >= engine->options.transfers_max)
        return NULL;
    struct transfer *transfer = &engine->transfers[index];
    return atomic_load_explicit(&transfer->id, memory_order_acquire) == id ? transfer : NULL;
}

struct transfer *record_get(weir_engine *engine, uint64_t id) {
    struct transfer *transfer = record_find(engine, id);
    if (transfer == NULL)
        return NULL;
    uint32_t refs = atomic_load(&transfer->refs);
    do {
        if (refs == 0)
            return NULL;
    } while (!atomic_compare_exchange_weak(&transfer->refs, &refs, refs + 1));
    if (record_find(engine, id) != NULL)
        return transfer;
    record_drop_ref(engine, transfer);
    return NULL;
}

int record_status(const weir_engine *engine, uint64_t id) {
    if (id == 0)
        return WEIR_OK;
    if (engine->forked)
        return WEIR_ECLOSED;
    const struct transfer *transfer = record_find(engine, id);
    if (transfer == NULL)
        return WEIR_ESTALE;
    int status = atomic_load_explicit(&transfer->status, memory_order_acquire);
    return atomic_load_explicit(&transfer->id, memory_order_acquire) == id ? status : WEIR_ESTALE;
}

/* Any thread. The last reference frees the record, which makes room for another transfer. */
void record_drop_ref(weir_engine *engine, struct transfer *transfer) {
    if (atomic_fetch_sub_explicit(&transfer->refs, 1, memory_order_acq_rel) != 1)
        return;
    atomic_store_explicit(&transfer->status, WEIR_ESTALE, memory_order_relaxed);
    pool_give(&engine->transfer_pool, transfer_index(engine, transfer));
    news_room(engine);
}

/* ---- pieces ------------------------------------------------------------ */

static uint32_t pool_block(weir_engine *engine) {
    uint32_t index = pool_take(&engine->block_pool);
    return index == POOL_EMPTY ? PLAN_NO_BLOCK : engine->options.transfers_max + index;
}

static uint32_t take_block(weir_engine *engine, bool use_spare) {
    if (!use_spare)
        return pool_block(engine);
    uint32_t block = engine->spare_blocks;
    if (block != PLAN_NO_BLOCK)
        engine->spare_blocks = engine->blocks[block].next;
    return block;
}

/* The pair names memory that its owner has released, as the device sees it. */
static bool is_gone(weir_engine *engine, const struct weir_segment *segment) {
    struct region_remote *remote = region_remote(&engine->regions, segment->remote.id);
    if (remote->here != 0 || !engine->device_ops->mr_is_gone(engine->device, &remote->rmr))
        return false;
    remote_make_stale(engine, remote);
    return true;
}

/* Resolved, checked copies of the segments, from the own block of transfer `index` on. A thread
 * without the engine may not use the peer's pairs. */
static int fill_pieces(weir_engine *engine, struct request *request, struct peer *peer,
                       uint32_t index, uint64_t *bytes_out) {
    struct region_pair own = REGION_PAIR_NONE;
    struct region_pair *pair = request->owned ? &peer->pairs[request->opcode] : &own;
    struct plan_block *last = record_block_start(engine, index);
    /* A record that has begun (use_spare) is not refused any more: it ends so. */
    bool asks = request->owned && !request->use_spare && engine->device_ops->mr_is_gone != NULL;
    uint64_t seen = 0;
    int rc = WEIR_OK;
    for (size_t i = 0; i < request->count; i++) {
        const weir_segment *segment = &request->segments[i];
        if (pair->version != engine->regions.version || !region_pair_names(pair, segment))
            rc = region_pair(&engine->regions, peer->party, request->access, segment->local.id,
                             segment->remote.id, pair);
        if (rc == WEIR_OK && !region_pair_holds(pair, segment))
            rc = WEIR_EBOUNDS;
        if (rc == WEIR_OK && asks && segment->remote.id != seen) {
            seen = segment->remote.id;
            rc = is_gone(engine, segment) ? WEIR_ESTALE : WEIR_OK;
        }
        if (rc != WEIR_OK)
            break;
        if (last->count == PLAN_BLOCK_PIECES) {
            uint32_t block = take_block(engine, request->use_spare);
            if (block == PLAN_NO_BLOCK) {
                request->full = FULL_SEGMENTS;
                rc = WEIR_EAGAIN;
                break;
            }
            last->next = block;
            last = record_block_start(engine, block);
        }
        record_add_piece(engine, last, pair, segment);
        *bytes_out += segment->length;
    }
    if (rc != WEIR_OK)
        record_drop_pieces(engine, index);
    return rc;
}

/* Drops the pieces of a record. Its blocks, but for its own, go back to the pool. */
void record_drop_pieces(weir_engine *engine, uint32_t index) {
    uint32_t b = index;
    do {
        const struct plan_block *block = &engine->blocks[b];
        uint32_t next = block->next;
        for (uint32_t i = 0; i < block->count; i++)
            record_drop_piece(engine, &block->pieces[i]);
        if (b != index)
            pool_give(&engine->block_pool, b - engine->options.transfers_max);
        b = next;
    } while (b != PLAN_NO_BLOCK);
}

/* ---- filling ----------------------------------------------------------- */

static bool reserve_completion(weir_engine *engine) {
    uint32_t reserved = atomic_load(&engine->completions_reserved);
    do {
        if (reserved > engine->completions.mask)
            return false;
    } while (!atomic_compare_exchange_weak(&engine->completions_reserved, &reserved, reserved + 1));
    return true;
}

/* ---- messages ---------------------------------------------------------- */

/* The sum of the parts' lengths, and whether all of them can be read here. */
static int add_up(const weir_engine *engine, const struct request *request, uint64_t *bytes_out,
                  bool *mapped_out) {
    *bytes_out = 0;
    *mapped_out = true;
    for (size_t i = 0; i < request->count; i++) {
        const weir_part *part = &request->parts[i];
        const struct region_local *local = NULL;
        if (part->local.id != 0) {
            local = region_local(&engine->regions, part->local.id);
            if (local == NULL)
                return WEIR_ESTALE;
            if (part->length > local->length || part->offset > local->length - part->length)
                return WEIR_EBOUNDS;
            *mapped_out &= local->mapped;
        } else if (part->base == NULL && part->length > 0) {
            return WEIR_EINVAL;
        }
        if (part->length > ROOM_LENGTH_MAX - *bytes_out)
            return WEIR_ETOOBIG;
        *bytes_out += part->length;
    }
    return WEIR_OK;
}

static void copy_parts(const weir_engine *engine, const struct request *request, uint8_t *to) {
    for (size_t i = 0; i < request->count; i++) {
        const weir_part *part = &request->parts[i];
        const uint8_t *from = part->base;
        if (part->local.id != 0)
            from = (const uint8_t *)(uintptr_t)region_local(&engine->regions, part->local.id)->base;
        if (part->length > 0)
            memcpy(to, from + part->offset, part->length);
        to += part->length;
    }
}

/* Pieces whose place over there is not known yet. */
static int fill_parts(weir_engine *engine, struct request *request, uint32_t index) {
    struct plan_block *last = record_block_start(engine, index);
    for (size_t i = 0; i < request->count; i++) {
        const weir_part *part = &request->parts[i];
        if (part->length == 0)
            continue;
        if (part->local.id == 0) {
            record_drop_pieces(engine, index);
            return WEIR_EINVAL;
        }
        if (last->count == PLAN_BLOCK_PIECES) {
            uint32_t block = pool_block(engine);
            if (block == PLAN_NO_BLOCK) {
                request->full = FULL_SEGMENTS;
                record_drop_pieces(engine, index);
                return WEIR_EAGAIN;
            }
            last->next = block;
            last = record_block_start(engine, block);
        }
        struct region_local *local = region_local(&engine->regions, part->local.id);
        last->pieces[last->count++] = (struct plan_piece){
            .laddr = local->base + part->offset,
            .length = part->length,
            .lkey = local->lkey,
            .local = handle_index(part->local.id),
            .remote =
                engine->regions.remote_count, /* nobody's: the inbox's memory is its stream's */
        };
        atomic_fetch_add(&local->users, 1);
        atomic_fetch_add(&engine->regions.remotes[engine->regions.remote_count].users, 1);
    }
    return WEIR_OK;
}

/* The message in the record: its bytes, behind the room for its note, or its pieces. */
static int fill_message(weir_engine *engine, struct request *request, struct peer *peer,
                        uint32_t index) {
    struct transfer *transfer = &engine->transfers[index];
    uint64_t bytes;
    bool mapped;
    int rc = add_up(engine, request, &bytes, &mapped);
    if (rc != WEIR_OK)
        return rc;
    bool copied = bytes <= WEIR_MESSAGE_COPY_MAX && mapped;
    record_block_start(engine, index);
    if (!copied)
        rc = fill_parts(engine, request, index);
    if (rc != WEIR_OK)
        return rc;
    record_init(engine, transfer, peer, WEIR_OP_WRITE, &request->options);
    transfer->kind = TRANSFER_MESSAGE;
    transfer->put = false;
    transfer->stream = request->inbox; /* transfer_start finds it */
    transfer->message_length = (uint32_t)bytes;
    transfer->loan = request->loan;
    transfer->notify_length = WORD_NOTE_SIZE;
    transfer->bytes = copied ? 0 : bytes;
    transfer->cursor = plan_start(engine->blocks, index);
    if (copied) {
        copy_parts(engine, request, transfer->payload + WORD_NOTE_SIZE);
        transfer->notify_length += (uint32_t)bytes;
    }
    return WEIR_OK;
}

/* A filled record, on no list yet. Needs the engine or tables_lock. EAGAIN: see request->full. */
int record_fill(weir_engine *engine, struct request *request, struct transfer **out) {
    struct peer *peer = peer_find(engine, request->peer_id);
    if (peer == NULL)
        return WEIR_ESTALE;
    peer = peer_resolve(engine, peer);
    bool queued = (request->options.flags & WEIR_TRANSFER_QUEUE) != 0;
    uint32_t index =
        request->use_spare ? engine->spare_transfer : pool_take(&engine->transfer_pool);
    request->full = FULL_TRANSFERS;
    if (index == POOL_EMPTY)
        return WEIR_EAGAIN;
    if (queued && !reserve_completion(engine)) {
        request->full = FULL_COMPLETIONS;
        pool_give(&engine->transfer_pool, index);
        return WEIR_EAGAIN;
    }
    uint64_t bytes = 0;
    bool message = request->parts != NULL;
    int rc = message ? fill_message(engine, request, peer, index)
                     : fill_pieces(engine, request, peer, index, &bytes);
    if (rc != WEIR_OK) {
        if (queued)
            atomic_fetch_sub(&engine->completions_reserved, 1);
        if (!request->use_spare)
            pool_give(&engine->transfer_pool, index);
        return rc;
    }
    if (request->use_spare)
        engine->spare_transfer = NONE;
    struct transfer *transfer = &engine->transfers[index];
    *out = transfer;
    if (message)
        return WEIR_OK;
    record_init(engine, transfer, peer, request->opcode, &request->options);
    transfer->cursor = plan_start(engine->blocks, index);
    transfer->bytes = bytes;
    transfer->number = request->number;
    return WEIR_OK;
}

/* ---- the reserve ------------------------------------------------------- */

/* Fills the reserve from the pools, as far as they have free entries. When the reserve is whole,
 * the fast way is open again. */
void records_refill(weir_engine *engine) {
    if (engine->spare_transfer == NONE)
        engine->spare_transfer = pool_take(&engine->transfer_pool);
    while (engine->spare_missing > 0) {
        uint32_t block = pool_block(engine);
        if (block == PLAN_NO_BLOCK)
            return;
        engine->blocks[block].next = engine->spare_blocks;
        engine->spare_blocks = block;
        engine->spare_missing--;
    }
    engine->spare_ready = engine->spare_transfer != NONE;
    engine->fast_bytes_end = engine->spare_ready ? engine->post_bytes_max + 1 : 0;
}
