/* SPDX-License-Identifier: Apache-2.0 */
/* submit.c: the way in for transfers.
 *
 * Owns weir_write and weir_read, and the pushes on the submit queue (step.c empties it). A
 * transfer goes one of three ways, by the same rules:
 *  1. fast: the engine is free, the device completes in the post, the peer's session
 *     is up and nothing waits before us: check, copy, done, no handle, no queue;
 *  2. owned: the engine is free: a transfer record is filled and started; one WR
 *     without a notification is posted at once when nothing is in its way;
 *  3. handed over: another thread has the engine: a record is filled, checked under
 *     tables_lock, and left on the submit queue.
 *
 * A bad segment fails the call before anything was posted. For the fast way one transfer, and
 * blocks for FAST_SEGMENTS pieces, are kept in reserve (records.c), so that a transfer that was
 * begun there can always go on by way 2.
 */
#include "submit.h"

#include "agenda.h"
#include "direct.h"
#include "look.h"
#include "news.h"
#include "own.h"
#include "post.h"
#include "records.h"
#include "sleep.h"
#include "step.h"
#include "tables.h"
#include "transfer.h"
#include "turns.h"

#include <assert.h>

enum { NOT_FAST = 1 }; /* fast() has done nothing: take way 2 */

static int read_options(const weir_transfer_options *in, weir_transfer_options *out) {
    if (in != NULL && in->size == sizeof(*out)) {
        *out = *in;
    } else {
        *out = (weir_transfer_options){.size = sizeof(*out)};
        if (in == NULL)
            return WEIR_OK;
        if (in->size < offsetof(weir_transfer_options, timeout_ns) || in->size > 4096)
            return WEIR_EINVAL;
        memcpy(out, in, in->size < sizeof(*out) ? in->size : sizeof(*out));
    }
    const uint32_t known = WEIR_TRANSFER_NOTIFY | WEIR_TRANSFER_QUEUE | WEIR_TRANSFER_BLOCK |
                           WEIR_TRANSFER_ONCE | WEIR_TRANSFER_NO_WAIT | WEIR_TRANSFER_NOW;
    if ((out->flags & ~known) != 0)
        return WEIR_EINVAL;
    if ((out->flags & WEIR_TRANSFER_NOTIFY) == 0) {
        out->notify_length = 0;
        return WEIR_OK;
    }
    if (out->notify_length > WEIR_NOTIFY_MAX)
        return WEIR_ETOOBIG;
    return out->notify_length > 0 && out->notify_payload == NULL ? WEIR_EINVAL : WEIR_OK;
}

/* Flags that reads and writes have not. */
enum { OF_MESSAGES = WEIR_TRANSFER_NO_WAIT | WEIR_TRANSFER_NOW };

/* ---- way 1 ------------------------------------------------------------- */

/* The SEND of a notification, all of whose data is in place. OK: done. EINPROGRESS: posted, and its
 * completion is still to come. Anything else: not posted. */
static int fast_notify(weir_engine *engine, struct peer *peer, struct qp *qp,
                       struct request *request) {
    struct transfer *shell = &engine->transfers[engine->spare_transfer];
    shell->number = 0;
    shell->kind = TRANSFER_PLAIN;
    shell->tag = request->options.notify_tag;
    shell->notify_length = request->options.notify_length;
    if (shell->notify_length > 0)
        memcpy(shell->payload, request->options.notify_payload, shell->notify_length);
    int rc = post_message(engine, peer, qp, shell, 1);
    request->number = shell->number;
    if (rc != WEIR_OK)
        return rc;
    if (qp->ledger.used > 0)
        return WEIR_EINPROGRESS;
    window_mark(&peer->sent, shell->number);
    engine->stats.notifications_sent++;
    return WEIR_OK;
}

/* Way 2 for what is left of a transfer whose first `done` segments are in place. */
static __attribute__((noinline)) int fast_rest(weir_engine *engine, struct request *request,
                                               size_t done, struct transfer **out) {
    engine->fast.segments += done;
    for (; done > 0; done--, request->count--)
        engine->fast.bytes[request->opcode] += (request->segments++)->length;
    request->owned = request->use_spare = true;
    engine->spare_missing = SPARE_BLOCKS;
    engine->spare_ready = false;
    engine->fast_bytes_end = 0;
    int rc = record_fill(engine, request, out);
    for (uint32_t b = engine->spare_blocks; b != PLAN_NO_BLOCK; b = engine->blocks[b].next)
        engine->spare_missing--;
    return rc;
}

