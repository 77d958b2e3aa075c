/* SPDX-License-Identifier: Apache-2.0 */
/* submit.c: tasks become runs, runs become transfers of weir's, and their ends become statuses.
 *
 * Every transfer is one of WEIR_TRANSFER_QUEUE: whichever thread comes by takes completions, that
 * of the engine at the latest. A run that is refused because the target has registered anew
 * (EREMOTE, ESTALE, and EDEVICE, which is the same on ofi and iWARP) is posted once more, with a
 * new list and with its notification, which has not arrived then; but not to another incarnation of
 * the target: its memory is not what was meant. */
#include "adapter.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WAIT_SPINS = 64 };
#define WAIT_SLICE_NS (20 * NS_PER_MS)

/* weir's segments of a run. */
struct plan {
    weir_segment *segments;
    size_t count, room;
};

/* ---- planning ----------------------------------------------------------------- */

enum found { FOUND, NOT_HERE, NOT_THERE, NO_MEMORY };

static bool add_piece(struct plan *plan, const struct range *range, const struct buffer *buffer,
                      uint64_t source, uint64_t offset, uint64_t length) {
    if (plan->count == plan->room) {
        size_t room = plan->room > 0 ? 2 * plan->room : 64;
        weir_segment *segments = realloc(plan->segments, room * sizeof(*segments));
        if (segments == NULL)
            return false;
        plan->segments = segments;
        plan->room = room;
    }
    plan->segments[plan->count++] = (weir_segment){.local = range->memory,
                                                   .remote = buffer->remote,
                                                   .local_offset = source - range->base,
                                                   .remote_offset = offset - buffer->base,
                                                   .length = length};
    return true;
}

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* Whether all of it is registered here, in buffers side by side. Under local_lock. */
static bool is_here(const struct mc_engine *engine, uint64_t source, uint64_t length) {
    while (length > 0) {
        const struct range *range = local_at(engine, (uintptr_t)source);
        if (range == NULL)
            return false;
        uint64_t bytes = least(length, range->length - (source - range->base));
        source += bytes;
        length -= bytes;
    }
    return true;
}

/* Under local_lock and the segment's lock. Adds nothing, unless it is FOUND. */
static enum found plan_task(const struct mc_engine *engine, const struct segment *segment,
                            const struct task *task, struct plan *plan) {
    size_t before = plan->count;
    uint64_t source = task->source, offset = task->offset, length = task->length;
    enum found found = FOUND;
    while (length > 0 && found == FOUND) {
        const struct range *range = local_at(engine, (uintptr_t)source);
        const struct buffer *buffer = range != NULL ? segment_buffer(segment, offset) : NULL;
        if (range == NULL || buffer == NULL) {
            found = range == NULL ? NOT_HERE : NOT_THERE;
            break;
        }
        uint64_t bytes = least(length, least(range->length - (source - range->base),
                                             buffer->length - (offset - buffer->base)));
        if (!add_piece(plan, range, buffer, source, offset, bytes))
            found = NO_MEMORY;
        source += bytes;
        offset += bytes;
        length -= bytes;
    }
    if (found != FOUND)
        plan->count = before;
    return found;
}

/* ---- ends ---------------------------------------------------------------------- */

/* Under backlog_lock: room for one more. The array is a ring. False: no memory. */
static bool grow_backlog(struct mc_engine *engine) {
    size_t room = engine->backlog_room > 0 ? 2 * engine->backlog_room : 256;
    uint64_t *backlog = malloc(room * sizeof(*backlog));
    if (backlog == NULL)
        return false;
    for (size_t i = 0; i < engine->backlog_count; i++)
        backlog[i] = engine->backlog[(engine->backlog_first + i) % engine->backlog_room];
    free(engine->backlog);
    engine->backlog = backlog;
    engine->backlog_room = room;
    engine->backlog_first = 0;
    return true;
}

/* False: no memory, and the work has to end. */
static bool push_backlog(struct mc_engine *engine, uint64_t work) {
    pthread_mutex_lock(&engine->backlog_lock);
    bool has_room = engine->backlog_count < engine->backlog_room || grow_backlog(engine);
    if (has_room) {
        size_t at = engine->backlog_first + engine->backlog_count++;
        engine->backlog[at % engine->backlog_room] = work;
        atomic_store(&engine->backlog_size, engine->backlog_count);
    }
    pthread_mutex_unlock(&engine->backlog_lock);
    return has_room;
}

