/* SPDX-License-Identifier: Apache-2.0 */
/* target.c: `weir serve`: the loop, the table of sessions, their memory and messages.
 *
 * Clients are not trusted: every length, count and index of a message is checked before use,
 * memory is bounded for each client, as are the answers that it leaves unread, and a message that
 * breaks the protocol costs the client its session, nobody else's. The loop waits for no client,
 * but for 100 ms at a time, with growing pauses, for one that was stopped within an access to
 * memory that is given back. A client that dies takes its session with it (WEIR_EVENT_GONE).
 *
 * Invariants: a session has at most one queued transfer (enum queued); memory is released before a
 * session's place is free again, as often as EBUSY asks for. */
#include "target.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "content.h"
#include "diagnose.h"
#include "host.h"
#include "metrics.h"
#include "stalls.h"

/* Answers that a client may leave unread: as many as it can ask for with an engine of its own that
 * is as weir makes it, or its part of ANSWERS_SHARED where there are more sessions. answers_all is
 * what all sessions may leave. A session's place is taken for as long as answers of it are unread.
 * Without a session there is one thing to ask for. */
#define ANSWERS_MAX       4096u
#define ANSWERS_SHARED    16384u
#define ANSWERS_MAX_ALONE 16u
/* Answers between two looks at how many are unread: a look costs as much as an answer. */
#define ANSWERS_LOOK 64
#define PEERS        1024u /* weir's default, with which the engine is opened */
#define SPIN_NS      (50 * NS_PER_US)
/* A ping-pong's partner answers within this, or is not playing any more. */
#define SPIN_PING_NS     (10 * NS_PER_MS)
#define SLEEP_NS         (100 * NS_PER_MS)
#define SLEEP_WATCH_NS   NS_PER_MS
#define RETRY_FIRST_NS   NS_PER_MS
#define RETRY_LONGEST_NS NS_PER_S
#define BATCH            256 /* messages taken before looking at anything else */

/* The part of each of so many sessions. */
static uint32_t answers_each(uint32_t sessions) {
    return ANSWERS_SHARED / sessions < ANSWERS_MAX ? ANSWERS_SHARED / sessions : ANSWERS_MAX;
}

/* What they all may leave, in whatever order they come: the part of each is that of its arrival,
 * and what comes between two looks. */
static uint32_t answers_all(uint32_t sessions) {
    uint32_t sum = 0;

    for (uint32_t k = 1; k <= sessions; k++)
        sum += answers_each(k) + ANSWERS_LOOK;
    return sum;
}

static bool leaves_too_many(struct target *target, const struct served *served) {
    weir_peer_info info = WEIR_PEER_INFO_INIT;
    uint32_t most = ANSWERS_MAX_ALONE;

    if (served->state != SERVED_FREE)
        most = answers_each(target->open_count);
    return weir_peer_query(target->engine, served->peer, &info) == 0 && info.pending >= most;
}

/* The message has no deadline: the client waits for it for as long as it lives, and the engine ends
 * it when the client is gone. */
static int send_one(struct target *target, struct served *served, uint64_t tag, const void *payload,
                    uint32_t length, const weir_segment *segments, size_t segment_count) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_transfer transfer;

    options.flags = WEIR_TRANSFER_NOTIFY;
    options.notify_tag = tag;
    options.notify_payload = payload;
    options.notify_length = length;
    int rc = weir_write(target->engine, served->peer, segments, segment_count, &options, &transfer);
    if (rc == 0 && transfer.id != 0)
        weir_transfer_release(target->engine, transfer);
    return rc;
}

int target_send(struct target *target, struct served *served, uint64_t tag, const void *payload,
                uint32_t length, const weir_segment *segments, size_t segment_count) {
    if (served->answers++ % ANSWERS_LOOK == 0 && leaves_too_many(target, served))
        return WEIR_EAGAIN;
    return send_one(target, served, tag, payload, length, segments, segment_count);
}