/* Makes peer->pairs[opcode] name what the segment names. */
static __attribute__((noinline)) int fast_pair(weir_engine *engine, struct peer *peer,
                                               uint8_t opcode, const weir_segment *segment) {
    return region_pair(&engine->regions, peer->party,
                       opcode == WEIR_OP_WRITE ? WEIR_ACCESS_REMOTE_WRITE : WEIR_ACCESS_REMOTE_READ,
                       segment->local.id, segment->remote.id, &peer->pairs[opcode]);
}

/* Executes segments of the pair; returns how many. */
static inline uint32_t fast_post(weir_engine *engine, const struct peer *peer, uint8_t opcode,
                                 const weir_segment *segments, size_t count) {
    return engine->device_ops->post_pieces(peer->fast_qp->qp, &peer->pairs[opcode].span, segments,
                                           (uint32_t)count);
}

/* The segments name several pairs: all are checked, then each stretch of one pair is
 * executed. */
static __attribute__((noinline)) int fast_mixed(weir_engine *engine, struct peer *peer,
                                                uint8_t opcode, const weir_segment *segments,
                                                size_t count, uint64_t *bytes, size_t *done) {
    struct region_pair *pair = &peer->pairs[opcode];
    int rc = WEIR_OK;
    *bytes = 0;
    for (size_t i = 0; i < count; i++) {
        if (!region_pair_names(pair, &segments[i]))
            rc = fast_pair(engine, peer, opcode, &segments[i]);
        if (rc != WEIR_OK)
            return rc;
        if (!region_pair_holds(pair, &segments[i]))
            return WEIR_EBOUNDS;
        *bytes += segments[i].length;
    }
    if (*bytes > engine->post_bytes_max)
        return NOT_FAST;
    while (*done < count) {
        size_t end = *done + 1;
        fast_pair(engine, peer, opcode, &segments[*done]);
        while (end < count && region_pair_names(pair, &segments[end]))
            end++;
        *done += fast_post(engine, peer, opcode, segments + *done, end - *done);
        if (*done < end)
            break;
    }
    return WEIR_OK;
}

/* Checks all, then executes from the front; *done says how many. NOT_FAST or an error:
 * nothing was done. count >= 1. */
static inline __attribute__((always_inline)) int
fast_data(weir_engine *engine, struct peer *peer, uint8_t opcode, const weir_segment *segments,
          size_t count, uint64_t *bytes_out, size_t *done) {
    const struct region_pair *pair = &peer->pairs[opcode];
    if (__builtin_expect(
            pair->version != engine->regions.version || !region_pair_names(pair, segments), 0)) {
        int rc = fast_pair(engine, peer, opcode, segments);
        if (rc != WEIR_OK)
            return rc;
    }
    const weir_segment *segment = segments;
    const weir_segment *end = segments + count;
    uint64_t bytes = 0;
    do {
        if (__builtin_expect(!region_pair_names(pair, segment), 0))
            return fast_mixed(engine, peer, opcode, segments, count, bytes_out, done);
        if (__builtin_expect(!region_pair_holds(pair, segment), 0))
            return WEIR_EBOUNDS;
        bytes += segment->length;
    } while (++segment != end);
    if (bytes > engine->post_bytes_max)
        return NOT_FAST;
    *bytes_out = bytes;
    *done = fast_post(engine, peer, opcode, segments, count);
    return WEIR_OK;
}

static inline void fast_count(weir_engine *engine, uint8_t opcode, uint64_t bytes, size_t count) {
    engine->fast.transfers++;
    engine->fast.segments += count;
    engine->fast.bytes[opcode] += bytes;
}

/* Everything in one go: OK, *out still NULL. NOT_FAST or an error: nothing was done. OK with *out:
 * the rest, which may be all of it, is there for way 2. */
