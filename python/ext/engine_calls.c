/* SPDX-License-Identifier: Apache-2.0 */
/* engine_calls.c: the methods of Engine but for its life: progress and waits, memory and peers by
 * their own files, what is taken, what is told. */
#include "weirpy.h"

/* ---- progress -------------------------------------------------------------- */

PyDoc_STRVAR(progress_doc,
             "progress($self, /)\n--\n\n"
             "Does what there is to do now, without sleeping. Returns how many things it did; 0:\n"
             "idle, or another thread has the engine. Raises DeviceError when the device failed.");
static PyObject *engine_progress(EngineObject *self, PyObject *ignored) {
    (void)ignored;
    weir_engine *engine = engine_use(self);
    if (engine == NULL)
        return NULL;
    PyThreadState *state = engine_leave_gil(self);
    int rc = weir_engine_progress(engine);
    engine_take_gil(self, state);
    transfers_reap(self, 16);
    memory_bury(self, false);
    return rc >= 0 ? PyLong_FromLong(rc) : raise_code(rc, "progress");
}

PyDoc_STRVAR(wait_doc,
             "wait($self, /, timeout=None)\n--\n\n"
             "Makes progress until something was done, or messages or notifications wait to be\n"
             "taken; asleep meanwhile, without the GIL. timeout: seconds; None: no limit. Returns\n"
             "True, or False when the time passed. Take what there is, and the events, after each\n"
             "return. Raises DeviceError, ClosedError (closed by another thread),\n"
             "KeyboardInterrupt.");
static PyObject *engine_wait(EngineObject *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"timeout", NULL};
    PyObject *timeout = Py_None;
    uint64_t timeout_ns;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|O:wait", names, &timeout) ||
        !seconds_to_ns(timeout, &timeout_ns))
        return NULL;
    if (engine_use(self) == NULL)
        return NULL;
    if (kept_count(self->kept_notes) > 0)
        Py_RETURN_TRUE;
    struct waiting waiting;
    waiting_begin(&waiting, timeout_ns);
    for (;;) {
        weir_engine *engine = engine_use(self);
        if (engine == NULL || PyErr_CheckSignals() != 0)
            return NULL;
        uint64_t slice = waiting_slice(&waiting);
        PyThreadState *state = engine_leave_gil(self);
        int rc = weir_engine_wait(engine, slice);
        engine_take_gil(self, state);
        transfers_reap(self, 16);
        memory_bury(self, false);
        if (rc == WEIR_OK)
            Py_RETURN_TRUE;
        if (rc != WEIR_EINPROGRESS)
            return raise_code(rc, "wait");
        if (waiting_is_over(&waiting) || timeout_ns == 0)
            Py_RETURN_FALSE;
    }
}

PyDoc_STRVAR(fileno_doc, "fileno($self, /)\n--\n\n"
                         "The descriptor for a poll loop: readable when there is something to do,\n"
                         "once arm() was called. The engine owns it.");
static PyObject *engine_fileno(EngineObject *self, PyObject *ignored) {
    (void)ignored;
    weir_engine *engine = engine_use(self);
    return engine == NULL ? NULL : PyLong_FromLong(weir_engine_fd(engine));
}

/* None: no limit. A little more, so that a loop does not wake before the time. */
static PyObject *seconds_of(uint64_t ns) {
    if (ns == UINT64_MAX)
        Py_RETURN_NONE;
    return PyFloat_FromDouble((double)ns / 1e9 + 1e-9);
}

PyDoc_STRVAR(
    arm_doc,
    "arm($self, /)\n--\n\n"
    "Before a sleep on fileno(). Returns after how many seconds progress() must be called\n"
    "even if nothing arrives, or None: never. Returns 0.0 if there is work now, or\n"
    "something to take: do not sleep, but take and make progress. One thread at a time.");
