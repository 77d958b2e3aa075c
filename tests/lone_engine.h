/* SPDX-License-Identifier: Apache-2.0 */
/* lone_engine.h: one engine whose whole world is played by the test: its clock, its
 * control channel, its device. Others' messages are put in word by word, and the engine's are
 * looked at. Nothing runs by itself: no time passes but by lone_pass.
 *
 * A connection is a number that the test gives out (lone_visit) or the engine dials
 * (lone_dialled). One that is cut silently refuses sends and tells nobody.
 *
 * The device posts everything and completes nothing, but what flushes or what the test asks
 * for: all that is posted fails (fail_all), or is done unless one WR poisons all (poison), or
 * each QP executes what it has, in order, when it is polled (executes). Receives go to a
 * shared queue, or, after lone_open_own, to each QP's own; a QP in the error state flushes at
 * once. The device may refuse receives (recv_error). Peers are told that the host has three others:
 * "other", of fabric {7}, and untried ones, "shm" and "perhaps".
 */
#ifndef LONE_ENGINE_H
#define LONE_ENGINE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine.h"
#include "state.h"
#include "wire.h"

#define MS        UINT64_C(1000000)
#define SECOND    (1000 * MS)

#define LONE_PASS UINT64_C(0x9a55) /* what the others give the engine */

enum {
    LONE_CONNS = 512,
    LONE_SAID = 4096,
    LONE_EVENTS = 4096,
    LONE_QPS = 512,
    LONE_CQES = 4096,
    LONE_RECVS = 65536
};

struct lone_conn {
    bool open;
    bool hung;                   /* the engine hung up */
    bool kept;                   /* it is a peer's */
    char from[WEIR_ADDRESS_MAX]; /* the other side's host */
    char address[WEIR_ADDRESS_MAX];
};

struct lone_said { /* by the engine */
    uint64_t conn;
    struct wire_message message;
};

struct lone_event {
    uint64_t conn;
    uint32_t type;
    int error;
    uint32_t length;
    uint8_t bytes[WEIR_CONTROL_MESSAGE_MAX];
};

struct lone {
    void *recorder; /* the memory of the engine's */
    size_t recorder_bytes;
    weir_engine *engine;
    uint64_t now_ns;
    uint64_t room_bytes;  /* that the machine has left; lone_open: not known */
    uint32_t allocations; /* that the device was asked for */
    uint8_t entropy;
    uint64_t tick_ns; /* that pass with each look at the clock */
    uint64_t nap_ns;  /* what a sleep lasts at most; 0: MS */
    uint32_t serves;  /* so many of the next questions has_served answers by true, */
    uint32_t asked;   /* of so many that there were */
    uint32_t polls;   /* of the device */
    uint32_t arms;
    bool batch; /* what is said is heard at the next lone_run or lone_pass, together */

    struct lone_conn conns[LONE_CONNS];
    uint64_t conn_count;
    bool host_silent; /* what the channel knows of all hosts */
    uint32_t retransmits;
    uint64_t dials;
    int dial_error; /* what the channel says of the next dials, if not 0 */
    struct lone_said said[LONE_SAID];
    uint32_t said_count;
    struct lone_event events[LONE_EVENTS];
    uint32_t event_first, event_last;

