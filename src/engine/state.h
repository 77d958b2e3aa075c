/* SPDX-License-Identifier: Apache-2.0 */
/* state.h: everything an engine holds, and who may touch it.
 *
 * One thread at a time *has* the engine (own.h): it alone touches what is here,
 * except the members marked "any thread", and the tables that tables_lock guards. All memory is
 * taken at open, from the limits; nothing is allocated later. Things refer to each other by index.
 *
 *   peer ── endpoint machine ── up to EP_SESSIONS sessions ── QPs (ledger, credit, drain)
 *     └── transfers, each on one of the peer's lists: pending, posted, parked
 *
 * Structures only. The file is long because all that the engine knows is here. Each module has a
 * header of its own for what it does; docs/design.md has the floors that they stand on.
 */
#ifndef WEIR_ENGINE_STATE_H
#define WEIR_ENGINE_STATE_H

#include <stdatomic.h>

#include "asked.h"
#include "bits.h"
#include "credit.h"
#include "drain.h"
#include "endpoint.h"
#include "fork.h"
#include "groups.h"
#include "handle.h"
#include "inbox.h"
#include "ledger.h"
#include "loans.h"
#include "outbox.h"
#include "plan.h"
#include "pool.h"
#include "ports.h"
#include "published.h"
#include "queue.h"
#include "receives.h"
#include "recorder.h"
#include "region.h"
#include "standing.h"
#include "timer.h"
#include "window.h"
#include "wire_data.h"
#include "words.h"

#define NONE UINT32_MAX

enum {
    MESSAGE_BYTES = WIRE_DATA_SIZE + WEIR_NOTIFY_MAX, /* one SEND */
    SENDS_BESIDE = 2,     /* buffers behind those of the QPs: scratch, zeros */
    CHAIN_MAX = 512,      /* WRs with one doorbell, whatever the depth */
    ASYNC_BATCH = 16,     /* async events taken at once */
    POLL_BATCH = 32,      /* CQEs taken from the device at once */
    SERVICE_BUDGET = 16,  /* chains that one peer posts before the next has its turn */
    SUBMIT_BYTES = 65536, /* of others that a submit copies: longer transfers wait for a step */
    INFLIGHT_BUDGET = 64, /* chains of those that wait for bytes in flight, a step */
    VISITORS = 64,        /* at least: as many as peers, rounded up to a power of two */
    RECEIVES_MAX = WINDOW_SIZE / 2, /* notifications one peer may have in flight */
    FAST_SEGMENTS = 4096,           /* most segments of a transfer done inside its submit */
    SPARE_BLOCKS = FAST_SEGMENTS / PLAN_BLOCK_PIECES, /* for those, but for the first */
    CONTROL_BUDGET = 64,                              /* control events a step */
    SERVE_ROUNDS = 8,  /* steps for the submits of others before one of them takes over */
    SLOW_EVERY = 64,   /* steps between looks at everything: look.c */
    BREAKS_SHARED = 4, /* broken sessions after which a transfer goes by itself */
    LOST_SHARED = 64, /* likewise, sessions that others' refusals broke under the same step of it */
    BREAKS_MAX = 16,  /* sessions that one transfer may break before it fails */
    REPLAYS_MAX = 64, /* sessions that may break under a transfer after others' work came through */
    REPLAY_WEIGHT = 64, /* of these, so many that others' refusals broke count as one */
    EVENTS_KEPT = 256,
    LINE_BYTES = 64,       /* of a cache */
    RETRY_NS = 100 * 1000, /* first pause after a device refused WRs that had slots */
    RETRY_DOUBLINGS = 5,   /* 3.2 ms at most */
    RECV_BUFFER_BITS = 13  /* of a receive's sequence: {life, buffer} */
};
#define RECV_LIFE_MASK (((uint64_t)1 << (ROUTE_SEQ_BITS - RECV_BUFFER_BITS)) - 1)

/* A thread that has served others for long is relieved by the next that hands over: own.h. */
enum { TRACE_OFTEN_KINDS = 4 };
enum relief { RELIEF_NONE, RELIEF_WANTED, RELIEF_COMES };

/* Where a transfer is. A TR_TERMINAL one lives on only for its handle. */
enum transfer_state {
    TR_FREE,
    TR_SUBMITTED, /* on the submit queue */
    TR_PENDING,   /* something of it is still to be posted */
    TR_POSTED,    /* all posted (or no more to be posted: result is set); completions due */
    TR_PARKED,    /* its session broke with WRs posted: drain, then settle */
    TR_TERMINAL
};

/* The purpose of a transfer. All but TRANSFER_PLAIN end with a SEND of another kind than a
 * notification's, and the last two are the engine's own: nobody waits for them. */
enum transfer_kind {
    TRANSFER_PLAIN,
    TRANSFER_MESSAGE, /* into room of a peer's inbox */
    TRANSFER_SKIP,    /* its room, after a message ended early */
    TRANSFER_WORDS    /* what a peer is to be told about messages: talk.c */
};

/* LIST_SHELF: the engine's own ones, while there is no session. LIST_CREDITS + i: the data is
 * posted; the SEND behind it waits for a credit of QP i of the live session. LIST_WORDS + i
 * likewise, for one of the words' class; the data of short messages may wait, too (share.c).
 * Transfers that have a number come first. */
enum {
    LIST_PENDING,
    LIST_POSTED,
    LIST_PARKED,
    LIST_SHELF,
    LIST_CREDITS,
    LIST_WORDS = LIST_CREDITS + WEIR_QPS_MAX,
    LISTS = LIST_WORDS + WEIR_QPS_MAX,
    LIST_ROOM = LISTS /* its stream's: a message waits for room */
};

