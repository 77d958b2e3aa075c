/* SPDX-License-Identifier: Apache-2.0 */
/* broadcast.c: a checkpoint to many processes. One has the file; each of the others gets all of
 * it, and checks every byte. Any of them may be killed meanwhile: the others get theirs all the
 * same.
 *
 *     broadcast give 127.0.0.1:7600 FILE 3
 *     broadcast take 127.0.0.1:7600 COPY              in three terminals
 *     broadcast take 127.0.0.1:7600 COPY 5            ...and one is killed when it has 5 pieces
 *
 * (With "-d ofi" before that, over TCP. On other hosts a taker says where it listens:
 * "-l 10.0.0.2:0".)
 *
 * They are a chain: each reads from the one that came before it, as soon as that has something,
 * and the first one reads from the giver. A piece goes through each NIC once in and once out,
 * whatever their number, so N takers are done in the time of one and N reads of a few pieces more.
 * A tree, in which each gives to two others, halves everybody's speed for a start that is sooner
 * by milliseconds, and a giver that serves all by itself divides its own by N. The recipe:
 *
 *   1. A taker says to the giver where it is, and is told its place. When all are there, the
 *      giver publishes the address of each as a value, "taker/PLACE", the length of the file,
 *      and the digest of each piece, as a memory.
 *   2. A taker publishes the memory that its copy comes to, and follows the taker before it:
 *      opens its address, and the memory of that name there, and asks to be told of what there
 *      is.
 *   3. A taker that has more than before tells its followers, and that is all that it does for
 *      them: they read what they lack, one-sided, when they are ready for it. So nothing is
 *      under way to a taker but what it has asked for, and one that is slow, or dies, holds up
 *      nobody before it.
 *   4. Each piece is compared with the giver's digest of it before others are told: no damage
 *      goes down the chain.
 *   5. A read that fails, or GONE, tells that the one before is dead. Its follower has what it
 *      has, and follows the next one up, to the giver at last. The giver has published the dead
 *      one's address as empty, so that nobody dials it.
 *   6. Nobody leaves before all have theirs, since others may read from it: the giver says when. */
#define XXH_INLINE_ALL
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir.h>
#include <xxhash.h> /* of Debian's libxxhash-dev; nothing to link */

enum { PIECE = 1 << 20, READ_MAX = 4 }; /* bytes; pieces of one read */
enum { TAKERS = 1024, FOLLOWERS = 64 };
enum { JOIN, PLACE, FOLLOW, HAVE, GOT_ALL, LEAVE }; /* tags; a number is the payload */
#define PATIENCE_NS UINT64_C(20000000000)
#define LOOK_NS     UINT64_C(200000000)

static void must(const char *what, int rc) {
    if (rc == WEIR_OK)
        return;
    fprintf(stderr, "broadcast: %s: %s\n", what, weir_strerror(rc));
    exit(1);
}

/* A giver or a taker: one that others read from. */
struct node {
    weir_engine *engine;
    weir_memory memory; /* the file, or as much of it as has come */
    unsigned char *bytes;
    uint64_t length, pieces;
    uint64_t have; /* pieces, from the front */
    weir_peer followers[FOLLOWERS];
    uint32_t follower_count;
};

/* A notification with up to WEIR_NOTIFY_MAX bytes. One to a process that is gone is lost. */
static void say(const struct node *node, weir_peer to, uint64_t tag, const void *payload,
                size_t length) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_transfer transfer;
    options.flags = WEIR_TRANSFER_NOTIFY;
    options.notify_tag = tag;
    options.notify_payload = payload;
    options.notify_length = (uint32_t)length;
    int rc = weir_write(node->engine, to, NULL, 0, &options, &transfer);
    if (rc == WEIR_OK)
        weir_transfer_release(node->engine, transfer); /* it goes on, unobserved */
    else if (rc != WEIR_ESTALE)
        must("a notification", rc);
}

static uint64_t number_in(const weir_notification *got) {
    uint64_t number = 0;
    if (got->length == sizeof(number))
        memcpy(&number, got->payload, sizeof(number));
    return number;
}

static uint64_t piece_bytes(const struct node *node, uint64_t piece) {
    return piece + 1 < node->pieces ? PIECE : node->length - piece * PIECE;
}

static uint64_t digest_of(const struct node *node, uint64_t piece) {
    return XXH3_64bits(node->bytes + piece * PIECE, (size_t)piece_bytes(node, piece));
}

static void allocate(struct node *node, uint64_t length) {
    node->length = length;
    node->pieces = (length + PIECE - 1) / PIECE;
    must("memory", weir_memory_allocate(node->engine, length, WEIR_ACCESS_REMOTE_READ,
                                        &node->memory, (void **)&node->bytes));
}

