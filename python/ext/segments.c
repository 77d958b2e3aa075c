/* SPDX-License-Identifier: Apache-2.0 */
/* segments.c: what a program names as the segments of a transfer, as weir_segment; and references
 * to the memory that they use, for as long as they are under way. */
#include "weirpy.h"

#include <string.h>

/* So many rows of an array are taken over with the GIL. */
#define ROWS_HELD_MOST 4096

void segments_init(struct segments *segments) {
    segments->list = segments->few;
    segments->count = 0;
    segments->bytes = 0;
    segments->kept = segments->kept_few;
    segments->kept_count = 0;
    segments->kept_room = sizeof(segments->kept_few) / sizeof(segments->kept_few[0]);
}

void segments_fini(struct segments *segments) {
    for (size_t i = 0; i < segments->kept_count; i++)
        Py_DECREF(segments->kept[i]);
    if (segments->kept != segments->kept_few)
        free(segments->kept);
    if (segments->list != segments->few)
        free(segments->list);
}

static bool room_for(struct segments *segments, size_t count) {
    if (count <= sizeof(segments->few) / sizeof(segments->few[0]))
        return true;
    weir_segment *list = count > SIZE_MAX / sizeof(*list) ? NULL : malloc(count * sizeof(*list));
    if (list == NULL) {
        PyErr_NoMemory();
        return false;
    }
    segments->list = list;
    return true;
}

bool segments_keep(struct segments *segments, PyObject *object) {
    size_t count = segments->kept_count;
    if ((count > 0 && segments->kept[count - 1] == object) ||
        (count > 1 && segments->kept[count - 2] == object))
        return true;
    if (count == segments->kept_room) {
        bool is_few = segments->kept == segments->kept_few;
        PyObject **more = realloc(is_few ? NULL : segments->kept, 2 * count * sizeof(*more));
        if (more == NULL) {
            PyErr_NoMemory();
            return false;
        }
        if (is_few)
            memcpy(more, segments->kept_few, sizeof(segments->kept_few));
        segments->kept = more;
        segments->kept_room = 2 * count;
    }
    segments->kept[segments->kept_count++] = Py_NewRef(object);
    return true;
}

/* Into a read-only memory nothing is read. */
static bool check_direction(const MemoryObject *memory, bool is_read) {
    if (is_read && memory->readonly) {
        PyErr_SetString(PyExc_BufferError, "the local memory is read-only, and is to be read into");
        return false;
    }
    return true;
}

static bool add_pair(struct segments *segments, EngineObject *engine, PyObject *local,
                     PyObject *remote, bool is_read) {
    weir_segment *segment = &segments->list[segments->count];
    MemoryObject *memory;
    RemoteObject *there;
    uint64_t local_length, remote_length;
    if (!local_place(engine, local, &memory, &segment->local_offset, &local_length))
        return false;
    if (!check_direction(memory, is_read) || !segments_keep(segments, (PyObject *)memory))
        return false;
    if (!remote_place(engine, remote, &there, &segment->remote_offset, &remote_length) ||
        !segments_keep(segments, (PyObject *)there))
        return false;
    if (local_length != remote_length) {
        PyErr_Format(
            PyExc_ValueError,
            "local memory of %llu bytes and remote memory of %llu: both have to be of one length, "
            "as slices [a:b] are",
            (unsigned long long)local_length, (unsigned long long)remote_length);
        return false;
    }
    segment->local = memory->handle;
    segment->remote = there->handle;
    segment->length = local_length;
    segments->bytes += local_length;
    segments->count++;
    return true;
}

bool segments_from_pair(struct segments *segments, EngineObject *engine, PyObject *local,
                        PyObject *remote, bool is_read) {
    return add_pair(segments, engine, local, remote, is_read);
}

/* ---- lists -------------------------------------------------------------------- */

