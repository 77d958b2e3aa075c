/* SPDX-License-Identifier: Apache-2.0 */
/* transfers.c: transfers, with and without a wait.
 *
 * Each has a deadline, MC_TRANSFER_TIMEOUT seconds (30) and a nanosecond a byte, so that a call
 * which gave up has nothing under way any more. */
#include "mooncakepy.h"

#include <string.h>

/* The arguments of a call. */
struct wish {
    const char *target;
    int opcode;
    struct numbers here, there, lengths;
    notify_msg_t notify;
    bool notifies;
};

static void wish_free(struct wish *wish) {
    free(wish->here.values);
    free(wish->there.values);
    free(wish->lengths.values);
    free(wish->notify.name);
    free(wish->notify.msg);
}

/* ---- without the GIL ----------------------------------------------------------------- */

/* The batch, submitted; INVALID_BATCH: it was not. */
static uint64_t begin(InnerObject *inner, uint64_t timeout_ns, const struct wish *wish) {
    size_t count = wish->here.count;
    if (count != wish->there.count || count != wish->lengths.count)
        return INVALID_BATCH;
    int32_t id = segment_open(inner->engine, wish->target, false);
    transfer_request_t *entries = id >= 0 ? calloc(count + 1, sizeof(*entries)) : NULL;
    uint64_t batch = entries != NULL ? batch_allocate(inner->engine, count) : INVALID_BATCH;
    for (size_t i = 0; batch != INVALID_BATCH && i < count; i++) {
        entries[i] = (transfer_request_t){wish->opcode, (void *)(uintptr_t)wish->here.values[i], id,
                                          wish->there.values[i], wish->lengths.values[i]};
        timeout_ns +=
            wish->lengths.values[i] < UINT64_C(3600000000000) ? wish->lengths.values[i] : 0;
    }
    if (batch != INVALID_BATCH) {
        batch_set_timeout(inner->engine, batch, timeout_ns);
        if (submit(inner->engine, batch, entries, count, wish->notifies ? &wish->notify : NULL) !=
            0) {
            batch_free(inner->engine, batch);
            batch = INVALID_BATCH;
        }
    }
    free(entries);
    return batch;
}

/* Until all of it is over; 0 or -1. */
static int finish(InnerObject *inner, uint64_t batch) {
    int status = batch_wait(inner->engine, batch, UINT64_MAX);
    /* Another thread may still be about to say that the last run of it has ended. */
    while (batch_free(inner->engine, batch) == MC_CODE_BUSY)
        batch_wait(inner->engine, batch, NS_PER_MS);
    return status == STATUS_COMPLETED ? 0 : -1;
}

static int transfer_now(InnerObject *inner, uint64_t timeout_ns, const struct wish *wish) {
    uint64_t batch = begin(inner, timeout_ns, wish);
    return batch != INVALID_BATCH ? finish(inner, batch) : -1;
}

/* ---- arguments ------------------------------------------------------------------------ */

/* The two strings of a TransferNotify, or None. */
static bool take_notify(PyObject *notify, struct wish *wish) {
    if (notify == NULL || notify == Py_None)
        return true;
    char **copies[] = {&wish->notify.name, &wish->notify.msg};
    for (int i = 0; i < 2; i++) {
        PyObject *text = PyObject_GetAttrString(notify, i == 0 ? "name" : "msg");
        PyObject *bytes = text != NULL ? PyUnicode_AsUTF8String(text) : NULL;
        char *characters = NULL; /* with a zero in it it is a ValueError */
        if (bytes != NULL && PyBytes_AsStringAndSize(bytes, &characters, NULL) == 0)
            *copies[i] = strdup(characters);
        Py_XDECREF(bytes);
        Py_XDECREF(text);
        if (*copies[i] == NULL) {
            if (PyErr_Occurred() == NULL)
                PyErr_NoMemory();
            return false;
        }
    }
    wish->notifies = true;
    return true;
}

static struct numbers one_number(uint64_t value) {
    struct numbers numbers = {malloc(sizeof(value)), 1};
    if (numbers.values != NULL)
        numbers.values[0] = value;
    return numbers;
}

