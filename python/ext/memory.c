/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c: the type Memory: registered memory of this process, and when it may go.
 *
 * open -> releasing -> released. The bytes are the library's (allocate) or an object's, which is
 * kept until the library has said that no peer touches them any more. When the last reference to a
 * Memory goes while a peer is still inside an access, what it kept goes to the engine's graves, and
 * the release is asked for again from there. */
#include "weirpy.h"

#include <string.h>
#include <unistd.h>

/* Memory whose object is gone. */
struct grave {
    struct grave *next;
    weir_memory handle;
    Py_buffer view;
    bool has_view;
    PyObject *owner;
};

bool memory_check(MemoryObject *self, EngineObject *engine) {
    if (self->state != MEMORY_OPEN) {
        raise_code(WEIR_ESTALE, "memory of %llu bytes, which was released",
                   (unsigned long long)self->length);
        return false;
    }
    if (self->engine != engine) {
        raise_code(WEIR_EINVAL, "memory of another engine");
        return false;
    }
    return true;
}

/* ---- exports --------------------------------------------------------------- */

int memory_export_buffer(MemoryObject *self, Py_buffer *view, uint64_t offset, uint64_t length,
                         int flags) {
    view->obj = NULL;
    if (self->state != MEMORY_OPEN || !engine_is_usable(self->engine)) {
        PyErr_SetString(PyExc_BufferError, "the memory was released, or its engine is closed");
        return -1;
    }
    if (self->kind == MEMORY_DEVICE) {
        PyErr_SetString(PyExc_BufferError, "the memory of a GPU has no buffer here");
        return -1;
    }
    return export_buffer(view, (PyObject *)self, self->engine, &self->exports, self->base + offset,
                         length, self->readonly, flags);
}

static int memory_getbuffer(MemoryObject *self, Py_buffer *view, int flags) {
    return memory_export_buffer(self, view, 0, self->length, flags);
}

/* ---- release --------------------------------------------------------------- */

static void unlink_memory(MemoryObject *self) {
    if (self->previous != NULL)
        self->previous->next = self->next;
    else if (self->engine->memories == self)
        self->engine->memories = self->next;
    if (self->next != NULL)
        self->next->previous = self->previous;
    self->next = self->previous = NULL;
}

/* Gives back what was kept for peers. The object is whole before others may run. */
static void let_go(MemoryObject *self) {
    Py_buffer view = self->view;
    bool has_view = self->has_view;
    PyObject *owner = self->owner;
    self->has_view = false;
    self->owner = NULL;
    self->base = NULL;
    if (has_view)
        PyBuffer_Release(&view);
    Py_XDECREF(owner);
}

void memory_orphan(MemoryObject *self) {
    unlink_memory(self);
    self->state = MEMORY_RELEASED;
    Py_INCREF((PyObject *)self);
    let_go(self);
    Py_DECREF((PyObject *)self);
}

static void fill_in(struct grave *grave) {
    if (grave->has_view)
        PyBuffer_Release(&grave->view);
    Py_XDECREF(grave->owner);
    free(grave);
}

void memory_bury(EngineObject *engine, bool closed) {
    struct grave *grave;
    while ((closed || engine_is_usable(engine)) && (grave = engine->graves) != NULL) {
        engine->graves = grave->next;
        if (!closed) {
            PyThreadState *state = engine_leave_gil(engine);
            int rc = weir_memory_release(engine->engine, grave->handle);
            engine_take_gil(engine, state);
            if (rc == WEIR_EINPROGRESS || rc == WEIR_EDEVICE) {
                grave->next = engine->graves;
                engine->graves = grave;
                return;
            }
        }
        fill_in(grave);
    }
}

/* The object goes, and its memory cannot yet. Without room for that it stays for ever. */
static void dig(MemoryObject *self) {
    struct grave *grave = malloc(sizeof(*grave));
    if (grave != NULL) {
        grave->handle = self->handle;
        grave->view = self->view;
        grave->has_view = self->has_view;
        grave->owner = self->owner;
        grave->next = self->engine->graves;
        self->engine->graves = grave;
    }
    self->has_view = false;
    self->owner = NULL;
}

/* One call, which may wait 100 ms for a peer. The memory is open again behind EBUSY. */
static int release_once(MemoryObject *self) {
    EngineObject *engine = self->engine;
    self->state = MEMORY_RELEASING;
    self->in_release = true;
    PyThreadState *state = engine_leave_gil(engine);
    int rc = weir_memory_release(engine->engine, self->handle);
    engine_take_gil(engine, state);
    self->in_release = false;
    if (rc == WEIR_EBUSY)
        self->state = MEMORY_OPEN;
    if (self->named && (rc == WEIR_OK || rc == WEIR_EINPROGRESS))
        names_forget(engine, (PyObject *)self);
    if (rc == WEIR_OK) {
        unlink_memory(self);
        self->state = MEMORY_RELEASED;
    }
    return rc;
}