/* (memory, offset, remote, offset, length) */
static bool add_five(struct segments *segments, EngineObject *engine, PyObject *five,
                     bool is_read) {
    weir_segment *segment = &segments->list[segments->count];
    PyObject *memory = PyTuple_GetItem(five, 0), *remote = PyTuple_GetItem(five, 2);
    if (Py_TYPE(memory) != weirpy.memory || Py_TYPE(remote) != weirpy.remote) {
        PyErr_Format(PyExc_TypeError,
                     "a segment of five is (Memory, offset, Remote, offset, length), not (%R, _, "
                     "%R, ...)",
                     Py_TYPE(memory), Py_TYPE(remote));
        return false;
    }
    if (!memory_check((MemoryObject *)memory, engine) ||
        !check_direction((MemoryObject *)memory, is_read) ||
        !number_u64(PyTuple_GetItem(five, 1), "local offset", &segment->local_offset) ||
        !number_u64(PyTuple_GetItem(five, 3), "remote offset", &segment->remote_offset) ||
        !number_u64(PyTuple_GetItem(five, 4), "length", &segment->length) ||
        !segments_keep(segments, memory) || !segments_keep(segments, remote))
        return false;
    segment->local = ((MemoryObject *)memory)->handle;
    segment->remote = ((RemoteObject *)remote)->handle;
    segments->bytes += segment->length;
    segments->count++;
    return true;
}

static bool add_item(struct segments *segments, EngineObject *engine, PyObject *item,
                     bool is_read) {
    PyObject *tuple = PyTuple_Check(item)  ? Py_NewRef(item)
                      : PyList_Check(item) ? PySequence_Tuple(item)
                                           : NULL;
    Py_ssize_t count = tuple == NULL ? -1 : PyTuple_Size(tuple);
    bool good = false;
    if (count == 2)
        good = add_pair(segments, engine, PyTuple_GetItem(tuple, 0), PyTuple_GetItem(tuple, 1),
                        is_read);
    else if (count == 5)
        good = add_five(segments, engine, tuple, is_read);
    else if (!PyErr_Occurred())
        PyErr_SetString(
            PyExc_TypeError,
            "it is neither (local, remote) nor (memory, offset, remote, offset, length)");
    Py_XDECREF(tuple);
    if (!good)
        raised_at(segments->count, false);
    return good;
}

bool segments_from_list(struct segments *segments, EngineObject *engine, PyObject *list,
                        bool is_read) {
    PyObject *items = PySequence_Tuple(list);
    if (items == NULL)
        return false;
    Py_ssize_t count = PyTuple_Size(items);
    bool good = room_for(segments, (size_t)count);
    for (Py_ssize_t i = 0; good && i < count; i++)
        good = add_item(segments, engine, PyTuple_GetItem(items, i), is_read);
    Py_DECREF(items);
    return good;
}

/* ---- arrays --------------------------------------------------------------------- */

/* The handles of all members, by their index. */
struct handles {
    PyObject *members; /* a tuple */
    uint64_t *ids;
    size_t count;
};

static bool handles_of(struct handles *handles, PyObject *sequence, PyTypeObject *type,
                       EngineObject *engine, const char *name, bool is_read) {
    handles->members = PySequence_Tuple(sequence);
    if (handles->members == NULL)
        return false;
    handles->count = (size_t)PyTuple_Size(handles->members);
    handles->ids = malloc((handles->count + 1) * sizeof(*handles->ids));
    if (handles->ids == NULL) {
        PyErr_NoMemory();
        return false;
    }
    for (size_t i = 0; i < handles->count; i++) {
        PyObject *member = PyTuple_GetItem(handles->members, (Py_ssize_t)i);
        if (Py_TYPE(member) != type) {
            PyErr_Format(PyExc_TypeError, "%s[%zu] is no %s but %R", name, i,
                         type == weirpy.memory ? "weir.Memory" : "weir.Remote", Py_TYPE(member));
            return false;
        }
        if (type == weirpy.memory) {
            if (!memory_check((MemoryObject *)member, engine) ||
                !check_direction((MemoryObject *)member, is_read))
                return false;
            handles->ids[i] = ((MemoryObject *)member)->handle.id;
        } else {
            handles->ids[i] = ((RemoteObject *)member)->handle.id;
        }
    }
    return true;
}

