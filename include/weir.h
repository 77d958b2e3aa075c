/* SPDX-License-Identifier: Apache-2.0 */
/* weir.h: the public interface of weir; what tools show of its settings is in weir_settings.h.
 *
 * It is long because each declaration has its contract beside it.
 *
 * weir moves bytes between registered memory of processes, on one host or
 * across a network, by one-sided reads and writes, with notifications, and by messages.
 *
 * Conventions that hold for every function here, unless its comment says
 * otherwise:
 *
 *  - Return value: 0 (WEIR_OK) or a negative WEIR_E* code. weir_strerror names
 *    a code; weir_error_class sorts it into one of three classes: try again,
 *    this transfer failed, this endpoint is gone. The comment of a function ends with all
 *    the codes it returns, but for EINVAL of a null pointer and ECLOSED of a forked child.
 *    Why each comes, and what to do then, says weir(3).
 *  - Threads: any thread may call any function on an engine at any time, except
 *    that nothing else may be running on the engine when weir_engine_close is
 *    called, nor start after it. Threads of the library block all signals, but those
 *    that a fault raises: SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP and SIGSYS. No call
 *    changes the disposition of a signal or raises one; SIGPIPE is not raised either,
 *    whatever a device or a peer does.
 *  - Blocking: a function does not block, unless its name ends in `_wait`, it takes a
 *    time-out, or WEIR_TRANSFER_BLOCK asks it to. But a function may run the engine's
 *    step, and on a device without DMA (shm) that copies bytes: there weir_write and
 *    weir_read copy in the thread that calls them, with WEIR_ENGINE_THREAD too, and take
 *    as long as the copy does; meanwhile no deadline is looked at and no cancel heard. An
 *    application that cannot wait so long cuts its transfers into pieces of a megabyte.
 *  - Ownership: pointers passed in are read during the call and never kept,
 *    except the base of registered memory, which must stay mapped until
 *    weir_memory_release has returned 0. `*_out` parameters are written only
 *    on success. A null pointer that may not be null is EINVAL.
 *  - Units: lengths and offsets in bytes, times in nanoseconds (`_ns`).
 *  - fork(2): a child has no engine of its parent's. A call with one that it finds does nothing and
 *    returns WEIR_ECLOSED, but weir_engine_close, which frees the child's memory of it and tells
 *    nobody. The parent goes on as if there were no child. See weir(3).
 *  - Handles (weir_memory, weir_remote, weir_peer, weir_transfer, weir_inbox) are values.
 *    A zeroed one names nothing; a zeroed transfer is one that is done. One used after its release
 * is WEIR_ESTALE, never undefined behaviour; ids do not repeat in practice.
 *  - Options structs carry their own size: set it with the _INIT macro; zero in
 *    any other field means its environment variable, where it has one that is set,
 *    or the default. A struct from an older weir.h works.
 */
#ifndef WEIR_H
#define WEIR_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define WEIR_API __attribute__((visibility("default")))
#else
#define WEIR_API
#endif

#define WEIR_VERSION_MAJOR 0
#define WEIR_VERSION_MINOR 1
#define WEIR_VERSION_PATCH 0

/* For the _INIT macros: a value that is all zero but for its size. */
#ifdef __cplusplus
extern "C++" {
template <typename T> inline T weir_sized() {
    T zeroed = T();
    zeroed.size = sizeof(T);
    return zeroed;
}
}
#define WEIR_SIZED(type) weir_sized<type>()
#else
#define WEIR_SIZED(type)                                                                           \
    { .size = sizeof(type) }
#endif

/* The library's version as "major.minor.patch"; static storage. */
WEIR_API const char *weir_version(void);

/* ---- errors ------------------------------------------------------------ */

/* X(name, value, class, text). Values are ABI: they are never reused. */
#define WEIR_ERRORS(X)                                                                             \
    X(WEIR_EAGAIN, -1, WEIR_CLASS_RETRY, "a bounded queue or pool is full; try again")             \
    X(WEIR_EINPROGRESS, -2, WEIR_CLASS_RETRY, "not finished yet")                                  \
    X(WEIR_ENOTREADY, -3, WEIR_CLASS_RETRY,                                                        \
      "not connected yet, or the peer has no such inbox or name")                                  \
    X(WEIR_EINVAL, -10, WEIR_CLASS_TRANSFER, "invalid argument")                                   \
    X(WEIR_EBOUNDS, -11, WEIR_CLASS_TRANSFER, "segment outside its memory")                        \
    X(WEIR_EACCESS, -12, WEIR_CLASS_TRANSFER, "access right missing")                              \
    X(WEIR_ESTALE, -13, WEIR_CLASS_TRANSFER, "handle or descriptor of what is gone, or closed")    \
    X(WEIR_ETIMEDOUT, -14, WEIR_CLASS_TRANSFER, "deadline passed")                                 \
    X(WEIR_ECANCELED, -15, WEIR_CLASS_TRANSFER, "canceled")                                        \
    X(WEIR_ENOMEM, -16, WEIR_CLASS_TRANSFER, "out of memory")                                      \
    X(WEIR_ENOTSUP, -17, WEIR_CLASS_TRANSFER,                                                      \
      "not supported by this device, or of a device that "                                         \
      "does not reach ours")                                                                       \
    X(WEIR_ETOOBIG, -18, WEIR_CLASS_TRANSFER, "over a stated limit")                               \
    X(WEIR_EBUSY, -19, WEIR_CLASS_TRANSFER, "still in use")                                        \
    X(WEIR_EUNKNOWN, -20, WEIR_CLASS_TRANSFER,                                                     \
      "outcome not known: the peer left, or was silent, before it could say")                      \
    X(WEIR_EREMOTE, -21, WEIR_CLASS_TRANSFER, "the target's device refused the operation")         \
    X(WEIR_EMFILE, -22, WEIR_CLASS_TRANSFER, "out of file descriptors")                            \
    X(WEIR_EMEMLOCK, -23, WEIR_CLASS_TRANSFER,                                                     \
      "RLIMIT_MEMLOCK (ulimit -l) does not allow to register so much memory")                      \
    X(WEIR_ECONNECT, -30, WEIR_CLASS_ENDPOINT, "no connection to the peer within the time-out")    \
    X(WEIR_EPEER, -31, WEIR_CLASS_ENDPOINT, "the peer is gone or was restarted")                   \
    X(WEIR_EREFUSED, -32, WEIR_CLASS_ENDPOINT, "the peer refused the connection")                  \
    X(WEIR_ECLOSED, -33, WEIR_CLASS_ENDPOINT,                                                      \
      "the engine or the peer handle was closed, or the engine is a parent process's")             \
    X(WEIR_EDEVICE, -34, WEIR_CLASS_ENDPOINT, "the device failed")                                 \
    X(WEIR_EADDRESS, -35, WEIR_CLASS_ENDPOINT,                                                     \
      "the address cannot be parsed, resolved or bound, or is a wildcard")                         \
    X(WEIR_ENODEVICE, -36, WEIR_CLASS_ENDPOINT, "no such device here")                             \
    X(WEIR_EFULL, -37, WEIR_CLASS_ENDPOINT, "no room for another peer: QPs, peers_max; or inbox")  \
    X(WEIR_EDENIED, -38, WEIR_CLASS_ENDPOINT,                                                      \
      "the system does not let the two processes share memory")                                    \
    X(WEIR_EUNREACH, -39, WEIR_CLASS_ENDPOINT,                                                     \
      "no route to the peer's address, or no name server answers")

typedef enum weir_class {
    WEIR_CLASS_OK = 0,
    WEIR_CLASS_RETRY = 1,    /* nothing happened; the same call may work later */
    WEIR_CLASS_TRANSFER = 2, /* this call or transfer failed, for what it was given; the engine and
                              * the peer go on. After ESTALE every other call with the same handle
                              * fails, too: with each import of a peer that died, say */
    WEIR_CLASS_ENDPOINT = 3  /* this peer, or the engine, cannot be used any more */
} weir_class;

enum {
    WEIR_OK = 0,
#define WEIR_ERRORS_X(name, value, class_, text) name = (value),
    WEIR_ERRORS(WEIR_ERRORS_X)
#undef WEIR_ERRORS_X
};

/* A short English sentence for any int; static storage, never null. */
WEIR_API const char *weir_strerror(int error);
/* The constant's own name, "WEIR_EAGAIN"; "WEIR_E?" for an unknown code. */
WEIR_API const char *weir_error_name(int error);
WEIR_API weir_class weir_error_class(int error);

/* ---- handles ----------------------------------------------------------- */

typedef struct weir_engine weir_engine;
typedef struct weir_memory {
    uint64_t id;
} weir_memory; /* local, registered */
typedef struct weir_remote {
    uint64_t id;
} weir_remote; /* a peer's memory, imported */
typedef struct weir_peer {
    uint64_t id;
} weir_peer; /* another engine */
typedef struct weir_transfer {
    uint64_t id;
} weir_transfer; /* id 0: already done */
typedef struct weir_inbox {
    uint64_t id;
} weir_inbox; /* where this engine takes messages */

/* ---- limits ------------------------------------------------------------ */

#define WEIR_ADDRESS_MAX      288  /* bytes of a "host:port" with its terminator */
#define WEIR_DESCRIPTOR_MAX   256  /* bytes of an exported memory descriptor */
#define WEIR_NOTIFY_MAX       256  /* bytes of a notification's payload */
#define WEIR_NAME_MAX         128  /* bytes of a published name with its terminator */
#define WEIR_VALUE_MAX        192  /* bytes of a published value */
#define WEIR_MESSAGE_COPY_MAX 192  /* bytes of a message that is copied when it is sent */
#define WEIR_INBOXES_MAX      64   /* inboxes of an engine, with those that were closed and last */
#define WEIR_LOANS_MAX        64   /* loans to one inbox of one peer at a time */
#define WEIR_QPS_MAX          16   /* QPs of one endpoint */
#define WEIR_DEVICE_NAME_MAX  32   /* bytes of a device name with its terminator */
#define WEIR_DEVICE_NOTE_MAX  128  /* bytes of a device's note with its terminator */
#define WEIR_OPEN_NOTE_MAX    384  /* bytes of why an engine did not open, with its terminator */
#define WEIR_REFUSAL_TEXT_MAX 384  /* bytes of why there is no session, with its terminator */
#define WEIR_STALL_TEXT_MAX   2560 /* bytes of a report about a stall, with its terminator */
#define WEIR_TRACE_MIN        2048 /* bytes that the text of a trace has room for, at least */