static PyObject *engine_arm(EngineObject *self, PyObject *ignored) {
    (void)ignored;
    weir_engine *engine = engine_use(self);
    uint64_t timeout_ns = 0;
    if (engine == NULL)
        return NULL;
    PyThreadState *state = engine_leave_gil(self);
    int rc = weir_engine_arm(engine, &timeout_ns);
    engine_take_gil(self, state);
    if (rc == WEIR_EAGAIN)
        return PyFloat_FromDouble(0.0);
    if (rc != WEIR_OK)
        return raise_code(rc, "arm");
    return seconds_of(timeout_ns);
}

/* ---- memory, peers, inboxes ------------------------------------------------- */

PyDoc_STRVAR(
    allocate_doc,
    "allocate($self, /, length, access='rw')\n--\n\n"
    "Allocates and registers length bytes of zeroed, page-aligned memory that peers share\n"
    "fastest; on shm they map it. All pages are backed before the call returns, without the\n"
    "GIL. access: what peers may do to it, 'r', 'w', 'rw', or '' for a source of writes and a\n"
    "destination of reads alone. Returns a Memory.\n"
    "Raises ValueError, AgainError (memories_max), OutOfMemoryError, LockedMemoryError,\n"
    "DescriptorsError, DeviceError.");

PyDoc_STRVAR(
    register_doc,
    "register($self, /, object, access='rw')\n--\n\n"
    "Registers memory of the application's own, and keeps object alive until the Memory is\n"
    "released. object is\n\n"
    "- anything with a contiguous buffer: a bytearray, a numpy array, an mmap, an array.array;\n"
    "- a tensor with DLPack (torch, jax, cupy): on the CPU, or a GPU's;\n"
    "- an object with __cuda_array_interface__: registered as a dma-buf, by libcuda;\n"
    "- (address, length), a pair of integers: the caller keeps it mapped.\n\n"
    "Its bytes are, in the order in which they lie: strides are not carried. A tensor must not\n"
    "move meanwhile: resize_(), set_() and storage().resize_() free what peers may write to.\n"
    "access: as of allocate(); 'w' needs a writable buffer. Returns a Memory.\n"
    "Raises TypeError (no memory), BufferError or ValueError (read-only with 'w', not\n"
    "contiguous), InvalidError, AgainError (memories_max), NotSupportedError (GPU memory on\n"
    "this device), OutOfMemoryError, LockedMemoryError, DeviceError.");

PyDoc_STRVAR(peer_doc,
             "peer($self, address, /)\n--\n\n"
             "Names another engine by its address, \"host:port\". Does not connect: the first\n"
             "transfer does. Returns a Peer. Raises AddressError, InvalidError, AgainError\n"
             "(peers_max).");

PyDoc_STRVAR(peer_self_doc,
             "peer_self($self, /)\n--\n\n"
             "This engine itself, a Peer: transfers to its own memory, notifications and messages\n"
             "to its own program, on every device, and without a listener. The processor copies\n"
             "them, in calls that make progress. Raises AgainError (peers_max).");

PyDoc_STRVAR(
    inbox_doc,
    "inbox($self, /, number, message_bytes_max, peer_messages=0, messages=0)\n--\n\n"
    "Opens an inbox, a place where this engine takes messages. Peers name it by its number.\n"
    "message_bytes_max: the longest message, bytes, up to 1 GiB. peer_messages: so many of the\n"
    "longest, of one peer, have room; messages: of all peers together; 0: the default. Backs\n"
    "all of its memory before it returns, without the GIL. Returns an Inbox.\n"
    "Raises TooBigError, BusyError (the number is taken), AgainError (64 inboxes),\n"
    "OutOfMemoryError, LockedMemoryError, DescriptorsError, DeviceError.");

/* ---- names, flush ----------------------------------------------------------- */

PyDoc_STRVAR(publish_doc, "publish($self, /, name, memory)\n--\n\n"
                          "Memory.publish(name): peers open the memory by this name, a str.");

PyDoc_STRVAR(
    publish_value_doc,
    "publish_value($self, /, name, value)\n--\n\n"
    "The name, a str, is of a copy of these bytes from now on, up to 192, whatever it was of\n"
    "before: peers get them by Peer.value(name). The same bytes again are no change. Raises\n"
    "TypeError, InvalidError (a ValueError: no name), TooBigError, AgainError (names_max).");