struct transfer {
    _Atomic uint64_t id;      /* any thread; changes at release */
    _Atomic int32_t status;   /* any thread; WEIR_EINPROGRESS until terminal */
    _Atomic uint32_t refs;    /* any thread; handle + engine */
    _Atomic uint32_t waiting; /* any thread: enum weir_waiting_for; SLOTS: peer_waiting_for */
    _Atomic bool cancel;      /* any thread asks; the owner acts */

    uint8_t state; /* enum transfer_state */
    uint8_t list;
    uint8_t opcode;
    uint8_t kind;                      /* enum transfer_kind */
    uint8_t breaks;                    /* sessions that it may have broken, up to BREAKS_MAX */
    uint16_t replays;                  /* sessions of REPLAYS_MAX, times REPLAY_WEIGHT */
    uint8_t broke_last, replayed_last; /* by the last one, in breaks and in replays */
    uint8_t lost;                      /* sessions of LOST_SHARED */
    uint32_t age;                      /* among those that saw a session break; 0: it has not */
    uint32_t flags;                    /* WEIR_TRANSFER_* */
    uint32_t next, prev;               /* on its list */
    uint32_t peer;
    uint64_t party;       /* region_party() of the incarnation it is for */
    uint64_t version;     /* of the tables, when it was filled */
    _Atomic uint64_t era; /* any thread: of the engine, when it was filled: flush.c */

    struct plan_cursor cursor;
    struct plan_cursor mark; /* once it was replayed: all before this is done, for good */
    uint64_t bytes;
    uint64_t deadline_ns; /* UINT64_MAX: none */
    uint32_t outstanding; /* runs */
    int result;           /* what it ends with when nothing of it is posted; 0: well */
    uint64_t epoch;       /* ours of the session that it has WRs on */
    uint64_t number;      /* of its notification; 0: none yet */
    uint16_t data_mask;   /* QPs of the present session that carried data */
    uint16_t parts_need;  /* QPs that the notification's parts go to; 0: not decided */
    uint16_t parts_mask;  /* those that have been posted */
    bool flushed;         /* some run of it did not complete */
    bool marked;          /* mark counts; it takes one step at a time */

    uint32_t stream; /* of a message */
    bool put;        /* it has a spot, of this stream's generation */
    uint32_t generation;
    uint64_t turn; /* of its stream */
    struct outbox_spot spot;
    uint32_t message_length;
    uint32_t turn_begun; /* the watch's, when it was taken up */
    uint32_t loan;       /* the one that the message is in, plus 1; 0: loan.c */

    uint64_t user_data;
    uint64_t tag;
    uint32_t notify_length;
    uint8_t payload[WEIR_NOTIFY_MAX];
};

struct list {
    uint32_t head, tail, count;
};

/* One entry of the QP table. */
struct qp {
    struct weir_qp *qp; /* the device's; NULL: free */
    uint32_t peer;
    uint32_t session;
    uint32_t index; /* in the session */
    uint32_t life;  /* uses of this entry, in receive wr_ids */
    uint32_t next_free;
    uint32_t granted;
    bool taken;
    bool connecting; /* the device says later how it ended */
    bool connected;
    bool blocked;     /* the device refused WRs that had slots: until a completion or the timer */
    uint8_t refusals; /* in a row, up to RETRY_DOUBLINGS */
    bool credit_due;
    bool done_in_post; /* something was done in its post */
    struct ledger ledger;
    uint64_t seq_next; /* of the entry's next life */
    struct credit credit;
    uint32_t sbufs_used, sbuf_next, sbuf_count;
    struct drain drain;
    uint64_t polled_mark; /* engine.polled when the beacon was posted */
    uint32_t recvs;       /* posted to it, without a shared queue, and not back */
    bool beacon_back;     /* its beacon flushed */
    bool gave;            /* it completed something since it goes down, or its timer fired */
    uint32_t held;        /* received messages that wait for room: the entry's memory is in use */
    uint32_t psn;
};

/* The receives that a QP lacks because the device refused them: recv.c. Beside struct qp, whose
 * size is a power of two. */
struct lack {
    uint32_t recvs; /* missing; of a shared queue: in place of those that its messages took */
    uint32_t credits[CREDIT_CLASSES]; /* of its messages, kept for want of receives */
    uint32_t window;     /* meanwhile no message is sent: its credit.window_remote[0]; 0 */
    uint64_t refused_ns; /* without a shared queue: since when it has taken none */
};

/* A QP as it was seen at the last look: stall.c. */
struct stall {
    uint64_t head;     /* its ledger's; UINT64_MAX: nothing was outstanding */
    uint64_t still_ns; /* for which that has not moved */
    uint64_t bytes;    /* the most that were in flight anywhere at a look meanwhile */
};

/* The step that a handshake is at. */
struct watch_step {
    const char *words;
    uint32_t version; /* of the protocol, that the peer speaks; 0: ours, or nobody knows */
    int broke;        /* why the session before it broke; 0: there was none, or nobody knows */
};

/* The counts at the time when the peer was asked how it is, in this stillness. */
struct watch_counts {
    uint64_t at_ns;  /* 0: it was not yet */
    uint64_t polled; /* of the engine */
    bool device;     /* the device counts: */
    struct weir_device_counts of_device;
};

/* The longer part of a watch: backed for peers that were stalled, or near it. */
struct watch_notes {
    weir_stall_info last;   /* the last stall, as it was when it was told: once there were stalls */
    struct watch_step step; /* of the handshake, then */
    struct wire_state state; /* the peer's last answer: once one was heard */
    struct watch_counts counts;
};