/* ---- engine ------------------------------------------------------------ */

/* The engine makes progress on a thread of its own: a short spin, then asleep. */
#define WEIR_ENGINE_THREAD 0x1u
/* One call at a time: the application sees to it, with one thread or a lock of its own
 * around all of them, weir_engine_wait included. A transfer that is done inside its
 * submit then costs no atomic read-modify-write. Two at once are undefined behaviour.
 * Not with WEIR_ENGINE_THREAD. */
#define WEIR_ENGINE_SERIAL 0x2u

typedef struct weir_engine_options {
    size_t size;
    /* "shm" (default), "verbs", "efa", "ofi"; "auto": the first of verbs, efa, ofi, shm that can be
     * used. Behind a colon the NIC: "verbs:mlx5_0" or "verbs:mlx5_0/2" with its port; "efa:DOMAIN"
     * or "efa:DOMAIN/FABRIC"; "ofi:eth0" or "ofi:eth0/10.0.0.1" with the address there;
     * "shm:/run/weir", the directory where engines meet. It goes before the environment, of which
     * the variables of these parts are not looked at then. Each engine of a process may have
     * another one. */
    const char *device;
    /* Where peers reach this engine: "host:port", "[v6]:port", port 0 for any free
     * one. NULL: 127.0.0.1:0. "none": no listener; peers then cannot open this
     * engine, but answer over the connections that it makes. */
    const char *listen;
    uint32_t flags;         /* WEIR_ENGINE_* */
    uint32_t transfers_max; /* live transfer handles; default 4,096, at most 1,048,575 */
    uint32_t segments_max;  /* segments held for unfinished transfers, but for the first five of
                             * each, in blocks of five; default 262,144, at most 268,435,456 */
    uint32_t peers_max;     /* default 1,024, at most 65,535; a quarter is kept for peers that the
                             * application opens */
    uint32_t memories_max;  /* local memories; default 4,096, at most 65,535 */
    uint32_t remotes_max;   /* imported memories; default 65,536, at most 1,048,576 */
    uint32_t qp_count;      /* QPs an endpoint; a session has the smaller number of both
                             * sides; default 1, at most WEIR_QPS_MAX */
    uint32_t sq_depth;      /* send-queue depth asked of the device; default 256, 2..65,536 */
    uint32_t chain_max;     /* WRs posted with one doorbell, never more than a quarter of the
                             * depth; default and most 512, what is above it is cut */
    uint32_t recv_credits;  /* notifications a peer may have in flight on a QP; a session has the
                             * smaller number of both sides; at most 512 / qp_count; default 64, or
                             * that if it is less */
    uint32_t notifications_max; /* received and not yet taken; default 4,096, at most 1,048,576 */
    /* Times are an hour at most. */
    uint64_t connect_timeout_ns;  /* to connect; for the peer to say what arrived on a broken
                                   * session, before EUNKNOWN; and for a device that refuses a
                                   * session's receives to take some, before that session is
                                   * broken; default 10 s. A tenth of it at most counts between
                                   * two looks at what came */
    uint64_t retransmit_ns;       /* least pause before a control message is said again;
                                   * default 20 ms */
    uint64_t teardown_timeout_ns; /* then a QP that completes nothing any more is torn down by
                                   * force, and weir_engine_close ends; default 4 s */
    uint64_t settle_grace_ns;     /* for posted WRs of a cancelled or late transfer to complete,
                                   * before their QPs are taken down; default 100 ms; not on efa */
    uint64_t backoff_timeout_ns;  /* WEIR_TRANSFER_BLOCK waits at most this; default 10 ms */
    uint32_t signal_interval;     /* a chain's last WR is signalled when so many, it among them,
                                   * were posted to its QP since the last signalled one; 1: every
                                   * chain's, 1..65,536. Default, and always: before what is
                                   * unsignalled at the tail is over a quarter of the queue */
    uint32_t inline_bytes;        /* payload copied into the WR, asked of the device, which may
                                   * take less; at most 4,096, WEIR_INLINE_NONE: none; default:
                                   * the device's choice */
    uint32_t cq_depth;            /* entries asked of the device for each CQ; there are as many
                                   * as the QPs need. A device
                                   * that has no CQ ignores it. At most 4,194,304, at least
                                   * 4 * qp_count * the larger of sq_depth and recv_credits + 20,
                                   * which is what the QPs of one endpoint need; default: the
                                   * device's choice */
    uint32_t poll_budget;         /* completions taken in a round of progress, and up to 18 times
                                   * as many in one where a deadline is due; default 256, at most
                                   * 65,536 */
    uint64_t inflight_bytes_max;  /* payload of reads and writes posted and not yet accounted for,
                                   * to all peers together; one work request that is longer goes
                                   * by itself; default 256 MiB, at most 64 GiB */
    uint64_t stall_timeout_ns;    /* a QP whose oldest posted work is not accounted for in this
                                   * time, and 1 us for each byte in flight on any QP, is given up
                                   * as one whose target does not answer; default 10 s */
    uint64_t watchdog_ns;         /* STALLED is told of a peer when work for it is outstanding, and
                                   * none of that has completed for so long; default 1 s;
                                   * WEIR_WATCHDOG_NONE: never */
    /* The address at which peers reach this engine, where that is another than `listen` says: of an
     * engine that listens at all addresses (0.0.0.0), or behind an address translation. "host",
     * with the port at which it listens, or "host:port". weir_engine_address returns it, and peers
     * are told it, if the host is numeric: nobody looks up names that others tell. It is not tried.
     * NULL: none. */
    const char *advertise;
    uint32_t names_max; /* names published, and as many of peers' that are kept here;
                         * default 4,096, at most 65,535 */
} weir_engine_options;
#define WEIR_ENGINE_OPTIONS_INIT WEIR_SIZED(weir_engine_options)

#define WEIR_INLINE_NONE         UINT32_MAX /* inline_bytes: no payload is copied into the WR */
#define WEIR_WATCHDOG_NONE       UINT64_MAX /* watchdog_ns: nobody watches */

/* Opens a device, takes all the memory that the limits call for, listens.
 * options may be NULL. A number that is 0 in them is taken from its environment variable,
 * if that is set, and is the default if not: weir_setting_query lists them all. Blocks for
 * name resolution of `listen`. weir_open_explain tells the reason of an error. Errors: EINVAL (a
 * number out of range, in the options or in the environment; a flag; a device's own variable),
 * ENODEVICE, EADDRESS (of `listen`, or `advertise`), EMFILE, ENOMEM, EMEMLOCK (the engine's own
 * messages, which grow with peers_max, qp_count and recv_credits, may not be registered), EDEVICE.
 */
WEIR_API int weir_engine_open(const weir_engine_options *options, weir_engine **engine_out);

/* Says, in an English sentence without a full stop, why weir_engine_open with these options (NULL
 * for none) returned `error`: which setting is refused and what it may be, what keeps the device
 * from being used, why nobody can listen at the address, which limit of the process is too small.
 * Nothing was kept of the failed call: the reason is looked for again in the options, in the
 * environment and in the system, so ask before any of them changes. Blocks for name resolution of
 * `listen`. Needs no engine. A sentence that is longer than note_size is cut; WEIR_OPEN_NOTE_MAX
 * bytes hold any. Errors: EINVAL (note_size is 0, or `error` not negative). */
WEIR_API int weir_open_explain(const weir_engine_options *options, int error, char *note_out,
                               size_t note_size);

/* Ends every transfer with a status (ECLOSED if nothing else came first), tells
 * the peers, tears down, frees. Blocks: under one second on a healthy device, else for
 * teardown_timeout_ns and a second more. Memory from weir_memory_allocate is unmapped. QPs that
 * the device does not let go of in that time, as one that is being connected to a host
 * that does not answer, are freed later by a thread of the library; nobody reaches the
 * application's memory by them. NULL is allowed. In a child of
 * fork(2) it frees memory, and does nothing else. */
WEIR_API void weir_engine_close(weir_engine *engine);

/* Does what there is to do now, without sleeping. Returns how many things it did
 * (0: idle; the number has no other meaning). If another
 * thread has the engine, returns 0: that thread does the work. Any time may pass between two
 * calls: all that was acknowledged to peers is delivered, and all that came is looked at before
 * any deadline passes. With one call a second on both sides connecting, recovering and ending take
 * connect_timeout_ns at most. No time between two calls counts for more than a tenth of that.
 * Errors: EDEVICE (it is idle, and the device failed and was given back). */
WEIR_API int weir_engine_progress(weir_engine *engine);

/* Progress, at least one round of it, until something was done, or messages, notifications or
 * completions wait to be taken, or timeout_ns has passed (UINT64_MAX: no limit); asleep
 * when there is nothing to do. Events that wait do not count: take them, too, after each return.
 * Blocks. Errors: EINPROGRESS (the time passed), EDEVICE (at once: there is nothing more to do,
 * as the device failed and was given back). */
WEIR_API int weir_engine_wait(weir_engine *engine, uint64_t timeout_ns);

/* A descriptor for the caller's own poll or epoll loop: readable when the engine
 * has something to do, once armed. The engine owns it. Errors: none. */
WEIR_API int weir_engine_fd(const weir_engine *engine);

/* Before sleeping on the descriptor. 0: the descriptor is armed, and *timeout_ns_out holds
 * after how long progress must be called even if nothing arrives (UINT64_MAX: never).
 * After waking, call weir_engine_progress, which disarms; progress of another thread wakes, too.
 * One thread at a time. WEIR_ENGINE_THREAD may be set. Errors: EAGAIN (do not sleep, but make
 * progress and take everything that can be taken: the engine has work now, or notifications,
 * completions or messages wait to be taken, or something was done since the last call of this
 * function, by another thread, say, or inside a submit). */
WEIR_API int weir_engine_arm(weir_engine *engine, uint64_t *timeout_ns_out);

