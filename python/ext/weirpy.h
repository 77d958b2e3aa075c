/* SPDX-License-Identifier: Apache-2.0 */
/* weirpy.h: what the files of the extension module weir._weir share: its objects, and who keeps
 * whom alive.
 *
 *     Transfer ──> Peer ──> Engine ──> (live) Transfer
 *         │          ^         ^
 *         ├──> Remote┘         │          ──> a counted reference
 *         └──> Memory ─────────┘
 *
 * Everything refers to its engine. The engine refers to those transfers that are under way, each
 * from its submit until its end was seen, and these refer to their peer and to all memory that they
 * use: so no memory of a transfer under way is freed, and no peer of one is closed, whatever the
 * application drops. That is a cycle, which the garbage collector knows (tp_traverse): an engine
 * that nobody has any more is closed by its finalizer, and then lets the transfers go.
 *
 * Threads: fields are read and written under the GIL alone. A call of the library that may take
 * long runs without the GIL, between engine_leave_gil and engine_take_gil, which count it; close
 * waits until the count is 0. Calls that take some nanoseconds keep the GIL.
 *
 * Exports: a buffer of a memory, a message or a loan that somebody has counts in the object and in
 * the engine. Neither goes while its count is not 0.
 */
#ifndef WEIRPY_H
#define WEIRPY_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "weir.h"
#include "weir_settings.h"

/* Copies of so many bytes, and submits of so many segments, keep the GIL: to give it up and get it
 * back takes longer, and where another thread wants it, far longer. */
#define HELD_BYTES_MOST    16384
#define HELD_SEGMENTS_MOST 32
/* Transfers that are done in their submit: nobody waits for them, so of so many one makes progress,
 * and of so many that are awaited one lets other tasks run. */
#define DONE_TURN 64

typedef struct EngineObject EngineObject;
typedef struct MemoryObject MemoryObject;
typedef struct PeerObject PeerObject;
typedef struct RemoteObject RemoteObject;
typedef struct TransferObject TransferObject;
typedef struct InboxObject InboxObject;
typedef struct MessageObject MessageObject;

struct EngineObject {
    PyObject_HEAD weir_engine *engine; /* NULL: closed */
    bool closing;                      /* close waits for the calls under way; no other begins */
    bool abandoned;                    /* is closed with its last export */
    bool has_thread;                   /* of its own */
    unsigned forks;                    /* of the process, when it was opened */
    unsigned users;                    /* calls under way without the GIL */
    Py_ssize_t exports;
    TransferObject *live; /* a ring of transfers under way, each a reference; NULL: none */
    size_t live_count;
    TransferObject *ended; /* a list of watched ones that have ended; likewise */
    bool sweeping;
    bool publishing;        /* a thread changes a name */
    uint64_t kept_ever;     /* that a loop took for nobody, or for those who wait */
    MemoryObject *memories; /* a list of those that are registered; borrowed */
    InboxObject *inboxes;   /* likewise, of those that are open */
    MessageObject *held;    /* likewise, of those that were not given back */
    PyObject *kept_notes;   /* deques: taken for a loop that slept, and for nobody yet */
    PyObject *kept_events;
    uint64_t lost_events;  /* since the last of these was kept, for want of room */
    PyObject *published;   /* {name: Memory}, or NULL */
    PyObject *asked;       /* {hash: name} of peers' names, or NULL */
    PyObject *addresses;   /* {handle: address} of peers in events, until they are gone, or NULL */
    unsigned done_at_once; /* transfers; each DONE_TURN-th makes progress */
    PyObject *driver;      /* what drives it in an event loop; the Python part's own */
    PyObject *weakrefs;
    struct grave *graves; /* memory whose object is gone, and whose release goes on */
};

enum memory_kind {
    MEMORY_ALLOCATED, /* the library's */
    MEMORY_FOREIGN,   /* an object's, which `view` or `owner` keeps */
    MEMORY_DEVICE,    /* a GPU's: not mapped here */
};
enum memory_state { MEMORY_OPEN, MEMORY_RELEASING, MEMORY_RELEASED };

