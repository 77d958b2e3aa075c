/* SPDX-License-Identifier: Apache-2.0 */
/* sources.c: what Engine.register() takes as memory: an (address, length), a buffer, a tensor with
 * DLPack, an object with __cuda_array_interface__; and a dma-buf of a GPU's memory, by libcuda,
 * which is loaded when the first is wanted. Declarations of DLPack and of the CUDA driver are made
 * anew here, from their public documentation. */
#include "weirpy.h"

#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

/* An attribute. NULL without an exception: the object has none. Any other exception than
 * AttributeError is the object's own, or the user's interrupt, and stays. */
static PyObject *attribute_if_any(PyObject *object, const char *name) {
    PyObject *attribute = PyObject_GetAttrString(object, name);
    if (attribute == NULL && PyErr_ExceptionMatches(PyExc_AttributeError))
        PyErr_Clear();
    return attribute;
}

/* ---- buffers --------------------------------------------------------------- */

/* Python objects in an array are no bytes for peers. Some dtypes have no format at all. */
static bool buffer_source(PyObject *object, int flags, struct source *source) {
    if (PyObject_GetBuffer(object, &source->view, flags | PyBUF_FORMAT) != 0) {
        if (!PyErr_ExceptionMatches(PyExc_ValueError))
            return false;
        PyErr_Clear();
        if (PyObject_GetBuffer(object, &source->view, flags) != 0)
            return false;
    }
    source->has_view = true;
    if (source->view.format != NULL && strchr(source->view.format, 'O') != NULL) {
        PyErr_SetString(PyExc_TypeError, "an array of Python objects cannot be registered");
        return false;
    }
    source->base = source->view.buf;
    source->length = (uint64_t)source->view.len;
    source->readonly = source->view.readonly != 0;
    return true;
}

static bool pair_source(PyObject *pair, struct source *source) {
    uint64_t address;
    if (PyTuple_Size(pair) != 2) {
        PyErr_SetString(PyExc_ValueError, "a place in memory is (address, length)");
        return false;
    }
    if (!number_u64(PyTuple_GetItem(pair, 0), "address", &address) ||
        !number_u64(PyTuple_GetItem(pair, 1), "length", &source->length))
        return false;
    if (source->length > PY_SSIZE_T_MAX) {
        PyErr_SetString(PyExc_ValueError, "length is 2**63 - 1 at most");
        return false;
    }
    source->base = (unsigned char *)(uintptr_t)address; // NOLINT
    return true;
}

/* Whether an array with these strides, in elements, is in one piece, whatever the order of its
 * dimensions. Dimensions of one are anywhere. */
static bool is_contiguous(const int64_t *shape, const int64_t *strides, int32_t count) {
    int64_t expected = 1;
    int32_t left = 0;
    for (int32_t i = 0; i < count; i++)
        left += shape[i] != 1;
    for (; left > 0; left--) {
        int32_t at = 0;
        while (at < count && (shape[at] == 1 || strides[at] != expected))
            at++;
        if (at == count)
            return false;
        expected *= shape[at];
    }
    return true;
}

/* ---- DLPack ----------------------------------------------------------------- */

enum { DLPACK_CPU = 1, DLPACK_CUDA = 2, DLPACK_CUDA_HOST = 3, DLPACK_CUDA_MANAGED = 13 };
struct dlpack_tensor {
    void *data;
    int32_t device_type, device_id, dimensions;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
};

/* The device of an object's __dlpack_device__(); -1: an exception, 0: it has no DLPack. */
static long dlpack_device(PyObject *object) {
    PyObject *method = attribute_if_any(object, "__dlpack_device__");
    if (method == NULL)
        return PyErr_Occurred() ? -1 : 0;
    PyObject *device = PyObject_CallNoArgs(method);
    PyObject *type = device == NULL ? NULL : PySequence_GetItem(device, 0);
    PyObject *number = type == NULL ? NULL : PyNumber_Long(type);
    long result = number == NULL ? -1 : PyLong_AsLong(number);
    Py_XDECREF(number);
    Py_XDECREF(type);
    Py_XDECREF(device);
    Py_DECREF(method);
    if (result < 0 && !PyErr_Occurred())
        PyErr_Format(PyExc_ValueError, "__dlpack_device__ says the device %ld", result);
    return PyErr_Occurred() ? -1 : result;
}

