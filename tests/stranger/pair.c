/* SPDX-License-Identifier: Apache-2.0 */
/* pair.c: a side of a busy pair: an engine with default settings that writes to the other side,
 * reads back, is written to, and counts whatever goes wrong.
 *
 * Owns the work. Each side has SLOTS pieces of the other's memory. It fills one with content that
 * nothing else has, by a write with a notification; the other side compares what is there and
 * answers by a notification; some are then read back and compared as well. The notifications of a
 * side are numbered without a gap, and carry what shows whose they are: so loss, doubles and
 * foreign ones are seen. Now and then a side breaks the session on purpose, by a write to memory
 * that nothing is behind, and now and then it closes and opens the other one. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "board.h"

enum {
    SLOTS = 24,
    SLOT_BYTES = 1 << 16,
    HALF_BYTES = SLOTS / 2 * SLOT_BYTES, /* of the slots in one memory */
    HOLE_BYTES = 1 << 16,
    ANSWERS = 4096, /* at least as many as there are slots */
    WINDOW = 1 << 16,
    REST_MOST_US = 2000,
};
#define BREAK_EVERY_NS  (300 * MS)
#define REOPEN_EVERY_NS (1500 * MS)
#define WAIT_NS         (MS / 2)

enum kind { KIND_DATA = 1, KIND_ANSWER };

/* The payload of a notification. */
struct note {
    uint64_t proof; /* of the rest: nobody else has the run's seed */
    uint64_t number;
    uint64_t content;
    uint32_t kind, slot, length, right;
};

enum slot_state { SLOT_FREE, SLOT_WRITING, SLOT_READING };

struct slot {
    enum slot_state state;
    bool answered;
    weir_transfer transfer;
    bool done; /* the transfer is */
    uint64_t content, free_at_ns;
    uint32_t length;
};

struct answer {
    struct note note;
    weir_transfer transfer;
    bool submitted;
};

static struct side {
    int which;
    weir_engine *engine;
    struct side_board *mine, *theirs;
    struct report *report;
    struct prng prng;
    weir_memory inbox[2], outbox, hole;
    uint8_t *inbox_bytes[2], *outbox_bytes;
    weir_peer peer;
    weir_remote remotes[MEMORIES];
    uint32_t imported;
    struct slot slots[SLOTS];
    struct answer answers[ANSWERS];
    uint32_t answer_first, answer_count;
    uint64_t number_next, content_next;
    uint64_t seen_base; /* all numbers below it have come */
    uint64_t seen[WINDOW / 64];
    bool breaking, reopening;
    weir_transfer break_transfer;
    uint64_t break_at_ns, reopen_at_ns, reopen_since_ns, last_done_ns;
} me;

/* ---- content ----------------------------------------------------------- */

static uint64_t word_of(uint64_t content, uint64_t at) {
    return mix(content * UINT64_C(0x9e3779b97f4a7c15) + at);
}

static void fill(uint8_t *bytes, uint32_t length, uint64_t content) {
    for (uint32_t at = 0; at < length; at += 8) {
        uint64_t word = word_of(content, at);
        memcpy(bytes + at, &word, sizeof(word));
    }
}

static bool is_right(const uint8_t *bytes, uint32_t length, uint64_t content) {
    for (uint32_t at = 0; at < length; at += 8) {
        uint64_t word = word_of(content, at);
        if (memcmp(bytes + at, &word, sizeof(word)) != 0)
            return false;
    }
    me.report->bytes_verified += length;
    return true;
}

static uint64_t proof_of(const struct note *note, int from) {
    uint64_t proof = mix(board->seed + (uint64_t)from);
    proof = mix(proof + note->number);
    proof = mix(proof + note->content);
    proof = mix(proof + note->kind);
    return mix(proof + ((uint64_t)note->slot << 40) + ((uint64_t)note->length << 8) + note->right);
}

static uint8_t *outbox_of(uint32_t slot) {
    return me.outbox_bytes + (uint64_t)slot * SLOT_BYTES;
}

/* Slots alternate between the two memories. */
static uint64_t offset_of(uint32_t slot) {
    return (uint64_t)(slot / 2) * SLOT_BYTES;
}

