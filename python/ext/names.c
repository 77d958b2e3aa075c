/* SPDX-License-Identifier: Apache-2.0 */
/* names.c: what is published here under names, and what peers have published: the methods of
 * Engine, Memory and Peer about names.
 *
 * The engine keeps the memories that it has published, each by the name that it has last, until the
 * name is of something else, the memory is released, or the engine is closed: what has a name does
 * not go because the program dropped it. One publisher at a time changes a name and that table, so
 * that both say the same.
 *
 * Names are text here, and bytes there. Bytes that are no UTF-8 come as surrogate escapes, and go
 * back as the same bytes. */
#include "weirpy.h"

#include <string.h>

/* Names that were asked for and are remembered by their hash, for events. */
#define ASKED_MOST 65536

/* ---- text ------------------------------------------------------------------- */

/* A name as the library has it. False: TypeError, or InvalidError, which is a ValueError. */
static bool name_from(PyObject *name, char text[WEIR_NAME_MAX]) {
    if (!PyUnicode_Check(name)) {
        PyErr_Format(PyExc_TypeError, "a name is a str, not %R", Py_TYPE(name));
        return false;
    }
    PyObject *bytes = PyUnicode_AsEncodedString(name, "utf-8", "surrogateescape");
    if (bytes == NULL)
        return false;
    Py_ssize_t length = PyBytes_Size(bytes);
    const char *from = PyBytes_AsString(bytes);
    bool good = length > 0 && length < WEIR_NAME_MAX && strlen(from) == (size_t)length;
    if (good)
        memcpy(text, from, (size_t)length + 1);
    Py_DECREF(bytes);
    if (good)
        return true;
    if (length > 0 && length < WEIR_NAME_MAX)
        raise_code(WEIR_EINVAL, "the name %R has a null character", name);
    else
        raise_code(WEIR_EINVAL, "a name has 1 to %d bytes in UTF-8, not %zd", WEIR_NAME_MAX - 1,
                   length);
    return false;
}

PyObject *name_object(const char *text, size_t length) {
    return PyUnicode_DecodeUTF8(text, (Py_ssize_t)length, "surrogateescape");
}

PyObject *name_hash(PyObject *module, PyObject *name) {
    char text[WEIR_NAME_MAX];
    (void)module;
    return name_from(name, text) ? PyLong_FromUnsignedLongLong(weir_name_hash(text)) : NULL;
}

/* ---- names that were asked for ------------------------------------------------ */

/* The oldest goes when there are too many. */
static bool remember(EngineObject *engine, PyObject *name, const char *text) {
    PyObject *oldest, *ignored;
    Py_ssize_t at = 0;
    if (engine->asked == NULL && (engine->asked = PyDict_New()) == NULL)
        return false;
    PyObject *hash = PyLong_FromUnsignedLongLong(weir_name_hash(text));
    bool good = hash != NULL && PyDict_SetItem(engine->asked, hash, name) == 0;
    Py_XDECREF(hash);
    if (good && PyDict_Size(engine->asked) > ASKED_MOST &&
        PyDict_Next(engine->asked, &at, &oldest, &ignored)) {
        Py_INCREF(oldest);
        good = PyDict_DelItem(engine->asked, oldest) == 0;
        Py_DECREF(oldest);
    }
    return good;
}

PyObject *name_of_hash(EngineObject *engine, uint64_t hash) {
    PyObject *key = PyLong_FromUnsignedLongLong(hash);
    if (key == NULL || engine->asked == NULL)
        return key;
    PyObject *name = PyDict_GetItemWithError(engine->asked, key);
    if (name == NULL && PyErr_Occurred()) {
        Py_DECREF(key);
        return NULL;
    }
    if (name == NULL)
        return key;
    Py_DECREF(key);
    return Py_NewRef(name);
}

/* ---- publishing ---------------------------------------------------------------- */

/* One at a time. NULL: an exception. */
static weir_engine *begin_publish(EngineObject *self) {
    while (self->publishing) {
        if (engine_use(self) == NULL || PyErr_CheckSignals() != 0)
            return NULL;
        self->users++; /* it is not closed under the wait */
        sleep_without_gil(20000);
        self->users--;
    }
    weir_engine *engine = engine_use(self);
    self->publishing = engine != NULL;
    return engine;
}

