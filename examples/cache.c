/* SPDX-License-Identifier: Apache-2.0 */
/* cache.c: a remote cache. A server has slots of memory; clients put and get values by one-sided
 * writes and reads of these, and a get of what a client knows the slot of costs the server
 * nothing.
 *
 *     cache serve 127.0.0.1:7700
 *     cache put 127.0.0.1:7700 greeting "good morning"
 *     cache get 127.0.0.1:7700 greeting
 *     cache use 127.0.0.1:7700 1000 1           so many random puts and gets, by program 1
 *     cache tear 127.0.0.1:7700 greeting        half of another value over it: see 5
 *
 * (With "-d ofi" before that, over TCP.) The recipe:
 *
 *   1. The slots are one memory, which the server publishes as "slots". A client opens it by
 *      that name, and again when the server was restarted.
 *   2. Which slot is whose is asked for by messages: GRANT, a slot to put this key's value into;
 *      FIND, the slot where it is. Each grant has a number that no other has: the version of the
 *      value.
 *   3. A put writes head and value into the slot, with a notification behind them, whose tag is
 *      the grant. When that comes, all of it is there, and the server lets FIND answer with that
 *      slot, and with the one before no more. So a slot is never written while the server tells
 *      of it.
 *   4. A get reads the slot where it was last: one read. Nobody tells a client that the slot is
 *      another's by now, or is being written: the head says whose value it is, of which version,
 *      and has a digest of all that. A head that does not match: the slot is asked for anew.
 *   5. A read that meets a write is torn: a part of either. So is what a client left that was
 *      killed in its put, or that wrote where it had no grant. The digest tells, and nothing
 *      else does: the order in which the bytes of a transfer arrive is nobody's promise.
 *   6. A cache may forget. All that fails is a miss: a slot that went to another, a server that
 *      was killed. A client that was killed holds up nobody: its grants are free when it is
 *      GONE. */
#define XXH_INLINE_ALL
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir.h>
#include <xxhash.h> /* of Debian's libxxhash-dev; nothing to link */

enum { SLOTS = 32, SLOT = 64 << 10, KEY_MAX = 40 };
enum { REQUESTS = 1, REPLIES = 2 }; /* the numbers of the inboxes */
enum { GRANT, FIND };               /* the wish of a request */
#define PATIENCE_NS UINT64_C(20000000000)

/* The beginning of a slot; the value is behind it. */
struct head {
    uint64_t digest; /* of all that follows */
    uint64_t grant;
    uint64_t length; /* of the value */
    char key[KEY_MAX];
};
enum { VALUE_MAX = SLOT - sizeof(struct head) };

struct request {
    uint64_t what;
    uint64_t length; /* of the value, with GRANT */
    char key[KEY_MAX];
};

struct reply {
    uint64_t grant; /* 0: there is no slot */
    uint64_t slot;
    uint64_t length;
};

static void must(const char *what, int rc) {
    if (rc == WEIR_OK)
        return;
    fprintf(stderr, "cache: %s: %s\n", what, weir_strerror(rc));
    exit(1);
}

static uint64_t digest_of(const struct head *head) {
    return XXH3_64bits(&head->grant, sizeof(*head) - sizeof(head->digest) + (size_t)head->length);
}

static weir_inbox inbox_of(weir_engine *engine, uint32_t number, uint64_t bytes_max) {
    weir_inbox_options options = WEIR_INBOX_OPTIONS_INIT;
    weir_inbox inbox;
    options.number = number;
    options.message_bytes_max = bytes_max;
    must("inbox", weir_inbox_open(engine, &options, &inbox));
    return inbox;
}

/* A message of up to WEIR_MESSAGE_COPY_MAX bytes, which is copied. Its end comes as a completion.
 */
static int send(weir_engine *engine, weir_peer to, uint32_t inbox, uint64_t tag, const void *bytes,
                size_t length) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_part part = {.base = bytes, .length = length};
    options.notify_tag = tag;
    options.flags = WEIR_TRANSFER_QUEUE;
    options.timeout_ns = PATIENCE_NS;
    return weir_message_send(engine, to, inbox, &part, 1, &options, NULL);
}

/* ---- the server ----------------------------------------------------------- */

struct slot {
    uint64_t grant;   /* 0: it is free */
    weir_peer writer; /* id 0: it is stored, and the key is found here */
    uint64_t length;
    char key[KEY_MAX];
};

