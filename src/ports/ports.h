/* SPDX-License-Identifier: Apache-2.0 */
/* ports.h: the world as it looks from inside weir.
 *
 * Four ports: a device (one RDMA device of one backend, verbs-shaped), a control
 * channel (small messages to addresses), the environment (clock, entropy, set-up
 * memory) and a way to sleep. The engine is the only caller. Real ports live in
 * src/device and src/os; sim/ plays the same ports in virtual time.
 *
 * Contract for every port:
 *  - Called only by the thread that has the engine; ports need no locks of their
 *    own. Exceptions are marked "any thread".
 *  - Nothing blocks, except weir_wait_ops.sleep, and calls whose comment says for how long.
 *  - Errors are WEIR_E* codes of weir.h, never errno.
 *  - Peers are not trusted: whatever arrives from one is checked before use.
 */
#ifndef WEIR_PORTS_H
#define WEIR_PORTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weir_settings.h"

/* ---- environment ------------------------------------------------------- */

struct weir_env_ops {
    /* Nanoseconds of a monotonic clock. Any thread. */
    uint64_t (*now)(void *self);
    /* The same, up to 10 ms ago, and cheaper. Any thread. */
    uint64_t (*coarse)(void *self);
    /* Fills with unpredictable bytes (getrandom(2)). */
    void (*entropy)(void *self, void *out, size_t length);
    /* Zeroed, cache-line aligned set-up memory; NULL when there is none. Only at
     * open and at registration, never in the steady state. */
    void *(*alloc)(void *self, size_t bytes);
    void (*free)(void *self, void *memory, size_t bytes);
    /* Bytes of memory that this process may still take before the system ends one for want of it;
     * UINT64_MAX: not known. May take long. NULL: never known. */
    uint64_t (*room)(void *self);
};

#define WEIR_HOST_MAX 46 /* bytes of a numeric address with its terminator: INET6_ADDRSTRLEN */

/* A part of a NIC's name, and the variable of its device that it goes before. Static storage. */
struct weir_nic_form {
    const char *variable; /* NULL: there are no more parts */
    const char *word;     /* what the part is: "port" */
};
enum { WEIR_NIC_PARTS = 2 };

/* The NIC that the application named behind the device, as mlx5_0/1 in "verbs:mlx5_0/1": all parts
 * that the device knows. */
struct weir_device_nic {
    uint32_t count; /* 0: none is named */
    struct weir_nic_part {
        struct weir_nic_form form;
        char text[WEIR_SETTING_TEXT_MAX]; /* "": this part is not named */
    } parts[WEIR_NIC_PARTS];
};

/* The application's wishes for a device, as weir_engine_options has it; 0: its own choice. */
struct weir_device_wishes {
    uint32_t inline_bytes; /* WEIR_INLINE_NONE: none. It may give less, not more */
    uint32_t cq_depth;     /* it may give less, and more */
    uint32_t qps;          /* that there may be at once, not counting those on their way out... */
    uint32_t qp_receives;  /* ...and receives that each of them is to have posted; 0: not known */
    char host[WEIR_HOST_MAX]; /* the address of this host that peers reach it at; "": not known.
                               * A device with an address of its own takes this one if it can */
    struct weir_device_nic nic;
};

struct weir_env {
    const struct weir_env_ops *ops;
    void *self;
    struct weir_device_wishes wishes; /* for the device that is opened with it */
};

/* ---- device ------------------------------------------------------------ */

#define WEIR_MR_BLOB_MAX    128               /* what a device adds to an exported descriptor */
#define WEIR_QP_BLOB_MAX    64                /* what a device tells the other side of a QP */
#define WEIR_FABRIC_ID_SIZE 16                /* see weir_device_caps.fabric */
#define WEIR_WR_ID_MAX      (UINT64_MAX >> 1) /* the top bit of a wr_id is the device's */

struct weir_device; /* each backend defines its own */

/* The counts that a device, or the system, keeps of the device's port, for all of its users
 * together, since some time before the device was opened. */
