/* SPDX-License-Identifier: Apache-2.0 */
/* trace_text.c: what was recorded of an engine, for a person, or as JSON for a viewer.
 *
 * Owns the sentences of records, for engines of this process and of others: both are read from the
 * recorder's memory, which may be written meanwhile, and of another process may hold anything. The
 * JSON is the trace-event format that Perfetto and chrome://tracing show: a track for each handle,
 * with each record as an instant, and sessions and stalls as spans. */
#include "trace.h"

#include "os.h"
#include "text.h"
#include "wire.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

enum {
    HEAD_BYTES = 512,     /* of a text, beside its records */
    LINE_BYTES_MAX = 320, /* of a record, at most, */
    EVENT_BYTES = 960,    /* and in JSON, with the name of its track and the span that it begins */
    WHAT_BYTES = 208
};
_Static_assert(HEAD_BYTES + EVENT_BYTES <= WEIR_TRACE_MIN, "one record has room");

/* The memory of a recorder, and which of its records a text is of. */
struct history {
    const void *memory;
    size_t bytes;
    struct recorder_owner owner;
    uint64_t first, end, all;
};

static const struct {
    const char *name, *what, *a, *b;
} kinds[] = {
#define TRACE_X(kind, what, a, b) {#kind, what, a, b},
    TRACE_KINDS(TRACE_X)
#undef TRACE_X
};

/* ---- parts of a record ------------------------------------------------- */

/* Printable ASCII without what JSON or a terminal would read as more. */
static void clean(char *text) {
    for (; *text != '\0'; text++) {
        if (*text < 0x20 || *text > 0x7e || *text == '"' || *text == '\\')
            *text = '?';
    }
}

static void name_of(const struct history *history, uint64_t handle, char name_out[RECORDER_NAME]) {
    recorder_read_name(history->memory, history->bytes, handle, name_out);
    clean(name_out);
}

/* The name of a word's number: ASK and STATE count questions. */
static const char *name_of_number(const struct record *record, const char *name) {
    bool word = record->kind == TRACE_said || record->kind == TRACE_heard;
    bool question = word && (record->a == WIRE_ASK || record->a == WIRE_STATE);
    return question && name != NULL && strcmp(name, "epoch") == 0 ? "question" : name;
}

/* A number of a record under its name, as both formats have it. */
static void number(const struct record *record, const char *name_given, uint64_t value, char *out,
                   size_t size) {
    const char *name = name_of_number(record, name_given);
    bool stalled = record->a == WEIR_EVENT_STALLED;
    bool reason = (int64_t)value < 0 && (int64_t)value > INT32_MIN;
    int small = value <= INT32_MAX ? (int)value : -1;
    bool counts = name != NULL && strcmp(name, "QP") == 0; /* from 0; elsewhere 0 says nothing */
    if (name == NULL || (value == 0 && !counts && !(strcmp(name, "@cause") == 0 && stalled)))
        out[0] = '\0';
    else if (strcmp(name, "@event") == 0)
        snprintf(out, size, "%s", weir_event_name(small));
    else if (strcmp(name, "@word") == 0)
        snprintf(out, size, "%s", wire_type_name((enum wire_type)(small < 0 ? 0 : small)));
    else if (strcmp(name, "@cause") == 0 && stalled)
        snprintf(out, size, "%s", weir_stall_cause_name(small));
    else if (strcmp(name, "@ns") == 0)
        snprintf(out, size, "for %" PRIu64 ".%01u ms", value / 1000000,
                 (unsigned)(value / 100000 % 10));
    else if (name[0] == '@' && reason) /* of GONE */
        snprintf(out, size, "%s", weir_error_name((int)(int64_t)value));
    else if (name[0] == '@')
        snprintf(out, size, "%" PRIu64, value);
    else
        snprintf(out, size, "%s %" PRIu64, name, value);
}

/* "a session is up: epoch 3, epoch there 4 (WEIR_EPEER)" */
static void describe(const struct record *record, char *out, size_t size) {
    char a[64], b[64], error[40] = "";
    number(record, kinds[record->kind].a, record->a, a, sizeof(a));
    number(record, kinds[record->kind].b, record->b, b, sizeof(b));
    if (record->error != 0)
        snprintf(error, sizeof(error), " (%s)", weir_error_name(record->error));
    snprintf(out, size, "%s%s%s%s%s%s", kinds[record->kind].what, a[0] != '\0' ? ": " : "", a,
             b[0] != '\0' ? ", " : "", b, error);
}

