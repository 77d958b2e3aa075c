/* SPDX-License-Identifier: Apache-2.0 */
/* inbox.c: the type Inbox: where this engine takes messages. An event loop that goes to sleep takes
 * what nobody awaits into the inbox's deque: the bytes stay in the inbox's room, and their senders
 * wait for it as before. */
#include "weirpy.h"

#include <string.h>

static void unlink_inbox(InboxObject *self) {
    if (self->previous != NULL)
        self->previous->next = self->next;
    else if (self->engine->inboxes == self)
        self->engine->inboxes = self->next;
    if (self->next != NULL)
        self->next->previous = self->previous;
    self->next = self->previous = NULL;
}

PyObject *inbox_open(EngineObject *engine, PyObject *args, PyObject *keywords) {
    static char *names[] = {"number", "message_bytes_max", "peer_messages", "messages", NULL};
    weir_inbox_options options = WEIR_INBOX_OPTIONS_INIT;
    PyObject *number, *bytes, *peer_messages = NULL, *messages = NULL;
    weir_inbox handle;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO|OO:inbox", names, &number, &bytes,
                                     &peer_messages, &messages) ||
        !number_u32(number, "number", &options.number) ||
        !number_u64(bytes, "message_bytes_max", &options.message_bytes_max) ||
        (peer_messages != NULL &&
         !number_u32(peer_messages, "peer_messages", &options.peer_messages)) ||
        (messages != NULL && !number_u32(messages, "messages", &options.messages)))
        return NULL;
    weir_engine *open = engine_use(engine); /* __index__ of a number may have closed it */
    if (open == NULL)
        return NULL;
    PyThreadState *state = engine_leave_gil(engine);
    int rc = weir_inbox_open(open, &options, &handle);
    engine_take_gil(engine, state);
    if (rc != WEIR_OK)
        return raise_code(rc, "open the inbox %lu", (unsigned long)options.number);
    InboxObject *self = PyObject_GC_New(InboxObject, weirpy.inbox);
    if (self == NULL) {
        weir_inbox_close(open, handle);
        return NULL;
    }
    memset((char *)self + sizeof(PyObject), 0, sizeof(*self) - sizeof(PyObject));
    self->engine = (EngineObject *)Py_NewRef((PyObject *)engine);
    self->handle = handle;
    self->number = options.number;
    self->next = engine->inboxes;
    if (self->next != NULL)
        self->next->previous = self;
    engine->inboxes = self;
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

static weir_engine *inbox_use(InboxObject *self) {
    weir_engine *engine = engine_use(self->engine);
    if (engine != NULL && self->closed) {
        raise_code(WEIR_ESTALE, "the inbox %lu, which was closed", (unsigned long)self->number);
        return NULL;
    }
    return engine;
}

/* ---- taking --------------------------------------------------------------------- */

/* A Message, or NULL; without an exception: there is none. */
static PyObject *take_one(InboxObject *self) {
    weir_message message;
    weir_engine *engine = inbox_use(self);
    if (engine == NULL)
        return NULL;
    if (kept_count(self->kept) > 0)
        return kept_take(self->kept);
    PyThreadState *state = engine_leave_gil_if_shared(self->engine);
    int rc = weir_message_take(engine, self->handle, &message);
    engine_take_gil_if_left(self->engine, state);
    if (rc == WEIR_OK)
        return message_new(self->engine, self->number, &message);
    return rc == WEIR_EAGAIN
               ? NULL
               : raise_code(rc, "take a message of the inbox %lu", (unsigned long)self->number);
}

PyDoc_STRVAR(poll_doc, "poll($self, /)\n--\n\n"
                       "Takes a Message that is there, or None. Makes no progress.");
static PyObject *inbox_poll(InboxObject *self, PyObject *ignored) {
    (void)ignored;
    PyObject *message = take_one(self);
    if (message == NULL && !PyErr_Occurred())
        Py_RETURN_NONE;
    return message;
}

PyDoc_STRVAR(
    take_doc,
    "take($self, /, timeout=None)\n--\n\n"
    "Takes the next Message, of its senders in turns; makes progress until there is one, or\n"
    "timeout seconds have passed: InProgressError, a TimeoutError. Raises StaleError\n"
    "(closed), DeviceError, ClosedError, KeyboardInterrupt.");
