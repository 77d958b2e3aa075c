/* SPDX-License-Identifier: Apache-2.0 */
/* engine.c: the type Engine: how one is opened, used and closed, and who may.
 *
 * closed <- open -> closing -> closed. While it is closing no call begins, and the close waits for
 * those under way, which run without the GIL. An engine with exports is not closed: close() raises
 * BufferError, and where nobody could hear that (a finalizer, a with statement that an exception
 * leaves), the engine is abandoned: its last export closes it.
 *
 * In a child of fork(2) the engine is its parent's: each call raises ClosedError, and only the
 * memory that the child has of it is freed. */
#include "weirpy.h"

#include <string.h>
#include <structmember.h>

weir_engine *engine_use(EngineObject *self) {
    if (engine_is_usable(self))
        return self->engine;
    if (self->engine != NULL && self->forks != weirpy.forks)
        raise_code(WEIR_ECLOSED, "the engine is of the process that this one was forked from");
    else
        raise_code(WEIR_ECLOSED, "the engine is closed");
    return NULL;
}

bool engine_is_usable(const EngineObject *self) {
    return self->engine != NULL && !self->closing && self->forks == weirpy.forks;
}

PyThreadState *engine_leave_gil(EngineObject *self) {
    self->users++;
    return PyEval_SaveThread();
}

void engine_take_gil(EngineObject *self, PyThreadState *state) {
    PyEval_RestoreThread(state);
    self->users--;
}

PyThreadState *engine_leave_gil_if_shared(EngineObject *self) {
    return self->users > 0 || self->has_thread ? engine_leave_gil(self) : NULL;
}

void engine_take_gil_if_left(EngineObject *self, PyThreadState *state) {
    if (state != NULL)
        engine_take_gil(self, state);
}

/* ---- closing -------------------------------------------------------------- */

/* Waits for the calls of other threads, which see that the engine is closing when their slice ends.
 * False: a signal's handler raised. */
static bool calls_end(EngineObject *self) {
    uint64_t pause_ns = 20000;
    self->closing = true;
    while (self->users > 0) {
        sleep_without_gil(pause_ns);
        pause_ns = pause_ns < 2000000 ? pause_ns * 2 : pause_ns;
        if (PyErr_CheckSignals() != 0) {
            self->closing = false;
            return false;
        }
    }
    return true;
}

/* The engine is not the library's any more: all that was of it is told. */
static void orphan_all(EngineObject *self) {
    Py_CLEAR(self->published);
    transfers_orphan(self);
    messages_orphan(self);
    for (InboxObject *inbox = self->inboxes; inbox != NULL; inbox = inbox->next)
        inbox->closed = true;
    MemoryObject *memory;
    while ((memory = self->memories) != NULL)
        memory_orphan(memory);
    memory_bury(self, true);
}

/* Tells the event loop's part, which looks at the descriptor: before that is closed, and behind. */
static void tell_driver(PyObject *driver, const char *what) {
    PyObject *done = driver == NULL ? NULL : PyObject_CallMethod(driver, what, NULL);
    if (driver != NULL && done == NULL)
        PyErr_WriteUnraisable(driver);
    Py_XDECREF(done);
}

/* Without exports. False: an exception was raised, and the engine is as it was. */
static bool close_now(EngineObject *self) {
    bool is_ours = self->forks == weirpy.forks;
    if (self->engine == NULL || self->closing)
        return true;
    if (is_ours && !calls_end(self))
        return false;
    Py_INCREF((PyObject *)self); /* what is told below may drop the last reference */
    PyObject *driver = self->driver;
    self->driver = NULL;
    if (is_ours) {
        tell_driver(driver, "detach");
        transfers_reap(self, SIZE_MAX);
    }
    weir_engine *engine = self->engine;
    self->engine = NULL;
    Py_BEGIN_ALLOW_THREADS weir_engine_close(engine);
    Py_END_ALLOW_THREADS orphan_all(self);
    self->closing = false;
    if (is_ours)
        tell_driver(driver, "closed");
    Py_XDECREF(driver);
    Py_DECREF((PyObject *)self);
    return true;
}

void engine_kick(EngineObject *self) {
    PyObject *driver = self->driver;
    if (driver == NULL)
        return;
    Py_INCREF(driver);
    tell_driver(driver, "kick");
    Py_DECREF(driver);
}

