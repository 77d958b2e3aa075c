/* SPDX-License-Identifier: Apache-2.0 */
/* spans.c: the types MemorySlice and RemoteSlice, contiguous parts of a Memory or a Remote; and the
 * places that transfers take: a whole, a part, or a buffer inside a memory of the engine. */
#include "weirpy.h"

/* Whether both ends of a slice are inside, in their order. Python cuts a list's slice to what there
 * is: of memory that would be a transfer of fewer bytes than were meant, which ends well. `stop` is
 * the largest number where there is none. */
static bool is_inside(PyObject *key, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t length) {
    if (stop == PY_SSIZE_T_MAX) {
        PyObject *end = PyObject_GetAttrString(key, "stop");
        if (end == NULL)
            return false;
        stop = end == Py_None ? length : PY_SSIZE_T_MAX;
        Py_DECREF(end);
    }
    start += start < 0 ? length : 0;
    stop += stop < 0 ? length : 0;
    return start >= 0 && start <= stop && stop <= length;
}

PyObject *span_new(PyTypeObject *type, PyObject *whole, uint64_t offset, uint64_t length,
                   PyObject *key) {
    Py_ssize_t start, stop, step;
    if (!PySlice_Check(key))
        return PyErr_Format(PyExc_TypeError,
                            "a slice of bytes, [a:b], is wanted, not %R; memoryview(memory)[i] is "
                            "a byte of one's own",
                            Py_TYPE(key));
    if (PySlice_Unpack(key, &start, &stop, &step) != 0)
        return NULL;
    if (step != 1) {
        PyErr_SetString(PyExc_ValueError, "a slice of memory is contiguous: its step is 1");
        return NULL;
    }
    if (!is_inside(key, start, stop, (Py_ssize_t)length)) {
        if (!PyErr_Occurred())
            PyErr_Format(PyExc_IndexError, "%R is outside of memory of %llu bytes", key,
                         (unsigned long long)length);
        return NULL;
    }
    Py_ssize_t count = PySlice_AdjustIndices((Py_ssize_t)length, &start, &stop, step);
    SpanObject *self = PyObject_GC_New(SpanObject, type);
    if (self == NULL)
        return NULL;
    self->whole = Py_NewRef(whole);
    self->offset = offset + (uint64_t)start;
    self->length = (uint64_t)count;
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

static void span_dealloc(SpanObject *self) {
    PyObject_GC_UnTrack(self);
    PyObject *whole = self->whole;
    object_free(self);
    Py_DECREF(whole);
}

static int span_traverse(SpanObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->whole);
    return 0;
}

static Py_ssize_t span_length(SpanObject *self) {
    return (Py_ssize_t)self->length;
}

static PyObject *span_subscript(SpanObject *self, PyObject *key) {
    return span_new(Py_TYPE((PyObject *)self), self->whole, self->offset, self->length, key);
}

static PyObject *span_repr(SpanObject *self) {
    return PyUnicode_FromFormat("%R[%llu:%llu]", self->whole, (unsigned long long)self->offset,
                                (unsigned long long)(self->offset + self->length));
}

static PyObject *span_offset(SpanObject *self, void *closure) {
    (void)closure;
    return PyLong_FromUnsignedLongLong(self->offset);
}

static PyObject *span_whole(SpanObject *self, void *closure) {
    (void)closure;
    return Py_NewRef(self->whole);
}

static int span_getbuffer(SpanObject *self, Py_buffer *view, int flags) {
    return memory_export_buffer((MemoryObject *)self->whole, view, self->offset, self->length,
                                flags);
}