/* 3 */
static void tell_followers(const struct node *node) {
    for (uint32_t i = 0; i < node->follower_count; i++)
        say(node, node->followers[i], HAVE, &node->have, sizeof(node->have));
}

static void on_follow(struct node *node, weir_peer follower) {
    if (node->follower_count <
        FOLLOWERS) /* else it waits; a chain has one, and more after deaths */
        node->followers[node->follower_count++] = follower;
    say(node, follower, HAVE, &node->have, sizeof(node->have));
}

static void lose_follower(struct node *node, weir_peer gone) {
    for (uint32_t i = 0; i < node->follower_count; i++) {
        if (node->followers[i].id == gone.id)
            node->followers[i--] = node->followers[--node->follower_count];
    }
}

/* ---- the giver ------------------------------------------------------------ */

struct giver {
    struct node node;
    struct {
        weir_peer peer;
        bool over; /* it has all, or is gone */
    } takers[TAKERS];
    uint64_t count, joined, complete, lost;
};

static void publish_address(const struct giver *g, uint64_t place, const char *address) {
    char name[WEIR_NAME_MAX];
    snprintf(name, sizeof(name), "taker/%" PRIu64, place);
    must("publish", weir_value_publish(g->node.engine, name, address, strlen(address)));
}

/* 1. Places begin with 1: the giver itself is 0. */
static void on_join(struct giver *g, const weir_notification *got) {
    char address[WEIR_NOTIFY_MAX + 1];
    if (g->joined == g->count) {
        say(&g->node, got->from, LEAVE, NULL, 0);
        return;
    }
    snprintf(address, sizeof(address), "%.*s", (int)got->length, (const char *)got->payload);
    g->takers[g->joined++].peer = got->from;
    publish_address(g, g->joined, address);
    say(&g->node, got->from, PLACE, &g->joined, sizeof(g->joined));
    if (g->joined == g->count)
        must("publish",
             weir_value_publish(g->node.engine, "length", &g->node.length, sizeof(g->node.length)));
}

static void on_end(struct giver *g, weir_peer taker, bool gone) {
    for (uint64_t t = 0; t < g->joined; t++) {
        if (g->takers[t].peer.id != taker.id || g->takers[t].over)
            continue;
        g->takers[t].over = true;
        g->complete += !gone;
        g->lost += gone;
        if (gone)
            publish_address(g, t + 1, ""); /* 5 */
    }
}

static void read_file(struct node *node, const char *path) {
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END) != 0 || ftell(file) <= 0) {
        fprintf(stderr, "broadcast: %s cannot be read, or is empty\n", path);
        exit(1);
    }
    allocate(node, (uint64_t)ftell(file));
    rewind(file);
    must(path, fread(node->bytes, 1, node->length, file) == node->length ? WEIR_OK : WEIR_EINVAL);
    fclose(file);
}

static void publish_file(struct node *node) {
    weir_memory digests;
    uint64_t *digest;
    must("memory", weir_memory_allocate(node->engine, node->pieces * sizeof(*digest),
                                        WEIR_ACCESS_REMOTE_READ, &digests, (void **)&digest));
    for (; node->have < node->pieces; node->have++)
        digest[node->have] = digest_of(node, node->have);
    must("publish", weir_memory_publish(node->engine, digests, "digests"));
    must("publish", weir_memory_publish(node->engine, node->memory, "checkpoint"));
}

static int give(weir_engine *engine, const char *path, uint64_t count) {
    static struct giver g;
    weir_notification got;
    weir_event event;
    g.node.engine = engine;
    g.count = count;
    read_file(&g.node, path);
    publish_file(&g.node);
    while (g.complete + g.lost < count) {
        weir_engine_wait(engine, UINT64_MAX);
        while (weir_event_take(engine, &event) == WEIR_OK) {
            if (event.type != WEIR_EVENT_GONE)
                continue;
            lose_follower(&g.node, event.peer);
            on_end(&g, event.peer, true);
        }
        while (weir_notification_take(engine, &got) == WEIR_OK) {
            if (got.tag == JOIN)
                on_join(&g, &got);
            else if (got.tag == FOLLOW)
                on_follow(&g.node, got.from);
            else if (got.tag == GOT_ALL)
                on_end(&g, got.from, false);
        }
    }
    for (uint64_t t = 0; t < count; t++) /* 6 */
        say(&g.node, g.takers[t].peer, LEAVE, NULL, 0);
    weir_engine_flush(engine, PATIENCE_NS);
    printf("%" PRIu64 " have all of it, %" PRIu64 " are gone\n", g.complete, g.lost);
    weir_engine_close(engine);
    return g.complete > 0 ? 0 : 1;
}

/* ---- a taker -------------------------------------------------------------- */

