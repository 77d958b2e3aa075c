/* SPDX-License-Identifier: Apache-2.0 */
/* peer.c: the type Peer: another engine, by its handle. One that Engine.peer() opened has a
 * reference of the library's, which goes with the object; one that came with a message, a
 * notification or an event has none. Both name the same peer, and are equal, if their handles are.
 */
#include "weirpy.h"

#include <string.h>

weir_engine *peer_use(PeerObject *self) {
    if (self->closed) {
        raise_code(WEIR_ESTALE, "the peer's handle was closed");
        return NULL;
    }
    return engine_use(self->engine);
}

bool peer_is(PyObject *object) {
    return Py_TYPE(object) == weirpy.peer;
}

/* Its address, as the engine knows it; false: it does not. */
static bool find_address(PeerObject *self, weir_peer_info *info) {
    if (self->closed || !engine_is_usable(self->engine))
        return false;
    PyThreadState *state = engine_leave_gil_if_shared(self->engine);
    int rc = weir_peer_query(self->engine->engine, self->handle, info);
    engine_take_gil_if_left(self->engine, state);
    return rc == WEIR_OK;
}

const char *peer_name(PeerObject *self, char *text, size_t size) {
    weir_peer_info info = WEIR_PEER_INFO_INIT;
    if (find_address(self, &info) && info.address[0] != '\0') {
        PyOS_snprintf(text, size, "%.*s", (int)sizeof(info.address), info.address);
        return text;
    }
    const char *known = self->address == NULL ? NULL : PyUnicode_AsUTF8AndSize(self->address, NULL);
    if (known != NULL) {
        PyOS_snprintf(text, size, "%s", known);
        return text;
    }
    PyErr_Clear();
    PyOS_snprintf(text, size, "0x%llx", (unsigned long long)self->handle.id);
    return text;
}

void peer_refusal_text(PeerObject *self, char *text, size_t size) {
    text[0] = '\0';
    if (self->closed || !engine_is_usable(self->engine))
        return;
    PyThreadState *state = engine_leave_gil(self->engine);
    weir_refusal_text(self->engine->engine, self->handle, text, size);
    engine_take_gil(self->engine, state);
}