struct weir_device_counts {
    uint64_t not_ready;      /* answers that came, that a receiver was not ready (RNR) */
    uint64_t repeats;        /* requests sent again: no answer in time, or one out of order */
    uint64_t sent, received; /* bytes */
    uint64_t bytes_per_s;    /* that the port carries at most in one direction; 0: not known */
};

/* Counts of a device since it was opened. */
struct weir_device_tally {
    uint64_t refusals; /* of work by its provider, which had no room: it is posted again */
    uint64_t nonsense; /* completions and messages that named nothing, dropped */
    uint64_t renewals; /* endpoints that were given up and opened anew */
};
struct weir_qp;

/* A setting of a device, by its environment variable, and what is said of it now. */
struct weir_device_setting {
    const char *device; /* its name; these three are static storage */
    const char *variable;
    const char *what;
    uint64_t value; /* as it would be in force; UINT64_MAX: the device chooses */
    uint64_t fallback, least, most;
    bool is_set;
    bool is_named; /* by the application, behind the device: not the environment's */
    char text[WEIR_SETTING_TEXT_MAX]; /* of one that is no number, which has no range; "" */
    int status;                       /* 0, or EINVAL: nothing is opened with it; */
    char note[WEIR_DEVICE_NOTE_MAX];  /* and this says why, in a line; "" */
};

struct weir_device_caps {
    char name[WEIR_DEVICE_NAME_MAX]; /* the kind: "shm", "sim", ...: both ends need the same */
    /* Engines reach each other through this device only if their fabric ids are
     * equal: zeros where the network decides, the host's id on shm. */
    uint8_t fabric[WEIR_FABRIC_ID_SIZE];
    uint64_t message_bytes_max; /* one WR */
    uint64_t post_bytes_max;    /* bytes one post_send call should carry; UINT64_MAX: any. Devices
                                 * that copy in the post bound how long they hold the engine */
    uint32_t inline_bytes_max;  /* payload copied at the post; the buffer is free at return */
    uint32_t pieces_max;        /* that one write may gather; 0: none gathers */
    uint32_t sq_depth_max;
    uint32_t sq_shared; /* slots of a send queue that all QPs share, beside each one's own depth; a
                         * WR that is posted in the error state takes none. EAGAIN is about all of
                         * it. 0: each QP has a queue of its own. Not where `ordered` */
    uint32_t rq_depth_max;
    uint32_t qps_max;       /* at once; 0: as many as memory allows */
    uint32_t cq_capacity;   /* entries that polls can return before each queue was empty once;
                             * it may change with the number of QPs: query says what is so now */
    uint32_t mtu_max;       /* path MTU, bytes; 0: does not matter */
    uint32_t rd_atomic_max; /* reads in flight on a QP; 0: does not matter */
    bool ordered;           /* WRs of one QP take effect at the target, and complete, in order */
    /* A WR that the target refuses, or that finds no receive or no target, has a CQE that says
     * so. Where this is false, its QP fails and no more is said: a WR that has no CQE yet is
     * flushed, one that was just being sent may end with DEVICE instead, one that is not signalled
     * and was sent has none, and QP_FATAL comes. */
    bool blames;
    /* A WR that fails fails alone: its CQE says how, and its QP goes on as it was. In the error
     * state what was sent runs on to its real end, and nothing that was posted behind it is flushed
     * before that; until then qp_destroy is EBUSY. A cancel, or a deadline, waits for that end,
     * too. Only where `blames`, and not where `ordered`. */
    bool isolates;
    bool completes_inline; /* post_send reports `done` WRs; those give no CQE; only where ordered */
    /* Receives go to one shared receive queue (qp == NULL in post_recv). The engine then
     * waits for no message behind a beacon: poll gives the messages that a QP took before it gives
     * the flush of what was posted to that QP in the error state. Buffers are taken in the
     * order in which they were posted. */
    bool srq;
    bool last_wqe;      /* LAST_WQE events may come; their absence is never an error. It may become
                         * false while the device is open: query says what is known now */
    bool mr_anywhere;   /* mr_register, mr_allocate, mr_register_dmabuf, mr_release: any
                         * thread, several at once, whatever others do meanwhile */
    uint64_t map_bytes; /* address space that the device maps when it is opened, hardly backed */
    bool pins;          /* registered memory is pinned, */
    uint64_t pin_bytes_left; /* and this is how much this process may have besides what it has;
                              * UINT64_MAX: any */
    char note[WEIR_DEVICE_NOTE_MAX]; /* one line: what is used, or why nothing can be; "" */
};