/* False: it was overwritten, or is of no kind that is known here. */
static bool record_at(const struct history *history, uint64_t at, struct record *record_out) {
    return recorder_read(history->memory, at, record_out) && record_out->kind < TRACE_KIND_COUNT;
}

/* ---- text -------------------------------------------------------------- */

static void say_head(struct text *text, const struct history *history) {
    struct recorder_owner owner = history->owner;
    char opened[32] = "at an unknown time";
    time_t when = (time_t)owner.opened_unix;
    struct tm utc;
    clean(owner.device);
    clean(owner.address);
    if (owner.opened_unix != 0 && gmtime_r(&when, &utc) != NULL)
        strftime(opened, sizeof(opened), "at %Y-%m-%d %H:%M:%SZ", &utc);
    text_say(text,
             "engine of process %" PRId64
             ", device %s, listening %s%s, opened %s; changes of state: "
             "%" PRIu64 ", here the last %" PRIu64 "\n",
             owner.pid, owner.device, owner.address[0] != '\0' ? "at " : "nowhere", owner.address,
             opened, history->all, history->end - history->first);
}

static void say_record(struct text *text, const struct history *history,
                       const struct record *record) {
    uint64_t us = (record->ns - history->owner.opened_ns) / 1000;
    char what[WHAT_BYTES], name[RECORDER_NAME];
    describe(record, what, sizeof(what));
    name_of(history, record->handle, name);
    text_say(text, "%6" PRIu64 ".%06" PRIu64 " ", us / 1000000, us % 1000000);
    if (record->handle != 0)
        text_say(text, "%s%s0x%" PRIx64 "%s: ", name, name[0] != '\0' ? " (" : "", record->handle,
                 name[0] != '\0' ? ")" : "");
    else if (record->kind == TRACE_heard || record->kind == TRACE_said)
        text_say(text, "somebody ");
    text_say(text, "%s\n", what);
}

static void say_all(struct text *text, const struct history *history) {
    struct record record;
    say_head(text, history);
    for (uint64_t i = history->first; i < history->end; i++) {
        if (record_at(history, i, &record))
            say_record(text, history, &record);
    }
}

/* ---- JSON -------------------------------------------------------------- */

/* The track of a handle, a positive int. That of the engine is 0. */
static uint64_t track(uint64_t handle) {
    return handle & INT32_MAX;
}

static void event_begin(struct text *text, const struct history *history,
                        const struct record *record, const char *phase) {
    uint64_t ns = record->ns - history->owner.opened_ns;
    text_say(text,
             ",\n{\"ph\":\"%s\",\"pid\":%" PRId64 ",\"tid\":%" PRIu64 ",\"ts\":%" PRIu64 ".%03u",
             phase, history->owner.pid, track(record->handle), ns / 1000, (unsigned)(ns % 1000));
}

/* A span of a handle: a session, or a stall. */
static void span(struct text *text, const struct history *history, const struct record *record,
                 const char *name, bool begins) {
    event_begin(text, history, record, begins ? "b" : "e");
    text_say(text, ",\"cat\":\"%s\",\"name\":\"%s\",\"id\":\"%s-%" PRIx64 "-%" PRIu64 "\"}", name,
             name, name, record->handle, record->kind == TRACE_event ? 0 : record->a);
}

static void spans(struct text *text, const struct history *history, const struct record *record) {
    bool told = record->kind == TRACE_event;
    if (record->kind == TRACE_session_up)
        span(text, history, record, "session", true);
    if (record->kind == TRACE_session_over)
        span(text, history, record, "session", false);
    if (told && record->a == WEIR_EVENT_STALLED)
        span(text, history, record, "stall", true);
    if (told && (record->a == WEIR_EVENT_RESUMED || record->a == WEIR_EVENT_GONE))
        span(text, history, record, "stall", false);
}

static void instant(struct text *text, const struct history *history, const struct record *record) {
    char what[WHAT_BYTES];
    describe(record, what, sizeof(what));
    event_begin(text, history, record, "i");
    text_say(text,
             ",\"s\":\"t\",\"name\":\"%s\",\"args\":{\"kind\":\"%s\",\"a\":%" PRIu64
             ",\"b\":%" PRIu64 ",\"error\":%d}}",
             what, kinds[record->kind].name, record->a, record->b, record->error);
}