/* opcode < 0: it is an argument, and so is notify. */
static bool parse_one(PyObject *args, PyObject *keywords, int opcode, struct wish *wish) {
    static char *plain[] = {"target_hostname", "buffer",         "peer_buffer_address",
                            "length",          "transport_hint", NULL};
    static char *full[] = {"target_hostname", "buffer", "peer_buffer_address", "length",
                           "opcode",          "notify", "transport_hint",      NULL};
    uint64_t here, there, length;
    const char *hint;
    PyObject *notify = NULL;
    *wish = (struct wish){.opcode = opcode};
    bool good = opcode >= 0
                    ? PyArg_ParseTupleAndKeywords(args, keywords, "sO&O&O&|s", plain, &wish->target,
                                                  number_from, &here, number_from, &there,
                                                  number_from, &length, &hint)
                    : PyArg_ParseTupleAndKeywords(
                          args, keywords, "sO&O&O&i|Os", full, &wish->target, number_from, &here,
                          number_from, &there, number_from, &length, &wish->opcode, &notify, &hint);
    if (!good || !take_notify(notify, wish)) {
        wish_free(wish);
        return false;
    }
    wish->here = one_number(here);
    wish->there = one_number(there);
    wish->lengths = one_number(length);
    if (wish->here.values != NULL && wish->there.values != NULL && wish->lengths.values != NULL)
        return true;
    wish_free(wish);
    PyErr_NoMemory();
    return false;
}

enum form { FORM_PLAIN, FORM_OPCODE, FORM_NOTIFY };

static bool parse_many(PyObject *args, PyObject *keywords, enum form form, int opcode,
                       struct wish *wish) {
    static char *plain[] = {"target_hostname", "buffers",        "peer_buffer_addresses",
                            "lengths",         "transport_hint", NULL};
    static char *coded[] = {
        "target_hostname", "buffers", "peer_buffer_addresses", "lengths", "opcode",
        "transport_hint",  NULL};
    static char *full[] = {"target_hostname", "buffers", "peer_buffer_addresses", "lengths",
                           "opcode",          "notify",  "transport_hint",        NULL};
    PyObject *here, *there, *lengths, *notify = NULL;
    const char *hint;
    *wish = (struct wish){.opcode = opcode};
    int good =
        form == FORM_PLAIN
            ? PyArg_ParseTupleAndKeywords(args, keywords, "sOOO|s", plain, &wish->target, &here,
                                          &there, &lengths, &hint)
        : form == FORM_OPCODE
            ? PyArg_ParseTupleAndKeywords(args, keywords, "sOOOi|s", coded, &wish->target, &here,
                                          &there, &lengths, &wish->opcode, &hint)
            : PyArg_ParseTupleAndKeywords(args, keywords, "sOOOi|Os", full, &wish->target, &here,
                                          &there, &lengths, &wish->opcode, &notify, &hint);
    if (good && numbers_from(here, &wish->here) && numbers_from(there, &wish->there) &&
        numbers_from(lengths, &wish->lengths) && take_notify(notify, wish))
        return true;
    wish_free(wish);
    return false;
}

/* ---- methods ---------------------------------------------------------------------------- */

static PyObject *run_sync(PyObject *self, struct wish *wish) {
    InnerObject *inner = inner_of(self);
    uint64_t timeout_ns = ((TransferEngineObject *)self)->timeout_ns;
    int rc = -1;
    if (inner != NULL) {
        Py_BEGIN_ALLOW_THREADS rc = transfer_now(inner, timeout_ns, wish);
        Py_END_ALLOW_THREADS Py_DECREF((PyObject *)inner);
    }
    wish_free(wish);
    return PyLong_FromLong(rc);
}

static PyObject *run_async(PyObject *self, struct wish *wish) {
    InnerObject *inner = inner_of(self);
    uint64_t timeout_ns = ((TransferEngineObject *)self)->timeout_ns, batch = INVALID_BATCH;
    if (inner != NULL) {
        Py_BEGIN_ALLOW_THREADS batch = begin(inner, timeout_ns, wish);
        Py_END_ALLOW_THREADS Py_DECREF((PyObject *)inner);
    }
    wish_free(wish);
    return PyLong_FromUnsignedLongLong(batch != INVALID_BATCH ? batch : 0);
}

#define METHOD(name, parse, run)                                                                   \
    static PyObject *name(PyObject *self, PyObject *args, PyObject *keywords) {                    \
        struct wish wish;                                                                          \
        return parse ? run(self, &wish) : NULL;                                                    \
    }