struct MemoryObject {
    PyObject_HEAD EngineObject *engine;
    MemoryObject *next, *previous;
    weir_memory handle;
    unsigned char *base;
    uint64_t length;
    uint32_t access;
    enum memory_kind kind;
    enum memory_state state;
    bool readonly;
    bool has_view;
    bool in_release; /* a thread is in the call */
    bool named;      /* was published */
    Py_ssize_t exports;
    Py_buffer view;
    PyObject *owner;
};

struct PeerObject {
    PyObject_HEAD EngineObject *engine;
    weir_peer handle;
    bool owned; /* has a reference that weir_peer_close gives back */
    bool closed;
    PyObject *address; /* of an event's: as it was known last, or NULL */
};

struct RemoteObject {
    PyObject_HEAD PeerObject *peer;
    weir_remote handle;
    uint64_t length;
    uint32_t access;
    bool released;
    PyObject *name; /* by which it was opened, or NULL */
};

/* A part of a Memory or a Remote. */
typedef struct SpanObject {
    PyObject_HEAD PyObject *whole;
    uint64_t offset, length;
} SpanObject;

struct TransferObject {
    PyObject_HEAD EngineObject *engine; /* NULL: of the one that was done in its submit */
    TransferObject *next, *previous;
    weir_transfer handle;
    int status;
    bool watched;     /* an event loop waits for its end */
    bool is_live;     /* in the engine's ring */
    const char *what; /* for messages: "write", "read", ... */
    PyObject *names;  /* of its remotes, as text, when it ended with ESTALE; or NULL */
    uint64_t bytes;
    PyObject *peer;
    PyObject **kept; /* dropped at the end */
    size_t kept_count;
    PyObject *kept_pair[2];
};

struct InboxObject {
    PyObject_HEAD EngineObject *engine;
    InboxObject *next, *previous;
    weir_inbox handle;
    uint32_t number;
    bool closed;
    PyObject *kept; /* a deque, as kept_notes; NULL until it is needed */
};

struct MessageObject {
    PyObject_HEAD EngineObject *engine;
    MessageObject *next, *previous;
    weir_message message;
    uint32_t number; /* of its inbox */
    Py_ssize_t exports;
    bool given_back;
};

typedef struct LoanObject {
    PyObject_HEAD EngineObject *engine;
    PyObject *peer;
    weir_loan loan;
    uint32_t inbox;
    Py_ssize_t exports;
    bool gone; /* sent or returned */
} LoanObject;

/* The module's types, and what its Python part has given it. There is one interpreter. */
struct weirpy {
    PyTypeObject *engine, *memory, *memory_slice, *remote, *remote_slice, *peer, *transfer, *inbox,
        *message, *loan, *export_;
    PyTypeObject *notification, *event, *peer_info, *qp_info, *stall_info, *inbox_info, *stats,
        *device_info, *setting, *stray, *name_info;
    PyObject *error_classes; /* {code: class} */
    PyObject *hooks;         /* an object whose methods are called by name */
    PyObject *deque;         /* collections.deque */
    int64_t interpreter;     /* the number of the one that imported the module */
    TransferObject *done;
    unsigned awaited_done;
    unsigned forks; /* how often this process is a child of fork(2) */
};
extern struct weirpy weirpy;

/* ---- errors.c ---- */

/* Raises the exception of the code; the rest says what it was about, as PyErr_Format. */
PyObject *raise_code(int code, const char *format, ...);
/* Says of the exception that is raised which segment it is about: in its `segment`, and, where the
 * text does not say so, before that. */
void raised_at(size_t segment, bool is_said);
bool errors_ready(PyObject *module);

/* ---- engine.c ---- */

/* The engine of a call that keeps the GIL, or NULL, with ClosedError raised. */
weir_engine *engine_use(EngineObject *self);
PyThreadState *engine_leave_gil(EngineObject *self);
void engine_take_gil(EngineObject *self, PyThreadState *state);
/* Whether the arguments of __exit__ are of an exception that leaves the with statement: what is
 * still exported goes when it is dropped then, for a BufferError would take the exception's place.
 */
bool exit_is_left(PyObject *args);
/* A buffer is not exported any more: the last one closes an engine that was abandoned. */
void engine_unexport(EngineObject *self);
bool engine_is_usable(const EngineObject *self);
/* Whether another thread may be in the engine now, so that a short call may have to wait for it:
 * then it gives up the GIL. NULL: it kept it. */