PyDoc_STRVAR(withdraw_doc,
             "withdraw($self, name, /)\n--\n\n"
             "There is nothing of this name any more. The memory stays; Remotes of it that peers\n"
             "opened by the name are of no use as soon as they hear of it. Raises TypeError,\n"
             "InvalidError (no name), StaleError (there was nothing of this name).");

PyDoc_STRVAR(flush_doc, "flush($self, /, timeout=None)\n--\n\n"
                        "Peer.flush() of all peers together.");

/* ---- what is taken ---------------------------------------------------------- */

bool kept_put(PyObject **deque, PyObject *object) {
    if (*deque == NULL && (*deque = PyObject_CallNoArgs(weirpy.deque)) == NULL)
        return false;
    PyObject *done = PyObject_CallMethod(*deque, "append", "(O)", object);
    Py_XDECREF(done);
    return done != NULL;
}

PyObject *kept_take(PyObject *deque) {
    return kept_count(deque) > 0 ? PyObject_CallMethod(deque, "popleft", NULL) : NULL;
}

Py_ssize_t kept_count(PyObject *deque) {
    return deque == NULL ? 0 : PyObject_Size(deque);
}

/* So many events are kept for a loop that looks at them, as the engine does. */
#define EVENTS_MOST 256

/* A Notification, or NULL; without an exception: there is none. */
static PyObject *take_notification(EngineObject *self) {
    weir_engine *engine = engine_use(self);
    weir_notification notification;
    if (engine == NULL)
        return NULL;
    if (kept_count(self->kept_notes) > 0)
        return kept_take(self->kept_notes);
    int rc = weir_notification_take(engine, &notification);
    if (rc == WEIR_OK)
        return record_notification(self, &notification);
    return rc == WEIR_EAGAIN ? NULL : raise_code(rc, "take a notification");
}

static PyObject *take_event(EngineObject *self) {
    weir_engine *engine = engine_use(self);
    weir_event event;
    if (engine == NULL)
        return NULL;
    if (kept_count(self->kept_events) > 0)
        return kept_take(self->kept_events);
    if (self->lost_events > 0) {
        event = (weir_event){.type = WEIR_EVENT_LOST, .value = self->lost_events};
        self->lost_events = 0;
        return record_event(self, &event);
    }
    int rc = weir_event_take(engine, &event);
    if (rc == WEIR_OK)
        return record_event(self, &event);
    return rc == WEIR_EAGAIN ? NULL : raise_code(rc, "take an event");
}

static PyObject *or_none(PyObject *taken) {
    if (taken == NULL && !PyErr_Occurred())
        Py_RETURN_NONE;
    return taken;
}

/* Takes when there is something, within `timeout`. */
static PyObject *take_within(EngineObject *self, PyObject *args, PyObject *keywords,
                             PyObject *(*take)(EngineObject *), const char *what) {
    static char *names[] = {"timeout", NULL};
    PyObject *timeout = Py_None, *taken;
    uint64_t timeout_ns;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|O", names, &timeout) ||
        !seconds_to_ns(timeout, &timeout_ns))
        return NULL;
    struct waiting waiting;
    waiting_begin(&waiting, timeout_ns);
    while ((taken = take(self)) == NULL && !PyErr_Occurred()) {
        int rc = waiting_turn(&waiting, self);
        if (rc < 0)
            return NULL;
        if (rc == 0)
            return raise_code(WEIR_EINPROGRESS, "wait for %s", what);
    }
    return taken;
}

PyDoc_STRVAR(notification_doc,
             "notification($self, /, timeout=None)\n--\n\n"
             "Takes a Notification; makes progress until there is one, or timeout seconds have\n"
             "passed: InProgressError, a TimeoutError. Notifications of one peer come in the\n"
             "order in which they became complete. Raises DeviceError, ClosedError,\n"
             "KeyboardInterrupt.");
