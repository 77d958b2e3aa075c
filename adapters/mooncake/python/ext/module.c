/* SPDX-License-Identifier: Apache-2.0 */
/* module.c: the extension module mooncake._engine: its two types, opening, and what is asked of an
 * engine. */
#include "mooncakepy.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

struct mooncakepy mooncakepy;

InnerObject *inner_of(PyObject *self) {
    InnerObject *inner = ((TransferEngineObject *)self)->inner;
    if (inner == NULL || !mc_is_here(inner->engine))
        return NULL;
    Py_INCREF((PyObject *)inner);
    return inner;
}

/* ---- InnerTransferEngine ----------------------------------------------------------- */

static void inner_dealloc(InnerObject *inner) {
    PyTypeObject *type = Py_TYPE((PyObject *)inner);
    Py_BEGIN_ALLOW_THREADS if (inner->engine != NULL) {
        mc_close(inner->engine);
        pthread_mutex_destroy(&inner->lock);
    }
    while (inner->managed != NULL) { /* nobody reaches it any more */
        struct managed *next = inner->managed->next;
        munmap(inner->managed->base, inner->managed->length);
        free(inner->managed);
        inner->managed = next;
    }
    Py_END_ALLOW_THREADS freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(inner);
    Py_DECREF(type);
}

static PyType_Slot inner_slots[] = {
    {Py_tp_dealloc, inner_dealloc},
    {Py_tp_doc, (void *)"The engine that TransferEngine.get_engine() shares."},
    {0, NULL},
};
static PyType_Spec inner_spec = {"mooncake._engine.InnerTransferEngine", sizeof(InnerObject), 0,
                                 Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                 inner_slots};

/* ---- opening -------------------------------------------------------------------------- */

/* Which device of weir's a protocol and a device's name are; NULL: MC_WEIR_DEVICE says, or "auto".
 * Of several names the first counts. */
static const char *device_of(const char *protocol, const char *name, char *room, size_t size) {
    static const char *const devices[][2] = {
        {"tcp", "ofi"}, {"rdma", "verbs"}, {"efa", "efa"}, {"shm", "shm"}};
    if (getenv("MC_WEIR_DEVICE") != NULL)
        return NULL;
    for (size_t i = 0; i < sizeof(devices) / sizeof(devices[0]); i++) {
        if (strcmp(protocol, devices[i][0]) != 0)
            continue;
        int length = (int)strcspn(name, ",");
        if (length > 0) {
            snprintf(room, size, "%s:%.*s", devices[i][1], length, name);
            return room;
        }
        weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
        weir_device_info info = WEIR_DEVICE_INFO_INIT;
        options.device = devices[i][1];
        return weir_device_choose(&options, &info) == WEIR_OK && info.available == WEIR_OK
                   ? devices[i][1]
                   : NULL;
    }
    return NULL;
}

static PyObject *open_engine(PyObject *self, const char *host, const char *metadata,
                             const char *protocol, const char *name) {
    TransferEngineObject *engine = (TransferEngineObject *)self;
    char room[256];
    if (engine->inner != NULL)
        return PyLong_FromLong(-1); /* once */
    PyTypeObject *type = mooncakepy.inner;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    InnerObject *inner = (InnerObject *)alloc(type, 0);
    if (inner == NULL)
        return NULL;
    struct mc_engine *opened;
    Py_BEGIN_ALLOW_THREADS opened =
        mc_open(metadata, host, device_of(protocol, name, room, sizeof(room)));
    Py_END_ALLOW_THREADS inner->engine = opened;
    if (opened != NULL)
        pthread_mutex_init(&inner->lock, NULL);
    if (opened == NULL || engine->inner != NULL) { /* or another thread was first */
        Py_DECREF((PyObject *)inner);
        return PyLong_FromLong(-1);
    }
    engine->inner = inner;
    return PyLong_FromLong(0);
}

static PyObject *initialize(PyObject *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"local_hostname", "metadata_server", "protocol", "device_name", NULL};
    const char *host, *metadata, *protocol, *device;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "sssz", names, &host, &metadata, &protocol,
                                     &device))
        return NULL;
    return open_engine(self, host, metadata, protocol, device != NULL ? device : "");
}