/* The oldest; false: there is none. */
static bool pop_backlog(struct mc_engine *engine, uint64_t *work_out) {
    pthread_mutex_lock(&engine->backlog_lock);
    bool there = engine->backlog_count > 0;
    if (there) {
        *work_out = engine->backlog[engine->backlog_first];
        engine->backlog_first = (engine->backlog_first + 1) % engine->backlog_room;
        atomic_store(&engine->backlog_size, --engine->backlog_count);
    }
    pthread_mutex_unlock(&engine->backlog_lock);
    return there;
}

/* Under the batch's lock. */
static void one_less(struct slot *slot) {
    if (--slot->open == 0)
        pthread_cond_broadcast(&slot->ended);
}

static void end_notice(struct mc_engine *engine, struct slot *slot, struct notice *notice,
                       int status) {
    if (notice->bounce.id != 0)
        weir_memory_release(engine->weir, notice->bounce);
    notice->bounce.id = 0;
    notice->phase = PHASE_ENDED;
    notice->status = status;
    one_less(slot);
}

/* Under the batch's lock. The notification that waited for it is on its way, or is not sent. */
static void end_run(struct mc_engine *engine, struct slot *slot, struct run *run, int status) {
    run->phase = PHASE_ENDED;
    run->status = status;
    one_less(slot);
    if (atomic_load(&run->target->is_left))
        refresh_later(engine, run->target); /* of a removed segment: this kept its imports */
    if (run->notice == 0 || run->carries)
        return;
    struct notice *notice = &slot->notices[run->notice - 1];
    notice->failed |= status != WEIR_OK;
    if (--notice->waits > 0)
        return;
    if (notice->failed) {
        end_notice(engine, slot, notice, WEIR_ECANCELED);
    } else {
        notice->phase = PHASE_BACKLOG;
        if (!push_backlog(engine, work_of(slot->index, run->notice - 1) | WORK_NOTICE))
            end_notice(engine, slot, notice, WEIR_ENOMEM);
    }
}

/* Under the batch's lock: until the segment's list was fetched. */
static void park(struct mc_engine *engine, struct slot *slot, struct run *run) {
    struct segment *segment = run->target;
    struct parked *parked = malloc(sizeof(*parked));
    if (parked == NULL) {
        end_run(engine, slot, run, WEIR_ENOMEM);
        return;
    }
    run->phase = PHASE_PARKED;
    run->refreshes++;
    *parked = (struct parked){.slot = slot->index, .run = (uint32_t)(run - slot->runs)};
    pthread_mutex_lock(&segment->parked_lock);
    parked->next = segment->parked;
    segment->parked = parked;
    pthread_mutex_unlock(&segment->parked_lock);
    refresh_later(engine, segment);
}

/* The list may have changed since. */
static bool is_stale(int status) {
    return status == WEIR_ESTALE || status == WEIR_EREMOTE || status == WEIR_EDEVICE;
}

static void settle_run(struct mc_engine *engine, struct slot *slot, struct run *run, int status) {
    if (is_stale(status) && run->posts < POSTS_MAX && run->refreshes < REFRESHES_MAX)
        park(engine, slot, run);
    else
        end_run(engine, slot, run, status);
}

/* ---- posting -------------------------------------------------------------------- */

/* All that a run is posted with, copied under the batch's lock. */
struct posting {
    uint32_t slot, run;
    struct segment *target;
    weir_peer peer;
    uint8_t opcode;
    const uint8_t *payload; /* of the notification that goes with it; NULL: none */
    uint32_t payload_length;
    uint64_t timeout_ns;
};

static struct posting posting_of(const struct slot *slot, const struct run *run) {
    struct posting posting = {.slot = slot->index,
                              .run = (uint32_t)(run - slot->runs),
                              .target = run->target,
                              .opcode = run->opcode,
                              .timeout_ns = slot->timeout_ns};
    if (run->carries) {
        posting.payload = slot->notices[run->notice - 1].payload;
        posting.payload_length = slot->notices[run->notice - 1].length;
    }
    return posting;
}