PyDoc_STRVAR(release_doc,
             "release($self, /, timeout=None)\n--\n\n"
             "Takes the memory back: on return no peer touches it any more. Memory of allocate()\n"
             "is unmapped, and what was registered is the application's alone again. Releasing it\n"
             "again does nothing. It is released by itself when the last reference to it goes.\n\n"
             "Raises BufferError while it is exported; BusyError while a transfer of this engine\n"
             "that has not ended uses it (both change nothing); InProgressError when a peer was\n"
             "inside an access for timeout seconds (None: no limit): peers are refused then, the\n"
             "memory stays, and release() is called again.");
static PyObject *memory_release(MemoryObject *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"timeout", NULL};
    PyObject *timeout = Py_None;
    uint64_t timeout_ns;
    struct waiting waiting;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|O:release", names, &timeout) ||
        !seconds_to_ns(timeout, &timeout_ns))
        return NULL;
    if (self->state == MEMORY_RELEASED)
        Py_RETURN_NONE;
    if (self->exports > 0)
        return PyErr_Format(PyExc_BufferError,
                            "%zd buffers of the memory are still exported: delete the arrays and "
                            "memoryviews before it is released",
                            self->exports);
    if (self->in_release)
        return raise_code(WEIR_EBUSY, "memory that another thread releases");
    transfers_reap(self->engine, SIZE_MAX);
    for (waiting_begin(&waiting, timeout_ns);;) {
        if (engine_use(self->engine) == NULL)
            return NULL;
        int rc = release_once(self);
        if (rc == WEIR_OK) {
            let_go(self);
            Py_RETURN_NONE;
        }
        if (rc != WEIR_EINPROGRESS || waiting_is_over(&waiting))
            return raise_code(rc, "release memory of %llu bytes", (unsigned long long)self->length);
        if (PyErr_CheckSignals() != 0)
            return NULL;
        sleep_without_gil(1000000);
    }
}

static void memory_dealloc(MemoryObject *self) {
    EngineObject *engine = self->engine;
    PyObject *type, *value, *traceback;
    PyObject_GC_UnTrack(self);
    PyErr_Fetch(&type, &value, &traceback);
    unlink_memory(self); /* nobody finds it by its address while others run */
    /* While the engine is being closed, its devices touch the memory still. */
    if (self->state != MEMORY_RELEASED && (engine->engine != NULL || engine->closing)) {
        bool is_ours = engine->forks == weirpy.forks;
        if (is_ours && (!engine_is_usable(engine) || release_once(self) != WEIR_OK))
            dig(self);
    }
    let_go(self);
    PyErr_Restore(type, value, traceback);
    object_free(self);
    Py_DECREF((PyObject *)engine);
}

static int memory_traverse(MemoryObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->engine);
    Py_VISIT(self->owner);
    if (self->has_view)
        Py_VISIT(self->view.obj);
    return 0;
}

/* ---- making one ------------------------------------------------------------ */

static MemoryObject *memory_new(EngineObject *engine, weir_memory handle) {
    MemoryObject *self = PyObject_GC_New(MemoryObject, weirpy.memory);
    if (self == NULL)
        return NULL;
    memset((char *)self + sizeof(PyObject), 0, sizeof(*self) - sizeof(PyObject));
    self->engine = (EngineObject *)Py_NewRef((PyObject *)engine);
    self->handle = handle;
    self->next = engine->memories;
    if (self->next != NULL)
        self->next->previous = self;
    engine->memories = self;
    return self;
}

/* 'r', 'w', 'rw' or '' as bits. */
static bool access_from(PyObject *access, uint32_t *bits_out) {
    Py_ssize_t length = 0;
    const char *text = "rw";
    if (access != NULL) {
        if (!PyUnicode_Check(access)) {
            PyErr_Format(PyExc_TypeError, "access is a str, not %R", Py_TYPE(access));
            return false;
        }
        if ((text = PyUnicode_AsUTF8AndSize(access, &length)) == NULL)
            return false;
    }
    *bits_out = (strchr(text, 'r') != NULL ? WEIR_ACCESS_REMOTE_READ : 0) |
                (strchr(text, 'w') != NULL ? WEIR_ACCESS_REMOTE_WRITE : 0);
    if (strspn(text, "rw") == strlen(text) && strlen(text) <= 2)
        return true;
    PyErr_Format(PyExc_ValueError, "access is 'r', 'w', 'rw' or '', not %R", access);
    return false;
}

