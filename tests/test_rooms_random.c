/* SPDX-License-Identifier: Apache-2.0 */
/* test_rooms_random.c: a campaign against the room of an inbox: senders that come, fall silent,
 * cancel messages, are given up and begin anew, and an application that takes and gives back in any
 * order. Words between the two sides arrive late and in order, notes of messages in any order. Of a
 * message that was cancelled it may be unknown whether it arrived: both is told then. Senders write
 * each message in place, or have it noted, at random. The receiver looks for what was written, or
 * rests, and sleeps until it is told. Then the faults stop, and all that was sent has to arrive.
 *
 * Arguments: FIRST LAST, the seeds to run. Without any: SEEDS of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "inbox.h"
#include "outbox.h"
#include "prng.h"

enum {
    SEEDS = 2000,
    SENDERS = INBOX_WATCH + 2, /* of few worlds; FEW of the others */
    FEW = 5,
    ACTS = 400,
    WORDS = 64,
    RECORDS = 128, /* of one life */
    NOTES = 2 * RECORDS,
    LIVES = 48,
    HELD = 64,
    HEAL_ROUNDS = 4000,
    CHUNK_LINES_MAX = 12,
    CHUNKS_MAX = 8,
    CHUNKS_MANY = 6 * OUTBOX_PLACES, /* of some worlds */
    NOBODY = -1
};

/* A word of one side to the other. */
enum kind { WANT, SHUT, LOOK, MEET, GRANT, CALL };
struct word {
    enum kind kind;
    uint64_t grants;
    struct room_shut shut;
    struct room_grant grant;
};
struct way {
    struct word words[WORDS];
    uint32_t head, tail;
};

/* A note on its way. The payload of a message is written before. A note that was lost comes not
 * before its sender is quiet, if it comes at all; its payload may be written. */
struct note {
    uint32_t record;
    bool skip, written, lost;
};

enum state { QUEUED, GONE, PUT }; /* GONE: cancelled before it was put */
enum noted { NOT, MESSAGE, SKIP };
struct record {
    enum state state;
    enum noted noted; /* by the inbox: the first note counts */
    bool cancelled, delivered;
    bool direct;  /* noted when it is written */
    bool lingers; /* its sender leaves, and may write there still */
    uint32_t length;
    struct outbox_spot spot;
};

/* One sender's stream, from its birth to its end. */
enum stage { LIVING, LEAVING, QUIET };
struct life {
    enum stage stage;
    uint32_t peer;
    struct outbox out;
    struct way there, back;
    struct note notes[NOTES];
    uint32_t note_count;
    struct record records[RECORDS];
    uint32_t count;
    uint32_t next;    /* the record that may be delivered next */
    bool wanted, met; /* the inbox heard WANT; the sender MEET */
    uint32_t pace;    /* of its notes: larger is slower */
    bool silent;      /* it neither listens nor speaks */
    uint32_t plain;   /* one message of this plus one is noted; 0: each */
    uint32_t writes;  /* the direct message that is being written, plus 1; 0 */
    bool look_due;
};

struct held {
    struct inbox_message message;
    struct life *life;
};

static struct {
    struct sim_prng prng;
    struct inbox inbox;
    struct room_shape shape;
    struct life lives[LIVES];
    uint32_t life_count;
    int32_t living[SENDERS]; /* the life of each peer; NOBODY */
    struct held held[HELD];
    uint32_t held_count;
    uint8_t *memory;
    void *tables;
    uint64_t seed;
    uint32_t senders, rests; /* it rests one time of so many */
    bool healing, asleep;
} w;

/* Of all seeds: a campaign that never meets the hard cases proves nothing. */
static struct {
    uint64_t delivered, disordered, early_ends, skips, both, deaths, beside, late, holes;
    uint64_t calls, full, old;
    uint64_t direct, watched, looks, rested, crowded, torn, behind, at_quiet, at_once;
    uint64_t full_ends, renewed, found, said_after;
} seen;