int target_post(struct target *target, struct served *served, uint32_t inbox, uint64_t tag,
                const weir_part *part) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_transfer transfer;
    weir_loan loan;
    int rc;

    if (served->answers++ % ANSWERS_LOOK == 0 && leaves_too_many(target, served))
        return WEIR_EAGAIN;
    options.notify_tag = tag;
    rc = served->open.kind == PROTO_KIND_LOAN_PING
             ? weir_message_loan(target->engine, served->peer, inbox, part->length, &loan)
             : WEIR_EAGAIN;
    if (rc == 0)
        rc = weir_loan_send(target->engine, &loan, &options, &transfer);
    else /* also where all that may be lent is */
        rc = weir_message_send(target->engine, served->peer, inbox, part, 1, &options, &transfer);
    if (rc == 0 && transfer.id != 0)
        weir_transfer_release(target->engine, transfer);
    return rc;
}

/* ---- sessions ---------------------------------------------------------- */

static struct served *find(struct target *target, weir_peer peer) {
    for (uint32_t i = 0; i < target->served_max; i++) {
        if (target->served[i].state != SERVED_FREE && target->served[i].peer.id == peer.id)
            return &target->served[i];
    }
    return NULL;
}

static int check_open(const struct target *target, const struct proto_open *open) {
    uint64_t max = target->options->memory_max;

    if (open->magic != PROTO_MAGIC || open->kind < PROTO_KIND_WRITE ||
        open->kind > PROTO_KIND_LOAN_PING || open->memory > MEMORY_OWN)
        return WEIR_EINVAL;
    if (open->message_bytes > PROTO_MESSAGE_MAX || open->waiting > PROTO_MESSAGES_MAX ||
        open->hold > PROTO_MESSAGES_MAX)
        return WEIR_EINVAL;
    if (open->page_count == 0 || open->page_count > PROTO_PAGES_MAX || open->page_bytes == 0 ||
        open->page_stride < open->page_bytes || open->page_stride % 8 != 0 ||
        open->seats > PROTO_SEATS_MAX || open->list_bytes % 8 != 0 || open->lanes == 0 ||
        open->page_count % open->lanes != 0)
        return WEIR_EINVAL;
    /* After these the sums of proto_bytes cannot wrap. */
    if (open->page_stride > max / open->page_count ||
        (open->seats != 0 && open->list_bytes > max / open->seats))
        return WEIR_ETOOBIG;
    if (work_memory_bytes(open) > max ||
        work_scratch_bytes(open) + work_inbox_bytes(open) > max - work_memory_bytes(open))
        return WEIR_ETOOBIG;
    if (open->kind == PROTO_KIND_REPLAY && (open->seats == 0 || open->list_bytes == 0))
        return WEIR_EINVAL;
    if (open->kind >= PROTO_KIND_SEND && open->seats == 0)
        return WEIR_EINVAL;
    if (open->kind == PROTO_KIND_FILL &&
        (open->seats != 1 || open->list_bytes == 0 || open->list_bytes / 8 > open->page_count))
        return WEIR_EINVAL;
    return 0;
}

static int allocate(struct target *target, struct served *served) {
    uint64_t bytes = work_memory_bytes(&served->open);
    uint64_t scratch = work_scratch_bytes(&served->open);
    void *base = NULL;
    int rc;

    if (bytes + scratch + work_inbox_bytes(&served->open) > host_memory_available())
        return WEIR_ENOMEM; /* better than to be killed for it */
    if (served->open.memory == MEMORY_SHARED) {
        rc = weir_memory_allocate(target->engine, bytes, WEIR_ACCESS_ALL, &served->memory, &base);
        if (rc == 0)
            memset(base, 0, bytes); /* page faults now, not in the measurement */
    } else {
        base = host_map(bytes);
        if (base == NULL)
            return WEIR_ENOMEM;
        served->map_bytes = bytes;
        rc = weir_memory_register(target->engine, base, bytes, WEIR_ACCESS_ALL, &served->memory);
    }
    served->base = base;
    if (rc == 0 && served->open.kind == PROTO_KIND_FAULTS)
        return lent_open(target->engine, target->options->device, &served->lent);
    if (rc == 0 && scratch != 0) {
        rc = weir_memory_allocate(target->engine, scratch, 0, &served->scratch, &base);
        served->scratch_base = base;
    }
    return rc;
}