struct taker {
    struct node node;
    weir_peer giver;
    uint64_t *digests;
    uint64_t before; /* the place of the one that is followed; 0: the giver */
    weir_peer source;
    weir_remote remote; /* its memory; id 0: nobody is followed */
    uint64_t theirs;    /* pieces that it has */
    weir_transfer read; /* id 0: none is under way */
    uint64_t reading;   /* pieces that it brings */
    bool leave;
};

static void leave_source(struct taker *t) {
    if (t->remote.id != 0)
        weir_remote_release(t->node.engine, t->remote);
    if (t->source.id != 0 && t->source.id != t->giver.id)
        weir_peer_close(t->node.engine, t->source);
    t->remote.id = t->source.id = t->theirs = 0;
}

/* 5: the address at this place, as the giver has told last; false: that taker is gone */
static bool address_of(struct taker *t, uint64_t place, char address[WEIR_VALUE_MAX + 1]) {
    char name[WEIR_NAME_MAX];
    size_t length = WEIR_VALUE_MAX;
    snprintf(name, sizeof(name), "taker/%" PRIu64, place);
    must(name, weir_peer_value(t->node.engine, t->giver, name, PATIENCE_NS, address, &length));
    address[length] = '\0';
    return length > 0;
}

/* 2: whether the one at this place can be followed. A dead one is dialled until the giver has
 * noticed its death, too. */
static bool follow(struct taker *t, uint64_t place) {
    char address[WEIR_VALUE_MAX + 1];
    weir_engine *engine = t->node.engine;
    int rc = WEIR_ENOTREADY;
    if (place == 0)
        t->source = t->giver;
    else if (!address_of(t, place, address) ||
             weir_peer_open(engine, address, &t->source) != WEIR_OK)
        return false;
    while (rc == WEIR_ENOTREADY && (place == 0 || address_of(t, place, address)))
        rc = weir_remote_open(engine, t->source, "checkpoint", LOOK_NS, &t->remote);
    if (rc == WEIR_OK)
        say(&t->node, t->source, FOLLOW, NULL, 0);
    return rc == WEIR_OK;
}

/* 5 */
static void follow_another(struct taker *t) {
    for (;;) {
        leave_source(t);
        if (t->before == 0) {
            fprintf(stderr, "broadcast: nobody is left to read from\n");
            exit(1);
        }
        if (follow(t, --t->before))
            return;
    }
}

/* 4 */
static void on_read(struct taker *t, int status, uint64_t die_after) {
    struct node *node = &t->node;
    uint64_t piece = node->have, end = node->have + t->reading;
    if (status == WEIR_OK) {
        while (piece < end && digest_of(node, piece) == t->digests[piece])
            piece++;
        node->have = piece;
        tell_followers(node);
        if (die_after != 0 && node->have >= die_after)
            raise(SIGKILL);
        if (node->have == node->pieces)
            say(node, t->giver, GOT_ALL, NULL, 0);
    }
    if (piece == end)
        return;
    fprintf(stderr, "broadcast: piece %" PRIu64 ": %s\n", piece,
            status == WEIR_OK ? "damaged" : weir_strerror(status));
    follow_another(t);
}

static void start_read(struct taker *t, uint64_t die_after) {
    struct node *node = &t->node;
    weir_segment segment = {.local = node->memory, .remote = t->remote};
    t->reading = t->theirs - node->have < READ_MAX ? t->theirs - node->have : READ_MAX;
    segment.local_offset = segment.remote_offset = node->have * PIECE;
    for (uint64_t i = 0; i < t->reading; i++)
        segment.length += piece_bytes(node, node->have + i);
    int rc = weir_read(node->engine, t->source, &segment, 1, NULL, &t->read);
    if (rc != WEIR_OK || t->read.id == 0) /* ESTALE, of a dead one; or done at once */
        on_read(t, rc, die_after);
}

/* Takes all that has come; whether that was anything. A wait does not end for events, so nobody
 * waits before there is nothing left to take. */
static bool look(struct taker *t) {
    struct node *node = &t->node;
    weir_notification got;
    weir_event event;
    bool busy = false;
    while (weir_notification_take(node->engine, &got) == WEIR_OK) {
        busy = true;
        if (got.tag == FOLLOW)
            on_follow(node, got.from);
        else if (got.tag == HAVE && got.from.id == t->source.id && number_in(&got) > t->theirs)
            t->theirs = number_in(&got); /* notifications have no order */
        else if (got.tag == LEAVE)
            t->leave = true;
    }
    while (weir_event_take(node->engine, &event) == WEIR_OK) {
        busy = true;
        if (event.type != WEIR_EVENT_GONE)
            continue;
        lose_follower(node, event.peer);
        if (node->have == node->pieces)
            t->leave |= event.peer.id == t->giver.id;
        else if (event.peer.id == t->source.id && t->read.id == 0)
            follow_another(t); /* a read that is under way fails, and does so */
    }
    return busy;
}

