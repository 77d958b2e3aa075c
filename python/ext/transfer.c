/* SPDX-License-Identifier: Apache-2.0 */
/* transfer.c: the type Transfer: one that was submitted, until its end was seen, and its status.
 *
 * under way (in the engine's ring, which refers to it) -> ended. The call that first finds the
 * terminal status settles it: keeps the status, gives the handle back, drops what it kept alive. So
 * a Transfer that the application drops goes on, keeps its memory, and is let go later. All that
 * are done in their submit are one object. */
#include "weirpy.h"

#include <string.h>

/* ---- the ring ---------------------------------------------------------------- */

static void join_ring(TransferObject *self) {
    EngineObject *engine = self->engine;
    if (engine->live == NULL) {
        engine->live = self->next = self->previous = self;
    } else {
        self->next = engine->live;
        self->previous = engine->live->previous;
        self->previous->next = self->next->previous = self;
    }
    engine->live_count++;
    self->is_live = true;
    Py_INCREF((PyObject *)self);
}

static void leave_ring(TransferObject *self) {
    EngineObject *engine = self->engine;
    if (engine->live == self)
        engine->live = self->next == self ? NULL : self->next;
    self->next->previous = self->previous;
    self->previous->next = self->next;
    self->next = self->previous = NULL;
    engine->live_count--;
    self->is_live = false;
}

static void drop_kept(TransferObject *self) {
    PyObject **kept = self->kept;
    size_t count = self->kept_count;
    PyObject *pair[2] = {self->kept_pair[0], self->kept_pair[1]};
    bool is_own = kept == self->kept_pair;
    self->kept = NULL;
    self->kept_count = 0;
    for (size_t i = 0; i < count; i++)
        Py_DECREF(is_own ? pair[i] : kept[i]);
    if (!is_own)
        free(kept);
}

/* The one place where a transfer ends. The caller has a reference. */
static void settle(TransferObject *self, int status) {
    EngineObject *engine = self->engine;
    self->status = status;
    leave_ring(self);
    if (engine->engine != NULL && engine->forks == weirpy.forks)
        weir_transfer_release(engine->engine, self->handle);
    bool is_told = self->watched;
    if (status == WEIR_ESTALE)
        self->names = names_of_remotes(self->kept, self->kept_count);
    if (is_told) {
        self->watched = false;
        self->next = engine->ended;
        engine->ended = self;
    }
    drop_kept(self);
    if (!is_told)
        Py_DECREF((PyObject *)self);
    else if (!engine->sweeping)
        engine_kick(engine);
}

int transfer_poll(TransferObject *self) {
    if (self->status != WEIR_EINPROGRESS)
        return self->status;
    EngineObject *engine = self->engine;
    if (engine->engine == NULL)
        return WEIR_EINPROGRESS; /* it is being closed, and says so at the end of that */
    int status = weir_transfer_status(engine->engine, self->handle);
    if (status != WEIR_EINPROGRESS && engine->forks == weirpy.forks) {
        Py_INCREF((PyObject *)self);
        settle(self, status);
        Py_DECREF((PyObject *)self);
    }
    return status;
}

void transfers_reap(EngineObject *engine, size_t most) {
    if (most > engine->live_count)
        most = engine->live_count;
    for (; most > 0 && engine->live != NULL; most--) {
        TransferObject *transfer = engine->live;
        engine->live = transfer->next;
        transfer_poll(transfer);
    }
}

PyObject *transfers_sweep(EngineObject *engine) {
    PyObject *list = PyList_New(0);
    if (list == NULL)
        return NULL;
    engine->sweeping = true;
    transfers_reap(engine, SIZE_MAX);
    engine->sweeping = false;
    TransferObject *transfer;
    while ((transfer = engine->ended) != NULL) {
        if (PyList_Append(list, (PyObject *)transfer) != 0) {
            Py_DECREF(list);
            return NULL;
        }
        engine->ended = transfer->next;
        transfer->next = NULL;
        Py_DECREF((PyObject *)transfer);
    }
    return list;
}

void transfers_orphan(EngineObject *engine) {
    TransferObject *transfer;
    while ((transfer = engine->live) != NULL) {
        Py_INCREF((PyObject *)transfer);
        transfer->watched = false;
        settle(transfer, WEIR_ECLOSED);
        Py_DECREF((PyObject *)transfer);
    }
    while ((transfer = engine->ended) != NULL) {
        engine->ended = transfer->next;
        transfer->next = NULL;
        Py_DECREF((PyObject *)transfer);
    }
}