/* weir did not take it. EAGAIN: there is no room. */
static void refused(struct mc_engine *engine, const struct posting *posting, int rc) {
    struct slot *slot = slot_at(engine, posting->slot);
    pthread_mutex_lock(&slot->lock);
    struct run *run = &slot->runs[posting->run];
    run->posts--;
    if (rc == WEIR_EAGAIN) {
        run->phase = PHASE_BACKLOG;
        run->is_bound = true;
        if (!push_backlog(engine, work_of(posting->slot, posting->run)))
            end_run(engine, slot, run, WEIR_ENOMEM);
    } else if (rc == WEIR_ESTALE && run->refreshes < REFRESHES_MAX) {
        park(engine, slot, run);
    } else {
        end_run(engine, slot, run, rc);
    }
    pthread_mutex_unlock(&slot->lock);
}

/* Copies on shm, so no lock is held. The run was counted as posted. 0, or a code of weir's. */
static int post(struct mc_engine *engine, const struct posting *posting,
                const weir_segment *segments, size_t count) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    options.flags = WEIR_TRANSFER_QUEUE;
    options.user_data = work_of(posting->slot, posting->run);
    options.timeout_ns = posting->timeout_ns;
    if (posting->payload != NULL) {
        options.flags |= WEIR_TRANSFER_NOTIFY;
        options.notify_tag = NOTICE_TAG;
        options.notify_payload = posting->payload;
        options.notify_length = posting->payload_length;
    }
    int rc = posting->opcode == OPCODE_WRITE
                 ? weir_write(engine->weir, posting->peer, segments, count, &options, NULL)
                 : weir_read(engine->weir, posting->peer, segments, count, &options, NULL);
    if (rc != WEIR_OK)
        refused(engine, posting, rc);
    return rc;
}

/* ---- posting again ----------------------------------------------------------------- */

/* Plans what is left of a run with the list as it is now. Its phase is POSTING, so nobody else
 * changes its tasks. False: it ended, or is parked. */
static bool plan_again(struct mc_engine *engine, struct slot *slot, struct run *run, bool is_fresh,
                       struct plan *plan, struct posting *posting) {
    struct segment *target = run->target;
    int error = WEIR_OK;
    bool missing = false;
    uint32_t left = 0;
    pthread_rwlock_rdlock(&engine->local_lock);
    pthread_rwlock_rdlock(&target->lock);
    if ((run->posts > 0 || run->is_bound) && run->nonce != target->nonce)
        error = WEIR_EPEER;
    for (uint32_t i = run->first; error == WEIR_OK && i < run->first + run->count; i++) {
        struct task *task = &slot->tasks[i];
        enum found found = task->lost ? NOT_THERE : plan_task(engine, target, task, plan);
        if (found == NOT_THERE && (is_fresh || run->refreshes >= REFRESHES_MAX))
            task->lost = true; /* also where no list is fetched for it any more */
        missing |= found == NOT_THERE;
        left += found == FOUND;
        error = found == NOT_HERE ? WEIR_ESTALE : found == NO_MEMORY ? WEIR_ENOMEM : WEIR_OK;
    }
    run->nonce = target->nonce;
    posting->peer = target->peer;
    pthread_rwlock_unlock(&target->lock);
    pthread_rwlock_unlock(&engine->local_lock);
    if (error == WEIR_OK && missing && !is_fresh && run->refreshes < REFRESHES_MAX) {
        park(engine, slot, run);
        return false;
    }
    if (error == WEIR_OK && left == 0)
        error = WEIR_EBOUNDS;
    if (error != WEIR_OK) {
        end_run(engine, slot, run, error);
        return false;
    }
    if (missing && run->notice != 0) { /* not all of it arrives, so nobody is told */
        slot->notices[run->notice - 1].failed = true;
        posting->payload = NULL;
    }
    if (plan->count == 0 && posting->payload == NULL) { /* what is left of it moves nothing */
        end_run(engine, slot, run, WEIR_OK);
        return false;
    }
    return true;
}

