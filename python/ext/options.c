/* SPDX-License-Identifier: Apache-2.0 */
/* options.c: the keywords of Engine as weir_engine_options. Each number of that structure is a
 * keyword of its name. */
#include "weirpy.h"

#include <string.h>

static const struct {
    const char *name;
    size_t offset;
    bool is_wide; /* uint64_t, not uint32_t */
} numbers[] = {
#define NUMBER(name)                                                                               \
    {                                                                                              \
#name, offsetof(weir_engine_options, name),                                                \
            sizeof(((weir_engine_options *)0)->name) == sizeof(uint64_t)                           \
    }
    NUMBER(transfers_max),
    NUMBER(segments_max),
    NUMBER(peers_max),
    NUMBER(memories_max),
    NUMBER(remotes_max),
    NUMBER(qp_count),
    NUMBER(sq_depth),
    NUMBER(chain_max),
    NUMBER(recv_credits),
    NUMBER(notifications_max),
    NUMBER(connect_timeout_ns),
    NUMBER(retransmit_ns),
    NUMBER(teardown_timeout_ns),
    NUMBER(settle_grace_ns),
    NUMBER(backoff_timeout_ns),
    NUMBER(signal_interval),
    NUMBER(inline_bytes),
    NUMBER(cq_depth),
    NUMBER(poll_budget),
    NUMBER(inflight_bytes_max),
    NUMBER(stall_timeout_ns),
    NUMBER(watchdog_ns),
    NUMBER(names_max),
#undef NUMBER
};

/* A keyword that is text, or None. */
static bool text_option(PyObject *value, const char *name, const char **text_out) {
    if (value == Py_None)
        return true;
    if (!PyUnicode_Check(value)) {
        PyErr_Format(PyExc_TypeError, "%s is a str or None, not %R", name, Py_TYPE(value));
        return false;
    }
    Py_ssize_t length;
    *text_out = PyUnicode_AsUTF8AndSize(value, &length);
    if (*text_out != NULL && strlen(*text_out) != (size_t)length) {
        PyErr_Format(PyExc_ValueError, "%s has a null character", name);
        *text_out = NULL;
    }
    return *text_out != NULL;
}

static bool number_option(PyObject *value, const char *name, weir_engine_options *options) {
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        if (strcmp(name, numbers[i].name) != 0)
            continue;
        uint64_t wide;
        uint32_t narrow;
        char *field = (char *)options + numbers[i].offset;
        if (numbers[i].is_wide) {
            if (!number_u64(value, name, &wide))
                return false;
            memcpy(field, &wide, sizeof(wide));
        } else {
            if (!number_u32(value, name, &narrow))
                return false;
            memcpy(field, &narrow, sizeof(narrow));
        }
        return true;
    }
    PyErr_Format(PyExc_TypeError, "Engine has no option '%s'", name);
    return false;
}

bool options_from_keywords(PyObject *keywords, weir_engine_options *options) {
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (keywords != NULL && PyDict_Next(keywords, &at, &key, &value)) {
        const char *name = PyUnicode_AsUTF8AndSize(key, NULL);
        bool good;
        if (name == NULL)
            return false;
        if (strcmp(name, "device") == 0) {
            good = text_option(value, name, &options->device);
        } else if (strcmp(name, "listen") == 0) {
            good = text_option(value, name, &options->listen);
        } else if (strcmp(name, "advertise") == 0) {
            good = text_option(value, name, &options->advertise);
        } else if (strcmp(name, "thread") == 0) {
            int truth = PyObject_IsTrue(value);
            good = truth >= 0;
            if (truth > 0)
                options->flags |= WEIR_ENGINE_THREAD;
        } else {
            good = number_option(value, name, options);
        }
        if (!good)
            return false;
    }
    return true;
}