PyObject *memory_allocate(EngineObject *engine, PyObject *args, PyObject *keywords) {
    static char *names[] = {"length", "access", NULL};
    PyObject *length_object, *access_object = NULL;
    uint64_t length;
    uint32_t access;
    weir_memory handle;
    void *base = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|O:allocate", names, &length_object,
                                     &access_object) ||
        !number_u64(length_object, "length", &length) || !access_from(access_object, &access))
        return NULL;
    if (length == 0 || length > PY_SSIZE_T_MAX)
        return PyErr_Format(PyExc_ValueError, "length is 1 to 2**63 - 1, not %R", length_object);
    weir_engine *open = engine_use(engine);
    if (open == NULL)
        return NULL;
    PyThreadState *state = engine_leave_gil(engine);
    int rc = weir_memory_allocate(open, length, access, &handle, &base);
    engine_take_gil(engine, state);
    if (rc != WEIR_OK)
        return raise_code(rc, "allocate %llu bytes", (unsigned long long)length);
    MemoryObject *self = memory_new(engine, handle);
    if (self == NULL) {
        weir_memory_release(open, handle);
        return NULL;
    }
    self->base = base;
    self->length = length;
    self->access = access;
    self->kind = MEMORY_ALLOCATED;
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

/* Without the GIL: pages may be pinned. */
static int register_source(EngineObject *engine, const struct source *source, uint32_t access,
                           int fd, uint64_t offset, weir_memory *handle_out) {
    PyThreadState *state = engine_leave_gil(engine);
    int rc;
    if (source->on_device)
        rc = weir_memory_register_dmabuf(engine->engine, fd, offset, source->length,
                                         (uint64_t)(uintptr_t)source->base, access, handle_out);
    else
        rc = weir_memory_register(engine->engine, source->base, source->length, access, handle_out);
    engine_take_gil(engine, state);
    return rc;
}

PyObject *memory_register(EngineObject *engine, PyObject *args, PyObject *keywords) {
    static char *names[] = {"object", "access", NULL};
    PyObject *object, *access_object = NULL;
    struct source source;
    uint32_t access;
    weir_memory handle;
    int fd = -1;
    uint64_t offset = 0;
    MemoryObject *self = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|O:register", names, &object,
                                     &access_object) ||
        !access_from(access_object, &access) || engine_use(engine) == NULL)
        return NULL;
    if (!source_from(object, (access & WEIR_ACCESS_REMOTE_WRITE) != 0, &source))
        return NULL;
    if (source.length == 0) {
        PyErr_SetString(PyExc_ValueError, "an empty object has no memory to register");
        goto drop;
    }
    if ((source.on_device && !source_dmabuf(&source, &fd, &offset)) || engine_use(engine) == NULL)
        goto drop;
    int rc = register_source(engine, &source, access, fd, offset, &handle);
    if (rc != WEIR_OK) {
        raise_code(rc, "register %llu bytes at %p", (unsigned long long)source.length, source.base);
        goto drop;
    }
    self = memory_new(engine, handle);
    if (self == NULL) {
        weir_memory_release(engine->engine, handle);
        goto drop;
    }
    self->base = source.base;
    self->length = source.length;
    self->access = access;
    self->kind = source.on_device ? MEMORY_DEVICE : MEMORY_FOREIGN;
    self->readonly = source.readonly;
    self->view = source.view;
    self->has_view = source.has_view;
    self->owner = source.owner;
    source.has_view = false;
    source.owner = NULL;
    PyObject_GC_Track(self);
drop:
    source_drop(&source);
    if (fd >= 0)
        close(fd);
    return (PyObject *)self;
}

/* ---- the type -------------------------------------------------------------- */

PyDoc_STRVAR(export_doc,
             "export($self, /)\n--\n\n"
             "A descriptor, bytes (at most 256), for peers: carry it to them by any means, and\n"
             "they make a Remote of it with Peer.remote(). Raises AccessError (access ''),\n"
             "StaleError (released), DeviceError.");
static PyObject *memory_export(MemoryObject *self, PyObject *ignored) {
    (void)ignored;
    unsigned char descriptor[WEIR_DESCRIPTOR_MAX];
    size_t length = sizeof(descriptor);
    weir_engine *engine = engine_use(self->engine);
    if (engine == NULL || !memory_check(self, self->engine))
        return NULL;
    PyThreadState *state = engine_leave_gil(self->engine);
    int rc = weir_memory_export(engine, self->handle, descriptor, &length);
    engine_take_gil(self->engine, state);
    if (rc != WEIR_OK)
        return raise_code(rc, "export memory of %llu bytes", (unsigned long long)self->length);
    return PyBytes_FromStringAndSize((const char *)descriptor, (Py_ssize_t)length);
}

PyDoc_STRVAR(
    publish_doc,
    "publish($self, name, /)\n--\n\n"
    "The name, a str, is of this memory from now on, whatever it was of before, and peers\n"
    "open it by Peer.remote(name). 1 to 127 bytes in UTF-8. The engine keeps the memory\n"
    "until the name is of something else or withdrawn, the memory is released, or the\n"
    "engine closed. Raises TypeError, InvalidError (a ValueError: no name), AccessError\n"
    "(access ''), AgainError (names_max), StaleError (released).");

