/* SPDX-License-Identifier: Apache-2.0 */
/* flush.c: flush() of a Peer and of an Engine: waits for the transfers that are under way now, and
 * for no later ones.
 *
 * The library's own flush counts what was submitted before the call, and a wait is made of many
 * calls, between which signals are looked at: it would never end beside a thread that goes on
 * submitting. The engine's ring has all transfers that are under way; so those of them that are
 * there at the beginning are waited for, one behind the other. */
#include "weirpy.h"

/* The handle that the peer's events carry, whatever it was opened as. */
static uint64_t known_as(EngineObject *engine, weir_peer peer) {
    weir_peer_info info = WEIR_PEER_INFO_INIT;
    PyThreadState *state = engine_leave_gil_if_shared(engine);
    int rc = weir_peer_query(engine->engine, peer, &info);
    engine_take_gil_if_left(engine, state);
    return rc == WEIR_OK ? info.peer.id : peer.id;
}

static bool append_live(EngineObject *engine, PyObject *list) {
    TransferObject *transfer = engine->live;
    for (size_t i = 0; i < engine->live_count; i++, transfer = transfer->next)
        if (PyList_Append(list, (PyObject *)transfer) != 0)
            return false;
    return true;
}

/* The transfers of the list that go to the peer. */
static PyObject *of_peer(EngineObject *engine, PyObject *list, const PeerObject *peer) {
    PyObject *chosen = PyList_New(0);
    uint64_t known = known_as(engine, peer->handle), last = 0;
    bool last_is = false;
    for (Py_ssize_t i = 0; chosen != NULL && i < PyList_Size(list); i++) {
        PyObject *transfer = PyList_GetItem(list, i);
        weir_peer to = ((PeerObject *)((TransferObject *)transfer)->peer)->handle;
        if (to.id != last && engine_is_usable(engine))
            last_is = to.id == peer->handle.id || known_as(engine, to) == known;
        last = to.id;
        if (last_is && PyList_Append(chosen, transfer) != 0)
            Py_CLEAR(chosen);
    }
    return chosen;
}

PyObject *transfers_under_way(EngineObject *engine, PeerObject *peer) {
    transfers_reap(engine, SIZE_MAX);
    PyObject *list = PyList_New(0), *chosen;
    if (list == NULL || !append_live(engine, list)) {
        Py_XDECREF(list);
        return NULL;
    }
    if (peer == NULL)
        return list;
    chosen = of_peer(engine, list, peer);
    Py_DECREF(list);
    return chosen;
}

/* Until the transfer has ended. 1: it has; 0: the time is over; -1: an exception. */
static int wait_for(EngineObject *owner, TransferObject *transfer, struct waiting *waiting) {
    while (transfer_poll(transfer) == WEIR_EINPROGRESS) {
        weir_engine *engine = engine_use(owner);
        if (engine == NULL || PyErr_CheckSignals() != 0)
            return -1;
        uint64_t slice = waiting_slice(waiting);
        PyThreadState *state = engine_leave_gil(owner);
        weir_transfer_wait(engine, transfer->handle, slice);
        engine_take_gil(owner, state);
        if (transfer_poll(transfer) == WEIR_EINPROGRESS && waiting_is_over(waiting))
            return 0;
    }
    return 1;
}

static PyObject *flush(EngineObject *engine, PeerObject *peer, PyObject *args, PyObject *keywords) {
    static char *names[] = {"timeout", NULL};
    PyObject *timeout = Py_None, *list;
    struct waiting waiting;
    uint64_t timeout_ns;
    char name[WEIR_ADDRESS_MAX];
    int rc = 1;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|O:flush", names, &timeout) ||
        !seconds_to_ns(timeout, &timeout_ns))
        return NULL;
    if (peer != NULL ? peer_use(peer) == NULL : engine_use(engine) == NULL)
        return NULL;
    waiting_begin(&waiting, timeout_ns);
    if ((list = transfers_under_way(engine, peer)) == NULL)
        return NULL;
    Py_ssize_t count = PyList_Size(list), i = 0;
    for (; rc > 0 && i < count; i++)
        rc = wait_for(engine, (TransferObject *)PyList_GetItem(list, i), &waiting);
    Py_DECREF(list);
    if (rc < 0 || (peer != NULL ? peer_use(peer) == NULL : engine_use(engine) == NULL))
        return NULL;
    if (rc > 0)
        Py_RETURN_NONE;
    return raise_code(WEIR_EINPROGRESS, "flush of %s%s: %zd of %zd transfers have ended",
                      peer != NULL ? "peer " : "the engine",
                      peer != NULL ? peer_name(peer, name, sizeof(name)) : "", i - 1, count);
}

PyObject *engine_flush(EngineObject *self, PyObject *args, PyObject *keywords) {
    return flush(self, NULL, args, keywords);
}

PyObject *peer_flush(PeerObject *self, PyObject *args, PyObject *keywords) {
    return flush(self->engine, self, args, keywords);
}

PyObject *engine_under_way(EngineObject *self, PyObject *ignored) {
    (void)ignored;
    return engine_use(self) == NULL ? NULL : transfers_under_way(self, NULL);
}

PyObject *peer_under_way(PeerObject *self, PyObject *ignored) {
    (void)ignored;
    return peer_use(self) == NULL ? NULL : transfers_under_way(self->engine, self);
}