/* The name is of this now: a memory to keep, or NULL. */
static bool keep(EngineObject *self, PyObject *name, PyObject *memory) {
    if (self->published == NULL && (self->published = PyDict_New()) == NULL)
        return false;
    if (memory != NULL)
        return PyDict_SetItem(self->published, name, memory) == 0;
    if (PyDict_Contains(self->published, name) == 1)
        return PyDict_DelItem(self->published, name) == 0;
    return !PyErr_Occurred();
}

void names_forget(EngineObject *engine, PyObject *memory) {
    PyObject *name, *kept, *gone;
    Py_ssize_t at = 0;
    if (engine->published == NULL || (gone = PyList_New(0)) == NULL)
        return PyErr_Clear();
    while (PyDict_Next(engine->published, &at, &name, &kept))
        if (kept == memory && PyList_Append(gone, name) != 0)
            PyErr_Clear();
    for (Py_ssize_t i = 0; i < PyList_Size(gone); i++)
        if (PyDict_DelItem(engine->published, PyList_GetItem(gone, i)) != 0)
            PyErr_Clear();
    Py_DECREF(gone);
}

static PyObject *publish_memory(MemoryObject *memory, PyObject *name) {
    EngineObject *self = memory->engine;
    char text[WEIR_NAME_MAX];
    if (engine_use(self) == NULL || !name_from(name, text) || !memory_check(memory, self))
        return NULL;
    weir_engine *engine = begin_publish(self);
    if (engine == NULL)
        return NULL;
    PyThreadState *state = engine_leave_gil(self);
    int rc = weir_memory_publish(engine, memory->handle, text);
    engine_take_gil(self, state);
    memory->named |= rc == WEIR_OK;
    bool good =
        rc != WEIR_OK || memory->state == MEMORY_RELEASED || keep(self, name, (PyObject *)memory);
    self->publishing = false;
    if (rc != WEIR_OK)
        return raise_code(rc, "publish memory of %llu bytes as %R",
                          (unsigned long long)memory->length, name);
    return good ? Py_NewRef(Py_None) : NULL;
}

PyObject *memory_publish(PyObject *self, PyObject *name) {
    return publish_memory((MemoryObject *)self, name);
}

PyObject *engine_publish(EngineObject *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"name", "memory", NULL};
    PyObject *name, *memory;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO:publish", names, &name, &memory))
        return NULL;
    if (Py_TYPE(memory) != weirpy.memory)
        return PyErr_Format(PyExc_TypeError,
                            "what is published is a weir.Memory, not %R; publish_value() takes "
                            "bytes",
                            Py_TYPE(memory));
    if (engine_use(self) == NULL || !memory_check((MemoryObject *)memory, self))
        return NULL;
    return publish_memory((MemoryObject *)memory, name);
}

PyObject *engine_publish_value(EngineObject *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"name", "value", NULL};
    PyObject *name, *value;
    Py_buffer view;
    char text[WEIR_NAME_MAX];
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO:publish_value", names, &name, &value) ||
        !name_from(name, text) || PyObject_GetBuffer(value, &view, PyBUF_SIMPLE) != 0)
        return NULL;
    weir_engine *engine = begin_publish(self);
    if (engine == NULL) {
        PyBuffer_Release(&view);
        return NULL;
    }
    PyThreadState *state = engine_leave_gil(self);
    int rc = weir_value_publish(engine, text, view.buf, (size_t)view.len);
    engine_take_gil(self, state);
    bool good = rc != WEIR_OK || keep(self, name, NULL);
    self->publishing = false;
    Py_ssize_t length = view.len;
    PyBuffer_Release(&view);
    if (rc != WEIR_OK)
        return raise_code(rc, "publish a value of %zd bytes as %R", length, name);
    return good ? Py_NewRef(Py_None) : NULL;
}

PyObject *engine_withdraw(EngineObject *self, PyObject *name) {
    char text[WEIR_NAME_MAX];
    if (engine_use(self) == NULL || !name_from(name, text))
        return NULL;
    weir_engine *engine = begin_publish(self);
    if (engine == NULL)
        return NULL;
    PyThreadState *state = engine_leave_gil(self);
    int rc = weir_name_withdraw(engine, text);
    engine_take_gil(self, state);
    bool good = keep(self, name, NULL);
    self->publishing = false;
    if (rc == WEIR_ESTALE)
        return raise_code(rc, "withdraw %R: nothing is published under this name", name);
    if (rc != WEIR_OK)
        return raise_code(rc, "withdraw %R", name);
    return good ? Py_NewRef(Py_None) : NULL;
}

/* ---- asking -------------------------------------------------------------------- */