/* EBUSY: a transfer uses it, or a peer that was stopped is still inside an access. */
static int release_memory(struct target *target, weir_memory *memory) {
    int rc = memory->id == 0 ? 0 : weir_memory_release(target->engine, *memory);

    if (rc == WEIR_EBUSY || rc == WEIR_EINPROGRESS)
        return WEIR_EBUSY;
    memory->id = 0;
    return 0;
}

/* Tries to give everything back; EBUSY asks for another try later. Safe at any stage. */
static int release(struct target *target, struct served *served) {
    int rc = 0;

    inbox_shut(target, served);
    if (served->remote.id != 0)
        rc = weir_remote_release(target->engine, served->remote);
    if (rc == WEIR_EBUSY)
        return rc;
    served->remote.id = 0;
    if (lent_close(target->engine, &served->lent) != 0 ||
        release_memory(target, &served->scratch) != 0 ||
        release_memory(target, &served->memory) != 0)
        return WEIR_EBUSY;
    if (served->map_bytes != 0)
        host_unmap(served->base, served->map_bytes);
    served->map_bytes = 0;
    return 0;
}

static void try_leave(struct target *target, struct served *served) {
    weir_peer_info info = WEIR_PEER_INFO_INIT;

    if (weir_peer_query(target->engine, served->peer, &info) == 0 && info.pending != 0)
        return;
    *served = (struct served){.state = SERVED_FREE, .index = served->index};
    target->open_count--;
}

static void try_close(struct target *target, struct served *served) {
    /* The queued transfer's completion names this place: it must have come first. */
    if (served->queued != 0)
        return;
    /* A try may take 100 ms, where a client was stopped within an access. */
    if (served->pause_ns != 0 && host_now_ns() < served->retry_ns)
        return;
    if (release(target, served) != 0) {
        served->pause_ns = served->pause_ns == 0                 ? RETRY_FIRST_NS
                           : served->pause_ns < RETRY_LONGEST_NS ? 2 * served->pause_ns
                                                                 : served->pause_ns;
        served->retry_ns = host_now_ns() + served->pause_ns;
        return;
    }
    work_close(served);
    if (served->answer_close)
        (void)send_one(target, served, proto_tag(PROTO_CLOSED, 0), NULL, 0, NULL, 0);
    served->state = SERVED_LEFT;
    try_leave(target, served);
}

static void begin_close(struct target *target, struct served *served) {
    if (served->copied.id != 0)
        weir_transfer_release(target->engine, served->copied);
    served->copied.id = 0;
    served->state = SERVED_CLOSING;
    try_close(target, served);
}

/* Asked while the client is there. */
static void name_client(struct target *target, struct served *served) {
    weir_peer_info info = WEIR_PEER_INFO_INIT;

    if (weir_peer_query(target->engine, served->peer, &info) == 0 && info.address[0] != '\0')
        snprintf(served->name, sizeof(served->name), "%s", info.address);
    else
        snprintf(served->name, sizeof(served->name), "without an address");
}

/* A status that cannot be sent is the client's loss. */
static void answer_status(struct target *target, struct served *served, enum proto_type type,
                          int error) {
    int rc = target_send(target, served, proto_tag(type, (uint64_t)-error), NULL, 0, NULL, 0);

    if (rc == WEIR_EAGAIN && served->name[0] == '\0')
        name_client(target, served);
    if (rc == WEIR_EAGAIN)
        remark("client %s takes no answers, and gets no more", served->name);
}