/* The capsule keeps the tensor, and is not taken out of it. */
static bool dlpack_source(PyObject *object, struct source *source) {
    source->owner = PyObject_CallMethod(object, "__dlpack__", NULL);
    if (source->owner == NULL)
        return false;
    const struct dlpack_tensor *tensor = PyCapsule_GetPointer(source->owner, "dltensor");
    if (tensor == NULL)
        return false;
    uint64_t bytes = ((uint64_t)tensor->bits * tensor->lanes + 7) / 8;
    for (int32_t i = 0; i < tensor->dimensions; i++)
        bytes *= (uint64_t)tensor->shape[i];
    if (bytes > 0 && tensor->strides != NULL &&
        !is_contiguous(tensor->shape, tensor->strides, tensor->dimensions)) {
        PyErr_SetString(PyExc_ValueError, "the tensor is not contiguous");
        return false;
    }
    source->base = (unsigned char *)tensor->data + tensor->byte_offset;
    source->length = bytes;
    source->on_device = tensor->device_type == DLPACK_CUDA;
    return true;
}

/* ---- __cuda_array_interface__ ------------------------------------------------ */

static PyObject *item_if_any(PyObject *dictionary, const char *name) {
    PyObject *key = PyUnicode_FromString(name);
    PyObject *value = key == NULL ? NULL : PyDict_GetItemWithError(dictionary, key);
    Py_XDECREF(key);
    return value;
}

static PyObject *item(PyObject *dictionary, const char *name) {
    PyObject *value = item_if_any(dictionary, name);
    if (value == NULL && !PyErr_Occurred())
        PyErr_Format(PyExc_ValueError, "__cuda_array_interface__ has no '%s'", name);
    return value;
}

/* The bytes of an array of that shape: its product times the digits of the type, "<f4". */
static bool cuda_bytes(PyObject *shape, const char *type, uint64_t *bytes_out) {
    uint64_t bytes = strtoull(type + strcspn(type, "0123456789"), NULL, 10), dimension;
    if (!PyTuple_Check(shape) || bytes == 0) {
        PyErr_SetString(PyExc_ValueError, "__cuda_array_interface__ has no shape, or no type");
        return false;
    }
    for (Py_ssize_t i = 0; i < PyTuple_Size(shape); i++) {
        if (!number_u64(PyTuple_GetItem(shape, i), "shape", &dimension))
            return false;
        bytes *= dimension;
    }
    *bytes_out = bytes;
    return true;
}

static bool cuda_source(PyObject *object, PyObject *interface, struct source *source) {
    if (!PyDict_Check(interface)) {
        PyErr_SetString(PyExc_TypeError, "__cuda_array_interface__ is no dict");
        return false;
    }
    PyObject *data = item(interface, "data"),
             *shape = data == NULL ? NULL : item(interface, "shape");
    PyObject *type = shape == NULL ? NULL : item(interface, "typestr");
    if (type == NULL)
        return false;
    PyObject *strides = item_if_any(interface, "strides");
    if (strides == NULL && PyErr_Occurred())
        return false;
    const char *text = PyUnicode_Check(type) ? PyUnicode_AsUTF8AndSize(type, NULL) : NULL;
    uint64_t address;
    if (strides != NULL && strides != Py_None) {
        PyErr_SetString(PyExc_ValueError, "the array on the GPU is not C-contiguous");
        return false;
    }
    if (text == NULL || !PyTuple_Check(data) || PyTuple_Size(data) != 2) {
        PyErr_SetString(PyExc_ValueError, "__cuda_array_interface__ is not as it should be");
        return false;
    }
    if (!number_u64(PyTuple_GetItem(data, 0), "data", &address) ||
        !cuda_bytes(shape, text, &source->length))
        return false;
    source->readonly = PyObject_IsTrue(PyTuple_GetItem(data, 1)) == 1;
    source->base = (unsigned char *)(uintptr_t)address; // NOLINT
    source->on_device = true;
    source->owner = Py_NewRef(object);
    return true;
}

