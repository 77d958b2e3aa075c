/* SPDX-License-Identifier: Apache-2.0 */
/* session.c: see session.h. */
#include "session.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "child.h"
#include "diagnose.h"
#include "host.h"
#include "stalls.h"

#define SESSION_TIMEOUT_NS (30 * NS_PER_S) /* an answer that takes longer will not come */
/* A bench has nothing to gain from waiting for a target that went away. */
#define CONNECT_NS      (3 * NS_PER_S)
#define SESSION_LOOK_NS NS_PER_MS
#define JOIN_MAX        16
#define JOIN_QUEUE_MAX  1024
#define TOUCH_BYTES     (1u << 20)
/* A target that ends a session says why, and then releases what the session uses: the reason may
 * come later than what that does to a transfer. */
#define REASON_NS NS_PER_S
/* Within this the process that started a target and its senders hears of its death. */
#define GONE_NS (10 * NS_PER_S)
/* Polls before sleeping: some tens of microseconds, more than a message takes on one host. */
#define SESSION_SPINS 2000
/* Between two looks at anything but the engine, which wakes us. */
#define AWAIT_NS (10 * NS_PER_MS)

int session_take(struct session *session, weir_notification *notification_out) {
    while (weir_notification_take(session->engine, notification_out) == 0) {
        /* Anybody may write to a listening engine: a message of another is dropped. */
        if (notification_out->from.id != session->peer.id)
            continue;
        uint64_t error = proto_argument(notification_out->tag);
        if (proto_type(notification_out->tag) != PROTO_CLOSED || error == 0)
            return 1;
        atomic_store(&session->ended, -(int)(error & 0xffff));
    }
    return 0;
}

/* Why the target ended the session; 0: it did not say so. Other messages are lost. */
static int ended_why(struct session *session, bool wait) {
    uint64_t until = host_now_ns() + REASON_NS;
    weir_notification message;

    do {
        while (session_take(session, &message) > 0) {
        }
        if (!wait || atomic_load(&session->ended) != 0)
            break;
        weir_engine_wait(session->engine, NS_PER_MS);
    } while (host_now_ns() < until && !host_interrupted());
    return atomic_load(&session->ended);
}

static int complain_ended(const struct session *session, const char *what) {
    int error = atomic_load(&session->ended);

    return complain("%s: the target ended the session: %s (%s)", what, weir_strerror(error),
                    weir_error_name(error));
}

/* Whether our own target has died, and how. A process that dies has let go of its files, which is
 * how an engine hears of its end, before its parent can be told. */
static bool target_died(const struct session *session, int error, char how[64]) {
    uint64_t until = host_now_ns() + GONE_NS;

    while (session->pid != 0 && !child_gone(session->pid, how)) {
        if (error != WEIR_EPEER || host_now_ns() >= until || host_interrupted())
            return false;
        host_sleep_on(-1, -1, NS_PER_MS);
    }
    return session->pid != 0;
}

int session_fail(struct session *session, const char *what, int error) {
    char how[64], why[DIAGNOSIS_MAX];

    /* That our own target died says more than what its death did to a transfer. */
    if (target_died(session, error, how)) {
        session->pid = 0;
        return complain("%s: the target was %s", what, how);
    }
    /* Nor does a sender know why its target is gone. The process that started both does, ends all
     * of them, and says so. */
    if (session->joined && error == WEIR_EPEER)
        host_sleep_on(-1, -1, GONE_NS);
    if (host_interrupted())
        return complain("%s: interrupted", what);
    /* A target that ended the session has released its memory, and its device refuses; or closed
     * its inbox. */
    if (ended_why(session,
                  error == WEIR_EREMOTE || error == WEIR_EDEVICE || error == WEIR_ESTALE) != 0)
        return complain_ended(session, what);
    if (error == WEIR_EREFUSED) {
        diagnose_refusal(session->engine, session->peer, why);
        return complain("%s: the target refused: %s (%s)", what, why, weir_error_name(error));
    }
    if (session->options->peer != NULL &&
        (error == WEIR_ECONNECT || error == WEIR_EUNREACH || error == WEIR_EADDRESS)) {
        diagnose_dial(session->address, session->engine, session->peer, error, why);
        return complain("--peer %s: %s (%s)", session->address, why, weir_error_name(error));
    }
    return complain("%s: %s (%s)%s", what, weir_strerror(error), weir_error_name(error),
                    diagnose_cause(error, why));
}