/* The target ends a session by itself, and says why: here, and to the client, which hears it before
 * or soon after its memory goes. */
static void end_session(struct target *target, struct served *served, const char *what, int error) {
    remark("client %s: %s: its session ends: %s (%s)", served->name, what, weir_strerror(error),
           weir_error_name(error));
    (void)send_one(target, served, proto_tag(PROTO_CLOSED, (uint64_t)-error), NULL, 0, NULL, 0);
    begin_close(target, served);
}

/* A client that is gone hears nothing. */
static void client_gone(struct target *target, struct served *served, int error) {
    if (served->state == SERVED_OPEN)
        remark("client %s is gone within its session: %s (%s)", served->name, weir_strerror(error),
               weir_error_name(error));
    served->answer_close = false;
    if (served->state != SERVED_LEFT)
        begin_close(target, served);
    else
        try_leave(target, served);
}

/* Whether there is a client, or one may come yet: then GONE is told again if it does not. */
static bool is_there(struct target *target, weir_peer client) {
    int rc = weir_peer_connect(target->engine, client);

    return rc == 0 || rc == WEIR_ENOTREADY;
}

static int open_session(struct target *target, struct served *served) {
    uint8_t descriptor[WEIR_DESCRIPTOR_MAX];
    size_t length = sizeof(descriptor);
    int rc = allocate(target, served);

    if (rc == 0)
        rc = work_open(target, served);
    if (rc == 0)
        rc = weir_memory_export(target->engine, served->memory, descriptor, &length);
    if (rc == 0)
        rc = target_send(target, served, proto_tag(PROTO_OPENED, 0), descriptor, (uint32_t)length,
                         NULL, 0);
    return rc;
}

/* The engine gives no news when a client takes its last answer. So the count of unread ones is
 * asked for when a place is wanted. */
static void visit_left(struct target *target) {
    for (uint32_t i = 0; i < target->served_max; i++) {
        if (target->served[i].state == SERVED_LEFT)
            try_leave(target, &target->served[i]);
    }
}

static void on_open(struct target *target, const weir_notification *message) {
    struct served refused = {.peer = message->from};
    int rc = WEIR_EAGAIN;

    if (message->length != sizeof(struct proto_open)) {
        answer_status(target, &refused, PROTO_OPENED, WEIR_EINVAL);
        return;
    }
    /* A client's last message may come behind the news of its end, which is not told again. */
    if (!is_there(target, message->from)) {
        remark("a client is gone before its session began");
        return;
    }
    memcpy(&refused.open, message->payload, sizeof(refused.open));
    visit_left(target);
    struct served *served = find(target, message->from);
    if (served != NULL)
        rc = WEIR_EBUSY; /* one session a client */
    for (uint32_t i = 0; served == NULL && i < target->served_max; i++) {
        if (target->served[i].state == SERVED_FREE) {
            rc = check_open(target, &refused.open);
            served = &target->served[i];
        }
    }
    if (rc != 0) {
        answer_status(target, &refused, PROTO_OPENED, rc);
        return;
    }
    *served = (struct served){
        .state = SERVED_OPEN, .index = served->index, .peer = message->from, .open = refused.open};
    name_client(target, served);
    target->open_count++;
    rc = open_session(target, served);
    if (rc != 0) {
        answer_status(target, served, PROTO_OPENED, rc);
        begin_close(target, served);
    }
}

static int on_export(struct target *target, struct served *served,
                     const weir_notification *message) {
    int rc;

    if (served->remote.id != 0)
        return WEIR_EINVAL;
    rc = weir_memory_import(target->engine, served->peer, message->payload, message->length,
                            &served->remote);
    if (rc == 0)
        rc = weir_remote_query(target->engine, served->remote, &served->remote_bytes, NULL);
    answer_status(target, served, PROTO_EXPORTED, rc);
    return rc;
}