/* ---- the other side's handle ------------------------------------------- */

static void open_peer(void) {
    int rc = weir_peer_open(me.engine, me.theirs->address, &me.peer);
    if (rc != WEIR_OK)
        give_up("weir_peer_open", rc);
    rc = weir_peer_connect(me.engine, me.peer);
    if (rc != WEIR_OK && rc != WEIR_ENOTREADY)
        give_up("weir_peer_connect", rc);
    me.imported = 0;
}

/* True: all of the other side's memories can be used. */
static bool import_some(void) {
    while (me.imported < MEMORIES) {
        uint32_t which = me.imported;
        int rc = weir_memory_import(me.engine, me.peer, me.theirs->descriptors[which],
                                    me.theirs->descriptor_lengths[which], &me.remotes[which]);
        if (rc != WEIR_OK) {
            me.report->imports_again++;
            if (rc != WEIR_EAGAIN)
                me.report->last_error = rc;
            return false;
        }
        me.imported++;
    }
    return true;
}

/* ---- transfers --------------------------------------------------------- */

/* A notification's number is taken when its transfer is accepted. */
static int submit(const weir_segment *segment, struct note *note, weir_transfer *transfer) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    note->number = me.number_next;
    note->proof = proof_of(note, me.which);
    options.flags = WEIR_TRANSFER_NOTIFY;
    options.notify_length = sizeof(*note);
    options.notify_payload = note;
    options.notify_tag = note->number;
    transfer->id = 0;
    int rc = weir_write(me.engine, me.peer, segment, segment != NULL ? 1 : 0, &options, transfer);
    if (rc == WEIR_OK)
        me.number_next++;
    return rc;
}

/* EINPROGRESS, or how it ended; its handle is given back then. */
static int poll_transfer(weir_transfer *transfer) {
    int rc = transfer->id == 0 ? WEIR_OK : weir_transfer_status(me.engine, *transfer);
    if (rc != WEIR_EINPROGRESS && transfer->id != 0) {
        weir_transfer_release(me.engine, *transfer);
        transfer->id = 0;
    }
    return rc;
}

static void count_end(int rc) {
    uint64_t now = now_ns();
    if (rc == WEIR_OK) {
        me.report->transfers_ok++;
        if (me.last_done_ns != 0 && now - me.last_done_ns > me.report->longest_ns)
            me.report->longest_ns = now - me.last_done_ns;
        me.last_done_ns = now;
    } else {
        me.report->transfers_failed++;
        me.report->last_error = rc;
    }
}

static weir_segment segment_of(uint32_t slot) {
    return (weir_segment){.local = me.outbox,
                          .remote = me.remotes[slot % 2],
                          .local_offset = (uint64_t)slot * SLOT_BYTES,
                          .remote_offset = offset_of(slot),
                          .length = me.slots[slot].length};
}

static void slot_free(struct slot *slot) {
    slot->state = SLOT_FREE;
    slot->free_at_ns = now_ns() + below(&me.prng, REST_MOST_US) * (MS / 1000);
}

static void slot_write(uint32_t index) {
    struct slot *slot = &me.slots[index];
    slot->length =
        8 * (1 + (one_in(&me.prng, 16) ? below(&me.prng, SLOT_BYTES / 8) : below(&me.prng, 256)));
    slot->content = ++me.content_next * 2 + (uint64_t)me.which;
    fill(outbox_of(index), slot->length, slot->content);
    weir_segment segment = segment_of(index);
    struct note note = {
        .kind = KIND_DATA, .slot = index, .length = slot->length, .content = slot->content};
    int rc = submit(&segment, &note, &slot->transfer);
    if (rc == WEIR_EAGAIN)
        return;
    if (rc != WEIR_OK) {
        count_end(rc);
        slot_free(slot);
        return;
    }
    slot->state = SLOT_WRITING;
    slot->answered = slot->done = false;
}

