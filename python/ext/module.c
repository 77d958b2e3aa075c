/* SPDX-License-Identifier: Apache-2.0 */
/* module.c: the extension module weir._weir: its types, the functions that need no engine, and
 * what the Python part hands over (_set_hooks). */
#include "weirpy.h"

#include <pthread.h>

struct weirpy weirpy;

static void forked(void) {
    weirpy.forks++;
}

PyDoc_STRVAR(devices_doc,
             "devices()\n--\n\n"
             "The devices that the library was built with, a list of DeviceInfo. Probes\n"
             "each of them, without the GIL.");
static PyObject *devices(PyObject *module, PyObject *ignored) {
    (void)module;
    (void)ignored;
    PyObject *list = PyList_New(0);
    for (size_t i = 0; list != NULL; i++) {
        weir_device_info info = WEIR_DEVICE_INFO_INIT;
        int rc;
        Py_BEGIN_ALLOW_THREADS rc = weir_device_query(i, &info);
        Py_END_ALLOW_THREADS if (rc != WEIR_OK) break;
        PyObject *device = record_device_info(&info);
        if (device == NULL || PyList_Append(list, device) != 0)
            Py_CLEAR(list);
        Py_XDECREF(device);
    }
    return list;
}

PyDoc_STRVAR(
    settings_doc,
    "settings(**options)\n--\n\n"
    "What Engine(**options) would be set to, a list of Setting: each number, where it comes\n"
    "from, its range, and why an engine would not open. Not while another thread changes\n"
    "the environment.");
static PyObject *settings(PyObject *module, PyObject *args, PyObject *keywords) {
    (void)module;
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    if (PyTuple_Size(args) > 0) {
        PyErr_SetString(PyExc_TypeError, "settings takes the options of Engine, by keyword");
        return NULL;
    }
    if (!options_from_keywords(keywords, &options))
        return NULL;
    PyObject *list = PyList_New(0);
    weir_setting_info info = WEIR_SETTING_INFO_INIT;
    for (size_t i = 0, device = 0; list != NULL;) {
        bool is_engine = weir_setting_query(&options, i, &info) == WEIR_OK;
        if (!is_engine && weir_device_setting_query(device++, &info) != WEIR_OK)
            break;
        i += is_engine;
        PyObject *setting = record_setting(&info);
        if (setting == NULL || PyList_Append(list, setting) != 0)
            Py_CLEAR(list);
        Py_XDECREF(setting);
    }
    return list;
}

PyDoc_STRVAR(
    choose_device_doc,
    "choose_device(**options)\n--\n\n"
    "The device that Engine(**options) would take, a DeviceInfo: the NIC that they name, or the\n"
    "first that can be used, with 'auto', and what an engine with these limits takes. Probes it,\n"
    "without the GIL. Raises TypeError, NoDeviceError.");
static PyObject *choose_device(PyObject *module, PyObject *args, PyObject *keywords) {
    (void)module;
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    weir_device_info info = WEIR_DEVICE_INFO_INIT;
    if (PyTuple_Size(args) > 0) {
        PyErr_SetString(PyExc_TypeError, "choose_device takes the options of Engine, by keyword");
        return NULL;
    }
    if (!options_from_keywords(keywords, &options))
        return NULL;
    int rc;
    Py_BEGIN_ALLOW_THREADS rc = weir_device_choose(&options, &info);
    Py_END_ALLOW_THREADS return rc == WEIR_OK
        ? record_device_info(&info)
        : raise_code(rc, "choose a device: %s", options.device != NULL ? options.device : "");
}

PyDoc_STRVAR(name_hash_doc, "name_hash(name, /)\n--\n\n"
                            "A name as events of the library tell it, an int.");

PyDoc_STRVAR(strays_doc,
             "strays()\n--\n\n"
             "Variables of the environment whose names begin with WEIR_ and that the library does\n"
             "not read, misspelled perhaps, a list of Stray.");
static PyObject *strays(PyObject *module, PyObject *ignored) {
    (void)module;
    (void)ignored;
    PyObject *list = PyList_New(0);
    weir_stray_info info = WEIR_STRAY_INFO_INIT;
    for (size_t i = 0; list != NULL && weir_stray_query(i, &info) == WEIR_OK; i++) {
        PyObject *stray = record_stray(&info);
        if (stray == NULL || PyList_Append(list, stray) != 0)
            Py_CLEAR(list);
        Py_XDECREF(stray);
    }
    return list;
}

PyDoc_STRVAR(process_trace_doc,
             "process_trace(pid, index=0, json=False)\n--\n\n"
             "The trace of another process's index-th engine, which is not disturbed, as\n"
             "Engine.trace(). Takes the right to look at its descriptors: the same user, or root.\n"
             "Raises PeerError (no such process), StaleError (no more engines), DeniedError,\n"
             "NotReadyError, NotSupportedError (another version).");