static int on_mark(struct target *target, struct served *served) {
    struct proto_marked marked = {.cpu_ns = host_cpu_ns(), .notifications = served->notifications};

    return target_send(target, served, proto_tag(PROTO_MARKED, 0), &marked, sizeof(marked), NULL,
                       0);
}

/* ---- the loop ---------------------------------------------------------- */

static int on_message(struct target *target, struct served *served,
                      const weir_notification *message) {
    served->notifications++;
    switch (proto_type(message->tag)) {
    case PROTO_DATA:
        return 0;
    case PROTO_PING:
        return work_pong(target, served);
    case PROTO_CHECK:
        return work_check(target, served, message);
    case PROTO_FILL:
        return work_fill(target, served, message);
    case PROTO_REQUEST:
        return work_request(target, served, message);
    case PROTO_BLOCKS:
        return work_blocks(target, served, message);
    default:
        break;
    }
    served->notifications--; /* those below are not work */
    switch (proto_type(message->tag)) {
    case PROTO_EXPORT:
        return on_export(target, served, message);
    case PROTO_MARK:
        return on_mark(target, served);
    case PROTO_INBOX:
        return inbox_name(target, served);
    case PROTO_DRAIN:
        return inbox_drain(target, served, message);
    case PROTO_LEND:
        return work_lend(target, served);
    case PROTO_RECALL:
        return work_recall(target, served);
    case PROTO_STRIKE:
        return work_strike(target, served);
    case PROTO_CLOSE:
        served->answer_close = true;
        begin_close(target, served);
        return 0;
    default:
        return WEIR_EINVAL;
    }
}

static unsigned take_messages(struct target *target) {
    weir_notification message;
    unsigned taken = 0;

    while (taken < BATCH && weir_notification_take(target->engine, &message) == 0) {
        struct served *served;
        taken++;
        if (proto_type(message.tag) == PROTO_OPEN) {
            on_open(target, &message);
            continue;
        }
        served = find(target, message.from);
        if (served == NULL || served->state != SERVED_OPEN)
            continue; /* of a session that is over */
        int rc = on_message(target, served, &message);
        if (rc != 0)
            end_session(target, served, "its message cannot be served", rc);
    }
    return taken;
}

static unsigned take_completions(struct target *target) {
    weir_completion completion;
    unsigned taken = 0;

    while (taken < BATCH && weir_completion_take(target->engine, &completion) == 0) {
        struct served *served = &target->served[completion.user_data % target->served_max];
        taken++;
        int rc = work_completed(target, served, completion.status);
        if (rc != 0 && served->state == SERVED_OPEN)
            end_session(target, served, "a transfer for it failed", rc);
    }
    return taken;
}

/* Some event was dropped: a client's end, perhaps. */
static void look_after_clients(struct target *target) {
    for (uint32_t i = 0; i < target->served_max; i++) {
        struct served *served = &target->served[i];
        if (served->state == SERVED_OPEN && !is_there(target, served->peer))
            client_gone(target, served, WEIR_EPEER);
    }
}

/* A peer asked for a session, and there is none. */
static void remark_refused(const struct target *target, const weir_event *event) {
    char why[DIAGNOSIS_MAX];

    snprintf(why, sizeof(why), "%s", weir_strerror(event->error));
    if (event->error == WEIR_EREFUSED)
        diagnose_unlike(target->engine, event->peer, why);
    remark("a peer is not served%s: %s (%s)",
           event->error == WEIR_EDENIED || event->error == WEIR_EREFUSED ? "" : " for now", why,
           weir_error_name(event->error));
}

static unsigned take_events(struct target *target) {
    weir_event event;
    unsigned taken = 0;

    while (taken < BATCH && weir_event_take(target->engine, &event) == 0) {
        struct served *served = find(target, event.peer);
        taken++;
        if (target->options->watch)
            stalls_remark(target->engine, &event);
        if (target->options->stalls != NULL)
            stalls_trace(target->engine, &event, target->options->stalls);
        if (event.type == WEIR_EVENT_DEVICE_FAILED)
            target->device_failed = true;
        if (event.type == WEIR_EVENT_LOST)
            look_after_clients(target);
        if (event.type == WEIR_EVENT_REFUSED)
            remark_refused(target, &event);
        if (event.type == WEIR_EVENT_GONE && served != NULL)
            client_gone(target, served, event.error);
    }
    return taken;
}

