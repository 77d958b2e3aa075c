/* SPDX-License-Identifier: Apache-2.0 */
/* transfer_engine_c.h: Mooncake's C interface, over weir.
 *
 * The names, the layouts and the numbers are those that programs for Mooncake's transfer engine are
 * compiled with; this header declares them anew, and docs/mooncake.md says where the behaviour
 * differs.
 *
 *  - Threads: any thread may call any function on an engine at any time, but for
 *    destroyTransferEngine, which is the last call with it.
 *  - Blocking: openSegment, openSegmentNoCache, warmupEfaSegment, syncSegmentCache and
 *    genNotifyInEngine wait for a peer, createTransferEngine and registering wait for the metadata
 *    server, and unregistering waits for transfers that use the memory: for MC_WEIR_TIMEOUT_MS at
 *    most, 10 s if that is not set, for each answer: of a peer one for each buffer of its list, of
 *    the server up to four.
 * Nothing else blocks; on shared memory a submit copies.
 *  - Ownership: pointers are read during the call and not kept, but registered memory, which stays
 *    mapped until it is unregistered.
 *  - fork(2): a child has no engine of its parent's: a call with it is an error, and
 *    destroyTransferEngine frees memory alone.
 *  - Errors: of openSegment, of registering and of notifications negative, MC_E*; of submits,
 *    statuses and freeBatchID positive, MC_CODE_*. A null pointer that may not be null, an unknown
 *    segment and a batch that was freed are errors, and never undefined. */
#ifndef TRANSFER_ENGINE_C_H
#define TRANSFER_ENGINE_C_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define MC_API __attribute__((visibility("default")))
#else
#define MC_API
#endif

typedef void *transfer_engine_t;
typedef void *transport_t;
typedef int32_t segment_id_t;     /* 0: this engine itself; negative: none */
typedef int32_t segment_handle_t; /* the same */
typedef uint64_t batch_id_t;      /* never 0 */

#define LOCAL_SEGMENT (0)
#define INVALID_BATCH UINT64_MAX

#define OPCODE_READ   (0) /* from the peer's memory into ours */
#define OPCODE_WRITE  (1)

/* One task: length bytes between `source` here, in registered memory, and the address
 * `target_offset` there. Either may reach over several buffers that lie side by side. */
struct transfer_request {
    int opcode;
    void *source;
    segment_id_t target_id;
    uint64_t target_offset;
    uint64_t length;
};
typedef struct transfer_request transfer_request_t;

/* A notification: two strings, NOTIFY_BYTES_MAX together. */
struct notify_msg {
    char *name;
    char *msg;
};
typedef struct notify_msg notify_msg_t;
#define NOTIFY_BYTES_MAX 65528

#define STATUS_WAITING   (0) /* under way */
#define STATUS_PENDING   (1) /* not used here */
#define STATUS_INVALID   (2) /* not used here */
#define STATUS_CANCELED  (3)
#define STATUS_COMPLETED (4)
#define STATUS_TIMEOUT   (5)
#define STATUS_FAILED    (6)

struct transfer_status {
    int status;
    uint64_t transferred_bytes; /* all of the task's when it is COMPLETED, else 0 */
};
typedef struct transfer_status transfer_status_t;

struct segment_desc {
    int type;
    union {
        struct {
            void *addr;
            uint64_t size;
            const char *location;
        } rdma;
        struct {
            const char *file_path;
            const char *subsystem_name;
            const char *proto;
            const char *ip;
            uint64_t port;
        } nvmeof;
    } desc_;
};
typedef struct segment_desc segment_desc_t;

struct buffer_entry {
    void *addr;
    size_t length;
};
typedef struct buffer_entry buffer_entry_t;

/* Negative results. */
enum {
    MC_EINVALID = -1,      /* a null pointer, a length of 0, an unknown segment, no such peer */
    MC_EUNREGISTERED = -3, /* no buffer begins at this address */
    MC_EBUSY = -4,         /* transfers use the memory, and did not end in time */
    MC_EOVERLAP = -7,      /* a part of it is registered already */
    MC_EMETADATA = -200,   /* the metadata server does not answer, or refuses */
    MC_EENDPOINT = -201,   /* the peer was not reached, or did not take it in time */
    MC_ECONTEXT = -202,    /* the device failed */
    MC_EMEMORY = -302      /* out of memory, or over a limit */
};
/* Positive ones. */
enum {
    MC_CODE_INVALID = 1,      /* also: the batch was freed, the segment is unknown */
    MC_CODE_TOO_MANY = 2,     /* the batch has no room for so many tasks */
    MC_CODE_UNREGISTERED = 3, /* a source is not in registered memory */
    MC_CODE_BUSY = 4,         /* tasks of the batch are under way */
    MC_CODE_MEMORY = 302
};

/* Opens an engine. metadata_conn_string: "P2PHANDSHAKE", or a server: "etcd://HOST:PORT[;...]",
 * "redis://HOST:PORT", "http://...", and without a scheme etcd. local_server_name: this segment's
 * name; with P2PHANDSHAKE "host[:port]", of which a free port takes the place of the port. The last
 * three are not looked at. NULL: it failed, and why is on standard error. */
MC_API transfer_engine_t createTransferEngine(const char *metadata_conn_string,
                                              const char *local_server_name,
                                              const char *ip_or_host_name, uint64_t rpc_port,
                                              int auto_discover);
/* Ends what is under way, takes the entries of this engine out of the metadata, and frees it. NULL
 * is allowed. */
