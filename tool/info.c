/* SPDX-License-Identifier: Apache-2.0 */
/* info.c: `weir info`: what weir_device_query, weir_setting_query, weir_device_setting_query and
 * weir_stray_query say, the limits of weir.h, and the addresses of this host. */
#define _GNU_SOURCE
#include <ifaddrs.h>
#include <inttypes.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "bench.h"
#include "host.h"
#include "settings.h"
#include "weir_settings.h"

#define DEVICES_MAX 64

static const struct {
    const char *name;
    uint64_t value;
    const char *what;
} limits[] = {
    {"address_max", WEIR_ADDRESS_MAX, "bytes of an address"},
    {"descriptor_max", WEIR_DESCRIPTOR_MAX, "bytes of an exported descriptor"},
    {"notify_max", WEIR_NOTIFY_MAX, "bytes of a notification's payload"},
    {"qps_max", WEIR_QPS_MAX, "QPs of an endpoint"},
    {"sges_max", 1, "SGEs of a WR; more pieces are more WRs"},
};

static json_t *device_json(const weir_device_info *d) {
    return json_pack("{s:s, s:b, s:s, s:s, s:I, s:I, s:I, s:b, s:b, s:I, s:I, s:I}", "name",
                     d->name, "available", d->available == 0, "status", weir_strerror(d->available),
                     "note", d->note, "message_bytes_max", (json_int_t)d->message_bytes_max,
                     "inline_bytes_max", (json_int_t)d->inline_bytes_max, "sq_depth_max",
                     (json_int_t)d->sq_depth_max, "ordered", d->ordered != 0, "completes_inline",
                     d->completes_inline != 0, "engine_bytes", (json_int_t)d->engine_bytes,
                     "address_bytes", (json_int_t)d->address_bytes, "qps_max",
                     (json_int_t)d->qps_max);
}

static void device_print(const weir_device_info *d) {
    char text[32];

    printf("device %s: %s\n", d->name,
           d->available == 0 ? "available" : weir_strerror(d->available));
    if (d->note[0] != '\0')
        printf("  %s\n", d->note);
    if (d->message_bytes_max != 0) { /* of a device that is not there all of this is 0 */
        printf("  longest message        %s\n", options_size_text(d->message_bytes_max, text));
        printf("  inline payload         %" PRIu32 " B\n", d->inline_bytes_max);
        printf("  send-queue depth       at most %" PRIu32 "\n", d->sq_depth_max);
        if (d->qps_max != 0)
            printf("  QPs of an engine       at most %" PRIu32 "\n", d->qps_max);
        printf("  ordered                %s\n", d->ordered ? "yes" : "no");
        printf("  completes in the post  %s\n", d->completes_inline ? "yes" : "no");
    }
    printf("  memory of an engine    %s\n", options_size_text(d->engine_bytes, text));
    printf("  address space of one   %s, backed as it is used\n",
           options_size_text(d->address_bytes, text));
}

static void setting_print(const weir_setting_info *s) {
    char value[32];

    printf("  %-26s %13s  %-11s  %" PRIu64 "..%" PRIu64 "\n", s->variable,
           settings_number_text(s->value, s->unit, value), settings_source_text(s->source),
           s->least, s->most);
    printf("    %s\n", s->what);
    if (s->note[0] != '\0')
        printf("    %s%s\n", s->status != 0 ? "refused: " : "", s->note);
}

/* The index-th device to be told of: all, or the one that is asked for. */
static bool device_at(const struct options *options, size_t index, weir_device_info *device) {
    weir_engine_options asked = WEIR_ENGINE_OPTIONS_INIT;

    asked.device = options->device;
    if (options->device == NULL)
        return index < DEVICES_MAX && weir_device_query(index, device) == 0;
    return index == 0 && weir_device_choose(&asked, device) == 0;
}

static bool device_setting_at(const struct options *options, size_t index, weir_setting_info *s) {
    weir_engine_options asked = WEIR_ENGINE_OPTIONS_INIT;

    asked.device = options->device;
    if (index >= SETTINGS_MAX)
        return false;
    return (options->device == NULL ? weir_device_setting_query(index, s)
                                    : weir_engine_setting_query(&asked, index, s)) == 0;
}

static void device_settings_print(const struct options *options) {
    weir_setting_info s = WEIR_SETTING_INFO_INIT;
    char value[32], range[64];
    const char *device = "";

    for (size_t i = 0; device_setting_at(options, i, &s); i++) {
        if (strcmp(device, s.name) != 0)
            printf("settings of the device %s\n", s.name);
        device = s.name;
        snprintf(range, sizeof(range), "%" PRIu64 "..%" PRIu64, s.least, s.most);
        printf("    %-24s %13s  %-11s  %s\n", s.variable,
               s.text[0] != '\0' ? s.text : settings_number_text(s.value, s.unit, value),
               settings_source_text(s.source), s.most > 0 ? range : "text");
        printf("      %s\n", s.what);
        if (s.note[0] != '\0')
            printf("      refused: %s\n", s.note);
    }
}

/* Of no use without the name of an interface of the peer's. */
static bool is_link_local(const struct sockaddr *address) {
    return address->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
}

/* Where peers reach an engine on this host: what it may listen at, in numbers. Loopback comes
 * last, which is for peers on the host alone. */
