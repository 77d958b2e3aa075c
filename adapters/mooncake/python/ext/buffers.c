/* SPDX-License-Identifier: Apache-2.0 */
/* buffers.c: registering memory, memory that the engine allocates, and bytes at an address. */
#include "mooncakepy.h"

#include <string.h>
#include <sys/mman.h>

static PyObject *register_memory(PyObject *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"buffer_addr", "capacity", "location", NULL};
    uint64_t address, length;
    const char *location = "*";
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O&O&|s", names, number_from, &address,
                                     number_from, &length, &location))
        return NULL;
    InnerObject *inner = inner_of(self);
    int rc = MC_EINVALID;
    if (inner != NULL) {
        buffer_entry_t entry = {(void *)(uintptr_t)address, length};
        Py_BEGIN_ALLOW_THREADS rc = local_register(inner->engine, &entry, 1, location, true);
        Py_END_ALLOW_THREADS Py_DECREF((PyObject *)inner);
    }
    return PyLong_FromLong(rc);
}

static PyObject *batch_register_memory(PyObject *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"buffer_addresses", "capacities", "location", NULL};
    PyObject *first, *second;
    struct numbers addresses = {0}, lengths = {0};
    const char *location = "*";
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "OO|s", names, &first, &second, &location) ||
        !numbers_from(first, &addresses))
        return NULL;
    if (!numbers_from(second, &lengths)) {
        free(addresses.values);
        return NULL;
    }
    InnerObject *inner = inner_of(self);
    buffer_entry_t *list = calloc(addresses.count + 1, sizeof(*list));
    int rc = MC_EINVALID;
    if (inner != NULL && list != NULL && addresses.count == lengths.count) {
        for (size_t i = 0; i < addresses.count; i++)
            list[i] = (buffer_entry_t){(void *)(uintptr_t)addresses.values[i], lengths.values[i]};
        Py_BEGIN_ALLOW_THREADS rc =
            local_register(inner->engine, list, addresses.count, location, true);
        Py_END_ALLOW_THREADS
    }
    Py_XDECREF((PyObject *)inner);
    free(list);
    free(addresses.values);
    free(lengths.values);
    return PyLong_FromLong(rc);
}

static PyObject *unregister_memory(PyObject *self, PyObject *args) {
    uint64_t address;
    if (!PyArg_ParseTuple(args, "O&", number_from, &address))
        return NULL;
    InnerObject *inner = inner_of(self);
    int rc = MC_EINVALID;
    if (inner != NULL) {
        Py_BEGIN_ALLOW_THREADS rc =
            unregisterLocalMemory(inner->engine, (void *)(uintptr_t)address);
        Py_END_ALLOW_THREADS Py_DECREF((PyObject *)inner);
    }
    return PyLong_FromLong(rc);
}

static PyObject *batch_unregister_memory(PyObject *self, PyObject *args) {
    PyObject *sequence;
    struct numbers addresses;
    if (!PyArg_ParseTuple(args, "O", &sequence) || !numbers_from(sequence, &addresses))
        return NULL;
    InnerObject *inner = inner_of(self);
    int rc = MC_EINVALID;
    if (inner != NULL) {
        _Static_assert(sizeof(void *) == sizeof(uint64_t), "addresses are numbers of 64 bits");
        Py_BEGIN_ALLOW_THREADS rc =
            unregisterLocalMemoryBatch(inner->engine, (void **)addresses.values, addresses.count);
        Py_END_ALLOW_THREADS Py_DECREF((PyObject *)inner);
    }
    free(addresses.values);
    return PyLong_FromLong(rc);
}

/* ---- memory of the engine's ------------------------------------------------------ */

static void *map_and_register(InnerObject *inner, uint64_t length) {
    size_t page = 4096, bytes = (length + page - 1) & ~(page - 1);
    struct managed *managed = bytes >= length ? malloc(sizeof(*managed)) : NULL;
    void *base = managed == NULL ? MAP_FAILED
                                 : mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    buffer_entry_t entry = {base, bytes};
    if (base != MAP_FAILED && local_register(inner->engine, &entry, 1, "*", true) == 0) {
        pthread_mutex_lock(&inner->lock);
        *managed = (struct managed){inner->managed, base, bytes};
        inner->managed = managed;
        pthread_mutex_unlock(&inner->lock);
        return base;
    }
    if (base != MAP_FAILED)
        munmap(base, bytes);
    free(managed);
    return NULL;
}