/* Copies an address that peers can open, with its terminator: `advertise` of the options with its
 * port, or else where the engine listens. If that is
 * all addresses of this host (0.0.0.0 or [::]), one of them is named, as they were when the engine
 * was opened: the one that packets to the rest of the network leave with, or else that of an
 * interface that is up, or else the loopback's. A host in several networks has other addresses
 * that lead to the engine as well; an application whose peers need one of these names it in
 * `advertise`. Errors: ETOOBIG (address_size too small, or no address_out), ENOTSUP (no
 * listener). */
WEIR_API int weir_engine_address(const weir_engine *engine, char *address_out, size_t address_size);

/* ---- memory ------------------------------------------------------------ */

#define WEIR_ACCESS_REMOTE_READ  0x1u
#define WEIR_ACCESS_REMOTE_WRITE 0x2u
#define WEIR_ACCESS_ALL          0x3u

/* Registers length bytes at base, the caller's own memory. access: the rights that peers
 * have to it; 0 keeps it local (a source of writes, a destination of reads).
 * On shm any range is registered, mapped or not; using what is not mapped, or not with the
 * protection that the transfer needs, ends the transfer (EREMOTE, EINVAL) and breaks its
 * session, or is a SIGSEGV in the caller. On ofi it must be mapped, and stay so, with the
 * protection that peers need: else a peer's write may be a SIGSEGV here, and its read does not
 * end. On verbs and efa the memory is pinned, which takes time with its size, and must be
 * mapped; for private memory and shared memory that is readable and writable that is enough, and
 * of other mappings kernels differ: see weir(3).
 * Errors: EINVAL (null base, zero length, wrapping range, unknown access bits; not mapped, but
 * on shm), EAGAIN (memories_max), ENOMEM, EMEMLOCK (verbs, without CAP_IPC_LOCK: all that a process
 * has registered is at most its RLIMIT_MEMLOCK), EDEVICE. */
WEIR_API int weir_memory_register(weir_engine *engine, void *base, uint64_t length, uint32_t access,
                                  weir_memory *memory_out);

/* Allocates and registers zeroed, page-aligned memory that is fastest to share
 * (on shm: mapped by the peer). All of its pages are backed before the call returns, used
 * or not, which takes time with its size; memory that is to be backed as it is used is the
 * application's own, registered. Meanwhile other calls may use the engine, as while memory
 * is released or registered. The engine owns it until weir_memory_release. A
 * child of fork(2) does not have it: touching it there is a SIGSEGV. On shm it holds a file
 * descriptor, but with access 0 none.
 * Errors: as weir_memory_register, of which ENOMEM also for more than the machine has left;
 * EMFILE. */
WEIR_API int weir_memory_allocate(weir_engine *engine, uint64_t length, uint32_t access,
                                  weir_memory *memory_out, void **base_out);

/* Registers length bytes at offset of a dma-buf, memory of another device (a GPU's, say)
 * that this process may not have mapped. In transfers, and for the device, its addresses
 * begin at iova, whose offset in a page must be that of `offset`. fd may be closed
 * afterwards. Errors: as weir_memory_register; EINVAL also for a descriptor that is not
 * open or no dma-buf, a range that is not in it, or an iova that does not match; ENOTSUP
 * (the device, its driver or the kernel cannot). */
WEIR_API int weir_memory_register_dmabuf(weir_engine *engine, int fd, uint64_t offset,
                                         uint64_t length, uint64_t iova, uint32_t access,
                                         weir_memory *memory_out);

/* No peer touches the memory once this has returned 0; allocated memory is
 * unmapped. After EINPROGRESS and EDEVICE the release has begun: peers are refused from now on,
 * the memory stays mapped, and the handle is good for this call alone, which may be made again
 * until it is 0. Errors: EBUSY (a transfer of this engine that is not terminal uses it: nothing
 * has happened, cancel or wait first), EINPROGRESS (a peer that does not get on, stopped, say,
 * is still inside an access; on shm 100 ms are waited for each, and nobody else is kept), EDEVICE
 * (the device could not do it), ESTALE (also while another thread is in this call). */
WEIR_API int weir_memory_release(weir_engine *engine, weir_memory memory);

/* Base and length of a memory; either out pointer may be NULL. Errors: ESTALE. */
WEIR_API int weir_memory_query(weir_engine *engine, weir_memory memory, void **base_out,
                               uint64_t *length_out);

/* Writes a descriptor of at most WEIR_DESCRIPTOR_MAX bytes that a peer can
 * import, to be carried to it by any means. *length: in, the size of the buffer;
 * out, the bytes written. Errors: ETOOBIG, ESTALE, EACCESS (registered with
 * access 0), EDEVICE (it failed, and has taken the memory back). */
WEIR_API int weir_memory_export(weir_engine *engine, weir_memory memory, void *descriptor_out,
                                size_t *length);

/* Makes a peer's memory usable in transfers to that peer. On shm this maps it, which takes time
 * with its size. Errors: EINVAL (no descriptor, damaged, another version's), ESTALE (from another
 * incarnation of the peer; the peer handle is stale; on shm: the peer has released it), EPEER (shm:
 * the process that exported it is dead, or closed its engine), EAGAIN (remotes_max; or that process
 * has not answered for 1 s, of which this call kept the engine for 5 ms: it answers by itself
 * unless it is stopped), EMFILE, ENOTSUP (of a device that this engine does not have or
 * meet), EDENIED (another user's, or registered memory out of reach), ENOMEM, EDEVICE. */
WEIR_API int weir_memory_import(weir_engine *engine, weir_peer peer, const void *descriptor,
                                size_t length, weir_remote *remote_out);

/* Gives an imported memory back. Errors: EBUSY (an unfinished transfer uses it), ESTALE. */
WEIR_API int weir_remote_release(weir_engine *engine, weir_remote remote);

/* Length and access rights of an imported memory; either may be NULL. Errors: ESTALE. */
WEIR_API int weir_remote_query(weir_engine *engine, weir_remote remote, uint64_t *length_out,
                               uint32_t *access_out);

/* ---- names ------------------------------------------------------------- */

/* An engine publishes memories and small values under names, and its peers look them up: no
 * descriptor has to be carried. A name is text of 1 to WEIR_NAME_MAX - 1 bytes, and means nothing
 * to weir. Peers hear of changes while there is a session: soon, in any order, and of several
 * changes of one name perhaps of the last only. Names are for what lasts; for what comes and goes
 * by the thousand in a second there are messages. A process that reaches this engine's address can
 * list its names, read its values, and use its memories with the rights that these were registered
 * with.
 */

/* The name is of this memory from now on, whatever it was of before. A release of the memory that
 * has begun withdraws its names. Errors: EINVAL (no name), ESTALE, EACCESS (registered with access
 * 0), EAGAIN (names_max). */
WEIR_API int weir_memory_publish(weir_engine *engine, weir_memory memory, const char *name);

/* The name is of a copy of these bytes from now on, WEIR_VALUE_MAX at most; value may be NULL for
 * none. The same bytes again are no change. Errors: EINVAL (no name), ETOOBIG, EAGAIN (names_max).
 */
WEIR_API int weir_value_publish(weir_engine *engine, const char *name, const void *value,
                                size_t length);

/* There is nothing of this name any more. The memory stays, and imports of it that were opened by
 * the name are stale as soon as their engines hear of it. Errors: EINVAL, ESTALE (there was
 * nothing). */
WEIR_API int weir_name_withdraw(weir_engine *engine, const char *name);

/* Asks the peer for the memory of this name, and imports it as weir_memory_import does. Connects,
 * if there is no session. Blocks until there is an answer, and something of this name, or
 * timeout_ns has passed (UINT64_MAX: no limit), and makes progress meanwhile; with 0 it does not
 * wait for the peer to answer, and WEIR_EVENT_NAME tells when to call again. The import behind the
 * answer takes as long as weir_memory_import, whatever timeout_ns is: on shm, where the process
 * that owns the memory is stopped, 1 s, and is EAGAIN. Each call is another import. Once the name
 * is of another memory, or of none, the import is stale: transfers with it are ESTALE, it is still
 * to be released, WEIR_EVENT_NAME tells, and another call opens what the name is of then. Errors:
 * EINVAL (no name), ENOTREADY (there is no answer yet, or nothing of this name), EACCESS (it is of
 * a value), EAGAIN (names_max, all of them in use; the name became another one during each import;
 * or as weir_memory_import), ESTALE (the peer handle); while it waits, why the peer was not reached
 * or is gone: EPEER, ECONNECT, EREFUSED, EADDRESS, EUNREACH, EFULL, ECLOSED, EMFILE, ENOMEM; and of
 * the import EPEER, EMFILE, ENOTSUP, EDENIED, ENOMEM, EDEVICE. */
WEIR_API int weir_remote_open(weir_engine *engine, weir_peer peer, const char *name,
                              uint64_t timeout_ns, weir_remote *remote_out);

/* Likewise, of a value. *length: in, the size of the buffer; out, the bytes written, WEIR_VALUE_MAX
 * at most. A value that was asked for is kept, and later calls answer at once with what this engine
 * has heard last. Errors: EINVAL, ENOTREADY, EACCESS (it is of a memory), ETOOBIG (the buffer is
 * too small), EAGAIN (names_max), ESTALE; why the peer was not reached or is gone: EPEER, ECONNECT,
 * EREFUSED, EADDRESS, EUNREACH, EFULL, ECLOSED, EMFILE, ENOMEM. */
WEIR_API int weir_peer_value(weir_engine *engine, weir_peer peer, const char *name,
                             uint64_t timeout_ns, void *value_out, size_t *length);

typedef enum weir_name_kind { WEIR_NAME_OF_MEMORY = 1, WEIR_NAME_OF_VALUE = 2 } weir_name_kind;
typedef struct weir_name_info {
    size_t size;
    uint64_t length; /* bytes of the memory or value */
    uint32_t kind;   /* weir_name_kind */
    char name[WEIR_NAME_MAX];
} weir_name_info;
#define WEIR_NAME_INFO_INIT WEIR_SIZED(weir_name_info)
/* The peer's names, one a call, in no order: *position is 0 for the first, and set for the next.
 * One that is published or withdrawn meanwhile is told or not. Waits as weir_peer_value does.
 * Errors: EINVAL (also past the last), ENOTREADY, EAGAIN, ESTALE; why the peer was not reached or
 * is gone: EPEER, ECONNECT, EREFUSED, EADDRESS, EUNREACH, EFULL, ECLOSED, EMFILE, ENOMEM. */