static PyObject *engine_notification(EngineObject *self, PyObject *args, PyObject *keywords) {
    return take_within(self, args, keywords, take_notification, "a notification");
}

PyDoc_STRVAR(poll_notification_doc,
             "poll_notification($self, /)\n--\n\n"
             "Takes a Notification that is there, or None. Makes no progress.");
static PyObject *engine_poll_notification(EngineObject *self, PyObject *ignored) {
    (void)ignored;
    return or_none(take_notification(self));
}

PyDoc_STRVAR(event_doc,
             "event($self, /, timeout=None)\n--\n\n"
             "Takes an Event; makes progress until there is one, or timeout seconds have passed:\n"
             "InProgressError, a TimeoutError. 256 are kept; then the newest are lost, and 'lost'\n"
             "says how many.");
static PyObject *engine_event(EngineObject *self, PyObject *args, PyObject *keywords) {
    return take_within(self, args, keywords, take_event, "an event");
}

PyDoc_STRVAR(poll_event_doc, "poll_event($self, /)\n--\n\n"
                             "Takes the oldest Event, or None. Makes no progress.");
static PyObject *engine_poll_event(EngineObject *self, PyObject *ignored) {
    (void)ignored;
    return or_none(take_event(self));
}

/* Takes over a record that was made, or NULL, into a deque. */
static bool keep(EngineObject *self, PyObject **deque, PyObject *taken) {
    bool good = taken != NULL && kept_put(deque, taken);
    self->kept_ever++;
    Py_XDECREF(taken);
    return good;
}

/* Takes all events, into the list, which may be NULL, too. */
static bool keep_events(EngineObject *self, PyObject *seen) {
    weir_event event;
    while (engine_is_usable(self) && weir_event_take(self->engine, &event) == WEIR_OK) {
        PyObject *taken = record_event(self, &event);
        self->kept_ever++;
        bool good = taken != NULL && (seen == NULL || PyList_Append(seen, taken) == 0);
        if (kept_count(self->kept_events) >= EVENTS_MOST || self->lost_events > 0)
            self->lost_events += event.type == WEIR_EVENT_LOST ? event.value : 1;
        else
            good = good && kept_put(&self->kept_events, taken);
        Py_XDECREF(taken);
        if (!good)
            return false;
    }
    return true;
}

/* Arrivals that nobody takes would keep a loop awake: they are kept, notifications up to `most`. */
static bool keep_all(EngineObject *self, Py_ssize_t most, bool with_events, PyObject *seen) {
    weir_engine *engine = self->engine;
    weir_notification notification;
    while (kept_count(self->kept_notes) < most &&
           weir_notification_take(engine, &notification) == WEIR_OK)
        if (!keep(self, &self->kept_notes, record_notification(self, &notification)))
            return false;
    if (with_events && !keep_events(self, seen))
        return false;
    InboxObject *inbox = self->inboxes, *next;
    Py_XINCREF((PyObject *)inbox);
    for (bool good = true; inbox != NULL; inbox = next) {
        good = good && inbox_keep_all(inbox);
        next =
            good ? inbox->next : NULL; /* of one that was closed meanwhile: none, till next time */
        Py_XINCREF((PyObject *)next);
        Py_DECREF((PyObject *)inbox);
        if (!good)
            return false;
    }
    return true;
}

/* _take_events(list): takes all events, and appends them to the list, too. */
static PyObject *engine_take_events(EngineObject *self, PyObject *seen) {
    if (engine_use(self) == NULL || !keep_events(self, seen))
        return NULL;
    Py_RETURN_NONE;
}

/* Turns of an event loop that find no end of the work, before others have theirs. */
#define TURNS_MOST 8

struct turn {
    Py_ssize_t notes_most;
    bool with_events, once;
    PyObject *seen; /* a list of events that were taken, or NULL */
    /* The outcome: */
    PyObject *ended;
    bool news;
    unsigned in_vain; /* arms that found work, and brought nothing */
    int rc;
    uint64_t timeout_ns;
};