static int target_cpu(void) {
    return host_cpu_count() > 1 ? host_cpu(1) : -1;
}

/* session->asked has the limits. */
static int open_engine(struct session *session, uint64_t connect_ns) {
    const struct options *options = session->options;
    weir_engine_options *asked = &session->asked;
    int rc;

    asked->device = options->device;
    asked->qp_count = (uint32_t)options->qps;
    asked->sq_depth = (uint32_t)options->depth;
    if (getenv("WEIR_CONNECT_TIMEOUT_MS") == NULL)
        asked->connect_timeout_ns = connect_ns;
    asked->flags = options->threads > 1 ? 0 : WEIR_ENGINE_SERIAL;
    rc = weir_engine_open(asked, &session->engine);
    return rc == 0 ? 0 : diagnose_open(options, asked, rc);
}

static int open_peer(struct session *session) {
    int rc = weir_peer_open(session->engine, session->address, &session->peer);

    return rc == 0 ? 0 : session_fail(session, "the target", rc);
}

int session_join(struct session *session, const struct options *options, const char *address) {
    *session =
        (struct session){.options = options, .asked = WEIR_ENGINE_OPTIONS_INIT, .joined = true};
    /* An engine among many of one host, which knows the target only. To open it with the limits of
     * a server would be most of its work until it writes. */
    session->asked.peers_max = session->asked.memories_max = session->asked.remotes_max = JOIN_MAX;
    session->asked.segments_max = session->asked.notifications_max = JOIN_QUEUE_MAX;
    if (open_engine(session, SESSION_TIMEOUT_NS) != 0)
        return -1;
    snprintf(session->address, sizeof(session->address), "%s", address);
    return open_peer(session);
}

int session_start(struct session *session, const struct options *options) {
    *session = (struct session){.options = options, .asked = WEIR_ENGINE_OPTIONS_INIT};
    if (options->peer != NULL && strlen(options->peer) >= sizeof(session->address))
        return complain("--peer: longer than an address can be (%s)",
                        weir_error_name(WEIR_EADDRESS));
    if ((options->stalls != NULL && stalls_check(options->stalls) != 0) ||
        open_engine(session, CONNECT_NS) != 0)
        return -1;
    if (options->peer == NULL) {
        int pid = child_target(options, CHILD_ANYWHERE, target_cpu(), session->address,
                               sizeof(session->address));
        if (pid < 0)
            return -1;
        session->pid = pid;
    } else {
        memcpy(session->address, options->peer, strlen(options->peer) + 1);
    }
    return open_peer(session);
}

void session_end(struct session *session) {
    if (session->pid != 0) /* first: a target whose client goes within a session remarks on it */
        child_end(session->pid);
    if (session->engine != NULL)
        weir_engine_close(session->engine);
    if (session->map_owned)
        host_unmap(session->base, session->bytes);
    *session = (struct session){.options = session->options};
}

/* Events of our peer; others are nobody's. */
static int take_events(struct session *session) {
    weir_event event;

    /* Bounded: an engine keeps 256 events. */
    for (int i = 0; i < 256 && weir_event_take(session->engine, &event) == 0; i++) {
        stalls_remark(session->engine, &event);
        if (session->options->stalls != NULL)
            stalls_trace(session->engine, &event, session->options->stalls);
        if (event.type == WEIR_EVENT_DEVICE_FAILED)
            return complain("our own device failed (%s)", weir_error_name(event.error));
        if (event.type != WEIR_EVENT_GONE || event.peer.id != session->peer.id)
            continue;
        if (!session->killed)
            return session_fail(session, "the target is gone", event.error);
        session->gone = true;
    }
    return 0;
}

int session_look(struct session *session) {
    uint64_t now = host_now_ns();
    char how[64];

    if (now - session->looked_ns < SESSION_LOOK_NS)
        return 0;
    session->looked_ns = now;
    if (weir_engine_progress(session->engine) < 0)
        return complain("the engine failed");
    if (host_interrupted())
        return complain("interrupted");
    if (session->pid != 0 && child_gone(session->pid, how)) {
        session->pid = 0;
        return complain("the target was %s", how);
    }
    if (atomic_load(&session->ended) != 0)
        return complain_ended(session, "no answer");
    return take_events(session);
}

/* A look at the clock costs as much as a pass. */
#define PATIENCE_EVERY 1024
/* A target that answers later than this is stopped, or has no processor. A processor that spins
 * for it does not bring its answer sooner. */