/* The demands of the open sessions on the loop. */
struct mood {
    bool playing; /* one plays ping-pong: its next message comes soon */
    bool looking; /* one waits for what nobody tells us of: a word in memory, a release */
};

/* One pass over the sessions that need one. */
static unsigned visit_sessions(struct target *target, struct mood *mood_out) {
    unsigned work = 0;

    *mood_out = (struct mood){0};
    for (uint32_t i = 0, left = target->open_count; left > 0 && i < target->served_max; i++) {
        struct served *served = &target->served[i];
        if (served->state == SERVED_FREE)
            continue;
        left--;
        if (served->state == SERVED_LEFT)
            continue;
        if (served->state == SERVED_CLOSING) {
            mood_out->looking = true;
            try_close(target, served);
        } else if (served->open.kind == PROTO_KIND_PING_MEMORY) {
            int rc = work_watch_word(target, served);
            mood_out->playing = mood_out->looking = true;
            if (rc < 0)
                end_session(target, served, "a word for it cannot be sent", rc);
            work += rc > 0;
        } else if (inbox_is_of(served)) {
            int rc = inbox_take(target, served);
            mood_out->playing = mood_out->playing || served->open.kind >= PROTO_KIND_SEND_PING;
            if (rc < 0)
                end_session(target, served, "its message cannot be taken", rc);
            work += rc > 0;
        } else {
            mood_out->playing = mood_out->playing || served->open.kind == PROTO_KIND_PING;
        }
    }
    return work;
}

/* Sleeps short_ns in the engine. If that brought nothing, and no session has to be looked at, it
 * sleeps on the engine's descriptor for as long as the engine allows, so that an idle server
 * disturbs nobody. */
static void rest(struct target *target, uint64_t short_ns) {
    uint64_t timeout_ns;

    if (weir_engine_wait(target->engine, short_ns) == WEIR_EINPROGRESS && short_ns == SLEEP_NS &&
        weir_engine_arm(target->engine, &timeout_ns) == 0) {
        uint64_t metrics_ns = metrics_timeout(target->metrics);
        host_sleep_on(weir_engine_fd(target->engine), metrics_fd(target->metrics),
                      timeout_ns < metrics_ns ? timeout_ns : metrics_ns);
    }
}

/* Events are rare and cost a lock each time they are looked for: every 64th pass will do.
 * Collectors of metrics are rarer, and cost a system call. */
#define EVENTS_EVERY  64
#define METRICS_EVERY 4096

static void serve_loop(struct target *target) {
    struct idler idler = {0};
    uint64_t idle_since = 0;
    bool alone = sysconf(_SC_NPROCESSORS_ONLN) < 2; /* then spinning delays who we wait for */

    for (uint64_t pass = 0; !host_interrupted() && !target->device_failed; pass++) {
        struct mood mood;
        unsigned work = visit_sessions(target, &mood);
        uint64_t now;

        if (weir_engine_progress(target->engine) < 0)
            target->device_failed = true;
        work += take_messages(target) + take_completions(target);
        if (pass % EVENTS_EVERY == 0)
            work += take_events(target);
        if (pass % METRICS_EVERY == 0)
            metrics_run(target->metrics);
        if (work != 0) {
            idle_since = 0;
            continue;
        }
        host_idle(&idler);
        if (!alone && pass % 16 != 0)
            continue; /* the clock costs as much as a pass */
        now = host_now_ns();
        idle_since = idle_since == 0 ? now : idle_since;
        if (alone || now - idle_since > (mood.playing ? SPIN_PING_NS : SPIN_NS)) {
            rest(target, mood.looking ? SLEEP_WATCH_NS : SLEEP_NS);
            take_events(target);
            metrics_run(target->metrics);
        }
    }
}