/* A peer as the watchdog saw it last: watchdog.c. */
struct watch {
    uint64_t ended, moved; /* the peer's counts, then */
    uint32_t turn;         /* grows when transfers have ended; each begins in one */
    uint64_t moved_ns;     /* when something was last seen to complete, or work to begin */
    uint64_t from_ns;      /* from when on nothing has, for the next verdict */
    uint64_t gap_ns;       /* the longest time without a look, since then */
    uint64_t absent_ns;    /* the same, of the last verdict, if that makes it ours; 0 */
    bool works;            /* work was outstanding */
    bool behind;           /* completions waited all the time before the last verdict */
    uint8_t put_off;       /* verdicts in a row that named no cause */
    uint64_t sessions_up;  /* the peer's count, when something was last seen to complete */
    uint64_t told;         /* the handle of STALLED, if neither RESUMED nor GONE came since; 0 */
    uint64_t idle_step;    /* the first step since then, or since begun_ns, behind which nothing was
                            * outstanding; 0 */
    uint64_t begun_ns;     /* not before this: the last submit since then that found nothing
                            * outstanding; 0: none did */
    uint64_t begun_ended, begun_completed; /* the peer's counts, at that submit */
    uint64_t ended_ns;  /* when nothing of a stall that was told was outstanding any more; 0 */
    uint64_t lasted_ns; /* 0: it lasts */
    uint64_t stalls;
    /* The last question how it is: ask.c. */
    uint64_t question; /* its number; 0: nothing was asked in this stillness */
    uint64_t asked_conn, asked_ns;
    uint64_t said_ns;   /* when the question was sent last */
    bool answered;      /* that question; the answer to one before stays until then */
    bool heard;         /* one of them was */
    bool counted;       /* notes->counts is of this stillness */
    uint64_t answer_ns; /* how long that took */
    struct watch_notes *notes;
};

/* A session that a transfer of ours broke. */
struct broke {
    uint64_t epoch_remote;
    int32_t reason;
};

struct session {
    bool used;
    bool retired;
    bool up;             /* transfers may have used it */
    bool lost;           /* it was live when it was noted to break */
    bool unreachable;    /* the target did not answer, or the device stood still: nobody broke it */
    bool broke_here;     /* it broke here first, and not by the other side's word */
    bool excused;        /* its culprit is known, or it was broken on purpose */
    bool refused;        /* and it was a refusal, of ours or theirs */
    bool got_through;    /* once retired: something came through since the last one broke */
    int cause;           /* why it broke here, as far as it is known: a WEIR_E*; 0 */
    uint64_t culprit;    /* the transfer that broke it; 0 */
    uint32_t qp_count;   /* made */
    uint32_t qp_left;    /* not yet gone */
    uint32_t qp_used;    /* agreed: the first ones carry traffic */
    uint32_t connecting; /* of those: how many are not through */
    bool connect_owed;   /* the endpoint waits to hear that they are */
    int connect_error;
    uint32_t window; /* credits that the other side gives on each QP */
    bool ordered;    /* on both sides */
    uint32_t turn;
    uint64_t epoch, epoch_remote; /* ours; theirs, once it is being connected */
    uint64_t life;                /* the other side's, then; 0 */
    uint64_t life_ours;           /* as HELLO told it */
    uint32_t qps[WEIR_QPS_MAX];
};

/* Parts of one notification that are here. */
struct parts {
    uint64_t number;
    uint64_t epoch; /* ours of the session */
    uint16_t mask;
};

enum dial_state {
    DIAL_NONE,    /* nothing under way */
    DIAL_CALLING, /* dialled */
    DIAL_ASKING,  /* WHO sent */
    DIAL_PAUSE,   /* refused or broken: again after a pause */
    DIAL_AWAITING /* no address leads to it: it has to call */
};

/* The answer of the peer's address to a dial, for a person. */
enum met_there {
    MET_UNKNOWN, /* an engine, or nothing that is known */
    MET_NOBODY,  /* the connection was refused */
    MET_SILENCE  /* it was taken, and no engine has answered on it */
};

/* The record of an instance that was given up. */
struct past {
    uint8_t instance[WIRE_INSTANCE_SIZE];
    struct window received;
    uint64_t pass, pass_theirs; /* as in struct peer */
};

enum { STREAM_NONE = 0, ABSENT_MAX = 16, INBOXES_MAX = WEIR_INBOXES_MAX };

enum stream_state {
    STREAM_ASKING, /* the receiver is asked for room, if anything waits */
    STREAM_ABSENT, /* there is no such inbox */
    STREAM_MET,    /* its memory is imported */
    STREAM_CLOSED  /* the inbox was closed: nothing more is written there; LEFT is to be said */
};

/* The streams that this engine has to one inbox of one peer: streams.c. */
struct stream {
    bool used;
    uint8_t state; /* enum stream_state */
    uint32_t peer;
    uint32_t inbox;
    uint32_t next;       /* of the peer's, plus 1; or of those that are free */
    uint32_t generation; /* counts how often all that was put there was forgotten */
    bool left_due;
    bool look_due;  /* its receiver is to look for direct messages */
    bool ahead_due; /* another place is wanted before a message waits for it */
    bool imported;
    bool import_waited;            /* for an answer: it is not waited for again */
    struct wire_descriptor memory; /* of the inbox */
    struct weir_rmr rmr;           /* imported */
    int import_error;        /* why it is not yet: EAGAIN, EMFILE, ENOMEM; 0: not tried, or it is */
    uint64_t import_next_ns; /* with import_error: the next try, */
    uint64_t import_pause_ns; /* so long after the last */
    uint32_t message_bytes_max;
    struct outbox outbox;
    uint32_t lending;    /* plus 1: the memory of its loans; 0: none */
    struct list waiting; /* messages without a spot, in the order of their turns */
    uint64_t waiting_bytes;
    uint64_t turns;
    uint64_t now;    /* the turn of the latest message that must not wait */
    uint64_t asked;  /* the receiver was asked about room for messages up to this turn, */
    uint64_t full;   /* and said that there is none */
    uint64_t passed; /* messages up to this turn were sent before one that was delivered */
    uint32_t put;    /* transfers with a spot */
};

enum { LENDINGS_MAX = 1024 };
enum { SECRETS = 32 };