PyThreadState *engine_leave_gil_if_shared(EngineObject *self);
void engine_take_gil_if_left(EngineObject *self, PyThreadState *state);
PyTypeObject *engine_type(PyObject *module);
extern PyMethodDef engine_calls[]; /* engine_calls.c */
/* Tells the event loop that something ended without it. */
void engine_kick(EngineObject *self);
/* Arrivals that a loop took for nobody: a deque, or NULL. Puts one in (the reference stays the
 * caller's), and takes one out: NULL without an exception when there is none. */
bool kept_put(PyObject **deque, PyObject *object);
PyObject *kept_take(PyObject *deque);
Py_ssize_t kept_count(PyObject *deque);

/* ---- export.c ---- */

PyTypeObject *export_type(PyObject *module);
/* bf_getbuffer of an owner, which counts its exports at `count`, and in the engine. */
int export_buffer(Py_buffer *view, PyObject *owner, EngineObject *engine, Py_ssize_t *count,
                  void *data, uint64_t length, bool readonly, int flags);
void export_release(PyObject *owner, Py_buffer *view);

/* ---- options.c ---- */

/* Fills options from the keywords of Engine and weir.settings(); the strings live as long as the
 * keywords. */
bool options_from_keywords(PyObject *keywords, weir_engine_options *options);

/* ---- wait.c ---- */

/* Seconds, a number or None (no limit), as nanoseconds. False: TypeError or ValueError. */
bool seconds_to_ns(PyObject *seconds, uint64_t *ns_out);
/* Of a wait: the time that is left, in slices after each of which signals are looked at. */
struct waiting {
    uint64_t until_ns; /* UINT64_MAX: no limit */
    unsigned in_vain;  /* slices that ended at once, and brought nothing */
};
void waiting_begin(struct waiting *waiting, uint64_t timeout_ns);
/* Makes progress for a slice, without the GIL. 1: look again; 0: the time is over; -1: an
 * exception, KeyboardInterrupt for one. */
int waiting_turn(struct waiting *waiting, EngineObject *engine);
uint64_t waiting_slice(const struct waiting *waiting);
bool waiting_is_over(const struct waiting *waiting);
void sleep_without_gil(uint64_t ns);

/* ---- memory.c, sources.c ---- */

PyTypeObject *memory_type(PyObject *module);
PyObject *memory_allocate(EngineObject *engine, PyObject *args, PyObject *keywords);
PyObject *memory_register(EngineObject *engine, PyObject *args, PyObject *keywords);
/* The engine is closed: gives back what the memory kept. */
void memory_orphan(MemoryObject *self);
/* Goes on with releases that did not end; `closed`: the engine is, and all of them are over. */
void memory_bury(EngineObject *engine, bool closed);
/* Whether the memory may be used in a call; else raises. */
bool memory_check(MemoryObject *self, EngineObject *engine);
int memory_export_buffer(MemoryObject *self, Py_buffer *view, uint64_t offset, uint64_t length,
                         int flags);
/* The object of register(), as memory: base, length, and what keeps it there. */
struct source {
    Py_buffer view;
    bool has_view;
    PyObject *owner;
    unsigned char *base;
    uint64_t length;
    bool readonly;
    bool on_device; /* base is a GPU's address */
};
/* Whether it has DLPack or __cuda_array_interface__. False, too, with an exception of the object.
 */
bool source_is_tensor(PyObject *object);
bool source_from(PyObject *object, bool writable, struct source *source);
void source_drop(struct source *source);
/* A dma-buf of GPU memory; fills the descriptor and the offset in it. */
bool source_dmabuf(const struct source *source, int *fd_out, uint64_t *offset_out);

/* ---- spans.c ---- */

PyTypeObject *memory_slice_type(PyObject *module);
PyTypeObject *remote_slice_type(PyObject *module);
PyObject *span_new(PyTypeObject *type, PyObject *whole, uint64_t offset, uint64_t length,
                   PyObject *key);
/* A local place: a Memory, a slice of one, or any buffer or tensor inside a memory of the engine.
 * *memory_out is borrowed, from the object or the engine. */