static PyObject *process_trace(PyObject *module, PyObject *args, PyObject *keywords) {
    static char *names[] = {"pid", "index", "json", NULL};
    long long pid;
    Py_ssize_t index = 0;
    int json = 0, rc;
    size_t room = 0, length = 0;
    (void)module;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "L|np:process_trace", names, &pid, &index,
                                     &json))
        return NULL;
    if (index < 0) {
        PyErr_SetString(PyExc_ValueError, "index is 0 or more");
        return NULL;
    }
    uint32_t format = json ? WEIR_TRACE_JSON : WEIR_TRACE_TEXT;
    char *text = NULL;
    Py_BEGIN_ALLOW_THREADS rc = weir_process_trace(pid, (size_t)index, format, NULL, 0, &room);
    if (rc == WEIR_OK && (text = malloc(room)) == NULL)
        rc = WEIR_ENOMEM;
    if (rc == WEIR_OK)
        rc = weir_process_trace(pid, (size_t)index, format, text, room, &length);
    Py_END_ALLOW_THREADS PyObject *result =
        rc == WEIR_OK ? PyUnicode_DecodeUTF8(text, (Py_ssize_t)length, "replace")
                      : raise_code(rc, "trace of engine %zd of the process %lld", index, pid);
    free(text);
    return result;
}

/* Of the Python part: the exceptions by code, and an object whose methods are called. */
static PyObject *set_hooks(PyObject *module, PyObject *args) {
    PyObject *classes, *hooks, *deque;
    (void)module;
    if (!PyArg_ParseTuple(args, "O!OO:_set_hooks", &PyDict_Type, &classes, &hooks, &deque))
        return NULL;
    int64_t interpreter = PyInterpreterState_GetID(PyInterpreterState_Get());
    if (weirpy.hooks != NULL && weirpy.interpreter != interpreter) {
        PyErr_SetString(PyExc_ImportError, "weir is for one interpreter of a process, and another "
                                           "one has imported it");
        return NULL;
    }
    weirpy.interpreter = interpreter;
    Py_XDECREF(weirpy.error_classes);
    Py_XDECREF(weirpy.hooks);
    Py_XDECREF(weirpy.deque);
    weirpy.error_classes = Py_NewRef(classes);
    weirpy.hooks = Py_NewRef(hooks);
    weirpy.deque = Py_NewRef(deque);
    Py_RETURN_NONE;
}

static bool types_ready(PyObject *module) {
    static const struct {
        PyTypeObject **type;
        PyTypeObject *(*make)(PyObject *);
        const char *name;
    } types[] = {
        {&weirpy.engine, engine_type, "Engine"},
        {&weirpy.memory, memory_type, "Memory"},
        {&weirpy.memory_slice, memory_slice_type, "MemorySlice"},
        {&weirpy.remote, remote_type, "Remote"},
        {&weirpy.remote_slice, remote_slice_type, "RemoteSlice"},
        {&weirpy.peer, peer_type, "Peer"},
        {&weirpy.transfer, transfer_type, "Transfer"},
        {&weirpy.inbox, inbox_type, "Inbox"},
        {&weirpy.message, message_type, "Message"},
        {&weirpy.loan, loan_type, "Loan"},
        {&weirpy.export_, export_type, "Export"},
    };
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        *types[i].type = types[i].make(module);
        if (*types[i].type == NULL ||
            PyModule_AddObjectRef(module, types[i].name, (PyObject *)*types[i].type) != 0)
            return false;
    }
    return true;
}

static bool constants_ready(PyObject *module) {
    static const struct {
        const char *name;
        long value;
    } limits[] = {
        {"ADDRESS_MAX", WEIR_ADDRESS_MAX}, {"DESCRIPTOR_MAX", WEIR_DESCRIPTOR_MAX},
        {"NOTIFY_MAX", WEIR_NOTIFY_MAX},   {"MESSAGE_COPY_MAX", WEIR_MESSAGE_COPY_MAX},
        {"INBOXES_MAX", WEIR_INBOXES_MAX}, {"LOANS_MAX", WEIR_LOANS_MAX},
        {"QPS_MAX", WEIR_QPS_MAX},         {"NAME_MAX", WEIR_NAME_MAX},
        {"VALUE_MAX", WEIR_VALUE_MAX},
    };
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
        if (PyModule_AddIntConstant(module, limits[i].name, limits[i].value) != 0)
            return false;
    return PyModule_AddStringConstant(module, "__version__", weir_version()) == 0;
}

static PyMethodDef functions[] = {
    {"devices", devices, METH_NOARGS, devices_doc},
    {"settings", (PyCFunction)(void (*)(void))settings, METH_VARARGS | METH_KEYWORDS, settings_doc},
    {"strays", strays, METH_NOARGS, strays_doc},
    {"process_trace", (PyCFunction)(void (*)(void))process_trace, METH_VARARGS | METH_KEYWORDS,
     process_trace_doc},
    {"name_hash", name_hash, METH_O, name_hash_doc},
    {"choose_device", (PyCFunction)(void (*)(void))choose_device, METH_VARARGS | METH_KEYWORDS,
     choose_device_doc},
    {"_set_hooks", set_hooks, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "weir._weir",
    .m_doc = "The part of weir that is in C; import weir.",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC PyInit__weir(void);
PyMODINIT_FUNC PyInit__weir(void) {
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL)
        return NULL;
    if (!types_ready(module) || !records_ready(module) || !errors_ready(module) ||
        !constants_ready(module) || !transfer_make_done()) {
        Py_DECREF(module);
        return NULL;
    }
    pthread_atfork(NULL, NULL, forked);
    return module;
}