/* Whether the receiver knows of the memory of loans, and reads it. */
enum offer {
    OFFER_NOT,
    OFFER_DUE,    /* it is to be told */
    OFFER_ASKED,  /* it was */
    OFFER_MAPPED, /* it reads loans where they are */
    OFFER_NEVER   /* it cannot */
};

/* Of one memory, to a receiver that cannot map it now; and the pause behind the first, which is
 * twice as long behind each further one. */
enum { OFFERS_MAX = 8 };
#define OFFER_PAUSE_NS UINT64_C(100000000)

/* Memory of loans for one inbox of one peer: lendings.c. */
struct lending {
    uint32_t stream; /* that it is of; NONE: of none any more */
    uint32_t inbox;
    uint64_t peer_ids[LOANS_MAX]; /* the handle by which each loan was asked for */
    uint8_t offer;                /* enum offer */
    uint8_t offers;               /* so many, */
    uint64_t offered_ns;          /* the last one but the first, then */
    bool making;                  /* its memory is being had: other threads may have the engine */
    bool early;                   /* made before the longest message was known */
    bool rings;                   /* the application waits for a loan to come back, */
    uint64_t wanted;              /* of so many bytes less 1 */
    weir_memory memory;
    struct wire_descriptor descriptor;
    struct loans loans;
};

/* Memory of a sender's loans, which this engine reads: inboxes.c. */
struct lent {
    uint8_t *base; /* NULL: there is none */
    uint64_t bytes;
    bool ordered; /* its owner makes barriers for us */
    struct weir_rmr rmr;
    uint8_t tries;   /* how often its sender said where it is */
    uint8_t mapped;  /* enum word_mapped, */
    bool mapped_due; /* which its sender is to be told */
    bool back_due;   /* likewise, that a loan was given back */
};

/* An inbox of this engine: inboxes.c. */
struct inbox_entry {
    weir_engine *engine; /* that it is of */
    uint64_t id;         /* its handle; changes when it is free again */
    bool used;
    bool open;        /* else it is closed, and lasts until nothing is written there or held */
    bool ready;       /* a message can be taken */
    uint32_t watched; /* streams, while it is open */
    uint32_t looks;   /* that were asked for while there was a message */
    uint32_t number;
    weir_inbox_options options;
    struct inbox inbox;
    struct lent *lents; /* of each of its streams, */
    uint32_t maps;      /* and how many there are */
    struct weir_mr mr;
    void *tables;
    size_t table_bytes;
    struct wire_descriptor descriptor;
    uint64_t called_ns; /* since when senders that were called are waited for; 0 */
    uint64_t taken, spoiled;
};

/* Not while its memory is being had: then other threads may have the engine (messages.c). */
static inline bool entry_is_made(const struct inbox_entry *entry) {
    return entry->used && entry->inbox.chunks != NULL;
}

/* How much was recorded in the last second in which something was: trace.c. */
struct trace_rate {
    uint32_t second, count;
};

/* Words about messages that a peer is to be told: talk.c. */
struct talk {
    bool due;         /* there is something */
    bool speaking;    /* its transfer is under way */
    uint64_t epoch;   /* of the session that the last words went on */
    bool asked;       /* it has asked for an inbox that there was not */
    bool opened;      /* one was opened since */
    bool names_first; /* names go before messages the next time */
    bool went_first;  /* the last words went before a transfer */
    uint32_t absent_count;
    uint32_t absent[ABSENT_MAX]; /* numbers that it asked for, to be told so */
};

/* Words about names that a peer is to be told, and has under way: names.c. */
struct naming {
    uint64_t told;  /* of one that has asked: the version of ours that it was told of */
    uint64_t said;  /* our question to it that is not answered; 0: none */
    uint64_t hash;  /* of the name that it asked for */
    uint64_t place; /* of the list, likewise */
    uint32_t found; /* the entry that the name had then */
    enum { ANSWERS_NOTHING, ANSWERS_NAME, ANSWERS_LIST } answers;
    uint64_t heard;  /* changes that it told of: its list was another before */
    bool mute;       /* nothing is asked: what is said does not get there */
    bool news_waits; /* a change was said last, and a question or an answer is before the next */
};

enum peer_stage {
    PEER_ADDRESS, /* the instance there is not known */
    PEER_KNOWN,   /* its instance is, and lives */
    PEER_LEAVING  /* its instance is gone, and its sessions drain */
};

enum { FOUND_CONNS = 3 }; /* control connections of a peer */

/* Whether the application has heard of a handle that it did not open. */
enum told {
    TOLD_NOT,
    TOLD_REFUSED, /* by REFUSED alone */
    TOLD          /* by any other event, a notification, or since it was opened */
};

/* The notes of a peer: notes.h. */
struct notes {
    uint64_t conns_lost[FOUND_CONNS];                      /* 0: none */
    uint8_t drained, broken, unanswered, connected, heard; /* sessions, one bit each */
    bool conn_lost, life, evict, probe, unpark, want;
    int dead, unreachable; /* why; 0: not noted */
};