    bool stopped; /* the device says that peers' processes are */
    bool link_is_down;
    bool counts; /* it counts: */
    struct weir_device_counts counted;
    struct weir_device_tally tally; /* what it met */
    bool no_destroy;                /* the device refuses to destroy QPs */
    int poll_error;                 /* what its poll says, if not 0 */
    int memories;                   /* registered now, the engine's own two among them */
    bool fails;                     /* an event says that it failed, once */
    int let_go_error;
    uint32_t let_go; /* how often it was asked to */
    uint32_t qp_count;
    int import_error;                       /* what the device says of the next imports, */
    uint32_t imports;                       /* of which there were so many */
    int release_error;                      /* what the device says of the next releases */
    void (*on_register)(struct lone *lone); /* while memory is registered or released */
    /* Each WR when it is posted, on that QP. */
    void (*on_post)(struct lone *lone, uint32_t qp, const struct weir_wr *wr);
    /* What the device says to a post of so many WRs, and how many of them it takes. */
    int (*refuse)(struct lone *lone, uint32_t *count_io);
    uint32_t fail_all;   /* enum weir_cqe_status: how what is posted ends, if not 0 */
    uint32_t poison;     /* what is posted is done when it is polled, but all of it flushes if
                          * one of it has so many bytes; 0: see above */
    bool executes;       /* QPs execute what is posted; the next five are about that: */
    uint32_t bad_bytes;  /* a WR of so many bytes fails its QP, ... */
    uint32_t bad_status; /* ... like this: enum weir_cqe_status */
    uint32_t slow_bytes; /* one of so many is under way for as long as this is set, and so is what
                          * is behind it on its QP */
    bool slow_lands;     /* and has come through all the same when its QP is put to an end */
    bool news_first;     /* that a QP failed is told by an event, before it completes anything */
    uint32_t their_qps;  /* that the others have in a session; 0: one */
    bool no_qps;         /* the device makes no more QPs, */
    int qps_error;       /* and says so like this; 0: EAGAIN */
    uint64_t connect_ns; /* connects take so long; 0: they are done at once */
    int connect_error;   /* and end like this */
    uint64_t connecting_until[LONE_QPS];
    bool made[LONE_QPS], failed[LONE_QPS];
    enum {
        NEWS_NONE,
        NEWS_DUE,
        NEWS_DEATH,
        NEWS_TOLD
    } news[LONE_QPS]; /* that it failed, with news_first, or that its peer died */
    uint32_t tags[LONE_QPS];
    struct {
        uint64_t wr_id;
        uint32_t qp;
        uint32_t length;
        bool signaled;
    } posted[LONE_CQES]; /* with poison or executes: not polled yet */
    uint32_t posted_count;
    bool poisoned;
    struct weir_cqe cqes[LONE_CQES];
    uint32_t cqe_first, cqe_last;
    bool own_queues; /* for receives */
    struct {
        uint64_t wr_id;
        uint8_t *buffer; /* NULL: it is gone */
        uint32_t qp;
    } recvs[LONE_RECVS];
    uint32_t recv_first, recv_last;
    int recv_error;         /* what post_recv says, if not 0, ... */
    uint32_t recv_error_of; /* ... of every so many; 0 and 1: of all */
    uint32_t recv_asked;    /* how often it was asked */
    bool piles_up;          /* what arrives waits for the engine's next step */

    uint32_t sleeps, wakes; /* how often the engine slept, and wanted to wake who sleeps */
    bool woken;             /* a sleep lasts until then, or its time */
    void (*on_sleep)(struct lone *lone); /* what others do meanwhile */

    uint32_t closes; /* on_close was called, and said: */
    bool device_closed;
    weir_engine *left;        /* or this is */
    _Atomic bool device_gone; /* closed by the thread of left.c */
};

/* The limits of a small engine. */
weir_engine_options lone_limits(void);
/* There is one at a time. options may be NULL: those, with a connect time-out of a second. Nobody
 * watches for stalls unless the options ask for it. */
struct lone *lone_open(const weir_engine_options *options);
struct lone *lone_open_own(const weir_engine_options *options);
void lone_close(struct lone *lone);
/* Of one whose engine is closed, and leaves nothing. */
void lone_free(struct lone *lone);

/* Steps the engine until it has nothing more to do now. */
void lone_run(struct lone *lone);
/* Time passes, in steps that are short against all time-outs. */
void lone_pass(struct lone *lone, uint64_t ns);

/* Memory of instance n's, as seen by this peer; its rkey is n. What weir_memory_import says. */
int lone_import(struct lone *lone, weir_peer peer, uint32_t n, uint64_t length,
                weir_remote *remote_out);
/* `length` bytes of the test's own, and as many of instance n's, who is this peer. */
void lone_memories(struct lone *lone, weir_peer peer, uint32_t n, void *bytes, uint64_t length,
                   weir_memory *local_out, weir_remote *remote_out);

