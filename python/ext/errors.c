/* SPDX-License-Identifier: Apache-2.0 */
/* errors.c: codes of the library as exceptions. The classes are the Python part's (_errors.py),
 * which hands over a dictionary of them by code. */
#include "weirpy.h"

#include <stdarg.h>

PyObject *raise_code(int code, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    PyObject *about = PyUnicode_FromFormatV(format, arguments);
    va_end(arguments);
    PyObject *key = PyLong_FromLong(code);
    if (about != NULL && key != NULL) {
        PyObject *class_ = weirpy.error_classes == NULL
                               ? NULL
                               : PyDict_GetItemWithError(weirpy.error_classes, key);
        if (class_ != NULL)
            PyErr_SetObject(class_, about);
        else if (!PyErr_Occurred())
            PyErr_Format(PyExc_RuntimeError, "%U: %s (%s)", about, weir_strerror(code),
                         weir_error_name(code));
    }
    Py_XDECREF(about);
    Py_XDECREF(key);
    return NULL;
}

/* The text, a str, with the segment's number before it; NULL: it has none. */
static PyObject *with_number(PyObject *text, PyObject *number) {
    return text != NULL && PyUnicode_Check(text)
               ? PyUnicode_FromFormat("segment %S: %U", number, text)
               : NULL;
}

/* The text of an exception of Python's is its only argument; that of ours is what it is about. */
static void say_number(PyObject *error, PyObject *number) {
    PyObject *args = PyObject_GetAttrString(error, "args");
    PyObject *text = args != NULL && PyTuple_Check(args) && PyTuple_Size(args) == 1
                         ? with_number(PyTuple_GetItem(args, 0), number)
                         : NULL;
    PyObject *said = text != NULL ? Py_BuildValue("(O)", text) : NULL;
    if (said != NULL && PyObject_SetAttrString(error, "args", said) == 0 &&
        PyObject_HasAttrString(error, "about"))
        PyObject_SetAttrString(error, "about", text);
    Py_XDECREF(said);
    Py_XDECREF(text);
    Py_XDECREF(args);
}

void raised_at(size_t segment, bool is_said) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    PyObject *number = value == NULL ? NULL : PyLong_FromSize_t(segment);
    if (number != NULL && PyObject_SetAttrString(value, "segment", number) == 0 && !is_said)
        say_number(value, number);
    Py_XDECREF(number);
    PyErr_Clear(); /* that of ours: the one that is raised counts */
    PyErr_Restore(type, value, traceback);
}

/* The table of codes, for _errors.py: ((code, name, class, sentence), ...). */
bool errors_ready(PyObject *module) {
    static const struct {
        int code;
        const char *name;
    } codes[] = {
#define CODE(name, value, class_, text) {value, #name},
        WEIR_ERRORS(CODE)
#undef CODE
    };
    const Py_ssize_t count = (Py_ssize_t)(sizeof(codes) / sizeof(codes[0]));
    PyObject *table = PyTuple_New(count);
    if (table == NULL)
        return false;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *row =
            Py_BuildValue("(isis)", codes[i].code, codes[i].name,
                          (int)weir_error_class(codes[i].code), weir_strerror(codes[i].code));
        if (row == NULL || PyTuple_SetItem(table, i, row) != 0) {
            Py_DECREF(table);
            return false;
        }
    }
    int rc = PyModule_AddObjectRef(module, "ERRORS", table);
    Py_DECREF(table);
    return rc == 0;
}