static json_t *addresses(void) {
    json_t *all = json_array();
    struct ifaddrs *found = NULL;
    char host[NI_MAXHOST], text[NI_MAXHOST + 2];

    if (getifaddrs(&found) != 0)
        return all;
    for (int loopback = 0; loopback < 2; loopback++) {
        for (const struct ifaddrs *at = found; at != NULL; at = at->ifa_next) {
            int family = at->ifa_addr != NULL ? at->ifa_addr->sa_family : AF_UNSPEC;
            socklen_t length =
                family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);

            if ((family != AF_INET && family != AF_INET6) || (at->ifa_flags & IFF_UP) == 0 ||
                ((at->ifa_flags & IFF_LOOPBACK) != 0) != (loopback == 1) ||
                is_link_local(at->ifa_addr) ||
                getnameinfo(at->ifa_addr, length, host, sizeof(host), NULL, 0, NI_NUMERICHOST) != 0)
                continue;
            snprintf(text, sizeof(text), family == AF_INET6 ? "[%s]" : "%s", host);
            json_array_append_new(all, json_string(text));
        }
    }
    freeifaddrs(found);
    return all;
}

/* The host that an engine at all addresses names to who asks it: "" if there is none. */
static void host_of_all(char out[WEIR_ADDRESS_MAX]) {
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    weir_engine *engine;

    options.listen = "0.0.0.0:0";
    options.transfers_max = options.segments_max = options.peers_max = 1;
    options.memories_max = options.remotes_max = options.notifications_max = 1;
    out[0] = '\0';
    if (weir_engine_open(&options, &engine) != 0)
        return;
    if (weir_engine_address(engine, out, WEIR_ADDRESS_MAX) == 0)
        *strrchr(out, ':') = '\0';
    weir_engine_close(engine);
}

static void addresses_print(void) {
    char host[WEIR_ADDRESS_MAX];
    json_t *all = addresses(), *one;
    size_t i;

    printf("addresses of this host\n");
    json_array_foreach(all, i, one) {
        printf("  %s\n", json_string_value(one));
    }
    host_of_all(host);
    if (host[0] != '\0')
        printf("  behind --listen 0.0.0.0:PORT peers are told one by --advertise %s\n", host);
    json_decref(all);
}

static void print_text(const struct options *options) {
    weir_device_info device = WEIR_DEVICE_INFO_INIT;
    weir_setting_info setting = WEIR_SETTING_INFO_INIT;
    weir_stray_info stray = WEIR_STRAY_INFO_INIT;

    printf("weir %s\n", weir_version());
    for (size_t i = 0; device_at(options, i, &device); i++)
        device_print(&device);
    printf("limits\n");
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
        printf("  %-22s %8" PRIu64 "  %s\n", limits[i].name, limits[i].value, limits[i].what);
    addresses_print();
    printf("settings\n");
    for (size_t i = 0; i < SETTINGS_MAX && weir_setting_query(NULL, i, &setting) == 0; i++)
        setting_print(&setting);
    device_settings_print(options);
    for (size_t i = 0; weir_stray_query(i, &stray) == 0; i++)
        printf("%s  %s\n", i == 0 ? "variables that nobody reads\n" : "", stray.note);
}

static int print_json(const struct options *options) {
    weir_device_info device = WEIR_DEVICE_INFO_INIT;
    weir_setting_info setting = WEIR_SETTING_INFO_INIT;
    json_t *devices = json_array(), *limit = json_object(), *settings = json_array();
    json_t *of_devices = json_array(), *root;

    for (size_t i = 0; device_at(options, i, &device); i++)
        json_array_append_new(devices, device_json(&device));
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
        json_object_set_new(limit, limits[i].name, json_integer((json_int_t)limits[i].value));
    for (size_t i = 0; i < SETTINGS_MAX && weir_setting_query(NULL, i, &setting) == 0; i++)
        json_array_append_new(settings, settings_describe(&setting));
    for (size_t i = 0; device_setting_at(options, i, &setting); i++)
        json_array_append_new(of_devices, settings_describe(&setting));
    root = json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "weir", weir_version(), "devices",
                     devices, "limits", limit, "addresses", addresses(), "settings", settings,
                     "device_settings", of_devices, "strays", settings_strays());
    if (root == NULL)
        return complain("info: out of memory");
    json_dumpf(root, stdout, JSON_INDENT(2)); /* main says whether it could be written */
    putchar('\n');
    json_decref(root);
    return 0;
}

/* Whether an engine that were opened now would be refused: 0, or -1 after complaining. */
static int look_for_refused(const struct options *options) {
    weir_device_info device = WEIR_DEVICE_INFO_INIT;
    weir_setting_info setting = WEIR_SETTING_INFO_INIT;

    for (size_t i = 0; i < SETTINGS_MAX && weir_setting_query(NULL, i, &setting) == 0; i++) {
        if (setting.status != 0)
            return complain("info: %s (%s)", setting.note, weir_error_name(setting.status));
    }
    for (size_t i = 0; device_at(options, i, &device); i++) {
        if (device.available == WEIR_EINVAL || (options->device != NULL && device.available != 0))
            return complain("info: device %s: %s (%s)",
                            options->device != NULL ? options->device : device.name, device.note,
                            weir_error_name(device.available));
    }
    return 0;
}

int info_print(const struct options *options) {
    if (!options->json_flag)
        print_text(options);
    else if (print_json(options) != 0)
        return EXIT_FAILED;
    return look_for_refused(options) == 0 ? EXIT_OK : EXIT_FAILED;
}
