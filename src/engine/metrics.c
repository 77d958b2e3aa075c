/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.c: an engine's counters as text for collectors of metrics.
 *
 * Owns the names under which counters are known outside. Two formats: OpenMetrics 1.0
 * (https://prometheus.io/docs/specs/om/open_metrics_spec/), and Prometheus' text format 0.0.4,
 * which differs in where "_total" stands, in units, and in its end. */
#include "state.h"
#include "text.h"

#include <inttypes.h>
#include <stdio.h>

/* A counter is weir_<name>, and only grows, unless this table says otherwise. OpenMetrics wants a
 * unit at the end of the name. */
static const struct outside {
    const char *counter;
    const char *name;
    const char *unit; /* NULL: none */
    bool gauge;       /* goes down, too, or is no sum */
} outside[] = {
    {"bytes_written", "written_bytes", "bytes", false},
    {"bytes_read", "read_bytes", "bytes", false},
    {"inflight_bytes", "inflight_bytes", "bytes", true},
    {"inflight_bytes_high_water", "inflight_high_water_bytes", "bytes", true},
};

/* The lines before the samples of one name. The total of a counter is a name of its own for
 * Prometheus, and a suffix of the sample for OpenMetrics. */
static void begin(struct text *text, bool open, const struct outside *of, const char *help) {
    const char *total = !open && !of->gauge ? "_total" : "";
    text_say(text, "# HELP weir_%s%s %s\n", of->name, total, help);
    text_say(text, "# TYPE weir_%s%s %s\n", of->name, total, of->gauge ? "gauge" : "counter");
    if (open && of->unit != NULL)
        text_say(text, "# UNIT weir_%s %s\n", of->name, of->unit);
}

static void put(struct text *text, bool open, const char *counter, const char *help,
                uint64_t value) {
    struct outside plain = {.name = counter};
    const struct outside *of = &plain;
    for (size_t i = 0; i < sizeof(outside) / sizeof(outside[0]); i++) {
        if (strcmp(outside[i].counter, counter) == 0)
            of = &outside[i];
    }
    begin(text, open, of, help);
    text_say(text, "weir_%s%s %" PRIu64 "\n", of->name, of->gauge ? "" : "_total", value);
}

static void put_all(struct text *text, bool open, const char *device,
                    const weir_engine_info *info) {
    text_say(text, "# HELP weir%s the library and the device of this engine\n",
             open ? "" : "_info");
    text_say(text, "# TYPE weir%s %s\n", open ? "" : "_info", open ? "info" : "gauge");
    text_say(text, "weir_info{version=\"%s\",device=\"%s\"} 1\n", weir_version(), device);
#define WEIR_COUNTERS_X(name, help) put(text, open, #name, help, info->name);
    WEIR_COUNTERS(WEIR_COUNTERS_X)
#undef WEIR_COUNTERS_X
    if (open)
        text_say(text, "# EOF\n");
}

/* The room for counters of any value. */
static size_t room_for(bool open, const char *device) {
    struct text none = {0};
    weir_engine_info longest = WEIR_ENGINE_INFO_INIT;
#define WEIR_COUNTERS_X(name, help) longest.name = UINT64_MAX;
    WEIR_COUNTERS(WEIR_COUNTERS_X)
#undef WEIR_COUNTERS_X
    put_all(&none, open, device, &longest);
    return none.length + 1;
}

int weir_engine_metrics(weir_engine *engine, uint32_t format, char *text_out, size_t text_size,
                        size_t *length_out) {
    weir_engine_info info = WEIR_ENGINE_INFO_INIT;
    if (engine == NULL || length_out == NULL || format > WEIR_METRICS_PROMETHEUS)
        return WEIR_EINVAL;
    if (engine->forked)
        return WEIR_ECLOSED;
    bool open = format == WEIR_METRICS_OPENMETRICS;
    const char *device = engine->device_ops->name;
    size_t room = room_for(open, device);
    if (text_out == NULL) {
        *length_out = room;
        return WEIR_OK;
    }
    if (text_size < room)
        return WEIR_ETOOBIG;
    int rc = weir_engine_query(engine, &info);
    if (rc != WEIR_OK)
        return rc;
    struct text text = {.out = text_out, .size = text_size};
    put_all(&text, open, device, &info);
    *length_out = text.length;
    return WEIR_OK;
}