static PyObject *inbox_take(InboxObject *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"timeout", NULL};
    PyObject *timeout = Py_None, *message;
    uint64_t timeout_ns;
    struct waiting waiting;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|O:take", names, &timeout) ||
        !seconds_to_ns(timeout, &timeout_ns))
        return NULL;
    waiting_begin(&waiting, timeout_ns);
    while ((message = take_one(self)) == NULL && !PyErr_Occurred()) {
        int rc = waiting_turn(&waiting, self->engine);
        if (rc < 0)
            return NULL;
        if (rc == 0)
            return raise_code(WEIR_EINPROGRESS, "wait for a message in the inbox %lu",
                              (unsigned long)self->number);
    }
    return message;
}

/* Appends up to `most` messages to the list; -1: an exception; else how many. */
static Py_ssize_t take_batch(InboxObject *self, PyObject *list, Py_ssize_t most) {
    weir_message messages[32];
    size_t count = 0;
    weir_engine *engine = inbox_use(self);
    if (engine == NULL)
        return -1;
    size_t wanted = most < 32 ? (size_t)most : 32;
    PyThreadState *state = engine_leave_gil_if_shared(self->engine);
    int rc = weir_message_take_many(engine, self->handle, messages, wanted, &count);
    engine_take_gil_if_left(self->engine, state);
    if (rc != WEIR_OK) {
        if (rc != WEIR_EAGAIN)
            raise_code(rc, "take messages of the inbox %lu", (unsigned long)self->number);
        return rc == WEIR_EAGAIN ? 0 : -1;
    }
    Py_ssize_t added = 0;
    for (size_t i = 0; i < count; i++) {
        PyObject *message =
            added < 0 ? NULL : message_new(self->engine, self->number, &messages[i]);
        if (message == NULL || PyList_Append(list, message) != 0)
            added = -1;
        else
            added++;
        if (message == NULL)
            weir_message_give_back(engine, &messages[i]); /* no object does */
        Py_XDECREF(message);
    }
    return added;
}

PyDoc_STRVAR(take_many_doc, "take_many($self, most, /)\n--\n\n"
                            "A list of up to `most` Messages that are there. Makes no progress.");
static PyObject *inbox_take_many(InboxObject *self, PyObject *args) {
    Py_ssize_t most, got = 1;
    if (!PyArg_ParseTuple(args, "n:take_many", &most))
        return NULL;
    if (most < 1) {
        PyErr_SetString(PyExc_ValueError, "most is 1 or more");
        return NULL;
    }
    PyObject *list = PyList_New(0);
    while (list != NULL && kept_count(self->kept) > 0 && PyList_Size(list) < most) {
        PyObject *message = take_one(self);
        if (message == NULL || PyList_Append(list, message) != 0)
            Py_CLEAR(list);
        Py_XDECREF(message);
    }
    while (list != NULL && got > 0 && PyList_Size(list) < most) {
        got = take_batch(self, list, most - PyList_Size(list));
        if (got < 0)
            Py_CLEAR(list);
    }
    return list;
}

bool inbox_keep_all(InboxObject *self) {
    weir_message message;
    while (!self->closed && engine_is_usable(self->engine)) {
        PyThreadState *state = engine_leave_gil_if_shared(self->engine);
        int rc = weir_message_take(self->engine->engine, self->handle, &message);
        engine_take_gil_if_left(self->engine, state);
        if (rc != WEIR_OK)
            return true;
        PyObject *taken = message_new(self->engine, self->number, &message);
        bool good = taken != NULL && kept_put(&self->kept, taken);
        self->engine->kept_ever++;
        Py_XDECREF(taken);
        if (!good)
            return false;
    }
    return true;
}

/* ---- its life --------------------------------------------------------------------- */

PyDoc_STRVAR(
    close_doc,
    "close($self, /)\n--\n\n"
    "Peers name it no more: what they sent and was not taken is lost, and what has not\n"
    "arrived ends with StaleError there. Messages that were taken stay until they are given\n"
    "back. Closing it again does nothing. It is closed by itself when nothing refers to it.");
static PyObject *inbox_close(InboxObject *self, PyObject *ignored) {
    (void)ignored;
    if (self->closed)
        Py_RETURN_NONE;
    weir_engine *engine = engine_use(self->engine);
    if (engine == NULL)
        return NULL;
    self->closed = true;
    unlink_inbox(self);
    PyObject *kept = self->kept;
    self->kept = NULL;
    PyThreadState *state = engine_leave_gil(self->engine);
    weir_inbox_close(engine, self->handle);
    engine_take_gil(self->engine, state);
    Py_XDECREF(kept);
    engine_kick(self->engine);
    Py_RETURN_NONE;
}

