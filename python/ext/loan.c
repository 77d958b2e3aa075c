/* SPDX-License-Identifier: Apache-2.0 */
/* loan.c: the type Loan: memory to make a message in, until it is sent or returned. */
#include "weirpy.h"

#include <string.h>

static bool loan_take(PeerObject *peer, uint32_t inbox, uint64_t length, weir_loan *loan_out) {
    char name[WEIR_ADDRESS_MAX];
    weir_engine *engine = peer_use(peer);
    if (engine == NULL)
        return false;
    PyThreadState *state = engine_leave_gil(peer->engine);
    int rc = weir_message_loan(engine, peer->handle, inbox, length, loan_out);
    engine_take_gil(peer->engine, state);
    if (rc != WEIR_OK)
        raise_code(rc, "lend %llu bytes for a message to inbox %lu of %s",
                   (unsigned long long)length, (unsigned long)inbox,
                   peer_name(peer, name, sizeof(name)));
    return rc == WEIR_OK;
}

PyObject *peer_loan(PeerObject *peer, PyObject *args, PyObject *keywords) {
    static char *names[] = {"inbox", "length", NULL};
    PyObject *inbox_object, *length_object;
    uint32_t inbox;
    uint64_t length;
    weir_loan loan;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO:loan", names, &inbox_object,
                                     &length_object) ||
        !number_u32(inbox_object, "inbox", &inbox) ||
        !number_u64(length_object, "length", &length) || !loan_take(peer, inbox, length, &loan))
        return NULL;
    LoanObject *self = PyObject_GC_New(LoanObject, weirpy.loan);
    if (self == NULL) {
        weir_loan_return(peer->engine->engine, &loan);
        return NULL;
    }
    self->engine = (EngineObject *)Py_NewRef((PyObject *)peer->engine);
    self->peer = Py_NewRef((PyObject *)peer);
    self->loan = loan;
    self->inbox = inbox;
    self->exports = 0;
    self->gone = false;
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

/* Whether it is the application's still; else raises. */
static weir_engine *loan_use(LoanObject *self) {
    weir_engine *engine = engine_use(self->engine);
    if (engine != NULL && self->gone) {
        raise_code(WEIR_ESTALE, "a loan that was sent or returned");
        return NULL;
    }
    if (engine != NULL && self->exports > 0) {
        PyErr_Format(
            PyExc_BufferError,
            "%zd buffers of the loan are still exported: delete the arrays and memoryviews "
            "before it is sent or returned",
            self->exports);
        return NULL;
    }
    return engine;
}

PyDoc_STRVAR(
    send_doc,
    "send($self, length=None, /, *, tag=0, timeout=None, no_wait=False, now=False,\n"
    "     once=False, block=False)\n--\n\n"
    "Sends what was made, its first length bytes, or all; returns a Transfer. The loan is\n"
    "gone then. Raises BufferError while it is exported, BoundsError (length is more than\n"
    "was lent), StaleError, AgainError: it is the application's still. Else as\n"
    "Peer.send().");
static PyObject *loan_send(PyObject *object, PyObject *const *args, Py_ssize_t count,
                           PyObject *names) {
    LoanObject *self = (LoanObject *)object;
    struct submit with;
    struct waiting waiting;
    struct segments kept;
    weir_transfer handle;
    weir_loan loan = self->loan;
    unsigned tries = 0;
    int rc, again;
    if (count > 1)
        return PyErr_Format(PyExc_TypeError, "send takes a length: %zd were given", count);
    if (count == 1 && args[0] != Py_None && !number_u64(args[0], "length", &loan.length))
        return NULL;
    if (!submit_begin(&with, SUBMIT_MESSAGE, args + count, names))
        return NULL;
    do {
        weir_engine *engine = loan_use(self);
        if (engine == NULL) {
            submit_end(&with);
            return NULL;
        }
        self->gone = true; /* to other threads */
        PyThreadState *state = engine_leave_gil(self->engine);
        rc = weir_loan_send(engine, &loan, &with.options, &handle);
        engine_take_gil(self->engine, state);
        self->gone = rc == WEIR_OK;
        again = rc == WEIR_EAGAIN ? submit_again(self->engine, &with, &waiting, &tries) : 0;
    } while (again > 0);
    submit_end(&with);
    segments_init(&kept);
    kept.bytes = loan.length;
    if (rc == WEIR_OK)
        return transfer_new(self->engine, self->peer, handle, &kept, "message");
    return again < 0 ? NULL
                     : raise_code(rc, "send a loan of %llu bytes", (unsigned long long)loan.length);
}

