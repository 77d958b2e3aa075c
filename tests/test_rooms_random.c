/* SPDX-License-Identifier: Apache-2.0 */
/* test_rooms_random.c: a campaign against the room of an inbox: senders that come, fall silent,
 * take messages back, lose their sessions and die, and an application that takes and gives back in
 * any order. The words between the two sides arrive in order, late, and not at all when the session
 * ends before. Then the faults stop, and all that was sent has to arrive.
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
    SENDERS = 5,
    ACTS = 400,
    WORDS = 512,
    RECORDS = 256, /* of one life */
    LIVES = 64,
    HELD = 64,
    HEAL_ROUNDS = 4000,
    CHUNK_LINES_MAX = 12,
    CHUNKS_MAX = 8
};

/* A word of one side to the other. */
enum kind { TOLD, WANT, ASK, GRANT, ANSWER };
struct word {
    enum kind kind;
    struct room_told told;
    uint64_t grants;
    struct room_grant list[OUTBOX_PLACES]; /* GRANT: one; ANSWER: all that are open */
    uint32_t count;
};
struct way {
    struct word words[WORDS];
    uint32_t head, tail;
    uint32_t acked; /* there: the sender knows up to here, and all that is heard whatever happens */
};

enum state { QUEUED, PUT, READY, OVER, TAKEN_BACK };
struct record {
    enum state state;
    uint32_t length;
    struct outbox_spot spot;
};
/* One sender, from its birth to its death; what the receiver got of it. */
struct life {
    struct record records[RECORDS];
    uint32_t count;
    uint32_t next; /* the record that may be delivered next */
};
struct sender {
    struct outbox out;
    struct life *life;
    struct way there, back;
    bool up, silent;
};

static struct {
    struct sim_prng prng;
    struct inbox inbox;
    struct room_shape shape;
    struct sender senders[SENDERS];
    struct life lives[LIVES];
    uint32_t life_count;
    struct inbox_message held[HELD];
    uint32_t held_count;
    uint8_t *memory;
    void *tables;
    uint64_t seed;
    bool healing;
} w;

/* Of all seeds: a campaign that never meets the hard cases proves nothing. */
static struct { uint64_t delivered, breaks, again, deaths, calls, back, full; } seen;

static uint32_t below(uint32_t n) {
    return (uint32_t)(sim_next(&w.prng) % n);
}