static PyObject *memory_enter(MemoryObject *self, PyObject *ignored) {
    (void)ignored;
    return memory_check(self, self->engine) ? Py_NewRef((PyObject *)self) : NULL;
}

static PyObject *memory_exit(MemoryObject *self, PyObject *args) {
    if (exit_is_left(args) && self->exports > 0)
        Py_RETURN_NONE;
    PyObject *none = PyTuple_New(0);
    PyObject *done = none == NULL ? NULL : memory_release(self, none, NULL);
    Py_XDECREF(none);
    return done;
}

static Py_ssize_t memory_length(MemoryObject *self) {
    return (Py_ssize_t)self->length;
}

static PyObject *memory_subscript(MemoryObject *self, PyObject *key) {
    return span_new(weirpy.memory_slice, (PyObject *)self, 0, self->length, key);
}

static PyObject *memory_repr(MemoryObject *self) {
    return PyUnicode_FromFormat("<weir.Memory of %llu bytes at %p%s>",
                                (unsigned long long)self->length, self->base,
                                self->state == MEMORY_OPEN       ? ""
                                : self->state == MEMORY_RELEASED ? ", released"
                                                                 : ", being released");
}

static PyObject *memory_get(MemoryObject *self, void *what) {
    switch (*(const char *)what) {
    case 'a':
        return PyLong_FromUnsignedLongLong((unsigned long long)(uintptr_t)self->base);
    case 'b':
        return PyUnicode_FromFormat("%s%s", self->access & WEIR_ACCESS_REMOTE_READ ? "r" : "",
                                    self->access & WEIR_ACCESS_REMOTE_WRITE ? "w" : "");
    case 'c':
        return PyBool_FromLong(self->readonly);
    case 'd':
        return PyBool_FromLong(self->state == MEMORY_RELEASED);
    case 'e':
        return PyLong_FromSsize_t(self->exports);
    default:
        return Py_NewRef((PyObject *)self->engine);
    }
}

static PyGetSetDef memory_getset[] = {
    {"address", (getter)memory_get, NULL, "Its first byte's address, an int; 0 once released.",
     "a"},
    {"access", (getter)memory_get, NULL, "What peers may do: 'r', 'w', 'rw' or ''.", "b"},
    {"readonly", (getter)memory_get, NULL,
     "True: this process may not write it, nor read into it from a peer.", "c"},
    {"released", (getter)memory_get, NULL, "True once it was released, or its engine closed.", "d"},
    {"exports", (getter)memory_get, NULL, "Buffers of it that are exported now.", "e"},
    {"engine", (getter)memory_get, NULL, "The engine.", "f"},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef memory_methods[] = {
    {"export", (PyCFunction)memory_export, METH_NOARGS, export_doc},
    {"publish", memory_publish, METH_O, publish_doc},
    {"release", (PyCFunction)(void (*)(void))memory_release, METH_VARARGS | METH_KEYWORDS,
     release_doc},
    {"__enter__", (PyCFunction)memory_enter, METH_NOARGS, "__enter__($self, /)\n--\n\nItself."},
    {"__exit__", (PyCFunction)memory_exit, METH_VARARGS,
     "__exit__($self, /, *exception)\n--\n\nrelease(). If an exception leaves while buffers are\n"
     "exported, when it is dropped."},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(
    memory_doc,
    "Registered memory of this process, from Engine.allocate() or Engine.register().\n\n"
    "It has the buffer protocol, as bytes: memoryview(memory), numpy.frombuffer(memory,\n"
    "dtype), torch.frombuffer(memory, dtype=...). memory[a:b] is a MemorySlice, for\n"
    "transfers, which has it, too; IndexError where it is not all inside. len(memory): its\n"
    "bytes.\n\n"
    "While a buffer is exported, or a transfer that has not ended uses it, it is not\n"
    "released. Peers that have its descriptor may write to it at any time.");

PyTypeObject *memory_type(PyObject *module) {
    static PyType_Slot slots[] = {
        {Py_tp_doc, (void *)memory_doc},
        {Py_tp_dealloc, memory_dealloc},
        {Py_tp_traverse, memory_traverse},
        {Py_tp_repr, memory_repr},
        {Py_tp_getset, memory_getset},
        {Py_tp_methods, memory_methods},
        {Py_mp_length, memory_length},
        {Py_mp_subscript, memory_subscript},
        {Py_bf_getbuffer, memory_getbuffer},
        {Py_bf_releasebuffer, export_release},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "weir.Memory",
        .basicsize = sizeof(MemoryObject),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        .slots = slots,
    };
    return (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
}