METHOD(transfer_sync_write, parse_one(args, keywords, OPCODE_WRITE, &wish), run_sync)
METHOD(transfer_sync_read, parse_one(args, keywords, OPCODE_READ, &wish), run_sync)
METHOD(transfer_sync, parse_one(args, keywords, -1, &wish), run_sync)
METHOD(transfer_submit_write, parse_one(args, keywords, OPCODE_WRITE, &wish), run_async)
METHOD(batch_transfer_sync_write, parse_many(args, keywords, FORM_PLAIN, OPCODE_WRITE, &wish),
       run_sync)
METHOD(batch_transfer_sync_read, parse_many(args, keywords, FORM_PLAIN, OPCODE_READ, &wish),
       run_sync)
METHOD(batch_transfer_sync, parse_many(args, keywords, FORM_NOTIFY, 0, &wish), run_sync)
METHOD(batch_transfer_async_write, parse_many(args, keywords, FORM_PLAIN, OPCODE_WRITE, &wish),
       run_async)
METHOD(batch_transfer_async_read, parse_many(args, keywords, FORM_PLAIN, OPCODE_READ, &wish),
       run_async)
METHOD(batch_transfer_async, parse_many(args, keywords, FORM_OPCODE, 0, &wish), run_async)

static PyObject *get_batch_transfer_status(PyObject *self, PyObject *args) {
    PyObject *sequence;
    struct numbers ids;
    int rc = 0;
    if (!PyArg_ParseTuple(args, "O", &sequence) || !numbers_from(sequence, &ids))
        return NULL;
    InnerObject *inner = inner_of(self);
    if (inner != NULL) {
        Py_BEGIN_ALLOW_THREADS for (size_t i = 0; i < ids.count; i++) {
            if (finish(inner, ids.values[i]) != 0)
                rc = -1;
        }
        Py_END_ALLOW_THREADS Py_DECREF((PyObject *)inner);
    } else {
        rc = -1;
    }
    free(ids.values);
    return PyLong_FromLong(rc);
}

static int check(InnerObject *inner, uint64_t batch) {
    settle_completions(inner->engine);
    weir_engine_progress(inner->engine->weir);
    int status = batch_wait(inner->engine, batch, 0);
    if (status == STATUS_WAITING)
        return 0;
    finish(inner, batch);
    return status == STATUS_COMPLETED ? 1 : status == STATUS_TIMEOUT ? -2 : -1;
}

static PyObject *transfer_check_status(PyObject *self, PyObject *args) {
    uint64_t batch;
    int rc = -1;
    if (!PyArg_ParseTuple(args, "O&", number_from, &batch))
        return NULL;
    InnerObject *inner = inner_of(self);
    if (inner != NULL) {
        Py_BEGIN_ALLOW_THREADS rc = check(inner, batch);
        Py_END_ALLOW_THREADS Py_DECREF((PyObject *)inner);
    }
    return PyLong_FromLong(rc);
}

#define WAITS    PyDoc_STR("Waits until it is over: 0, or -1 where it failed or took too long.")
#define SUBMITS  PyDoc_STR("Returns at once: the batch's number, or 0 where nothing was submitted.")
#define KEYWORDS (METH_VARARGS | METH_KEYWORDS)
#define ENTRY(name, doc)                                                                           \
    { #name, (PyCFunction)name, KEYWORDS, doc }
PyMethodDef transfers_methods[] = {
    ENTRY(transfer_sync_write, WAITS),
    ENTRY(transfer_sync_read, WAITS),
    ENTRY(transfer_sync, WAITS),
    ENTRY(batch_transfer_sync_write, WAITS),
    ENTRY(batch_transfer_sync_read, WAITS),
    ENTRY(batch_transfer_sync, WAITS),
    ENTRY(transfer_submit_write, SUBMITS),
    ENTRY(batch_transfer_async_write, SUBMITS),
    ENTRY(batch_transfer_async_read, SUBMITS),
    ENTRY(batch_transfer_async, SUBMITS),
    {"get_batch_transfer_status", get_batch_transfer_status, METH_VARARGS,
     PyDoc_STR("Waits until all of these batches are over, and frees them: 0, or -1 where one of\n"
               "them failed.")},
    {"transfer_check_status", transfer_check_status, METH_VARARGS,
     PyDoc_STR("1: done, -1: failed, -2: took too long, and the batch is freed; 0: under way.")},
    {NULL, NULL, 0, NULL},
};