/* Work-request kinds a device executes. */
enum weir_opcode { WEIR_OP_WRITE = 0, WEIR_OP_READ = 1, WEIR_OP_SEND = 2, WEIR_OPCODES };

#define WEIR_WR_SIGNALED 0x1u /* give a CQE on success; errors give one where `blames` */
#define WEIR_WR_INLINE   0x2u /* payload is copied in the post (length <= inline_bytes_max) */

/* A piece of registered local memory. */
struct weir_sge {
    uint64_t laddr;
    uint32_t length; /* not 0 */
    uint32_t lkey;
};

/* One work request, one local piece. A write of length 0 is legal, touches no
 * memory and needs no valid keys: it is how the core closes an orphaned run.
 * A write may gather its bytes from several local pieces, if it is the first WR of its post, and
 * not inline. */
struct weir_wr {
    uint64_t wr_id;
    uint64_t laddr;  /* local virtual address; with `pieces`, of the first struct weir_sge, which
                      * the post reads */
    uint64_t raddr;  /* remote address, as weir_rmr.raddr + offset */
    uint64_t length; /* <= message_bytes_max; of all pieces together */
    uint32_t lkey;   /* unused with `pieces` */
    uint32_t rkey;
    uint8_t opcode;
    uint8_t flags;
    uint16_t pieces; /* <= pieces_max; 0: laddr and lkey say where the bytes are */
};

/* Outcome of a post. WRs [0, accepted) belong to the device now; the rest were
 * not touched. Of the accepted ones, [0, done) are complete and successful
 * already, whatever their flags, and give no CQE (completes_inline only). Then, if the
 * device is ordered, so is all that was posted before them: each signalled WR of it gives its CQE,
 * and a WR with nothing signalled behind it holds no slot any more. */
struct weir_post {
    uint32_t accepted;
    uint32_t done;
};

/* A pair of memories and what to do between them: see post_pieces. */
struct weir_span {
    uint64_t laddr;
    uint64_t raddr;
    uint32_t lkey;
    uint32_t rkey;
    uint32_t opcode; /* WEIR_OP_WRITE or WEIR_OP_READ */
};

/* Bytes of local memory. */
struct weir_bytes {
    const void *base;
    uint64_t length;
};

enum { WEIR_DIRECT_WORDS = 3 };

/* Beside WEIR_ACCESS_*, of memory that is allocated: see import_address. */
#define WEIR_MR_LENT (UINT32_C(1) << 31)

/* Where messages are written: see post_direct. */
struct weir_direct_to {
    uint64_t raddr, length; /* all of them lie there */
    uint64_t watch;         /* the remote address of a word that the target writes */
    uint32_t rkey;          /* of both */
};

/* A message that is written where it belongs. */
struct weir_direct {
    const struct weir_bytes *parts; /* the payload, one part behind the other; in any memory */
    uint32_t count;
    uint32_t at;                       /* of the words, behind raddr; a multiple of 8 */
    uint64_t payload;                  /* where the payload begins, behind raddr */
    uint64_t words[WEIR_DIRECT_WORDS]; /* the first one is written last */
};