static int fast(weir_engine *engine, struct peer *peer, struct request *request,
                struct transfer **out) {
    struct qp *qp = peer->fast_qp;
    uint64_t bytes = 0;
    size_t done = 0;
    bool notify = (request->options.flags & WEIR_TRANSFER_NOTIFY) != 0;
    if (notify && (!credit_available(&qp->credit, CREDIT_NOTES) || qp->ledger.used > 0))
        return NOT_FAST;
    if (request->count > 0) {
        int rc = fast_data(engine, peer, request->opcode, request->segments, request->count, &bytes,
                           &done);
        if (rc != WEIR_OK)
            return rc;
        if (done == 0)
            return NOT_FAST; /* way 2 finds out why */
        if (done < request->count)
            return fast_rest(engine, request, done, out);
    }
    if (notify) {
        int rc = fast_notify(engine, peer, qp, request);
        if (rc != WEIR_OK) {
            fast_rest(engine, request, done, out);
            if (rc == WEIR_EINPROGRESS) {
                (*out)->outstanding = 1;
                (*out)->parts_need = (*out)->parts_mask = (uint16_t)(1u << qp->index);
                (*out)->epoch = peer->sessions[qp->session].epoch;
            }
            return WEIR_OK;
        }
    }
    if (request->count > 0) {
        fast_count(engine, request->opcode, bytes, request->count);
    } else { /* the notification's post has been counted */
        engine->stats.transfers_ok++;
        engine->stats.transfers_inline++;
    }
    return WEIR_OK;
}

static bool may_be_fast(const weir_engine *engine, const struct request *request) {
    return (request->options.flags & (WEIR_TRANSFER_QUEUE | WEIR_TRANSFER_ONCE)) == 0 &&
           request->count <= FAST_SEGMENTS && request->parts == NULL && engine->spare_ready;
}

/* ---- ways 2 and 3 ------------------------------------------------------ */

/* Gives a turn to the first peer on the run list. Where posting copies, the turn is a short one,
 * and there is none if a long transfer is next. So an application that submits and hardly ever
 * makes progress posts the waiting transfers in their order, and pays for no long copy. */
static void give_turn(weir_engine *engine) {
    const struct peer *first = &engine->peers[engine->run_head];
    uint64_t most = engine->post_bytes_max;
    if (engine->caps.completes_inline && most > SUBMIT_BYTES)
        most = SUBMIT_BYTES;
    if (first->live == NONE || !turns_next_is_long(engine, first, most))
        turns_next(engine, most);
}

/* Messages were sent in one go: says the words that are due because of it. */
static void fast_told(weir_engine *engine, struct peer *peer) {
    if (!peer->talk.due)
        return;
    /* Its receiver may sleep. A peer that is spent has more to post, and waits for its turn. */
    if (peer->spent && peer->runnable)
        give_turn(engine);
    else
        turns_serve(engine, peer, engine->post_bytes_max);
    look_perform(engine);
    engine->worked |= peer->runnable;
}

/* Messages, in one go; returns how many of them, from the front. */
static uint32_t fast_messages(weir_engine *engine, struct peer *peer, uint32_t inbox,
                              const weir_outgoing *messages, size_t count) {
    uint32_t sent = direct_send(engine, peer, inbox, messages, count);
    if (sent > 0)
        fast_told(engine, peer);
    return sent;
}

/* Likewise, one in a loan: its receiver gets it, or, if that does not read it, its bytes. */
static bool fast_loan(weir_engine *engine, struct peer *peer, const struct request *request) {
    const weir_outgoing message = {request->parts, request->count, request->options.notify_tag};
    if (!direct_lend(engine, peer, request))
        return fast_messages(engine, peer, request->inbox, &message, 1) == 1;
    fast_told(engine, peer);
    return true;
}

static bool fast_message(weir_engine *engine, struct peer *peer, const struct request *request) {
    const weir_outgoing message = {request->parts, request->count, request->options.notify_tag};
    return fast_messages(engine, peer, request->inbox, &message, 1) == 1;
}

/* A turn of the peer, or, if that waits for one, of the first. */
static void give_turn_to(weir_engine *engine, struct peer *peer) {
    if (peer->live != NONE && !engine->closing) {
        if (peer->spent && peer->runnable)
            give_turn(engine);
        else
            turns_serve(engine, peer, engine->post_bytes_max);
    }
    look_perform(engine);
}

