/* SPDX-License-Identifier: Apache-2.0 */
/* test_engine_names_random.c: an application that opens, connects, closes and is slow, against
 * others that call, answer, restart, break and leave, all at random; and what it may rely on about
 * the handles that it has (H1). The other side is the test itself: see lone_engine.h.
 *
 * The rules that each act is followed by: an event or a notification comes under a handle that the
 * application has, or was told; a notification behind UP; no UP while up; no GONE of one that is
 * gone already; what one call takes for a handle, all take; what is posted goes to an instance that
 * its handle has named since, and data to the one whose memory it is for. And at the end, when
 * everybody answers and enough time has passed: each connect that was under way was answered, each
 * transfer has ended, and a handle that is up has a session.
 *
 * This file is long because its acts, and the rules that look at them, share one world.
 *
 *     test_engine_names_random FIRST LAST     these seeds
 *     WEIR_TEST_TRACE=1 ...                   with all that happens */
#include "lone_engine.h"
#include "seeds.h"
#include "tables.h"

#include <stdio.h>
#include <stdlib.h>

#include "wire_data.h"

#define SEEDS 400

enum { OTHERS = 3, NAMES = 5, KNOWN = 512, SENT = 256, ACTS = 70, INSTANCES = 64, TAGS = 1024 };
enum { REMOTES = 16, BYTES = 64 };

/* Where the engine dials: the address of each of the others, and names of the first two. */
static const char *const addresses[NAMES] = {
    "10.0.0.1:1", "10.0.0.2:2", "10.0.0.3:3", "one.name:1", "two.name:2",
};

struct other {
    uint32_t n;      /* its instance, as lone_engine.h numbers them */
    bool away;       /* nobody listens there */
    uint64_t conn;   /* the last on which it spoke with the engine; 0: none */
    uint64_t epoch;  /* its last */
    uint64_t pass;   /* the engine's, for it; 0 */
    bool says_other; /* that it is where the next one is */
};

/* A handle as the application knows it. */
struct known {
    uint64_t id;
    uint32_t opened; /* references */
    bool told;       /* by an event */
    bool up, ever_up, gone;
    unsigned ups;       /* how often it was told to be up */
    bool asked;         /* connect was ENOTREADY */
    uint64_t same;      /* the handle that carries its events, as far as the application knows */
    uint64_t said;      /* the same, as SAME has told; 0: itself */
    uint64_t instances; /* that it ever named, a bit each */
};

struct sent {
    weir_transfer transfer;
    uint64_t id;     /* of the handle */
    uint64_t named;  /* the instances that the handle has named since the submit, a bit each */
    uint64_t posted; /* those that it was posted to */
};

static struct world {
    struct lone *lone;
    uint64_t random;
    uint32_t leads_to[NAMES]; /* which of the others is at this address */
    struct other others[OTHERS];
    uint64_t numbers[INSTANCES]; /* of notifications of each instance */
    bool connected[LONE_CONNS];
    uint32_t at[LONE_CONNS]; /* the instance that speaks there; 0: none yet */
    struct known known[KNOWN];
    uint32_t known_count;
    struct sent sent[SENT];
    uint32_t sent_count;
    uint8_t bytes[BYTES];
    weir_memory memory;
    weir_remote remotes[REMOTES];
    uint32_t remote_count;
    const char *misled; /* what was posted to another than it is for; NULL: nothing */
    uint32_t instances;
    bool trace, settling;
    uint32_t tag;
    uint8_t senders[TAGS]; /* of the notification with this tag */
} w;

static unsigned seed_first = 1, seed_last, seed;

#define TRACE(...)                                                                                 \
    do {                                                                                           \
        if (w.trace)                                                                               \
            fprintf(stderr, "  " __VA_ARGS__), fputc('\n', stderr);                                \
    } while (0)
#define WRONG(...)                                                                                 \
    do {                                                                                           \
        fprintf(stderr, "seed %u: ", seed);                                                        \
        fail_msg(__VA_ARGS__);                                                                     \
    } while (0)