/* ---- making one ----------------------------------------------------------------- */

static TransferObject *blank(void) {
    TransferObject *self = PyObject_GC_New(TransferObject, weirpy.transfer);
    if (self != NULL)
        memset((char *)self + sizeof(PyObject), 0, sizeof(*self) - sizeof(PyObject));
    return self;
}

bool transfer_make_done(void) {
    weirpy.done = blank();
    if (weirpy.done != NULL)
        PyObject_GC_Track(weirpy.done);
    return weirpy.done != NULL;
}

/* Its memory may be freed behind this: so nothing may touch it any more. */
static void end_unseen(EngineObject *engine, weir_transfer handle) {
    weir_transfer_cancel(engine->engine, handle);
    PyThreadState *state = engine_leave_gil(engine);
    weir_transfer_wait(engine->engine, handle, UINT64_MAX);
    engine_take_gil(engine, state);
    weir_transfer_release(engine->engine, handle);
}

/* A program whose transfers are all done at once never waits: what comes from peers, and that one
 * has died, is to be seen all the same. */
static void was_done_at_once(EngineObject *engine) {
    if (++engine->done_at_once % DONE_TURN == 0 && !engine->has_thread && engine_is_usable(engine))
        weir_engine_progress(engine->engine);
}

PyObject *transfer_new(EngineObject *engine, PyObject *peer, weir_transfer handle,
                       struct segments *kept, const char *what) {
    if (handle.id == 0) {
        was_done_at_once(engine);
        return Py_NewRef((PyObject *)weirpy.done);
    }
    TransferObject *self = blank();
    PyObject **list = NULL;
    if (self != NULL && kept != NULL && kept->kept_count > 2 && kept->kept == kept->kept_few) {
        list = malloc(kept->kept_count * sizeof(*list));
        if (list == NULL)
            PyErr_NoMemory();
        else
            memcpy(list, kept->kept, kept->kept_count * sizeof(*list));
    }
    if (self == NULL || PyErr_Occurred()) {
        end_unseen(engine, handle);
        if (self != NULL)
            object_free(self);
        return NULL;
    }
    self->engine = (EngineObject *)Py_NewRef((PyObject *)engine);
    self->handle = handle;
    self->status = WEIR_EINPROGRESS;
    self->what = what;
    self->peer = Py_NewRef(peer);
    if (kept != NULL) {
        self->bytes = kept->bytes;
        self->kept_count = kept->kept_count;
        if (kept->kept_count <= 2) {
            self->kept = self->kept_pair;
            memcpy(self->kept_pair, kept->kept, kept->kept_count * sizeof(*kept->kept));
        } else {
            self->kept = list != NULL ? list : kept->kept;
            if (list == NULL)
                kept->kept = kept->kept_few;
        }
        kept->kept_count = 0; /* the references are ours */
    }
    join_ring(self);
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

static void transfer_dealloc(TransferObject *self) {
    PyObject_GC_UnTrack(self);
    EngineObject *engine = self->engine;
    PyObject *peer = self->peer, *names = self->names;
    drop_kept(self);
    object_free(self);
    Py_XDECREF(names);
    Py_XDECREF(peer);
    Py_XDECREF((PyObject *)engine);
}

static int transfer_traverse(TransferObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->engine);
    Py_VISIT(self->peer);
    for (size_t i = 0; i < self->kept_count; i++)
        Py_VISIT(self->kept[i]);
    return 0;
}

/* ---- what it says --------------------------------------------------------------- */

PyObject *transfer_raise(TransferObject *self, int status) {
    char why[WEIR_REFUSAL_TEXT_MAX] = "", name[WEIR_ADDRESS_MAX];
    PeerObject *peer = (PeerObject *)self->peer;
    if (peer == NULL)
        return raise_code(status, "transfer");
    if (self->engine->forks != weirpy.forks && engine_use(self->engine) == NULL)
        return NULL;
    if (status == WEIR_EREFUSED || status == WEIR_ECONNECT)
        peer_refusal_text(peer, why, sizeof(why));
    if (status == WEIR_ESTALE && self->names != NULL)
        return raise_code(status, "%s of %llu bytes, peer %s: open %U again", self->what,
                          (unsigned long long)self->bytes, peer_name(peer, name, sizeof(name)),
                          self->names);
    return raise_code(status, "%s of %llu bytes, peer %s%s%s", self->what,
                      (unsigned long long)self->bytes, peer_name(peer, name, sizeof(name)),
                      why[0] != '\0' ? ": " : "", why);
}