static PyObject *allocate_managed_buffer(PyObject *self, PyObject *args) {
    uint64_t length;
    void *base = NULL;
    if (!PyArg_ParseTuple(args, "O&", number_from, &length))
        return NULL;
    InnerObject *inner = inner_of(self);
    if (inner != NULL && length > 0) {
        Py_BEGIN_ALLOW_THREADS base = map_and_register(inner, length);
        Py_END_ALLOW_THREADS
    }
    Py_XDECREF((PyObject *)inner);
    return PyLong_FromUnsignedLongLong((uintptr_t)base);
}

/* Taken out of the list, so that one thread alone frees it; NULL: there is none. */
static struct managed *take_managed(InnerObject *inner, const void *base) {
    pthread_mutex_lock(&inner->lock);
    struct managed **at = &inner->managed;
    while (*at != NULL && (*at)->base != base)
        at = &(*at)->next;
    struct managed *found = *at;
    if (found != NULL)
        *at = found->next;
    pthread_mutex_unlock(&inner->lock);
    return found;
}

static int unmap(InnerObject *inner, struct managed *managed) {
    int rc = unregisterLocalMemory(inner->engine, managed->base);
    if (rc == 0 || rc == MC_EMETADATA) {
        munmap(managed->base, managed->length);
        free(managed);
        return 0;
    }
    pthread_mutex_lock(&inner->lock); /* still in use: it stays */
    managed->next = inner->managed;
    inner->managed = managed;
    pthread_mutex_unlock(&inner->lock);
    return rc;
}

static PyObject *free_managed_buffer(PyObject *self, PyObject *args) {
    uint64_t address, length;
    int rc = MC_EINVALID;
    if (!PyArg_ParseTuple(args, "O&O&", number_from, &address, number_from, &length))
        return NULL;
    InnerObject *inner = inner_of(self);
    if (inner != NULL) {
        Py_BEGIN_ALLOW_THREADS struct managed *managed =
            take_managed(inner, (void *)(uintptr_t)address);
        rc = managed != NULL ? unmap(inner, managed) : MC_EUNREGISTERED;
        Py_END_ALLOW_THREADS Py_DECREF((PyObject *)inner);
    }
    return PyLong_FromLong(rc);
}

/* ---- bytes at an address ----------------------------------------------------------- */

static PyObject *write_bytes_to_buffer(PyObject *self, PyObject *args) {
    uint64_t address, length;
    Py_buffer source;
    (void)self;
    if (!PyArg_ParseTuple(args, "O&y*O&", number_from, &address, &source, number_from, &length))
        return NULL;
    bool good = address != 0 && length <= (uint64_t)source.len;
    if (good) {
        Py_BEGIN_ALLOW_THREADS memcpy((void *)(uintptr_t)address, source.buf, length);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&source);
    return PyLong_FromLong(good ? 0 : MC_EINVALID);
}

static PyObject *read_bytes_from_buffer(PyObject *self, PyObject *args) {
    uint64_t address, length;
    (void)self;
    if (!PyArg_ParseTuple(args, "O&O&", number_from, &address, number_from, &length))
        return NULL;
    if (address == 0 || length > (uint64_t)PY_SSIZE_T_MAX) {
        PyErr_SetString(PyExc_ValueError, "no address, or too many bytes");
        return NULL;
    }
    return PyBytes_FromStringAndSize((const char *)(uintptr_t)address, (Py_ssize_t)length);
}

PyMethodDef buffers_methods[] = {
    {"register_memory", (PyCFunction)register_memory, METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("0, or a negative code: -7 where a part of it is registered already.")},
    {"batch_register_memory", (PyCFunction)batch_register_memory, METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("All of them, or none.")},
    {"unregister_memory", unregister_memory, METH_VARARGS,
     PyDoc_STR("After 0 nobody touches the memory any more; -3: no buffer begins there.")},
    {"batch_unregister_memory", batch_unregister_memory, METH_VARARGS,
     PyDoc_STR("Each of them; the first error.")},
    {"allocate_managed_buffer", allocate_managed_buffer, METH_VARARGS,
     PyDoc_STR("The address of registered memory, which is the engine's; 0: there is none.")},
    {"free_managed_buffer", free_managed_buffer, METH_VARARGS,
     PyDoc_STR("Gives it back; the length is not looked at.")},
    {"write_bytes_to_buffer", write_bytes_to_buffer, METH_VARARGS,
     PyDoc_STR("Copies that many of the bytes to an address of this process.")},
    {"read_bytes_from_buffer", read_bytes_from_buffer, METH_VARARGS,
     PyDoc_STR("A copy of the bytes at an address of this process.")},
    {NULL, NULL, 0, NULL},
};