/* is_fresh: the list was fetched for it. EAGAIN: weir has no room. */
static int post_again(struct mc_engine *engine, uint32_t slot_index, uint32_t run_index,
                      bool is_fresh) {
    struct slot *slot = slot_at(engine, slot_index);
    struct plan plan = {0};
    pthread_mutex_lock(&slot->lock);
    struct run *run = &slot->runs[run_index];
    run->phase = PHASE_POSTING;
    struct posting posting = posting_of(slot, run);
    bool good = plan_again(engine, slot, run, is_fresh, &plan, &posting);
    if (good) {
        run->posts++;
        run->phase = PHASE_POSTED;
    }
    pthread_mutex_unlock(&slot->lock);
    int rc = good ? post(engine, &posting, plan.segments, plan.count) : WEIR_OK;
    free(plan.segments);
    return rc;
}

void submit_parked(struct mc_engine *engine, const struct parked *parked, int error) {
    if (error == WEIR_OK) {
        post_again(engine, parked->slot, parked->run, true);
        return;
    }
    struct slot *slot = slot_at(engine, parked->slot);
    pthread_mutex_lock(&slot->lock);
    end_run(engine, slot, &slot->runs[parked->run], error);
    pthread_mutex_unlock(&slot->lock);
}

static int post_notice(struct mc_engine *engine, uint64_t work) {
    struct slot *slot = slot_at(engine, (uint32_t)(work >> 32 & ~(1u << 31)));
    uint32_t index = (uint32_t)work;
    pthread_mutex_lock(&slot->lock);
    struct notice *notice = &slot->notices[index];
    notice->phase = PHASE_POSTED;
    int rc = notice_post(engine, notice, slot->timeout_ns, work); /* copies at most some bytes */
    if (rc == WEIR_EAGAIN) {
        notice->phase = PHASE_BACKLOG;
        if (!push_backlog(engine, work))
            end_notice(engine, slot, notice, WEIR_ENOMEM);
    } else if (rc != WEIR_OK) {
        end_notice(engine, slot, notice, rc);
    }
    pthread_mutex_unlock(&slot->lock);
    return rc;
}

/* Oldest first, until weir has no room again; what it has none for comes behind the others. */
static void post_backlog(struct mc_engine *engine) {
    size_t left = atomic_load(&engine->backlog_size);
    uint64_t work;
    int rc = WEIR_OK;
    while (left-- > 0 && rc != WEIR_EAGAIN && pop_backlog(engine, &work)) {
        rc = (work & WORK_NOTICE) != 0
                 ? post_notice(engine, work)
                 : post_again(engine, (uint32_t)(work >> 32), (uint32_t)work, false);
    }
}

/* ---- completions ----------------------------------------------------------------- */

static void settle(struct mc_engine *engine, const weir_completion *completion) {
    uint64_t work = completion->user_data;
    struct slot *slot = slot_at(engine, (uint32_t)((work & ~WORK_NOTICE) >> 32));
    pthread_mutex_lock(&slot->lock);
    if ((work & WORK_NOTICE) != 0)
        end_notice(engine, slot, &slot->notices[(uint32_t)work], completion->status);
    else
        settle_run(engine, slot, &slot->runs[(uint32_t)work], completion->status);
    pthread_mutex_unlock(&slot->lock);
}

bool settle_completions(struct mc_engine *engine) {
    weir_completion completion;
    bool any = false;
    while (weir_completion_take(engine->weir, &completion) == WEIR_OK) {
        settle(engine, &completion);
        any = true;
    }
    if (atomic_load(&engine->backlog_size) > 0)
        post_backlog(engine);
    return any;
}

/* ---- submitting -------------------------------------------------------------------- */

/* A run of entries, before the batch has it. */
struct draft {
    struct segment *target;
    weir_peer peer;
    uint64_t nonce;
    size_t first, count;       /* entries */
    size_t piece, piece_count; /* in the plan */
    bool missing;              /* an address is in no list that is known */
};

/* Behind the last entry of the run that begins with the first. */
static size_t run_end(const transfer_request_t *entries, size_t first, size_t count) {
    size_t end = first + 1;
    while (end < count && end - first < RUN_TASKS_MAX &&
           entries[end].target_id == entries[first].target_id &&
           entries[end].opcode == entries[first].opcode)
        end++;
    return end;
}