/* A question to a peer, and its answer. */
enum query_kind { QUERY_REMOTE = 'r', QUERY_VALUE = 'v', QUERY_LIST = 'l' };
struct query {
    enum query_kind kind;
    PeerObject *peer;
    PyObject *name; /* borrowed; NULL of a list */
    char text[WEIR_NAME_MAX];
    uint64_t position;
    weir_remote remote;
    uint64_t length;
    uint32_t access;
    char value[WEIR_VALUE_MAX];
    size_t value_length;
    weir_name_info info;
};

static bool query_begin(struct query *query, enum query_kind kind, PeerObject *peer,
                        PyObject *name) {
    query->kind = kind;
    query->peer = peer;
    query->name = name;
    query->position = 0;
    query->info = (weir_name_info)WEIR_NAME_INFO_INIT;
    if (peer_use(peer) == NULL)
        return false;
    return name == NULL ||
           (name_from(name, query->text) && remember(peer->engine, name, query->text));
}

/* Asks, without the GIL, and waits for so long. */
static int query_ask(struct query *query, weir_engine *engine, uint64_t timeout_ns) {
    EngineObject *owner = query->peer->engine;
    weir_peer peer = query->peer->handle;
    int rc;
    PyThreadState *state = engine_leave_gil(owner);
    switch (query->kind) {
    case QUERY_REMOTE:
        rc = weir_remote_open(engine, peer, query->text, timeout_ns, &query->remote);
        if (rc == WEIR_OK)
            weir_remote_query(engine, query->remote, &query->length, &query->access);
        break;
    case QUERY_VALUE:
        query->value_length = sizeof(query->value);
        rc = weir_peer_value(engine, peer, query->text, timeout_ns, query->value,
                             &query->value_length);
        break;
    case QUERY_LIST:
    default:
        rc = weir_peer_name(engine, peer, &query->position, timeout_ns, &query->info);
        break;
    }
    engine_take_gil(owner, state);
    return rc;
}

/* The answer as an object. The end of a list is Py_Ellipsis. */
static PyObject *query_answer(struct query *query) {
    switch (query->kind) {
    case QUERY_REMOTE:
        return remote_new(query->peer, query->remote, query->length, query->access, query->name);
    case QUERY_VALUE:
        return PyBytes_FromStringAndSize(query->value, (Py_ssize_t)query->value_length);
    case QUERY_LIST:
    default:
        return record_name_info(&query->info);
    }
}

static bool query_is_connected(const struct query *query) {
    weir_peer_info info = WEIR_PEER_INFO_INIT;
    EngineObject *owner = query->peer->engine;
    if (!engine_is_usable(owner))
        return false;
    PyThreadState *state = engine_leave_gil(owner);
    int rc = weir_peer_query(owner->engine, query->peer->handle, &info);
    engine_take_gil(owner, state);
    return rc == WEIR_OK && info.connected != 0;
}

static PyObject *query_raise(const struct query *query, int rc) {
    char peer[WEIR_ADDRESS_MAX], why[WEIR_REFUSAL_TEXT_MAX] = "";
    const char *more = "";
    peer_name(query->peer, peer, sizeof(peer));
    bool is_connected = rc == WEIR_ENOTREADY && query_is_connected(query);
    if (rc == WEIR_EREFUSED || rc == WEIR_ECONNECT || rc == WEIR_ENOTSUP ||
        (rc == WEIR_ENOTREADY && !is_connected))
        peer_refusal_text(query->peer, why, sizeof(why));
    if (query->kind == QUERY_LIST)
        return raise_code(rc, "list the names of peer %s%s%s", peer, why[0] != '\0' ? ": " : "",
                          why);
    if (rc == WEIR_ENOTREADY)
        more = is_connected ? ": it is connected, and has published nothing under this name in "
                              "time, or makes no progress"
                            : ": it was not reached in time";
    else if (rc == WEIR_EACCESS)
        more = query->kind == QUERY_REMOTE ? ": it is the name of a value, for value()"
                                           : ": it is the name of a memory, for remote()";
    return raise_code(rc, "%s %R of peer %s%s%s%s",
                      query->kind == QUERY_REMOTE ? "open" : "ask for", query->name, peer, more,
                      why[0] != '\0' ? ": " : "", why);
}