WEIR_API int weir_peer_name(weir_engine *engine, weir_peer peer, uint64_t *position,
                            uint64_t timeout_ns, weir_name_info *info);

/* A name as events tell it: never 0. 0: NULL, or no text that a name can be. */
WEIR_API uint64_t weir_name_hash(const char *name);

/* ---- peers ------------------------------------------------------------- */

/* Names another engine by its address. Does not connect: the first transfer,
 * from either side, does. The same address gives the same peer, with one more
 * reference; so does the address that a peer which connected by itself says is its
 * own, as text, if its connection came from that host. The engine dials that address: until
 * the peer answers there, the dial is refused, or a quarter of connect_timeout_ns is over,
 * transfers to the peer wait (WEIR_WAITING_CONNECTION). If another engine answers, the peer is
 * GONE, also when the handle was closed meanwhile; a handle that is still
 * open names that engine. Opened under another name than it says, a peer may get a second handle:
 * WEIR_EVENT_SAME. A numeric host is parsed at once; a name is resolved when it is dialled. Errors:
 * EINVAL (empty), EADDRESS (a wildcard, too), EAGAIN (peers_max). */
WEIR_API int weir_peer_open(weir_engine *engine, const char *address, weir_peer *peer_out);

/* This engine itself, as a peer: transfers to its own memory, notifications and messages to its own
 * application, with the statuses and in the order of those to any other peer. The processor copies
 * them, in the calls that make progress; no device and no network has a part in it, so it works on
 * every device, and without a listener. Descriptors of the engine itself are imported with this
 * handle, which is the same each time, is good until the engine is closed, and is not to be closed;
 * UP is told with the first of these calls. weir_peer_open of the address at which the engine
 * listens gives the same handle, with a reference to give back; opened under another name that
 * leads here, or as it is advertised, it becomes the same peer by WEIR_EVENT_SAME. Errors: EAGAIN
 * (peers_max).
 */
WEIR_API int weir_peer_self(weir_engine *engine, weir_peer *peer_out);

/* Gives one reference back. The last one ends the peer's unfinished transfers with ECLOSED, and
 * the handle. Of those that the device has, as after weir_transfer_cancel, each ends when the
 * device has given it back, or with EUNKNOWN after connect_timeout_ns. Memory that was imported of
 * it is of no use any more, and still to be released. The peer stays connected, for its own
 * transfers to us, until it leaves or its place is needed: then its transfers to us end with
 * EPEER. Its notifications come under another handle from then on, of which UP tells before the
 * first, or when it is opened again while it is connected. A first one that is found only after
 * the peer's end brings UP and GONE. A peer that connected by itself has no reference: opened and
 * closed, it goes on with its handle, its memories and its transfers, until it is GONE. Errors:
 * ESTALE. */
WEIR_API int weir_peer_close(weir_engine *engine, weir_peer peer);

/* Starts connecting without a transfer. An address where nobody answers is dialled again
 * after 20 ms, which doubles to 0.64 s, or a quarter of connect_timeout_ns, until that is over. 0:
 * connected, or UP was told: if that was of data alone, and no session comes, GONE is. Errors:
 * ENOTREADY (under way: UP, RECOVERED, SAME or GONE tells), ECONNECT (it has no address), ESTALE.
 */
WEIR_API int weir_peer_connect(weir_engine *engine, weir_peer peer);

typedef struct weir_peer_info {
    size_t size;
    char address[WEIR_ADDRESS_MAX]; /* "" when the peer has no listener */
    uint8_t instance[16];           /* the peer's random id; zeros until first met */
    uint32_t connected;             /* 1: a session is up */
    uint32_t qp_count;              /* granted; 0 when not connected */
    uint32_t sq_depth;              /* slots of each QP, granted, without the beacon's */
    uint32_t sq_used;               /* slots taken now, all QPs */
    uint32_t sq_high_water;         /* most slots ever taken on one QP of this session */
    uint32_t pending;               /* transfers that wait to be posted */
    uint64_t sessions;              /* sessions that reached up, ever */
    int refusal;                    /* why the peer refused the session that was wanted last, or
                                     * does now, while it is asked again: a WEIR_E* code of its
                                     * own; EREFUSED: the devices differ, or do not meet; ECONNECT:
                                     * its device does not reach ours. 0: it did not.
                                     * weir_refusal_text says more */
    uint32_t reserved;
    weir_peer peer; /* the handle that events and notifications of this peer carry */
} weir_peer_info;
#define WEIR_PEER_INFO_INIT WEIR_SIZED(weir_peer_info)
/* Describes the peer as the engine knows it. Control messages, which say that a session is up
 * or gone, are looked at in each 64th step, in one that comes 10 ms or more after the last of
 * those, and before each sleep: a notification of a session may be there to take while `connected`
 * is still 0. Errors: ESTALE. */
WEIR_API int weir_peer_query(weir_engine *engine, weir_peer peer, weir_peer_info *info);

/* Why there is no session with the peer, for a person: an English sentence without a full stop;
 * "": nothing is known, or there is one. Where the devices differ, or do not meet, it names both,
 * and one that both hosts could use, if there is any, whoever its users are: that one may be
 * probed for it, which blocks for as long as weir_device_query. It says so, too, where the peer
 * speaks another version of the protocol, where nobody listens at its address, or no engine has
 * answered there. The peer of the last WEIR_EVENT_REFUSED with EREFUSED may be gone already. After
 * a weir_memory_import that was ENOTSUP it says why, until another peer is refused. A text that is
 * longer than text_size is cut; WEIR_REFUSAL_TEXT_MAX bytes hold any. Errors: EINVAL (text_size is
 * 0), ESTALE. */
WEIR_API int weir_refusal_text(weir_engine *engine, weir_peer peer, char *text_out,
                               size_t text_size);

/* One QP of a peer's session, and how the peer's transfers fared. Counters of the QP begin
 * with its session. */
typedef struct weir_qp_info {
    size_t size;
    uint32_t sq_depth;       /* slots, granted, without the beacon's; 0: no session is up */
    uint32_t sq_used;        /* slots taken now */
    uint32_t sq_high_water;  /* most slots ever taken */
    uint32_t pending;        /* of the peer: transfers that wait to be posted */
    uint64_t bytes;          /* of reads and writes posted; not of what was done in its post */
    uint64_t inflight_bytes; /* of them: not accounted for yet */
    uint64_t partial_posts;  /* posts of which the device took only a part */
    uint64_t orphans;        /* work requests left without a signalled tail by those */
    /* Of the peer since it was opened or met, all QPs and sessions together: */
    uint64_t sessions;          /* that reached up */
    uint64_t recoveries;        /* of these: took the place of one that broke */
    uint64_t replays;           /* transfers started again on a new session */
    uint64_t admission_waits;   /* times that a transfer had to wait for slots */
    uint64_t admission_wait_ns; /* time that something waited for slots */
    uint64_t inflight_waits;    /* times that transfers had to wait for bytes in flight */
    uint64_t inflight_wait_ns;  /* time that something waited for them */
} weir_qp_info;
#define WEIR_QP_INFO_INIT WEIR_SIZED(weir_qp_info)
/* Describes the index-th QP of the peer's session. Without a session there is a QP 0 all the
 * same, with nothing but what is of the peer. Errors: EINVAL (past the last), ESTALE. */
WEIR_API int weir_qp_query(weir_engine *engine, weir_peer peer, size_t index, weir_qp_info *info);

/* ---- transfers --------------------------------------------------------- */

/* One piece: length bytes between local memory and the peer's. 64-bit lengths
 * are split to what the device takes. Zero length is allowed and moves nothing;
 * its offsets must still lie inside [0, memory length]. */
typedef struct weir_segment {
    weir_memory local;
    weir_remote remote;
    uint64_t local_offset;
    uint64_t remote_offset;
    uint64_t length;
} weir_segment;

/* Send a notification to the target once all of the data is visible there. Notifications have no
 * order among each other, also those that one thread sends to one peer: a long transfer's comes
 * behind that of a short one submitted later, several QPs carry them, a submit that had to be
 * handed to the thread that has the engine can be passed by the next, and what was under way on a
 * session that broke is sent again. For an order, count in notify_tag, and sort at the target; or
 * submit the next when the target has answered the last. */
#define WEIR_TRANSFER_NOTIFY 0x1u
/* Report the end of the transfer through weir_completion_take, and release the
 * handle by itself then: it is ESTALE once the transfer has ended, for
 * weir_transfer_wait too. It may end inside the submit call: the completion tells. */
#define WEIR_TRANSFER_QUEUE 0x2u
/* When the pools are full, wait up to backoff_timeout_ns before EAGAIN: progress for 20 us,
 * then sleeps of 40 us to 4 ms between looks, each up to 3 times the last, which end when anything
 * is done or another thread makes room. */
#define WEIR_TRANSFER_BLOCK 0x4u
/* Must not be replayed on a new session: if its session breaks with WRs posted,
 * the status is EUNKNOWN. */
#define WEIR_TRANSFER_ONCE 0x8u
/* Of a message alone: must not wait for an inbox that is not there: ENOTREADY as soon as the peer
 * says so. */
#define WEIR_TRANSFER_NO_WAIT 0x10u
/* Of a message alone: as NO_WAIT, and must not wait for room in the inbox either: EAGAIN as soon as
 * the peer says that there is none, which takes a session and an answer. */
#define WEIR_TRANSFER_NOW 0x20u

typedef struct weir_transfer_options {
    size_t size;
    uint32_t flags;         /* WEIR_TRANSFER_* */
    uint32_t notify_length; /* of payload, 0..WEIR_NOTIFY_MAX; these three only with NOTIFY */
    uint64_t notify_tag;    /* the application's own 64 bits */
    const void *notify_payload;
    uint64_t timeout_ns; /* deadline from when it is accepted, so behind the wait of
                          * WEIR_TRANSFER_BLOCK; 0: none. See weir_transfer_cancel */
    uint64_t user_data;  /* comes back in weir_completion */
} weir_transfer_options;
#define WEIR_TRANSFER_OPTIONS_INIT WEIR_SIZED(weir_transfer_options)

