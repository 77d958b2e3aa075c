/* SPDX-License-Identifier: Apache-2.0 */
/* outgoing.c: Peer.send and send_many: what is given as the data of a message, as parts.
 *
 * A part is registered memory, or loose: any other buffer, which is held during the call. A message
 * with a loose part that is longer than the library copies goes by a loan, into which all of it is
 * copied. */
#include "weirpy.h"

#include <string.h>

#define PARTS_FEW 4

struct parts {
    weir_part *list;
    Py_buffer *views; /* of the loose ones; obj NULL: none */
    size_t count, room;
    uint64_t bytes;
    bool has_loose;
    struct segments kept;
    weir_part few[PARTS_FEW];
    Py_buffer few_views[PARTS_FEW];
};

static void parts_init(struct parts *parts) {
    parts->list = parts->few;
    parts->views = parts->few_views;
    parts->count = 0;
    parts->room = PARTS_FEW;
    parts->bytes = 0;
    parts->has_loose = false;
    segments_init(&parts->kept);
}

static void parts_fini(struct parts *parts) {
    for (size_t i = 0; i < parts->count; i++)
        if (parts->views[i].obj != NULL)
            PyBuffer_Release(&parts->views[i]);
    if (parts->list != parts->few) {
        free(parts->list);
        free(parts->views);
    }
    segments_fini(&parts->kept);
}

static bool parts_reserve(struct parts *parts, size_t count) {
    if (count <= parts->room)
        return true;
    parts->list = malloc(count * sizeof(*parts->list));
    parts->views = malloc(count * sizeof(*parts->views));
    parts->room = count;
    if (parts->list != NULL && parts->views != NULL)
        return true;
    PyErr_NoMemory();
    return false;
}

static bool add_part(struct parts *parts, EngineObject *engine, PyObject *data) {
    weir_part *part = &parts->list[parts->count];
    Py_buffer *view = &parts->views[parts->count];
    memset(part, 0, sizeof(*part));
    view->obj = NULL;
    if (Py_TYPE(data) == weirpy.memory || Py_TYPE(data) == weirpy.memory_slice) {
        MemoryObject *memory;
        if (!local_place(engine, data, &memory, &part->offset, &part->length) ||
            !segments_keep(&parts->kept, (PyObject *)memory))
            return false;
        part->local = memory->handle;
    } else {
        if (PyObject_GetBuffer(data, view, PyBUF_ANY_CONTIGUOUS) != 0)
            return false;
        part->base = view->buf;
        part->length = (uint64_t)view->len;
        parts->has_loose = true;
    }
    parts->bytes += part->length;
    parts->count++;
    return true;
}

static bool parts_from(struct parts *parts, EngineObject *engine, PyObject *data) {
    if (!PyList_Check(data) && !PyTuple_Check(data))
        return add_part(parts, engine, data);
    PyObject *items = PySequence_Tuple(data);
    bool good = items != NULL && parts_reserve(parts, (size_t)PyTuple_Size(items));
    for (Py_ssize_t i = 0; good && i < PyTuple_Size(items); i++)
        good = add_part(parts, engine, PyTuple_GetItem(items, i));
    Py_XDECREF(items);
    return good;
}

/* Loose parts that lie in a memory of the engine are registered after all. False: MemoryError. */
static bool find_memories(struct parts *parts, EngineObject *engine) {
    parts->has_loose = false;
    for (size_t i = 0; i < parts->count; i++) {
        weir_part *part = &parts->list[i];
        if (part->local.id != 0 || part->length == 0)
            continue;
        MemoryObject *memory = memory_around(engine, part->base, part->length);
        if (memory == NULL) {
            parts->has_loose = true;
            continue;
        }
        if (!segments_keep(&parts->kept, (PyObject *)memory))
            return false;
        part->local = memory->handle;
        part->offset = (uint64_t)((const unsigned char *)part->base - memory->base);
    }
    return true;
}

/* ---- by a loan ------------------------------------------------------------------- */

static MemoryObject *kept_memory(const struct parts *parts, size_t i) {
    return (MemoryObject *)parts->kept.kept[i];
}

static const unsigned char *place_of(const struct parts *parts, const weir_part *part) {
    size_t i = 0;
    if (part->local.id == 0)
        return part->base;
    while (kept_memory(parts, i)->handle.id != part->local.id)
        i++;
    return kept_memory(parts, i)->base + part->offset;
}

/* The parts' bytes, one behind the other, of memory that is pinned. */
static void gather(const struct parts *parts, unsigned char *to) {
    for (size_t i = 0; i < parts->count; i++) {
        const weir_part *part = &parts->list[i];
        if (part->length == 0)
            continue;
        memcpy(to, place_of(parts, part), part->length);
        to += part->length;
    }
}