MemoryObject *memory_around(EngineObject *engine, const void *begin, uint64_t length);
bool local_place(EngineObject *engine, PyObject *object, MemoryObject **memory_out,
                 uint64_t *offset_out, uint64_t *length_out);
bool remote_place(EngineObject *engine, PyObject *object, RemoteObject **remote_out,
                  uint64_t *offset_out, uint64_t *length_out);

/* ---- remote.c, peer.c ---- */

PyTypeObject *remote_type(PyObject *module);
PyObject *remote_import(PeerObject *peer, PyObject *args);
/* Of a handle that was imported, which is the object's from now on; name may be NULL. */
PyObject *remote_new(PeerObject *peer, weir_remote handle, uint64_t length, uint32_t access,
                     PyObject *name);
PyTypeObject *peer_type(PyObject *module);
PyObject *peer_open(EngineObject *engine, PyObject *args);
PyObject *peer_self(EngineObject *engine, PyObject *ignored);
/* The peer of a handle that came with a message or an event: no reference of its own. */
PyObject *peer_wrap(EngineObject *engine, weir_peer handle);
/* The peer of an event, which keeps its address: the engine forgets it with a peer that is gone. */
PyObject *peer_of_event(EngineObject *engine, const weir_event *event);
/* Its address, for a person. */
const char *peer_name(PeerObject *self, char *text, size_t size);
/* Why there is no session with it; "": nothing is known. May probe a device, without the GIL. */
void peer_refusal_text(PeerObject *self, char *text, size_t size);
weir_engine *peer_use(PeerObject *self);
bool peer_is(PyObject *object);

/* ---- segments.c, submit.c ---- */

/* Segments as the library takes them, and the objects that they use. */
struct segments {
    weir_segment *list;
    size_t count;
    uint64_t bytes;
    PyObject **kept; /* references; consecutive ones differ */
    size_t kept_count;
    weir_segment few[4];
    PyObject *kept_few[8];
    size_t kept_room;
};
void segments_init(struct segments *segments);
void segments_fini(struct segments *segments);
/* One: local and remote; many: an iterable of pairs or fives; an array: N x 5. */
bool segments_from_pair(struct segments *segments, EngineObject *engine, PyObject *local,
                        PyObject *remote, bool is_read);
bool segments_from_list(struct segments *segments, EngineObject *engine, PyObject *list,
                        bool is_read);
bool segments_from_array(struct segments *segments, EngineObject *engine, PyObject *array,
                         PyObject *memories, PyObject *remotes, bool is_read);
/* Which segment the library has refused with this code, for a person, and its number; "" and -1:
 * that is not known. */
Py_ssize_t segments_blame(const struct segments *segments, const PeerObject *peer, int code,
                          bool is_read, char *text, size_t size);
/* Keeps an object. False: MemoryError. */
bool segments_keep(struct segments *segments, PyObject *object);

/* Options of a submit, as keywords. */
struct submit {
    weir_transfer_options options;
    PyObject *memories, *remotes; /* borrowed */
    Py_buffer payload;
    bool has_payload;
    uint64_t block_ns; /* for so long full pools are waited for */
};
enum submit_kind { SUBMIT_TRANSFER, SUBMIT_NOTIFY, SUBMIT_MESSAGE };
bool submit_begin(struct submit *submit, enum submit_kind kind, PyObject *const *values,
                  PyObject *names);
void submit_end(struct submit *submit);
bool number_u64(PyObject *object, const char *what, uint64_t *number_out);
bool number_u32(PyObject *object, const char *what, uint32_t *number_out);
PyObject *peer_write(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names);
/* Whether a submit may keep the GIL: it is short, and nothing waits that it might do besides. */
static inline bool submit_is_short(const EngineObject *engine, uint64_t bytes, size_t count) {
    return bytes <= HELD_BYTES_MOST && count <= HELD_SEGMENTS_MOST && engine->live_count == 0;
}
/* A pool is full: lets go what has ended and, with a time for that, waits. 1: submit again; 0: it
 * is full still; -1: an exception. */
int submit_again(EngineObject *engine, struct submit *submit, struct waiting *waiting,
                 unsigned *tries);