static void inbox_dealloc(InboxObject *self) {
    PyObject_GC_UnTrack(self);
    EngineObject *engine = self->engine;
    unlink_inbox(self);
    if (!self->closed && engine_is_usable(engine)) {
        PyThreadState *state = engine_leave_gil(engine);
        weir_inbox_close(engine->engine, self->handle);
        engine_take_gil(engine, state);
    }
    Py_CLEAR(self->kept);
    object_free(self);
    Py_DECREF((PyObject *)engine);
}

static int inbox_traverse(InboxObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->engine);
    Py_VISIT(self->kept);
    return 0;
}

PyDoc_STRVAR(info_doc,
             "info($self, /)\n--\n\nIts room, its senders and its counters, an InboxInfo.");
static PyObject *inbox_info(InboxObject *self, PyObject *ignored) {
    (void)ignored;
    weir_inbox_info info = WEIR_INBOX_INFO_INIT;
    weir_engine *engine = inbox_use(self);
    if (engine == NULL)
        return NULL;
    PyThreadState *state = engine_leave_gil(self->engine);
    int rc = weir_inbox_query(engine, self->handle, &info);
    engine_take_gil(self->engine, state);
    return rc == WEIR_OK ? record_inbox_info(&info) : raise_code(rc, "query an inbox");
}

static PyObject *inbox_enter(InboxObject *self, PyObject *ignored) {
    (void)ignored;
    return inbox_use(self) == NULL ? NULL : Py_NewRef((PyObject *)self);
}

static PyObject *inbox_exit(InboxObject *self, PyObject *args) {
    (void)args;
    return engine_is_usable(self->engine) ? inbox_close(self, NULL) : Py_NewRef(Py_None);
}

static PyObject *inbox_anext(InboxObject *self) {
    return PyObject_CallMethod(weirpy.hooks, "next_message", "(O)", self);
}

static PyObject *inbox_get(InboxObject *self, void *what) {
    if (*(const char *)what == 'n')
        return PyLong_FromUnsignedLong(self->number);
    if (*(const char *)what == 'k')
        return PyLong_FromSsize_t(kept_count(self->kept));
    if (*(const char *)what == 'c')
        return PyBool_FromLong(self->closed || !engine_is_usable(self->engine));
    return Py_NewRef((PyObject *)self->engine);
}

static PyGetSetDef getset[] = {
    {"number", (getter)inbox_get, NULL, "By which peers name it.", "n"},
    {"closed", (getter)inbox_get, NULL, "True once it was closed.", "c"},
    {"engine", (getter)inbox_get, NULL, "The engine.", "e"},
    {"_kept", (getter)inbox_get, NULL, NULL, "k"},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef methods[] = {
    {"take", (PyCFunction)(void (*)(void))inbox_take, METH_VARARGS | METH_KEYWORDS, take_doc},
    {"poll", (PyCFunction)inbox_poll, METH_NOARGS, poll_doc},
    {"take_many", (PyCFunction)inbox_take_many, METH_VARARGS, take_many_doc},
    {"info", (PyCFunction)inbox_info, METH_NOARGS, info_doc},
    {"close", (PyCFunction)inbox_close, METH_NOARGS, close_doc},
    {"__enter__", (PyCFunction)inbox_enter, METH_NOARGS, "__enter__($self, /)\n--\n\nItself."},
    {"__exit__", (PyCFunction)inbox_exit, METH_VARARGS,
     "__exit__($self, /, *exception)\n--\n\nclose()."},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(
    inbox_doc,
    "A place where an engine takes messages, from Engine.inbox().\n\n"
    "take() in a thread, or, in an event loop:\n\n"
    "    async for message in inbox:\n"
    "        with message:\n"
    "            handle(bytes(message))\n\n"
    "The loop ends when the inbox is closed. A full inbox holds up those who send to it, and\n"
    "nobody else: give messages back.");

PyTypeObject *inbox_type(PyObject *module) {
    static PyType_Slot slots[] = {
        {Py_tp_doc, (void *)inbox_doc},   {Py_tp_dealloc, inbox_dealloc},
        {Py_tp_traverse, inbox_traverse}, {Py_tp_getset, getset},
        {Py_tp_methods, methods},         {Py_am_aiter, PyObject_SelfIter},
        {Py_am_anext, inbox_anext},       {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "weir.Inbox",
        .basicsize = sizeof(InboxObject),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        .slots = slots,
    };
    return (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
}