/* While they are copied without the GIL no thread releases them. ESTALE: one has, since the call
 * began. */
static int pin(const struct parts *parts) {
    for (size_t i = 0; i < parts->kept.kept_count; i++)
        if (kept_memory(parts, i)->state != MEMORY_OPEN)
            return WEIR_ESTALE;
    for (size_t i = 0; i < parts->kept.kept_count; i++)
        kept_memory(parts, i)->exports++;
    return WEIR_OK;
}

static void unpin(const struct parts *parts) {
    for (size_t i = 0; i < parts->kept.kept_count; i++)
        kept_memory(parts, i)->exports--;
}

static bool is_mapped(const struct parts *parts) {
    for (size_t i = 0; i < parts->kept.kept_count; i++)
        if (kept_memory(parts, i)->kind == MEMORY_DEVICE) {
            PyErr_SetString(PyExc_BufferError,
                            "the memory of a GPU does not go with other memory in one message");
            return false;
        }
    return true;
}

/* 0, an error, or 1: an exception was raised. */
static int send_loan(PeerObject *peer, uint32_t inbox, const struct parts *parts,
                     const struct submit *with, weir_transfer *handle_out) {
    weir_loan loan;
    weir_engine *engine = peer->engine->engine;
    if (!is_mapped(parts))
        return 1;
    int rc = pin(parts);
    if (rc != WEIR_OK)
        return rc;
    PyThreadState *state = engine_leave_gil(peer->engine);
    rc = weir_message_loan(engine, peer->handle, inbox, parts->bytes, &loan);
    if (rc == WEIR_OK) {
        gather(parts, loan.data);
        rc = weir_loan_send(engine, &loan, &with->options, handle_out);
        if (rc != WEIR_OK)
            weir_loan_return(engine, &loan);
    }
    engine_take_gil(peer->engine, state);
    unpin(parts);
    return rc;
}

/* ---- one -------------------------------------------------------------------------- */

/* 0, an error, or 1: an exception was raised. */
static int send_once(PeerObject *peer, uint32_t inbox, struct parts *parts,
                     const struct submit *with, weir_transfer *handle_out) {
    EngineObject *owner = peer->engine;
    weir_engine *engine = peer_use(peer);
    if (engine == NULL)
        return 1;
    if (parts->has_loose && parts->bytes > WEIR_MESSAGE_COPY_MAX)
        return send_loan(peer, inbox, parts, with, handle_out);
    if (submit_is_short(owner, parts->bytes, parts->count))
        return weir_message_send(engine, peer->handle, inbox, parts->list, parts->count,
                                 &with->options, handle_out);
    PyThreadState *state = engine_leave_gil(owner);
    int rc = weir_message_send(engine, peer->handle, inbox, parts->list, parts->count,
                               &with->options, handle_out);
    engine_take_gil(owner, state);
    transfers_reap(owner, 4);
    return rc;
}

static PyObject *send_parts(PeerObject *peer, uint32_t inbox, struct parts *parts,
                            struct submit *with) {
    struct waiting waiting;
    weir_transfer handle;
    char name[WEIR_ADDRESS_MAX];
    unsigned tries = 0;
    int rc, again;
    do {
        rc = send_once(peer, inbox, parts, with, &handle);
        if (rc == WEIR_OK) {
            parts->kept.bytes = parts->bytes;
            return transfer_new(peer->engine, (PyObject *)peer, handle, &parts->kept, "message");
        }
        again = rc == WEIR_EAGAIN ? submit_again(peer->engine, with, &waiting, &tries) : 0;
    } while (again > 0);
    if (rc == 1 || again < 0)
        return NULL;
    return raise_code(rc, "message of %llu bytes to inbox %lu of %s",
                      (unsigned long long)parts->bytes, (unsigned long)inbox,
                      peer_name(peer, name, sizeof(name)));
}

PyObject *peer_send(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    PeerObject *peer = (PeerObject *)self;
    struct submit with;
    struct parts parts;
    uint32_t inbox;
    PyObject *transfer = NULL;
    if (count != 2)
        return PyErr_Format(PyExc_TypeError,
                            "send takes an inbox's number and data: %zd were given", count);
    if (peer_use(peer) == NULL || !number_u32(args[0], "inbox", &inbox) ||
        !submit_begin(&with, SUBMIT_MESSAGE, args + count, names))
        return NULL;
    parts_init(&parts);
    if (parts_from(&parts, peer->engine, args[1]) &&
        (parts.bytes <= WEIR_MESSAGE_COPY_MAX || !parts.has_loose ||
         find_memories(&parts, peer->engine)))
        transfer = send_parts(peer, inbox, &parts, &with);
    parts_fini(&parts);
    submit_end(&with);
    return transfer;
}

/* ---- many -------------------------------------------------------------------------- */