void engine_unexport(EngineObject *self) {
    if (--self->exports > 0 || !self->abandoned || self->engine == NULL)
        return;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (!close_now(self))
        PyErr_WriteUnraisable((PyObject *)self);
    PyErr_Restore(type, value, traceback);
}

PyDoc_STRVAR(close_doc,
             "close($self, /)\n--\n\n"
             "Ends every transfer with a status (ECLOSED if nothing else came first), tells the\n"
             "peers, and frees all that is the engine's. Memory of allocate() is unmapped.\n\n"
             "Waits for calls of other threads on this engine, which raise ClosedError if they\n"
             "wait themselves, and then for under one second on a healthy device. Closing a\n"
             "closed engine does nothing.\n\n"
             "Raises BufferError while a buffer of a memory, a message or a loan is exported (a\n"
             "numpy array or memoryview exists): the engine goes on then. Delete them first.");
static PyObject *engine_close(EngineObject *self, PyObject *ignored) {
    (void)ignored;
    if (self->engine != NULL && self->exports > 0 && self->forks == weirpy.forks)
        return PyErr_Format(PyExc_BufferError,
                            "%zd buffers of the engine's memory, messages or loans are still "
                            "exported: delete the arrays and memoryviews before it is closed",
                            self->exports);
    if (!close_now(self))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *engine_enter(EngineObject *self, PyObject *ignored) {
    (void)ignored;
    return engine_use(self) == NULL ? NULL : Py_NewRef((PyObject *)self);
}

bool exit_is_left(PyObject *args) {
    return PyTuple_Size(args) > 0 && PyTuple_GetItem(args, 0) != Py_None;
}

PyDoc_STRVAR(exit_doc, "__exit__($self, /, *exception)\n--\n\n"
                       "close(). If an exception leaves the with statement while buffers are\n"
                       "exported, the engine is closed when the last of them is gone instead.");
static PyObject *engine_exit(EngineObject *self, PyObject *args) {
    if (exit_is_left(args) && self->exports > 0) {
        self->abandoned = true;
        Py_RETURN_NONE;
    }
    return engine_close(self, NULL);
}

/* ---- opening -------------------------------------------------------------- */

/* Engine(device, listen, **others) as keywords alone; a new reference. */
static PyObject *as_keywords(PyObject *args, PyObject *keywords) {
    static const char *const names[] = {"device", "listen"};
    PyObject *all = keywords == NULL ? PyDict_New() : PyDict_Copy(keywords);
    if (all == NULL)
        return NULL;
    Py_ssize_t count = PyTuple_Size(args);
    if (count > 2) {
        PyErr_SetString(PyExc_TypeError, "Engine takes two arguments without a keyword: "
                                         "device and listen");
        Py_DECREF(all);
        return NULL;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *name = PyUnicode_FromString(names[i]);
        int has = name == NULL ? -1 : PyDict_Contains(all, name);
        if (has > 0)
            PyErr_Format(PyExc_TypeError, "Engine got two values for '%s'", names[i]);
        if (has != 0 || PyDict_SetItem(all, name, PyTuple_GetItem(args, i)) != 0)
            Py_CLEAR(all);
        Py_XDECREF(name);
        if (all == NULL)
            return NULL;
    }
    return all;
}

static PyObject *engine_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    PyObject *all = as_keywords(args, keywords);
    if (all == NULL || !options_from_keywords(all, &options)) {
        Py_XDECREF(all);
        return NULL;
    }
    weir_engine *engine = NULL;
    char why[WEIR_OPEN_NOTE_MAX] = "";
    int rc;
    Py_BEGIN_ALLOW_THREADS rc = weir_engine_open(&options, &engine);
    if (rc != WEIR_OK)
        weir_open_explain(&options, rc, why, sizeof(why));
    Py_END_ALLOW_THREADS Py_DECREF(all);
    if (rc != WEIR_OK)
        return raise_code(rc, "open an engine: %s", why);
    EngineObject *self = PyObject_GC_New(EngineObject, type);
    if (self == NULL) {
        weir_engine_close(engine);
        return NULL;
    }
    memset((char *)self + sizeof(PyObject), 0, sizeof(*self) - sizeof(PyObject));
    self->engine = engine;
    self->forks = weirpy.forks;
    self->has_thread = (options.flags & WEIR_ENGINE_THREAD) != 0;
    PyObject_GC_Track(self);
    PyObject *done = PyObject_CallMethod(weirpy.hooks, "opened", "(O)", self);
    if (done == NULL) {
        Py_DECREF((PyObject *)self);
        return NULL;
    }
    Py_DECREF(done);
    return (PyObject *)self;
}