/* Starts a filled record. later: others follow that are to share its turn. */
static void start(weir_engine *engine, struct peer *peer, struct transfer *transfer, bool later) {
    bool idle = watch_is_idle(peer);
    transfer_start(engine, transfer, true);
    if (later)
        look_perform(engine);
    else
        give_turn_to(engine, peer);
    if (idle && !watch_is_idle(peer)) /* most are over in their turn, on some devices */
        watch_begun(engine, peer, false);
    records_refill(engine);
}

static int submit_owned(weir_engine *engine, struct request *request, uint64_t *id_out) {
    struct peer *peer = peer_find(engine, request->peer_id);
    if (peer == NULL)
        return WEIR_ESTALE;
    peer = peer_resolve(engine, peer);
    struct transfer *transfer = NULL;
    int rc = NOT_FAST;
    if (request->parts != NULL) /* messages that this thread handed over come before this one */
        request->took |= step_take_submitted(engine);
    request->owned = true;
    if (request->parts != NULL && (request->options.flags & WEIR_TRANSFER_QUEUE) == 0 &&
        (request->loan != 0 ? fast_loan : fast_message)(engine, peer, request)) {
        *id_out = 0;
        return WEIR_OK;
    }
    if (peer->fast_qp != NULL && may_be_fast(engine, request)) {
        rc = fast(engine, peer, request, &transfer);
        if (transfer == NULL && rc != NOT_FAST) {
            *id_out = 0;
            return rc;
        }
    }
    if (rc == NOT_FAST)
        rc = record_fill(engine, request, &transfer);
    if (rc != WEIR_OK)
        return rc;
    *id_out = atomic_load_explicit(&transfer->id, memory_order_relaxed);
    if (request->use_spare || !transfer_is_one_wr(engine, transfer) || !peer->posts_at_once ||
        !post_at_once(engine, peer, transfer, transfer_index(engine, transfer)))
        start(engine, peer, transfer, request->more);
    return WEIR_OK;
}

/* An entry is the index of a record to start, or, transfers_max further, to cancel. */
static void push(weir_engine *engine, uint32_t entry) {
    uint32_t head = atomic_load(&engine->submitted);
    do {
        atomic_store_explicit(&engine->submit_next[entry], head, memory_order_relaxed);
    } while (!atomic_compare_exchange_weak(&engine->submitted, &head, entry + 1));
}

/* With the engine: the work on the queue is ours to take up. */
static void serve(weir_engine *engine) {
    engine_step(engine, false);
    own_leave(engine);
}

/* After a push of a transfer: the owner may have let go meanwhile, or wants to be relieved. */
static void take_up(weir_engine *engine) {
    if (own_try(engine)) {
        serve(engine);
    } else if (relief_take(engine)) {
        own_enter(engine);
        relief_done(engine);
        serve(engine);
    }
}

void submit_cancel(weir_engine *engine, struct transfer *transfer) {
    if (atomic_exchange(&transfer->cancel, true)) {
        record_drop_ref(engine, transfer); /* it was cancelled before */
        return;
    }
    push(engine, engine->options.transfers_max + transfer_index(engine, transfer));
    if (own_try(engine)) /* a cancel relieves no owner: it would have to wait for the engine */
        serve(engine);
}

static int submit_handover(weir_engine *engine, struct request *request, uint64_t *id_out) {
    struct transfer *transfer;
    request->owned = false;
    tables_lock(engine);
    int rc = record_fill(engine, request, &transfer);
    tables_unlock(engine);
    if (rc != WEIR_OK)
        return rc;
    *id_out = atomic_load_explicit(&transfer->id, memory_order_relaxed);
    push(engine, transfer_index(engine, transfer));
    take_up(engine);
    return WEIR_OK;
}

/* Whether it may be done in the call, without a record: to wait a moment for the engine is then
 * cheaper than to hand it over. */
static bool is_plain(const weir_engine *engine, const struct request *request) {
    return engine->caps.completes_inline && request->count <= FAST_SEGMENTS &&
           (request->options.flags & (WEIR_TRANSFER_QUEUE | WEIR_TRANSFER_ONCE)) == 0;
}