PyObject *peer_read(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *peer_notify(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names);

/* ---- transfer.c ---- */

PyTypeObject *transfer_type(PyObject *module);
bool transfer_make_done(void);
/* Raises what the status says. */
PyObject *transfer_raise(TransferObject *self, int status);
/* The object of a transfer that was submitted: under way, in the engine's ring, with the references
 * of `kept`, which it takes over; or the one that is done. Without memory for it, the transfer is
 * ended first, so that nothing touches what is freed. */
PyObject *transfer_new(EngineObject *engine, PyObject *peer, weir_transfer handle,
                       struct segments *kept, const char *what);
/* Looks at up to `most` transfers under way, and lets those go that have ended. */
void transfers_reap(EngineObject *engine, size_t most);
/* The watched ones that have ended, as a list. */
PyObject *transfers_sweep(EngineObject *engine);
/* The engine is closed. */
void transfers_orphan(EngineObject *engine);
int transfer_poll(TransferObject *self);

/* ---- inbox.c, message.c, outgoing.c, loan.c ---- */

PyTypeObject *inbox_type(PyObject *module);
PyObject *inbox_open(EngineObject *engine, PyObject *args, PyObject *keywords);
/* Takes what is there into the inbox's deque. */
bool inbox_keep_all(InboxObject *self);
PyTypeObject *message_type(PyObject *module);
PyObject *message_new(EngineObject *engine, uint32_t number, const weir_message *message);
void messages_orphan(EngineObject *engine);
PyTypeObject *loan_type(PyObject *module);
PyObject *peer_loan(PeerObject *peer, PyObject *args, PyObject *keywords);
PyObject *peer_send(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names);
PyObject *peer_send_many(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names);

/* ---- names.c, flush.c ---- */

PyObject *engine_publish(EngineObject *self, PyObject *args, PyObject *keywords);
PyObject *engine_publish_value(EngineObject *self, PyObject *args, PyObject *keywords);
PyObject *engine_withdraw(EngineObject *self, PyObject *name);
PyObject *memory_publish(PyObject *self, PyObject *name);
/* The memory is released, or will be: the engine keeps it for no name any more. */
void names_forget(EngineObject *engine, PyObject *memory);
PyObject *remote_open(PeerObject *peer, PyObject *name, PyObject *timeout);
PyObject *peer_value(PeerObject *self, PyObject *args, PyObject *keywords);
PyObject *peer_names(PeerObject *self, PyObject *args, PyObject *keywords);
PyObject *peer_ask(PyObject *self, PyObject *const *args, Py_ssize_t count);
PyObject *name_hash(PyObject *module, PyObject *name);
PyObject *name_object(const char *text, size_t length);
/* The name that was asked for, a str; or the hash, where it is forgotten. */
PyObject *name_of_hash(EngineObject *engine, uint64_t hash);
/* Names of the Remotes among these objects, and in tuples of them, as text; NULL: none has one. */
PyObject *names_of_remotes(PyObject *const *kept, size_t count);
PyObject *engine_flush(EngineObject *self, PyObject *args, PyObject *keywords);
PyObject *peer_flush(PeerObject *self, PyObject *args, PyObject *keywords);
/* The transfers under way, of all peers or of one, as a list. */
PyObject *transfers_under_way(EngineObject *engine, PeerObject *peer);
PyObject *engine_under_way(EngineObject *self, PyObject *ignored);
PyObject *peer_under_way(PeerObject *self, PyObject *ignored);

/* ---- records.c ---- */

bool records_ready(PyObject *module);
/* A struct sequence of a structure of the library's. */
PyObject *record_peer_info(EngineObject *engine, const weir_peer_info *info);
PyObject *record_qp_info(const weir_qp_info *info);
PyObject *record_stall_info(EngineObject *engine, const weir_stall_info *info);
PyObject *record_inbox_info(const weir_inbox_info *info);
PyObject *record_stats(const weir_engine_info *info);
PyObject *record_device_info(const weir_device_info *info);
PyObject *record_setting(const weir_setting_info *info);
PyObject *record_stray(const weir_stray_info *info);
PyObject *record_name_info(const weir_name_info *info);
PyObject *record_notification(EngineObject *engine, const weir_notification *notification);
PyObject *record_event(EngineObject *engine, const weir_event *event);

/* Frees an object of one of our types: all have the collector's head, and are heap types. */
static inline void object_free(void *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

#endif