enum weir_cqe_status {
    WEIR_CQE_OK = 0,
    WEIR_CQE_FLUSHED,       /* the QP was in, or went to, the error state */
    WEIR_CQE_LOCAL_PROT,    /* local key or bounds */
    WEIR_CQE_REMOTE_ACCESS, /* the target refused key, bounds or right */
    WEIR_CQE_LENGTH,        /* message over a limit */
    WEIR_CQE_RETRY,         /* transport retries exhausted: the target does not answer */
    WEIR_CQE_RNR,           /* receiver-not-ready retries exhausted */
    WEIR_CQE_DEVICE         /* anything else */
};

/* As with verbs, on status != OK only wr_id and status are valid. */
struct weir_cqe {
    uint64_t wr_id;
    uint32_t status;      /* enum weir_cqe_status */
    uint32_t byte_length; /* of a receive */
    uint32_t qp_tag;      /* of a receive: the QP it came in on, as given to qp_create */
    bool recv;
    bool has_imm;
};

enum weir_async_type {
    WEIR_ASYNC_LAST_WQE = 1, /* this QP will consume no more SRQ buffers; may repeat */
    WEIR_ASYNC_QP_FATAL,     /* this QP went to the error state by itself */
    WEIR_ASYNC_PEER_DEAD,    /* the process behind this QP is certainly gone: it executes nothing
                              * any more and its memory is gone */
    WEIR_ASYNC_DEVICE_FATAL,
    WEIR_ASYNC_CONNECTED /* what qp_connect began is done: error says how it ended */
};
struct weir_async {
    uint32_t type;
    uint32_t qp_tag; /* as given to qp_create */
    int error;       /* CONNECTED: 0, the QP is in RTS, or what qp_connect may answer */
};

struct weir_qp_options {
    uint32_t tag;            /* the caller's number for this QP, in async events */
    uint32_t sq_depth;       /* wanted; granted in weir_qp_granted */
    uint32_t rq_depth;       /* receives that may be posted to it (0 with srq) */
    uint32_t recv_bytes_max; /* the longest SEND that it may receive */
};
struct weir_qp_granted {
    uint32_t sq_depth;
    uint32_t rq_depth;
    uint32_t blob_length;
    uint8_t blob[WEIR_QP_BLOB_MAX]; /* for the other side's qp_connect */
};
struct weir_qp_path {
    uint32_t mtu;       /* negotiated: the smaller of both mtu_max */
    uint32_t rd_atomic; /* negotiated */
    uint32_t psn_local; /* 24 bits, random */
    uint32_t psn_remote;
    uint32_t blob_length;
    const uint8_t *blob; /* the other side's; hostile until checked */
    /* The other side may connect at the same time. Else it does so only when this side has, or
     * had before. */
    bool crossing;
};

/* Local memory as a device knows it. */
struct weir_mr {
    uint32_t lkey;
    uint32_t cookie; /* the device's own number for it */
    void *base;
    uint64_t length;
};
/* A peer's memory as the local device knows it: address of offset o is raddr + o. */
struct weir_rmr {
    uint64_t raddr;
    uint32_t rkey;
    uint32_t cookie;
};

struct weir_device_ops {
    const char *name;
    /* The parts that may be named behind it, in their order, with '/' in between; the last has all
     * that is left. */
    struct weir_nic_form nic[WEIR_NIC_PARTS];
    /* Of the device that open would take with these wishes; NULL: none. 0; ENODEVICE: cannot be
     * used here; EINVAL: what is named, or its environment variables, are wrong; EMFILE.
     * caps_out->note says why. No side effect but that libraries are loaded. Any thread. */
    int (*probe)(const struct weir_device_wishes *wishes, struct weir_device_caps *caps_out);
    /* A cheap probe, which loads and opens nothing. 0: it can be used as far as that tells,
     * and caps_out->fabric is as probe has it. EAGAIN: perhaps, only probe knows. ENODEVICE: not.
     * NULL: only probe knows. Any thread. */
    int (*glance)(struct weir_device_caps *caps_out);
    int (*open)(const struct weir_env *env, struct weir_device **device_out);
    /* All QPs are destroyed and all memory released before. */
    void (*close)(struct weir_device *device);
    /* The device failed, and all QPs are destroyed: gives it back to the system, which may wait
     * for that. Memory is no device's any more, but stays where it is until mr_release. From then
     * on each call that needs a device answers EDEVICE, and there are neither completions nor
     * events. EAGAIN: not now. NULL: there is nothing to give back. */
    int (*let_go)(struct weir_device *device);
    void (*query)(struct weir_device *device, struct weir_device_caps *caps_out);