/* Submits one transfer of segment_count segments, any of the peer's remote
 * memories and any local ones among them. Order between segments is undefined.
 * segment_count may be 0 if there is a notification. The segments, options and
 * payload are copied; the bytes themselves must stay as they are (write) or
 * unread (read) until the status is terminal.
 *
 * 0 with transfer_out->id == 0: done, successfully, before the call returned;
 * there is no handle to release. 0 with another id: under way, or done already. transfer_out
 * may be NULL with WEIR_TRANSFER_QUEUE. An error: nothing was or will be posted.
 * Errors: EBOUNDS, EACCESS, ESTALE (the handle of the peer or of a segment's memory, or
 * memory of an incarnation of the peer that is gone: weir_peer_query, weir_memory_query and
 * weir_remote_query tell the former; for the latter import what its successor exports, the
 * peer handle stays good; on shm also memory that the peer has released, which is seen here),
 * EINVAL (also memory of another peer), ETOOBIG (more segments than segments_max, a payload over
 * WEIR_NOTIFY_MAX), EAGAIN (a pool is full; weir_engine_info counts which).
 * Statuses: ETIMEDOUT, ECANCELED, ECLOSED, ECONNECT, EUNREACH, EADDRESS, EREFUSED (weir_peer_query
 * says why), EFULL, ENOMEM and EMFILE (no session within connect_timeout_ns, for want of room
 * here), EPEER (the peer died or closed meanwhile), ESTALE (memory of an earlier incarnation of
 * it; on shm also: which it has released, as was seen before the rest was begun), EUNKNOWN,
 * EREMOTE, ETOOBIG (the device found it too long), EDEVICE (session after session broke under it),
 * EINVAL (the device found fault with local memory). */
WEIR_API int weir_write(weir_engine *engine, weir_peer peer, const weir_segment *segments,
                        size_t segment_count, const weir_transfer_options *options,
                        weir_transfer *transfer_out);
/* The same, from the peer's memory into local memory. A notification tells the
 * target that its memory has been read. Errors: as weir_write. */
WEIR_API int weir_read(weir_engine *engine, weir_peer peer, const weir_segment *segments,
                       size_t segment_count, const weir_transfer_options *options,
                       weir_transfer *transfer_out);

/* The terminal status: 0 or one of weir_write's. It is
 * reached once and never changes. Terminal means quiesced: no device touches
 * the buffers on either side any more; after EUNKNOWN, EPEER and ECLOSED, those on this side: the
 * peer did not say that its side is through. Makes no progress. Errors: EINPROGRESS (it has none
 * yet), ESTALE (after release; an id 0 is always done: 0). */
WEIR_API int weir_transfer_status(weir_engine *engine, weir_transfer transfer);

/* Makes progress until the transfer is terminal or timeout_ns has passed; spins
 * shortly, then sleeps. Blocks. Of a transfer that is terminal already it does not, and one in 64
 * such calls makes progress. Returns the terminal status. Errors: EINPROGRESS (the time passed: the
 * transfer goes on), ESTALE. */
WEIR_API int weir_transfer_wait(weir_engine *engine, weir_transfer transfer, uint64_t timeout_ns);

/* Asks for an early end. The status becomes ECANCELED (or what it was already
 * going to be) as soon as no device can touch the buffers. Does not wait for a
 * thread that has the engine. 0, also when it is terminal already.
 * After ECANCELED or ETIMEDOUT any part of the bytes may be in place, all of them too, no more of
 * them will be, and the notification, or the message, did not come and will not. If work that was
 * posted had to be stopped and the peer is silent about it for connect_timeout_ns, it is EUNKNOWN
 * instead: bytes and notification may come, when a peer that was stopped goes on, say.
 * Errors: ESTALE. */
WEIR_API int weir_transfer_cancel(weir_engine *engine, weir_transfer transfer);

/* Gives the handle back, at any time. A transfer under way goes on, unobserved. Errors:
 * ESTALE. */
WEIR_API int weir_transfer_release(weir_engine *engine, weir_transfer transfer);

/* Makes progress, as weir_transfer_wait does, until all reads, writes and messages that were
 * submitted to the peer before this call are terminal, with whatever status, or timeout_ns has
 * passed (0: it looks, and does not sleep; UINT64_MAX: no limit). Handles that were released count,
 * and those of WEIR_TRANSFER_QUEUE, whose completions can be taken then. A transfer that
 * is submitted meanwhile, by any thread, is not waited for. Where nothing is under way it costs the
 * look at a count, else one at each of transfers_max records at most. A loan that was not sent is
 * not waited for. Blocks. Errors: EINPROGRESS (the time passed: all goes on), ESTALE (also when the
 * handle is closed meanwhile). */
WEIR_API int weir_peer_flush(weir_engine *engine, weir_peer peer, uint64_t timeout_ns);
/* Likewise, of all peers together. Errors: EINPROGRESS. */
WEIR_API int weir_engine_flush(weir_engine *engine, uint64_t timeout_ns);

typedef enum weir_waiting_for {
    WEIR_WAITING_NOTHING = 0,     /* terminal */
    WEIR_WAITING_ENGINE = 1,      /* for somebody who makes progress to take it up or go on */
    WEIR_WAITING_CONNECTION = 2,  /* for a session with the peer */
    WEIR_WAITING_SLOTS = 3,       /* for send-queue slots, or its turn behind others to its peer */
    WEIR_WAITING_CREDITS = 4,     /* for the target to take up earlier notifications: its engine
                                   * makes no progress, or its application takes none and
                                   * notifications_max of them wait; or for a device, here or
                                   * there, that refuses receives, to take them; of a message: for
                                   * room in the inbox */
    WEIR_WAITING_COMPLETIONS = 5, /* posted; for the device */
    WEIR_WAITING_DRAIN = 6,       /* its session broke or it was cancelled: for QPs to go quiet */
    WEIR_WAITING_SETTLE = 7,      /* for the target to say what arrived on a broken session */
    WEIR_WAITING_INFLIGHT = 8     /* for bytes in flight, to any peer, to come back, or for peers
                                   * that wait for that before it: inflight_bytes_max */
} weir_waiting_for;
/* The reason why an unfinished transfer waits now: a weir_waiting_for. Transfers to
 * one peer that are still to be posted all wait for the same as the first of them. The call may
 * wait shortly for a thread that has the engine, as other queries do. Errors: ESTALE. */
WEIR_API int weir_transfer_waiting_for(weir_engine *engine, weir_transfer transfer);
/* Its name in lower case: "slots", "credits", ...; "?" of any other int. Static storage. */
WEIR_API const char *weir_waiting_name(int waiting_for);

typedef struct weir_completion {
    weir_transfer transfer; /* already released */
    uint64_t user_data;
    int status;
    uint32_t reserved;
} weir_completion;
/* Takes one finished WEIR_TRANSFER_QUEUE transfer, oldest first. Makes no progress. Errors:
 * EAGAIN (there is none). */
WEIR_API int weir_completion_take(weir_engine *engine, weir_completion *completion_out);

/* ---- notifications ----------------------------------------------------- */

typedef struct weir_notification {
    weir_peer from;
    uint64_t tag;
    uint32_t length; /* bytes valid in payload; the rest is not written */
    uint32_t reserved;
    uint8_t payload[WEIR_NOTIFY_MAX];
} weir_notification;
/* Takes one received notification. Notifications of one peer come in the order in which they became
 * complete; they and events have no order: a peer's last may come behind its GONE. Makes no
 * progress. Errors: EAGAIN (there is none). */
WEIR_API int weir_notification_take(weir_engine *engine, weir_notification *notification_out);

/* ---- messages ---------------------------------------------------------- */

/* A message goes into an inbox that its receiver has opened. It is sent when there is room for
 * it there, and not before: a full inbox holds up those who send to it, and nobody else.
 * Messages of one peer to one inbox come in the order in which they were sent by one thread,
 * through one handle, each once, whatever sessions break meanwhile; after a GONE, what was sent
 * before it may be missing. */

typedef struct weir_inbox_options {
    size_t size;
    uint32_t number;            /* by which peers name it; the application's own */
    uint32_t reserved;          /* 0 */
    uint64_t message_bytes_max; /* the longest message, up to 1 GiB */
    uint32_t peer_messages;     /* so long ones, of one peer, have room; default 16, or as many as
                                 * take 64 KiB if that is more, or as have 64 MiB if that is less,
                                 * but two */
    uint32_t messages;          /* and of all peers together; default 4 * peer_messages, or up to
                                 * 16 * as long as that takes 1 MiB at most, or less than 4 * where
                                 * that has more than 256 MiB */
} weir_inbox_options;
#define WEIR_INBOX_OPTIONS_INIT WEIR_SIZED(weir_inbox_options)

/* Takes the inbox's memory: what is needed for so many of the longest messages, in chunks of up to
 * 64 KiB, of up to four long ones in 256 KiB, or of one that is longer; none holds more than half
 * of peer_messages. A chunk is one peer's at a time, so peers that send little use more of them
 * than their messages need. All of it is backed before the call returns, as by
 * weir_memory_allocate, which takes time with its size. Peers that have asked for the number are
 * told. Errors: EINVAL (size, or reserved is not 0), ETOOBIG (over 1 GiB a message, or over 2^20
 * chunks), EBUSY (an inbox has this number), EAGAIN (WEIR_INBOXES_MAX), ENOMEM, EMEMLOCK, EMFILE,
 * EDEVICE. */
WEIR_API int weir_inbox_open(weir_engine *engine, const weir_inbox_options *options,
                             weir_inbox *inbox_out);

/* Peers name it no more: what they sent and was not taken is lost, and what has not arrived ends
 * with ESTALE there. Messages that were taken stay as they are until they are given back. The
 * memory goes when that is done, and all senders have said that they write no more. Errors:
 * ESTALE. */
WEIR_API int weir_inbox_close(weir_engine *engine, weir_inbox inbox);