static uint32_t below(uint32_t n) {
    return (uint32_t)(sim_next(&w.prng) % n);
}

#define expect(what)                                                                               \
    do {                                                                                           \
        if (!(what))                                                                               \
            fail_msg("seed %llu, line %d: %s", (unsigned long long)w.seed, __LINE__, #what);       \
    } while (0)

static struct life *living(uint32_t peer) {
    return w.living[peer] == NOBODY ? NULL : &w.lives[w.living[peer]];
}

static uint32_t life_index(const struct life *life) {
    return (uint32_t)(life - w.lives);
}

static void sound(void) {
    const char *wrong = inbox_verify(&w.inbox);
    for (uint32_t i = 0; wrong == NULL && i < w.senders; i++)
        wrong = living(i) == NULL ? NULL : outbox_verify(&living(i)->out);
    if (wrong != NULL)
        fail_msg("seed %llu: %s", (unsigned long long)w.seed, wrong);
}

/* ---- the bytes ---- */

static uint8_t byte_of(const struct life *life, uint32_t number, uint32_t i) {
    return (uint8_t)(life_index(life) * 31 + number * 7 + i);
}

static uint8_t *payload_of(uint32_t chunk, uint32_t offset) {
    return w.memory + (size_t)chunk * w.shape.chunk_bytes + offset;
}

static void write_payload(const struct life *life, uint32_t number) {
    const struct record *record = &life->records[number];
    uint8_t *at =
        payload_of(record->spot.chunk, record->spot.offset + room_payload(record->length));
    for (uint32_t i = 0; i < record->length; i++)
        at[i] = byte_of(life, number, i);
}

static void look_at_bytes(const struct life *life, const struct inbox_message *message) {
    const uint8_t *at = payload_of(message->chunk, message->payload);
    for (uint32_t i = 0; i < message->length; i++)
        expect(at[i] == byte_of(life, (uint32_t)message->tag, i));
}

/* The head of a direct message is written: it has to be delivered, whatever becomes of its sender.
 */
static void land(struct life *life) {
    struct record *record = &life->records[life->writes - 1];
    const struct inbox_chunk *chunk = &w.inbox.chunks[record->spot.chunk];
    expect(life->stage != QUIET && chunk->place == record->spot.place);
    write_payload(life, life->writes - 1);
    const struct room_head head = {.mark = room_mark(chunk->secret, record->spot.offset),
                                   .tag = life->writes - 1,
                                   .length = record->length};
    room_head_encode(&head, payload_of(record->spot.chunk, record->spot.offset));
    uint64_t watch;
    memcpy(&watch,
           w.memory + room_watch(w.shape.chunk_bytes, w.shape.chunk_count, record->spot.chunk),
           sizeof(watch));
    record->noted = MESSAGE;
    life->writes = 0;
    life->look_due |= watch != record->spot.place;
    seen.direct++;
    seen.watched += watch == record->spot.place;
}

/* ---- words and notes ---- */

static struct word *say(struct way *way, enum kind kind) {
    struct word *word = &way->words[way->tail++ % WORDS];
    expect(way->tail - way->head <= WORDS);
    *word = (struct word){.kind = kind};
    return word;
}

/* Of a sender that leaves only what is about its places counts. */
static void hear(struct life *life) {
    const struct word *word = &life->there.words[life->there.head++ % WORDS];
    if (word->kind == SHUT) {
        for (uint32_t i = 0; i < life->count; i++) {
            const struct record *record = &life->records[i];
            seen.early_ends += record->state == PUT && record->noted == NOT &&
                               record->spot.place == word->shut.place;
        }
        enum inbox_told is = inbox_shut(&w.inbox, life->peer, &word->shut);
        expect(is == INBOX_TOLD || (is == INBOX_OLD && word->shut.end == w.shape.chunk_bytes));
        seen.full_ends += is == INBOX_OLD;
    } else if (word->kind == LOOK && life->stage == LIVING) {
        seen.looks++;
        seen.crowded += w.inbox.watched.used == INBOX_WATCH;
        inbox_told_to_look(&w.inbox, life->peer);
        w.asleep = false;
    } else if (life->stage == LIVING) {
        inbox_want(&w.inbox, life->peer, word->grants);
        life->wanted = true;
    }
}

static void forget_note(struct life *life, uint32_t i) {
    life->notes[i] = life->notes[--life->note_count];
}

static void add_note(struct life *life, uint32_t number, bool is_skip) {
    expect(life->note_count < NOTES);
    life->notes[life->note_count++] = (struct note){.record = number, .skip = is_skip};
}

static void count_arrival(const struct life *life, const struct record *record, bool is_skip) {
    seen.skips += is_skip;
    seen.late += life->stage == LEAVING;
    for (const struct record *before = life->records; before < record; before++) {
        if (before->state == PUT && before->noted == NOT) {
            seen.disordered++;
            break;
        }
    }
}

/* One of the notes that are on their way arrives. */
static void arrive(struct life *life) {
    uint32_t i = below(life->note_count);
    const struct note note = life->notes[i];
    struct record *record = &life->records[note.record];
    if (note.lost && life->stage != QUIET)
        return;
    if (!note.skip && !note.written && life->stage != QUIET)
        write_payload(life, note.record);
    forget_note(life, i);
    const struct room_note told = {.place = record->spot.place,
                                   .tag = note.record,
                                   .chunk = record->spot.chunk,
                                   .offset = record->spot.offset,
                                   .length = record->length,
                                   .skip = note.skip};
    enum inbox_told is = inbox_arrive(&w.inbox, life->peer, &told);
    if (life->stage == QUIET) {
        expect(is == INBOX_OLD);
        seen.old++;
        return;
    }
    expect(is == (record->noted == NOT ? INBOX_TOLD : INBOX_OLD));
    if (record->noted != NOT) {
        seen.both++;
        return;
    }
    count_arrival(life, record, note.skip);
    record->noted = note.skip ? SKIP : MESSAGE;
}

/* ---- the receiver ---- */

static void say_all(uint32_t peer) {
    struct life *life = living(peer);
    struct room_grant grant;
    bool granted_all = false;
    for (uint32_t n = below(6); n > 0; n--) {
        enum inbox_saying saying = inbox_say(&w.inbox, peer, &grant);
        if (saying == INBOX_SAY_NOTHING)
            break;
        expect((saying == INBOX_SAY_MEET) == !life->met);
        life->met = true;
        granted_all |= saying == INBOX_SAY_CALL;
        expect(!granted_all || saying == INBOX_SAY_CALL);
        say(&life->back, saying == INBOX_SAY_MEET    ? MEET
                         : saying == INBOX_SAY_GRANT ? GRANT
                                                     : CALL)
            ->grant = grant;
    }
}

static void say_to_all(void) {
    uint32_t known = 0, peers = 0;
    for (uint32_t i = 0; i < w.senders; i++) {
        bool knows = living(i) != NULL && living(i)->wanted;
        expect(inbox_knows(&w.inbox, i) == knows);
        known += knows;
    }
    for (uint32_t i = INBOX_NONE; (i = inbox_peer_after(&w.inbox, i)) != INBOX_NONE; peers++)
        say_all(i);
    expect(peers == known);
}

static void renew(void) {
    if (!inbox_may_renew(&w.inbox))
        return;
    inbox_renew(&w.inbox, sim_next(&w.prng));
    seen.renewed++;
    sound();
}

/* Looks for direct messages, or does so for the last time, and sleeps. */
static void look_or_rest(void) {
    if (w.asleep)
        return;
    if (below(w.rests) != 0) {
        inbox_look(&w.inbox);
    } else {
        inbox_unwatch(&w.inbox);
        bool found = inbox_rest(&w.inbox);
        seen.rested += found;
        expect(w.inbox.watched.used == 0);
        w.asleep = w.inbox.ready.used == 0;
    }
    sound();
}

static void receiver_acts(void) {
    uint32_t peer;
    for (uint32_t i = 0; i < w.life_count; i++) {
        struct life *life = &w.lives[i];
        if (life->stage == QUIET)
            continue;
        for (uint32_t n = below(4); n > 0 && life->there.head != life->there.tail; n--)
            hear(life);
        for (uint32_t n = below(life->pace) == 0 ? 3 : 0; n > 0 && life->note_count > 0; n--)
            arrive(life);
    }
    sound();
    look_or_rest();
    renew();
    while (inbox_grant(&w.inbox, sim_next(&w.prng), &peer))
        expect(living(peer) != NULL);
    seen.full += w.inbox.line.used > 0;
    if (below(4) == 0)
        inbox_call_on(&w.inbox);
    for (; inbox_call(&w.inbox, &peer); seen.calls++)
        expect(living(peer) != NULL);
    sound();
    say_to_all();
}

/* Whether a message that is not there was rightly passed over. */
static bool may_be_missing(const struct life *life, const struct record *record) {
    if (record->state == GONE || record->noted == SKIP)
        return true;
    bool hole = life->stage == QUIET && record->noted == NOT;
    seen.holes += hole;
    return hole;
}

static void deliver(const struct inbox_message *message) {
    struct life *life =
        message->peer == INBOX_NONE ? &w.lives[message->from - 1] : living(message->peer);
    expect(life != NULL && (life->stage == LIVING) == (message->peer != INBOX_NONE));
    uint32_t number = (uint32_t)message->tag;
    expect(number >= life->next && number < life->count);
    for (; life->next < number; life->next++)
        expect(may_be_missing(life, &life->records[life->next]));
    life->next++;
    struct record *record = &life->records[number];
    expect(record->noted == MESSAGE && !record->delivered);
    seen.at_quiet += record->direct && life->stage == QUIET;
    seen.behind += record->direct && number > 0 && life->records[number - 1].state == PUT &&
                   !life->records[number - 1].direct;
    expect(record->length == message->length && record->spot.place == message->place);
    look_at_bytes(life, message);
    record->delivered = true;
    w.held[w.held_count++] = (struct held){*message, life};
    seen.delivered++;
}

/* Likewise, what can be taken at once with this message. */
static void take_behind(struct inbox_message message, uint32_t most) {
    weir_message got[1 + HELD] = {
        {.place = message.place, .spot = inbox_spot(message.chunk, message.offset)}};
    uint32_t count = inbox_take_next(&w.inbox, got, below(most + 1));
    for (uint32_t i = 1; i <= count; i++) {
        message.tag = got[i].tag;
        message.length = (uint32_t)got[i].length;
        message.offset = inbox_spot_offset(got[i].spot);
        message.payload = message.offset + room_payload(message.length);
        message.is_loan = false;
        deliver(&message);
        seen.at_once++;
    }
    sound();
}

static void application_acts(void) {
    struct inbox_message message;
    w.asleep &= w.inbox.ready.used == 0;
    for (uint32_t n = w.asleep ? 0 : below(5); n > 0 && w.held_count < HELD; n--) {
        enum inbox_taken taken = inbox_take(&w.inbox, &message);
        expect(taken != INBOX_BAD);
        if (taken == INBOX_EMPTY)
            break;
        deliver(&message);
        sound();
        if (below(2) == 0)
            take_behind(message, HELD - w.held_count);
    }
    for (uint32_t n = w.healing ? HELD : below(5); n > 0 && w.held_count > 0; n--) {
        uint32_t i = below(w.held_count);
        message = w.held[i].message;
        look_at_bytes(w.held[i].life, &message); /* nobody wrote there meanwhile */
        expect(inbox_give_back(&w.inbox, message.chunk, message.place, message.offset));
        expect(!inbox_give_back(&w.inbox, message.chunk, message.place, message.offset));
        w.held[i] = w.held[--w.held_count];
        if (below(2) == 0)
            renew();
    }
    sound();
}

/* ---- the senders ---- */

static void born(uint32_t peer) {
    if (w.life_count == LIVES)
        return;
    for (uint32_t i = 0; i < w.life_count; i++)
        seen.beside += w.lives[i].peer == peer && w.lives[i].stage == LEAVING;
    w.living[peer] = (int32_t)w.life_count++;
    struct life *life = living(peer);
    life->peer = peer;
    life->pace = 1 + below(16);
    life->plain = w.senders == SENDERS ? 3 : below(4);
    outbox_init(&life->out, w.shape.chunk_bytes, w.shape.chunk_count);
}

static void listen(struct life *life) {
    const struct word *word = &life->back.words[life->back.head++ % WORDS];
    if (word->kind == GRANT) {
        seen.said_after += word->grant.place <= life->out.renewed;
        expect(outbox_grant(&life->out, &word->grant));
    }
    if (word->kind == CALL)
        expect(outbox_call(&life->out, word->grant.place));
}

static void submit(struct life *life) {
    uint32_t most = w.shape.message_bytes_max;
    for (uint32_t n = 1 + below(6); n > 0 && life->count < RECORDS; n--)
        life->records[life->count++] =
            (struct record){.length = below(2) == 0 ? below(41) % (most + 1) : below(most + 1)};
}

/* A message that was put comes no more, or it is unknown whether it came: then it was written, or
 * never is. */
static void cancel_put(struct life *life, uint32_t number) {
    uint32_t i = 0;
    while (i < life->note_count && life->notes[i].record != number)
        i++;
    if (i < life->note_count && !life->notes[i].written && below(2) == 0) {
        life->notes[i].skip = true;
        return;
    }
    if (i < life->note_count) {
        if (!life->notes[i].written)
            write_payload(life, number);
        life->notes[i].written = true;
        if (below(3) == 0) /* lost */
            forget_note(life, i);
    }
    add_note(life, number, true);
}

static void cancel(struct life *life) {
    if (life->count == 0)
        return;
    uint32_t number = life->count - 1 - below(life->count < 16 ? life->count : 16);
    struct record *record = &life->records[number];
    if (record->cancelled || record->direct)
        return;
    if (record->state == QUEUED)
        record->state = GONE;
    else
        cancel_put(life, number);
    record->cancelled = true;
}

/* A sender looks for a renewal, or forgets to. */
static bool find_renewal(struct life *life) {
    uint32_t chunk;
    for (uint32_t i = 0; below(3) > 0 && outbox_had(&life->out, i, &chunk); i++) {
        uint64_t words[ROOM_RENEWAL_WORDS];
        struct room_grant grant;
        memcpy(words, w.memory + room_watch(w.shape.chunk_bytes, w.shape.chunk_count, chunk) + 8,
               sizeof(words));
        if (!room_renewal_read(words, outbox_renewal_number(&life->out), chunk, &grant))
            continue;
        expect(outbox_renew(&life->out, &grant));
        expect(w.inbox.chunks[chunk].place == grant.place);
        seen.found++;
        return true;
    }
    return false;
}

static bool has_room(struct life *life, uint32_t length) {
    return outbox_room(&life->out, length) ||
           (find_renewal(life) && outbox_room(&life->out, length));
}

/* Puts what there is room for, in order; returns the bytes of what waits. A direct message is
 * written before the next is put. */
static uint64_t put(struct life *life) {
    uint64_t waiting = 0;
    if (life->writes != 0)
        land(life);
    for (uint32_t i = 0; i < life->count; i++) {
        struct record *record = &life->records[i];
        if (record->state != QUEUED)
            continue;
        if (waiting == 0 && has_room(life, record->length)) {
            record->spot = outbox_put(&life->out, record->length);
            record->state = PUT;
            record->direct = life->plain > 0 && below(life->plain + 1) > 0;
            if (!record->direct) {
                add_note(life, i, false);
                continue;
            }
            life->writes = i + 1;
            if (below(4) == 0)
                break; /* it is not there yet */
            land(life);
        } else {
            waiting += room_bytes(record->length);
        }
    }
    return waiting;
}

static void speak(struct life *life) {
    uint64_t waiting = put(life), grants;
    if (life->look_due)
        say(&life->there, LOOK);
    life->look_due = false;
    if (life->writes != 0)
        return;
    if (below(2) == 0)
        find_renewal(life);
    outbox_yield(&life->out);
    if (waiting == 0)
        outbox_idle(&life->out);
    sound();
    if (outbox_want(&life->out, waiting, &grants))
        say(&life->there, WANT)->grants = grants;
    struct room_shut word;
    while (outbox_shut(&life->out, &word)) {
        sound();
        say(&life->there, SHUT)->shut = word;
    }
}

/* Payloads are written at any time before their notes arrive. One that leaves may write wherever it
 * had a message when it left, until it is quiet. */
static void write_some(struct life *life) {
    if (life->stage == LEAVING && life->count > 0) {
        uint32_t number = below(life->count);
        if (life->records[number].lingers)
            write_payload(life, number);
        if (life->writes != 0 && below(64) == 0)
            land(life);
    }
    if (life->note_count == 0)
        return;
    struct note *note = &life->notes[below(life->note_count)];
    if (!note->skip && !note->written)
        write_payload(life, note->record);
    note->written = !note->skip;
}

static void sender_acts(uint32_t peer) {
    struct life *life = living(peer);
    if (life == NULL || life->silent)
        return;
    if (!w.healing && below(3) == 0)
        submit(life);
    if (!w.healing && below(6) == 0)
        cancel(life);
    for (uint32_t n = below(4); n > 0 && life->back.head != life->back.tail; n--)
        listen(life);
    speak(life);
}

/* The sender is given up. Some of its notes come yet. */
static void die(uint32_t peer) {
    struct life *life = living(peer);
    inbox_leave(&w.inbox, peer, life_index(life) + 1);
    life->stage = LEAVING;
    for (uint32_t i = 0; i < life->note_count; i++)
        life->notes[i].lost = below(2) == 0;
    for (uint32_t i = 0; i < life->count; i++) {
        struct record *record = &life->records[i];
        record->lingers =
            record->state == PUT && w.inbox.chunks[record->spot.chunk].place == record->spot.place;
    }
    w.living[peer] = NOBODY;
    if (below(2) == 0)
        born(peer);
    seen.deaths++;
}

/* Notes that would come later are of a place that is over. */
static void fall_quiet(uint32_t peer) {
    inbox_quiet(&w.inbox, peer);
    sound();
    for (uint32_t i = 0; i < w.life_count; i++) {
        struct life *life = &w.lives[i];
        if (life->peer != peer || life->stage != LEAVING)
            continue;
        life->stage = QUIET;
        seen.torn += life->writes != 0;
        while (life->note_count > 0)
            arrive(life);
    }
    sound();
}

static void mischief(void) {
    uint32_t peer = below(w.senders);
    struct life *life = living(peer);
    switch (below(8)) {
    case 0:
    case 1:
        if (life != NULL)
            life->silent = !life->silent;
        break;
    case 2:
        if (life != NULL && below(2) == 0 && w.life_count < LIVES)
            die(peer);
        break;
    case 3:
        fall_quiet(peer);
        break;
    default:
        if (life == NULL)
            born(peer);
    }
    sound();
}

/* ---- a world ---- */

static bool is_over(const struct life *life) {
    if (life->writes != 0 || life->there.head != life->there.tail ||
        life->back.head != life->back.tail || life->note_count > 0)
        return false;
    for (uint32_t i = 0; i < life->count; i++) {
        if (life->records[i].state == QUEUED)
            return false;
    }
    return true;
}

static bool all_is_over(void) {
    for (uint32_t i = 0; i < w.senders; i++) {
        if (living(i) != NULL && !is_over(living(i)))
            return false;
    }
    return w.inbox.ready.used == 0 && w.held_count == 0;
}

/* Each message that was noted was delivered. Of one that lives, all are noted. */
static void look_at_lives(void) {
    for (uint32_t i = 0; i < w.life_count; i++) {
        const struct life *life = &w.lives[i];
        for (uint32_t n = 0; n < life->count; n++) {
            const struct record *record = &life->records[n];
            expect(record->delivered == (record->noted == MESSAGE));
            expect(life->stage == QUIET || record->noted != NOT || record->state == GONE);
            expect(record->noted != SKIP || record->cancelled);
        }
    }
}

/* All chunks came back, but for those that may be kept. */
static void look_at_chunks(void) {
    uint32_t granted = 0;
    for (uint32_t i = 0; i < w.shape.chunk_count; i++) {
        const struct inbox_chunk *chunk = &w.inbox.chunks[i];
        expect(!chunk->closed);
        granted += chunk->place != 0;
    }
    expect(granted == w.inbox.kept &&
           granted <= (w.shape.chunk_count == 1 ? 1 : w.shape.chunk_count / 2));
}

static void heal(void) {
    w.healing = true;
    uint32_t rounds = 0;
    while (!all_is_over() || rounds < HEAL_ROUNDS / 20) {
        if (rounds++ > HEAL_ROUNDS)
            fail_msg("seed %llu: something waits for ever", (unsigned long long)w.seed);
        for (uint32_t i = 0; i < w.senders; i++) {
            if (rounds == 1 + i && living(i) != NULL)
                living(i)->silent = false;
            if (rounds == 10 + i)
                fall_quiet(i);
            sender_acts(i);
        }
        receiver_acts();
        application_acts();
        inbox_look(&w.inbox); /* what one that is watched has still is known then */
    }
    look_at_lives();
    look_at_chunks();
}

static void world(uint64_t seed) {
    memset(&w, 0, sizeof(w));
    w.seed = seed;
    sim_prng_seed(&w.prng, seed);
    w.shape.chunk_bytes = (2 + below(CHUNK_LINES_MAX)) * ROOM_LINE;
    w.shape.message_bytes_max = below(w.shape.chunk_bytes - ROOM_LINE + 1);
    w.senders = below(8) == 0 ? SENDERS : FEW;
    w.rests = w.senders == SENDERS ? 500 : 4;
    uint32_t most = below(8) == 0 ? CHUNKS_MANY : CHUNKS_MAX;
    w.shape.chunk_count = 1 + below(w.senders == SENDERS ? SENDERS : most);
    w.shape.peer_chunks = 1 + below(w.shape.chunk_count);
    w.memory = calloc(1, room_memory(w.shape.chunk_bytes, w.shape.chunk_count));
    w.tables = calloc(1, inbox_bytes(&w.shape, SENDERS));
    inbox_init(&w.inbox, w.tables, w.memory, &w.shape, SENDERS, true, below(1000));
    for (uint32_t i = 0; i < w.senders; i++)
        born(i);
    for (uint32_t i = 0; i < ACTS; i++) {
        sender_acts(below(w.senders));
        for (uint32_t n = 0; n < w.life_count; n++)
            write_some(&w.lives[n]);
        receiver_acts();
        application_acts();
        if (below(w.senders == SENDERS ? 16 : 4) == 0)
            mischief();
    }
    heal();
    free(w.memory);
    free(w.tables);
}

static uint64_t first_seed = 1, last_seed = SEEDS;

static void test_each_message_once_and_in_order(void **state) {
    (void)state;
    for (uint64_t seed = first_seed; seed <= last_seed; seed++)
        world(seed);
    if (last_seed - first_seed + 1 < SEEDS)
        return;
    const uint64_t *counts = (const uint64_t *)&seen;
    for (size_t i = 0; i < sizeof(seen) / sizeof(*counts); i++) {
        if (counts[i] <= SEEDS / 20)
            fail_msg("count %u: %u", (unsigned)i, (unsigned)counts[i]);
    }
}

int main(int argc, char **argv) {
    if (argc == 3) {
        first_seed = strtoull(argv[1], NULL, 10);
        last_seed = strtoull(argv[2], NULL, 10);
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_message_once_and_in_order)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