static PyObject *peer_new(EngineObject *engine, weir_peer handle, bool owned) {
    PeerObject *self = PyObject_GC_New(PeerObject, weirpy.peer);
    if (self == NULL)
        return NULL;
    self->engine = (EngineObject *)Py_NewRef((PyObject *)engine);
    self->handle = handle;
    self->owned = owned;
    self->closed = false;
    self->address = NULL;
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

PyObject *peer_wrap(EngineObject *engine, weir_peer handle) {
    if (handle.id == 0)
        Py_RETURN_NONE;
    return peer_new(engine, handle, false);
}

/* Events of "gone" may be lost: so many are kept. */
#define ADDRESSES_MOST 65536

/* Keeps the address for later events, or finds what one kept. False: an exception. */
static bool keep_address(EngineObject *engine, PeerObject *peer, PyObject *handle) {
    weir_peer_info info = WEIR_PEER_INFO_INIT;
    if (engine->addresses == NULL && (engine->addresses = PyDict_New()) == NULL)
        return false;
    if (find_address(peer, &info) && info.address[0] != '\0') {
        size_t length = strnlen(info.address, sizeof(info.address));
        peer->address = PyUnicode_DecodeUTF8(info.address, (Py_ssize_t)length, "replace");
        if (PyDict_Size(engine->addresses) >= ADDRESSES_MOST)
            PyDict_Clear(engine->addresses);
        return peer->address != NULL &&
               PyDict_SetItem(engine->addresses, handle, peer->address) == 0;
    }
    peer->address = PyDict_GetItemWithError(engine->addresses, handle);
    Py_XINCREF(peer->address);
    return peer->address != NULL || !PyErr_Occurred();
}

PyObject *peer_of_event(EngineObject *engine, const weir_event *event) {
    PyObject *object = peer_wrap(engine, event->peer);
    if (object == NULL || object == Py_None)
        return object;
    PyObject *handle = PyLong_FromUnsignedLongLong(event->peer.id);
    bool good = handle != NULL && keep_address(engine, (PeerObject *)object, handle);
    if (good && event->type == WEIR_EVENT_GONE && PyDict_DelItem(engine->addresses, handle) != 0)
        PyErr_Clear(); /* it was not there */
    Py_XDECREF(handle);
    if (!good)
        Py_CLEAR(object);
    return object;
}

PyObject *peer_open(EngineObject *engine, PyObject *address) {
    weir_engine *open = engine_use(engine);
    weir_peer handle;
    Py_ssize_t length;
    if (open == NULL)
        return NULL;
    if (!PyUnicode_Check(address))
        return PyErr_Format(PyExc_TypeError, "address is a str, \"host:port\", not %R",
                            Py_TYPE(address));
    const char *text = PyUnicode_AsUTF8AndSize(address, &length);
    if (text == NULL)
        return NULL;
    int rc = strlen(text) == (size_t)length ? weir_peer_open(open, text, &handle) : WEIR_EADDRESS;
    if (rc == WEIR_EADDRESS)
        return raise_code(
            rc, "open the peer %R (\"host:port\" of one host, an IPv6 one in brackets)", address);
    if (rc != WEIR_OK)
        return raise_code(rc, "open the peer %R", address);
    PyObject *self = peer_new(engine, handle, true);
    if (self == NULL)
        weir_peer_close(open, handle);
    return self;
}

PyObject *peer_self(EngineObject *engine, PyObject *ignored) {
    (void)ignored;
    weir_engine *open = engine_use(engine);
    weir_peer handle;
    if (open == NULL)
        return NULL;
    PyThreadState *state = engine_leave_gil(engine);
    int rc = weir_peer_self(open, &handle);
    engine_take_gil(engine, state);
    return rc == WEIR_OK ? peer_new(engine, handle, false)
                         : raise_code(rc, "name the engine itself as a peer");
}

PyDoc_STRVAR(
    close_doc,
    "close($self, /)\n--\n\n"
    "Gives the handle back. With the last one of a peer its unfinished transfers end with\n"
    "ClosedError, and its Remotes are of no use any more. The peer stays connected for its\n"
    "own transfers to us. Closing it again does nothing. A handle that nothing refers to is\n"
    "closed by itself.");
static PyObject *peer_close(PeerObject *self, PyObject *ignored) {
    (void)ignored;
    if (self->closed || !self->owned) {
        self->closed = true;
        Py_RETURN_NONE;
    }
    weir_engine *engine = engine_use(self->engine);
    if (engine == NULL)
        return NULL;
    self->closed = true;
    PyThreadState *state = engine_leave_gil(self->engine);
    weir_peer_close(engine, self->handle);
    engine_take_gil(self->engine, state);
    engine_kick(self->engine);
    Py_RETURN_NONE;
}

static void peer_dealloc(PeerObject *self) {
    PyObject_GC_UnTrack(self);
    EngineObject *engine = self->engine;
    if (self->owned && !self->closed && engine_is_usable(engine)) {
        PyThreadState *state = engine_leave_gil(engine);
        weir_peer_close(engine->engine, self->handle);
        engine_take_gil(engine, state);
    }
    PyObject *address = self->address;
    object_free(self);
    Py_XDECREF(address);
    Py_DECREF((PyObject *)engine);
}

static int peer_traverse(PeerObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->engine);
    return 0;
}

/* ---- what it is ---------------------------------------------------------------- */

PyDoc_STRVAR(
    connect_doc,
    "connect($self, /)\n--\n\n"
    "Starts connecting without a transfer. Returns True if a session is up, False while\n"
    "that is under way: an event 'up', 'recovered', 'same' or 'gone' tells the end. Raises\n"
    "ConnectError for a peer that connected by itself and has no address.");
static PyObject *peer_connect(PeerObject *self, PyObject *ignored) {
    (void)ignored;
    char name[WEIR_ADDRESS_MAX];
    weir_engine *engine = peer_use(self);
    if (engine == NULL)
        return NULL;
    PyThreadState *state = engine_leave_gil(self->engine);
    int rc = weir_peer_connect(engine, self->handle);
    engine_take_gil(self->engine, state);
    if (rc == WEIR_OK)
        Py_RETURN_TRUE;
    if (rc == WEIR_ENOTREADY)
        Py_RETURN_FALSE;
    return raise_code(rc, "connect to %s", peer_name(self, name, sizeof(name)));
}