static PyGetSetDef memory_slice_getset[] = {
    {"offset", (getter)span_offset, NULL, "Where it begins in its memory, bytes.", NULL},
    {"memory", (getter)span_whole, NULL, "The Memory that it is a part of.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyGetSetDef remote_slice_getset[] = {
    {"offset", (getter)span_offset, NULL, "Where it begins in the peer's memory, bytes.", NULL},
    {"remote", (getter)span_whole, NULL, "The Remote that it is a part of.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(memory_slice_doc,
             "A contiguous part of a Memory: memory[a:b], or a slice of one. It has the buffer\n"
             "protocol, as the memory has, and keeps the memory alive. len(): its bytes.");
PyDoc_STRVAR(remote_slice_doc,
             "A contiguous part of a Remote: remote[a:b], or a slice of one. len(): its bytes.");

PyTypeObject *memory_slice_type(PyObject *module) {
    static PyType_Slot slots[] = {
        {Py_tp_doc, (void *)memory_slice_doc}, {Py_tp_dealloc, span_dealloc},
        {Py_tp_traverse, span_traverse},       {Py_tp_repr, span_repr},
        {Py_tp_getset, memory_slice_getset},   {Py_mp_length, span_length},
        {Py_mp_subscript, span_subscript},     {Py_bf_getbuffer, span_getbuffer},
        {Py_bf_releasebuffer, export_release}, {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "weir.MemorySlice",
        .basicsize = sizeof(SpanObject),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        .slots = slots,
    };
    return (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
}

PyTypeObject *remote_slice_type(PyObject *module) {
    static PyType_Slot slots[] = {
        {Py_tp_doc, (void *)remote_slice_doc}, {Py_tp_dealloc, span_dealloc},
        {Py_tp_traverse, span_traverse},       {Py_tp_repr, span_repr},
        {Py_tp_getset, remote_slice_getset},   {Py_mp_length, span_length},
        {Py_mp_subscript, span_subscript},     {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "weir.RemoteSlice",
        .basicsize = sizeof(SpanObject),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        .slots = slots,
    };
    return (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
}

/* ---- places ------------------------------------------------------------------ */

/* on_device: an address of a GPU, which only means something there. Nothing may be nowhere, as a
 * tensor without elements is, and then any memory will do. */
static MemoryObject *memory_that_has(EngineObject *engine, const void *begin, uint64_t length,
                                     bool on_device) {
    const unsigned char *first = begin;
    bool nowhere = begin == NULL && length == 0;
    for (MemoryObject *memory = engine->memories; memory != NULL; memory = memory->next) {
        if (memory->state != MEMORY_OPEN || (memory->kind == MEMORY_DEVICE) != on_device)
            continue;
        if (nowhere || (first >= memory->base && length <= memory->length &&
                        (uint64_t)(first - memory->base) <= memory->length - length))
            return memory;
    }
    return NULL;
}

MemoryObject *memory_around(EngineObject *engine, const void *begin, uint64_t length) {
    return memory_that_has(engine, begin, length, false);
}

/* Where a buffer or a tensor is. */
static bool place_of(PyObject *object, const unsigned char **begin_out, uint64_t *length_out,
                     bool *on_device_out) {
    Py_buffer view;
    struct source source;
    *on_device_out = false;
    if (PyObject_CheckBuffer(object)) {
        if (PyObject_GetBuffer(object, &view, PyBUF_ANY_CONTIGUOUS) != 0)
            return false;
        *begin_out = view.buf;
        *length_out = (uint64_t)view.len;
        PyBuffer_Release(&view);
        return true;
    }
    if (!source_is_tensor(object)) {
        if (!PyErr_Occurred())
            PyErr_Format(
                PyExc_TypeError,
                "local memory is a weir.Memory, a slice of one, or a buffer or tensor inside "
                "one, not %R",
                Py_TYPE(object));
        return false;
    }
    if (!source_from(object, false, &source))
        return false;
    *begin_out = source.base;
    *length_out = source.length;
    *on_device_out = source.on_device;
    source_drop(&source);
    return true;
}

/* A buffer or tensor that lies inside a memory of the engine, such as a numpy view of it. */
static bool buffer_place(EngineObject *engine, PyObject *object, MemoryObject **memory_out,
                         uint64_t *offset_out, uint64_t *length_out) {
    const unsigned char *begin;
    uint64_t length;
    bool on_device;
    if (!place_of(object, &begin, &length, &on_device))
        return false;
    MemoryObject *memory = memory_that_has(engine, begin, length, on_device);
    if (memory != NULL) {
        *memory_out = memory;
        *offset_out = begin != NULL ? (uint64_t)(begin - memory->base) : 0;
        *length_out = length;
        return true;
    }
    PyErr_Format(
        PyExc_ValueError,
        "a buffer of %llu bytes that lies in no registered memory of the engine: register() "
        "it, or copy into memory of allocate()",
        (unsigned long long)length);
    return false;
}

bool local_place(EngineObject *engine, PyObject *object, MemoryObject **memory_out,
                 uint64_t *offset_out, uint64_t *length_out) {
    if (Py_TYPE(object) == weirpy.memory_slice) {
        const SpanObject *span = (SpanObject *)object;
        *memory_out = (MemoryObject *)span->whole;
        *offset_out = span->offset;
        *length_out = span->length;
    } else if (Py_TYPE(object) == weirpy.memory) {
        *memory_out = (MemoryObject *)object;
        *offset_out = 0;
        *length_out = (*memory_out)->length;
    } else {
        return buffer_place(engine, object, memory_out, offset_out, length_out);
    }
    return memory_check(*memory_out, engine);
}

bool remote_place(EngineObject *engine, PyObject *object, RemoteObject **remote_out,
                  uint64_t *offset_out, uint64_t *length_out) {
    if (Py_TYPE(object) == weirpy.remote_slice) {
        const SpanObject *span = (SpanObject *)object;
        *remote_out = (RemoteObject *)span->whole;
        *offset_out = span->offset;
        *length_out = span->length;
    } else if (Py_TYPE(object) == weirpy.remote) {
        *remote_out = (RemoteObject *)object;
        *offset_out = 0;
        *length_out = (*remote_out)->length;
    } else {
        PyErr_Format(PyExc_TypeError, "remote memory is a weir.Remote or a slice of one, not %R",
                     Py_TYPE(object));
        return false;
    }
    if ((*remote_out)->peer->engine != engine) {
        raise_code(WEIR_EINVAL, "remote memory of another engine");
        return false;
    }
    return true;
}