#define expect(what)                                                                               \
    do {                                                                                           \
        if (!(what))                                                                               \
            fail_msg("seed %llu: %s", (unsigned long long)w.seed, #what);                          \
    } while (0)

static void sound(void) {
    const char *wrong = inbox_verify(&w.inbox);
    for (uint32_t i = 0; wrong == NULL && i < SENDERS; i++)
        wrong = outbox_verify(&w.senders[i].out);
    if (wrong != NULL)
        fail_msg("seed %llu: %s", (unsigned long long)w.seed, wrong);
}

/* ---- the bytes ---- */

static uint8_t byte_of(uint32_t life, uint32_t number, uint32_t i) {
    return (uint8_t)(life * 31 + number * 7 + i);
}

static uint32_t life_index(const struct life *life) {
    return (uint32_t)(life - w.lives);
}

static void write_message(const struct life *life, uint32_t number, bool skip) {
    const struct record *record = &life->records[number];
    uint8_t *at = w.memory + record->spot.chunk * w.shape.chunk_bytes + record->spot.offset;
    const struct room_head head = {record->spot.mark, number, record->length, skip};
    room_head_encode(&head, at);
    for (uint32_t i = 0; i < record->length; i++)
        at[room_payload(record->length) + i] = byte_of(life_index(life), number, i);
}

/* ---- words ---- */

static struct word *say(struct sender *sender, struct way *way, enum kind kind) {
    static struct word lost;
    if (!sender->up)
        return &lost;
    struct word *word = &way->words[way->tail++ % WORDS];
    expect(way->tail - way->head <= WORDS && way->tail - way->acked <= WORDS);
    *word = (struct word){.kind = kind};
    return word;
}

static void say_grant(uint32_t peer, const struct room_grant *grant) {
    struct word *word = say(&w.senders[peer], &w.senders[peer].back, GRANT);
    word->list[0] = *grant;
    word->count = 1;
}

/* ---- the receiver ---- */

static void answer(uint32_t peer) {
    struct word *word = say(&w.senders[peer], &w.senders[peer].back, ANSWER);
    struct room_grant grant;
    word->count = 0;
    for (uint64_t after = 0; inbox_again(&w.inbox, peer, after, &grant); after = grant.place) {
        expect(word->count < OUTBOX_PLACES);
        word->list[word->count++] = grant;
    }
    inbox_want(&w.inbox, peer, inbox_stream_of(&w.inbox, peer)->grants);
}

static void hear(uint32_t peer) {
    struct way *way = &w.senders[peer].there;
    const struct word word = way->words[way->head++ % WORDS];
    if (word.kind == TOLD)
        expect(inbox_tell(&w.inbox, peer, &word.told) != INBOX_LIE);
    else if (word.kind == WANT)
        inbox_want(&w.inbox, peer, word.grants);
    else
        answer(peer);
}

static void receiver_acts(void) {
    struct room_grant grant;
    uint32_t peer;
    for (uint32_t i = 0; i < SENDERS; i++) {
        struct way *way = &w.senders[i].there;
        for (uint32_t n = below(4); n > 0 && way->head != way->tail; n--)
            hear(i);
    }
    while (inbox_grant(&w.inbox, sim_next(&w.prng), &peer, &grant))
        say_grant(peer, &grant);
    if (w.inbox.line.used > 0)
        seen.full++;
    if (below(4) == 0)
        inbox_call_on(&w.inbox);
    while (inbox_call(&w.inbox, &peer, &grant)) {
        seen.calls++;
        say_grant(peer, &grant);
    }
    sound();
}

static void deliver(const struct inbox_message *message) {
    struct life *life = &w.lives[message->from - 1];
    uint32_t number = (uint32_t)message->tag;
    while (life->next < life->count && life->records[life->next].state == TAKEN_BACK)
        life->next++;
    expect(number == life->next && number < life->count);
    expect(life->records[number].length == message->length);
    const uint8_t *at = w.memory + message->chunk * w.shape.chunk_bytes + message->payload;
    for (uint32_t i = 0; i < message->length; i++)
        expect(at[i] == byte_of(life_index(life), number, i));
    life->next++;
    seen.delivered++;
}

static void application_acts(void) {
    struct inbox_message message;
    enum inbox_taken taken;
    for (uint32_t n = below(5); n > 0 && w.held_count < HELD; n--) {
        taken = inbox_take(&w.inbox, w.memory, &message);
        expect(taken != INBOX_BAD);
        if (taken == INBOX_EMPTY)
            break;
        deliver(&message);
        w.held[w.held_count++] = message;
    }
    for (uint32_t n = w.healing ? HELD : below(5); n > 0 && w.held_count > 0; n--) {
        uint32_t i = below(w.held_count);
        message = w.held[i];
        const uint8_t *at = w.memory + message.chunk * w.shape.chunk_bytes + message.payload;
        for (uint32_t b = 0; b < message.length; b++) /* nobody wrote there meanwhile */
            expect(at[b] == byte_of((uint32_t)message.from - 1, (uint32_t)message.tag, b));
        expect(inbox_give_back(&w.inbox, message.chunk, message.place, message.offset));
        expect(!inbox_give_back(&w.inbox, message.chunk, message.place, message.offset));
        w.held[i] = w.held[--w.held_count];
    }
    sound();
}

/* ---- the senders ---- */

static void born(uint32_t peer) {
    struct sender *sender = &w.senders[peer];
    expect(w.life_count < LIVES);
    struct life *life = &w.lives[w.life_count++];
    memset(sender, 0, sizeof(*sender));
    sender->life = life;
    sender->up = true;
    outbox_init(&sender->out, w.life_count, w.shape.chunk_bytes, w.shape.chunk_count);
    expect(inbox_meet(&w.inbox, peer, w.life_count, w.life_count));
}

/* A record that was told and is sure is delivered, whatever becomes of its sender. */
static void over(struct sender *sender, uint64_t place, uint32_t end) {
    for (uint32_t i = 0; i < sender->life->count; i++) {
        struct record *record = &sender->life->records[i];
        if (record->state == READY && record->spot.place == place && record->spot.offset < end)
            record->state = OVER;
    }
}

/* Words that are there: their senders learn of it. */
static void acknowledge(struct sender *sender, uint32_t words) {
    struct way *way = &sender->there;
    for (; words > 0 && way->acked != way->tail; words--, way->acked++) {
        const struct word *word = &way->words[way->acked % WORDS];
        if (word->kind != TOLD || sender->out.asking)
            continue;
        over(sender, word->told.place, word->told.end);
        outbox_sure(&sender->out, sender->out.session, &word->told);
    }
}

static void settled(struct sender *sender, const struct word *word) {
    for (uint32_t i = 0; i < word->count; i++)
        expect(outbox_grant(&sender->out, &word->list[i]));
    expect(outbox_settled(&sender->out));
    for (uint32_t i = 0; i < sender->life->count; i++) {
        struct record *record = &sender->life->records[i];
        if (record->state != PUT && record->state != READY)
            continue;
        if (outbox_arrived(&sender->out, record->spot.place, record->spot.offset)) {
            record->state = OVER;
        } else {
            record->state = QUEUED;
            seen.again++;
        }
    }
}

static void listen(struct sender *sender) {
    struct way *way = &sender->back;
    const struct word word = way->words[way->head++ % WORDS];
    way->acked = way->head;
    if (word.kind == ANSWER)
        settled(sender, &word);
    else if (!sender->out.asking)
        expect(outbox_grant(&sender->out, &word.list[0]));
}

static void submit(struct sender *sender) {
    struct life *life = sender->life;
    for (uint32_t n = 1 + below(6); n > 0 && life->count < RECORDS; n--) {
        uint32_t most = w.shape.message_bytes_max;
        life->records[life->count++] =
            (struct record){.length = below(2) == 0 ? below(41) % (most + 1) : below(most + 1)};
    }
}

/* Takes a message back that nobody was told of. */
static void take_back(struct sender *sender) {
    struct life *life = sender->life;
    if (life->count == 0 || sender->out.asking)
        return;
    uint32_t i = below(life->count);
    struct record *record = &life->records[i];
    if (record->state == PUT)
        write_message(life, i, true);
    else if (record->state != QUEUED)
        return;
    if (record->state == QUEUED) {
        record->state = TAKEN_BACK;
        seen.back++;
    } else { /* its room is told of as any other's */
        record->state = TAKEN_BACK;
        outbox_ready(&sender->out, &record->spot);
        for (uint32_t k = 0; k < i; k++) { /* those before it are ready with it */
            if (life->records[k].state == PUT)
                life->records[k].state = READY;
        }
        seen.back++;
    }
}

/* Puts what there is room for, in order; a message's bytes may take a while. */
static void put(struct sender *sender) {
    struct life *life = sender->life;
    uint64_t waiting = 0;
    for (uint32_t i = 0; i < life->count; i++) {
        struct record *record = &life->records[i];
        if (record->state == QUEUED && waiting == 0 && outbox_room(&sender->out, record->length)) {
            outbox_put(&sender->out, record->length, &record->spot);
            write_message(life, i, false);
            record->state = PUT;
        } else if (record->state == QUEUED) {
            waiting += room_bytes(record->length);
        }
    }
    for (uint32_t i = 0; i < life->count && !sender->out.asking; i++) {
        struct record *record = &life->records[i];
        if (record->state != PUT)
            continue;
        if (!w.healing && below(3) == 0)
            break;
        record->state = READY;
        outbox_ready(&sender->out, &record->spot);
    }
    if (waiting == 0 && !sender->out.asking)
        outbox_idle(&sender->out);
    uint64_t grants;
    struct room_told told;
    if (sender->up && outbox_want(&sender->out, waiting, &grants))
        say(sender, &sender->there, WANT)->grants = grants;
    while (sender->up && outbox_tell(&sender->out, &told))
        say(sender, &sender->there, TOLD)->told = told;
}

static void sender_acts(uint32_t peer) {
    struct sender *sender = &w.senders[peer];
    if (sender->silent)
        return;
    if (!w.healing && below(3) == 0)
        submit(sender);
    if (!w.healing && below(8) == 0)
        take_back(sender);
    for (uint32_t n = below(4); n > 0 && sender->back.head != sender->back.tail; n--)
        listen(sender);
    acknowledge(sender, below(4));
    put(sender);
    sound();
}

/* Words that are there are heard, and perhaps some more; the rest is lost. */
static void end_session(uint32_t peer) {
    struct sender *sender = &w.senders[peer];
    struct way *way = &sender->there;
    sender->up = false;
    while ((int32_t)(way->acked - way->head) > 0)
        hear(peer);
    for (uint32_t n = below(way->tail - way->head + 1); n > 0; n--)
        hear(peer);
    way->head = way->acked = way->tail;
    for (uint32_t n = below(3); n > 0 && sender->back.head != sender->back.tail; n--)
        listen(sender);
    sender->back.head = sender->back.acked = sender->back.tail;
}

static void new_session(struct sender *sender) {
    sender->up = true;
    outbox_broken(&sender->out);
    say(sender, &sender->there, ASK);
}

static void mischief(void) {
    uint32_t peer = below(SENDERS);
    struct sender *sender = &w.senders[peer];
    switch (below(12)) {
    case 0:
    case 1:
        if (sender->up) {
            end_session(peer);
            outbox_broken(&sender->out);
            seen.breaks++;
        }
        break;
    case 2:
        sender->silent = !sender->silent;
        break;
    case 3:
        if (below(4) == 0 && w.life_count < LIVES) {
            end_session(peer);
            inbox_peer_gone(&w.inbox, peer);
            born(peer);
            seen.deaths++;
        }
        break;
    default:
        if (!sender->up)
            new_session(sender);
    }
    sound();
}

static bool all_is_over(void) {
    for (uint32_t i = 0; i < SENDERS; i++) {
        if (w.senders[i].there.head != w.senders[i].there.tail)
            return false;
        for (uint32_t n = 0; n < w.senders[i].life->count; n++) {
            if (w.senders[i].life->records[n].state < OVER)
                return false;
        }
    }
    return w.inbox.ready.used == 0 && w.held_count == 0;
}

/* Each sure message of each life was delivered. */
static void look_at_lives(void) {
    for (uint32_t i = 0; i < w.life_count; i++) {
        const struct life *life = &w.lives[i];
        for (uint32_t n = life->next; n < life->count; n++)
            expect(life->records[n].state != OVER);
    }
}

static void look_at_chunks(void) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < w.shape.chunk_count; i++) {
        const struct inbox_chunk *chunk = &w.inbox.chunks[i];
        expect(chunk->taken == chunk->end);
        kept += chunk->place != 0;
    }
    expect(kept == w.inbox.kept && kept <= w.shape.chunk_count / 2);
}