struct batch {
    struct parts *parts;
    weir_outgoing *messages;
    weir_transfer *handles;
    size_t count, begun;
};

static bool batch_init(struct batch *batch, size_t count) {
    memset(batch, 0, sizeof(*batch));
    if (count == 0) {
        PyErr_SetString(PyExc_ValueError, "there is no message to send");
        return false;
    }
    batch->parts = calloc(count, sizeof(*batch->parts));
    batch->messages = calloc(count, sizeof(*batch->messages));
    batch->handles = calloc(count, sizeof(*batch->handles));
    batch->count = count;
    if (batch->parts != NULL && batch->messages != NULL && batch->handles != NULL)
        return true;
    PyErr_NoMemory();
    return false;
}

static void batch_fini(struct batch *batch) {
    for (size_t i = 0; i < batch->begun; i++)
        parts_fini(&batch->parts[i]);
    free(batch->parts);
    free(batch->messages);
    free(batch->handles);
}

/* Data, or (data, tag). */
static bool batch_add(struct batch *batch, EngineObject *engine, PyObject *item) {
    size_t i = batch->begun++;
    struct parts *parts = &batch->parts[i];
    PyObject *data = item;
    parts_init(parts);
    if (PyTuple_Check(item) && PyTuple_Size(item) == 2 && PyLong_Check(PyTuple_GetItem(item, 1))) {
        data = PyTuple_GetItem(item, 0);
        if (!number_u64(PyTuple_GetItem(item, 1), "tag", &batch->messages[i].tag))
            return false;
    }
    if (!parts_from(parts, engine, data) ||
        (parts->bytes > WEIR_MESSAGE_COPY_MAX && !find_memories(parts, engine)))
        return false;
    batch->messages[i].parts = parts->count == 0 ? NULL : parts->list;
    batch->messages[i].part_count = parts->count;
    return true;
}

static PyObject *transfers_of(struct batch *batch, PeerObject *peer, size_t sent) {
    PyObject *list = PyList_New((Py_ssize_t)sent);
    for (size_t i = 0; i < sent; i++) {
        struct segments *kept = &batch->parts[i].kept;
        kept->bytes = batch->parts[i].bytes;
        PyObject *transfer =
            transfer_new(peer->engine, (PyObject *)peer, batch->handles[i], kept, "message");
        if (transfer == NULL)
            Py_CLEAR(list); /* the others are made, and go on unobserved */
        else if (list == NULL || PyList_SetItem(list, (Py_ssize_t)i, transfer) != 0)
            Py_XDECREF(list == NULL ? transfer : NULL);
    }
    return list;
}

static PyObject *send_batch(PeerObject *peer, uint32_t inbox, struct batch *batch,
                            struct submit *with) {
    EngineObject *owner = peer->engine;
    struct waiting waiting;
    char name[WEIR_ADDRESS_MAX];
    unsigned tries = 0;
    int rc, again;
    do {
        size_t sent = 0;
        weir_engine *engine = peer_use(peer);
        if (engine == NULL)
            return NULL;
        PyThreadState *state = engine_leave_gil(owner);
        rc = weir_message_send_many(engine, peer->handle, inbox, batch->messages, batch->count,
                                    &with->options, batch->handles, &sent);
        engine_take_gil(owner, state);
        transfers_reap(owner, 16);
        if (rc == WEIR_OK)
            return transfers_of(batch, peer, sent);
        again = rc == WEIR_EAGAIN ? submit_again(owner, with, &waiting, &tries) : 0;
    } while (again > 0);
    return again < 0 ? NULL
                     : raise_code(rc, "%zu messages to inbox %lu of %s", batch->count,
                                  (unsigned long)inbox, peer_name(peer, name, sizeof(name)));
}

PyObject *peer_send_many(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    PeerObject *peer = (PeerObject *)self;
    struct submit with;
    struct batch batch;
    uint32_t inbox;
    PyObject *transfers = NULL;
    if (count != 2)
        return PyErr_Format(PyExc_TypeError,
                            "send_many takes an inbox's number and messages: %zd were given",
                            count);
    if (peer_use(peer) == NULL || !number_u32(args[0], "inbox", &inbox) ||
        !submit_begin(&with, SUBMIT_MESSAGE, args + count, names))
        return NULL;
    PyObject *items = PySequence_Tuple(args[1]);
    if (items != NULL) {
        bool good = batch_init(&batch, (size_t)PyTuple_Size(items));
        for (Py_ssize_t i = 0; good && i < PyTuple_Size(items); i++)
            good = batch_add(&batch, peer->engine, PyTuple_GetItem(items, i));
        if (good)
            transfers = send_batch(peer, inbox, &batch, &with);
        batch_fini(&batch);
        Py_DECREF(items);
    }
    submit_end(&with);
    return transfers;
}
