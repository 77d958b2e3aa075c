/* info.c: `weir info`: what weir_device_query and weir_setting_query say, and the limits of
 * weir.h. */
#include <inttypes.h>
#include <stdio.h>

#include <jansson.h>

#include "bench.h"
#include "host.h"
#include "weir.h"

#define DEVICES_MAX  64
#define SETTINGS_MAX 256

static const struct {
    const char *name;
    uint64_t value;
    const char *what;
} limits[] = {
    {"address_max", WEIR_ADDRESS_MAX, "bytes of an address"},
    {"descriptor_max", WEIR_DESCRIPTOR_MAX, "bytes of an exported descriptor"},
    {"notify_max", WEIR_NOTIFY_MAX, "bytes of a notification's payload"},
    {"qps_max", WEIR_QPS_MAX, "QPs of an endpoint"},
    {"sges_max", 1, "SGEs of a WR: pieces are WRs of their own, chained"},
};

static json_t *device_json(const weir_device_info *d) {
    return json_pack("{s:s, s:b, s:s, s:s, s:I, s:I, s:I, s:b, s:b, s:I}", "name", d->name,
                     "available", d->available == 0, "status", weir_strerror(d->available), "note",
                     d->note, "message_bytes_max", (json_int_t)d->message_bytes_max,
                     "inline_bytes_max", (json_int_t)d->inline_bytes_max, "sq_depth_max",
                     (json_int_t)d->sq_depth_max, "ordered", d->ordered != 0, "completes_inline",
                     d->completes_inline != 0, "engine_bytes", (json_int_t)d->engine_bytes);
}

static void device_print(const weir_device_info *d) {
    char text[32];

    printf("device %s: %s\n", d->name,
           d->available == 0 ? "available" : weir_strerror(d->available));
    if (d->note[0] != '\0')
        printf("  %s\n", d->note);
    printf("  longest message        %s\n", options_size_text(d->message_bytes_max, text));
    printf("  inline payload         %" PRIu32 " B\n", d->inline_bytes_max);
    printf("  send-queue depth       at most %" PRIu32 "\n", d->sq_depth_max);
    printf("  ordered                %s\n", d->ordered ? "yes" : "no");
    printf("  completes in the post  %s\n", d->completes_inline ? "yes" : "no");
    printf("  memory of an engine    %s\n", options_size_text(d->engine_bytes, text));
}

/* "4096", "10000 ms", "auto". */
static const char *number_text(uint64_t value, const char *unit, char out[32]) {
    if (value == WEIR_SETTING_AUTO)
        snprintf(out, 32, "auto");
    else
        snprintf(out, 32, "%" PRIu64 "%s%s", value, unit[0] != '\0' ? " " : "", unit);
    return out;
}

static const char *source_text(uint32_t source) {
    return source == WEIR_SETTING_DEFAULT       ? "default"
           : source == WEIR_SETTING_ENVIRONMENT ? "environment"
                                                : "option";
}

static void setting_print(const weir_setting_info *s) {
    char value[32];

    printf("  %-26s %13s  %-11s  %" PRIu64 "..%" PRIu64 "\n", s->variable,
           number_text(s->value, s->unit, value), source_text(s->source), s->least, s->most);
    printf("    %s\n", s->what);
    if (s->status != 0)
        printf("    refused: %s\n", s->note);
}

static json_t *number_json(uint64_t value) {
    return value == WEIR_SETTING_AUTO ? json_null() : json_integer((json_int_t)value);
}

/* What the environment has is not always UTF-8; what the note shows of it is. */
static json_t *setting_json(const weir_setting_info *s) {
    return json_pack("{s:s, s:s, s:o, s:s, s:s, s:o, s:I, s:I, s:s, s:b, s:s}", "name", s->name,
                     "variable", s->variable, "value", number_json(s->value), "unit", s->unit,
                     "source", source_text(s->source), "default", number_json(s->fallback), "least",
                     (json_int_t)s->least, "most", (json_int_t)s->most, "what", s->what, "refused",
                     s->status != 0, "note", s->note);
}

static void print_text(void) {
    weir_device_info device = WEIR_DEVICE_INFO_INIT;
    weir_setting_info setting = WEIR_SETTING_INFO_INIT;

    printf("weir %s\n", weir_version());
    for (size_t i = 0; i < DEVICES_MAX && weir_device_query(i, &device) == 0; i++)
        device_print(&device);
    printf("limits\n");
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
        printf("  %-22s %8" PRIu64 "  %s\n", limits[i].name, limits[i].value, limits[i].what);
    printf("settings\n");
    for (size_t i = 0; i < SETTINGS_MAX && weir_setting_query(NULL, i, &setting) == 0; i++)
        setting_print(&setting);
}

static int print_json(void) {
    weir_device_info device = WEIR_DEVICE_INFO_INIT;
    weir_setting_info setting = WEIR_SETTING_INFO_INIT;
    json_t *devices = json_array(), *limit = json_object(), *settings = json_array(), *root;
    int rc;

    for (size_t i = 0; i < DEVICES_MAX && weir_device_query(i, &device) == 0; i++)
        json_array_append_new(devices, device_json(&device));
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
        json_object_set_new(limit, limits[i].name, json_integer((json_int_t)limits[i].value));
    for (size_t i = 0; i < SETTINGS_MAX && weir_setting_query(NULL, i, &setting) == 0; i++)
        json_array_append_new(settings, setting_json(&setting));
    root = json_pack("{s:s, s:o, s:o, s:o}", "weir", weir_version(), "devices", devices, "limits",
                     limit, "settings", settings);
    rc = root == NULL ? -1 : json_dumpf(root, stdout, JSON_INDENT(2));
    putchar('\n');
    json_decref(root);
    return rc == 0 ? 0 : complain("info: the JSON cannot be written");
}

int info_print(const struct options *options) {
    if (options->json_flag)
        return print_json() == 0 ? EXIT_OK : EXIT_FAILED;
    print_text();
    return EXIT_OK;
}
