/* SPDX-License-Identifier: Apache-2.0 */
/* arguments.c: integers of Python, one or a sequence of them, as numbers of 64 bits. Anything with
 * __index__ is one, as numpy's integers are. */
#include "mooncakepy.h"

int number_from(PyObject *number, void *value_out) {
    PyObject *index = PyNumber_Index(number);
    if (index == NULL)
        return 0;
    unsigned long long value = PyLong_AsUnsignedLongLong(index);
    Py_DECREF(index);
    if (value == (unsigned long long)-1 && PyErr_Occurred() != NULL)
        return 0;
    *(uint64_t *)value_out = value;
    return 1;
}

bool numbers_from(PyObject *sequence, struct numbers *numbers_out) {
    PyObject *list = PySequence_List(sequence);
    if (list == NULL)
        return false;
    size_t count = (size_t)PyList_Size(list);
    uint64_t *values = malloc((count > 0 ? count : 1) * sizeof(*values));
    bool good = values != NULL;
    if (!good)
        PyErr_NoMemory();
    for (size_t i = 0; good && i < count; i++)
        good = number_from(PyList_GetItem(list, (Py_ssize_t)i), &values[i]) == 1;
    Py_DECREF(list);
    if (!good) {
        free(values);
        return false;
    }
    *numbers_out = (struct numbers){values, count};
    return true;
}