static PyObject *status_result(TransferObject *self, int status) {
    if (status == WEIR_OK)
        Py_RETURN_NONE;
    return transfer_raise(self, status);
}

PyDoc_STRVAR(
    status_doc,
    "status($self, /)\n--\n\n"
    "0: it ended well; EINPROGRESS (-2): it is under way; else the code that it ended with,\n"
    "one of weir.E*. Once it has ended no device touches the memory on this side any more.\n"
    "Makes no progress.");
static PyObject *transfer_status(TransferObject *self, PyObject *ignored) {
    (void)ignored;
    return PyLong_FromLong(transfer_poll(self));
}

static PyObject *transfer_done(TransferObject *self, void *closure) {
    (void)closure;
    return PyBool_FromLong(transfer_poll(self) != WEIR_EINPROGRESS);
}

PyDoc_STRVAR(result_doc, "result($self, /)\n--\n\n"
                         "None if it ended well. Raises what it ended with, or InProgressError.");
static PyObject *transfer_result(TransferObject *self, PyObject *ignored) {
    (void)ignored;
    return status_result(self, transfer_poll(self));
}

PyDoc_STRVAR(
    wait_doc,
    "wait($self, /, timeout=None)\n--\n\n"
    "Makes progress until the transfer has ended, or timeout seconds have passed; asleep\n"
    "meanwhile, without the GIL. Returns None if it ended well. Raises InProgressError (a\n"
    "TimeoutError: the time passed, and it goes on), ClosedError, KeyboardInterrupt, or what it\n"
    "ended with: TimedOutError, CanceledError, ConnectError, UnreachableError, AddressError,\n"
    "RefusedError, FullError, OutOfMemoryError, DescriptorsError, PeerError, StaleError,\n"
    "UnknownOutcomeError, RemoteError, TooBigError, DeviceError, InvalidError; of a message also\n"
    "NotReadyError and AgainError.");
static PyObject *transfer_wait(PyObject *object, PyObject *const *args, Py_ssize_t count,
                               PyObject *names) {
    TransferObject *self = (TransferObject *)object;
    Py_ssize_t named = names == NULL ? 0 : PyTuple_Size(names);
    uint64_t timeout_ns;
    struct waiting waiting;
    if (count + named > 1 || (named == 1 && PyUnicode_CompareWithASCIIString(
                                                PyTuple_GetItem(names, 0), "timeout") != 0)) {
        PyErr_SetString(PyExc_TypeError, "wait takes a timeout, and nothing else");
        return NULL;
    }
    if (!seconds_to_ns(count + named == 1 ? args[0] : Py_None, &timeout_ns))
        return NULL;
    bool under_way = self->status == WEIR_EINPROGRESS;
    int status = transfer_poll(self);
    if (status != WEIR_EINPROGRESS) {
        if (under_way)
            was_done_at_once(self->engine);
        return status_result(self, status);
    }
    waiting_begin(&waiting, timeout_ns);
    for (;;) {
        weir_engine *engine = engine_use(self->engine);
        if (engine == NULL || PyErr_CheckSignals() != 0)
            return NULL;
        uint64_t slice = waiting_slice(&waiting);
        PyThreadState *state = engine_leave_gil(self->engine);
        weir_transfer_wait(engine, self->handle, slice);
        engine_take_gil(self->engine, state);
        status = transfer_poll(self); /* another thread may have settled it */
        if (status != WEIR_EINPROGRESS || timeout_ns == 0 || waiting_is_over(&waiting))
            return status_result(self, status);
    }
}

PyDoc_STRVAR(
    cancel_doc,
    "cancel($self, /)\n--\n\n"
    "Asks for an early end, with CanceledError or what it was already going to be, as soon\n"
    "as no device touches the memory any more. Does not wait for that.");
static PyObject *transfer_cancel(TransferObject *self, PyObject *ignored) {
    (void)ignored;
    if (self->status != WEIR_EINPROGRESS)
        Py_RETURN_NONE;
    weir_engine *engine = engine_use(self->engine);
    if (engine == NULL)
        return NULL;
    PyThreadState *state = engine_leave_gil(self->engine);
    int rc = weir_transfer_cancel(engine, self->handle);
    engine_take_gil(self->engine, state);
    if (rc == WEIR_OK || self->status != WEIR_EINPROGRESS)
        Py_RETURN_NONE;
    return raise_code(rc, "cancel a transfer");
}