struct server {
    weir_engine *engine;
    unsigned char *memory;
    struct slot slots[SLOTS];
    uint64_t grants;
    uint32_t hand; /* where the next slot is looked for, round and round */
};

/* Free: a read from now on finds no value. */
static void clear(struct server *s, uint64_t slot) {
    s->slots[slot].grant = 0;
    memset(s->memory + slot * SLOT, 0, sizeof(struct head));
}

/* The slot with this key's value, or SLOTS. */
static uint64_t find(const struct server *s, const char *key) {
    uint64_t slot = 0;
    while (slot < SLOTS && (s->slots[slot].grant == 0 || s->slots[slot].writer.id != 0 ||
                            strcmp(s->slots[slot].key, key) != 0))
        slot++;
    return slot;
}

static struct reply where_is(const struct server *s, uint64_t slot) {
    return (struct reply){
        .grant = s->slots[slot].grant, .slot = slot, .length = s->slots[slot].length};
}

/* 2: any slot that nobody writes; the value that was there longest goes. */
static struct reply grant(struct server *s, weir_peer writer, const struct request *request) {
    for (int tries = 0; tries < SLOTS; tries++) {
        uint32_t slot = s->hand++ % SLOTS;
        if (s->slots[slot].grant != 0 && s->slots[slot].writer.id != 0)
            continue;
        clear(s, slot);
        s->slots[slot] =
            (struct slot){.grant = ++s->grants, .writer = writer, .length = request->length};
        memcpy(s->slots[slot].key, request->key, KEY_MAX);
        return where_is(s, slot);
    }
    return (struct reply){0};
}

static void on_request(struct server *s, const weir_message *message) {
    struct request request;
    struct reply reply = {0};
    if (message->length != sizeof(request))
        return;
    memcpy(&request, message->data, sizeof(request));
    request.key[KEY_MAX - 1] = '\0';
    uint64_t slot = find(s, request.key);
    if (request.what == GRANT && request.length <= VALUE_MAX)
        reply = grant(s, message->from, &request);
    else if (request.what == FIND && slot < SLOTS)
        reply = where_is(s, slot);
    (void)send(s->engine, message->from, REPLIES, message->tag, &reply, sizeof(reply));
}

/* 3 */
static void on_put(struct server *s, const weir_notification *got) {
    uint64_t slot = 0;
    while (slot < SLOTS &&
           (s->slots[slot].grant != got->tag || s->slots[slot].writer.id != got->from.id))
        slot++;
    if (slot == SLOTS)
        return; /* no grant of this client's */
    uint64_t before = find(s, s->slots[slot].key);
    s->slots[slot].writer.id = 0;
    if (before < SLOTS)
        clear(s, before);
    struct reply reply = where_is(s, slot);
    (void)send(s->engine, got->from, REPLIES, got->tag, &reply, sizeof(reply));
}

static void serve(weir_engine *engine) {
    static struct server s;
    weir_inbox requests = inbox_of(engine, REQUESTS, sizeof(struct request));
    weir_memory memory;
    weir_message message;
    weir_notification got;
    weir_completion done;
    weir_event event;
    s.engine = engine;
    must("memory", weir_memory_allocate(engine, (uint64_t)SLOTS * SLOT, WEIR_ACCESS_ALL, &memory,
                                        (void **)&s.memory));
    must("publish", weir_memory_publish(engine, memory, "slots")); /* 1 */
    for (;;) {
        while (weir_event_take(engine, &event) == WEIR_OK) {
            for (uint64_t slot = 0; slot < SLOTS && event.type == WEIR_EVENT_GONE; slot++) {
                if (s.slots[slot].writer.id != 0 && s.slots[slot].writer.id == event.peer.id)
                    clear(&s, slot); /* 6 */
            }
        }
        while (weir_completion_take(engine, &done) == WEIR_OK)
            continue; /* replies; a client may be gone */
        while (weir_notification_take(engine, &got) == WEIR_OK)
            on_put(&s, &got);
        if (weir_message_take(engine, requests, &message) == WEIR_OK) {
            on_request(&s, &message);
            must("give back", weir_message_give_back(engine, &message));
        } else {
            weir_engine_wait(engine, UINT64_MAX);
        }
    }
}

/* ---- a client ------------------------------------------------------------- */

enum { KNOWN = 256 };