#define TIRED_NS (50 * NS_PER_MS)

int session_patience(struct session *session, struct patience *patience, uint64_t moved,
                     weir_transfer oldest) {
    weir_engine_info info = WEIR_ENGINE_INFO_INIT;
    char still[48] = "", text[WEIR_STALL_TEXT_MAX];
    uint64_t now;
    int waits = 0;

    if (++patience->waits % PATIENCE_EVERY != 0 && !patience->tired)
        return 0;
    now = host_now_ns();
    if (patience->since_ns == 0 || patience->moved != moved) {
        patience->moved = moved;
        patience->since_ns = now;
        patience->tired = false;
        return 0;
    }
    patience->tired = now - patience->since_ns >= TIRED_NS;
    if (patience->tired)
        weir_engine_wait(session->engine, NS_PER_MS);
    /* In a ping-pong by memory nothing else takes messages. */
    if (patience->tired && session->open.kind == PROTO_KIND_PING_MEMORY &&
        ended_why(session, false) != 0)
        return complain_ended(session, "no answer");
    if (now - patience->since_ns < SESSION_STUCK_S * NS_PER_S)
        return 0;
    if (oldest.id != 0)
        waits = weir_transfer_waiting_for(session->engine, oldest);
    if (weir_engine_query(session->engine, &info) == 0 && info.stalls > 0)
        snprintf(still, sizeof(still), ", %" PRIu64 " QPs stood still", info.stalls);
    return complain("nothing has moved for %d s%s%s%s: %s", SESSION_STUCK_S,
                    waits > 0 ? ", the oldest transfer waits for " : "",
                    waits > 0 ? weir_waiting_name(waits) : "", still,
                    stalls_sentence(session->engine, session->peer, text, sizeof(text)));
}

int session_poll(struct session *session, weir_notification *notification_out) {
    weir_engine_progress(session->engine);
    return session_take(session, notification_out) > 0 ? 1 : session_look(session);
}

int session_await(struct session *session, enum proto_type type, weir_notification *out) {
    uint64_t until = host_now_ns() + SESSION_TIMEOUT_NS;
    unsigned spins = 0;

    for (;;) {
        int got = session_poll(session, out);
        if (got < 0)
            return -1;
        if (got > 0 && proto_type(out->tag) == type)
            return 0;
        if (got > 0 && session->killed)
            continue; /* said by the one that was killed */
        if (got > 0)
            return complain("the target answered message %d instead of %d",
                            (int)proto_type(out->tag), (int)type);
        if (++spins < SESSION_SPINS && host_cpu_count() > 1)
            continue;
        weir_engine_wait(session->engine, AWAIT_NS);
        if (host_now_ns() >= until)
            return session_fail(session, "the target does not answer", WEIR_ETIMEDOUT);
    }
}

int session_send(struct session *session, uint64_t tag, const void *payload, uint32_t length,
                 const weir_segment *segments, size_t segment_count) {
    weir_transfer_options options = WEIR_TRANSFER_OPTIONS_INIT;
    weir_transfer transfer;
    uint64_t until = host_now_ns() + SESSION_TIMEOUT_NS;
    int rc;

    options.flags = WEIR_TRANSFER_NOTIFY;
    options.notify_tag = tag;
    options.notify_payload = payload;
    options.notify_length = length;
    options.timeout_ns = SESSION_TIMEOUT_NS;
    do {
        rc = weir_write(session->engine, session->peer, segments, segment_count, &options,
                        &transfer);
        if (rc == WEIR_EAGAIN && session_look(session) != 0)
            return -1;
    } while (rc == WEIR_EAGAIN && host_now_ns() < until);
    if (rc != 0)
        return session_fail(session, "message to the target", rc);
    if (transfer.id == 0)
        return 0;
    while ((rc = weir_transfer_wait(session->engine, transfer, 10 * NS_PER_MS)) ==
           WEIR_EINPROGRESS) {
        /* The transfer has a deadline of its own, which bounds this loop. */
        if (session_look(session) != 0)
            return -1;
    }
    weir_transfer_release(session->engine, transfer);
    return rc == 0 ? 0 : session_fail(session, "message to the target", rc);
}