/* Asks in slices until there is an answer, or the time is over. */
static PyObject *query_within(struct query *query, struct waiting *waiting) {
    EngineObject *owner = query->peer->engine;
    for (;;) {
        weir_engine *engine = peer_use(query->peer);
        if (engine == NULL || PyErr_CheckSignals() != 0)
            return NULL;
        int rc = query_ask(query, engine, waiting_slice(waiting));
        transfers_reap(owner, 16);
        memory_bury(owner, false);
        if (rc == WEIR_OK)
            return query_answer(query);
        if (rc == WEIR_EINVAL && query->kind == QUERY_LIST)
            return Py_NewRef(Py_Ellipsis);
        if (rc != WEIR_ENOTREADY || waiting_is_over(waiting))
            return query_raise(query, rc);
    }
}

PyObject *remote_open(PeerObject *peer, PyObject *name, PyObject *timeout) {
    struct query query;
    struct waiting waiting;
    uint64_t timeout_ns;
    if (!seconds_to_ns(timeout, &timeout_ns) || !query_begin(&query, QUERY_REMOTE, peer, name))
        return NULL;
    waiting_begin(&waiting, timeout_ns);
    return query_within(&query, &waiting);
}

PyObject *peer_value(PeerObject *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"name", "timeout", NULL};
    PyObject *name, *timeout = Py_None;
    struct query query;
    struct waiting waiting;
    uint64_t timeout_ns;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|O:value", names, &name, &timeout) ||
        !seconds_to_ns(timeout, &timeout_ns) || !query_begin(&query, QUERY_VALUE, self, name))
        return NULL;
    waiting_begin(&waiting, timeout_ns);
    return query_within(&query, &waiting);
}

PyObject *peer_names(PeerObject *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"timeout", NULL};
    PyObject *timeout = Py_None, *info;
    struct query query;
    struct waiting waiting;
    uint64_t timeout_ns;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|O:names", names, &timeout) ||
        !seconds_to_ns(timeout, &timeout_ns) || !query_begin(&query, QUERY_LIST, self, NULL))
        return NULL;
    waiting_begin(&waiting, timeout_ns);
    PyObject *list = PyList_New(0);
    while (list != NULL) {
        info = query_within(&query, &waiting);
        if (info == NULL || (info != Py_Ellipsis && PyList_Append(list, info) != 0))
            Py_CLEAR(list);
        Py_XDECREF(info);
        if (info == Py_Ellipsis)
            break;
    }
    return list;
}

/* _ask(kind, name or position): of an event loop: (answer, next position), or None: not yet. The
 * answer behind a list's last is Ellipsis. */
PyObject *peer_ask(PyObject *object, PyObject *const *args, Py_ssize_t count) {
    PeerObject *self = (PeerObject *)object;
    struct query query;
    if (count != 2)
        return PyErr_Format(PyExc_TypeError, "_ask takes a kind and a name or a position");
    enum query_kind kind = (enum query_kind)PyUnicode_ReadChar(args[0], 0);
    if (!query_begin(&query, kind, self, kind == QUERY_LIST ? NULL : args[1]) ||
        (kind == QUERY_LIST && !number_u64(args[1], "position", &query.position)))
        return NULL;
    int rc = query_ask(&query, self->engine->engine, 0);
    if (rc == WEIR_ENOTREADY)
        Py_RETURN_NONE;
    PyObject *answer = NULL;
    if (rc == WEIR_EINVAL && kind == QUERY_LIST)
        answer = Py_NewRef(Py_Ellipsis);
    else
        answer = rc == WEIR_OK ? query_answer(&query) : query_raise(&query, rc);
    return answer == NULL ? NULL : Py_BuildValue("(NK)", answer, query.position);
}

/* ---- for errors ------------------------------------------------------------------ */

/* Adds the name of a Remote that has one to the text, each once. */
static PyObject *add_name(PyObject *text, PyObject *object) {
    PyObject *name = Py_TYPE(object) == weirpy.remote ? ((RemoteObject *)object)->name : NULL;
    PyObject *more = NULL;
    if (name == NULL)
        return text;
    more = text == NULL ? PyUnicode_FromFormat("%R", name)
                        : PyUnicode_FromFormat("%U, %R", text, name);
    if (more == NULL) {
        PyErr_Clear();
        return text;
    }
    Py_XDECREF(text);
    return more;
}

PyObject *names_of_remotes(PyObject *const *kept, size_t count) {
    PyObject *text = NULL;
    for (size_t i = 0; i < count; i++) {
        if (!PyTuple_Check(kept[i])) {
            text = add_name(text, kept[i]);
            continue;
        }
        for (Py_ssize_t j = 0; j < PyTuple_Size(kept[i]); j++)
            text = add_name(text, PyTuple_GetItem(kept[i], j));
    }
    return text;
}