static int check_entries(struct mc_engine *engine, const transfer_request_t *entries, size_t count,
                         size_t *runs_out) {
    size_t runs = 0;
    for (size_t i = 0, end = 0; i < count; i++) {
        const transfer_request_t *entry = &entries[i];
        if (entry->opcode != OPCODE_READ && entry->opcode != OPCODE_WRITE)
            return MC_CODE_INVALID;
        if (entry->length > UINT64_MAX - entry->target_offset ||
            entry->length > UINT64_MAX - (uintptr_t)entry->source)
            return MC_CODE_INVALID;
        if (i < end)
            continue;
        if (segment_at(engine, entry->target_id) == NULL)
            return MC_CODE_INVALID;
        end = run_end(entries, i, count);
        runs++;
    }
    *runs_out = runs;
    return 0;
}

static struct task task_of(const transfer_request_t *entry) {
    return (struct task){.source = (uintptr_t)entry->source,
                         .offset = entry->target_offset,
                         .length = entry->length};
}

/* Under local_lock. */
static int draft_run(struct mc_engine *engine, const transfer_request_t *entries,
                     struct draft *draft, struct plan *plan) {
    int rc = 0;
    draft->piece = plan->count;
    pthread_rwlock_rdlock(&draft->target->lock);
    draft->peer = draft->target->peer;
    draft->nonce = draft->target->nonce;
    for (size_t i = draft->first; rc == 0 && i < draft->first + draft->count; i++) {
        struct task task = task_of(&entries[i]);
        enum found found =
            draft->missing ? NOT_THERE : plan_task(engine, draft->target, &task, plan);
        draft->missing |= found == NOT_THERE;
        if (found == NOT_HERE || (found == NOT_THERE && !is_here(engine, task.source, task.length)))
            rc = MC_CODE_UNREGISTERED;
        if (found == NO_MEMORY)
            rc = MC_CODE_MEMORY;
    }
    pthread_rwlock_unlock(&draft->target->lock);
    if (draft->missing)
        plan->count = draft->piece;
    draft->piece_count = plan->count - draft->piece;
    return rc;
}

static int draft_all(struct mc_engine *engine, const transfer_request_t *entries, size_t count,
                     struct draft *drafts, struct plan *plan) {
    int rc = 0;
    size_t runs = 0;
    pthread_rwlock_rdlock(&engine->local_lock);
    for (size_t i = 0, end; i < count && rc == 0; i = end) {
        end = run_end(entries, i, count);
        struct draft *draft = &drafts[runs++];
        *draft = (struct draft){
            .target = segment_at(engine, entries[i].target_id), .first = i, .count = end - i};
        rc = draft->target == NULL ? MC_CODE_INVALID : draft_run(engine, entries, draft, plan);
    }
    pthread_rwlock_unlock(&engine->local_lock);
    return rc;
}

static bool has_room(struct slot *slot, size_t runs) {
    if (slot->run_count + runs > slot->run_room) {
        size_t room = slot->run_count + runs + (slot->run_count + runs) / 2;
        struct run *grown = realloc(slot->runs, room * sizeof(*grown));
        if (grown == NULL)
            return false;
        slot->runs = grown;
        slot->run_room = (uint32_t)room;
    }
    if (slot->notice_count == slot->notice_room) {
        size_t room = slot->notice_room > 0 ? 2 * (size_t)slot->notice_room : 1;
        struct notice *grown = realloc(slot->notices, room * sizeof(*grown));
        if (grown == NULL)
            return false;
        slot->notices = grown;
        slot->notice_room = (uint32_t)room;
    }
    return true;
}