/* ---- the collector --------------------------------------------------------- */

/* Nobody has the engine any more: alone, or in a cycle. */
static void engine_finalize(EngineObject *self) {
    if (self->engine == NULL)
        return;
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (self->forks == weirpy.forks && !self->abandoned &&
        PyErr_WarnFormat(PyExc_ResourceWarning, 1, "unclosed weir.Engine: use with, or close()") !=
            0)
        PyErr_WriteUnraisable((PyObject *)self);
    if (self->exports > 0)
        self->abandoned = true;
    else if (!close_now(self))
        PyErr_WriteUnraisable((PyObject *)self);
    PyErr_Restore(type, value, traceback);
}

static int engine_traverse(EngineObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE((PyObject *)self));
    TransferObject *transfer = self->live;
    for (size_t i = 0; i < self->live_count; i++, transfer = transfer->next)
        Py_VISIT(transfer);
    for (transfer = self->ended; transfer != NULL; transfer = transfer->next)
        Py_VISIT(transfer);
    Py_VISIT(self->kept_notes);
    Py_VISIT(self->kept_events);
    Py_VISIT(self->published);
    Py_VISIT(self->asked);
    Py_VISIT(self->addresses);
    Py_VISIT(self->driver);
    return 0;
}

/* Transfers of an engine that is open use their memory: only its close lets them go. */
static int engine_clear(EngineObject *self) {
    if (self->engine == NULL)
        transfers_orphan(self);
    Py_CLEAR(self->published);
    Py_CLEAR(self->asked);
    Py_CLEAR(self->addresses);
    Py_CLEAR(self->kept_notes);
    Py_CLEAR(self->kept_events);
    Py_CLEAR(self->driver);
    return 0;
}

static void engine_dealloc(EngineObject *self) {
    PyObject_GC_UnTrack(self);
    if (self->weakrefs != NULL)
        PyObject_ClearWeakRefs((PyObject *)self);
    if (self->engine != NULL) {
        Py_SET_REFCNT((PyObject *)self, 1); /* for calls on it, until it is closed */
        engine_finalize(self);
        Py_SET_REFCNT((PyObject *)self, 0);
    }
    engine_clear(self);
    object_free(self);
}

/* ---- the type -------------------------------------------------------------- */

static PyObject *engine_closed(EngineObject *self, void *closure) {
    (void)closure;
    return PyBool_FromLong(!engine_is_usable(self));
}

static PyObject *engine_address(EngineObject *self, void *closure) {
    (void)closure;
    char text[WEIR_ADDRESS_MAX];
    weir_engine *engine = engine_use(self);
    if (engine == NULL)
        return NULL;
    int rc = weir_engine_address(engine, text, sizeof(text));
    if (rc == WEIR_ENOTSUP)
        Py_RETURN_NONE;
    return rc == WEIR_OK ? PyUnicode_FromString(text) : raise_code(rc, "address of an engine");
}

static PyObject *engine_exports(EngineObject *self, void *closure) {
    (void)closure;
    return PyLong_FromSsize_t(self->exports);
}

static PyObject *engine_users(EngineObject *self, void *closure) {
    (void)closure;
    return PyLong_FromUnsignedLong(self->users);
}

static PyObject *engine_repr(EngineObject *self) {
    char text[WEIR_ADDRESS_MAX];
    if (!engine_is_usable(self))
        return PyUnicode_FromString("<weir.Engine, closed>");
    if (weir_engine_address(self->engine, text, sizeof(text)) != WEIR_OK)
        return PyUnicode_FromString("<weir.Engine, no listener>");
    return PyUnicode_FromFormat("<weir.Engine at %s>", text);
}

static PyObject *engine_driver_get(EngineObject *self, void *closure) {
    (void)closure;
    return Py_NewRef(self->driver == NULL ? Py_None : self->driver);
}