/* Limits that it met are the target's, of which diagnose_cause knows nothing. */
static int target_refused(const char *what, int error) {
    char why[DIAGNOSIS_MAX] = "";

    return complain("the target refused %s: %s (%s)%s", what, weir_strerror(error),
                    weir_error_name(error),
                    error == WEIR_EDENIED   ? diagnose_cause(error, why)
                    : error == WEIR_ETOOBIG ? "; its --memory-max allows less, say"
                    : error == WEIR_EAGAIN  ? "; it serves as many as it may (--sessions), say"
                                            : "");
}

/* Waits for an answer whose argument is a negated error code. */
static int await_status(struct session *session, enum proto_type type, const char *what,
                        weir_notification *out) {
    if (session_await(session, type, out) != 0)
        return -1;
    if (proto_argument(out->tag) != 0)
        return target_refused(what, -(int)(proto_argument(out->tag) & 0xffff));
    return 0;
}

static int allocate_local(struct session *session, uint64_t bytes) {
    char why[DIAGNOSIS_MAX];
    int rc;

    session->bytes = bytes;
    if (session->options->memory == MEMORY_SHARED) {
        rc = weir_memory_allocate(session->engine, bytes, WEIR_ACCESS_ALL, &session->memory,
                                  &session->base);
        if (rc == 0)
            memset(session->base, 0, bytes); /* page faults now, not in the measurement */
    } else {
        session->base = host_map(bytes);
        if (session->base == NULL)
            return complain("no memory for %" PRIu64 " bytes", bytes);
        session->map_owned = true;
        rc = weir_memory_register(session->engine, session->base, bytes, WEIR_ACCESS_ALL,
                                  &session->memory);
    }
    return rc == 0 ? 0
                   : complain("memory of %" PRIu64 " bytes: %s (%s)%s", bytes, weir_strerror(rc),
                              weir_error_name(rc), diagnose_cause(rc, why));
}

int session_send_export(struct session *session, weir_memory memory) {
    uint8_t descriptor[WEIR_DESCRIPTOR_MAX];
    size_t length = sizeof(descriptor);
    int rc = weir_memory_export(session->engine, memory, descriptor, &length);

    if (rc != 0)
        return complain("descriptor: %s", weir_strerror(rc));
    return session_send(session, proto_tag(PROTO_EXPORT, 0), descriptor, (uint32_t)length, NULL, 0);
}

/* A target that many clients ask at once may take longer to hand its memory over than one call
 * waits for it. */
static int import_remote(struct session *session, const weir_notification *opened) {
    uint64_t until = host_now_ns() + SESSION_TIMEOUT_NS;
    int rc;

    while ((rc = weir_memory_import(session->engine, session->peer, opened->payload, opened->length,
                                    &session->remote)) == WEIR_EAGAIN &&
           host_now_ns() < until) {
        if (session_look(session) != 0)
            return -1;
    }
    return rc == 0 ? 0 : session_fail(session, "the target's memory", rc);
}

/* Has the target allocate its memory. */
static int open_remote(struct session *session) {
    weir_notification answer;

    if (session_send(session, proto_tag(PROTO_OPEN, 0), &session->open, sizeof(session->open), NULL,
                     0) != 0)
        return -1;
    if (await_status(session, PROTO_OPENED, "the session", &answer) != 0)
        return -1;
    return import_remote(session, &answer);
}

int session_open(struct session *session, const struct proto_open *open, uint64_t local_bytes,
                 enum session_export export) {
    weir_notification answer;

    session->open = *open;
    session->open.magic = PROTO_MAGIC;
    session->open.memory = (uint32_t)session->options->memory;
    if (allocate_local(session, local_bytes) != 0 || open_remote(session) != 0)
        return -1;
    if (export == SESSION_KEEP)
        return 0;
    if (session_send_export(session, session->memory) != 0)
        return -1;
    return await_status(session, PROTO_EXPORTED, "our memory", &answer);
}

void session_kill(struct session *session) {
    session->killed = true;
    session->gone = false;
    child_kill(session->pid);
    session->pid = 0;
}

int session_restart(struct session *session) {
    int pid = child_target(session->options, session->address, target_cpu(), session->address,
                           sizeof(session->address));

    session->pid = pid < 0 ? 0 : pid;
    return pid < 0 ? -1 : 0;
}