struct client {
    weir_engine *engine;
    weir_peer server;
    weir_remote slots; /* id 0: to be opened */
    weir_inbox replies;
    weir_memory memory; /* one slot, for what is written or read */
    struct head *head;
    struct {
        char key[KEY_MAX];
        struct reply where;
    } known[KNOWN]; /* by the key's hash */
    uint64_t requests, asked, torn, lost;
};

static struct reply *known(struct client *c, const char *key) {
    size_t place = XXH3_64bits(key, strlen(key)) % KNOWN;
    if (strcmp(c->known[place].key, key) != 0) {
        memset(&c->known[place], 0, sizeof(c->known[place]));
        snprintf(c->known[place].key, KEY_MAX, "%s", key);
    }
    return &c->known[place].where;
}

/* The server is gone, or another: all that was known of it is of no use. */
static void forget(struct client *c) {
    if (c->slots.id != 0)
        weir_remote_release(c->engine, c->slots);
    c->slots.id = 0;
    memset(c->known, 0, sizeof(c->known));
}

static int lose(struct client *c, int error) {
    forget(c);
    c->lost++;
    return error;
}

/* Why the server is gone, if events say so. */
static int gone(struct client *c) {
    weir_event event;
    int error = WEIR_OK;
    while (weir_event_take(c->engine, &event) == WEIR_OK)
        error = event.type == WEIR_EVENT_GONE ? event.error : error;
    return error;
}

/* 1 */
static int meet(struct client *c) {
    if (c->slots.id != 0)
        return WEIR_OK;
    int rc = weir_remote_open(c->engine, c->server, "slots", PATIENCE_NS, &c->slots);
    if (rc ==
        WEIR_EPEER) /* it has just died: before the next call the engine has to hear of that */
        weir_engine_wait(c->engine, 100000000);
    (void)gone(c); /* the end of the one before is no news */
    return rc;
}

/* The reply to what was sent with this tag; replies that come late are dropped. */
static int await(struct client *c, uint64_t tag, struct reply *reply) {
    weir_message message;
    weir_completion done;
    int rc;
    for (;;) {
        while (weir_message_take(c->engine, c->replies, &message) == WEIR_OK) {
            bool ours = message.tag == tag && message.length == sizeof(*reply);
            if (ours)
                memcpy(reply, message.data, sizeof(*reply));
            must("give back", weir_message_give_back(c->engine, &message));
            if (ours)
                return WEIR_OK;
        }
        if ((rc = gone(c)) != WEIR_OK)
            return rc;
        while (weir_completion_take(c->engine, &done) == WEIR_OK) {
            if (done.status != WEIR_OK)
                return done.status;
        }
        weir_engine_wait(c->engine, UINT64_MAX);
    }
}

/* Requests have tags of their own, above those of grants. */
static int ask(struct client *c, uint64_t what, const char *key, uint64_t length,
               struct reply *reply) {
    struct request request = {.what = what, .length = length};
    uint64_t tag = ++c->requests | UINT64_C(1) << 63;
    snprintf(request.key, KEY_MAX, "%s", key);
    c->asked++;
    int rc = send(c->engine, c->server, REQUESTS, tag, &request, sizeof(request));
    return rc == WEIR_OK ? await(c, tag, reply) : rc;
}

/* One write into a slot, or one read from it; the former with a notification, if there is a grant.
 */
static int move(struct client *c, bool write, uint64_t slot, uint64_t length, uint64_t grant) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_segment segment = {
        .local = c->memory, .remote = c->slots, .remote_offset = slot * SLOT, .length = length};
    weir_transfer transfer;
    options.flags = grant != 0 ? WEIR_TRANSFER_NOTIFY : 0;
    options.notify_tag = grant;
    int rc =
        (write ? weir_write : weir_read)(c->engine, c->server, &segment, 1, &options, &transfer);
    if (rc == WEIR_OK) {
        rc = weir_transfer_wait(c->engine, transfer, UINT64_MAX);
        weir_transfer_release(c->engine, transfer);
    }
    return rc;
}