    /* access: WEIR_ACCESS_*. After mr_release returned 0 nothing remote touches
     * the memory; allocated memory is unmapped. After an error it may be half released (no
     * peer's access may begin any more, say): the only call with it is mr_release again. EBUSY:
     * a peer is still inside an access. Of the calls that mr_anywhere allows on any
     * thread, mr_release alone may wait for a peer: 100 ms at most. */
    int (*mr_register)(struct weir_device *device, void *base, uint64_t length, uint32_t access,
                       struct weir_mr *mr_out);
    int (*mr_allocate)(struct weir_device *device, uint64_t length, uint32_t access,
                       struct weir_mr *mr_out);
    /* length bytes at offset of a dma-buf, as if they lay at iova. NULL: not supported. */
    int (*mr_register_dmabuf)(struct weir_device *device, int fd, uint64_t offset, uint64_t length,
                              uint64_t iova, uint32_t access, struct weir_mr *mr_out);
    int (*mr_release)(struct weir_device *device, const struct weir_mr *mr);
    /* The owner closes, and QPs remain that could not be destroyed. Peers' accesses to registered
     * memory that have not begun never will, whatever those peers do; one that is moving bytes is
     * waited for, for a second in all. Then mr_release waits for no peer, and may be EBUSY still.
     * Only mr_release and qp_destroy follow. NULL: a peer's access is over when mr_release is, or
     * was refused by the device. */
    void (*revoke)(struct weir_device *device);
    /* The blob that a peer's mr_import needs, at most WEIR_MR_BLOB_MAX bytes. */
    int (*mr_export)(struct weir_device *device, const struct weir_mr *mr, uint8_t *blob_out,
                     uint32_t *blob_length_out);
    /* length and access come from the checked descriptor; the blob is hostile. Where the peer is
     * asked, its answer is waited for up to wait_ms: EINPROGRESS then, and the same call again
     * takes what came meanwhile. Nothing is owed for a call that is not repeated. */
    int (*mr_import)(struct weir_device *device, const uint8_t *blob, uint32_t blob_length,
                     uint64_t length, uint32_t access, uint32_t wait_ms, struct weir_rmr *rmr_out);
    void (*mr_forget)(struct weir_device *device, const struct weir_rmr *rmr);
    /* Whether its owner, which lives on, has released the memory by now, as this process sees it.
     * On the thread that has the engine. NULL: only the owner's device knows. */
    bool (*mr_is_gone)(struct weir_device *device, const struct weir_rmr *rmr);
    /* The parts of mr_import and mr_forget whose time grows with the memory, as calls of their own.
     * NULL: there is no such part. Any thread, several at once, whatever others do meanwhile, but
     * not with the same import. import_populate: after mr_import, only a matter of speed.
     * import_unmap: before mr_forget, the next and only call with this import. */
    void (*import_populate)(struct weir_device *device, const struct weir_rmr *rmr);
    void (*import_unmap)(struct weir_device *device, const struct weir_rmr *rmr);
    /* Where the memory is in this process, until mr_forget (or import_unmap). If it was allocated
     * with WEIR_MR_LENT, its bytes stay as they are meanwhile, also when its owner has released it,
     * or is no more. *ordered_out: the owner's direct_order is a full barrier here, too, between
     * what is written there and what is read. NULL, as a pointer or as an answer: the processor
     * does not reach it. Only a device that has this has to know WEIR_MR_LENT. */
    void *(*import_address)(struct weir_device *device, const struct weir_rmr *rmr,
                            bool *ordered_out);