static void heal(void) {
    w.healing = true;
    for (uint32_t i = 0; i < SENDERS; i++) {
        w.senders[i].silent = false;
        if (!w.senders[i].up)
            new_session(&w.senders[i]);
    }
    uint32_t rounds = 0;
    while (!all_is_over() || rounds < HEAL_ROUNDS / 20) {
        if (rounds++ > HEAL_ROUNDS)
            fail_msg("seed %llu: something waits for ever", (unsigned long long)w.seed);
        for (uint32_t i = 0; i < SENDERS; i++)
            sender_acts(i);
        receiver_acts();
        application_acts();
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
    w.shape.chunk_count = 1 + below(CHUNKS_MAX);
    w.shape.peer_chunks = 1 + below(w.shape.chunk_count);
    w.memory = calloc(w.shape.chunk_count, w.shape.chunk_bytes);
    w.tables = calloc(1, inbox_bytes(&w.shape, SENDERS));
    inbox_init(&w.inbox, w.tables, &w.shape, SENDERS);
    for (uint32_t i = 0; i < SENDERS; i++)
        born(i);
    for (uint32_t i = 0; i < ACTS; i++) {
        sender_acts(below(SENDERS));
        receiver_acts();
        application_acts();
        if (below(4) == 0)
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
    assert_true(seen.delivered > 0 && seen.breaks > 0 && seen.again > 0 && seen.deaths > 0);
    assert_true(seen.calls > 0 && seen.back > 0 && seen.full > 0);
}

int main(int argc, char **argv) {
    if (argc == 3) {
        first_seed = strtoull(argv[1], NULL, 10);
        last_seed = strtoull(argv[2], NULL, 10);
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_message_once_and_in_order)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