/* Puts the value that is behind c->head. EAGAIN: all slots are being written. */
static int put(struct client *c, const char *key, uint64_t length) {
    struct reply where = {0};
    int rc = meet(c);
    if (rc == WEIR_OK)
        rc = ask(c, GRANT, key, length, &where);
    if (rc == WEIR_OK && where.grant == 0)
        return WEIR_EAGAIN;
    memset(c->head, 0, sizeof(*c->head));
    c->head->grant = where.grant;
    c->head->length = length;
    snprintf(c->head->key, KEY_MAX, "%s", key);
    c->head->digest = digest_of(c->head);
    if (rc == WEIR_OK)
        rc = move(c, true, where.slot, sizeof(*c->head) + length, where.grant); /* 3 */
    if (rc == WEIR_OK)
        rc = await(c, where.grant, &where);
    if (rc != WEIR_OK)
        return lose(c, rc);
    *known(c, key) = where;
    return WEIR_OK;
}

/* 4, 5: whether what was read is that version of that key's value, and whole */
static bool is_right(struct client *c, const char *key, const struct reply *where) {
    const struct head *head = c->head;
    if (head->grant != where->grant)
        return false; /* another value's by now */
    if (head->length == where->length && head->digest == digest_of(head) &&
        strncmp(head->key, key, KEY_MAX) == 0)
        return true;
    c->torn++;
    return false;
}

/* ENOTREADY: a miss. A read alone is no progress: a client that does nothing else would not hear
 * that the server is dead, and on shm memory of a dead process can be read for as long as it is
 * mapped. */
static int get(struct client *c, const char *key) {
    struct reply *where = known(c, key);
    weir_engine_progress(c->engine);
    if (gone(c) != WEIR_OK)
        lose(c, WEIR_EPEER);
    int rc = meet(c);
    for (int tries = 0; rc == WEIR_OK && tries < 3; tries++) {
        if (where->grant == 0)
            rc = ask(c, FIND, key, 0, where);
        if (rc != WEIR_OK || where->grant == 0)
            break;
        rc = move(c, false, where->slot, sizeof(*c->head) + where->length, 0);
        if (rc == WEIR_OK && is_right(c, key, where))
            return WEIR_OK;
        where->grant = 0;
    }
    if (rc != WEIR_OK)
        lose(c, rc);
    return WEIR_ENOTREADY;
}

/* ---- the command ---------------------------------------------------------- */

static int get_text(struct client *c, const char *key) {
    int rc = get(c, key);
    if (rc == WEIR_OK)
        printf("%.*s\n", (int)c->head->length, (const char *)(c->head + 1));
    else
        fprintf(stderr, "cache: %s is not there%s\n", key, c->torn > 0 ? ": torn" : "");
    return rc == WEIR_OK ? 0 : 1;
}

/* No client does this: another value over one that is stored, without a grant and in part. */
static int tear(struct client *c, const char *key) {
    must(key, get(c, key));
    memset(c->head + 1, '?', (size_t)c->head->length / 2);
    must(key, move(c, true, known(c, key)->slot, sizeof(*c->head) + c->head->length / 2, 0));
    return 0;
}

static uint64_t random_from(uint64_t *seed) {
    *seed += UINT64_C(0x9e3779b97f4a7c15);
    return XXH3_64bits(seed, sizeof(*seed));
}

/* The words of a value: its number, and what follows from key and number. */
static uint64_t word_of(const char *key, uint64_t number, uint64_t word) {
    uint64_t seed = XXH3_64bits(key, strlen(key)) ^ (number + word) * UINT64_C(0x2545f4914f6cdd1d);
    return word == 0 ? number : seed;
}

/* Whether the value that was got is that of this key, byte for byte; and of this number, unless it
 * is 0. */
static bool is_value(const struct client *c, const char *key, uint64_t number) {
    const uint64_t *value = (const uint64_t *)(const void *)(c->head + 1);
    bool right = c->head->length % sizeof(*value) == 0 && (number == 0 || value[0] == number);
    for (uint64_t w = 1; w < c->head->length / sizeof(*value); w++)
        right &= value[w] == word_of(key, value[0], w);
    return right;
}

static int put_value(struct client *c, const char *key, uint64_t number, uint64_t words) {
    uint64_t *value = (uint64_t *)(void *)(c->head + 1);
    for (uint64_t w = 0; w < words; w++)
        value[w] = word_of(key, number, w);
    return put(c, key, words * sizeof(*value));
}

/* Puts of keys that all programs have, and of some of this one's own; gets by the client that puts,
 * and by another: what was put last under a key of one's own is there for both, or nothing is. */