static PyObject *initialize_ext(PyObject *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"local_hostname", "metadata_server", "protocol",
                            "device_name",    "metadata_type",   NULL};
    const char *host, *metadata, *protocol, *device, *type;
    char uri[512];
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "ssszs", names, &host, &metadata, &protocol,
                                     &device, &type))
        return NULL;
    bool whole = strcmp(metadata, "P2PHANDSHAKE") == 0 || strstr(metadata, "://") != NULL;
    int length =
        snprintf(uri, sizeof(uri), "%s%s%s", whole ? "" : type, whole ? "" : "://", metadata);
    if (length < 0 || (size_t)length >= sizeof(uri))
        return PyLong_FromLong(-1);
    return open_engine(self, host, uri, protocol, device != NULL ? device : "");
}

/* ---- what is asked ---------------------------------------------------------------------- */

static PyObject *get_rpc_port(PyObject *self, PyObject *ignored) {
    (void)ignored;
    InnerObject *inner = inner_of(self);
    long port = inner != NULL ? (long)inner->engine->port : -1;
    Py_XDECREF((PyObject *)inner);
    return PyLong_FromLong(port);
}

static PyObject *get_first_buffer_address(PyObject *self, PyObject *args) {
    const char *name;
    uint64_t first = 0;
    if (!PyArg_ParseTuple(args, "s", &name))
        return NULL;
    InnerObject *inner = inner_of(self);
    if (inner != NULL) {
        Py_BEGIN_ALLOW_THREADS first =
            segment_first(inner->engine, segment_open(inner->engine, name, false));
        if (first == 0) /* it may have registered since */
            first = segment_first(inner->engine, segment_open(inner->engine, name, true));
        Py_END_ALLOW_THREADS Py_DECREF((PyObject *)inner);
    }
    return PyLong_FromUnsignedLongLong(first);
}

static PyObject *call_with_name(PyObject *self, PyObject *args, PyObject *keywords, char *keyword,
                                bool probes) {
    char *names[] = {keyword, NULL};
    const char *name;
    int rc = MC_EINVALID;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "s", names, &name))
        return NULL;
    InnerObject *inner = inner_of(self);
    if (inner != NULL) {
        Py_BEGIN_ALLOW_THREADS int32_t id = segment_open(inner->engine, name, false);
        rc = id < 0 ? id : probes ? notice_probe(inner->engine, id) : 0;
        Py_END_ALLOW_THREADS Py_DECREF((PyObject *)inner);
    }
    return PyLong_FromLong(rc);
}

static PyObject *send_probe(PyObject *self, PyObject *args, PyObject *keywords) {
    return call_with_name(self, args, keywords, "peer_server_name", true);
}

static PyObject *warmup_efa_segment(PyObject *self, PyObject *args, PyObject *keywords) {
    return call_with_name(self, args, keywords, "segment_name", false);
}

static PyObject *get_local_topology(PyObject *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"device_name", NULL};
    const char *ignored;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|z", names, &ignored))
        return NULL;
    InnerObject *inner = inner_of(self);
    PyObject *topology =
        inner == NULL ? PyUnicode_FromString("{}")
                      : PyUnicode_FromFormat("{\"cpu:0\": [[\"%s\"], []]}", inner->engine->device);
    Py_XDECREF((PyObject *)inner);
    return topology;
}

static PyObject *get_notifies(PyObject *self, PyObject *ignored) {
    (void)ignored;
    int count = 0;
    notify_msg_t *notices = NULL;
    PyObject *list = PyList_New(0);
    InnerObject *inner = list != NULL ? inner_of(self) : NULL;
    if (inner != NULL) {
        Py_BEGIN_ALLOW_THREADS notices = notices_give(inner->engine, &count);
        Py_END_ALLOW_THREADS Py_DECREF((PyObject *)inner);
    }
    for (int i = 0; list != NULL && i < count; i++) {
        PyObject *name =
            PyUnicode_DecodeUTF8(notices[i].name, (Py_ssize_t)strlen(notices[i].name), "replace");
        PyObject *text =
            PyUnicode_DecodeUTF8(notices[i].msg, (Py_ssize_t)strlen(notices[i].msg), "replace");
        PyObject *one = name != NULL && text != NULL
                            ? PyObject_CallFunctionObjArgs(mooncakepy.notify, name, text, NULL)
                            : NULL;
        if (one == NULL || PyList_Append(list, one) != 0)
            Py_CLEAR(list);
        Py_XDECREF(one);
        Py_XDECREF(name);
        Py_XDECREF(text);
    }
    notices_free(notices, (size_t)count);
    return list;
}

static PyObject *get_engine(PyObject *self, PyObject *ignored) {
    (void)ignored;
    PyObject *inner = (PyObject *)inner_of(self);
    return inner != NULL ? inner : Py_NewRef(Py_None);
}

