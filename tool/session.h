/* SPDX-License-Identifier: Apache-2.0 */
/* session.h: a bench's side of a session with its target: the engine, the peer, the target's
 * memory, the messages of proto.h and the watch over the target's life.
 *
 * One thread owns a session. Other threads may use its engine, peer, remote and memory, and call
 * session_take, session_patience and session_fail. */
#ifndef TOOL_SESSION_H
#define TOOL_SESSION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "options.h"
#include "proto.h"
#include "weir.h"

struct session {
    const struct options *options;
    weir_engine_options asked; /* of the engine */
    weir_engine *engine;
    weir_peer peer;
    weir_remote remote; /* the target's memory, while open */
    weir_memory memory; /* ours, while open */
    void *base;
    uint64_t bytes;
    struct proto_open open;
    bool map_owned;     /* base is our own mapping */
    int pid;            /* our own target; 0: none, or reaped */
    bool joined;        /* to a target of the process that started this one */
    bool killed;        /* by session_kill: its end is no failure */
    bool gone;          /* and the engine has told of its end */
    uint64_t looked_ns; /* when session_look last did its work */
    atomic_int ended;   /* why the target ended it; 0: it has not */
    char address[WEIR_ADDRESS_MAX];
};

/* Starts a target or names --peer, and opens an engine. All of these return 0, or -1 after
 * complaining. session_end may be called after a failure, and once more is harmless. */
int session_start(struct session *session, const struct options *options);
void session_end(struct session *session);

/* As session_start, with the target that another process of this bench has started. It is there, so
 * it is waited for, however many others it has to let in. */
int session_join(struct session *session, const struct options *options, const char *address);

/* The target allocates what open says; local_bytes are allocated here, with the kind of memory
 * that the options ask for and, with SESSION_EXPORT, made
 * known to the target. */
enum session_export { SESSION_KEEP, SESSION_EXPORT };
int session_open(struct session *session, const struct proto_open *open, uint64_t local_bytes,
                 enum session_export export);
int session_close(struct session *session);

/* Our own target is killed; until session_reopen its transfers end with statuses. */
void session_kill(struct session *session);
/* Starts another one at the same address. Nothing of it is known here yet. */
int session_restart(struct session *session);
/* Once all transfers to the killed one have ended: a session as session_open opened, with the other
 * one and new memory of it. Ours is kept. */
int session_reopen(struct session *session);

/* Reads all of the target's memory once, into the beginning of ours: what a device does at the
 * first touch (page faults, on shm) is then no part of the measurement. */
int session_touch(struct session *session);

/* Sends a message, with segments if there are any; waits for it to be delivered. */
int session_send(struct session *session, uint64_t tag, const void *payload, uint32_t length,
                 const weir_segment *segments, size_t segment_count);

/* Makes a memory of this engine known to the target, which answers EXPORTED. */
int session_send_export(struct session *session, weir_memory memory);

/* One notification of the target if there is one: 1 or 0. That the target ended the session is
 * none of them: it is kept for session_look and session_fail. */
int session_take(struct session *session, weir_notification *notification_out);

/* Progress, then one notification of the target if there is one: 1 or 0; -1: the target is
 * gone, or the user interrupted, and that was complained of. Cheap enough to spin on. */
int session_poll(struct session *session, weir_notification *notification_out);

/* Waits for a message of this type; any other is a failure. */
int session_await(struct session *session, enum proto_type type, weir_notification *out);

/* For a loop that waits for the target. moved: a number that changes with each step forward.
 * Returns -1, after complaining, when moved has not changed for SESSION_STUCK_S seconds of waiting.
 * A call that finds it standing still for longer than a target takes that runs sleeps a
 * millisecond, or until the engine has news. oldest: a transfer that is waited for; {0}: none.
 * Zeroed is ready; any thread, each with its own. */
/* More than an engine takes to give up a QP that stands still, and to replace it: the bounds are in
 * docs/design.md. */
#define SESSION_STUCK_S 60
struct patience {
    uint64_t waits;
    uint64_t moved;
    uint64_t since_ns;
    bool tired; /* nothing has moved for some time: each wait sleeps */
};
int session_patience(struct session *session, struct patience *patience, uint64_t moved,
                     weir_transfer oldest);

/* At most every millisecond: progress, events, the child's life, interrupts. */
int session_look(struct session *session);

/* The target's CPU time and counters. */
int session_mark(struct session *session, struct proto_marked *marked_out);

/* Of a session of messages: the target's inbox; and, once it has taken so many messages since the
 * session began, what came of them. _well: that is all that were sent, and any that came at a wrong
 * place is a failure. */
int session_inbox(struct session *session, struct proto_inbox *inbox_out);
int session_drain(struct session *session, uint64_t count, struct proto_drained *drained_out);
int session_drain_well(struct session *session, uint64_t sent, struct proto_drained *drained_out);

/* Complains about a failed transfer or call in one line; -1. */
int session_fail(struct session *session, const char *what, int error);

#endif