struct peer {
    uint64_t id;                 /* 0 when the entry is free */
    uint64_t handle;             /* what the application is told: the id, or that of an alias */
    uint64_t id_next;            /* of the entry's next user */
    uint64_t party;              /* region_party() of the present incarnation */
    uint64_t closed_party;       /* the last one that ended because the application closed it */
    struct qp *fast_qp;          /* may be posted on inside submit: session up, nothing pending */
    bool posts_at_once;          /* likewise, but for one WR, on a device that completes later */
    struct region_pair pairs[2]; /* the last ones used, of writes and of reads */
    uint32_t refs;
    uint32_t incarnation;
    uint32_t alias; /* the peer that is the same engine, or NONE; set by found_alias_set */
    uint32_t next_free;
    uint32_t run_next;
    bool runnable;
    bool credits_went;          /* a message of credits was posted in the last turn */
    bool spent;                 /* it has had its turn, and has its next one from the run list */
    bool inflight_waits;        /* in the line for bytes in flight and shared slots: turns.c */
    bool life_due;              /* there, for an empty write: post_life */
    uint32_t inflight_next;     /* there */
    weir_waiting_for waits_for; /* SLOTS or INFLIGHT, NOTHING: neither... */
    uint64_t waits_since_ns;    /* ...and since when */
    bool closed;                /* by the application, while it stayed connected: may be evicted */
    bool nameless;              /* its handle names nothing any more: the application has not opened
                                 * it, and its instance is gone */
    enum peer_stage stage;
    bool wanted;              /* weir_peer_connect asked before the instance was known */
    struct standing standing; /* the events that the application was told of it */
    struct cause {            /* of the break that degraded it, as events tell it */
        int error;
        uint64_t culprit, epoch; /* the transfer, or 0; of the session */
    } cause;
    uint8_t tails_due;   /* turns until quiet tails are closed: post_tails */
    bool noted;          /* it is on the list of those of which something is noted */
    uint32_t noted_next; /* there */
    bool stays;          /* a break of it is noted, and nobody asked why yet: it is on that list */
    uint32_t stays_next; /* there */
    struct notes notes;
    bool dial_failed;         /* the last time nobody answered there */
    enum met_there met_there; /* by the last connection that was tried, until an engine answers */
    bool shows_self;          /* it is we who answer there */
    uint32_t version_theirs; /* of the protocol, of what answered at its address; 0: ours, or nobody
                              * did */
    int dial_error;          /* why the dial that is under way will have failed at its deadline */
    bool reached;            /* it did answer there: who is at its address is known */
    bool guarded;            /* a session has been up: what is said in its name counts on its own
                              * connections only */
    bool proving;            /* the application opened the address that it says is its: nothing is
                              * posted until it is known who answers there */
    uint64_t prove_until_ns; /* ...or until then */
    bool claims; /* the application has opened that address: what waits is for the instance there */
    bool met;    /* it connected by itself: its handle is good for as long as it is */
    bool loop;   /* it is this engine itself: loop.c; its session is none that a device knows */
    enum told told;        /* whether the application knows it by its own handle */
    int end_error;         /* once its instance is gone: why */
    bool vouched;          /* its address is of the host that its connection came from */
    bool dialable;         /* address is one that can be dialled */
    uint32_t live;         /* session, or NONE */
    uint32_t waits;        /* transfers on all lists */
    uint32_t credit_waits; /* on those that wait for credits */
    uint32_t suspects;     /* on all lists: transfer_is_suspect */
    uint32_t held;         /* notifications of it that wait for room */
    uint32_t room_waits;   /* messages to it that wait for room */
    uint32_t rings;        /* memories of loans to it that the application waits for */
    uint32_t streams;      /* its first, plus 1; STREAM_NONE */
    struct talk talk;
    struct naming naming;
    uint64_t ask_failed;  /* the number of the last failure to reach it for a name; 0: none */
    int ask_error;        /* why that was */
    int64_t process;      /* of the session that is live or was last, as the device numbers it; 0 */
    uint64_t life;        /* of all that is known of its instance here; 0: it is not known */
    uint64_t life_theirs; /* of what it knows of us; 0: no session came about */

    uint64_t completed; /* runs and transfers of the application's that ended well */
    uint64_t ended;     /* of those the transfers */
    uint64_t moved;     /* and runs of transfers that had begun when one ended last: watchdog.c */
    struct list lists[LISTS];
    struct session sessions[EP_SESSIONS];

    /* These three are changed by found_conn_set alone. 0: none. */
    uint64_t conn_dialled, conn_accepted;
    uint64_t conn_before; /* accepted before that one, and not closed yet */
    /* The connection in that place was not accepted: this engine dialled it, the peer answered on
     * it, and it was put there while the peer is asked for again (dial_ask_there). */
    bool accepted_aside, before_aside;
    uint64_t conn_last;  /* the one that spoke last */
    uint64_t conn_said;  /* the one that carried the attempt's last message; 0: none did */
    bool unheard;        /* that message may be lost: its connection is, or there was none */
    uint64_t conn_waits; /* of the visitor whose HELLO waits for who answers at this address */
    enum dial_state dial;
    uint64_t dial_deadline_ns, dial_next_ns, dial_pause_ns;
    uint64_t dial_began_ns;  /* the last time that it left DIAL_NONE to call; 0: never */
    uint32_t dials_answered; /* in a row, each begun soon after the one before */
    uint64_t left_ns;        /* leaving: since when */
    uint64_t doubt_ns;       /* another said that it is at its address; 0: none */
    bool doubted;            /* since then, nobody has answered there */
    uint64_t dial_since_ns, dial_look_ns; /* when it began; when to look for signs of life */
    uint64_t signs;                       /* of life, when that was done last: dial.c */
    uint64_t signs_at_once;               /* answers that came within the question */
    struct rtt rtt;                       /* how long its answers take, whoever it is */
    struct rtt_pause who;                 /* DIAL_ASKING: until WHO is answered */

    struct window sent; /* our numbers to it that are finished */
    uint64_t number_next;
    struct window received;      /* its numbers that were delivered */
    uint64_t settled_epoch;      /* our sessions up to here have drained over there... */
    struct wire_settled settled; /* ...and this is what it had got */
    uint64_t excused_epoch;      /* the last of our sessions that it said to have broken itself */
    bool unsettled;              /* what became of them was asked in vain since talk_renew */
    uint64_t abandoned_epoch;    /* nobody will say any more what became of sessions up to here */
    int abandoned_error;
    struct broke broke[EP_SESSIONS]; /* the last ones of its sessions */
    uint32_t broke_next;
    uint64_t sessions_up, recoveries, replays;
    uint64_t up_ns; /* when the last session came up, by the environment's clock */
    uint64_t slot_waits, slot_wait_ns, inflight_waits_begun, inflight_wait_ns;
    uint32_t ages;             /* given so far */
    uint64_t trouble_ns;       /* when sessions began to break with nothing done on them; 0 */
    uint64_t trouble_until_ns; /* no new session before */
    uint32_t trouble_breaks;
    uint32_t told_breaks;    /* sessions that only the other side saw break, though something was
                              * done on them, since told_completed; up to BREAKS_SHARED */
    uint64_t told_completed; /* `completed` then */
    bool refused_last;       /* a refusal broke the last session: its transfer is known */