static PyObject *get_engine_ptr(PyObject *self, PyObject *ignored) {
    (void)ignored;
    InnerObject *inner = inner_of(self);
    uintptr_t engine = inner != NULL ? (uintptr_t)inner->engine : 0;
    Py_XDECREF((PyObject *)inner);
    return PyLong_FromUnsignedLongLong(engine);
}

static PyMethodDef asked_methods[] = {
    {"initialize", (PyCFunction)initialize, METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("Opens the engine: 0, or -1; why is on standard error.")},
    {"initialize_ext", (PyCFunction)initialize_ext, METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("The same, with the scheme of the metadata server by itself.")},
    {"get_rpc_port", get_rpc_port, METH_NOARGS, PyDoc_STR("The port at which peers reach it.")},
    {"get_first_buffer_address", get_first_buffer_address, METH_VARARGS,
     PyDoc_STR("Of a segment: the address of what it registered first; 0: nothing.")},
    {"send_probe", (PyCFunction)send_probe, METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("0: the peer answers.")},
    {"warmup_efa_segment", (PyCFunction)warmup_efa_segment, METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("Connects, on any device: 0, or negative.")},
    {"get_local_topology", (PyCFunction)get_local_topology, METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("JSON that names the engine's device.")},
    {"get_notifies", get_notifies, METH_NOARGS,
     PyDoc_STR("Takes all notifications that came, a list of TransferNotify.")},
    {"get_engine", get_engine, METH_NOARGS,
     PyDoc_STR("What this object and others may share; None before initialize.")},
    {"get_engine_ptr", get_engine_ptr, METH_NOARGS,
     PyDoc_STR("The transfer_engine_t of the C interface, of this module alone.")},
    {NULL, NULL, 0, NULL},
};

/* ---- the type, the module ------------------------------------------------------------------ */

static PyObject *engine_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    (void)args;
    (void)keywords;
    allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    TransferEngineObject *self = (TransferEngineObject *)alloc(type, 0);
    if (self == NULL)
        return NULL;
    const char *text = getenv("MC_TRANSFER_TIMEOUT");
    long seconds = text != NULL ? strtol(text, NULL, 10) : 30;
    if (seconds < 5 || seconds > 3600)
        seconds = seconds < 5 ? 5 : 3600;
    self->timeout_ns = (uint64_t)seconds * 1000 * NS_PER_MS;
    return (PyObject *)self;
}

static void engine_dealloc(TransferEngineObject *self) {
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    Py_XDECREF((PyObject *)self->inner);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

/* Of the three tables. */
static PyMethodDef all_methods[64];

static PyType_Slot engine_slots[] = {
    {Py_tp_new, engine_new},
    {Py_tp_dealloc, engine_dealloc},
    {Py_tp_methods, all_methods},
    {Py_tp_doc, (void *)"An engine, as Mooncake's TransferEngine is one; over weir."},
    {0, NULL},
};
static PyType_Spec engine_spec = {"mooncake._engine.TransferEngine", sizeof(TransferEngineObject),
                                  0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, engine_slots};

static PyObject *set_classes(PyObject *module, PyObject *notify) {
    (void)module;
    Py_XDECREF(mooncakepy.notify);
    mooncakepy.notify = Py_NewRef(notify);
    Py_RETURN_NONE;
}

static PyMethodDef module_methods[] = {
    {"_set_classes", set_classes, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef definition = {.m_base = PyModuleDef_HEAD_INIT,
                                        .m_name = "mooncake._engine",
                                        .m_doc = "The part of mooncake.engine that is C.",
                                        .m_size = -1,
                                        .m_methods = module_methods};

PyMODINIT_FUNC PyInit__engine(void);
PyMODINIT_FUNC PyInit__engine(void) {
    PyMethodDef *tables[] = {asked_methods, buffers_methods, transfers_methods};
    size_t count = 0;
    for (size_t i = 0; i < 3; i++) {
        for (const PyMethodDef *method = tables[i]; method->ml_name != NULL; method++)
            all_methods[count++] = *method;
    }
    PyObject *module = PyModule_Create(&definition);
    mooncakepy.inner = (PyTypeObject *)PyType_FromSpec(&inner_spec);
    mooncakepy.engine = (PyTypeObject *)PyType_FromSpec(&engine_spec);
    if (module == NULL || mooncakepy.inner == NULL || mooncakepy.engine == NULL ||
        PyModule_AddObjectRef(module, "InnerTransferEngine", (PyObject *)mooncakepy.inner) != 0 ||
        PyModule_AddObjectRef(module, "TransferEngine", (PyObject *)mooncakepy.engine) != 0)
        Py_CLEAR(module);
    return module;
}