PyDoc_STRVAR(
    give_back_doc,
    "give_back($self, /)\n--\n\n"
    "The loan is not sent. Giving it back again, or behind send(), does nothing. It is given\n"
    "back by itself when nothing refers to it. Raises BufferError while it is exported.");
static PyObject *loan_give_back(LoanObject *self, PyObject *ignored) {
    (void)ignored;
    if (self->gone)
        Py_RETURN_NONE;
    weir_engine *engine = loan_use(self);
    if (engine == NULL)
        return NULL;
    self->gone = true;
    int rc = weir_loan_return(engine, &self->loan);
    if (rc != WEIR_OK)
        return raise_code(rc, "return a loan");
    Py_RETURN_NONE;
}

static void loan_dealloc(LoanObject *self) {
    PyObject_GC_UnTrack(self);
    EngineObject *engine = self->engine;
    if (!self->gone && engine_is_usable(engine))
        weir_loan_return(engine->engine, &self->loan);
    PyObject *peer = self->peer;
    object_free(self);
    Py_DECREF((PyObject *)peer);
    Py_DECREF((PyObject *)engine);
}

static int loan_traverse(LoanObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->engine);
    Py_VISIT(self->peer);
    return 0;
}

static int loan_getbuffer(LoanObject *self, Py_buffer *view, int flags) {
    view->obj = NULL;
    if (self->gone || !engine_is_usable(self->engine)) {
        PyErr_SetString(PyExc_BufferError,
                        "the loan was sent or returned, or its engine is closed");
        return -1;
    }
    return export_buffer(view, (PyObject *)self, self->engine, &self->exports, self->loan.data,
                         self->loan.length, false, flags);
}

static Py_ssize_t loan_length(LoanObject *self) {
    return (Py_ssize_t)self->loan.length;
}

static PyObject *loan_gone(LoanObject *self, void *closure) {
    (void)closure;
    return PyBool_FromLong(self->gone || !engine_is_usable(self->engine));
}

static PyObject *loan_enter(LoanObject *self, PyObject *ignored) {
    (void)ignored;
    return Py_NewRef((PyObject *)self);
}

static PyObject *loan_exit(LoanObject *self, PyObject *args) {
    if (exit_is_left(args) && self->exports > 0)
        Py_RETURN_NONE;
    return engine_is_usable(self->engine) ? loan_give_back(self, NULL) : Py_NewRef(Py_None);
}

static PyGetSetDef getset[] = {
    {"gone", (getter)loan_gone, NULL, "True once it was sent or given back.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef methods[] = {
    {"send", (PyCFunction)(void (*)(void))loan_send, METH_FASTCALL | METH_KEYWORDS, send_doc},
    {"give_back", (PyCFunction)loan_give_back, METH_NOARGS, give_back_doc},
    {"__enter__", (PyCFunction)loan_enter, METH_NOARGS, "__enter__($self, /)\n--\n\nItself."},
    {"__exit__", (PyCFunction)loan_exit, METH_VARARGS,
     "__exit__($self, /, *exception)\n--\n\ngive_back(), unless it was sent. If an exception "
     "leaves while buffers are\n"
     "exported, when it is dropped."},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(
    loan_doc,
    "Memory to make a message in, from Peer.loan(). It has the buffer protocol, writable, and\n"
    "any content at first. len(loan): its bytes.\n\n"
    "    with peer.loan(7, 1 << 20) as loan:\n"
    "        with memoryview(loan) as view:\n"
    "            length = make(view)\n"
    "        loan.send(length).wait()");

PyTypeObject *loan_type(PyObject *module) {
    static PyType_Slot slots[] = {
        {Py_tp_doc, (void *)loan_doc},
        {Py_tp_dealloc, loan_dealloc},
        {Py_tp_traverse, loan_traverse},
        {Py_tp_getset, getset},
        {Py_tp_methods, methods},
        {Py_mp_length, loan_length},
        {Py_bf_getbuffer, loan_getbuffer},
        {Py_bf_releasebuffer, export_release},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "weir.Loan",
        .basicsize = sizeof(LoanObject),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        .slots = slots,
    };
    return (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
}