    uint8_t instance[WIRE_INSTANCE_SIZE];
    uint64_t pass;        /* it shows this on a new connection of its */
    uint64_t pass_theirs; /* this is what we show it; 0: it has not said yet */
    char address[WEIR_ADDRESS_MAX];
    struct watch watch;
    uint64_t words_last[2]; /* heard and said: trace.h */
    struct trace_rate words;
    uint32_t often_ms[TRACE_OFTEN_KINDS]; /* when what may happen often did last: trace.h */
    struct endpoint endpoint;
    struct parts *parts; /* WINDOW_SIZE; backed when notifications come in several */
    bool parts_used;     /* since they were zeroed */
};

_Static_assert(sizeof(struct peer) <= 6 * 1024 + 512,
               "8 KiB an idle peer, its QP and connection too");

/* An instance that asked WHO, or was asked, and what it said of itself: until its HELLO is
 * answered. */
struct visitor {
    uint64_t conn; /* 0: free */
    bool asked;    /* it said HELLO first, and was asked WHO */
    bool vouched;  /* its address is of the host that it comes from */
    uint8_t instance[WIRE_INSTANCE_SIZE];
    char address[WEIR_ADDRESS_MAX];
};

/* The application's sleep on the descriptor. */
enum armed {
    ARMED_NO,
    ARMED_YES,
    ARMED_TOLD, /* the descriptor was raised, and nobody has made progress yet */
    ARMED_AWAKE /* progress was made; the descriptor is raised still */
};

/* The tables that find things without a look at what is not there: found.c. */
struct found {
    uint64_t seed;           /* of hashes of what others choose */
    struct groups instances; /* hash: peers that are known, by their instance */
    struct groups addresses; /* hash: peers by their address; first those that were met, then as
                              * many groups again of those that the application opened */
    uint32_t met;            /* of those, how many were met */
    struct groups conns;     /* hash: peers' control connections, FOUND_CONNS members a peer */
    struct groups aliases;   /* of each peer */
    struct groups leavers;   /* one group: peers that the application closed, the first first */
    struct groups remotes;   /* of each peer: imported memory of its present incarnation */
    struct groups pasts;     /* hash: by their instance */
    struct groups visitors;  /* hash: by their connection; and a group of those that are free */
};

/* Names, ours and those of peers: names.c. */
struct names {
    struct published published;
    struct asked asked;
    struct groups askers; /* one group: peers that have asked */
    uint64_t failures;    /* of peers that were asked, and not reached */
};

struct held { /* an accepted notification that waits for room in the queue */
    uint32_t qp, life, buffer, peer;
    uint64_t from; /* once the peer has ended: the handle that was told for it; else 0 */
};

/* The things that a submit can find full. */
enum full { FULL_TRANSFERS, FULL_SEGMENTS, FULL_COMPLETIONS, FULL_KINDS };

struct weir_engine {
    /* Words that other threads write while somebody has the engine have lines of their own;
     * what its owner reads and writes for every transfer lies on none of them.
     * The owner (own.h) and the head of the submit queue: every submit touches both. */
    _Alignas(LINE_BYTES) _Atomic uint32_t owner; /* any thread: enum owner */
    _Atomic uint32_t submitted; /* any thread: head of the submit queue, index + 1 */
    _Atomic uint32_t relief;    /* any thread: enum relief */

    /* Words that submitters without the engine write. */
    _Alignas(LINE_BYTES) _Atomic uint32_t tables_lock; /* any thread: regions and peers, to read
                                                        * without the engine */
    _Atomic uint32_t completions_reserved; /* any thread: QUEUE transfers not yet taken */
    struct pool transfer_pool;             /* any thread */
    struct pool block_pool;                /* any thread */
    _Atomic uint32_t blocked;              /* any thread: submitters that wait for room */
    _Atomic uint64_t refused[FULL_KINDS];  /* any thread: submits, by what was full */
    _Atomic uint64_t crowded_ns;           /* any thread: when one last found the engine taken, */
    _Atomic uint32_t waits_for_nothing;    /* any thread: for what has ended; counts roughly */
    _Atomic uint32_t vain_waits;           /* and how many that waited for it since one got it */
    _Atomic uint32_t entering;             /* threads that wait for the engine itself, */
    _Atomic uint32_t gave_way;             /* and tries to make progress meanwhile: own.h */

    /* Words of threads that sleep, or take what was received: sleep.c, deliver.c. */
    _Alignas(LINE_BYTES) _Atomic uint64_t news; /* any thread: counts owners that did something */
    uint64_t news_seen;                         /* news, when the application last armed */
    _Atomic uint64_t room;                      /* any thread: counts room made for `blocked` */
    _Atomic uint32_t followers;                 /* any thread: threads asleep on the condition */
    _Atomic uint32_t armed;                     /* any thread: enum armed */
    _Atomic bool leader_asleep;                 /* any thread: one is asleep on the ports */
    _Atomic bool attention;                     /* any thread: there is room for held messages */
    _Atomic bool held_some;                     /* any thread: messages are held */
    _Atomic uint64_t events_lost;               /* any thread */