/* Arms, which makes progress as well where there is something to do: progress alone would wake one
 * who sleeps on the armed descriptor, and that is this loop. Then takes what has come. False: an
 * exception. */
static bool arm_and_take(EngineObject *self, struct turn *turn) {
    weir_engine *engine = engine_use(self);
    if (engine == NULL)
        return false;
    PyThreadState *state = engine_leave_gil(self);
    turn->rc = weir_engine_arm(engine, &turn->timeout_ns);
    if (turn->rc == WEIR_EAGAIN && turn->in_vain > 0) { /* says what the device has */
        int rc = weir_engine_progress(engine);
        turn->rc = rc < 0 ? rc : turn->rc;
    }
    engine_take_gil(self, state);
    turn->news |= turn->rc == WEIR_EAGAIN;
    if (turn->rc != WEIR_OK && turn->rc != WEIR_EAGAIN) {
        raise_code(turn->rc, "progress");
        return false;
    }
    if (engine_use(self) == NULL)
        return false;
    turn->ended = transfers_sweep(self);
    return turn->ended != NULL && keep_all(self, turn->notes_most, turn->with_events, turn->seen);
}

/* Until nothing is left to do, and the descriptor is armed, or something has come. */
static bool turn_until(EngineObject *self, struct turn *turn) {
    uint64_t before = self->kept_ever;
    memory_bury(self, false);
    for (; turn->in_vain < TURNS_MOST; turn->in_vain++) {
        Py_CLEAR(turn->ended);
        if (!arm_and_take(self, turn))
            return false;
        if (turn->rc == WEIR_OK || turn->once || PyList_Size(turn->ended) > 0 ||
            self->kept_ever != before)
            break;
    }
    return true;
}

/* _turn(most, events, once): of an event loop: makes progress and takes what comes, until that is
 * something or the descriptor is armed. `most`: notifications that are kept; `events`: True if they
 * are awaited, or a list, to which those that were taken are appended; `once`: does not go on in
 * vain. Returns a list of the watched transfers that have ended, how many notifications and events
 * are kept, whether anything was done, and what arm() returns. */
static PyObject *engine_turn(EngineObject *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 3)
        return PyErr_Format(PyExc_TypeError, "_turn takes three arguments");
    struct turn turn = {.notes_most = PyLong_AsSsize_t(args[0]),
                        .seen = PyList_Check(args[1]) ? args[1] : NULL,
                        .once = args[2] == Py_True};
    turn.with_events = turn.seen != NULL || args[1] == Py_True;
    if (engine_use(self) == NULL || !turn_until(self, &turn)) {
        Py_XDECREF(turn.ended);
        return NULL;
    }
    PyObject *timeout = turn.rc == WEIR_OK ? seconds_of(turn.timeout_ns) : PyFloat_FromDouble(0.0);
    return Py_BuildValue("(NnnNN)", turn.ended, kept_count(self->kept_notes),
                         kept_count(self->kept_events), PyBool_FromLong(turn.news), timeout);
}

/* ---- what is told ----------------------------------------------------------- */

PyDoc_STRVAR(stats_doc,
             "stats($self, /)\n--\n\n"
             "The engine's counters since it was opened, as a Stats: stats().bytes_written.");
static PyObject *engine_stats(EngineObject *self, PyObject *ignored) {
    (void)ignored;
    weir_engine *engine = engine_use(self);
    weir_engine_info info = WEIR_ENGINE_INFO_INIT;
    if (engine == NULL)
        return NULL;
    PyThreadState *state = engine_leave_gil(self);
    int rc = weir_engine_query(engine, &info);
    engine_take_gil(self, state);
    return rc == WEIR_OK ? record_stats(&info) : raise_code(rc, "query an engine");
}