/* xorshift64* */
static uint32_t below(uint32_t limit) {
    w.random ^= w.random >> 12;
    w.random ^= w.random << 25;
    w.random ^= w.random >> 27;
    return (uint32_t)((w.random * UINT64_C(2685821657736338717)) >> 33) % limit;
}

/* ---- the others ---- */

static struct other *other_of(uint32_t n) {
    for (uint32_t i = 0; i < OTHERS; i++) {
        if (w.others[i].n == n)
            return &w.others[i];
    }
    return NULL;
}

/* It that is at this address; NULL: it is that of a visitor. */
static struct other *other_at(const char *address) {
    for (uint32_t i = 0; i < NAMES; i++) {
        if (strcmp(addresses[i], address) == 0)
            return &w.others[w.leads_to[i]];
    }
    return NULL;
}

static const char *address_of(const struct other *other) {
    uint32_t i = (uint32_t)(other - w.others);
    return addresses[other->says_other ? (i + 1) % OTHERS : i];
}

static uint32_t number_of_instance(const uint8_t *instance) {
    uint32_t n;
    memcpy(&n, instance, sizeof(n));
    return n;
}

static void say_iam(struct other *other, uint64_t conn, bool shows) {
    struct wire_message iam = {.type = WIRE_IAM, .pass = shows ? other->pass : 0};
    snprintf(iam.address, sizeof(iam.address), "%s", address_of(other));
    TRACE("world: %u says IAM on %u", other->n, (unsigned)conn);
    w.at[conn] = other->n;
    lone_say(w.lone, conn, other->n, &iam);
}

static void say_hello(struct other *other) {
    if (other->conn == 0 || !w.lone->conns[other->conn].open)
        return;
    TRACE("world: %u says HELLO on %u", other->n, (unsigned)other->conn);
    lone_say_hello(w.lone, other->conn, other->n, ++other->epoch);
}

/* The other side of this connection: it that spoke there, or is at the address. */
static struct other *there(uint64_t conn) {
    struct other *other = other_at(w.lone->conns[conn].address);
    if (other != NULL)
        return other;
    return w.at[conn] != 0 ? other_of(w.at[conn]) : NULL;
}

static void answer(uint64_t conn, const struct wire_message *message) {
    struct other *other = there(conn);
    if (other == NULL || !w.lone->conns[conn].open)
        return;
    TRACE("engine: %s on %u, of %u", wire_type_name(message->type), (unsigned)conn, other->n);
    if (message->type == WIRE_WHO) {
        say_iam(other, conn, true);
        return;
    }
    if (number_of_instance(message->to) != other->n) {
        if (message->type != WIRE_IAM)
            say_iam(other, conn, false);
        return;
    }
    struct wire_message reply = {.type = 0};
    if (message->type == WIRE_HELLO || message->type == WIRE_HELLO_ACK) {
        other->pass = message->qps.pass;
        other->conn = conn;
        w.at[conn] = other->n;
    }
    if (message->type == WIRE_HELLO)
        reply = (struct wire_message){.type = WIRE_HELLO_ACK,
                                      .epoch = ++other->epoch,
                                      .echo = message->epoch,
                                      .qps = lone_qps()};
    if (message->type == WIRE_HELLO_ACK)
        reply = (struct wire_message){
            .type = WIRE_READY, .epoch = message->echo, .echo = message->epoch};
    if (message->type == WIRE_SETTLE)
        reply = (struct wire_message){.type = WIRE_SETTLED, .echo = message->epoch};
    if (reply.type != 0)
        lone_say(w.lone, conn, other->n, &reply);
}

/* The host of the other side of a connection, whichever side made it. */
static void set_host(uint64_t conn, const struct other *other) {
    snprintf(w.lone->conns[conn].from, sizeof(w.lone->conns[conn].from), "%.8s",
             addresses[other - w.others]);
}

/* One round of the others: connections that the engine dials come about or do not, and its messages
 * are answered, most of them. */