static PyObject *transfer_waiting_for(TransferObject *self, void *closure) {
    (void)closure;
    if (transfer_poll(self) != WEIR_EINPROGRESS)
        return PyUnicode_FromString(weir_waiting_name(WEIR_WAITING_NOTHING));
    weir_engine *engine = engine_use(self->engine);
    if (engine == NULL)
        return NULL;
    PyThreadState *state = engine_leave_gil(self->engine);
    int rc = weir_transfer_waiting_for(engine, self->handle);
    engine_take_gil(self->engine, state);
    if (rc >= 0 || self->status != WEIR_EINPROGRESS)
        return PyUnicode_FromString(weir_waiting_name(rc >= 0 ? rc : WEIR_WAITING_NOTHING));
    return raise_code(rc, "ask what a transfer waits for");
}

static PyObject *transfer_await(TransferObject *self) {
    int status = transfer_poll(self);
    if (status == WEIR_EINPROGRESS)
        return PyObject_CallMethod(weirpy.hooks, "ended", "(O)", self);
    if (status != WEIR_OK)
        return transfer_raise(self, status);
    if (++weirpy.awaited_done % DONE_TURN == 0)
        return PyObject_CallMethod(weirpy.hooks, "give_way", NULL);
    PyObject *nothing = PyTuple_New(0);
    PyObject *iterator = nothing == NULL ? NULL : PyObject_GetIter(nothing);
    Py_XDECREF(nothing);
    return iterator;
}

static PyObject *transfer_watch(TransferObject *self, PyObject *ignored) {
    (void)ignored;
    bool is_under_way = transfer_poll(self) == WEIR_EINPROGRESS && self->is_live;
    self->watched = is_under_way;
    return PyBool_FromLong(is_under_way);
}

static PyObject *transfer_engine(TransferObject *self, void *closure) {
    (void)closure;
    return Py_NewRef(self->engine == NULL ? Py_None : (PyObject *)self->engine);
}

static PyObject *transfer_repr(TransferObject *self) {
    int status = transfer_poll(self);
    return PyUnicode_FromFormat("<weir.Transfer, %s>", status == WEIR_OK ? "done"
                                                       : status == WEIR_EINPROGRESS
                                                           ? "under way"
                                                           : weir_error_name(status));
}

static PyGetSetDef getset[] = {
    {"done", (getter)transfer_done, NULL, "True once it has ended, well or not.", NULL},
    {"waiting_for", (getter)transfer_waiting_for, NULL,
     "What it waits for now: 'nothing', 'engine', 'connection', 'slots', 'credits', "
     "'completions',\n"
     "'drain', 'settle' or 'inflight'.",
     NULL},
    {"_engine", (getter)transfer_engine, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef methods[] = {
    {"status", (PyCFunction)transfer_status, METH_NOARGS, status_doc},
    {"result", (PyCFunction)transfer_result, METH_NOARGS, result_doc},
    {"wait", (PyCFunction)(void (*)(void))transfer_wait, METH_FASTCALL | METH_KEYWORDS, wait_doc},
    {"cancel", (PyCFunction)transfer_cancel, METH_NOARGS, cancel_doc},
    {"_watch", (PyCFunction)transfer_watch, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(transfer_doc,
             "A write, a read, a notification or a message that was submitted.\n\n"
             "wait() for it, ask for its status(), or await it in an event loop: cancelling that\n"
             "cancels the transfer, and the exception comes when no device touches the memory any\n"
             "more. A Transfer that is dropped goes on, unobserved, and keeps its memory.");

PyTypeObject *transfer_type(PyObject *module) {
    static PyType_Slot slots[] = {
        {Py_tp_doc, (void *)transfer_doc},
        {Py_tp_dealloc, transfer_dealloc},
        {Py_tp_traverse, transfer_traverse},
        {Py_tp_repr, transfer_repr},
        {Py_tp_getset, getset},
        {Py_tp_methods, methods},
        {Py_am_await, transfer_await},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "weir.Transfer",
        .basicsize = sizeof(TransferObject),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        .slots = slots,
    };
    return (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
}
