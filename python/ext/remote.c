/* SPDX-License-Identifier: Apache-2.0 */
/* remote.c: the type Remote: a peer's memory, imported. It keeps its peer's handle open, without
 * which it is of no use, and is given back when nothing refers to it: a transfer under way does. */
#include "weirpy.h"

PyObject *remote_new(PeerObject *peer, weir_remote handle, uint64_t length, uint32_t access,
                     PyObject *name) {
    RemoteObject *self = PyObject_GC_New(RemoteObject, weirpy.remote);
    if (self == NULL) {
        if (engine_is_usable(peer->engine))
            weir_remote_release(peer->engine->engine, handle);
        return NULL;
    }
    self->peer = (PeerObject *)Py_NewRef((PyObject *)peer);
    self->handle = handle;
    self->length = length;
    self->access = access;
    self->released = false;
    self->name = Py_XNewRef(name);
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

PyObject *remote_import(PeerObject *peer, PyObject *args) {
    Py_buffer descriptor;
    weir_remote handle;
    weir_engine *engine = peer_use(peer);
    char name[WEIR_ADDRESS_MAX];
    uint64_t length = 0;
    uint32_t access = 0;
    if (engine == NULL || PyObject_GetBuffer(args, &descriptor, PyBUF_SIMPLE) != 0)
        return NULL;
    PyThreadState *state = engine_leave_gil(peer->engine);
    int rc =
        weir_memory_import(engine, peer->handle, descriptor.buf, (size_t)descriptor.len, &handle);
    if (rc == WEIR_OK)
        weir_remote_query(engine, handle, &length, &access);
    engine_take_gil(peer->engine, state);
    Py_ssize_t bytes = descriptor.len;
    PyBuffer_Release(&descriptor);
    if (rc == WEIR_EINVAL)
        return raise_code(rc,
                          "import memory of %s: %zd bytes that are no descriptor of this version "
                          "(a name is a str)",
                          peer_name(peer, name, sizeof(name)), bytes);
    if (rc == WEIR_ENOTSUP) {
        char why[WEIR_REFUSAL_TEXT_MAX] = "";
        peer_refusal_text(peer, why, sizeof(why));
        return raise_code(rc, "import memory of %s%s%s", peer_name(peer, name, sizeof(name)),
                          why[0] != '\0' ? ": " : "", why);
    }
    if (rc != WEIR_OK)
        return raise_code(rc, "import memory of %s", peer_name(peer, name, sizeof(name)));
    return remote_new(peer, handle, length, access, NULL);
}

PyDoc_STRVAR(release_doc,
             "release($self, /)\n--\n\n"
             "Gives the imported memory back. Releasing it again does nothing. It is released by\n"
             "itself when nothing refers to it. Raises BusyError while a transfer under way uses\n"
             "it.");
static PyObject *remote_release(RemoteObject *self, PyObject *ignored) {
    (void)ignored;
    EngineObject *owner = self->peer->engine;
    weir_engine *engine = engine_use(owner);
    if (engine == NULL)
        return NULL;
    if (self->released)
        Py_RETURN_NONE;
    transfers_reap(owner, SIZE_MAX);
    self->released = true;
    PyThreadState *state = engine_leave_gil(owner);
    int rc = weir_remote_release(engine, self->handle);
    engine_take_gil(owner, state);
    if (rc == WEIR_OK)
        Py_RETURN_NONE;
    self->released = false;
    return raise_code(rc, "release imported memory of %llu bytes",
                      (unsigned long long)self->length);
}

static void remote_dealloc(RemoteObject *self) {
    PyObject_GC_UnTrack(self);
    PeerObject *peer = self->peer;
    if (!self->released && engine_is_usable(peer->engine)) {
        PyThreadState *state = engine_leave_gil(peer->engine); /* it may unmap gigabytes */
        weir_remote_release(peer->engine->engine, self->handle);
        engine_take_gil(peer->engine, state);
    }
    PyObject *name = self->name;
    object_free(self);
    Py_XDECREF(name);
    Py_DECREF((PyObject *)peer);
}

static int remote_traverse(RemoteObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE((PyObject *)self));
    Py_VISIT(self->peer);
    return 0;
}

static Py_ssize_t remote_length(RemoteObject *self) {
    return (Py_ssize_t)self->length;
}

static PyObject *remote_subscript(RemoteObject *self, PyObject *key) {
    return span_new(weirpy.remote_slice, (PyObject *)self, 0, self->length, key);
}

static PyObject *remote_repr(RemoteObject *self) {
    char peer[WEIR_ADDRESS_MAX];
    const char *end = self->released ? ", released>" : ">";
    peer_name(self->peer, peer, sizeof(peer));
    if (self->name == NULL)
        return PyUnicode_FromFormat("<weir.Remote of %llu bytes of %s%s",
                                    (unsigned long long)self->length, peer, end);
    return PyUnicode_FromFormat("<weir.Remote %R of %llu bytes of %s%s", self->name,
                                (unsigned long long)self->length, peer, end);
}

static PyObject *remote_access(RemoteObject *self, void *closure) {
    (void)closure;
    return PyUnicode_FromFormat("%s%s", self->access & WEIR_ACCESS_REMOTE_READ ? "r" : "",
                                self->access & WEIR_ACCESS_REMOTE_WRITE ? "w" : "");
}

static PyObject *remote_peer(RemoteObject *self, void *closure) {
    (void)closure;
    return Py_NewRef((PyObject *)self->peer);
}

static PyObject *remote_name(RemoteObject *self, void *closure) {
    (void)closure;
    return Py_NewRef(self->name == NULL ? Py_None : self->name);
}

static PyObject *remote_released(RemoteObject *self, void *closure) {
    (void)closure;
    return PyBool_FromLong(self->released || !engine_is_usable(self->peer->engine));
}

static PyGetSetDef getset[] = {
    {"access", (getter)remote_access, NULL, "What the peer lets us do: 'r', 'w' or 'rw'.", NULL},
    {"peer", (getter)remote_peer, NULL, "The Peer whose memory it is.", NULL},
    {"name", (getter)remote_name, NULL, "By which it was opened, a str; None: by a descriptor.",
     NULL},
    {"released", (getter)remote_released, NULL, "True once it was released.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef methods[] = {
    {"release", (PyCFunction)remote_release, METH_NOARGS, release_doc},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(
    remote_doc,
    "A peer's memory, imported: what Peer.remote() makes of a name or a descriptor. remote[a:b]\n"
    "is a RemoteSlice, for transfers. len(remote): its bytes. When its peer dies, or the name is\n"
    "of something else, it is of no use any more (StaleError): open the name again, or import\n"
    "what the next incarnation exports.");

PyTypeObject *remote_type(PyObject *module) {
    static PyType_Slot slots[] = {
        {Py_tp_doc, (void *)remote_doc},
        {Py_tp_dealloc, remote_dealloc},
        {Py_tp_traverse, remote_traverse},
        {Py_tp_repr, remote_repr},
        {Py_tp_getset, getset},
        {Py_tp_methods, methods},
        {Py_mp_length, remote_length},
        {Py_mp_subscript, remote_subscript},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "weir.Remote",
        .basicsize = sizeof(RemoteObject),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
        .slots = slots,
    };
    return (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
}
