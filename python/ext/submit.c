/* SPDX-License-Identifier: Apache-2.0 */
/* submit.c: the options of a submit, from keywords; Peer.write, read and notify. */
#include "weirpy.h"

#include <string.h>

static bool number(PyObject *object, const char *what, int bits, uint64_t *number_out) {
    PyObject *index = PyLong_Check(object) ? Py_NewRef(object) : PyNumber_Index(object);
    if (index == NULL) {
        PyErr_Format(PyExc_TypeError, "%s is an int, not %R", what, Py_TYPE(object));
        return false;
    }
    *number_out = PyLong_AsUnsignedLongLong(index);
    bool good = *number_out != UINT64_MAX || !PyErr_Occurred();
    bool is_beyond = good ? *number_out > UINT64_MAX >> (64 - bits)
                          : PyErr_ExceptionMatches(PyExc_OverflowError);
    if (is_beyond)
        PyErr_Format(PyExc_OverflowError, "%s is 0 to 2**%d - 1, not %R", what, bits, object);
    Py_DECREF(index);
    return good && !is_beyond;
}

bool number_u64(PyObject *object, const char *what, uint64_t *number_out) {
    return number(object, what, 64, number_out);
}

bool number_u32(PyObject *object, const char *what, uint32_t *number_out) {
    uint64_t wide;
    bool good = number(object, what, 32, &wide);
    if (good)
        *number_out = (uint32_t)wide;
    return good;
}

/* ---- keywords ---------------------------------------------------------------------- */

static bool is_named(PyObject *name, const char *text) {
    return PyUnicode_CompareWithASCIIString(name, text) == 0;
}

static bool set_flag(struct submit *submit, PyObject *value, uint32_t flag) {
    int truth = PyObject_IsTrue(value);
    if (truth > 0)
        submit->options.flags |= flag;
    return truth >= 0;
}

/* True: no limit; a number: seconds. */
static bool set_block(struct submit *submit, PyObject *value) {
    if (PyBool_Check(value)) {
        submit->block_ns = value == Py_True ? UINT64_MAX : 0;
        return true;
    }
    return seconds_to_ns(value, &submit->block_ns);
}

static bool set_deadline(struct submit *submit, PyObject *value) {
    uint64_t ns;
    if (value == Py_None)
        return true;
    if (!seconds_to_ns(value, &ns))
        return false;
    submit->options.timeout_ns = ns == 0 ? 1 : ns == UINT64_MAX ? 0 : ns;
    return true;
}

static bool set_payload(struct submit *submit, PyObject *value) {
    if (value == Py_None || submit->has_payload)
        return true;
    if (PyObject_GetBuffer(value, &submit->payload, PyBUF_SIMPLE) != 0)
        return false;
    submit->has_payload = true;
    submit->options.notify_payload = submit->payload.buf;
    submit->options.notify_length =
        submit->payload.len > WEIR_NOTIFY_MAX ? WEIR_NOTIFY_MAX + 1 : (uint32_t)submit->payload.len;
    return true;
}

static bool set_notify(struct submit *submit, PyObject *value) {
    if (value == Py_None)
        return true;
    submit->options.flags |= WEIR_TRANSFER_NOTIFY;
    return number_u64(value, "notify", &submit->options.notify_tag);
}

/* 1: it is one of this kind of submit; 0: it is not; -1: an exception. */
static int set_special(struct submit *submit, enum submit_kind kind, PyObject *name,
                       PyObject *value) {
    if (kind == SUBMIT_TRANSFER) {
        if (is_named(name, "notify"))
            return set_notify(submit, value) ? 1 : -1;
        if (is_named(name, "payload"))
            return set_payload(submit, value) ? 1 : -1;
        if (is_named(name, "memories") || is_named(name, "remotes")) {
            PyObject **field = is_named(name, "memories") ? &submit->memories : &submit->remotes;
            *field = value == Py_None ? NULL : value;
            return 1;
        }
    }
    if (kind == SUBMIT_MESSAGE) {
        if (is_named(name, "tag"))
            return number_u64(value, "tag", &submit->options.notify_tag) ? 1 : -1;
        if (is_named(name, "no_wait"))
            return set_flag(submit, value, WEIR_TRANSFER_NO_WAIT) ? 1 : -1;
        if (is_named(name, "now"))
            return set_flag(submit, value, WEIR_TRANSFER_NOW) ? 1 : -1;
    }
    return 0;
}

static bool set_option(struct submit *submit, enum submit_kind kind, PyObject *name,
                       PyObject *value) {
    int special = set_special(submit, kind, name, value);
    if (special != 0)
        return special > 0;
    if (is_named(name, "timeout"))
        return set_deadline(submit, value);
    if (is_named(name, "once"))
        return set_flag(submit, value, WEIR_TRANSFER_ONCE);
    if (is_named(name, "block"))
        return set_block(submit, value);
    PyErr_Format(PyExc_TypeError, "unexpected keyword argument %R", name);
    return false;
}

bool submit_begin(struct submit *submit, enum submit_kind kind, PyObject *const *values,
                  PyObject *names) {
    submit->options = (weir_transfer_options)WEIR_TRANSFER_OPTIONS_INIT;
    submit->memories = submit->remotes = NULL;
    submit->has_payload = false;
    submit->block_ns = 0;
    for (Py_ssize_t i = 0; names != NULL && i < PyTuple_Size(names); i++)
        if (!set_option(submit, kind, PyTuple_GetItem(names, i), values[i])) {
            submit_end(submit);
            return false;
        }
    if (kind == SUBMIT_TRANSFER && submit->has_payload &&
        (submit->options.flags & WEIR_TRANSFER_NOTIFY) == 0) {
        PyErr_SetString(PyExc_TypeError, "payload goes with notify");
        submit_end(submit);
        return false;
    }
    return true;
}

