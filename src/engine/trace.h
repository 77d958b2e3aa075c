/* SPDX-License-Identifier: Apache-2.0 */
/* trace.h: changes of state are recorded, and are probes for tracers (USDT).
 *
 * Each change is a kind of TRACE_KINDS, recorded where it happens: handshakes, breaks, drains,
 * stalls, credits that ran out; never single transfers. The last ones are in the engine's recorder
 * (recorder.h), always. Where sys/sdt.h was there at the build each is a probe "weir:KIND" of
 * three arguments: handle, a, b. Without a tracer that is one instruction that does nothing. */
#ifndef WEIR_ENGINE_TRACE_H
#define WEIR_ENGINE_TRACE_H

#include "state.h"

#ifdef WEIR_USDT
#include <sys/sdt.h>
#define TRACE_PROBE(kind, handle, a, b) DTRACE_PROBE3(weir, kind, handle, a, b)
#else
#define TRACE_PROBE(kind, handle, a, b) ((void)0)
#endif

/* X(kind, what is said of it, what a is, what b is). A name that begins with '@' says how the
 * number is read: @event a weir_event_type, @word the type of a control message, @ns a time, @cause
 * a weir_stall_cause where a is STALLED. NULL: it has none. */
#define TRACE_KINDS(X)                                                                             \
    X(open, "the engine opens", NULL, NULL)                                                        \
    X(close, "the engine closes", NULL, NULL)                                                      \
    X(dial, "dials", "connection", NULL)                                                           \
    X(connected, "its address takes the connection", "connection", NULL)                           \
    X(conn_lost, "a connection ends", "connection", NULL)                                          \
    X(said, "is sent", "@word", "epoch")                                                           \
    X(heard, "sends", "@word", "epoch")                                                            \
    X(qps_made, "QPs are made", "epoch", "QPs")                                                    \
    X(qp_connected, "a QP is connected", "epoch", "of")                                            \
    X(session_up, "a session is up", "epoch", "epoch there")                                       \
    X(session_broken, "a session breaks", "epoch", NULL)                                           \
    X(session_over, "a session ends, and drains", "epoch", NULL)                                   \
    X(qp_gone, "a QP is destroyed", "QP", "forced")                                                \
    X(session_drained, "a session is drained", "epoch", NULL)                                      \
    X(settled, "says what arrived", "epoch", NULL)                                                 \
    X(gone, "the peer is given up", NULL, NULL)                                                    \
    X(event, "the application is told", "@event", "@cause")                                        \
    X(no_credits, "notifications begin to wait for credits", "waiting", NULL)                      \
    X(no_room, "messages begin to wait for room", "inbox", NULL)                                   \
    X(no_inflight, "work begins to wait for bytes in flight", "bytes in flight", NULL)             \
    X(qp_refuses, "a QP refuses work that it has room for", "QP", NULL)                            \
    X(qp_still, "a QP stands still, and is given up", "QP", NULL)                                  \
    X(away, "nobody made progress", "@ns", NULL)

enum trace_kind {
#define TRACE_X(kind, what, a, b) TRACE_##kind,
    TRACE_KINDS(TRACE_X)
#undef TRACE_X
        TRACE_KIND_COUNT
};

void trace_add(weir_engine *engine, enum trace_kind kind, uint64_t handle, int error, uint64_t a,
               uint64_t b);
/* Of a peer, whose handle has its address as a name from then on. */
void trace_peer_add(weir_engine *engine, enum trace_kind kind, const struct peer *peer, int error,
                    uint64_t a, uint64_t b);
/* Something that may happen often has happened to the peer: whether it begins, as it had not for a
 * second. Flow control that goes on all the time is no news, and would push out all else. */
bool trace_often(const weir_engine *engine, struct peer *peer, enum trace_kind kind);
/* Whether a word between engines is another than the last one that way, and not one of a crowd. A
 * word that is repeated until it is answered is no news. */
bool trace_is_new(const weir_engine *engine, struct peer *peer, enum trace_kind kind, uint64_t type,
                  uint64_t epoch);
/* Whether what somebody says, or is told, who is no peer is recorded now. Anybody may come. */
bool trace_visitors(weir_engine *engine);

#define TRACE(engine, kind, handle, error, a, b)                                                   \
    do {                                                                                           \
        TRACE_PROBE(kind, handle, a, b);                                                           \
        trace_add(engine, TRACE_##kind, handle, error, a, b);                                      \
    } while (0)
#define TRACE_PEER(engine, kind, peer, error, a, b)                                                \
    do {                                                                                           \
        TRACE_PROBE(kind, (peer)->handle, a, b);                                                   \
        trace_peer_add(engine, TRACE_##kind, peer, error, a, b);                                   \
    } while (0)
#define TRACE_OFTEN(engine, kind, peer, error, a, b)                                               \
    do {                                                                                           \
        TRACE_PROBE(kind, (peer)->handle, a, b);                                                   \
        if (trace_often(engine, peer, TRACE_##kind))                                               \
            trace_peer_add(engine, TRACE_##kind, peer, error, a, b);                               \
    } while (0)

#define TRACE_WORD(engine, kind, peer, error, a, b)                                                \
    do {                                                                                           \
        TRACE_PROBE(kind, (peer)->handle, a, b);                                                   \
        if (trace_is_new(engine, peer, TRACE_##kind, a, b))                                        \
            trace_peer_add(engine, TRACE_##kind, peer, error, a, b);                               \
    } while (0)
#define TRACE_VISITOR(engine, kind, error, a, b)                                                   \
    do {                                                                                           \
        TRACE_PROBE(kind, 0, a, b);                                                                \
        if (trace_visitors(engine))                                                                \
            trace_add(engine, TRACE_##kind, 0, error, a, b);                                       \
    } while (0)

#endif
