/* SPDX-License-Identifier: Apache-2.0 */
/* export.c: buffers that are exported, as objects of their own. Each keeps what it is of, and
 * counts there and in the engine for as long as it lives: also for those who release the buffer at
 * once and keep a reference to the object that exported it, as torch.frombuffer() does. */
#include "weirpy.h"

typedef struct ExportObject {
    PyObject_HEAD PyObject *owner;
    EngineObject *engine;
    Py_ssize_t *count; /* in the owner */
} ExportObject;

int export_buffer(Py_buffer *view, PyObject *owner, EngineObject *engine, Py_ssize_t *count,
                  void *data, uint64_t length, bool readonly, int flags) {
    view->obj = NULL;
    ExportObject *self = PyObject_GC_New(ExportObject, weirpy.export_);
    if (self == NULL)
        return -1;
    self->owner = Py_NewRef(owner);
    self->engine = (EngineObject *)Py_NewRef((PyObject *)engine);
    self->count = count;
    (*count)++;
    engine->exports++;
    PyObject_GC_Track(self);
    int rc = PyBuffer_FillInfo(view, (PyObject *)self, data, (Py_ssize_t)length, readonly, flags);
    Py_DECREF((PyObject *)self); /* the view has a reference, or none */
    return rc;
}

/* Nothing is to be done: the export goes with its last reference. But numpy keeps the buffer of an
 * object that has this, and of any other only the object. */
void export_release(PyObject *owner, Py_buffer *view) {
    (void)owner;
    (void)view;
}

static void export_dealloc(ExportObject *self) {
    PyObject_GC_UnTrack(self);
    PyObject *owner = self->owner;
    EngineObject *engine = self->engine;
    (*self->count)--;
    object_free(self);
    engine_unexport(engine);
    Py_DECREF(owner);
    Py_DECREF((PyObject *)engine);
}

static int export_traverse(ExportObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->owner);
    Py_VISIT(self->engine);
    return 0;
}

static PyObject *export_owner(ExportObject *self, void *closure) {
    (void)closure;
    return Py_NewRef(self->owner);
}

static PyGetSetDef getset[] = {
    {"owner", (getter)export_owner, NULL, "The Memory, Message or Loan whose bytes they are.",
     NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(export_doc, "A buffer that is exported: the obj of a memoryview.");

PyTypeObject *export_type(PyObject *module) {
    static PyType_Slot slots[] = {
        {Py_tp_doc, (void *)export_doc},
        {Py_tp_dealloc, export_dealloc},
        {Py_tp_traverse, export_traverse},
        {Py_tp_getset, getset},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "weir.Export",
        .basicsize = sizeof(ExportObject),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        .slots = slots,
    };
    return (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
}