typedef struct weir_inbox_info {
    size_t size;
    uint32_t number;
    uint32_t senders;           /* peers that have sent to it, and are there */
    uint64_t message_bytes_max; /* as asked */
    uint64_t chunk_bytes;
    uint32_t chunks;
    uint32_t chunks_free;
    uint32_t held;    /* messages taken and not given back */
    uint32_t waiting; /* peers that wait for room */
    uint64_t taken;   /* messages, so far */
    uint64_t spoiled; /* chunks whose rest was dropped, since something wrote over it, and loans
                       * that were in no memory of their senders */
    uint64_t bytes;   /* of its memory */
} weir_inbox_info;
#define WEIR_INBOX_INFO_INIT WEIR_SIZED(weir_inbox_info)
/* Errors: ESTALE. */
WEIR_API int weir_inbox_query(weir_engine *engine, weir_inbox inbox, weir_inbox_info *info);

/* A piece of a message: length bytes at an offset of a memory, or, with local zeroed, at base. */
typedef struct weir_part {
    weir_memory local;
    const void *base;
    uint64_t offset;
    uint64_t length;
} weir_part;

/* Sends the parts, one behind the other, as one message to the peer's inbox of this number. A
 * message of up to WEIR_MESSAGE_COPY_MAX bytes is copied before the call returns, and may come
 * from any memory; the bytes of a longer one, and of any with a part in a dma-buf, must be
 * registered, and stay as they are until the status is terminal. Of the options notify_tag comes
 * with the message, without WEIR_TRANSFER_NOTIFY; other flags, deadline and handle are as with
 * weir_write. The peer's engine has the message when the status is 0, whether its application
 * takes it or not; it is lost if that had closed the inbox, and this engine had not heard so.
 * Errors: EBOUNDS, ESTALE (the peer, or a part's memory), EINVAL (a longer one that is not
 * registered; NOTIFY), ETOOBIG (1 GiB, or more parts than segments_max), EAGAIN (a pool is
 * full). Statuses: those of weir_write; ENOTREADY (there is no such inbox, at the deadline or
 * with NO_WAIT or NOW), ESTALE (it was closed), ETOOBIG (longer than its longest), EFULL (this
 * engine sends to too many inboxes: peers_max + 64 of all peers together), EAGAIN (there is no
 * room in the inbox, with NOW), EAGAIN, EMFILE, ENOMEM (shm, at the deadline: the peer's process
 * did not hand over the inbox's memory, or this one lacked what it takes to map it), and what
 * else weir_memory_import says. */
WEIR_API int weir_message_send(weir_engine *engine, weir_peer peer, uint32_t inbox,
                               const weir_part *parts, size_t part_count,
                               const weir_transfer_options *options, weir_transfer *transfer_out);

/* One of several messages. */
typedef struct weir_outgoing {
    const weir_part *parts; /* NULL if there are none */
    size_t part_count;
    uint64_t tag;
} weir_outgoing;

/* Sends messages to the peer's inbox in their order, as weir_message_send does each, all with these
 * options but for notify_tag: each has its tag. A small one costs a fraction of what it costs in a
 * call of its own. Over a NIC up to 16 are posted together. transfers_out: one for each message;
 * may be NULL with QUEUE. *sent_out: how many were sent, from the front, one at least. If that is
 * not all, the next one was refused, and a call that begins with it says why. Errors: those of the
 * first message, as with weir_message_send: EBOUNDS, ESTALE, EINVAL (also if count is 0), ETOOBIG,
 * EAGAIN. */
WEIR_API int weir_message_send_many(weir_engine *engine, weir_peer peer, uint32_t inbox,
                                    const weir_outgoing *messages, size_t count,
                                    const weir_transfer_options *options,
                                    weir_transfer *transfers_out, size_t *sent_out);

typedef struct weir_message {
    weir_peer from;
    weir_inbox inbox;
    uint64_t tag;
    const void *data; /* in the inbox, or in a loan of its sender; aligned to 8 bytes; until it is
                       * given back */
    uint64_t length;
    uint64_t place; /* these two are weir's */
    uint64_t spot;
} weir_message;
/* Takes the next message of the inbox, of its senders in turns. Makes no progress; may wait
 * shortly for a thread that has the engine. Messages and events have no order: a peer's last may
 * come behind its GONE. Errors: EAGAIN (there is none), ESTALE. */
WEIR_API int weir_message_take(weir_engine *engine, weir_inbox inbox, weir_message *message_out);

/* Takes up to `max` messages at once, one at least, as weir_message_take does each; where several
 * senders have sent, up to 32 of each in its turn. Errors: EAGAIN (there is none), ESTALE, EINVAL
 * (max is 0). */
WEIR_API int weir_message_take_many(weir_engine *engine, weir_inbox inbox,
                                    weir_message *messages_out, size_t max, size_t *count_out);

/* The application has done with the message; in any order, from any thread, also of an inbox
 * that was closed. Room that comes free is given to peers that wait for it. Errors: ESTALE (it
 * was given back before, or never taken). */
WEIR_API int weir_message_give_back(weir_engine *engine, const weir_message *message);

/* Likewise with `count` messages, of any inboxes. Errors: ESTALE (one of them, at least, was given
 * back before, or never taken; all others are given back). */
WEIR_API int weir_message_give_back_many(weir_engine *engine, const weir_message *messages,
                                         size_t count);

/* Memory to make a message in, before it is sent. */
typedef struct weir_loan {
    uint64_t id;     /* weir's */
    void *data;      /* aligned to 64 bytes; what it held before is undefined */
    uint64_t length; /* as asked; a shorter message is sent if it is made less */
} weir_loan;

/* Lends registered memory for a message of so many bytes to the peer's inbox of this number. The
 * loan is the application's until weir_loan_send took it, or weir_loan_return. There are
 * WEIR_LOANS_MAX at a time for one inbox of one peer, and memory of this engine's for four of its
 * longest messages (at least 64 KiB, and no more than 64 MiB unless one is longer), which is taken
 * with the first loan, backed as by weir_memory_allocate, and goes, at the next call about loans,
 * when the peer is gone and nothing of it is lent. The call does not wait; the watchdog knows
 * nothing of an application that waits for a loan. It asks for a session only when all is lent and
 * none is up, so that the receiver can say that some is back. Errors: EAGAIN (all of it is lent:
 * weir_engine_wait and weir_engine_fd wake when some is back; or, which no wake ends, 1,024 inboxes
 * have such memory, or memories_max is reached), ESTALE (the peer), ETOOBIG (1 GiB; longer than the
 * inbox's longest, once that is known), EFULL (as the status of weir_message_send), ECLOSED, and as
 * weir_memory_allocate ENOMEM, EMEMLOCK, EMFILE, EDEVICE. */
WEIR_API int weir_message_loan(weir_engine *engine, weir_peer peer, uint32_t inbox, uint64_t length,
                               weir_loan *loan_out);

/* Sends the message in the loan, as weir_message_send does one of registered memory. On shm no byte
 * of it moves, unless it is short, or the first messages of a stream: its receiver reads it where
 * it is, and the loan is free when it was given back there. Else it is free when the status is
 * terminal. Behind 0 the application does not touch the memory any more; behind an error the loan
 * is its own still. Errors: ESTALE (the loan was sent or returned before; the peer), EBOUNDS (its
 * length is more than was lent), EINVAL (the options), EAGAIN (a pool is full). Statuses are those
 * of weir_message_send. */
WEIR_API int weir_loan_send(weir_engine *engine, const weir_loan *loan,
                            const weir_transfer_options *options, weir_transfer *transfer_out);

/* The loan is not sent. Errors: ESTALE. */
WEIR_API int weir_loan_return(weir_engine *engine, const weir_loan *loan);

/* ---- events ------------------------------------------------------------ */

typedef enum weir_event_type {
    WEIR_EVENT_UP = 1,        /* first session with this peer, or first after GONE, or first news
                               * of one under another handle, since the last was closed */
    WEIR_EVENT_DEGRADED = 2,  /* its session broke, whichever side found it; recovery runs by
                               * itself, and replays all that was on it but ONCE transfers. Then
                               * RECOVERED or GONE is told. `error` is the cause. EREMOTE, EINVAL,
                               * ETOOBIG: a device refused one transfer, the target's for memory
                               * that was released, say; ECANCELED, ETIMEDOUT: posted work of a
                               * cancelled or late transfer had to be stopped; of these `value` is
                               * the transfer's id; 0: its handle was released, or the transfer is
                               * the peer's. ECONNECT: the target did not answer. EUNKNOWN: the peer
                               * ended it. EDEVICE: it failed here, and no cause is known yet */
    WEIR_EVENT_RECOVERED = 3, /* a new session is up in place of the one that broke; `error` and
                               * `value` as with DEGRADED, as far as they are known by now */
    WEIR_EVENT_GONE = 4,      /* there is no session, and none will come by itself. EPEER: the peer
                               * died, was restarted, closed its engine, or had closed its handle of
                               * us and needed the place for another; ECONNECT, EREFUSED,
                               * EADDRESS, EUNREACH, EMFILE, ENOMEM, EFULL: it was not reached;
                               * ECLOSED: the engine gave up a peer that the application has
                               * closed, and of which it was told since, to make room for another.
                               * The peer's reason for EREFUSED or ECONNECT, or 0, is in value, cast
                               * it to int: as `refusal` in weir_peer_info. Told once, once more
                               * for each later weir_peer_connect that does not reach the peer, at
                               * the end of a peer of which SAME was told since, and at that of
                               * another engine that has answered at an address which is open */
    WEIR_EVENT_LOST = 5,      /* events were dropped because nobody took them; count in value */
    WEIR_EVENT_SAME = 6,      /* this handle, which was opened, turned out to name a peer that has
                               * another one, in value: events and notifications carry that one.
                               * Both name the peer wherever a handle is taken, until it is GONE;
                               * then this one names its address again. Told anew when that handle
                               * was closed and another one takes its place (that one itself is not
                               * told: events carry it from then on), and after a GONE of a peer
                               * that was not reached, and may be the same still */
    WEIR_EVENT_REFUSED = 7,   /* a peer asked for a session and there can be none, or none now:
                               * error says why (EFULL, ENOMEM, EMFILE, EDENIED, EDEVICE; EREFUSED:
                               * the devices differ, or do not meet: weir_refusal_text), also to
                               * the peer if there is a descriptor to let it in. Once each, until a
                               * session with it is up, or until it calls again, if its connections
                               * ended meanwhile and the application holds no handle of it; peer is
                               * zeroed for one without room or a descriptor, and of one that the
                               * application knew no handle of this tells of one, as UP does */
    WEIR_EVENT_DEVICE_FAILED = 8, /* this engine's device, for good: it was removed, say; error is
                                   * EDEVICE, peer is zeroed. All sessions end, for good: peers hear
                                   * why, transfers end with a status, EDEVICE if nothing else came
                                   * first. The device is given back to the system; memory stays
                                   * until it is released. Close the engine */
    WEIR_EVENT_STALLED = 9, /* transfers or messages for this peer are outstanding, and none of them
                             * has completed for watchdog_ns. `value` is a weir_stall_cause; error
                             * is as in weir_stall_info. Told once for each stall; RESUMED or GONE
                             * follows, unless the handle is closed. Not told of a peer all of whose
                             * handles are closed, before other news of it. weir_stall_text says
                             * more */
    WEIR_EVENT_RESUMED = 10, /* the peer's stall is over: something completed, or nothing is
                              * outstanding any more. `value`: for how long nothing completed, in
                              * nanoseconds */
    WEIR_EVENT_NAME = 11     /* a name of the peer's that was asked for is there, or one that was
                              * answered is of something else now, or of nothing. `value` is its
                              * weir_name_hash. Told once: again when it has been asked for again.
                              * With an error, and `value` 0: the peer was not reached for what
                              * was asked, or is gone; nothing of it is asked until a call does.
                              * Answers from before a GONE, told of any of the peer's handles, are
                              * over: no change of them is told */
} weir_event_type;