static int use(struct client clients[2], uint64_t rounds, uint64_t own) {
    enum { KEYS = 24 };
    uint64_t last[KEYS] = {0}, puts = 0, hits = 0, misses = 0, lost = 0, seed = own;
    char key[KEY_MAX];
    for (uint64_t round = 1; round <= rounds; round++) {
        uint64_t k = random_from(&seed) % KEYS, what = random_from(&seed);
        struct client *c = &clients[what / 4 % 2];
        if (clients[0].lost + clients[1].lost != lost) { /* one has heard of it: so has the other */
            forget(&clients[0]);
            forget(&clients[1]);
            lost = clients[0].lost + clients[1].lost;
        }
        snprintf(key, sizeof(key), "%s%" PRIu64 "/%" PRIu64, k % 2 ? "own" : "all", k % 2 ? own : 0,
                 k);
        if (what % 4 == 0) {
            uint64_t number = own << 32 | round, words = 1 + what / 8 % (VALUE_MAX / 8);
            bool stored = put_value(&clients[0], key, number, words) == WEIR_OK;
            last[k] = stored && k % 2 ? number : 0; /* else it may be there, or not */
            puts += stored;
        } else if (get(c, key) != WEIR_OK) {
            misses++;
        } else if (is_value(c, key, last[k])) {
            hits++;
        } else {
            fprintf(stderr, "cache: %s is wrong\n", key);
            return 1;
        }
    }
    printf("%" PRIu64 " puts, %" PRIu64 " gets: %" PRIu64 " right, %" PRIu64 " not there; %" PRIu64
           " questions, %" PRIu64 " torn, %" PRIu64 " times lost\n",
           puts, hits + misses, hits, misses, clients[0].asked + clients[1].asked,
           clients[0].torn + clients[1].torn, clients[0].lost + clients[1].lost);
    return 0;
}

static weir_engine *open_engine(const weir_engine_options *options) {
    char why[WEIR_OPEN_NOTE_MAX];
    weir_engine *engine;
    int rc = weir_engine_open(options, &engine);
    if (rc == WEIR_OK)
        return engine;
    weir_open_explain(options, rc, why, sizeof(why));
    fprintf(stderr, "cache: %s\n", why);
    exit(1);
}

static void open_client(struct client *c, const weir_engine_options *options, const char *address) {
    c->engine = open_engine(options);
    c->replies = inbox_of(c->engine, REPLIES, sizeof(struct reply));
    must("memory", weir_memory_allocate(c->engine, SLOT, 0, &c->memory, (void **)&c->head));
    must(address, weir_peer_open(c->engine, address, &c->server));
    int rc = meet(c);
    while (rc == WEIR_EPEER) /* it was killed meanwhile: there may be another soon */
        rc = meet(c);
    must(address, rc);
}

static int be_client(const weir_engine_options *options, int argc, char **argv) {
    static struct client clients[2];
    struct client *c = &clients[0];
    int status = 2;
    open_client(c, options, argv[2]);
    if (strcmp(argv[1], "put") == 0 && argc == 5 && strlen(argv[4]) <= VALUE_MAX) {
        memcpy(c->head + 1, argv[4], strlen(argv[4]));
        must(argv[3], put(c, argv[3], strlen(argv[4])));
        status = 0;
    } else if (strcmp(argv[1], "get") == 0 && argc == 4) {
        status = get_text(c, argv[3]);
    } else if (strcmp(argv[1], "tear") == 0 && argc == 4) {
        status = tear(c, argv[3]);
    } else if (strcmp(argv[1], "use") == 0 && argc == 5) {
        open_client(&clients[1], options, argv[2]);
        status = use(clients, strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10));
        weir_engine_close(clients[1].engine);
    }
    weir_engine_close(c->engine);
    return status;
}

int main(int argc, char **argv) {
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    if (argc > 2 && strcmp(argv[1], "-d") == 0) {
        options.device = argv[2];
        argc -= 2;
        argv += 2;
    }
    bool serves = argc == 3 && strcmp(argv[1], "serve") == 0;
    if (!serves && argc != 4 && argc != 5) {
        fprintf(stderr, "usage: cache [-d DEVICE] serve HOST:PORT | put HOST:PORT KEY TEXT |\n"
                        "             get HOST:PORT KEY | tear HOST:PORT KEY |\n"
                        "             use HOST:PORT ROUNDS NUMBER\n");
        return 2;
    }
    if (!serves)
        return be_client(&options, argc, argv);
    options.listen = argv[2];
    serve(open_engine(&options));
}