/* Nobody could connect to a server whose address did not get out. metrics: NULL, or where they are
 * is a second line. */
static int print_address(const weir_engine *engine, const struct metrics *metrics) {
    char address[WEIR_ADDRESS_MAX];
    int rc = weir_engine_address(engine, address, sizeof(address));

    if (rc != 0)
        return complain("serve: %s", weir_strerror(rc));
    if (printf("%s\n", address) < 0 ||
        (metrics != NULL && printf("%s\n", metrics_url(metrics)) < 0) || fflush(stdout) != 0)
        return complain("serve: standard output cannot be written: %s", strerror(errno));
    return 0;
}

/* A server at all addresses does not know which of them its peers see. */
static void suggest_advertise(const struct options *options, const weir_engine *engine) {
    char address[WEIR_ADDRESS_MAX];

    if (options->advertise != NULL || options->listen == NULL ||
        (strncmp(options->listen, "0.0.0.0:", 8) != 0 &&
         strncmp(options->listen, "[::]:", 5) != 0) ||
        weir_engine_address(engine, address, sizeof(address)) != 0)
        return;
    fprintf(
        stderr,
        "weir: serve: listens at all addresses, and tells peers none: --advertise HOST names one, "
        "such as %.*s\n",
        (int)(strrchr(address, ':') - address), address);
}

static int open_engine(struct target *target) {
    const struct options *options = target->options;
    weir_engine_options engine = WEIR_ENGINE_OPTIONS_INIT;
    int rc;

    engine.device = options->device;
    engine.listen = options->listen;
    engine.advertise = options->advertise;
    engine.qp_count = (uint32_t)options->qps;
    engine.sq_depth = (uint32_t)options->depth;
    engine.flags = WEIR_ENGINE_SERIAL;
    if (getenv("WEIR_TRANSFERS_MAX") == NULL) /* what all clients together may leave unread */
        engine.transfers_max = answers_all(target->served_max) + PEERS * ANSWERS_MAX_ALONE;
    rc = weir_engine_open(&engine, &target->engine);
    return rc == 0 ? 0 : diagnose_open(options, &engine, rc);
}

static int open_target(struct target *target) {
    const struct options *options = target->options;

    if (options->stalls != NULL && stalls_check(options->stalls) != 0)
        return -1;
    target->served_max = (uint32_t)options->sessions;
    target->served = calloc(target->served_max, sizeof(*target->served));
    if (target->served == NULL)
        return complain("out of memory");
    for (uint32_t i = 0; i < target->served_max; i++)
        target->served[i].index = i;
    if (open_engine(target) != 0)
        return -1;
    if (options->metrics == NULL)
        return 0;
    target->metrics = metrics_open(options->metrics, target->engine);
    return target->metrics != NULL ? 0 : -1;
}

int target_serve(const struct options *options) {
    struct target target = {.options = options};
    int rc = open_target(&target);

    if (rc == 0)
        rc = print_address(target.engine, target.metrics);
    if (rc == 0) {
        suggest_advertise(options, target.engine);
        serve_loop(&target);
    }
    if (target.device_failed)
        rc = complain("serve: %s (%s)", weir_strerror(WEIR_EDEVICE), weir_error_name(WEIR_EDEVICE));
    metrics_close(target.metrics);
    if (target.engine != NULL)
        weir_engine_close(target.engine);
    for (uint32_t i = 0; target.served != NULL && i < target.served_max; i++) {
        if (target.served[i].map_bytes != 0)
            host_unmap(target.served[i].base, target.served[i].map_bytes);
        work_close(&target.served[i]);
    }
    free(target.served);
    return rc == 0 ? EXIT_OK : EXIT_FAILED;
}
