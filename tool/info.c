/* info.c: `weir info`: what weir_device_query says, and the limits of weir.h. The defaults are
 * those that weir.h states. */
#include <inttypes.h>
#include <stdio.h>

#include <jansson.h>

#include "bench.h"
#include "host.h"
#include "weir.h"

#define DEVICES_MAX 64

static const struct {
    const char *name;
    uint64_t value;
    const char *what;
} defaults[] =
    {
        {"transfers_max", 4096, "live transfer handles"},
        {"segments_max", 262144, "segments of unfinished transfers"},
        {"peers_max", 1024, "peers"},
        {"memories_max", 4096, "local memories"},
        {"remotes_max", 65536, "imported memories"},
        {"qp_count", 1, "QPs of an endpoint"},
        {"sq_depth", 256, "send-queue slots of a QP"},
        {"chain_max", 512, "WRs with one doorbell; a quarter of the depth at most"},
        {"recv_credits", 64, "notifications a peer may have in flight on a QP"},
        {"notifications_max", 4096, "notifications received and not yet taken"},
        {"connect_timeout_ms", 10000, "to connect"},
        {"retransmit_ms", 20, "first control retransmission"},
        {"teardown_timeout_ms", 4000, "forced teardown of a QP"},
        {"settle_grace_ms", 100, "for posted WRs of a cancelled transfer"},
        {"backoff_timeout_us", 10000, "longest wait of WEIR_TRANSFER_BLOCK"},
},
  limits[] = {
      {"address_max", WEIR_ADDRESS_MAX, "bytes of an address"},
      {"descriptor_max", WEIR_DESCRIPTOR_MAX, "bytes of an exported descriptor"},
      {"notify_max", WEIR_NOTIFY_MAX, "bytes of a notification's payload"},
      {"qps_max", WEIR_QPS_MAX, "QPs of an endpoint"},
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

static void print_text(void) {
    weir_device_info device = WEIR_DEVICE_INFO_INIT;

    printf("weir %s\n", weir_version());
    for (size_t i = 0; i < DEVICES_MAX && weir_device_query(i, &device) == 0; i++)
        device_print(&device);
    printf("limits\n");
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
        printf("  %-22s %8" PRIu64 "  %s\n", limits[i].name, limits[i].value, limits[i].what);
    printf("defaults\n");
    for (size_t i = 0; i < sizeof(defaults) / sizeof(defaults[0]); i++)
        printf("  %-22s %8" PRIu64 "  %s\n", defaults[i].name, defaults[i].value, defaults[i].what);
}

static int print_json(void) {
    weir_device_info device = WEIR_DEVICE_INFO_INIT;
    json_t *devices = json_array(), *limit = json_object(), *chosen = json_object(), *root;
    int rc;

    for (size_t i = 0; i < DEVICES_MAX && weir_device_query(i, &device) == 0; i++)
        json_array_append_new(devices, device_json(&device));
    for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
        json_object_set_new(limit, limits[i].name, json_integer((json_int_t)limits[i].value));
    for (size_t i = 0; i < sizeof(defaults) / sizeof(defaults[0]); i++)
        json_object_set_new(chosen, defaults[i].name, json_integer((json_int_t)defaults[i].value));
    root = json_pack("{s:s, s:o, s:o, s:o}", "weir", weir_version(), "devices", devices, "limits",
                     limit, "defaults", chosen);
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