static int submit_once(weir_engine *engine, struct request *request, uint64_t *id_out) {
    if (!own_try(engine) && !(is_plain(engine, request) && own_try_later(engine)))
        return submit_handover(engine, request, id_out);
    int rc = submit_owned(engine, request, id_out);
    if (__builtin_expect(request->took, 0))
        engine_step(engine, false);
    own_leave(engine);
    return rc;
}

/* WEIR_TRANSFER_BLOCK: looks again and again, with pauses, until there is room or the time is up.
 * `blocked` is raised first, the news is read next, and the look comes last, so that room that is
 * made after the look is not slept over. */
static int submit_blocking(weir_engine *engine, struct request *request, uint64_t *id_out) {
    int rc = submit_once(engine, request, id_out);
    if (rc != WEIR_EAGAIN)
        return rc;
    uint64_t timeout = engine->options.backoff_timeout_ns;
    uint64_t start = engine_clock(engine), pause = 0;
    atomic_fetch_add(&engine->blocked, 1);
    for (;;) {
        uint64_t before = news_or_room(engine);
        rc = submit_once(engine, request, id_out);
        if (rc != WEIR_EAGAIN)
            break;
        uint64_t passed = engine_clock(engine) - start;
        if (passed >= timeout)
            break;
        engine_back_off(engine, before, passed, timeout - passed, &pause);
    }
    atomic_fetch_sub(&engine->blocked, 1);
    return rc;
}

static int submit_request(weir_engine *engine, struct request *request, uint64_t *id_out) {
    if (engine->forked)
        return WEIR_ECLOSED;
    if (request->count > engine->options.segments_max)
        return WEIR_ETOOBIG;
    *id_out = 0;
    int rc = (request->options.flags & WEIR_TRANSFER_BLOCK) != 0
                 ? submit_blocking(engine, request, id_out)
                 : submit_once(engine, request, id_out);
    if (rc == WEIR_EAGAIN)
        atomic_fetch_add(&engine->refused[request->full], 1);
    return rc;
}

static int submit_general(weir_engine *engine, uint64_t peer_id, const weir_segment *segments,
                          size_t count, const weir_transfer_options *options,
                          weir_transfer *transfer_out, uint8_t opcode) {
    struct request request = {
        .segments = segments,
        .count = count,
        .peer_id = peer_id,
        .opcode = opcode,
        .access = opcode == WEIR_OP_WRITE ? WEIR_ACCESS_REMOTE_WRITE : WEIR_ACCESS_REMOTE_READ,
    };
    int rc = read_options(options, &request.options);
    if (rc != WEIR_OK)
        return rc;
    bool notify = (request.options.flags & WEIR_TRANSFER_NOTIFY) != 0;
    bool queued = (request.options.flags & WEIR_TRANSFER_QUEUE) != 0;
    if (engine == NULL || (count == 0 && !notify) || (count > 0 && segments == NULL) ||
        (transfer_out == NULL && !queued) || (request.options.flags & OF_MESSAGES) != 0)
        return WEIR_EINVAL;
    uint64_t id;
    rc = submit_request(engine, &request, &id);
    if (rc == WEIR_OK && transfer_out != NULL)
        transfer_out->id = id;
    return rc;
}

/* One segment without options, from the thread that has the engine, for a device that completes
 * later: as way 2, without the detours. OK: the engine was left. NOT_FAST: nothing was done. */
static inline __attribute__((always_inline)) int
submit_posted(weir_engine *engine, uint64_t peer_id, const weir_segment *segment, size_t count,
              weir_transfer *transfer_out, uint8_t opcode) {
    static const weir_transfer_options none = WEIR_TRANSFER_OPTIONS_INIT;
    struct peer *peer = &engine->peers[peer_id & engine->peers_mask];
    const struct region_pair *pair = &peer->pairs[opcode];
    if (count != 1 || peer->id != peer_id || !peer->posts_at_once ||
        pair->version != engine->regions.version || !region_pair_names(pair, segment) ||
        !region_pair_holds(pair, segment) || segment->length - 1 >= engine->caps.message_bytes_max)
        return NOT_FAST;
    uint32_t index = pool_take(&engine->transfer_pool);
    if (index == POOL_EMPTY)
        return NOT_FAST;
    record_add_piece(engine, record_block_start(engine, index), pair, segment);
    struct transfer *transfer = &engine->transfers[index];
    record_init(engine, transfer, peer, opcode, &none);
    transfer->bytes = segment->length;
    transfer_out->id = atomic_load_explicit(&transfer->id, memory_order_relaxed);
    if (!post_at_once(engine, peer, transfer, index)) {
        transfer->cursor = plan_start(engine->blocks, index);
        start(engine, peer, transfer, false);
    }
    own_leave(engine);
    return WEIR_OK;
}