    /* RC QP in INIT: receives may be posted, nothing is sent. EFULL: there is no room for another
     * now, ENOMEM, EAGAIN: likewise, it is asked again. Any other error is told to the peer that
     * waits for it, and ends its attempt. */
    int (*qp_create)(struct weir_device *device, const struct weir_qp_options *options,
                     struct weir_qp_granted *granted_out, struct weir_qp **qp_out);
    /* INIT to RTR to RTS. May be called once. EINVAL for a bad blob, EDEVICE, EPEER. Errors that
     * may pass (endpoint_may_pass) and EDEVICE are tried again with other QPs, until the time is
     * over; any other error is told to the peer and ends its attempt, so it should say why.
     * EINPROGRESS: it would take long (to resolve a hardware address, say, or the other side's
     * device has to take events meanwhile, connected or not yet); CONNECTED comes later, once,
     * unless the QP is destroyed before, which may be EBUSY meanwhile. Nothing is posted to a QP
     * that is being connected but receives. */
    int (*qp_connect)(struct weir_qp *qp, const struct weir_qp_path *path);
    /* To the error state, from any state: everything posted flushes (but see `isolates`). */
    int (*qp_error)(struct weir_qp *qp);
    /* 0: gone; nothing of it touches memory any more, as far as its device can know (efa: see
     * docs/limits.md). EBUSY or EDEVICE: not yet; the QP is as it was, call again later. */
    int (*qp_destroy)(struct weir_qp *qp);

    /* Posts a chain with one doorbell. 0: all accepted. Otherwise the WR at index
     * post_out->accepted was refused: EAGAIN (no room now), EINVAL (this WR can
     * never be accepted), ESTALE (likewise: mr_is_gone of its memory over there), EDEVICE.
     * post_out is always written. In the error state posts are accepted and flush. */
    int (*post_send)(struct weir_qp *qp, const struct weir_wr *wrs, uint32_t count,
                     struct weir_post *post_out);
    /* completes_inline devices only, others execute none (0): executes plain reads or
     * writes of one pair of memories at once, straight from the application's segments,
     * whose bounds the caller has checked: segment i is length bytes between laddr +
     * local_offset and raddr + remote_offset; its handles are not read. Returns how
     * many, from the front, are complete. Fewer than count: nothing else happened, post
     * the next one with post_send, which says why. No CQE, no error state, no
     * notification comes of this call. */
    uint32_t (*post_pieces)(struct weir_qp *qp, const struct weir_span *span,
                            const weir_segment *segments, uint32_t count);
    /* NULL: the device's memory is not reached by processors of other processes. Writes parts and
     * words of `count` messages, one at least, to memory that the target allocated, and reads the
     * watch behind them; raddr and watch are multiples of 8. The caller answers for it that all of
     * each lies in `to`. At the target the first word of a message is seen behind all else of it,
     * and behind the messages in front of it. Either the read sees what the target wrote to the
     * watch, or the target, if it reads the words behind direct_order, sees them: one of the two at
     * least. Earlier work of this QP need not be there yet. A target that destroys its QP
     * waits for it as for any other access. 0: all is done, *watch_out was read. EAGAIN: nothing
     * was written; post_send says why. */
    int (*post_direct)(struct weir_qp *qp, const struct weir_direct_to *to,
                       const struct weir_direct *directs, uint32_t count, uint64_t *watch_out);
    /* With post_direct, to memory that it may write: reads so many words, the first before the
     * rest. Returns 0, or EAGAIN: not now. */
    int (*read_direct)(struct weir_qp *qp, uint32_t rkey, uint64_t raddr, uint64_t *words_out,
                       uint32_t count);
    /* With post_direct. A full barrier between what this process wrote before and reads after it,
     * and for peers between the words and the watch of each post_direct. Some microseconds. */
    void (*direct_order)(struct weir_device *device);
    /* One receive buffer, of at least recv_bytes_max bytes, which the device owns until
     * its CQE. qp NULL with srq. EINVAL: it can never be accepted; any other error: not now. */
    int (*post_recv)(struct weir_device *device, struct weir_qp *qp, uint64_t wr_id, void *buffer,
                     uint32_t length, uint32_t lkey);
    /* Up to max completions of any QP; returns how many, or EDEVICE. */
    int (*poll)(struct weir_device *device, struct weir_cqe *cqes_out, int max);
    /* Up to max events, copied and acknowledged; returns how many. */
    int (*events)(struct weir_device *device, struct weir_async *events_out, int max);