/* The name of a track, at the first record that is of its handle. */
static void track_name(struct text *text, const struct history *history,
                       const struct record *record) {
    char name[RECORDER_NAME];
    name_of(history, record->handle, name);
    text_say(text,
             ",\n{\"ph\":\"M\",\"pid\":%" PRId64 ",\"tid\":%" PRIu64
             ",\"name\":\"thread_name\",\"args\":{\"name\":\"%s%s0x%" PRIx64 "%s\"}}",
             history->owner.pid, track(record->handle), name, name[0] != '\0' ? " (" : "",
             record->handle, name[0] != '\0' ? ")" : "");
}

static void say_events(struct text *text, const struct history *history) {
    struct record record, before = {0};
    text_say(text,
             "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n{\"ph\":\"M\",\"pid\":%" PRId64
             ",\"tid\":0,\"name\":\"thread_name\",\"args\":{\"name\":\"engine\"}}",
             history->owner.pid);
    for (uint64_t i = history->first; i < history->end; i++) {
        if (!record_at(history, i, &record))
            continue;
        if (record.handle != 0 && record.handle != before.handle)
            track_name(text, history, &record);
        if (record.handle != 0)
            before = record;
        instant(text, history, &record);
        spans(text, history, &record);
    }
    text_say(text, "\n]}\n");
}

/* ---- the calls --------------------------------------------------------- */

static size_t bytes_each(uint32_t format) {
    return format == WEIR_TRACE_JSON ? EVENT_BYTES : LINE_BYTES_MAX;
}

static size_t room_for_all(uint32_t format) {
    return HEAD_BYTES + (RECORDER_RECORDS - 1) * bytes_each(format);
}

static int check(uint32_t format, const char *text_out, size_t text_size,
                 const size_t *length_out) {
    if (length_out == NULL || format > WEIR_TRACE_JSON ||
        (text_out != NULL && text_size < WEIR_TRACE_MIN))
        return WEIR_EINVAL;
    return WEIR_OK;
}

/* The newest records that surely have room. pid: the process as whoever asks knows it, whose
 * namespace may be another; 0: as it knows itself. */
static int write_out(const void *memory, size_t bytes, int64_t pid, uint32_t format, char *text_out,
                     size_t text_size, size_t *length_out) {
    struct history history = {.memory = memory, .bytes = bytes};
    struct text text = {.out = text_out, .size = text_size};
    uint64_t most = (text_size - HEAD_BYTES) / bytes_each(format);
    recorder_read_owner(memory, &history.owner);
    if (pid != 0)
        history.owner.pid = pid;
    recorder_range(memory, &history.first, &history.end);
    history.all = history.end;
    if (history.end - history.first > most)
        history.first = history.end - most;
    if (format == WEIR_TRACE_JSON)
        say_events(&text, &history);
    else
        say_all(&text, &history);
    *length_out = text.length < text_size ? text.length : text_size - 1;
    return WEIR_OK;
}

int weir_engine_trace(weir_engine *engine, uint32_t format, char *text_out, size_t text_size,
                      size_t *length_out) {
    int rc = engine != NULL ? check(format, text_out, text_size, length_out) : WEIR_EINVAL;
    if (rc != WEIR_OK)
        return rc;
    if (engine->forked)
        return WEIR_ECLOSED;
    if (engine->ports.recorder.memory == NULL) /* one that is simulated */
        return WEIR_ENOTSUP;
    if (text_out == NULL) {
        *length_out = room_for_all(format);
        return WEIR_OK;
    }
    return write_out(engine->ports.recorder.memory, engine->ports.recorder.bytes, 0, format,
                     text_out, text_size, length_out);
}

int weir_process_trace(int64_t pid, size_t index, uint32_t format, char *text_out, size_t text_size,
                       size_t *length_out) {
    struct shared shared;
    int rc = pid > 0 ? check(format, text_out, text_size, length_out) : WEIR_EINVAL;
    if (rc != WEIR_OK)
        return rc;
    rc = shared_find(pid, index, &shared);
    if (rc != WEIR_OK)
        return rc;
    if (!recorder_is_begun(shared.base, shared.bytes))
        rc = WEIR_ENOTREADY;
    else if (!recorder_is_one(shared.base, shared.bytes))
        rc = WEIR_ENOTSUP;
    else if (text_out == NULL)
        *length_out = room_for_all(format);
    else
        rc = write_out(shared.base, shared.bytes, pid, format, text_out, text_size, length_out);
    shared_forget(&shared);
    return rc;
}