static void add_run(struct mc_engine *engine, struct slot *slot, const transfer_request_t *entries,
                    const struct draft *draft, uint32_t notice, bool carries) {
    struct run *run = &slot->runs[slot->run_count];
    *run = (struct run){.target = draft->target,
                        .nonce = draft->nonce,
                        .first = slot->task_count,
                        .count = (uint32_t)draft->count,
                        .notice = notice,
                        .carries = carries,
                        .opcode = (uint8_t)entries[draft->first].opcode,
                        .posts = draft->missing ? 0 : 1,
                        .phase = PHASE_POSTED};
    for (size_t i = 0; i < draft->count; i++) {
        struct task *task = &slot->tasks[slot->task_count++];
        *task = task_of(&entries[draft->first + i]);
        task->run = slot->run_count;
    }
    slot->run_count++;
    slot->open++;
    if (draft->missing)
        park(engine, slot, run);
    else if (draft->piece_count == 0 && !carries)
        end_run(engine, slot, run, WEIR_OK); /* nothing moves */
}

/* The batch has the tasks from now on. *first_out: its first run of these. */
static int add_to_batch(struct mc_engine *engine, uint64_t batch, const transfer_request_t *entries,
                        size_t count, const struct draft *drafts, size_t runs,
                        struct notice *notice, struct posting *postings) {
    struct slot *slot = batch_lock(engine, batch);
    int rc = slot == NULL ? MC_CODE_INVALID : 0;
    if (rc == 0 && count > slot->size - slot->task_count)
        rc = MC_CODE_TOO_MANY;
    if (rc == 0 && !has_room(slot, runs))
        rc = MC_CODE_MEMORY;
    bool carries = notice != NULL && runs == 1 && notice->length <= WEIR_NOTIFY_MAX;
    if (rc == 0) {
        uint32_t number = 0;
        if (notice != NULL) {
            notice->waits = carries ? 0 : (uint32_t)runs;
            notice->phase = carries ? PHASE_ENDED : PHASE_PARKED;
            slot->open += !carries;
            slot->notices[slot->notice_count] = *notice;
            number = ++slot->notice_count;
        }
        for (size_t i = 0; i < runs; i++) {
            add_run(engine, slot, entries, &drafts[i], number, carries);
            const struct run *run = &slot->runs[slot->run_count - 1];
            postings[i] = posting_of(slot, run);
            postings[i].peer = drafts[i].peer;
        }
    }
    if (slot != NULL)
        pthread_mutex_unlock(&slot->lock);
    return rc;
}

static int submit_drafts(struct mc_engine *engine, uint64_t batch,
                         const transfer_request_t *entries, size_t count, size_t runs,
                         struct notice *notice) {
    struct draft one_draft, *drafts = runs == 1 ? &one_draft : calloc(runs, sizeof(*drafts));
    struct posting one, *postings = runs == 1 ? &one : calloc(runs, sizeof(*postings));
    struct plan plan = {0};
    int rc = drafts == NULL || postings == NULL ? MC_CODE_MEMORY
                                                : draft_all(engine, entries, count, drafts, &plan);
    if (rc == 0 && notice != NULL)
        notice->target = drafts[0].target;
    if (rc == 0)
        rc = add_to_batch(engine, batch, entries, count, drafts, runs, notice, postings);
    for (size_t i = 0; rc == 0 && i < runs; i++) {
        const struct draft *draft = &drafts[i];
        if (!draft->missing && (draft->piece_count > 0 || postings[i].payload != NULL))
            post(engine, &postings[i], plan.segments != NULL ? plan.segments + draft->piece : NULL,
                 draft->piece_count);
    }
    if (drafts != &one_draft)
        free(drafts);
    if (postings != &one)
        free(postings);
    free(plan.segments);
    return rc;
}

int submit(struct mc_engine *engine, uint64_t batch, const transfer_request_t *entries,
           size_t count, const notify_msg_t *notify) {
    struct notice notice = {0};
    size_t runs = 0;
    if ((count > 0 && entries == NULL) || (count == 0 && notify != NULL))
        return MC_CODE_INVALID;
    if (count == 0) {
        struct slot *slot = batch_lock(engine, batch);
        if (slot != NULL)
            pthread_mutex_unlock(&slot->lock);
        return slot != NULL ? 0 : MC_CODE_INVALID;
    }
    if (count > BATCH_SIZE_MAX)
        return MC_CODE_TOO_MANY;
    int rc = check_entries(engine, entries, count, &runs);
    if (rc == 0 && notify != NULL) {
        rc = notice_encode(notify, &notice.payload, &notice.length);
        rc = rc == MC_EMEMORY ? MC_CODE_MEMORY : rc != 0 ? MC_CODE_INVALID : 0;
    }
    if (rc == 0) {
        rc = submit_drafts(engine, batch, entries, count, runs, notify != NULL ? &notice : NULL);
        if (rc != 0)
            free(notice.payload);
    }
    if (rc == 0)
        settle_completions(engine);
    return rc;
}