static void handles_drop(struct handles *handles) {
    Py_XDECREF(handles->members);
    free(handles->ids);
}

/* Each row, read once: another thread may write the array. The number of the first bad row, or of
 * rows. */
static size_t take_rows(struct segments *segments, const uint64_t *rows, size_t count,
                        const struct handles *memories, const struct handles *remotes) {
    uint64_t bytes = 0;
    size_t i = 0;
    for (; i < count; i++, rows += 5) {
        uint64_t memory = rows[0], remote = rows[2];
        if (memory >= memories->count || remote >= remotes->count)
            break;
        segments->list[i] = (weir_segment){.local = {memories->ids[memory]},
                                           .remote = {remotes->ids[remote]},
                                           .local_offset = rows[1],
                                           .remote_offset = rows[3],
                                           .length = rows[4]};
        bytes += segments->list[i].length;
    }
    segments->bytes = bytes;
    segments->count = i;
    return i;
}

/* N x 5 of 64-bit integers, in C's order. */
static bool check_array(const Py_buffer *view) {
    const char *format = view->format == NULL ? "B" : view->format;
    if (*format == '@' || *format == '=' || *format == '<')
        format++;
    if (view->itemsize != 8 || strchr("QLqlNn", *format) == NULL || format[0] == '\0' ||
        format[1] != '\0') {
        PyErr_Format(PyExc_TypeError,
                     "an array of segments has 64-bit integers, not the format '%s'",
                     view->format == NULL ? "B" : view->format);
        return false;
    }
    if (view->ndim != 2 || view->shape[1] != 5) {
        PyErr_SetString(PyExc_ValueError, "an array of segments has the shape (N, 5)");
        return false;
    }
    return true;
}

static bool rows_of(struct segments *segments, const Py_buffer *view,
                    const struct handles *memories, const struct handles *remotes) {
    size_t count = (size_t)view->shape[0];
    const uint64_t *rows = view->buf;
    size_t taken;
    if (!room_for(segments, count))
        return false;
    if (count <= ROWS_HELD_MOST) {
        taken = take_rows(segments, rows, count, memories, remotes);
    } else {
        Py_BEGIN_ALLOW_THREADS taken = take_rows(segments, rows, count, memories, remotes);
        Py_END_ALLOW_THREADS
    }
    if (taken == count)
        return true;
    PyErr_Format(PyExc_IndexError,
                 "segment %zu names memories[%llu] of %zu and remotes[%llu] of %zu", taken,
                 (unsigned long long)rows[5 * taken], memories->count,
                 (unsigned long long)rows[5 * taken + 2], remotes->count);
    raised_at(taken, true);
    return false;
}

bool segments_from_array(struct segments *segments, EngineObject *engine, PyObject *array,
                         PyObject *memories, PyObject *remotes, bool is_read) {
    struct handles local = {0}, far = {0};
    Py_buffer view;
    if (memories == NULL || remotes == NULL) {
        PyErr_SetString(PyExc_TypeError, "an array of segments goes with memories= and remotes=");
        return false;
    }
    if (PyObject_GetBuffer(array, &view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) != 0)
        return false;
    bool good = check_array(&view) &&
                handles_of(&local, memories, weirpy.memory, engine, "memories", is_read) &&
                handles_of(&far, remotes, weirpy.remote, engine, "remotes", is_read) &&
                rows_of(segments, &view, &local, &far) && segments_keep(segments, local.members) &&
                segments_keep(segments, far.members);
    handles_drop(&local);
    handles_drop(&far);
    PyBuffer_Release(&view);
    return good;
}

/* ---- errors ---------------------------------------------------------------------- */

static bool is_outside(uint64_t offset, uint64_t length, uint64_t whole) {
    return length > whole || offset > whole - length;
}