typedef struct weir_event {
    weir_event_type type;
    int error; /* 0 with UP, LOST, SAME and RESUMED */
    weir_peer peer;
    uint64_t value; /* as the type says; else 0 */
} weir_event;
/* Its name in lower case: "up", "degraded", ...; "?" of any other int. Static storage. */
WEIR_API const char *weir_event_name(int type);
/* Takes the oldest event. 256 are kept; further ones are dropped, and LOST, which comes before
 * the others, says how many. Errors: EAGAIN (there is none). */
WEIR_API int weir_event_take(weir_engine *engine, weir_event *event_out);

/* ---- stalls ------------------------------------------------------------ */

/* The cause of a stall: for this, outstanding work waits. */
typedef enum weir_stall_cause {
    WEIR_STALL_NONE = 0,       /* nothing is outstanding */
    WEIR_STALL_HERE = 1,       /* this engine made no progress, for absent_ns: its application did
                                * not call, or the process did not run. absent_ns 0: it made
                                * progress, and took up less than there was all the time */
    WEIR_STALL_DEVICE = 2,     /* this engine's device failed (EDEVICE), or refuses work or
                                * receives that it has room for (EAGAIN) */
    WEIR_STALL_DRAIN = 3,      /* a session broke, and this device has not given back all of it */
    WEIR_STALL_SETTLE = 4,     /* a session broke, and the peer has not said what arrived */
    WEIR_STALL_CONNECT = 5,    /* there is no session: the handshake is not answered */
    WEIR_STALL_REFUSED = 6,    /* the peer refuses a session for now: `error` is its reason */
    WEIR_STALL_QP = 7,         /* work is posted, and neither completes nor fails: where nothing
                                * goes on, the QP stands still */
    WEIR_STALL_CREDITS = 8,    /* notifications or messages wait for credits: the peer has not
                                * taken up those that were sent before */
    WEIR_STALL_INBOX_FULL = 9, /* messages wait for room in the inbox `inbox` */
    WEIR_STALL_INBOX_ABSENT = 10, /* messages wait for that inbox, which the peer has not opened */
    WEIR_STALL_INBOX_MEMORY = 20, /* messages wait for the memory of that inbox, which is asked for
                                   * again after pauses. `error`: EAGAIN, the peer's process has
                                   * not handed it over; EMFILE, ENOMEM: this process lacks that to
                                   * map it; shm */
    WEIR_STALL_INFLIGHT = 11,     /* the limit of bytes in flight, inflight_bytes_max, is used up;
                                   * `error` EAGAIN: the slots of a device on which all peers share
                                   * a send queue are */
    WEIR_STALL_NOT_READY = 21, /* in the place of QP: this device was told that a receiver was not
                                * ready (RNR), device_not_ready times; verbs */
    WEIR_STALL_WIRE = 22,      /* no fault, and in the place of QP, INFLIGHT and TURN: the device's
                                * port carries three quarters of what it can, or more; verbs */
    WEIR_STALL_TURN = 12,      /* work is about to be posted; STALLED waits for another cause, for
                                * another watchdog_ns at most */
    /* With the peer's own word, or the system's. They stand in the place of SETTLE, CONNECT, QP,
     * CREDITS, INBOX_FULL and INBOX_MEMORY (EAGAIN): */
    WEIR_STALL_PEER_ABSENT = 13,  /* the peer's engine makes no progress: it does not answer, though
                                   * its host does; or it did, and says that nobody was there for
                                   * peer_away_ns */
    WEIR_STALL_PEER_STOPPED = 14, /* its process is stopped (SIGSTOP, a debugger); shm */
    WEIR_STALL_PEER_NOTIFICATIONS = 15, /* its application takes no notifications */
    WEIR_STALL_PEER_MESSAGES = 16,      /* its application takes no messages from the inbox `inbox`,
                                         * or gives none back */
    WEIR_STALL_HOST = 17, /* its host does not answer: it is gone, or a link or network between */
    WEIR_STALL_LINK = 18, /* the link of this engine's device is down, also in the place of TURN and
                           * BREAKS; verbs */
    /* In the place of DRAIN, SETTLE, CONNECT, QP and TURN: */
    WEIR_STALL_BREAKS = 19 /* session after session comes up and breaks, and nothing completes on
                            * them; `error` is why the last one broke */
} weir_stall_cause;
/* Its name in lower case: "credits", "inbox_full", ...; "?" of any other int. Static storage. */
WEIR_API const char *weir_stall_cause_name(int cause);

/* A peer's outstanding work as it is now. Work is outstanding from its submit to its status;
 * work that is done inside its submit never is, and reads, writes and messages done so count for
 * nothing. The connecting that weir_peer_connect asks for is none. */
typedef struct weir_stall_info {
    size_t size;
    weir_peer peer;        /* the handle that its events carry */
    uint32_t stalled;      /* 1: STALLED was told, and neither RESUMED nor GONE since */
    uint32_t cause;        /* a weir_stall_cause: what the work waits for now, stalled or not */
    int error;             /* CONNECT: of the last dial, or what this side lacks, or 0; REFUSED: the
                            * peer's reason; DEVICE: EDEVICE or EAGAIN; BREAKS: why the last
                            * session broke; INBOX_MEMORY: why there is none; else 0 */
    uint32_t inbox;        /* INBOX_FULL, _ABSENT and _MEMORY, and PEER_* in the place of these: the
                            * number; else 0 */
    uint64_t still_ns;     /* nothing has completed for so long, as the last look found; there is
                            * one in each eighth of watchdog_ns. 0: nobody watches */
    uint64_t absent_ns;    /* HERE: this engine made no progress for so long; 0 if it did, and took
                            * up too little. Else 0 */
    uint32_t waiting;      /* transfers and messages that are outstanding; they wait... */
    uint32_t pending;      /* ...to be posted, */
    uint32_t posted;       /* posted, for the device, */
    uint32_t parked;       /* for what became of them on a session that broke, */
    uint32_t credit_waits; /* for credits, */
    uint32_t room_waits;   /* and for room in inboxes, or a session to ask for it */
    uint32_t sq_used;      /* slots taken, of all QPs of the session; 0 without one, as the next
                            * four */
    uint32_t sq_depth;     /* slots granted */
    uint32_t credits;      /* notifications that may be sent now; where messages wait for credits,
                            * they have their own, which count too, or alone */
    uint32_t credits_max;  /* and if the peer had taken up all */
    uint64_t inflight_bytes;        /* of reads and writes posted to the peer, not accounted for */
    uint64_t room_bytes;            /* of messages that wait for room, as they will lie there */
    uint64_t inflight_bytes_engine; /* as inflight_bytes, to all peers */
    uint64_t inflight_bytes_max;    /* as it is set */
    uint64_t completed;             /* work requests and transfers that completed, in all */
    uint64_t stalls;                /* stalls that were told, in all */
    uint32_t last_cause;            /* of the last stall that was told; NONE: there was none */
    int last_error;                 /* `error`, then */
    uint64_t last_ns;               /* how long that one lasted; 0: it lasts */
    /* When nothing has completed for half of watchdog_ns, the peer is asked how it is, and what it
     * says of itself is here. Zeros until it has answered: */
    uint64_t peer_answer_ns;      /* how long its last answer took */
    uint64_t peer_away_ns;        /* nobody made progress there for so long, until it was asked */
    uint32_t peer_notifications;  /* received there, of any peer, and not taken */
    uint32_t peer_ready;          /* of `inbox`, if that is full: senders with a message to take, */
    uint32_t peer_held;           /* and messages that were taken and not given back */
    uint32_t peer_thread;         /* 1: its engine has a thread of its own */
    uint64_t peer_silent_ns;      /* it was asked so long ago, and has not answered that; 0: it has,
                                   * or was not asked */
    uint32_t host_silent;         /* 1: its host acknowledges nothing on the control connection */
    uint32_t control_retransmits; /* how often TCP has repeated what it does not, in a row */
    /* Counts since the question to the peer was due, counted_ns ago. Zeros before: */
    uint64_t counted_ns;
    uint64_t completions;      /* that this engine took from its device's CQs, of all peers */
    uint32_t cq_entries;       /* that those CQs have; 0: the device has none; shm */
    uint32_t device_counts;    /* 1: the device counts at least one of the next four, of all its
                                * users together; 0 is also what is not counted; verbs */
    uint64_t device_not_ready; /* answers that came, that a receiver was not ready (RNR) */
    uint64_t device_repeats;   /* requests that it sent again */
    uint64_t port_sent;        /* bytes, by its port */
    uint64_t port_received;
    uint64_t port_bytes_per_s; /* that the port carries at most, in one direction; 0: not known */
    uint32_t room_inboxes;     /* inboxes that messages wait for, or for room in; with `inbox` */
    uint32_t peer_process;     /* its pid, as this process knows it; 0: not known; shm */
} weir_stall_info;
#define WEIR_STALL_INFO_INIT WEIR_SIZED(weir_stall_info)
/* Describes what the peer's work waits for, whether it is stalled or not, and whether stalls are
 * watched for or not. May wait shortly for a thread that has the engine. Errors: ESTALE. */