static bool world_turn(void) {
    struct lone *lone = w.lone;
    bool any = false;
    for (uint64_t conn = 1; conn <= lone->conn_count; conn++) {
        const struct other *other = other_at(lone->conns[conn].address);
        if (other == NULL || w.connected[conn] || !lone->conns[conn].open ||
            (!w.settling && below(8) == 0))
            continue;
        w.connected[conn] = any = true;
        TRACE("world: %u to %s %s", (unsigned)conn, lone->conns[conn].address,
              other->away ? "refused" : "made");
        set_host(conn, other);
        if (other->away)
            lone_cut(lone, conn, WEIR_EPEER);
        else
            lone_dialled(lone, lone->conns[conn].address);
    }
    while (lone->said_count > 0) {
        struct lone_said said = lone->said[0];
        memmove(&lone->said[0], &lone->said[1], --lone->said_count * sizeof(said));
        any = true;
        if (w.settling || below(10) != 0)
            answer(said.conn, &said.message);
    }
    return any;
}

static void world_run(void) {
    lone_run(w.lone);
    for (int turns = 0; turns < 50 && world_turn(); turns++)
        lone_run(w.lone);
}

static void pass(uint64_t ns) {
    for (uint64_t passed = 0; passed < ns; passed += 20 * MS) {
        lone_pass(w.lone, 20 * MS);
        world_run();
    }
}

static void calls(struct other *other) {
    if (w.lone->conn_count + 1 >= LONE_CONNS)
        return;
    uint64_t conn = lone_visit(w.lone);
    set_host(conn, other);
    TRACE("world: %u calls on %u, and is at %s", other->n, (unsigned)conn, address_of(other));
    other->conn = conn;
    w.at[conn] = other->n;
    lone_say_who(w.lone, conn, other->n, address_of(other));
    if (other->pass != 0 && below(4) != 0)
        say_iam(other, conn, true);
    if (below(4) != 0)
        say_hello(other);
}

static void cut_all(const struct other *other, int error) {
    for (uint64_t conn = 1; conn <= w.lone->conn_count; conn++) {
        if (w.lone->conns[conn].open && there(conn) == other)
            lone_cut(w.lone, conn, error);
    }
}

static void restarts(struct other *other) {
    if (w.instances + 1 >= INSTANCES)
        return;
    uint32_t n = ++w.instances;
    TRACE("world: %u is %u now", other->n, n);
    bool says_other = other->says_other;
    if (below(2) == 0)
        cut_all(other, WEIR_EPEER);
    *other = (struct other){.n = n, .says_other = says_other};
}

static void leaves(struct other *other) {
    if (other->conn == 0 || !w.lone->conns[other->conn].open)
        return;
    TRACE("world: %u says BYE", other->n);
    lone_say(w.lone, other->conn, other->n, &(struct wire_message){.type = WIRE_BYE});
    other->pass = 0;
}

/* A QP that the device has, at random: the engine's record of it. NULL: none. Nothing comes on one
 * whose end has come back (its session has it no more), though it is not destroyed yet. */
static struct qp *some_qp(void) {
    uint32_t count = 0;
    struct qp *found = NULL;
    for (uint32_t i = 0; i < w.lone->engine->qps_used; i++) {
        struct qp *qp = &w.lone->engine->qps[i];
        if (qp->qp != NULL && qp->session != NONE &&
            peer_is_known(&w.lone->engine->peers[qp->peer]) && below(++count) == 0)
            found = qp;
    }
    return found;
}

static void notifies(void) {
    const struct qp *qp = some_qp();
    if (qp == NULL || w.tag + 1 == TAGS)
        return;
    uint32_t n = number_of_instance(w.lone->engine->peers[qp->peer].instance);
    if (n >= INSTANCES)
        return;
    uint64_t number = w.numbers[n] + 1;
    struct wire_data data = {.kind = WIRE_NOTIFY, .parts = 1, .number = number, .tag = ++w.tag};
    data.base = number > WINDOW_SIZE ? (number - WINDOW_SIZE + 63) & ~(uint64_t)63 : 0;
    w.senders[w.tag] = (uint8_t)n;
    if (lone_message(w.lone, (uint32_t)(uintptr_t)qp->qp - 1, &data))
        w.numbers[n]++;
    TRACE("world: %u sent notification %u", n, (unsigned)number);
}