/* The Remote of this handle among those that are kept; borrowed. NULL: none. */
static const RemoteObject *find_remote(const struct segments *segments, weir_remote handle) {
    for (size_t i = 0; i < segments->kept_count; i++) {
        PyObject *kept = segments->kept[i];
        for (Py_ssize_t j = 0; j < (PyTuple_Check(kept) ? PyTuple_Size(kept) : 1); j++) {
            PyObject *member = PyTuple_Check(kept) ? PyTuple_GetItem(kept, j) : kept;
            if (Py_TYPE(member) == weirpy.remote &&
                ((RemoteObject *)member)->handle.id == handle.id)
                return (RemoteObject *)member;
        }
    }
    return NULL;
}

/* A segment, and what the library knows of its memories. */
struct suspect {
    const weir_segment *segment;
    bool is_local, is_remote; /* whether there is such memory */
    uint64_t here, there;     /* bytes */
    uint32_t access;
};

static bool blame_bounds(const struct suspect *it, char *text, size_t size) {
    const weir_segment *segment = it->segment;
    bool is_local = is_outside(segment->local_offset, segment->length, it->here);
    if (!it->is_local || !it->is_remote ||
        (!is_local && !is_outside(segment->remote_offset, segment->length, it->there)))
        return false;
    PyOS_snprintf(
        text, size, "%llu bytes at %llu of %s memory of %llu", (unsigned long long)segment->length,
        (unsigned long long)(is_local ? segment->local_offset : segment->remote_offset),
        is_local ? "local" : "remote", (unsigned long long)(is_local ? it->here : it->there));
    return true;
}

static bool blame_stale(const struct suspect *it, char *text, size_t size) {
    if (it->is_local && it->is_remote)
        return false;
    PyOS_snprintf(text, size, "%s memory that was released", it->is_local ? "remote" : "local");
    return true;
}

static bool blame_access(const struct suspect *it, bool is_read, char *text, size_t size) {
    uint32_t wanted = is_read ? WEIR_ACCESS_REMOTE_READ : WEIR_ACCESS_REMOTE_WRITE;
    if (!it->is_remote || (it->access & wanted) != 0)
        return false;
    PyOS_snprintf(text, size, "remote memory that its peer does not let us %s",
                  is_read ? "read" : "write");
    return true;
}

static bool blame_peer(const struct segments *segments, const struct suspect *it,
                       const PeerObject *peer, char *text, size_t size) {
    const RemoteObject *remote = find_remote(segments, it->segment->remote);
    char name[WEIR_ADDRESS_MAX];
    if (remote == NULL || remote->peer->handle.id == peer->handle.id)
        return false;
    PyOS_snprintf(text, size, "remote memory of another peer, %.160s",
                  peer_name(remote->peer, name, sizeof(name)));
    return true;
}

Py_ssize_t segments_blame(const struct segments *segments, const PeerObject *peer, int code,
                          bool is_read, char *text, size_t size) {
    text[0] = '\0';
    for (size_t i = 0; i < segments->count; i++) {
        struct suspect it = {.segment = &segments->list[i]};
        char what[224];
        weir_engine *engine = peer->engine->engine;
        bool is_it = false;
        it.is_local = weir_memory_query(engine, it.segment->local, NULL, &it.here) == WEIR_OK;
        it.is_remote =
            weir_remote_query(engine, it.segment->remote, &it.there, &it.access) == WEIR_OK;
        if (code == WEIR_EBOUNDS)
            is_it = blame_bounds(&it, what, sizeof(what));
        else if (code == WEIR_ESTALE)
            is_it = blame_stale(&it, what, sizeof(what));
        else if (code == WEIR_EACCESS)
            is_it = blame_access(&it, is_read, what, sizeof(what));
        else if (code == WEIR_EINVAL)
            is_it = blame_peer(segments, &it, peer, what, sizeof(what));
        if (!is_it)
            continue;
        PyOS_snprintf(text, size, ": segment %zu, %s", i, what);
        return (Py_ssize_t)i;
    }
    return -1;
}