    /* Sleeping. fd: readable when there is something, after arm; -1: none (sim).
     * arm: 0, or EAGAIN when there is something to poll already. disarm after
     * waking: drains the descriptor. */
    int (*fd)(struct weir_device *device);
    int (*arm)(struct weir_device *device);
    void (*disarm)(struct weir_device *device);
    /* Whether accesses by peers took this process' calls since this was asked last, or wait for the
     * next poll: more of them may be on their way. Polls need not count. A system call; any thread.
     * NULL: this device moves their bytes by itself. */
    bool (*has_served)(struct weir_device *device);

    /* The process at the other end of the QP, which is connected, as this host numbers them; 0: it
     * has no number here. NULL, as process_is_stopped: this device never knows. */
    int64_t (*peer_process)(struct weir_qp *qp);
    /* Whether such a process is stopped, as by SIGSTOP or a debugger. A system call or two. */
    bool (*process_is_stopped)(int64_t process);
    /* Whether nothing can go by the link of this device, which is down. A system call. NULL: there
     * is none. */
    bool (*link_is_down)(struct weir_device *device);
    /* False: nothing is counted. A count that is not kept alone stays 0. Some system calls, of
     * which some drivers ask the device. NULL: it never counts. */
    bool (*counts)(struct weir_device *device, struct weir_device_counts *out);
    /* NULL: it meets nothing of the kind. */
    void (*tally)(struct weir_device *device, struct weir_device_tally *out);
};

/* ---- control channel --------------------------------------------------- */

/* Small messages over connections. A message is delivered whole or not at all;
 * any message may be lost, late, repeated or out of order (TCP does none of this
 * within one connection, but connections break). Connections are numbered; 0
 * names none; numbers do not repeat in practice. */

#define WEIR_CONTROL_MESSAGE_MAX 2048

enum weir_control_type {
    WEIR_CONTROL_ACCEPTED = 1, /* somebody dialled us */
    WEIR_CONTROL_CONNECTED,    /* our dial went through */
    WEIR_CONTROL_CLOSED,       /* broken, refused, hung up by the other side; number is dead */
    WEIR_CONTROL_MESSAGE,      /* valid until the next poll */
    WEIR_CONTROL_STARVED       /* a dialler cannot be let in, and waits in the backlog. Told once,
                                * until one is let in. Names no connection */
};
struct weir_control_event {
    uint64_t conn;
    uint32_t type;
    uint32_t length;
    const uint8_t *message;
    /* Of CLOSED. Of a dial that did not go through: EADDRESS: no such name; EPEER: refused,
     * nobody listens at any address of the name; EUNREACH: no route, or no name server answers;
     * EMFILE, ENOMEM; ECONNECT: anything else, silence above all.
     * Of a connection: EPEER: hung up; ECONNECT: broken, or silent for too long; ETOOBIG.
     * Of STARVED: EMFILE, ENOMEM. */
    int error;
};

/* The control channel's knowledge of the host at the other end of a connection. */
struct weir_control_look {
    bool silent;          /* something was sent that the host has not acknowledged, repeats of it
                           * neither; or it does not answer the dial */
    uint32_t retransmits; /* how often it was repeated, in a row */
};

