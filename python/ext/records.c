/* SPDX-License-Identifier: Apache-2.0 */
/* records.c: structures of the library as struct sequences: each field's name, place and kind stand
 * in one table, with what help() says of it. */
#include "weirpy.h"

#include <string.h>

enum kind {
    KIND_U32,
    KIND_U64,
    KIND_INT,
    KIND_BOOL,  /* uint32_t */
    KIND_TEXT,  /* an array of char */
    KIND_NAME,  /* const char * or NULL */
    KIND_BYTES, /* 16 of them */
    KIND_PEER,
    KIND_AUTO,   /* uint64_t; its last value: the engine or the device chooses */
    KIND_CAUSE,  /* uint32_t: a weir_stall_cause */
    KIND_SOURCE, /* uint32_t: a weir_setting_source */
    KIND_NAMED   /* uint32_t: a weir_name_kind */
};

struct field {
    const char *name, *doc;
    size_t offset;
    enum kind kind;
    size_t size;
};
#define FIELD(type, name, kind, doc)                                                               \
    { #name, doc, offsetof(type, name), kind, sizeof(((type *)0)->name) }

static const struct field peer_fields[] = {
#define F(name, kind, doc) FIELD(weir_peer_info, name, kind, doc)
    F(address, KIND_TEXT, "of the peer's listener; '' if it has none"),
    F(instance, KIND_BYTES, "its random identity, 16 bytes; zeros until it was first met"),
    F(connected, KIND_BOOL, "a session is up"),
    F(qp_count, KIND_U32, "QPs of the session; 0 without one"),
    F(sq_depth, KIND_U32, "slots of each QP that transfers may take"),
    F(sq_used, KIND_U32, "slots taken now, of all QPs"),
    F(sq_high_water, KIND_U32, "the most slots ever taken on one QP of this session"),
    F(pending, KIND_U32, "transfers that wait to be posted"),
    F(sessions, KIND_U64, "sessions that ever came up"),
    F(refusal, KIND_INT, "why the peer refused a session, a code; 0: it did not"),
    F(peer, KIND_PEER, "the Peer that its events and notifications carry"),
#undef F
};

static const struct field qp_fields[] = {
#define F(name, kind, doc) FIELD(weir_qp_info, name, kind, doc)
    F(sq_depth, KIND_U32, "slots; 0: no session is up"),
    F(sq_used, KIND_U32, "slots taken now"),
    F(sq_high_water, KIND_U32, "the most slots ever taken"),
    F(pending, KIND_U32, "of the peer: transfers that wait to be posted"),
    F(bytes, KIND_U64, "of reads and writes posted"),
    F(inflight_bytes, KIND_U64, "of these, not accounted for yet"),
    F(partial_posts, KIND_U64, "posts of which the device took only a part"),
    F(orphans, KIND_U64, "work requests left without a signalled tail by those"),
    F(sessions, KIND_U64, "of the peer: sessions that came up"),
    F(recoveries, KIND_U64, "of these: took the place of one that broke"),
    F(replays, KIND_U64, "transfers started again on a new session"),
    F(admission_waits, KIND_U64, "times that a transfer waited for slots"),
    F(admission_wait_ns, KIND_U64, "time that something waited for slots, ns"),
    F(inflight_waits, KIND_U64, "times that transfers waited for bytes in flight"),
    F(inflight_wait_ns, KIND_U64, "time that something waited for them, ns"),
#undef F
};

static const struct field stall_fields[] = {
#define F(name, kind, doc) FIELD(weir_stall_info, name, kind, doc)
    F(peer, KIND_PEER, "the Peer that its events carry"),
    F(stalled, KIND_BOOL, "'stalled' was told, and neither 'resumed' nor 'gone' since"),
    F(cause, KIND_CAUSE, "what the work waits for now: 'none', 'here', 'connect', 'credits', ..."),
    F(error, KIND_INT, "a code that goes with some causes, or 0"),
    F(inbox, KIND_U32, "the inbox's number, of causes about one"),
    F(still_ns, KIND_U64, "nothing has completed for so long, ns; 0: nobody watches"),
    F(absent_ns, KIND_U64, "this engine made no progress for so long, ns"),
    F(waiting, KIND_U32, "transfers and messages that are outstanding"),
    F(pending, KIND_U32, "of these: wait to be posted"),
    F(posted, KIND_U32, "posted, wait for the device"),
    F(parked, KIND_U32, "wait for what became of them on a session that broke"),
    F(credit_waits, KIND_U32, "wait for credits"),
    F(room_waits, KIND_U32, "wait for room in inboxes"),
    F(sq_used, KIND_U32, "slots taken"),
    F(sq_depth, KIND_U32, "slots granted"),
    F(credits, KIND_U32, "notifications that may be sent now"),
    F(credits_max, KIND_U32, "and if the peer had taken up all"),
    F(inflight_bytes, KIND_U64, "posted to the peer, not accounted for"),
    F(room_bytes, KIND_U64, "of messages that wait for room"),
    F(inflight_bytes_engine, KIND_U64, "in flight to all peers"),
    F(inflight_bytes_max, KIND_U64, "the most that may be"),
    F(completed, KIND_U64, "work that completed, in all"),
    F(stalls, KIND_U64, "stalls that were told, in all"),
    F(last_cause, KIND_CAUSE, "of the last stall that was told"),
    F(last_error, KIND_INT, "its error"),
    F(last_ns, KIND_U64, "how long it lasted, ns; 0: it lasts"),
    F(peer_answer_ns, KIND_U64, "how long the peer's last answer took, ns"),
    F(peer_away_ns, KIND_U64, "nobody had made progress there for so long, ns"),
    F(peer_notifications, KIND_U32, "received there and not taken"),
    F(peer_ready, KIND_U32, "senders with a message to take in that inbox"),
    F(peer_held, KIND_U32, "messages taken from it and not given back"),
    F(peer_thread, KIND_BOOL, "its engine has a thread of its own"),
    F(peer_silent_ns, KIND_U64, "it was asked so long ago, and has not answered, ns"),
    F(host_silent, KIND_BOOL, "its host acknowledges nothing"),
    F(control_retransmits, KIND_U32, "how often TCP has repeated that, in a row"),
    F(counted_ns, KIND_U64, "since when the next ones count, ns ago"),
    F(completions, KIND_U64, "taken from the device's CQs, of all peers"),
    F(cq_entries, KIND_U32, "that those CQs have"),
    F(device_counts, KIND_BOOL, "the device counts at least one of the next four"),
    F(device_not_ready, KIND_U64, "answers that a receiver was not ready (RNR)"),
    F(device_repeats, KIND_U64, "requests that it sent again"),
    F(port_sent, KIND_U64, "bytes, by its port"),
    F(port_received, KIND_U64, "bytes, by its port"),
    F(port_bytes_per_s, KIND_U64, "that the port carries at most; 0: not known"),
    F(room_inboxes, KIND_U32, "inboxes that messages wait for, or for room in"),
    F(peer_process, KIND_U32, "its pid; 0: not known"),
#undef F
};

static const struct field inbox_fields[] = {
#define F(name, kind, doc) FIELD(weir_inbox_info, name, kind, doc)
    F(number, KIND_U32, "by which peers name it"),
    F(senders, KIND_U32, "peers that have sent to it, and are there"),
    F(message_bytes_max, KIND_U64, "the longest message, bytes"),
    F(chunk_bytes, KIND_U64, "bytes of a chunk"),
    F(chunks, KIND_U32, "how many there are"),
    F(chunks_free, KIND_U32, "how many no peer has"),
    F(held, KIND_U32, "messages taken and not given back"),
    F(waiting, KIND_U32, "peers that wait for room"),
    F(taken, KIND_U64, "messages, so far"),
    F(spoiled, KIND_U64, "chunks whose rest was dropped"),
    F(bytes, KIND_U64, "of its memory"),
#undef F
};

static const struct field stats_fields[] = {
#define F(name, doc) FIELD(weir_engine_info, name, KIND_U64, doc),
    WEIR_COUNTERS(F)
#undef F
};

static const struct field device_fields[] = {
#define F(name, kind, doc) FIELD(weir_device_info, name, kind, doc)
    F(name, KIND_TEXT, "for Engine(device=...)"),
    F(message_bytes_max, KIND_U64, "larger segments are split"),
    F(inline_bytes_max, KIND_U32, "the longest payload that is copied when it is posted"),
    F(sq_depth_max, KIND_U32, "the deepest send queue"),
    F(ordered, KIND_BOOL, "work requests of a QP take effect in order"),
    F(completes_inline, KIND_BOOL, "work requests are complete when the post returns"),
    F(engine_bytes, KIND_U64, "memory that an engine without options takes"),
    F(available, KIND_INT, "0, or the code of why it cannot be used here"),
    F(qps_max, KIND_U32, "QPs for one engine; 0: as many as there are peers"),
    F(note, KIND_TEXT, "the device that is used, or why none can be; ''"),
    F(address_bytes, KIND_U64, "address space that such an engine takes"),
#undef F
};

static const struct field setting_fields[] = {
#define F(name, kind, doc) FIELD(weir_setting_info, name, kind, doc)
    F(name, KIND_NAME, "the keyword of Engine, or the device"),
    F(variable, KIND_NAME, "its environment variable"),
    F(unit, KIND_NAME, "of the numbers here: '', 'B', 'us' or 'ms'"),
    F(what, KIND_NAME, "a few words about it"),
    F(value, KIND_AUTO, "as an engine would have it; None: the engine or the device chooses"),
    F(fallback, KIND_AUTO, "the default"),
    F(least, KIND_U64, "the least that it may be"),
    F(most, KIND_U64, "the most"),
    F(source, KIND_SOURCE, "'default', 'environment' or 'option'"),
    F(status, KIND_INT, "0, or EINVAL: an engine would not open"),
    F(note, KIND_TEXT, "then why; ''"),
    F(in_force, KIND_AUTO, "the part of value that has an effect"),
    F(text, KIND_TEXT, "of a device's variable that is no number; ''"),
#undef F
};

static const struct field stray_fields[] = {
#define F(name, kind, doc) FIELD(weir_stray_info, name, kind, doc)
    F(name, KIND_TEXT, "the variable, which nothing reads"),
    F(nearest, KIND_NAME, "the one that may have been meant, or None"),
    F(note, KIND_TEXT, "both, in a line"),
#undef F
};

/* These three are made by hand, below. */
static const struct field name_fields[] = {
    {"name", "the name, a str", 0, KIND_TEXT, 0},
    {"kind", "'memory' or 'value'", 0, KIND_NAMED, 0},
    {"length", "of the memory or the value, bytes", 0, KIND_U64, 0},
};
static const struct field notification_fields[] = {
    {"peer", "the Peer that sent it", 0, KIND_PEER, 0},
    {"tag", "its 64 bits, an int", 0, KIND_U64, 0},
    {"payload", "0 to 256 bytes", 0, KIND_BYTES, 0},
};
static const struct field event_fields[] = {
    {"type",
     "'up', 'degraded', 'recovered', 'gone', 'lost', 'same', 'refused',\n"
     "'device_failed', 'stalled', 'resumed' or 'name'",
     0, KIND_NAME, 0},
    {"error", "a code, why; 0 with 'up', 'lost', 'same' and 'resumed'", 0, KIND_INT, 0},
    {"peer", "the Peer, or None", 0, KIND_PEER, 0},
    {"value",
     "lost: how many; degraded, recovered: the transfer's id; gone: the peer's reason; same: the\n"
     "handle that events carry; stalled: the cause's name, a str; resumed: ns; name: the name of\n"
     "the peer's that is there now, or of something else, a str, or its hash where too many\n"
     "others were asked for since; None with an error: the peer was not reached for what was "
     "asked; else 0",
     0, KIND_U64, 0},
};

/* ---- values ---------------------------------------------------------------------- */

static PyObject *value_of(EngineObject *engine, const struct field *field, const char *at) {
    static const char *const sources[] = {"default", "environment", "option"};
    uint32_t narrow = 0;
    uint64_t wide = 0;
    int number;
    const char *name;
    weir_peer peer;
    if (field->size == sizeof(narrow))
        memcpy(&narrow, at, sizeof(narrow));
    if (field->size == sizeof(wide))
        memcpy(&wide, at, sizeof(wide));
    switch (field->kind) {
    case KIND_U32:
        return PyLong_FromUnsignedLong(narrow);
    case KIND_BOOL:
        return PyBool_FromLong(narrow != 0);
    case KIND_CAUSE:
        return PyUnicode_FromString(weir_stall_cause_name((int)narrow));
    case KIND_SOURCE:
        return PyUnicode_FromString(narrow < 3 ? sources[narrow] : "?");
    case KIND_U64:
        return PyLong_FromUnsignedLongLong(wide);
    case KIND_AUTO:
        return wide == WEIR_SETTING_AUTO ? Py_NewRef(Py_None) : PyLong_FromUnsignedLongLong(wide);
    case KIND_INT:
        memcpy(&number, at, sizeof(number));
        return PyLong_FromLong(number);
    case KIND_TEXT:
        return PyUnicode_DecodeUTF8(at, (Py_ssize_t)strnlen(at, field->size), "replace");
    case KIND_NAME:
        memcpy(&name, at, sizeof(name));
        return name == NULL ? Py_NewRef(Py_None) : PyUnicode_FromString(name);
    case KIND_BYTES:
        return PyBytes_FromStringAndSize(at, (Py_ssize_t)field->size);
    case KIND_PEER:
    default:
        memcpy(&peer, at, sizeof(peer));
        return peer_wrap(engine, peer);
    }
}

static PyObject *record(EngineObject *engine, PyTypeObject *type, const struct field *fields,
                        size_t count, const void *from) {
    PyObject *self = PyStructSequence_New(type);
    for (size_t i = 0; self != NULL && i < count; i++) {
        PyObject *value = value_of(engine, &fields[i], (const char *)from + fields[i].offset);
        if (value == NULL)
            Py_CLEAR(self);
        else
            PyStructSequence_SetItem(self, (Py_ssize_t)i, value);
    }
    return self;
}

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
PyObject *record_peer_info(EngineObject *engine, const weir_peer_info *info) {
    return record(engine, weirpy.peer_info, peer_fields, COUNT(peer_fields), info);
}
PyObject *record_qp_info(const weir_qp_info *info) {
    return record(NULL, weirpy.qp_info, qp_fields, COUNT(qp_fields), info);
}
PyObject *record_stall_info(EngineObject *engine, const weir_stall_info *info) {
    return record(engine, weirpy.stall_info, stall_fields, COUNT(stall_fields), info);
}
PyObject *record_inbox_info(const weir_inbox_info *info) {
    return record(NULL, weirpy.inbox_info, inbox_fields, COUNT(inbox_fields), info);
}
PyObject *record_stats(const weir_engine_info *info) {
    return record(NULL, weirpy.stats, stats_fields, COUNT(stats_fields), info);
}
PyObject *record_device_info(const weir_device_info *info) {
    return record(NULL, weirpy.device_info, device_fields, COUNT(device_fields), info);
}
PyObject *record_setting(const weir_setting_info *info) {
    return record(NULL, weirpy.setting, setting_fields, COUNT(setting_fields), info);
}
PyObject *record_stray(const weir_stray_info *info) {
    return record(NULL, weirpy.stray, stray_fields, COUNT(stray_fields), info);
}

/* Puts a value, which it takes over, into a sequence; false: there was none. */
static bool put(PyObject **self, Py_ssize_t at, PyObject *value) {
    if (*self != NULL && value != NULL) {
        PyStructSequence_SetItem(*self, at, value);
        return true;
    }
    Py_XDECREF(value);
    Py_CLEAR(*self);
    return false;
}

PyObject *record_notification(EngineObject *engine, const weir_notification *notification) {
    PyObject *self = PyStructSequence_New(weirpy.notification);
    if (put(&self, 0, peer_wrap(engine, notification->from)) &&
        put(&self, 1, PyLong_FromUnsignedLongLong(notification->tag)))
        put(&self, 2,
            PyBytes_FromStringAndSize((const char *)notification->payload,
                                      (Py_ssize_t)notification->length));
    return self;
}

PyObject *record_name_info(const weir_name_info *info) {
    PyObject *self = PyStructSequence_New(weirpy.name_info);
    const char *kind = info->kind == WEIR_NAME_OF_MEMORY ? "memory" : "value";
    if (put(&self, 0, name_object(info->name, strnlen(info->name, sizeof(info->name)))) &&
        put(&self, 1, PyUnicode_FromString(kind)))
        put(&self, 2, PyLong_FromUnsignedLongLong(info->length));
    return self;
}

PyObject *record_event(EngineObject *engine, const weir_event *event) {
    PyObject *self = PyStructSequence_New(weirpy.event);
    PyObject *value;
    if (!put(&self, 0, PyUnicode_FromString(weir_event_name((int)event->type))) ||
        !put(&self, 1, PyLong_FromLong(event->error)) ||
        !put(&self, 2, peer_of_event(engine, event)))
        return NULL;
    if (event->type == WEIR_EVENT_STALLED)
        value = PyUnicode_FromString(weir_stall_cause_name((int)event->value));
    else if (event->type == WEIR_EVENT_GONE)
        value = PyLong_FromLong((int)event->value);
    else if (event->type == WEIR_EVENT_NAME)
        value = event->error == 0 ? name_of_hash(engine, event->value) : Py_NewRef(Py_None);
    else
        value = PyLong_FromUnsignedLongLong(event->value);
    put(&self, 3, value);
    return self;
}

/* ---- types ------------------------------------------------------------------------ */

static PyTypeObject *make(PyObject *module, const char *name, const char *doc,
                          const struct field *fields, size_t count) {
    PyStructSequence_Field described[64];
    PyStructSequence_Desc description = {
        .name = name, .doc = doc, .fields = described, .n_in_sequence = (int)count};
    for (size_t i = 0; i < count; i++)
        described[i] = (PyStructSequence_Field){fields[i].name, fields[i].doc};
    described[count] = (PyStructSequence_Field){NULL, NULL};
    PyTypeObject *type = PyStructSequence_NewType(&description);
    if (type != NULL && PyModule_AddObjectRef(module, strchr(name, '.') + 1, (PyObject *)type) != 0)
        Py_CLEAR(type);
    return type;
}

_Static_assert(COUNT(stats_fields) < 64 && COUNT(stall_fields) < 64, "described[] is too short");

bool records_ready(PyObject *module) {
#define MAKE(field, name, fields, doc)                                                             \
    if ((weirpy.field = make(module, "weir." name, doc, fields, COUNT(fields))) == NULL)           \
        return false;
    MAKE(notification, "Notification", notification_fields,
         "What a peer's transfer told, once all of its data was here.")
    MAKE(event, "Event", event_fields,
         "What became of a peer, or of the engine. weir.error(event.error) has name and sentence.")
    MAKE(peer_info, "PeerInfo", peer_fields, "A peer as the engine knows it: Peer.info().")
    MAKE(qp_info, "QPInfo", qp_fields, "One QP of a session: Peer.qp().")
    MAKE(stall_info, "StallInfo", stall_fields, "What a peer's work waits for: Peer.stall().")
    MAKE(inbox_info, "InboxInfo", inbox_fields, "An inbox: Inbox.info().")
    MAKE(stats, "Stats", stats_fields, "An engine's counters: Engine.stats().")
    MAKE(device_info, "DeviceInfo", device_fields, "A device that is built in: devices().")
    MAKE(setting, "Setting", setting_fields, "A setting, and where it comes from: settings().")
    MAKE(stray, "Stray", stray_fields,
         "A variable of the environment that nothing reads: strays().")
    MAKE(name_info, "NameInfo", name_fields, "A name that a peer has published: Peer.names().")
#undef MAKE
    return true;
}