PyDoc_STRVAR(info_doc, "info($self, /)\n--\n\nThe peer as the engine knows it, a PeerInfo.");
static PyObject *peer_info(PeerObject *self, PyObject *ignored) {
    (void)ignored;
    weir_peer_info info = WEIR_PEER_INFO_INIT;
    weir_engine *engine = peer_use(self);
    if (engine == NULL)
        return NULL;
    PyThreadState *state = engine_leave_gil(self->engine);
    int rc = weir_peer_query(engine, self->handle, &info);
    engine_take_gil(self->engine, state);
    return rc == WEIR_OK ? record_peer_info(self->engine, &info)
                         : raise_code(rc, "query a peer that is gone");
}

PyDoc_STRVAR(qp_doc,
             "qp($self, index=0, /)\n--\n\n"
             "One QP of the session, and how the peer's transfers fared, a QPInfo. Without a\n"
             "session there is a QP 0 all the same. Raises IndexError past the last.");
static PyObject *peer_qp(PeerObject *self, PyObject *args) {
    weir_qp_info info = WEIR_QP_INFO_INIT;
    Py_ssize_t index = 0;
    weir_engine *engine = peer_use(self);
    if (engine == NULL || !PyArg_ParseTuple(args, "|n:qp", &index))
        return NULL;
    int rc = WEIR_EINVAL;
    if (index >= 0) {
        PyThreadState *state = engine_leave_gil(self->engine);
        rc = weir_qp_query(engine, self->handle, (size_t)index, &info);
        engine_take_gil(self->engine, state);
    }
    if (rc == WEIR_EINVAL)
        return PyErr_Format(PyExc_IndexError, "the session has no QP %zd", index);
    return rc == WEIR_OK ? record_qp_info(&info) : raise_code(rc, "query a peer that is gone");
}

PyDoc_STRVAR(stall_doc, "stall($self, /)\n--\n\n"
                        "What the peer's outstanding work waits for, stalled or not, a StallInfo.");
static PyObject *peer_stall(PeerObject *self, PyObject *ignored) {
    (void)ignored;
    weir_stall_info info = WEIR_STALL_INFO_INIT;
    weir_engine *engine = peer_use(self);
    if (engine == NULL)
        return NULL;
    PyThreadState *state = engine_leave_gil(self->engine);
    int rc = weir_stall_query(engine, self->handle, &info);
    engine_take_gil(self->engine, state);
    return rc == WEIR_OK ? record_stall_info(self->engine, &info)
                         : raise_code(rc, "query a peer that is gone");
}

static PyObject *text_of(PeerObject *self, size_t room,
                         int (*write)(weir_engine *, weir_peer, char *, size_t)) {
    char text[WEIR_STALL_TEXT_MAX];
    weir_engine *engine = peer_use(self);
    if (engine == NULL)
        return NULL;
    PyThreadState *state = engine_leave_gil(self->engine);
    int rc = write(engine, self->handle, text, room);
    engine_take_gil(self->engine, state);
    return rc == WEIR_OK ? PyUnicode_DecodeUTF8(text, (Py_ssize_t)strnlen(text, room), "replace")
                         : raise_code(rc, "query a peer that is gone");
}

PyDoc_STRVAR(stall_text_doc, "stall_text($self, /)\n--\n\n"
                             "stall() for a person: a sentence, and the figures in a second line.");
static PyObject *peer_stall_text(PeerObject *self, PyObject *ignored) {
    (void)ignored;
    return text_of(self, WEIR_STALL_TEXT_MAX, weir_stall_text);
}

PyDoc_STRVAR(refusal_doc,
             "refusal($self, /)\n--\n\n"
             "Why there is no session with the peer, a sentence; '': nothing is known, or\n"
             "there is one. May probe a device, which blocks.");
static PyObject *peer_refusal(PeerObject *self, PyObject *ignored) {
    (void)ignored;
    return text_of(self, WEIR_REFUSAL_TEXT_MAX, weir_refusal_text);
}

/* ---- memory ------------------------------------------------------------------- */

PyDoc_STRVAR(
    remote_doc,
    "remote($self, what, /, timeout=None)\n--\n\n"
    "Imports the peer's memory, and returns a Remote. On shm this maps it, without the GIL.\n\n"
    "what: the name, a str, under which the peer publishes it: Engine.publish(). Connects, asks,\n"
    "and waits until there is something of this name; timeout: seconds, 0: what is known now;\n"
    "None: no limit but that of connecting, connect_timeout_ns. Each call is another import. Once\n"
    "the name is of something else, or of nothing, transfers with the Remote raise StaleError, an\n"
    "event 'name' tells, and another call opens what the name is of then. aremote() is for event\n"
    "loops.\n"
    "Or a descriptor that the peer got from Memory.export(), bytes.\n\n"
    "Raises TypeError; NotReadyError (a TimeoutError: nothing of this name in time);\n"
    "AccessError (the name is of a value); InvalidError (no name; no descriptor, damaged);\n"
    "StaleError (of another incarnation of the peer, or released), PeerError (its process is\n"
    "dead), AgainError (remotes_max, names_max), NotSupportedError (another device's; it says\n"
    "which), ConnectError, RefusedError, UnreachableError, AddressError, FullError, ClosedError,\n"
    "DeniedError, DescriptorsError, OutOfMemoryError, DeviceError, KeyboardInterrupt.");