static void breaks(void) {
    const struct qp *qp = some_qp();
    if (qp == NULL)
        return;
    TRACE("world: a QP breaks");
    lone_immediate(w.lone, (uint32_t)(uintptr_t)qp->qp - 1);
}

/* ---- the application ---- */

static struct known *known_of(uint64_t id) {
    for (uint32_t i = 0; i < w.known_count; i++) {
        if (w.known[i].id == id)
            return &w.known[i];
    }
    return NULL;
}

static struct known *learn(uint64_t id) {
    struct known *known = known_of(id);
    if (known != NULL)
        return known;
    assert_true(w.known_count < KNOWN);
    w.known[w.known_count] = (struct known){.id = id};
    return &w.known[w.known_count++];
}

static bool has(const struct known *known) {
    return known != NULL && (known->opened > 0 || known->told);
}

/* Whether it is a word about this handle, or about the one that carries its events. */
static bool is_about(const struct known *known, uint64_t id) {
    return known->id == id || known->same == id;
}

static void answered(uint64_t id) {
    for (uint32_t i = 0; i < w.known_count; i++) {
        if (is_about(&w.known[i], id))
            w.known[i].asked = false;
    }
}

static bool is_stale(uint64_t id) {
    weir_peer_info info = WEIR_PEER_INFO_INIT;
    return weir_peer_query(w.lone->engine, (weir_peer){id}, &info) == WEIR_ESTALE;
}

static void take_event(const weir_event *event) {
    uint64_t id = event->peer.id;
    TRACE("app: event %u of %lx, error %d, value %lx", event->type, (unsigned long)id, event->error,
          (unsigned long)event->value);
    if (event->type == WEIR_EVENT_LOST)
        WRONG("events are lost");
    if (id == 0) {
        if (event->type != WEIR_EVENT_REFUSED)
            WRONG("event %u of no handle", event->type);
        return;
    }
    bool introduces = event->type == WEIR_EVENT_UP || event->type == WEIR_EVENT_REFUSED;
    if (!introduces && !has(known_of(id)))
        WRONG("event %u comes under a handle that was never told", event->type);
    struct known *known = learn(id);
    switch (event->type) {
    case WEIR_EVENT_UP:
        if (known->up)
            WRONG("UP twice");
        /* The data of an instance that could not be connected to, and is gone, comes so. */
        if (known->gone && is_stale(id) &&
            known->ups >= (unsigned)__builtin_popcountll(known->instances))
            WRONG("UP under a handle that was told to be gone, and is stale");
        known->ups++;
        known->up = known->ever_up = true;
        known->gone = false;
        break;
    case WEIR_EVENT_DEGRADED:
    case WEIR_EVENT_RECOVERED:
        if (!known->up)
            WRONG("event %u without UP", event->type);
        break;
    case WEIR_EVENT_GONE:
        if (known->gone && !known->asked && known->opened == 0)
            WRONG("GONE twice");
        known->gone = true;
        known->up = false;
        break;
    case WEIR_EVENT_SAME:
        if (known->opened == 0)
            WRONG("SAME of a handle that is not open");
        known->same = known->said = event->value;
        known->asked = false;
        struct known *other = learn(event->value);
        other->told = true;
        other->gone = false;
        return;
    default:
        break;
    }
    known->told = true;
    if (event->type != WEIR_EVENT_REFUSED && event->type != WEIR_EVENT_DEGRADED)
        answered(id);
}

static void take_events(void) {
    weir_event event;
    while (weir_event_take(w.lone->engine, &event) == WEIR_OK)
        take_event(&event);
}