    _Alignas(LINE_BYTES) const struct weir_device_ops *device_ops;
    struct weir_device *device;
    struct weir_ports ports;
    struct weir_device_caps caps;
    struct regions regions;
    struct peer *peers;
    struct parts *parts;             /* of each peer */
    struct watch_notes *watch_notes; /* likewise */
    struct device_counted {          /* what the device counted, when it was asked last */
        uint64_t at_ns;
        bool known;
        struct weir_device_counts counts;
    } device_counted;
    struct ep_pile pile;         /* of their attempts */
    struct wire_devices devices; /* what peers are told of: this engine's, and what it could have */
    struct {
        uint64_t
            handle; /* of the last peer whose device, or memory, does not go with ours; 0: none */
        struct ep_mismatch mismatch;
    } unlike;
    uint32_t self;      /* the peer that is this engine itself; NONE: it was not asked for */
    uint64_t self_pass; /* what an IAM shows that comes from ourselves; 0: there was none yet */
    struct names names;
    uint32_t peers_max;
    uint32_t peers_mask;     /* the table's size is a power of two, if not all of it is used */
    uint64_t fast_bytes_end; /* the fast way in is for less than this: 0 without a reserve */
    bool serial;             /* WEIR_ENGINE_SERIAL */
    bool forked;             /* this is a child of the process that has it: nothing is here */
    bool spare_ready;        /* the reserve of the fast way in lacks nothing */
    uint64_t post_bytes_max; /* at most UINT64_MAX - 1 */
    _Atomic uint64_t era;    /* any thread: how many flushes have begun */
    uint32_t numbers_max;    /* that are in use for one peer: complete.c says why */
    /* inflight_bytes_max, less the payload bytes of reads and writes that were posted and are not
     * accounted for, which are the bytes of all ledgers' runs. Negative when one WR is longer than
     * that, and while peers wait in line: LINE_BIAS is off then, and nobody else may post. */
    int64_t inflight_room;
    uint32_t inflight_slots; /* free, of a send queue that all QPs share */
    bool inflight_shut;      /* until one comes back: the device said that there is no room */
    struct {                 /* what was done inside submit calls, not yet in stats */
        uint64_t transfers, bytes[2], segments; /* apart: no vector code for two counters */
    } fast;
    weir_engine_info stats;

    weir_engine_options options; /* as in force */
    uint8_t instance[WIRE_INSTANCE_SIZE];
    char address[WEIR_ADDRESS_MAX];
    char reach[WEIR_ADDRESS_MAX]; /* what the application advertises, or the same, or, where that is
                                   * a wildcard, an address of it */
    char told[WEIR_ADDRESS_MAX];  /* the one that peers are told; "": none */
    bool listening;
    bool advertises; /* reach is what the application says */
    bool closing;
    bool has_fd; /* sleeping is real: control and async news are looked at less often */
    bool slow_now;
    bool device_failed;       /* no session comes up any more */
    _Atomic bool device_gone; /* any thread: it failed, and was given back to the system */
    bool no_room_told;        /* REFUSED was told of a visitor, and none has found room since */
    bool worked;              /* since somebody was last told */

    bool look_ended;           /* the last look found the end of what had come */
    uint32_t look_turn;        /* steps since then */
    uint64_t look_tick;        /* the coarse clock, then */
    uint64_t looks_behind;     /* that did not find the end, since a deadline is due */
    uint64_t present_until_ns; /* without a look: from then on the engine's time stands still;
                                * UINT64_MAX: nothing is waited for */
    uint64_t lost_ns;          /* for how long it has, ever */

    struct visitor *visitors;
    uint32_t visitors_max, visitor_next;
    struct found found;
    struct past *pasts; /* of the last peers_max instances that were given up */
    uint32_t past_next;
    uint64_t epoch_counter;
    uint64_t number_floor; /* above all numbers used towards peers that were given up */
    uint64_t polled;

    struct transfer *transfers; /* transfers_max of the application's, then one for each peer's
                                 * words */
    uint32_t record_count;
    uint32_t waits; /* the sum of all peers' */
    struct stream *streams;
    uint32_t streams_max, streams_used, stream_free; /* plus 1 */
    struct lending **lendings;
    uint32_t lendings_used; /* entries ever used */
    uint32_t lendings_left; /* of them, those of no stream */
    uint64_t loan_rounds;
    bool loans_wanted;      /* the application was told that all is lent */
    _Atomic bool loan_back; /* any thread: one came back since */
    struct inbox_entry *inboxes;
    uint32_t inboxes_used;          /* entries ever used */
    uint32_t streams_watched;       /* of all inboxes that are open */
    _Atomic uint32_t inboxes_ready; /* any thread: those with a message to take */
    uint64_t places;                /* granted by any inbox so far */
    uint64_t secrets[SECRETS];      /* random; */
    uint32_t secrets_left;          /* so many, from the front, are nobody's yet */
    _Atomic uint32_t *submit_next;  /* any thread */
    struct plan_block *blocks; /* transfer i begins with block i; the others are block_pool's */
    uint32_t spare_transfer;   /* kept for the fast way in: see submit.c; NONE: lent */
    uint32_t spare_blocks;
    uint32_t spare_missing; /* blocks that the reserve lacks */

    uint32_t peer_free, peer_free_last, local_free, remote_free, qp_free;
    uint32_t peers_used; /* entries ever used: what loops over peers visit */
    uint32_t run_head, run_tail;
    uint64_t import_next_ns; /* the first next try of all streams; UINT64_MAX: none waits for one */
    uint32_t noted_head, noted_tail;       /* peers of which something is noted: notes.h */
    bool noted_break;                      /* one of them is a break, and nobody asked why yet */
    uint32_t stays_head;                   /* the peers whose breaks stay until then */
    uint32_t inflight_head, inflight_tail; /* the line of peers that wait for bytes in flight */
    uint32_t inflight_turn;                /* the one of them that posts now; NONE */
    bool inflight_due;                     /* one of them may be able to */