static PyObject *peer_remote(PeerObject *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"", "timeout", NULL};
    PyObject *what, *timeout = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|O:remote", names, &what, &timeout))
        return NULL;
    if (PyUnicode_Check(what))
        return remote_open(self, what, timeout);
    if (!PyObject_CheckBuffer(what))
        return PyErr_Format(PyExc_TypeError,
                            "a Remote is made of a name, a str, or a descriptor, bytes, not %R",
                            Py_TYPE(what));
    if (timeout != Py_None)
        return PyErr_Format(PyExc_TypeError, "a timeout goes with a name, not a descriptor");
    return remote_import(self, what);
}

PyDoc_STRVAR(
    value_doc,
    "value($self, /, name, timeout=None)\n--\n\n"
    "The value that the peer publishes under this name, bytes: Engine.publish_value().\n"
    "Connects, asks and waits as remote(). A value that was asked for once is kept here: a\n"
    "later call answers at once with what was heard last. avalue() is for event loops.\n"
    "Raises as remote(); AccessError (the name is of a memory).");

PyDoc_STRVAR(
    names_doc,
    "names($self, /, timeout=None)\n--\n\n"
    "What the peer publishes: a list of NameInfo, in no order. Connects, and waits for the\n"
    "answers for timeout seconds; None: no limit. A name that is published or\n"
    "withdrawn meanwhile is told or not. anames() is for event loops.\n"
    "Raises NotReadyError (a TimeoutError), AgainError (names_max), and why the peer was\n"
    "not reached, as remote().");

PyDoc_STRVAR(
    flush_doc,
    "flush($self, /, timeout=None)\n--\n\n"
    "Makes progress until all transfers and messages to this peer that are under way now\n"
    "have ended, with whatever status; later ones are not waited for. timeout: seconds;\n"
    "None: no limit. aflush() is for event loops. Raises InProgressError (a TimeoutError:\n"
    "all goes on), StaleError (the handle is closed), ClosedError, KeyboardInterrupt.");

/* ---- the type ------------------------------------------------------------------ */

static PyObject *peer_repr(PeerObject *self) {
    char name[WEIR_ADDRESS_MAX];
    return PyUnicode_FromFormat("<weir.Peer %s%s>", peer_name(self, name, sizeof(name)),
                                self->closed ? ", closed" : "");
}

static Py_hash_t peer_hash(PeerObject *self) {
    return (Py_hash_t)(self->handle.id & 0x7fffffffffffffff);
}

static PyObject *peer_compare(PeerObject *self, PyObject *other, int operation) {
    if ((operation != Py_EQ && operation != Py_NE) || Py_TYPE(other) != weirpy.peer)
        Py_RETURN_NOTIMPLEMENTED;
    bool same = self->engine == ((PeerObject *)other)->engine &&
                self->handle.id == ((PeerObject *)other)->handle.id;
    return PyBool_FromLong(same == (operation == Py_EQ));
}

static PyObject *peer_handle(PeerObject *self, void *closure) {
    (void)closure;
    return PyLong_FromUnsignedLongLong(self->handle.id);
}

static PyObject *peer_engine(PeerObject *self, void *closure) {
    (void)closure;
    return Py_NewRef((PyObject *)self->engine);
}

static PyObject *peer_address(PeerObject *self, void *closure) {
    (void)closure;
    weir_peer_info info = WEIR_PEER_INFO_INIT;
    if (peer_use(self) == NULL)
        return NULL;
    if (find_address(self, &info) && (info.address[0] != '\0' || self->address == NULL))
        return PyUnicode_DecodeUTF8(
            info.address, (Py_ssize_t)strnlen(info.address, sizeof(info.address)), "replace");
    return self->address != NULL ? Py_NewRef(self->address)
                                 : raise_code(WEIR_ESTALE, "query a peer that is gone");
}