/* Into the place that it was written from, which is emptied before. */
static void slot_read(uint32_t index) {
    struct slot *slot = &me.slots[index];
    weir_segment segment = segment_of(index);
    memset(outbox_of(index), 0, slot->length);
    slot->transfer.id = 0;
    int rc = weir_read(me.engine, me.peer, &segment, 1, NULL, &slot->transfer);
    if (rc == WEIR_OK) {
        slot->state = SLOT_READING;
        return;
    }
    if (rc != WEIR_EAGAIN)
        count_end(rc);
    slot_free(slot);
}

static void slot_step(uint32_t index, bool may_begin, uint64_t now) {
    struct slot *slot = &me.slots[index];
    if (slot->state == SLOT_FREE) {
        if (may_begin && now >= slot->free_at_ns)
            slot_write(index);
        return;
    }
    if (!slot->done) {
        int rc = poll_transfer(&slot->transfer);
        if (rc == WEIR_EINPROGRESS)
            return;
        count_end(rc);
        slot->done = true;
        if (rc == WEIR_OK && slot->state == SLOT_WRITING)
            me.report->sent++;
        if (rc != WEIR_OK) {
            slot_free(slot);
            return;
        }
    }
    if (slot->state == SLOT_WRITING && slot->answered) {
        slot->done = false;
        if (one_in(&me.prng, 2))
            slot_read(index);
        else
            slot_free(slot);
    } else if (slot->state == SLOT_READING) {
        if (is_right(outbox_of(index), slot->length, slot->content))
            me.report->reads_verified++;
        else
            me.report->wrong_bytes++;
        slot_free(slot);
    }
}

/* Answers that are owed, in their order; those that ended are forgotten. */
static void answers_step(void) {
    for (uint32_t i = 0; i < me.answer_count; i++) {
        struct answer *answer = &me.answers[(me.answer_first + i) % ANSWERS];
        if (!answer->submitted) {
            int rc = me.imported < MEMORIES ? WEIR_EAGAIN
                                            : submit(NULL, &answer->note, &answer->transfer);
            if (rc != WEIR_OK && rc != WEIR_EAGAIN)
                count_end(rc); /* and once more, later */
            if (rc != WEIR_OK)
                break;
            answer->submitted = true;
        }
    }
    while (me.answer_count > 0) {
        struct answer *answer = &me.answers[me.answer_first];
        int rc = answer->submitted ? poll_transfer(&answer->transfer) : WEIR_EINPROGRESS;
        if (rc == WEIR_EINPROGRESS)
            break;
        count_end(rc);
        me.report->sent += rc == WEIR_OK;
        me.answer_first = (me.answer_first + 1) % ANSWERS;
        me.answer_count--;
    }
}

/* ---- notifications ----------------------------------------------------- */

/* False: this number has come before. */
static bool see(uint64_t number) {
    uint64_t bit = UINT64_C(1) << (number % 64), *word = &me.seen[number % WINDOW / 64];
    if (number < me.seen_base || (number < me.seen_base + WINDOW && (*word & bit) != 0))
        return false;
    if (number >= me.seen_base + WINDOW)
        give_up("a notification is lost, and the window is full", 0);
    *word |= bit;
    for (;;) {
        uint64_t base = me.seen_base;
        word = &me.seen[base % WINDOW / 64];
        bit = UINT64_C(1) << (base % 64);
        if ((*word & bit) == 0)
            return true;
        *word &= ~bit;
        me.seen_base++;
    }
}

static void on_data(const struct note *note) {
    const uint8_t *bytes = me.inbox_bytes[note->slot % 2] + offset_of(note->slot);
    bool right = is_right(bytes, note->length, note->content);
    me.report->wrong_bytes += !right;
    if (me.answer_count == ANSWERS)
        give_up("more notifications than there are slots", 0);
    struct answer *answer = &me.answers[(me.answer_first + me.answer_count++) % ANSWERS];
    *answer = (struct answer){.note = {.kind = KIND_ANSWER,
                                       .slot = note->slot,
                                       .length = note->length,
                                       .content = note->content,
                                       .right = right}};
}