struct weir_control_ops {
    /* 0 if dial would take this text, EADDRESS otherwise. Resolves nothing. Any thread. */
    int (*check)(void *self, const char *address);
    /* Whether this is the address of a host, and no name and no wildcard. Any thread. */
    bool (*numeric)(void *self, const char *address);
    /* Binds and listens; writes the address with its real port. */
    int (*listen)(void *self, const char *address, char *actual_out, size_t actual_size);
    /* Starts connecting; CONNECTED or CLOSED follows, unless it says at once EPEER: refused,
     * EUNREACH: no route, EMFILE, ENOMEM, or EFULL: connections. CLOSED says likewise. Sends before
     * CONNECTED are kept, as far as the connection's bounded buffer goes. */
    int (*dial)(void *self, const char *address, uint64_t *conn_out);
    /* EAGAIN: buffer full, message dropped; ECONNECT: no such connection. */
    int (*send)(void *self, uint64_t conn, const uint8_t *message, uint32_t length);
    /* Closes at once after what is buffered was tried; no CLOSED event follows. */
    void (*hangup)(void *self, uint64_t conn);
    /* The connection is a peer's. Until then one that was accepted is a visitor's: visitors have
     * a share of the connections at most, and the one that was silent for longest is closed when
     * another comes. */
    void (*keep)(void *self, uint64_t conn);
    /* Where the other side of a connection is, as a numeric host in the form that listen gives it,
     * without the port; "" if that is not known. */
    void (*from)(void *self, uint64_t conn, char *host_out, size_t size);
    /* One event; 1 or 0. */
    int (*poll)(void *self, struct weir_control_event *event_out);
    /* Readable when poll may have something; -1: none. */
    int (*fd)(void *self);
    /* False: there is no such connection, or nothing is known. NULL: nothing ever is. */
    bool (*look)(void *self, uint64_t conn, struct weir_control_look *look_out);
};

struct weir_control {
    const struct weir_control_ops *ops;
    void *self;
};

/* ---- sleeping ---------------------------------------------------------- */

/* Two ways to wait for the same sources: sleep, for the engine's threads, and a
 * descriptor, for the application. Each has a level of its own, so that taking back
 * what woke the one does not take it from the other. */
struct weir_wait_ops {
    int (*add)(void *self, int source_fd);
    /* Until a source is readable, or from wake to clear, or the time passed, or a handler of a
     * signal ran. Blocks. Any thread, several at once. In a simulation this is where the world runs
     * on; it must let virtual time pass. */
    void (*sleep)(void *self, uint64_t timeout_ns);
    /* Any thread, async-signal-safe. Wakes every sleeper; stays set until cleared. */
    void (*wake)(void *self);
    void (*clear)(void *self);
    /* A descriptor for poll(2) that is readable when any source is, or from raise to
     * lower; -1: none (sim). raise: any thread, async-signal-safe. */
    int (*fd)(void *self);
    void (*raise)(void *self);
    void (*lower)(void *self);
};

struct weir_wait {
    const struct weir_wait_ops *ops;
    void *self;
};

/* ---- together ---------------------------------------------------------- */

/* Where changes of state are recorded. */
struct weir_recorder_port {
    void *memory; /* zeroed, for a recorder (core/recorder.h) of peers_max names; others may read
                   * it. NULL: nothing is recorded */
    size_t bytes;
    int fd; /* of the memory */
    int64_t pid;
    uint64_t unix_now; /* seconds since 1970 */
};

/* A device that this engine has not open and could have, for peers to know. */
struct weir_other_device {
    const char *name; /* static storage */
    uint8_t fabric[WEIR_FABRIC_ID_SIZE];
    bool untried; /* perhaps; the fabric is not known */
};

enum { WEIR_OTHER_DEVICES_MAX = 7 };

struct weir_ports {
    struct weir_env env;
    struct weir_control control;
    struct weir_wait wait;
    const struct weir_device_ops *device_ops;
    struct weir_device *device;                              /* open */
    struct weir_other_device others[WEIR_OTHER_DEVICES_MAX]; /* the best one first */
    uint32_t other_count;
    struct weir_recorder_port recorder;
};

#endif