    struct qp *qps;
    uint32_t qps_max, qps_used, draining;
    struct bits qps_made;  /* entries whose QP the device has: what loops over QPs visit */
    struct groups beacons; /* one group: QPs that wait for their beacon, the first posted first */
    uint32_t recvs_per_qp;
    uint32_t ring_size;
    struct ledger_run *runs;
    uint8_t *recv_bytes, *send_bytes;
    uint8_t *zeros;   /* MESSAGE_BYTES, behind the scratch buffer */
    uint8_t *scratch; /* one more of send_bytes, for devices that are done with it at once */
    struct weir_mr recv_mr, send_mr;
    struct receives receives; /* of a shared receive queue */
    struct lack *lacks;       /* of each QP */
    uint16_t *recvs_missing;  /* of others: recvs_per_qp a QP, which buffers the device refused */
    uint64_t recv_pause_ns;   /* between tries to post what it refused; 0: nothing is missing */
    uint64_t recv_refused_ns; /* shared, and short: since when it has taken none; 0 */
    bool recv_short;          /* shared: it is short, and no notification is sent */

    struct stall *stalls;   /* of each QP */
    uint64_t stall_next_ns; /* when to look; 0: nothing was outstanding */
    uint64_t stall_posts;   /* stats.posts, when nothing was */
    uint64_t stall_last_ns; /* the last look */
    uint64_t stall_polled;  /* polled, then */

    bool posts_seen;        /* stall.c and watchdog.c have deadlines for looks at what is posted */
    uint64_t watch_next_ns; /* of engine_clock: when watchdog.c looks; 0: nothing is outstanding;
                             * UINT64_MAX: never */
    uint64_t watch_last_ns; /* when somebody last looked at all */
    uint64_t
        watch_gap_ns; /* the longest time between two such looks, since the last of watchdog.c */
    uint64_t watch_polled; /* polled, at the last look of watchdog.c */
    uint64_t steps;        /* made so far, plus 1 */
    uint64_t questions;    /* asked by ask.c */
    uint64_t looked_ns;    /* of engine_clock: the last look at all */
    uint64_t away_ns;      /* between that one and the one before, if nobody slept meanwhile */
    bool rests;            /* somebody sleeps, or the application on the descriptor, since then */

    struct timers timers; /* transfers, peers, QPs, one for inboxes, one for receives */
    uint64_t slept_ns;    /* the latest deadline that anybody was given to sleep; 0: all awake */
    struct weir_wr *chain;
    struct weir_cqe cqes[POLL_BATCH];

    struct queue notifications, completions, events; /* taking: any thread */
    struct held *held;
    uint32_t held_head, held_count, held_max;

    void *arena, *found_memory, *names_memory;
    size_t arena_bytes;
    uint32_t block_count, timer_count;
    /* open.c: closes the real ports, the device when nothing of it is in use. left: what
     * engine_end returned. */
    void (*on_close)(struct weir_ports *ports, weir_engine *left, void *context);
    void *on_close_context;
    void (*on_left)(struct weir_ports *ports); /* left.c: closes device and environment */
    /* open.c: in a child of fork(2), frees what is there, the engine with it. */
    void (*on_abandon)(struct weir_ports *ports);
    struct fork_watch fork_watch;
    bool watched;              /* fork_watch is */
    struct recorder recorder;  /* what has changed last: trace.h */
    struct trace_rate visits;  /* of visitors' words */
    struct sleeping *sleeping; /* sleep.c; NULL: one thread, and sleeping is the world's business */
};

/* ---- indices ----------------------------------------------------------- */

static inline uint32_t transfer_index(const weir_engine *engine, const struct transfer *transfer) {
    return (uint32_t)(transfer - engine->transfers);
}

static inline uint32_t peer_index(const weir_engine *engine, const struct peer *peer) {
    return (uint32_t)(peer - engine->peers);
}

static inline bool peer_is_known(const struct peer *peer) {
    return peer->stage != PEER_ADDRESS;
}
static inline bool peer_is_there(const struct peer *peer) {
    return peer->stage == PEER_KNOWN;
}
static inline bool peer_is_leaving(const struct peer *peer) {
    return peer->stage == PEER_LEAVING;
}

static inline struct peer *peer_at(weir_engine *engine, uint32_t index) {
    return &engine->peers[index];
}

static inline uint32_t qp_index(const weir_engine *engine, const struct qp *qp) {
    return (uint32_t)(qp - engine->qps);
}

/* Whether the device has this QP, and it is not being taken down. */
static inline bool qp_lives(const struct qp *qp) {
    return qp->qp != NULL && qp->drain.state == DRAIN_IDLE;
}
/* Likewise, and its entry has had no other user since `life`. */
static inline bool qp_lives_still(const struct qp *qp, uint32_t life) {
    return qp_lives(qp) && qp->life == life;
}
/* Likewise, and the device took the remote QP's number. */
static inline bool qp_carries(const struct qp *qp) {
    return qp_lives(qp) && qp->connected;
}
/* Likewise, and the device takes WRs: no pause after a refusal. */
static inline bool qp_is_usable(const struct qp *qp) {
    return qp_carries(qp) && !qp->blocked;
}

static inline struct lack *lack_of(const weir_engine *engine, const struct qp *qp) {
    return &engine->lacks[qp_index(engine, qp)];
}

/* The device says with this which QP, and which use of its entry, an event or a message of a shared
 * queue is of: {life:16, index:16}. */
static inline uint32_t qp_tag(uint32_t index, uint32_t life) {
    return index | (life & 0xffff) << 16;
}
static inline uint32_t qp_tag_index(uint32_t tag) {
    return tag & 0xffff;
}
static inline bool qp_has_tag(const struct qp *qp, uint32_t tag) {
    return (qp->life & 0xffff) == tag >> 16;
}

/* Entries of QPs that the device has, in order; BITS_NONE: no more. QPs may come and go meanwhile.
 */
static inline uint32_t qp_after(const weir_engine *engine, uint32_t index) {
    return bits_next(&engine->qps_made, index + 1);
}
static inline uint32_t qp_first(const weir_engine *engine) {
    return bits_next(&engine->qps_made, 0);
}

#endif