static void on_notification(const weir_notification *notification) {
    weir_peer_info info = WEIR_PEER_INFO_INIT;
    struct note note;
    memcpy(&note, notification->payload, sizeof(note));
    if (notification->length != sizeof(note) || note.proof != proof_of(&note, 1 - me.which) ||
        notification->tag != note.number || note.slot >= SLOTS || note.length > SLOT_BYTES) {
        me.report->foreign++;
        return;
    }
    if (weir_peer_query(me.engine, me.peer, &info) == WEIR_OK &&
        info.peer.id != notification->from.id)
        me.report->renamed++;
    if (!see(note.number)) {
        me.report->doubled++;
        return;
    }
    me.report->arrived++;
    if (note.kind == KIND_DATA)
        on_data(&note);
    else if (me.slots[note.slot].state == SLOT_WRITING &&
             me.slots[note.slot].content == note.content)
        me.slots[note.slot].answered = true;
}

static void on_event(const weir_event *event) {
    weir_peer_info info = WEIR_PEER_INFO_INIT;
    if (board->phase == PHASE_LEAVE)
        return; /* the other side leaves */
    bool own =
        event->peer.id == me.peer.id ||
        (weir_peer_query(me.engine, me.peer, &info) == WEIR_OK && info.peer.id == event->peer.id);
    (own ? me.report->own_events : me.report->other_events)[event->type]++;
    if (own && event->type == WEIR_EVENT_GONE)
        me.report->last_gone = event->error;
    if (own && event->type == WEIR_EVENT_DEGRADED)
        me.report->last_break = event->error;
}

static void take_all(void) {
    weir_notification notification;
    weir_event event;
    while (weir_notification_take(me.engine, &notification) == WEIR_OK)
        on_notification(&notification);
    while (weir_event_take(me.engine, &event) == WEIR_OK)
        on_event(&event);
}

/* ---- breaking and opening again ---------------------------------------- */

/* A write to memory that nothing is behind: it fails, its session breaks, and what else was under
 * way is replayed. One at a time. */
static void break_step(uint64_t now) {
    if (me.breaking) {
        int rc = poll_transfer(&me.break_transfer);
        if (rc == WEIR_EINPROGRESS)
            return;
        me.breaking = false;
        me.break_at_ns = now + BREAK_EVERY_NS / 2 + draw(&me.prng) % BREAK_EVERY_NS;
        if (rc == WEIR_EREMOTE)
            me.report->broken_on_purpose++;
        else
            count_end(rc == WEIR_OK ? WEIR_EREMOTE : rc);
        return;
    }
    if (now < me.break_at_ns || me.reopening || board->phase != PHASE_RUN)
        return;
    weir_segment segment = {.local = me.outbox, .remote = me.remotes[2], .length = 64};
    me.break_transfer.id = 0;
    me.breaking = weir_write(me.engine, me.peer, &segment, 1, NULL, &me.break_transfer) == WEIR_OK;
}

static bool is_quiet(void) {
    for (uint32_t i = 0; i < SLOTS; i++) {
        if (me.slots[i].state != SLOT_FREE)
            return false;
    }
    return me.answer_count == 0 && !me.breaking;
}

/* Closes the other side when nothing of ours is under way, and opens it again. Its transfers to us
 * go on meanwhile. */
static void reopen_step(uint64_t now) {
    if (!me.reopening) {
        if (now >= me.reopen_at_ns && board->phase == PHASE_RUN && !me.breaking) {
            me.reopening = true;
            me.reopen_since_ns = 0;
        }
        return;
    }
    if (me.reopen_since_ns == 0) {
        if (!is_quiet())
            return;
        me.reopen_since_ns = now;
        for (uint32_t i = 0; i < MEMORIES; i++)
            weir_remote_release(me.engine, me.remotes[i]);
        weir_peer_close(me.engine, me.peer);
        me.report->reopens++;
        open_peer();
    }
    if (!import_some())
        return;
    if (now - me.reopen_since_ns > me.report->longest_reopen_ns)
        me.report->longest_reopen_ns = now - me.reopen_since_ns;
    me.reopening = false;
    me.reopen_at_ns = now + REOPEN_EVERY_NS / 2 + draw(&me.prng) % REOPEN_EVERY_NS;
}