/* A text of the library's whose room is asked for first. */
static PyObject *text_of(EngineObject *self, uint32_t format,
                         int (*write)(weir_engine *, uint32_t, char *, size_t, size_t *),
                         const char *what) {
    weir_engine *engine = engine_use(self);
    size_t room = 0, length = 0;
    if (engine == NULL)
        return NULL;
    int rc = write(engine, format, NULL, 0, &room);
    char *text = rc == WEIR_OK ? malloc(room) : NULL;
    if (rc == WEIR_OK && text == NULL)
        return PyErr_NoMemory();
    if (rc == WEIR_OK) {
        PyThreadState *state = engine_leave_gil(self);
        rc = write(engine, format, text, room, &length);
        engine_take_gil(self, state);
    }
    PyObject *result = rc == WEIR_OK ? PyUnicode_DecodeUTF8(text, (Py_ssize_t)length, "replace")
                                     : raise_code(rc, "%s of an engine", what);
    free(text);
    return result;
}

PyDoc_STRVAR(metrics_doc,
             "metrics($self, /, prometheus=False)\n--\n\n"
             "The counters as text for a collector of metrics: OpenMetrics 1.0, or Prometheus'\n"
             "text format 0.0.4.");
static PyObject *engine_metrics(EngineObject *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"prometheus", NULL};
    int prometheus = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|p:metrics", names, &prometheus))
        return NULL;
    return text_of(self, prometheus ? WEIR_METRICS_PROMETHEUS : WEIR_METRICS_OPENMETRICS,
                   weir_engine_metrics, "metrics");
}

PyDoc_STRVAR(trace_doc,
             "trace($self, /, json=False)\n--\n\n"
             "The engine's last changes of state, the oldest first: a line each, or trace events\n"
             "for Perfetto.");
static PyObject *engine_trace(EngineObject *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"json", NULL};
    int json = 0;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "|p:trace", names, &json))
        return NULL;
    return text_of(self, json ? WEIR_TRACE_JSON : WEIR_TRACE_TEXT, weir_engine_trace, "trace");
}

#define CALL(name, function, flags, doc)                                                           \
    { name, (PyCFunction)(void (*)(void))(function), flags, doc }
PyMethodDef engine_calls[] = {
    CALL("progress", engine_progress, METH_NOARGS, progress_doc),
    CALL("wait", engine_wait, METH_VARARGS | METH_KEYWORDS, wait_doc),
    CALL("fileno", engine_fileno, METH_NOARGS, fileno_doc),
    CALL("arm", engine_arm, METH_NOARGS, arm_doc),
    CALL("allocate", memory_allocate, METH_VARARGS | METH_KEYWORDS, allocate_doc),
    CALL("register", memory_register, METH_VARARGS | METH_KEYWORDS, register_doc),
    CALL("peer", peer_open, METH_O, peer_doc),
    CALL("peer_self", peer_self, METH_NOARGS, peer_self_doc),
    CALL("publish", engine_publish, METH_VARARGS | METH_KEYWORDS, publish_doc),
    CALL("publish_value", engine_publish_value, METH_VARARGS | METH_KEYWORDS, publish_value_doc),
    CALL("withdraw", engine_withdraw, METH_O, withdraw_doc),
    CALL("flush", engine_flush, METH_VARARGS | METH_KEYWORDS, flush_doc),
    CALL("_under_way", engine_under_way, METH_NOARGS, NULL),
    CALL("inbox", inbox_open, METH_VARARGS | METH_KEYWORDS, inbox_doc),
    CALL("notification", engine_notification, METH_VARARGS | METH_KEYWORDS, notification_doc),
    CALL("poll_notification", engine_poll_notification, METH_NOARGS, poll_notification_doc),
    CALL("event", engine_event, METH_VARARGS | METH_KEYWORDS, event_doc),
    CALL("poll_event", engine_poll_event, METH_NOARGS, poll_event_doc),
    CALL("stats", engine_stats, METH_NOARGS, stats_doc),
    CALL("metrics", engine_metrics, METH_VARARGS | METH_KEYWORDS, metrics_doc),
    CALL("trace", engine_trace, METH_VARARGS | METH_KEYWORDS, trace_doc),
    CALL("_turn", engine_turn, METH_FASTCALL, NULL),
    CALL("_take_events", engine_take_events, METH_O, NULL),
    {NULL, NULL, 0, NULL},
};