static int engine_driver_set(EngineObject *self, PyObject *value, void *closure) {
    (void)closure;
    PyObject *old = self->driver;
    self->driver = value == NULL || value == Py_None ? NULL : Py_NewRef(value);
    Py_XDECREF(old);
    return 0;
}

static PyGetSetDef engine_getset[] = {
    {"closed", (getter)engine_closed, NULL,
     "True once it is closed, and in a child of fork(2), where it is the parent's.", NULL},
    {"address", (getter)engine_address, NULL,
     "Where peers open this engine, \"host:port\"; None without a listener.", NULL},
    {"exports", (getter)engine_exports, NULL,
     "Buffers of its memory, messages and loans that are exported now.", NULL},
    {"_users", (getter)engine_users, NULL, NULL, NULL},
    {"_driver", (getter)engine_driver_get, (setter)engine_driver_set, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMemberDef engine_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(EngineObject, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyMethodDef engine_own_methods[] = {
    {"close", (PyCFunction)engine_close, METH_NOARGS, close_doc},
    {"__enter__", (PyCFunction)engine_enter, METH_NOARGS, "__enter__($self, /)\n--\n\nItself."},
    {"__exit__", (PyCFunction)engine_exit, METH_VARARGS, exit_doc},
};

PyDoc_STRVAR(
    engine_doc,
    "Engine(device=None, listen=None, *, advertise=None, thread=False, **settings)\n--\n\n"
    "A device, the memory that is registered with it, and connections to peers, which\n"
    "are other engines.\n\n"
    "device: \"shm\" (processes of this host; the default), \"ofi\" (TCP), \"verbs\", \"efa\", or\n"
    "\"auto\". Behind a colon the NIC: \"verbs:mlx5_0/1\" with its port, \"ofi:eth0/10.0.0.1\",\n"
    "\"efa:DOMAIN/FABRIC\", \"shm:/run/weir\" (where engines meet).\n"
    "listen: where peers reach it, \"host:port\"; port 0 for any free one. None: 127.0.0.1:0.\n"
    "\"none\": no listener.\n"
    "advertise: the address that peers are told, \"host\" or \"host:port\", where that is "
    "another:\n"
    "of an engine that listens at 0.0.0.0, or behind an address translation.\n"
    "thread: a thread of the engine's own makes progress. Without it progress is made in\n"
    "wait(), progress(), Transfer.wait(), all calls with a time-out, and in an event loop\n"
    "that awaits anything of the engine's. Where nobody makes progress peers cannot\n"
    "connect, and nothing ends.\n"
    "settings: the numbers of weir_engine_options by their names, such as sq_depth=1024 or\n"
    "connect_timeout_ns=2_000_000_000 (nanoseconds); 0: the environment's, or the default.\n"
    "weir.settings() lists them all.\n\n"
    "Threads: any thread may use an engine at any time, also to close it.\n"
    "fork: a child has no engine of its parent's; each call there raises ClosedError.\n\n"
    "Raises InvalidError, NoDeviceError, AddressError, DescriptorsError, OutOfMemoryError,\n"
    "LockedMemoryError, DeviceError; each says the reason in a sentence.\n\n"
    "Use it in a with statement:\n\n"
    "    with weir.Engine() as engine:\n"
    "        memory = engine.allocate(1 << 20)");

PyTypeObject *engine_type(PyObject *module) {
    static PyMethodDef methods[64];
    size_t count = 0;
    for (; count < sizeof(engine_own_methods) / sizeof(engine_own_methods[0]); count++)
        methods[count] = engine_own_methods[count];
    for (const PyMethodDef *method = engine_calls; method->ml_name != NULL; method++)
        methods[count++] = *method;
    static PyType_Slot slots[] = {
        {Py_tp_doc, (void *)engine_doc},
        {Py_tp_new, engine_new},
        {Py_tp_dealloc, engine_dealloc},
        {Py_tp_finalize, engine_finalize},
        {Py_tp_traverse, engine_traverse},
        {Py_tp_clear, engine_clear},
        {Py_tp_repr, engine_repr},
        {Py_tp_getset, engine_getset},
        {Py_tp_members, engine_members},
        {Py_tp_methods, methods},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "weir.Engine",
        .basicsize = sizeof(EngineObject),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
        .slots = slots,
    };
    return (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
}