/* Out of line and with no more arguments than registers, so that the plain case,
 * which jumps to them, saves nothing for their sake. */
static __attribute__((noinline)) int general_write(weir_engine *engine, uint64_t peer_id,
                                                   const weir_segment *segments, size_t count,
                                                   const weir_transfer_options *options,
                                                   weir_transfer *transfer_out) {
    return submit_general(engine, peer_id, segments, count, options, transfer_out, WEIR_OP_WRITE);
}
static __attribute__((noinline)) int general_read(weir_engine *engine, uint64_t peer_id,
                                                  const weir_segment *segments, size_t count,
                                                  const weir_transfer_options *options,
                                                  weir_transfer *transfer_out) {
    return submit_general(engine, peer_id, segments, count, options, transfer_out, WEIR_OP_READ);
}
static __attribute__((noinline)) int leave_write(weir_engine *engine, uint64_t peer_id,
                                                 const weir_segment *segments, size_t count,
                                                 const weir_transfer_options *options,
                                                 weir_transfer *transfer_out) {
    if (submit_posted(engine, peer_id, segments, count, transfer_out, WEIR_OP_WRITE) == WEIR_OK)
        return WEIR_OK;
    own_leave_no_news(engine);
    return submit_general(engine, peer_id, segments, count, options, transfer_out, WEIR_OP_WRITE);
}
static __attribute__((noinline)) int leave_read(weir_engine *engine, uint64_t peer_id,
                                                const weir_segment *segments, size_t count,
                                                const weir_transfer_options *options,
                                                weir_transfer *transfer_out) {
    if (submit_posted(engine, peer_id, segments, count, transfer_out, WEIR_OP_READ) == WEIR_OK)
        return WEIR_OK;
    own_leave_no_news(engine);
    return submit_general(engine, peer_id, segments, count, options, transfer_out, WEIR_OP_READ);
}

/* A plain transfer, counted as done, of which this rest was not done inside the call. */
static __attribute__((noinline)) int submit_rest(weir_engine *engine, struct peer *peer,
                                                 const weir_segment *segments, size_t count,
                                                 weir_transfer *transfer_out, uint8_t opcode) {
    struct request request = {
        .segments = segments,
        .count = count,
        .peer_id = peer->id,
        .opcode = opcode,
        .access = opcode == WEIR_OP_WRITE ? WEIR_ACCESS_REMOTE_WRITE : WEIR_ACCESS_REMOTE_READ,
    };
    struct transfer *rest = NULL;
    engine->fast.transfers--;
    engine->fast.segments -= count;
    for (size_t i = 0; i < count; i++)
        engine->fast.bytes[opcode] -= segments[i].length;
    int rc = fast_rest(engine, &request, 0, &rest);
    if (rc == WEIR_OK) {
        transfer_out->id = atomic_load_explicit(&rest->id, memory_order_relaxed);
        start(engine, peer, rest, false);
    }
    own_leave(engine);
    return rc;
}

/* The bytes of the segments if all of them name the pair and are inside; else more
 * than any device takes in one post. */
static inline uint64_t plain_bytes(const struct region_pair *pair, const weir_segment *segment,
                                   const weir_segment *end) {
    uint64_t bytes = 0;
    do {
        if (__builtin_expect(!region_pair_names(pair, segment) || !region_pair_holds(pair, segment),
                             0))
            return UINT64_MAX;
        bytes += segment->length;
    } while (++segment != end);
    return bytes;
}

/* The plain case: no options, engine free, peer up, nothing in the way, the memories of last time.
 * It only knows success. Segments that the device did not do go to submit_rest, one for a device
 * that completes later to submit_posted, and all else to submit_general, which starts from the
 * beginning and says why it fails. */