MC_API void destroyTransferEngine(transfer_engine_t engine);
/* Nothing to do: the device is chosen when the engine is created. Returns 0. */
MC_API int discoverTopology(transfer_engine_t engine);
/* Writes "host:port" with its terminator, cut to buf_len. With P2PHANDSHAKE it is the segment's
 * name. */
MC_API int getLocalIpAndPort(transfer_engine_t engine, char *buf_out, size_t buf_len);

/* Any protocol's name is taken, and not looked at. NULL for a null pointer alone. */
MC_API transport_t installTransport(transfer_engine_t engine, const char *proto, void **args);
MC_API int uninstallTransport(transfer_engine_t engine, const char *proto);

/* Connects to the peer of this name and takes its list of buffers. The same name has the same id,
 * at once; one's own has 0. Errors: MC_EINVALID. */
MC_API segment_id_t openSegment(transfer_engine_t engine, const char *segment_name);
/* The same, with the list as it is now. */
MC_API segment_id_t openSegmentNoCache(transfer_engine_t engine, const char *segment_name);
/* Does nothing: the id stays good. Returns 0. */
MC_API int closeSegment(transfer_engine_t engine, segment_id_t segment_id);
/* Connects to the peer of this name, on any device. */
MC_API int warmupEfaSegment(transfer_engine_t engine, const char *segment_name);
/* The segment's id is unknown from now on, and the name may be opened anew; one that is not open is
 * 0, one's own is MC_EINVALID. */
MC_API int removeLocalSegment(transfer_engine_t engine, const char *segment_name);
/* Takes the lists of all open segments anew. A segment of which none comes keeps its own. Returns
 * 0. */
MC_API int syncSegmentCache(transfer_engine_t engine);

/* location is passed on to the metadata, NULL is "*". With remote_accessible 0 peers do not have
 * it. Errors: MC_EINVALID, MC_EOVERLAP, MC_EMETADATA, MC_EMEMORY, MC_ECONTEXT; nothing is
 * registered then, and of a batch nothing at all. */
MC_API int registerLocalMemory(transfer_engine_t engine, void *addr, size_t length,
                               const char *location, int remote_accessible);
MC_API int registerLocalMemoryBatch(transfer_engine_t engine, buffer_entry_t *buffer_list,
                                    size_t buffer_len, const char *location);
/* After 0 nobody touches the memory any more. After MC_EBUSY the call may be made again. After
 * MC_EMETADATA it is unregistered, and the metadata still names it. Errors besides: MC_EINVALID,
 * MC_EUNREGISTERED, MC_ECONTEXT. Of a batch all are tried, and the first error is returned. */
MC_API int unregisterLocalMemory(transfer_engine_t engine, void *addr);
MC_API int unregisterLocalMemoryBatch(transfer_engine_t engine, void **addr_list, size_t addr_len);

/* Room for batch_size tasks, 1,048,576 at most. INVALID_BATCH: there are too many batches, or there
 * is no memory. */
MC_API batch_id_t allocateBatchID(transfer_engine_t engine, size_t batch_size);
/* Adds tasks to the batch. Tasks that follow each other with the same target and opcode are one
 * transfer, up to 4,096 of them. Behind an error none of them was added. MC_CODE_INVALID,
 * _TOO_MANY, _UNREGISTERED, _MEMORY. An address that the target does not have is no error here: its
 * task is FAILED. */
MC_API int submitTransfer(transfer_engine_t engine, batch_id_t batch_id,
                          struct transfer_request *entries, size_t count);
/* And tells the first entry's target, behind all of their bytes, if all of them end well. The tasks
 * are under way until it has that. */
MC_API int submitTransferWithNotify(transfer_engine_t engine, batch_id_t batch_id,
                                    struct transfer_request *entries, size_t count,
                                    notify_msg_t notify_msg);
/* Of the task_id-th task that was added, from 0. MC_CODE_INVALID. */
MC_API int getTransferStatus(transfer_engine_t engine, batch_id_t batch_id, size_t task_id,
                             struct transfer_status *status);
/* MC_CODE_INVALID, MC_CODE_BUSY. */
MC_API int freeBatchID(transfer_engine_t engine, batch_id_t batch_id);

/* Takes all notifications that came: an array of *size, to be given to freeNotifsMsgBuf; NULL and 0
 * if there are none. */
MC_API notify_msg_t *getNotifsFromEngine(transfer_engine_t engine, int *size);
MC_API int freeNotifsMsgBuf(notify_msg_t *msg, int size);
/* Sends one by itself. 0: the peer's engine has it. MC_EINVALID, MC_EENDPOINT, MC_EMEMORY. */
MC_API int genNotifyInEngine(transfer_engine_t engine, uint64_t target_id, notify_msg_t notify_msg);

struct nic_load_stat {
    char device_name[64];
    uint64_t inflight_bytes;   /* payload under way now */
    double ewma_bandwidth_bps; /* bytes a second that ended well between the last calls, smoothed */
};
typedef struct nic_load_stat nic_load_stat_t;
/* *count: in, the room of the array; out, how many there are: 1, the engine's device. */
MC_API int getNicLoadStats(transfer_engine_t engine, nic_load_stat_t *stats, size_t *count);
/* From now on SIGTERM and SIGINT, and exit(3), take the engine's entries out of the metadata first.
 * A signal for which the application has a handler keeps that alone. */
MC_API void enableGracefulShutdown(transfer_engine_t engine);
/* The device and the open segments as text, or as JSON; cut to buf_len. */
MC_API int showLinks(transfer_engine_t engine, char *buf_out, size_t buf_len, int json);

#ifdef __cplusplus
}
#endif
#endif