/* ---- all of them -------------------------------------------------------------- */

static bool tensor_source(PyObject *object, struct source *source) {
    long device = dlpack_device(object);
    if (device < 0)
        return false;
    if (device == DLPACK_CPU || device == DLPACK_CUDA_HOST)
        return dlpack_source(object, source);
    PyObject *interface = attribute_if_any(object, "__cuda_array_interface__");
    if (interface != NULL) {
        bool good = cuda_source(object, interface, source);
        Py_DECREF(interface);
        return good;
    }
    if (PyErr_Occurred())
        return false;
    if (device == DLPACK_CUDA)
        return dlpack_source(object, source);
    if (device != 0)
        raise_code(WEIR_ENOTSUP, "use a tensor of the DLPack device %ld", device);
    else
        PyErr_Format(PyExc_TypeError,
                     "a buffer, a tensor with DLPack or __cuda_array_interface__, or (address, "
                     "length) is wanted, not %R",
                     Py_TYPE(object));
    return false;
}

bool source_is_tensor(PyObject *object) {
    static const char *const names[] = {"__dlpack_device__", "__cuda_array_interface__"};
    for (size_t i = 0; i < 2; i++) {
        PyObject *attribute = attribute_if_any(object, names[i]);
        if (attribute != NULL) {
            Py_DECREF(attribute);
            return true;
        }
        if (PyErr_Occurred())
            return false;
    }
    return false;
}

bool source_from(PyObject *object, bool writable, struct source *source) {
    memset(source, 0, sizeof(*source));
    bool good;
    if (PyTuple_Check(object))
        good = pair_source(object, source);
    else if (PyObject_CheckBuffer(object))
        good =
            buffer_source(object, PyBUF_ANY_CONTIGUOUS | (writable ? PyBUF_WRITABLE : 0), source);
    else
        good = tensor_source(object, source);
    if (good && writable && source->readonly) {
        PyErr_SetString(PyExc_BufferError, "the object is read-only, and access has 'w'");
        good = false;
    }
    if (!good)
        source_drop(source);
    return good;
}

void source_drop(struct source *source) {
    if (source->has_view)
        PyBuffer_Release(&source->view);
    Py_CLEAR(source->owner);
    source->has_view = false;
}

/* ---- dma-bufs of a GPU ---------------------------------------------------------- */

typedef int cuda_range(uint64_t *base_out, size_t *size_out, uint64_t address);
typedef int cuda_handle(void *handle_out, uint64_t address, size_t size, int type,
                        unsigned long long flags);
enum { CUDA_DMA_BUF_FD = 1 };

bool source_dmabuf(const struct source *source, int *fd_out, uint64_t *offset_out) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL) {
        raise_code(WEIR_ENOTSUP, "register memory of a GPU: %s", dlerror());
        return false;
    }
    cuda_range *range = NULL;
    cuda_handle *handle = NULL;
    *(void **)&range = dlsym(library, "cuMemGetAddressRange_v2");
    *(void **)&handle = dlsym(library, "cuMemGetHandleForAddressRange");
    uint64_t address = (uint64_t)(uintptr_t)source->base, base = 0;
    size_t size = 0;
    int rc = range == NULL || handle == NULL ? -1 : range(&base, &size, address);
    if (rc == 0 && (address < base || source->length > size - (address - base)))
        rc = -2;
    if (rc == 0) { /* the driver takes whole pages of this host */
        uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
        uint64_t begin = address & ~(page - 1), end = address + source->length;
        end = (end + page - 1) & ~(page - 1);
        *offset_out = address - begin;
        rc = handle(fd_out, begin, (size_t)(end - begin), CUDA_DMA_BUF_FD, 0);
    }
    if (rc != 0)
        raise_code(WEIR_ENOTSUP,
                   "register %llu bytes of a GPU at %p: the CUDA driver gives no dma-buf (%d)",
                   (unsigned long long)source->length, source->base, rc);
    return rc == 0; /* the library stays loaded */
}