WEIR_API int weir_stall_query(weir_engine *engine, weir_peer peer, weir_stall_info *info);

/* The same for a person: an English sentence that names the peer, what its work waits for and since
 * when, without a full stop; and behind a line feed the figures, in one line. A text that is longer
 * than text_size is cut; WEIR_STALL_TEXT_MAX bytes hold any. Errors: EINVAL (text_size is 0),
 * ESTALE. */
WEIR_API int weir_stall_text(weir_engine *engine, weir_peer peer, char *text_out, size_t text_size);

/* ---- statistics -------------------------------------------------------- */

/* X(name, what it counts). All are uint64_t; all but inflight_bytes only grow.
 * A submit that returns EAGAIN counts once, also one with WEIR_TRANSFER_BLOCK that looked often.
 * A work request that is done in its post is not signalled, and gives no completion. On a device
 * that completes later wrs_posted / posts is how many share a doorbell, and wrs_posted / signaled
 * how many share a completion. */
#define WEIR_COUNTERS(X)                                                                           \
    X(transfers_ok, "transfers that ended well")                                                   \
    X(transfers_failed, "transfers that ended with an error")                                      \
    X(transfers_inline, "transfers done at their submit, without a handle")                        \
    X(bytes_written, "bytes of write segments that ended well")                                    \
    X(bytes_read, "bytes of read segments that ended well")                                        \
    X(wrs_posted, "work requests accepted by the device")                                          \
    X(posts, "calls of post_send (doorbells)")                                                     \
    X(partial_posts, "posts of which the device took only a part")                                 \
    X(orphans, "work requests left without a signalled tail")                                      \
    X(orphans_healed, "of those, recovered on a healthy QP")                                       \
    X(admission_waits, "times that a transfer had to wait for slots")                              \
    X(credit_waits, "times that a notification had to wait for credits")                           \
    X(submit_eagain, "submits refused because a pool was full: eagain_* say which")                \
    X(submit_queued, "submits handed to the thread that had the engine")                           \
    X(completions_stale, "completions of QPs that are gone, dropped")                              \
    X(notifications_sent, "notifications whose transfer ended well")                               \
    X(notifications_received, "notifications delivered to the application")                        \
    X(notifications_duplicate, "replayed notifications recognised and dropped")                    \
    X(sessions_up, "sessions that came up")                                                        \
    X(sessions_failed, "sessions that broke")                                                      \
    X(sessions_retired, "sessions torn down, in all")                                              \
    X(replays, "transfers started again on a new session")                                         \
    X(settled_remote, "transfers that the target said had arrived on a broken session")            \
    X(beacons_flushed, "QPs whose teardown beacon came back")                                      \
    X(last_wqe_events, "last-WQE events that counted")                                             \
    X(teardown_forced, "QPs destroyed on a bound, not on their beacon")                            \
    X(destroy_retries, "destroys that the device refused at first")                                \
    X(control_sent, "control messages sent")                                                       \
    X(control_received, "control messages accepted")                                               \
    X(control_retransmits, "control messages sent again")                                          \
    X(control_stale, "control messages of older epochs or incarnations, ignored")                  \
    X(control_malformed, "control messages that did not parse; connection closed")                 \
    X(data_malformed, "messages between engines that did not parse, or told a lie, dropped")       \
    X(peers_gone, "peers that died, left or were restarted")                                       \
    X(receives_lost, "shared receive buffers that went with a QP, and were replaced")              \
    X(inflight_waits, "times that a peer's transfers had to wait for bytes in flight")             \
    X(inflight_bytes, "payload bytes of reads and writes in flight now")                           \
    X(inflight_bytes_high_water, "the most of them at any time")                                   \
    X(eagain_transfers, "of submit_eagain: transfers_max handles were live")                       \
    X(eagain_segments, "of submit_eagain: segments_max left no room for its segments")             \
    X(eagain_completions, "of submit_eagain: completions to come and not yet taken were too many") \
    X(signaled, "of wrs_posted: signalled, so that the device tells of their end")                 \
    X(completions, "completions polled: of signalled or failed work, messages, teardowns")         \
    X(stalls, "QPs given up because their oldest work neither completed nor failed")               \
    X(messages_sent, "messages that ended well")                                                   \
    X(message_bytes_sent, "their bytes")                                                           \
    X(messages_taken, "messages that the application took")                                        \
    X(sessions_refused, "requests of peers for a session that were answered with why there is "    \
                        "none")                                                                    \
    X(peer_stalls, "stalls of peers that were told: work outstanding, and none of it completed")   \
    X(messages_lent, "of messages_sent: in a loan that the receiver reads where it is")            \
    X(notes_shared, "notes of messages that went to the device in one SEND with others")           \
    X(messages_gathered, "messages whose data was written by one WR with others'")                 \
    X(device_refusals, "work that the device's provider had no room for at first: ofi, efa")       \
    X(device_nonsense, "completions and messages that named nothing to the device, dropped: ofi, " \
                       "efa")                                                                      \
    X(device_renewals, "endpoints that the device gave up and opened anew: efa")

typedef struct weir_engine_info {
    size_t size;
#define WEIR_COUNTERS_X(name, text) uint64_t name;
    WEIR_COUNTERS(WEIR_COUNTERS_X)
#undef WEIR_COUNTERS_X
} weir_engine_info;
#define WEIR_ENGINE_INFO_INIT WEIR_SIZED(weir_engine_info)
/* A snapshot of the engine's counters. Errors: none. */
WEIR_API int weir_engine_query(weir_engine *engine, weir_engine_info *info);

/* The text formats that collectors of metrics read, with the content type of each. */
typedef enum weir_metrics_format {
    WEIR_METRICS_OPENMETRICS = 0, /* OpenMetrics 1.0: application/openmetrics-text;
                                   * version=1.0.0; charset=utf-8 */
    WEIR_METRICS_PROMETHEUS = 1   /* Prometheus: text/plain; version=0.0.4; charset=utf-8 */
} weir_metrics_format;
/* Writes such a snapshot as text with its terminator, each counter with its help: transfers_ok is
 * weir_transfers_ok_total; bytes_written, which has a unit, weir_written_bytes_total. The format is
 * one of weir_metrics_format. weir_info has the library's version and the device's name as labels.
 * The text is that of one engine: two of them in one answer are no good metrics. *length_out: the
 * bytes without the terminator. With text_out NULL nothing is written, and text_size does not
 * count: *length_out is then the room that any later text of this engine fits in, terminator
 * included, some 8 KiB. Errors: EINVAL, ETOOBIG (text_size is less than that room). */
WEIR_API int weir_engine_metrics(weir_engine *engine, uint32_t format, char *text_out,
                                 size_t text_size, size_t *length_out);

/* ---- traces ------------------------------------------------------------ */

/* An engine remembers its last changes of state, some 4,000: handshakes, breaks, drains, stalls,
 * events, and where something ran out; not single transfers. */
typedef enum weir_trace_format {
    WEIR_TRACE_TEXT = 0, /* a line each, for a person; in no fixed form */
    WEIR_TRACE_JSON = 1  /* trace events, for Perfetto and chrome://tracing */
} weir_trace_format;
/* Writes them as text with its terminator, the oldest first. The format is one of
 * weir_trace_format. *length_out: the bytes without the terminator. text_size is WEIR_TRACE_MIN at
 * least; what has no room is left out, the oldest first. With text_out NULL nothing is written, and
 * text_size does not count: *length_out is then the room that all have. Waits for nobody. Errors:
 * EINVAL. */
WEIR_API int weir_engine_trace(weir_engine *engine, uint32_t format, char *text_out,
                               size_t text_size, size_t *length_out);
/* The same of another process, which is not disturbed: of its index-th engine, from 0. It takes the
 * right to look at its descriptors (proc_pid_fd(5)): the same user, if it may be dumped, or root.
 * Blocks for some milliseconds. Errors: EINVAL, ESTALE (it has no more engines), EPEER (there is no
 * such process), EDENIED, ENOTREADY (that engine is being opened; there may be others behind it),
 * ENOTSUP (its weir is another version), EMFILE, ENOMEM. */
WEIR_API int weir_process_trace(int64_t pid, size_t index, uint32_t format, char *text_out,
                                size_t text_size, size_t *length_out);

/* ---- devices ----------------------------------------------------------- */

typedef struct weir_device_info {
    size_t size;
    char name[WEIR_DEVICE_NAME_MAX];
    uint64_t message_bytes_max; /* larger segments are split */
    uint32_t inline_bytes_max;
    uint32_t sq_depth_max;
    uint32_t ordered;          /* 1: WRs of a QP take effect in order */
    uint32_t completes_inline; /* 1: WRs are complete when the post returns */
    uint64_t engine_bytes;     /* memory that an engine without options takes at open, with
                                * the limits that this environment sets */
    int available;             /* 0, or why this device cannot be used here; EMEMLOCK: by an engine
                                * without options */
    uint32_t qps_max;          /* QPs that the device has for one engine, qp_count of them for each
                                * peer; others that use it take theirs from the same. 0: as many
                                * as there are peers */
    char note[WEIR_DEVICE_NOTE_MAX]; /* the device that is used, or why none can be: a line; "" */
    uint64_t address_bytes;          /* address space that such an engine takes, engine_bytes among
                                      * it: RLIMIT_AS has to allow it; hardly any of it is backed */
} weir_device_info;
#define WEIR_DEVICE_INFO_INIT WEIR_SIZED(weir_device_info)
/* Describes the index-th device this library was built with. Errors: EINVAL (past the last). */
WEIR_API int weir_device_query(size_t index, weir_device_info *info);
/* Describes the device that weir_engine_open would take with these options (NULL for none): the NIC
 * that they name, or the first that can be used, with "auto", and what an engine with their limits
 * takes. `available` is EINVAL, with a note, also for a name of a NIC that cannot be read. Errors:
 * EINVAL (the options' size), ENODEVICE (there is no such device in this library). */
WEIR_API int weir_device_choose(const weir_engine_options *options, weir_device_info *info);

#ifdef __cplusplus
}
#endif
#endif