/* A message that is sent before the engine has told of the end would end with it. */
static int await_successor(struct session *session) {
    uint64_t until = host_now_ns() + SESSION_TIMEOUT_NS;
    int rc = WEIR_ENOTREADY;

    while (!session->gone ||
           (rc = weir_peer_connect(session->engine, session->peer)) == WEIR_ENOTREADY) {
        if (session_look(session) != 0)
            return -1;
        if (host_now_ns() >= until)
            return session_fail(session, "the target that was started again", WEIR_ETIMEDOUT);
        weir_engine_wait(session->engine, NS_PER_MS);
    }
    return rc == 0 ? 0 : session_fail(session, "the target that was started again", rc);
}

int session_reopen(struct session *session) {
    int rc = weir_remote_release(session->engine, session->remote);

    if (rc != 0)
        return complain("release: %s", weir_strerror(rc));
    /* All that is told of the end is taken as that. */
    if (await_successor(session) != 0 || open_remote(session) != 0 || take_events(session) != 0)
        return -1;
    session->killed = false;
    return 0;
}

int session_touch(struct session *session) {
    uint64_t length, piece = session->bytes < TOUCH_BYTES ? session->bytes : TOUCH_BYTES;
    int rc = weir_remote_query(session->engine, session->remote, &length, NULL);

    for (uint64_t at = 0; rc == 0 && at < length; at += piece) {
        weir_segment segment = {.local = session->memory,
                                .remote = session->remote,
                                .remote_offset = at,
                                .length = length - at < piece ? length - at : piece};
        weir_transfer transfer;
        rc = weir_read(session->engine, session->peer, &segment, 1, NULL, &transfer);
        if (rc != 0)
            break;
        rc = weir_transfer_wait(session->engine, transfer, SESSION_TIMEOUT_NS);
        weir_transfer_release(session->engine, transfer);
        if (rc == 0 && session_look(session) != 0)
            return -1;
    }
    return rc == 0 ? 0 : session_fail(session, "reading the target's memory", rc);
}

/* A release waits for peers that are inside an access, or that cannot say yet that they are not:
 * weir_memory_release(3) bounds that. */
/* As weir_memory_release, again until it is not EINPROGRESS. */
static int session_release(struct session *session, weir_memory memory) {
    int rc;

    do
        rc = weir_memory_release(session->engine, memory);
    while (rc == WEIR_EINPROGRESS);
    return rc;
}

int session_close(struct session *session) {
    weir_notification answer;
    int rc;

    if (session_send(session, proto_tag(PROTO_CLOSE, 0), NULL, 0, NULL, 0) != 0 ||
        session_await(session, PROTO_CLOSED, &answer) != 0)
        return -1;
    rc = weir_remote_release(session->engine, session->remote);
    if (rc == 0)
        rc = session_release(session, session->memory);
    if (rc != 0)
        return complain("release: %s", weir_strerror(rc));
    if (session->map_owned)
        host_unmap(session->base, session->bytes);
    session->map_owned = false;
    session->base = NULL;
    return 0;
}

/* Asks for something, whose answer has so many bytes. */
static int ask(struct session *session, enum proto_type asked, const void *payload, uint32_t length,
               enum proto_type answered, void *out, size_t size) {
    weir_notification answer;

    if (session_send(session, proto_tag(asked, 0), payload, length, NULL, 0) != 0 ||
        session_await(session, answered, &answer) != 0)
        return -1;
    if (answer.length != size)
        return complain("the target's answer has a wrong length");
    memcpy(out, answer.payload, size);
    return 0;
}

int session_mark(struct session *session, struct proto_marked *marked_out) {
    return ask(session, PROTO_MARK, NULL, 0, PROTO_MARKED, marked_out, sizeof(*marked_out));
}

int session_inbox(struct session *session, struct proto_inbox *inbox_out) {
    return ask(session, PROTO_INBOX, NULL, 0, PROTO_NUMBER, inbox_out, sizeof(*inbox_out));
}

int session_drain(struct session *session, uint64_t count, struct proto_drained *drained_out) {
    struct proto_count until = {.count = count};

    return ask(session, PROTO_DRAIN, &until, sizeof(until), PROTO_DRAINED, drained_out,
               sizeof(*drained_out));
}

int session_drain_well(struct session *session, uint64_t sent, struct proto_drained *drained_out) {
    if (session_drain(session, sent, drained_out) != 0)
        return -1;
    return drained_out->misplaced == 0 && drained_out->taken == sent
               ? 0
               : complain("%" PRIu64 " of %" PRIu64 " messages came twice, not in their order, or "
                          "with another length",
                          drained_out->misplaced, drained_out->taken);
}