static void get_all(struct taker *t, uint64_t die_after) {
    struct node *node = &t->node;
    while (!t->leave) {
        if (t->read.id != 0) {
            int status = weir_transfer_status(node->engine, t->read);
            if (status != WEIR_EINPROGRESS) {
                weir_transfer_release(node->engine, t->read);
                t->read.id = 0;
                on_read(t, status, die_after);
            }
        } else if (t->theirs > node->have) {
            start_read(t, die_after);
        }
        if (!look(t) && (t->read.id != 0 || t->theirs <= node->have))
            weir_engine_wait(node->engine, UINT64_MAX);
    }
}

/* 1: our place */
static uint64_t join(struct taker *t, const char *address) {
    char ours[WEIR_ADDRESS_MAX];
    weir_notification got;
    weir_event event;
    must(address, weir_peer_open(t->node.engine, address, &t->giver));
    must("our address", weir_engine_address(t->node.engine, ours, sizeof(ours)));
    say(&t->node, t->giver, JOIN, ours, strlen(ours));
    while (weir_notification_take(t->node.engine, &got) != WEIR_OK) {
        weir_engine_wait(t->node.engine, UINT64_MAX);
        while (weir_event_take(t->node.engine, &event) == WEIR_OK)
            must(address, event.type == WEIR_EVENT_GONE ? event.error : WEIR_OK);
    }
    if (got.tag != PLACE) {
        fprintf(stderr, "broadcast: all places are taken\n");
        exit(1);
    }
    return number_in(&got);
}

/* 4 */
static void get_digests(struct taker *t) {
    weir_engine *engine = t->node.engine;
    weir_segment segment = {.length = t->node.pieces * sizeof(*t->digests)};
    weir_transfer read;
    must("memory",
         weir_memory_allocate(engine, segment.length, 0, &segment.local, (void **)&t->digests));
    must("digests", weir_remote_open(engine, t->giver, "digests", PATIENCE_NS, &segment.remote));
    must("digests", weir_read(engine, t->giver, &segment, 1, NULL, &read));
    must("digests", weir_transfer_wait(engine, read, UINT64_MAX));
    weir_transfer_release(engine, read);
    weir_remote_release(engine, segment.remote);
}

static int take(weir_engine *engine, const char *address, const char *path, uint64_t die_after) {
    static struct taker t;
    uint64_t length = 0;
    size_t size = sizeof(length);
    t.node.engine = engine;
    t.before = join(&t, address);
    must("length", weir_peer_value(engine, t.giver, "length", UINT64_MAX, &length, &size));
    allocate(&t.node, length);
    must("publish", weir_memory_publish(engine, t.node.memory, "checkpoint")); /* 2 */
    get_digests(&t);
    follow_another(&t);
    get_all(&t, die_after);
    FILE *file = fopen(path, "wb");
    must(path, file != NULL && t.node.have == t.node.pieces &&
                       fwrite(t.node.bytes, 1, length, file) == length && fclose(file) == 0
                   ? WEIR_OK
                   : WEIR_EINVAL);
    printf("%" PRIu64 " bytes are there and right, the last of them from place %" PRIu64 "\n",
           length, t.before);
    weir_engine_close(engine);
    return 0;
}

int main(int argc, char **argv) {
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    char why[WEIR_OPEN_NOTE_MAX];
    weir_engine *engine;
    for (; argc > 2 && argv[1][0] == '-'; argc -= 2, argv += 2)
        *(strcmp(argv[1], "-d") == 0 ? &options.device : &options.listen) = argv[2];
    bool gives = argc == 5 && strcmp(argv[1], "give") == 0;
    uint64_t number = argc == 5 ? strtoull(argv[4], NULL, 10) : 0;
    if (gives ? number < 1 || number > TAKERS
              : (argc != 4 && argc != 5) || strcmp(argv[1], "take") != 0) {
        fprintf(stderr,
                "usage: broadcast [-d DEVICE] give HOST:PORT FILE TAKERS |\n"
                "                 [-d DEVICE] [-l HOST:PORT] take HOST:PORT FILE [PIECES]\n");
        return 2;
    }
    if (gives)
        options.listen = argv[2];
    int rc = weir_engine_open(&options, &engine);
    if (rc != WEIR_OK) {
        weir_open_explain(&options, rc, why, sizeof(why));
        fprintf(stderr, "broadcast: %s\n", why);
        return 1;
    }
    return gives ? give(engine, argv[3], number) : take(engine, argv[2], argv[3], number);
}
