/* SPDX-License-Identifier: Apache-2.0 */
/* message.c: the type Message: one that was taken, whose bytes stay where they are until it is
 * given back: by the application, or by the last reference. */
#include "weirpy.h"

#include <string.h>

PyObject *message_new(EngineObject *engine, uint32_t number, const weir_message *message) {
    MessageObject *self = PyObject_GC_New(MessageObject, weirpy.message);
    if (self == NULL)
        return NULL;
    self->engine = (EngineObject *)Py_NewRef((PyObject *)engine);
    self->message = *message;
    self->number = number;
    self->exports = 0;
    self->given_back = false;
    self->previous = NULL;
    self->next = engine->held;
    if (self->next != NULL)
        self->next->previous = self;
    engine->held = self;
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

static void unlink_message(MessageObject *self) {
    if (self->previous != NULL)
        self->previous->next = self->next;
    else if (self->engine->held == self)
        self->engine->held = self->next;
    if (self->next != NULL)
        self->next->previous = self->previous;
    self->next = self->previous = NULL;
}

void messages_orphan(EngineObject *engine) {
    MessageObject *message;
    while ((message = engine->held) != NULL) {
        unlink_message(message);
        message->given_back = true;
    }
}

static int give_back(MessageObject *self) {
    unlink_message(self);
    self->given_back = true;
    PyThreadState *state = engine_leave_gil_if_shared(self->engine);
    int rc = weir_message_give_back(self->engine->engine, &self->message);
    engine_take_gil_if_left(self->engine, state);
    return rc;
}

PyDoc_STRVAR(
    give_back_doc,
    "give_back($self, /)\n--\n\n"
    "The application has done with it: its room is for others, and its bytes are gone.\n"
    "Giving it back again does nothing. It is given back by itself when nothing refers to\n"
    "it. Raises BufferError while it is exported.");
static PyObject *message_give_back(MessageObject *self, PyObject *ignored) {
    (void)ignored;
    if (self->given_back)
        Py_RETURN_NONE;
    if (self->exports > 0)
        return PyErr_Format(PyExc_BufferError,
                            "%zd buffers of the message are still exported: delete the arrays and "
                            "memoryviews before it is given back",
                            self->exports);
    if (engine_use(self->engine) == NULL)
        return NULL;
    int rc = give_back(self);
    if (rc != WEIR_OK)
        return raise_code(rc, "give a message back");
    Py_RETURN_NONE;
}

static void message_dealloc(MessageObject *self) {
    PyObject_GC_UnTrack(self);
    EngineObject *engine = self->engine;
    if (!self->given_back && engine_is_usable(engine))
        give_back(self);
    unlink_message(self);
    object_free(self);
    Py_DECREF((PyObject *)engine);
}

static int message_traverse(MessageObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->engine);
    return 0;
}

static int message_getbuffer(MessageObject *self, Py_buffer *view, int flags) {
    view->obj = NULL;
    if (self->given_back || !engine_is_usable(self->engine)) {
        PyErr_SetString(PyExc_BufferError, "the message was given back, or its engine is closed");
        return -1;
    }
    static char nothing;
    void *data = self->message.length == 0 ? &nothing : (void *)(uintptr_t)self->message.data;
    return export_buffer(view, (PyObject *)self, self->engine, &self->exports, data,
                         self->message.length, true, flags);
}

static Py_ssize_t message_length(MessageObject *self) {
    return (Py_ssize_t)self->message.length;
}

static PyObject *message_enter(MessageObject *self, PyObject *ignored) {
    (void)ignored;
    return Py_NewRef((PyObject *)self);
}

static PyObject *message_exit(MessageObject *self, PyObject *args) {
    if (exit_is_left(args) && self->exports > 0)
        Py_RETURN_NONE;
    return engine_is_usable(self->engine) ? message_give_back(self, NULL) : Py_NewRef(Py_None);
}

static PyObject *message_get(MessageObject *self, void *what) {
    switch (*(const char *)what) {
    case 't':
        return PyLong_FromUnsignedLongLong(self->message.tag);
    case 'p':
        return peer_wrap(self->engine, self->message.from);
    case 'i':
        return PyLong_FromUnsignedLong(self->number);
    default:
        return PyBool_FromLong(self->given_back);
    }
}

static PyObject *message_repr(MessageObject *self) {
    return PyUnicode_FromFormat(
        "<weir.Message of %llu bytes, tag %llu%s>", (unsigned long long)self->message.length,
        (unsigned long long)self->message.tag, self->given_back ? ", given back" : "");
}

static PyGetSetDef getset[] = {
    {"tag", (getter)message_get, NULL, "The sender's 64 bits, an int.", "t"},
    {"peer", (getter)message_get, NULL, "The Peer that sent it; reply with peer.send().", "p"},
    {"inbox", (getter)message_get, NULL, "The number of its inbox.", "i"},
    {"given_back", (getter)message_get, NULL, "True once it was given back.", "g"},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef methods[] = {
    {"give_back", (PyCFunction)message_give_back, METH_NOARGS, give_back_doc},
    {"__enter__", (PyCFunction)message_enter, METH_NOARGS, "__enter__($self, /)\n--\n\nItself."},
    {"__exit__", (PyCFunction)message_exit, METH_VARARGS,
     "__exit__($self, /, *exception)\n--\n\ngive_back(). If an exception leaves while buffers are\n"
     "exported, when it is dropped."},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(
    message_doc,
    "A message that was taken from an inbox. Its bytes are in the inbox, or in a loan of its\n"
    "sender's, and read where they are: it has the buffer protocol, read-only. bytes(message)\n"
    "copies; len(message): its bytes.");

PyTypeObject *message_type(PyObject *module) {
    static PyType_Slot slots[] = {
        {Py_tp_doc, (void *)message_doc},
        {Py_tp_dealloc, message_dealloc},
        {Py_tp_traverse, message_traverse},
        {Py_tp_repr, message_repr},
        {Py_tp_getset, getset},
        {Py_tp_methods, methods},
        {Py_mp_length, message_length},
        {Py_bf_getbuffer, message_getbuffer},
        {Py_bf_releasebuffer, export_release},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "weir.Message",
        .basicsize = sizeof(MessageObject),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        .slots = slots,
    };
    return (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
}