static PyObject *peer_enter(PeerObject *self, PyObject *ignored) {
    (void)ignored;
    return peer_use(self) == NULL ? NULL : Py_NewRef((PyObject *)self);
}

static PyObject *peer_exit(PeerObject *self, PyObject *args) {
    (void)args;
    return engine_is_usable(self->engine) ? peer_close(self, NULL) : Py_NewRef(Py_None);
}

static PyGetSetDef getset[] = {
    {"address", (getter)peer_address, NULL,
     "Where it listens, \"host:port\"; '' if nowhere. An event's Peer keeps it when the peer is "
     "gone,\n"
     "if that or an earlier event of it was taken while the engine knew it; else StaleError.",
     NULL},
    {"handle", (getter)peer_handle, NULL, "Its number in traces and events, an int.", NULL},
    {"engine", (getter)peer_engine, NULL, "The Engine that names it so.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

#define TRANSFER_KEYWORDS                                                                          \
    "notify: 64 bits, an int: the peer's application takes a Notification with this tag, once "    \
    "all\n"                                                                                        \
    "of the data is there. payload: up to 256 bytes, which come with it.\n"                        \
    "timeout: a deadline, seconds; then TimedOutError. once: must not be replayed on a new\n"      \
    "session (UnknownOutcomeError instead). block: where the pools are full, wait up to\n"         \
    "backoff_timeout_ns before AgainError.\n\n"

PyDoc_STRVAR(
    write_doc,
    "write($self, local, remote=None, /, *, memories=None, remotes=None, notify=None,\n"
    "      payload=None, timeout=None, once=False, block=False)\n--\n\n"
    "Writes local memory to the peer's memory, and returns a Transfer.\n\n"
    "write(local, remote): one segment. local: a Memory, memory[a:b], or any contiguous buffer\n"
    "or tensor that lies inside a memory of the engine, such as a numpy view of one. remote: a\n"
    "Remote or remote[a:b]. Both have the same length.\n"
    "write(segments): an iterable of (local, remote), or of (memory, offset, remote, offset,\n"
    "length).\n"
    "write(array, memories=[...], remotes=[...]): an array of shape (N, 5), of 64-bit integers,\n"
    "C-contiguous; its columns are the index in memories, the offset there, the index in remotes,\n"
    "the offset there, and the length, in bytes. This is the way for thousands.\n"
    "Segments have no order.\n\n" TRANSFER_KEYWORDS
    "The bytes stay as they are until the transfer has ended; their memory is kept alive for so\n"
    "long. On shm the call copies, without the GIL unless it is short.\n"
    "Raises TypeError, ValueError, OverflowError (what was given), BoundsError (an IndexError),\n"
    "AccessError, StaleError, InvalidError (memory of another peer), TooBigError, AgainError (a\n"
    "pool is full): nothing was posted then. The Transfer tells all else.");

PyDoc_STRVAR(
    read_doc,
    "read($self, local, remote=None, /, *, memories=None, remotes=None, notify=None,\n"
    "     payload=None, timeout=None, once=False, block=False)\n--\n\n"
    "Reads the peer's memory into local memory, and returns a Transfer. As write(), but for the\n"
    "direction: local memory must not be read-only (BufferError), and is undefined until the\n"
    "transfer has ended. A notification tells the peer that its memory has been read.");

PyDoc_STRVAR(notify_doc,
             "notify($self, tag, payload=b'', /, *, timeout=None, once=False, block=False)\n--\n\n"
             "Sends a notification, 64 bits and up to 256 bytes, and returns a Transfer. "
             "Notifications have\n"
             "no order among each other. Raises as write().");

PyDoc_STRVAR(
    send_doc,
    "send($self, inbox, data, /, *, tag=0, timeout=None, no_wait=False, now=False, once=False,\n"
    "     block=False)\n--\n\n"
    "Sends a message to the peer's inbox of this number, and returns a Transfer. Messages of one\n"
    "thread to one inbox come in their order, each once.\n\n"
    "data: a bytes-like object; a Memory or memory[a:b]; or a list of these, which are one behind\n"
    "the other in the message. Up to 192 bytes are copied before the call returns. Of a longer\n"
    "message registered memory is sent from where it is, and stays as it is until the transfer "
    "has\n"
    "ended; if any part is other memory, all is copied to a loan first.\n"
    "tag: 64 bits that come with the message. no_wait: NotReadyError as soon as the peer says "
    "that\n"
    "it has no such inbox. now: likewise, and AgainError where the inbox has no room. timeout,\n"
    "once, block: as of write().\n"
    "Raises TypeError, BoundsError, StaleError, TooBigError (1 GiB), AgainError (a pool is full, "
    "or\n"
    "all memory for loans is lent: wait, and send again).");

PyDoc_STRVAR(
    send_many_doc,
    "send_many($self, inbox, messages, /, *, timeout=None, no_wait=False, now=False, once=False,\n"
    "          block=False)\n--\n\n"
    "Sends messages in their order, each a bytes-like object of up to 192 bytes, a Memory or a\n"
    "slice of one, a list of these, or (data, tag). Returns a list of Transfers: of those that "
    "were\n"
    "sent, from the front, one at least; a call that begins with the next says why it was not. A\n"
    "small message costs a fraction of what it costs in a call of its own. Raises as send(), for\n"
    "the first message; InvalidError for a longer one outside registered memory.");

PyDoc_STRVAR(
    loan_doc,
    "loan($self, inbox, length, /)\n--\n\n"
    "Lends memory to make a message in, of up to length bytes, for the peer's inbox of this\n"
    "number. On shm no byte of it moves when it is sent. Returns a Loan.\n"
    "Raises AgainError (all is lent: wait, and ask again), TooBigError, StaleError,\n"
    "FullError, OutOfMemoryError, LockedMemoryError, DescriptorsError, DeviceError.");

#define CALL(name, function, flags, doc)                                                           \
    { name, (PyCFunction)(void (*)(void))(function), flags, doc }
static PyMethodDef methods[] = {
    CALL("write", peer_write, METH_FASTCALL | METH_KEYWORDS, write_doc),
    CALL("read", peer_read, METH_FASTCALL | METH_KEYWORDS, read_doc),
    CALL("notify", peer_notify, METH_FASTCALL | METH_KEYWORDS, notify_doc),
    CALL("send", peer_send, METH_FASTCALL | METH_KEYWORDS, send_doc),
    CALL("send_many", peer_send_many, METH_FASTCALL | METH_KEYWORDS, send_many_doc),
    CALL("loan", peer_loan, METH_VARARGS | METH_KEYWORDS, loan_doc),
    CALL("remote", peer_remote, METH_VARARGS | METH_KEYWORDS, remote_doc),
    CALL("value", peer_value, METH_VARARGS | METH_KEYWORDS, value_doc),
    CALL("names", peer_names, METH_VARARGS | METH_KEYWORDS, names_doc),
    CALL("flush", peer_flush, METH_VARARGS | METH_KEYWORDS, flush_doc),
    CALL("_ask", peer_ask, METH_FASTCALL, NULL),
    CALL("_under_way", peer_under_way, METH_NOARGS, NULL),
    CALL("connect", peer_connect, METH_NOARGS, connect_doc),
    CALL("info", peer_info, METH_NOARGS, info_doc),
    CALL("qp", peer_qp, METH_VARARGS, qp_doc),
    CALL("stall", peer_stall, METH_NOARGS, stall_doc),
    CALL("stall_text", peer_stall_text, METH_NOARGS, stall_text_doc),
    CALL("refusal", peer_refusal, METH_NOARGS, refusal_doc),
    CALL("close", peer_close, METH_NOARGS, close_doc),
    CALL("__enter__", peer_enter, METH_NOARGS, "__enter__($self, /)\n--\n\nItself."),
    CALL("__exit__", peer_exit, METH_VARARGS, "__exit__($self, /, *exception)\n--\n\nclose()."),
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(peer_class_doc,
             "Another engine, from Engine.peer(), or the sender of a message or a notification.\n\n"
             "It outlives the process there: after its death transfers with its memory are\n"
             "StaleError, and what answers at the address next is the same peer. Two Peers are\n"
             "equal if their handles are.");

PyTypeObject *peer_type(PyObject *module) {
    static PyType_Slot slots[] = {
        {Py_tp_doc, (void *)peer_class_doc},
        {Py_tp_dealloc, peer_dealloc},
        {Py_tp_traverse, peer_traverse},
        {Py_tp_repr, peer_repr},
        {Py_tp_hash, peer_hash},
        {Py_tp_richcompare, peer_compare},
        {Py_tp_getset, getset},
        {Py_tp_methods, methods},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "weir.Peer",
        .basicsize = sizeof(PeerObject),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        .slots = slots,
    };
    return (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
}