/* ---- statuses ----------------------------------------------------------------------- */

static int status_of(const struct slot *slot, const struct task *task) {
    const struct run *run = &slot->runs[task->run];
    if (run->phase != PHASE_ENDED)
        return STATUS_WAITING;
    if (task->lost)
        return STATUS_FAILED;
    if (run->status == WEIR_OK && run->notice != 0 && !run->carries) {
        const struct notice *notice = &slot->notices[run->notice - 1];
        if (notice->phase != PHASE_ENDED)
            return STATUS_WAITING;
        if (notice->status != WEIR_OK && !notice->failed)
            return STATUS_FAILED; /* the data are there, and nobody was told */
    }
    return run->status == WEIR_OK          ? STATUS_COMPLETED
           : run->status == WEIR_ECANCELED ? STATUS_CANCELED
           : run->status == WEIR_ETIMEDOUT ? STATUS_TIMEOUT
                                           : STATUS_FAILED;
}

static int look(struct mc_engine *engine, uint64_t batch, size_t task, transfer_status_t *status) {
    struct slot *slot = batch_lock(engine, batch);
    if (slot == NULL)
        return MC_CODE_INVALID;
    int rc = task < slot->task_count ? 0 : MC_CODE_INVALID;
    if (rc == 0) {
        status->status = status_of(slot, &slot->tasks[task]);
        status->transferred_bytes =
            status->status == STATUS_COMPLETED ? slot->tasks[task].length : 0;
    }
    pthread_mutex_unlock(&slot->lock);
    return rc;
}

int task_status(struct mc_engine *engine, uint64_t batch, size_t task, transfer_status_t *status) {
    int rc = look(engine, batch, task, status);
    if (rc != 0 || status->status != STATUS_WAITING)
        return rc;
    atomic_fetch_add_explicit(&engine->polls, 1, memory_order_relaxed);
    bool done = weir_engine_progress(engine->weir) > 0;
    if (!settle_completions(engine) && !done)
        sched_yield(); /* many threads that poll are in the way of those that get on */
    return look(engine, batch, task, status);
}

/* Under the batch's lock. */
static int worst(const struct slot *slot) {
    int status = STATUS_COMPLETED;
    for (uint32_t i = 0; i < slot->task_count; i++) {
        int one = status_of(slot, &slot->tasks[i]);
        if (one == STATUS_WAITING)
            return one;
        if (one != STATUS_COMPLETED && status != STATUS_FAILED)
            status = one;
    }
    return status;
}

int batch_wait(struct mc_engine *engine, uint64_t batch, uint64_t timeout_ns) {
    uint64_t begin = mc_now_ns();
    for (uint32_t turn = 0;; turn++) {
        struct slot *slot = batch_lock(engine, batch);
        if (slot == NULL)
            return STATUS_INVALID;
        uint64_t passed = turn == 0 ? 0 : mc_now_ns() - begin;
        if (slot->open > 0 && turn >= WAIT_SPINS && passed < timeout_ns) {
            struct timespec until;
            clock_gettime(CLOCK_REALTIME, &until);
            uint64_t ns = (uint64_t)until.tv_nsec + least(WAIT_SLICE_NS, timeout_ns - passed);
            until.tv_sec += (time_t)(ns / 1000000000);
            until.tv_nsec = (long)(ns % 1000000000);
            pthread_cond_timedwait(&slot->ended, &slot->lock, &until);
        }
        int status = slot->id == batch ? worst(slot) : STATUS_INVALID;
        pthread_mutex_unlock(&slot->lock);
        if (status != STATUS_WAITING || passed >= timeout_ns)
            return status;
        weir_engine_progress(engine->weir);
        settle_completions(engine);
    }
}