/* ---- the life of a side ------------------------------------------------ */

static void export(uint32_t which, weir_memory memory) {
    me.mine->descriptor_lengths[which] = WEIR_DESCRIPTOR_MAX;
    int rc = weir_memory_export(me.engine, memory, me.mine->descriptors[which],
                                &me.mine->descriptor_lengths[which]);
    if (rc != WEIR_OK)
        give_up("weir_memory_export", rc);
}

static void *map(uint64_t bytes, int protection) {
    void *base = mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        give_up("mmap", WEIR_ENOMEM);
    return base;
}

static void make_memories(void) {
    void *base;
    int rc = weir_memory_allocate(me.engine, HALF_BYTES, WEIR_ACCESS_ALL, &me.inbox[0], &base);
    me.inbox_bytes[0] = base;
    me.inbox_bytes[1] = map(HALF_BYTES, PROT_READ | PROT_WRITE);
    me.outbox_bytes = map((uint64_t)SLOTS * SLOT_BYTES, PROT_READ | PROT_WRITE);
    if (rc == WEIR_OK)
        rc = weir_memory_register(me.engine, me.inbox_bytes[1], HALF_BYTES, WEIR_ACCESS_ALL,
                                  &me.inbox[1]);
    if (rc == WEIR_OK)
        rc = weir_memory_register(me.engine, me.outbox_bytes, (uint64_t)SLOTS * SLOT_BYTES, 0,
                                  &me.outbox);
    if (rc == WEIR_OK)
        rc = weir_memory_register(me.engine, map(HOLE_BYTES, PROT_NONE), HOLE_BYTES,
                                  WEIR_ACCESS_ALL, &me.hole);
    if (rc != WEIR_OK)
        give_up("memory", rc);
    export(0, me.inbox[0]);
    export(1, me.inbox[1]);
    export(2, me.hole);
}

/* Idle in a phase that lets nothing begin: between two pieces of work is not idle. */
static void tell(enum phase phase) {
    me.report->stats.size = sizeof(me.report->stats);
    weir_engine_query(me.engine, &me.report->stats);
    me.mine->sent = me.report->sent;
    me.mine->arrived = me.report->arrived;
    me.mine->idle = phase != PHASE_RUN && is_quiet() && !me.reopening;
}

static void step(void) {
    uint64_t now = now_ns();
    enum phase phase = board->phase;
    bool may_begin = phase == PHASE_RUN && !me.reopening;
    weir_engine_wait(me.engine, WAIT_NS);
    take_all();
    answers_step();
    for (uint32_t i = 0; i < SLOTS; i++)
        slot_step(i, may_begin, now);
    reopen_step(now);
    break_step(now);
    tell(phase);
}

/* Until the other side has its memories, a session is up, and ours are imported. */
static void meet(void) {
    weir_peer_info info = WEIR_PEER_INFO_INIT;
    me.mine->ready = true;
    while (!me.theirs->ready)
        usleep(1000);
    open_peer();
    do {
        weir_engine_wait(me.engine, WAIT_NS);
        take_all();
        weir_peer_query(me.engine, me.peer, &info);
    } while (!import_some() || info.connected == 0);
}

int side_main(int which) {
    me.which = which;
    me.mine = &board->sides[which];
    me.theirs = &board->sides[1 - which];
    me.report = &me.mine->report;
    me.prng.state = mix(board->seed + 10 + (uint64_t)which);
    me.mine->pid = getpid();
    int rc = weir_engine_open(NULL, &me.engine);
    if (rc == WEIR_OK)
        rc = weir_engine_address(me.engine, me.mine->address, sizeof(me.mine->address));
    if (rc != WEIR_OK)
        give_up("weir_engine_open", rc);
    make_memories();
    meet();
    me.report->imports_again = 0;
    me.break_at_ns = now_ns() + BREAK_EVERY_NS;
    me.reopen_at_ns = now_ns() + REOPEN_EVERY_NS;
    me.mine->idle = true;
    while (board->phase != PHASE_LEAVE)
        step();
    weir_engine_close(me.engine);
    return 0;
}