void submit_end(struct submit *submit) {
    if (submit->has_payload)
        PyBuffer_Release(&submit->payload);
    submit->has_payload = false;
}

int submit_again(EngineObject *engine, struct submit *submit, struct waiting *waiting,
                 unsigned *tries) {
    transfers_reap(engine, SIZE_MAX);
    if ((*tries)++ == 0) {
        waiting_begin(waiting, submit->block_ns);
        return 1;
    }
    if (submit->block_ns == 0)
        return 0;
    return waiting_turn(waiting, engine);
}

/* ---- reads and writes ------------------------------------------------------------------ */

typedef int submit_call(weir_engine *, weir_peer, const weir_segment *, size_t,
                        const weir_transfer_options *, weir_transfer *);

static PyObject *submit_error(PeerObject *peer, const struct segments *segments, int rc,
                              const char *what, bool is_read) {
    char name[WEIR_ADDRESS_MAX], which[256] = "";
    Py_ssize_t segment = -1;
    PyObject *names = NULL;
    if (engine_is_usable(peer->engine))
        segment = segments_blame(segments, peer, rc, is_read, which, sizeof(which));
    if (rc == WEIR_ESTALE)
        names = names_of_remotes(segments->kept, segments->kept_count);
    peer_name(peer, name, sizeof(name));
    if (names != NULL && segment < 0)
        raise_code(rc, "%s of %zu segments, %llu bytes, peer %s: open %U again", what,
                   segments->count, (unsigned long long)segments->bytes, name, names);
    else
        raise_code(rc, "%s of %zu segments, %llu bytes, peer %s%s", what, segments->count,
                   (unsigned long long)segments->bytes, name, which);
    Py_XDECREF(names);
    if (segment >= 0)
        raised_at((size_t)segment, true);
    return NULL;
}

/* Submits, and makes the Transfer. */
static PyObject *submit(PeerObject *peer, submit_call *call, const char *what,
                        struct segments *segments, struct submit *with) {
    EngineObject *owner = peer->engine;
    struct waiting waiting;
    weir_transfer handle;
    unsigned tries = 0;
    int rc, again;
    do {
        weir_engine *engine = peer_use(peer);
        if (engine == NULL)
            return NULL;
        if (submit_is_short(owner, segments->bytes, segments->count)) {
            rc = call(engine, peer->handle, segments->list, segments->count, &with->options,
                      &handle);
        } else {
            PyThreadState *state = engine_leave_gil(owner);
            rc = call(engine, peer->handle, segments->list, segments->count, &with->options,
                      &handle);
            engine_take_gil(owner, state);
            transfers_reap(owner, 4);
        }
        if (rc == WEIR_OK)
            return transfer_new(owner, (PyObject *)peer, handle, segments, what);
        again = rc == WEIR_EAGAIN ? submit_again(owner, with, &waiting, &tries) : 0;
    } while (again > 0);
    return again < 0 ? NULL : submit_error(peer, segments, rc, what, call == weir_read);
}

static bool segments_from(struct segments *segments, PeerObject *peer, PyObject *const *args,
                          Py_ssize_t count, const struct submit *with, bool is_read) {
    if (count == 2 && args[1] != Py_None)
        return segments_from_pair(segments, peer->engine, args[0], args[1], is_read);
    if (with->memories != NULL || with->remotes != NULL)
        return segments_from_array(segments, peer->engine, args[0], with->memories, with->remotes,
                                   is_read);
    return segments_from_list(segments, peer->engine, args[0], is_read);
}

static PyObject *transfer_call(PeerObject *peer, PyObject *const *args, Py_ssize_t count,
                               PyObject *names, submit_call *call, const char *what, bool is_read) {
    struct segments segments;
    struct submit with;
    PyObject *transfer = NULL;
    if (count < 1 || count > 2)
        return PyErr_Format(PyExc_TypeError,
                            "%s takes local and remote memory, or segments: %zd were given", what,
                            count);
    if (peer_use(peer) == NULL || !submit_begin(&with, SUBMIT_TRANSFER, args + count, names))
        return NULL;
    segments_init(&segments);
    if (segments_from(&segments, peer, args, count, &with, is_read))
        transfer = submit(peer, call, what, &segments, &with);
    segments_fini(&segments);
    submit_end(&with);
    return transfer;
}

PyObject *peer_write(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    return transfer_call((PeerObject *)self, args, count, names, weir_write, "write", false);
}

PyObject *peer_read(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    return transfer_call((PeerObject *)self, args, count, names, weir_read, "read", true);
}

PyObject *peer_notify(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names) {
    PeerObject *peer = (PeerObject *)self;
    struct segments segments;
    struct submit with;
    PyObject *transfer = NULL;
    if (count < 1 || count > 2)
        return PyErr_Format(PyExc_TypeError, "notify takes a tag and a payload: %zd were given",
                            count);
    if (peer_use(peer) == NULL || !submit_begin(&with, SUBMIT_NOTIFY, args + count, names))
        return NULL;
    segments_init(&segments);
    with.options.flags |= WEIR_TRANSFER_NOTIFY;
    if (number_u64(args[0], "tag", &with.options.notify_tag) &&
        (count < 2 || set_payload(&with, args[1])))
        transfer = submit(peer, weir_write, "notification", &segments, &with);
    segments_fini(&segments);
    submit_end(&with);
    return transfer;
}
