/* SPDX-License-Identifier: Apache-2.0 */
/* mooncakepy.h: what the files of the extension module mooncake._engine share.
 *
 *     TransferEngine ──┐
 *                      ├──> InnerTransferEngine, which owns the adapter's engine
 *     get_engine() ────┘
 *
 * The engine is closed with the last reference. A method holds one while it runs without the GIL,
 * so no engine is closed under a call. */
#ifndef MOONCAKEPY_H
#define MOONCAKEPY_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "adapter.h"

/* Memory that allocate_managed_buffer gave. */
struct managed {
    struct managed *next;
    void *base;
    size_t length; /* of the mapping */
};

typedef struct InnerObject {
    PyObject_HEAD struct mc_engine *engine;
    pthread_mutex_t lock; /* of `managed` */
    struct managed *managed;
} InnerObject;

typedef struct TransferEngineObject {
    PyObject_HEAD InnerObject *inner; /* NULL: not initialized */
    uint64_t timeout_ns;              /* of a transfer, and 1 ns more a byte */
} TransferEngineObject;

struct mooncakepy {
    PyTypeObject *inner, *engine;
    PyObject *notify; /* the class TransferNotify */
};
extern struct mooncakepy mooncakepy;

/* A new reference to the engine that the method is of; NULL, without an exception: there is none,
 * or it is that of a process which forked this one. */
InnerObject *inner_of(PyObject *self);

/* arguments.c: lists of integers become arrays, allocated. */
struct numbers {
    uint64_t *values;
    size_t count;
};
/* False with an exception: it is no sequence of integers from 0 to 2^64 - 1. */
bool numbers_from(PyObject *sequence, struct numbers *numbers_out);
/* For O& of PyArg_ParseTuple: a uint64_t. */
int number_from(PyObject *number, void *value_out);

/* The methods, in tables that end with a zeroed one. */
extern PyMethodDef buffers_methods[], transfers_methods[];

#endif