/* Events first: they say whose it is. */
static void take_notification(void) {
    weir_notification notification;
    take_events();
    if (weir_notification_take(w.lone->engine, &notification) != WEIR_OK)
        return;
    uint64_t id = notification.from.id;
    TRACE("app: takes notification %u of %lx", (unsigned)notification.tag, (unsigned long)id);
    struct known *known = known_of(id);
    if (known == NULL) /* one of a handle that was closed since may have been in the queue */
        WRONG("a notification comes under a handle that was never told");
    if (!known->ever_up)
        WRONG("a notification comes before UP");
    if (known->instances != 0 && (known->instances >> w.senders[notification.tag] & 1) == 0)
        WRONG("a notification of %u comes under a handle that never was of it",
              w.senders[notification.tag]);
    lone_run(w.lone);
}

static void opens(void) {
    weir_peer peer;
    const char *address = addresses[below(NAMES)];
    int rc = weir_peer_open(w.lone->engine, address, &peer);
    TRACE("app: opens %s: %s, %lx", address, weir_error_name(rc), (unsigned long)peer.id);
    if (rc == WEIR_EAGAIN)
        return;
    assert_int_equal(rc, WEIR_OK);
    learn(peer.id)->opened++;
}

/* A handle that the application has, at random; NULL: none. */
static struct known *some_known(bool open_only) {
    uint32_t count = 0;
    struct known *found = NULL;
    for (uint32_t i = 0; i < w.known_count; i++) {
        if ((open_only ? w.known[i].opened > 0 : has(&w.known[i])) && below(++count) == 0)
            found = &w.known[i];
    }
    return found;
}

static void connects(void) {
    struct known *known = some_known(false);
    if (known == NULL)
        return;
    take_events(); /* what came before it is no answer to it */
    weir_peer_info info = WEIR_PEER_INFO_INIT;
    bool stale = is_stale(known->id);
    if (!stale && weir_peer_query(w.lone->engine, (weir_peer){known->id}, &info) == WEIR_OK)
        known->same = info.peer.id;
    int rc = weir_peer_connect(w.lone->engine, (weir_peer){known->id});
    TRACE("app: connects %lx: %s", (unsigned long)known->id, weir_error_name(rc));
    if ((rc == WEIR_ESTALE) != stale)
        WRONG("connect is %s, and query is %s", weir_error_name(rc), stale ? "ESTALE" : "OK");
    if (known->opened > 0 && stale)
        WRONG("a handle that is open is stale");
    if (rc == WEIR_ENOTREADY)
        known->asked = true;
}

/* A bit for an instance; 0: it is none that is known. */
static uint64_t named_as(const uint8_t *instance) {
    uint32_t n = number_of_instance(instance);
    return n > 0 && n < INSTANCES ? UINT64_C(1) << n : 0;
}

/* The instance that the handle names now. */
static uint64_t named_by(uint64_t id) {
    weir_peer_info info = WEIR_PEER_INFO_INIT;
    int rc = weir_peer_query(w.lone->engine, (weir_peer){id}, &info);
    return rc == WEIR_OK ? named_as(info.instance) : 0;
}

/* Memory of the instance that a handle names, or of any: what is not its own is refused, or a
 * transfer there is. */
static void imports(void) {
    const struct known *known = some_known(false);
    if (known == NULL || w.remote_count == REMOTES)
        return;
    uint64_t named = named_by(known->id);
    uint32_t n = 1 + below(w.instances);
    if (named != 0 && below(4) != 0)
        n = (uint32_t)__builtin_ctzll(named);
    int rc = lone_import(w.lone, (weir_peer){known->id}, n, BYTES, &w.remotes[w.remote_count]);
    TRACE("app: imports memory of %u through %lx: %s", n, (unsigned long)known->id,
          weir_error_name(rc));
    w.remote_count += rc == WEIR_OK;
}