static inline __attribute__((always_inline)) int
submit(weir_engine *engine, uint64_t peer_id, const weir_segment *segments, size_t count,
       const weir_transfer_options *options, weir_transfer *transfer_out, uint8_t opcode) {
    if (__builtin_expect(options != NULL || count - 1 >= FAST_SEGMENTS || segments == NULL ||
                             transfer_out == NULL || engine == NULL || !own_try(engine),
                         0))
        return (opcode == WEIR_OP_WRITE ? general_write : general_read)(
            engine, peer_id, segments, count, options, transfer_out);
    struct peer *peer = &engine->peers[peer_id & engine->peers_mask];
    const struct region_pair *pair = &peer->pairs[opcode];
    uint64_t bytes;
    if (__builtin_expect(peer->id != peer_id || peer->fast_qp == NULL ||
                             pair->version != engine->regions.version ||
                             (bytes = plain_bytes(pair, segments, segments + count)) >=
                                 engine->fast_bytes_end,
                         0))
        return (opcode == WEIR_OP_WRITE ? leave_write : leave_read)(engine, peer_id, segments,
                                                                    count, options, transfer_out);
    /* Counted before it is done: nothing more has to be kept over the call. */
    fast_count(engine, opcode, bytes, count);
    uint32_t done = fast_post(engine, peer, opcode, segments, count);
    if (__builtin_expect(done != (uint32_t)count, 0))
        return submit_rest(engine, peer, segments + done, count - done, transfer_out, opcode);
    transfer_out->id = 0;
    own_leave_no_news(engine);
    return WEIR_OK;
}

int weir_write(weir_engine *engine, weir_peer peer, const weir_segment *segments,
               size_t segment_count, const weir_transfer_options *options,
               weir_transfer *transfer_out) {
    return submit(engine, peer.id, segments, segment_count, options, transfer_out, WEIR_OP_WRITE);
}

int weir_read(weir_engine *engine, weir_peer peer, const weir_segment *segments,
              size_t segment_count, const weir_transfer_options *options,
              weir_transfer *transfer_out) {
    return submit(engine, peer.id, segments, segment_count, options, transfer_out, WEIR_OP_READ);
}

/* A message is as a notified write whose target is not known yet. */
static int submit_message(weir_engine *engine, struct request *request,
                          const weir_transfer_options *options, weir_transfer *transfer_out,
                          uint64_t *id_out) {
    int rc = read_options(options, &request->options);
    if (rc != WEIR_OK)
        return rc;
    bool queued = (request->options.flags & WEIR_TRANSFER_QUEUE) != 0;
    if (engine == NULL || request->parts == NULL || (transfer_out == NULL && !queued) ||
        (request->options.flags & WEIR_TRANSFER_NOTIFY) != 0)
        return WEIR_EINVAL;
    request->options.flags |= WEIR_TRANSFER_NOTIFY;
    request->options.notify_length = 0;
    rc = submit_request(engine, request, id_out);
    if (rc == WEIR_OK && transfer_out != NULL)
        transfer_out->id = *id_out;
    return rc;
}

static __attribute__((noinline)) int
general_message(weir_engine *engine, uint64_t peer_id, uint32_t inbox, const weir_outgoing *message,
                bool more, const weir_transfer_options *options, weir_transfer *transfer_out) {
    static const weir_part nothing = {.length = 0};
    struct request request = {
        .parts = message->part_count > 0 ? message->parts : &nothing,
        .count = message->part_count,
        .peer_id = peer_id,
        .inbox = inbox,
        .opcode = WEIR_OP_WRITE,
        .more = more,
    };
    uint64_t id;
    return submit_message(engine, &request, options, transfer_out, &id);
}

static struct request request_of(const struct submit_loan *loan) {
    return (struct request){
        .parts = &loan->part,
        .count = 1,
        .peer_id = loan->peer_id,
        .inbox = loan->inbox,
        .loan = loan->loan,
        .opcode = WEIR_OP_WRITE,
    };
}