/* Instance number n of the others. */
void lone_instance(uint32_t n, uint8_t *out);
/* Somebody dials the engine: the connection's number at the engine. */
uint64_t lone_visit(struct lone *lone);
/* The open connection that the engine dialled to this address last, which now is
 * connected; 0: none. */
uint64_t lone_dialled(struct lone *lone, const char *address);
/* It breaks, and the engine hears of it; or only its sends fail. */
void lone_cut(struct lone *lone, uint64_t conn, int error);
void lone_cut_silently(struct lone *lone, uint64_t conn);

/* Instance n says something on the connection. */
void lone_say(struct lone *lone, uint64_t conn, uint32_t n, struct wire_message *message);
void lone_say_as(struct lone *lone, uint64_t conn, const uint8_t *instance,
                 struct wire_message *message);
/* Somebody says what no encoder writes. */
void lone_say_bytes(struct lone *lone, uint64_t conn, const uint8_t *bytes, uint32_t length);
/* The QP set that an instance says in HELLO. */
struct wire_qp_set lone_qps(void);
void lone_say_who(struct lone *lone, uint64_t conn, uint32_t n, const char *address);
void lone_say_iam(struct lone *lone, uint64_t conn, uint32_t n, const char *address);
/* Instance n, which is known, dials anew: WHO, and IAM with the pass that it was given. */
void lone_return(struct lone *lone, uint64_t conn, uint32_t n, const char *address);
void lone_say_hello(struct lone *lone, uint64_t conn, uint32_t n, uint64_t epoch);
void lone_say_ready(struct lone *lone, uint64_t conn, uint32_t n, uint64_t epoch, uint64_t echo);
/* The last message of this type that the engine said there, which is forgotten then with
 * all others of that type on that connection; NULL: none. Good until the next call. */
const struct wire_message *lone_heard(struct lone *lone, uint64_t conn, enum wire_type type);
/* How many, without forgetting. */
uint32_t lone_count(const struct lone *lone, uint64_t conn, enum wire_type type);
/* Instance n connects on this connection, on which it said WHO or IAM: a session is up.
 * The engine's epoch of it. */
uint64_t lone_up(struct lone *lone, uint64_t conn, uint32_t n, uint64_t epoch);

/* The engine's record of instance n; NULL: none. */
struct peer *lone_peer(struct lone *lone, uint32_t n);
/* Instance n, of this address, asks and connects; its handle. conn_out: may be NULL. */
weir_peer lone_meet(struct lone *lone, uint32_t n, const char *address, uint64_t *conn_out);
/* The engine has said HELLO there: instance n answers it, and hears READY. The engine's
 * epoch. */
uint64_t lone_answer(struct lone *lone, uint64_t conn, uint32_t n, uint64_t epoch);

/* A notification arrives on the QP that the engine made last. */
void lone_notify(struct lone *lone, uint64_t number, uint64_t tag);
/* The same on the n-th QP that the engine made, with a base; or a write with immediate, of
 * which only the completion is ours. False: no receive is posted. */
bool lone_message(struct lone *lone, uint32_t qp, const struct wire_data *data);
bool lone_immediate(struct lone *lone, uint32_t qp);
/* A word about messages arrives there. */
bool lone_words(struct lone *lone, uint32_t qp, uint64_t number, const struct word *word);
/* Notes of several messages, the first under this number; the bytes are the test's. */
bool lone_notes(struct lone *lone, uint32_t qp, uint64_t number, uint64_t base, const void *bytes,
                uint32_t length);
/* By such a word, instance n tells of its inbox of this number: one chunk of 4096 bytes. */
bool lone_inbox(struct lone *lone, uint32_t qp, uint64_t number, uint32_t n, uint32_t inbox);
/* The QP that the engine made last takes a receive and says nothing of it. */
void lone_swallow(struct lone *lone);
/* The next event of the engine's, which has to be there. */
weir_event lone_event(struct lone *lone);
/* Takes events up to the first of this type; false: there was none. */
bool lone_told(struct lone *lone, weir_event_type type, weir_event *event_out);
/* Submits a notification with no data. */
weir_transfer lone_submit_notification(struct lone *lone, weir_peer peer);

#endif