/* A notification, with data where there is memory, which may be another's. */
static void submits(void) {
    struct known *known = some_known(false);
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    if (known == NULL || w.sent_count == SENT)
        return;
    struct sent *sent = &w.sent[w.sent_count];
    weir_segment segment = {.local = w.memory, .length = BYTES};
    size_t segments = w.remote_count > 0 && below(2) == 0;
    if (segments > 0)
        segment.remote = w.remotes[below(w.remote_count)];
    options.flags = WEIR_TRANSFER_NOTIFY;
    options.notify_tag = w.sent_count;
    bool stale = is_stale(known->id);
    *sent = (struct sent){.id = known->id, .named = named_by(known->id)};
    int rc = weir_write(w.lone->engine, (weir_peer){known->id}, &segment, segments, &options,
                        &sent->transfer);
    TRACE("app: writes %zu segments, %u, to %lx: %s", segments, w.sent_count,
          (unsigned long)known->id, weir_error_name(rc));
    if (segments > 0 ? rc == WEIR_OK && stale : (rc == WEIR_ESTALE) != stale)
        WRONG("write is %s, and query is %s", weir_error_name(rc), stale ? "ESTALE" : "OK");
    if (rc != WEIR_OK || sent->transfer.id == 0)
        return;
    w.sent_count++;
}

/* The device has a WR: its QP leads to an instance, which has to be the one that it is for. */
static void on_post(struct lone *lone, uint32_t number, const struct weir_wr *wr) {
    const struct qp *qp = NULL;
    struct wire_data data;
    for (uint32_t i = 0; i < lone->engine->qps_used; i++) {
        if (lone->engine->qps[i].qp == (struct weir_qp *)(uintptr_t)(number + 1))
            qp = &lone->engine->qps[i];
    }
    if (qp == NULL || qp->peer == NONE) {
        w.misled = "a WR on a QP of nobody";
        return;
    }
    uint32_t n = number_of_instance(lone->engine->peers[qp->peer].instance);
    if (n == 0 || n >= INSTANCES) {
        w.misled = "a WR on a QP to nobody";
        return;
    }
    if (wr->opcode == WEIR_OP_WRITE && wr->length > 0 && wr->rkey != n)
        w.misled = "data for the memory of another instance";
    if (wr->opcode != WEIR_OP_SEND ||
        wire_data_decode((const uint8_t *)(uintptr_t)wr->laddr, (uint32_t)wr->length, &data) !=
            WEIR_OK ||
        data.kind != WIRE_NOTIFY)
        return;
    TRACE("engine: posts the notification of write %u, to %u", (unsigned)data.tag, n);
    if (data.tag >= SENT)
        return;
    struct sent *sent = &w.sent[data.tag];
    struct peer *peer = peer_find(lone->engine, sent->id);
    sent->posted |= UINT64_C(1) << n;
    if (peer != NULL) /* the engine is in this very step, and cannot be asked */
        sent->named |= named_as(peer_resolve(lone->engine, peer)->instance);
}

static void look_at_posts(void) {
    if (w.misled != NULL)
        WRONG("posted: %s", w.misled);
    for (uint32_t i = 0; i < w.sent_count; i++) {
        struct sent *sent = &w.sent[i];
        sent->named |= named_by(sent->id);
        if ((sent->posted & ~sent->named) != 0)
            WRONG("write %u to %lx was posted to %d, which its handle has not named since", i,
                  (unsigned long)sent->id, __builtin_ctzll(sent->posted & ~sent->named));
    }
}

static bool has_ended(const struct sent *sent) {
    return weir_transfer_status(w.lone->engine, sent->transfer) != WEIR_EINPROGRESS;
}

/* Notes which instance each handle names now. */
static void look_at_instances(void) {
    for (uint32_t i = 0; i < w.known_count; i++) {
        weir_peer_info info = WEIR_PEER_INFO_INIT;
        if (weir_peer_query(w.lone->engine, (weir_peer){w.known[i].id}, &info) != WEIR_OK)
            continue;
        uint32_t n = number_of_instance(info.instance);
        if (n > 0 && n < INSTANCES)
            w.known[i].instances |= UINT64_C(1) << n;
    }
    look_at_posts();
}