bool submit_loan_now(weir_engine *engine, const struct submit_loan *loan, uint64_t tag) {
    struct peer *peer = &engine->peers[loan->peer_id & engine->peers_mask];
    struct request request = request_of(loan);
    request.options.notify_tag = tag;
    return peer->id == loan->peer_id &&
           atomic_load_explicit(&engine->submitted, memory_order_relaxed) == 0 &&
           fast_loan(engine, peer, &request);
}

int submit_loan(weir_engine *engine, const struct submit_loan *loan,
                const weir_transfer_options *options, weir_transfer *transfer_out,
                uint64_t *id_out) {
    struct request request = request_of(loan);
    return submit_message(engine, &request, options, transfer_out, id_out);
}

/* The plain case, as submit has it: no options but tags, and the engine is free. Returns how many
 * messages are done, from the front; the next one is general_message's. */
static inline __attribute__((always_inline)) uint32_t
plain_messages(weir_engine *engine, uint64_t peer_id, uint32_t inbox, const weir_outgoing *messages,
               size_t count) {
    if (!own_try(engine))
        return 0;
    struct peer *peer = &engine->peers[peer_id & engine->peers_mask];
    uint32_t sent = 0;
    if (peer->id == peer_id && atomic_load_explicit(&engine->submitted, memory_order_relaxed) == 0)
        sent = fast_messages(engine, peer, inbox, messages, count);
    if (sent > 0)
        own_leave(engine);
    else
        own_leave_no_news(engine);
    return sent;
}

static inline bool options_are_plain(const weir_transfer_options *options) {
    return options == NULL || (options->size == sizeof(*options) && options->flags == 0);
}

int weir_message_send(weir_engine *engine, weir_peer peer, uint32_t inbox, const weir_part *parts,
                      size_t part_count, const weir_transfer_options *options,
                      weir_transfer *transfer_out) {
    weir_outgoing message = {.parts = parts, .part_count = part_count};
    if (engine != NULL && transfer_out != NULL && options_are_plain(options)) {
        message.tag = options != NULL ? options->notify_tag : 0;
        if (plain_messages(engine, peer.id, inbox, &message, 1) == 1) {
            transfer_out->id = 0;
            return WEIR_OK;
        }
    }
    return general_message(engine, peer.id, inbox, &message, false, options, transfer_out);
}

/* The turn of messages that were started without one, as the one behind them was refused. */
static void give_late_turn(weir_engine *engine, uint64_t peer_id) {
    own_enter(engine);
    struct peer *peer = peer_find(engine, peer_id);
    if (peer != NULL)
        give_turn_to(engine, peer_resolve(engine, peer));
    own_leave(engine);
}

/* Messages of a call that share a turn, at most, where the device completes later. A SEND has notes
 * of seven. */
enum { TOGETHER = 16 };

int weir_message_send_many(weir_engine *engine, weir_peer peer, uint32_t inbox,
                           const weir_outgoing *messages, size_t count,
                           const weir_transfer_options *options, weir_transfer *transfers_out,
                           size_t *sent_out) {
    weir_transfer_options each;
    int rc = read_options(options, &each);
    if (rc != WEIR_OK)
        return rc;
    if (engine == NULL || messages == NULL || count == 0 || sent_out == NULL ||
        (transfers_out == NULL && (each.flags & WEIR_TRANSFER_QUEUE) == 0))
        return WEIR_EINVAL;
    size_t sent = 0;
    bool more = false;
    while (sent < count && rc == WEIR_OK) {
        const weir_outgoing *next = &messages[sent];
        uint32_t done =
            each.flags == 0 ? plain_messages(engine, peer.id, inbox, next, count - sent) : 0;
        for (uint32_t i = 0; i < done; i++)
            transfers_out[sent + i].id = 0;
        if (done == 0) {
            each.notify_tag = next->tag;
            bool late = more;
            more = sent + 1 < count && (sent + 1) % TOGETHER != 0 && !engine->caps.completes_inline;
            rc = general_message(engine, peer.id, inbox, next, more, &each,
                                 transfers_out != NULL ? &transfers_out[sent] : NULL);
            done = rc == WEIR_OK;
            if (!done && late)
                give_late_turn(engine, peer.id);
        }
        sent += done;
    }
    if (sent == 0)
        return rc;
    *sent_out = sent;
    return WEIR_OK;
}