/* The handle that events of this one's peer carry now; 0: it is stale. */
static uint64_t carrier_of(uint64_t id) {
    weir_peer_info info = WEIR_PEER_INFO_INIT;
    return weir_peer_query(w.lone->engine, (weir_peer){id}, &info) == WEIR_OK ? info.peer.id : 0;
}

/* `closed` carried the events of these: another one does now, and was not told so itself. */
static void inherit(const struct known *closed, const uint64_t *names, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        uint64_t carrier = carrier_of(names[i]);
        if (carrier == 0 || carrier == closed->id)
            continue;
        struct known *heir = learn(carrier);
        heir->up |= closed->up;
        heir->ever_up |= closed->ever_up;
    }
}

/* Transfers through a handle that is none any more end with it, unless they are posted, or the peer
 * has another handle. */
static void closes(void) {
    struct known *known = some_known(true);
    weir_peer_info info = WEIR_PEER_INFO_INIT;
    if (known == NULL)
        return;
    look_at_instances();
    take_events();
    assert_int_equal(weir_peer_query(w.lone->engine, (weir_peer){known->id}, &info), WEIR_OK);
    uint64_t names[KNOWN];
    uint32_t count = 0;
    for (uint32_t i = 0; i < w.known_count; i++) {
        if (&w.known[i] != known && carrier_of(w.known[i].id) == known->id)
            names[count++] = w.known[i].id;
    }
    TRACE("app: closes %lx", (unsigned long)known->id);
    assert_int_equal(weir_peer_close(w.lone->engine, (weir_peer){known->id}), WEIR_OK);
    if (--known->opened > 0)
        return;
    inherit(known, names, count);
    bool goes_on = !is_stale(known->id);
    if (goes_on && !w.lone->engine->peers[handle_index(known->id)].met)
        WRONG("a handle outlives its close, of a peer that did not connect by itself");
    known->told |= goes_on;
    lone_run(w.lone);
    take_events();
    if (!is_stale(known->id))
        return;
    known->asked = known->up = known->told = false;
    bool has_another = info.peer.id != known->id && !is_stale(info.peer.id);
    for (uint32_t i = 0; i < count; i++)
        has_another |= !is_stale(names[i]);
    if (has_another)
        return;
    for (uint32_t i = 0; i < w.sent_count; i++) {
        if (w.sent[i].id == known->id && !has_ended(&w.sent[i]) &&
            weir_transfer_waiting_for(w.lone->engine, w.sent[i].transfer) ==
                WEIR_WAITING_CONNECTION)
            WRONG("a transfer waits for the connection of a handle that was closed");
    }
}

static void act(void) {
    struct other *other = &w.others[below(OTHERS)];
    uint32_t what = below(100);
    if (what < 12)
        opens();
    else if (what < 22)
        connects();
    else if (what < 34)
        closes();
    else if (what < 36)
        imports();
    else if (what < 43)
        submits();
    else if (what < 52)
        take_notification();
    else if (what < 60)
        calls(other);
    else if (what < 64)
        say_hello(other);
    else if (what < 67)
        leaves(other);
    else if (what < 70)
        restarts(other);
    else if (what < 72)
        other->away = !other->away;
    else if (what < 73)
        w.leads_to[below(NAMES)] = below(OTHERS);
    else if (what < 82)
        notifies();
    else if (what < 85)
        breaks();
    else if (what < 88)
        cut_all(other, WEIR_ECONNECT);
    else if (what < 91)
        w.lone->no_destroy = !w.lone->no_destroy;
    else if (what < 93)
        w.lone->no_qps = !w.lone->no_qps, w.lone->qps_error = below(2) ? WEIR_EMFILE : WEIR_EAGAIN;
    else if (what < 98)
        pass((1 + below(5)) * 20 * MS);
    else
        pass((1 + below(15)) * 100 * MS);
}

/* Everybody is there and answers, and the device does what it is asked to. */
static void settle(void) {
    TRACE("---- all answer");
    w.settling = true;
    w.lone->no_qps = w.lone->no_destroy = false;
    for (uint32_t i = 0; i < OTHERS; i++)
        w.others[i].away = false;
    for (int i = 0; i < 100; i++) {
        pass(100 * MS);
        look_at_instances();
        take_events();
        take_notification();
    }
}

static void look_at_the_end(void) {
    for (uint32_t i = 0; i < w.known_count; i++) {
        const struct known *known = &w.known[i];
        weir_peer_info info = WEIR_PEER_INFO_INIT;
        if (known->asked)
            WRONG("%lx was asked to connect, and nothing came", (unsigned long)known->id);
        uint64_t carrier = carrier_of(known->id);
        if (known->opened > 0 && carrier != known->id && carrier != known->said)
            WRONG("events of %lx carry %lx, and SAME told of %lx", (unsigned long)known->id,
                  (unsigned long)carrier, (unsigned long)known->said);
        if (!known->up)
            continue;
        int rc = weir_peer_query(w.lone->engine, (weir_peer){known->id}, &info);
        if (rc != WEIR_OK)
            WRONG("%lx is up, and query is %s", (unsigned long)known->id, weir_error_name(rc));
        if (!info.connected)
            WRONG("%lx is up, and has no session", (unsigned long)known->id);
    }
    for (uint32_t i = 0; i < w.sent_count; i++) {
        if (!has_ended(&w.sent[i]) && /* nobody gives credits back here */
            weir_transfer_waiting_for(w.lone->engine, w.sent[i].transfer) != WEIR_WAITING_CREDITS)
            WRONG("a transfer to %lx never ends", (unsigned long)w.sent[i].id);
    }
}

static void run_seed(void) {
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    memset(&w, 0, sizeof(w));
    w.random = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
    w.trace = getenv("WEIR_TEST_TRACE") != NULL;
    options.transfers_max = 256;
    options.segments_max = 64;
    options.peers_max = below(4) == 0 ? 4 : 16;
    options.memories_max = 4;
    options.remotes_max = REMOTES;
    options.sq_depth = 16;
    options.recv_credits = 8;
    options.notifications_max = 1 + below(3);
    options.connect_timeout_ns = SECOND;
    w.lone = lone_open(&options);
    w.lone->executes = true;
    w.lone->on_post = on_post;
    w.lone->connect_ns = below(4) == 0 ? (1 + below(10)) * 10 * MS : 0;
    assert_int_equal(weir_memory_register(w.lone->engine, w.bytes, BYTES, 0, &w.memory), WEIR_OK);
    for (uint32_t i = 0; i < NAMES; i++)
        w.leads_to[i] = i % OTHERS;
    for (uint32_t i = 0; i < OTHERS; i++)
        w.others[i] = (struct other){.n = ++w.instances, .says_other = below(8) == 0};
    for (int i = 0;
         i < ACTS && w.lone->conn_count < LONE_CONNS / 2 && w.lone->qp_count < LONE_QPS / 2; i++) {
        /* The engine hears the messages of two acts in one step, at times. */
        w.lone->batch = below(4) == 0;
        act();
        if (w.lone->batch)
            act();
        w.lone->batch = false;
        lone_run(w.lone);
        look_at_instances();
        take_events();
        if (below(4) != 0)
            world_run();
        look_at_instances();
        take_events();
    }
    settle();
    look_at_the_end();
    lone_close(w.lone);
}

static void test_H1_random(void **state) {
    (void)state;
    for (seed = seed_first; seed <= seed_last; seed++)
        run_seed();
}

static int say_seed(void **state) {
    (void)state;
    if (seed <= seed_last)
        fprintf(stderr, "seed %u\n", seed);
    return 0;
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_H1_random, say_seed),
    };
    seed_last = seeds_asked(SEEDS);
    if (argc == 3) {
        seed_first = (unsigned)strtoul(argv[1], NULL, 10);
        seed_last = (unsigned)strtoul(argv[2], NULL, 10);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
