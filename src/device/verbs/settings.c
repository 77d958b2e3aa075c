/* SPDX-License-Identifier: Apache-2.0 */
/* settings.c: the settings of the verbs backend: environment variables, and what is named.
 *
 * Owns their names, ranges and defaults, and the line that says what is wrong with one.
 * Left to others: whether the device has such a port, GID, P_Key or MTU (select.c). */
#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verbs.h"

struct rule {
    const char *name;
    size_t offset;
    int fallback;
    int min;
    int max;
    const char *what;
    const char *hint; /* why not more or less; "" */
};

#define AT(member) offsetof(struct verbs_settings, member)
/* Codes of InfiniBand's QP attributes (ibv_modify_qp(3)). timeout 0 waits for ever, rnr_retry
 * 7 retries for ever, min_rnr_timer 0 is 655 ms: none of them is let through. 14 is 67 ms,
 * 12 is 0.64 ms. A retry_cnt of 7 is finite, but not to Soft-RoCE, so it is not the default. */
static const struct rule rules[] = {
    {"WEIR_VERBS_PORT", AT(port), VERBS_UNSET, 1, 255, "port of the device", ""},
    {"WEIR_VERBS_GID_INDEX", AT(gid_index), VERBS_UNSET, 0, 255, "entry of the port's GID table",
     ""},
    {"WEIR_VERBS_PKEY_INDEX", AT(pkey_index), VERBS_UNSET, 0, 65535,
     "entry of the port's P_Key table", ""},
    {"WEIR_VERBS_MTU", AT(mtu), VERBS_UNSET, 256, 4096, "bytes of the path MTU, at most", ""},
    {"WEIR_VERBS_TRAFFIC_CLASS", AT(traffic_class), 0, 0, 255, "GRH traffic class: DSCP and ECN",
     ""},
    {"WEIR_VERBS_SERVICE_LEVEL", AT(service_level), 0, 0, 15, "service level of the packets", ""},
    {"WEIR_VERBS_TIMEOUT", AT(timeout), 14, 1, 31, "4.096 us * 2^n to wait for an ACK",
     " (4.096 us * 2^n; 0 would wait for ever)"},
    {"WEIR_VERBS_RETRY_CNT", AT(retry_cnt), 6, 0, 7, "retries without an ACK", ""},
    {"WEIR_VERBS_RNR_RETRY", AT(rnr_retry), 6, 0, 6, "retries where no receive was ready",
     " (7 would retry for ever)"},
    {"WEIR_VERBS_MIN_RNR_TIMER", AT(min_rnr_timer), 12, 1, 31,
     "code of the time before such a retry", " (0 would be 655 ms)"},
    {"WEIR_VERBS_SRQ", AT(srq), VERBS_UNSET, 0, 1, "a shared receive queue, also one too short",
     ""},
};
enum { RULES = sizeof rules / sizeof rules[0] };

static const char device_name[] = "WEIR_VERBS_DEVICE";

void note_clean(char *text) {
    for (; *text != '\0'; text++) { /* ASCII, whatever the locale is */
        if (*text < ' ' || *text > '~')
            *text = '?';
    }
}

static int read_number(const char *text, const struct rule *rule, int *value_out) {
    if (!isdigit((unsigned char)text[0]))
        return WEIR_EINVAL;
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno != 0 || *end != '\0' || value < rule->min || value > rule->max)
        return WEIR_EINVAL;
    *value_out = (int)value;
    return WEIR_OK;
}

/* EINVAL: *value_out is the default. */
static int read_rule(const struct rule *rule, const struct setting_source *source, int *value_out,
                     char note_out[VERBS_NOTE_MAX]) {
    const char *text = source_text(source, rule->name), *name = source_name(source, rule->name);
    *value_out = rule->fallback;
    if (text == NULL)
        return WEIR_OK;
    int value;
    int rc = read_number(text, rule, &value);
    bool no_mtu = rule->offset == AT(mtu) && (rc != WEIR_OK || mtu_code((uint32_t)value) == 0);
    if (no_mtu)
        snprintf(note_out, VERBS_NOTE_MAX, "%s=%.24s: not 256, 512, 1024, 2048 or 4096", name,
                 text);
    else if (rc != WEIR_OK)
        snprintf(note_out, VERBS_NOTE_MAX, "%s=%.24s: not a number from %d to %d%s", name, text,
                 rule->min, rule->max, rule->hint);
    if (no_mtu || rc != WEIR_OK) {
        note_clean(note_out);
        return WEIR_EINVAL;
    }
    *value_out = value;
    return WEIR_OK;
}

static int read_device(const struct setting_source *source, char *device_out, size_t size,
                       char note_out[VERBS_NOTE_MAX]) {
    const char *text = source_text(source, device_name);
    if (text != NULL && strlen(text) >= size) {
        snprintf(note_out, VERBS_NOTE_MAX, "%s is longer than a device's name",
                 source_name(source, device_name));
        return WEIR_EINVAL;
    }
    strcpy(device_out, text != NULL ? text : "");
    return WEIR_OK;
}

int settings_read(const struct setting_source *source, struct verbs_settings *settings_out,
                  char note_out[VERBS_NOTE_MAX]) {
    struct verbs_settings settings = {0};
    int rc = read_device(source, settings.device, sizeof settings.device, note_out);
    for (size_t i = 0; i < RULES && rc == WEIR_OK; i++) {
        int value;
        rc = read_rule(&rules[i], source, &value, note_out);
        memcpy((char *)&settings + rules[i].offset, &value, sizeof value);
    }
    if (rc == WEIR_OK)
        *settings_out = settings;
    return rc;
}

static uint64_t number_of(int value) {
    return value == VERBS_UNSET ? UINT64_MAX : (uint64_t)value;
}

bool verbs_setting(size_t index, const struct setting_source *source,
                   struct weir_device_setting *out) {
    if (index > RULES)
        return false;
    *out = (struct weir_device_setting){
        .device = "verbs", .value = UINT64_MAX, .fallback = UINT64_MAX};
    if (index == RULES) {
        out->variable = device_name;
        out->what = "name of the device";
        out->is_set = source_text(source, device_name) != NULL;
        out->is_named = source_is_named(source, device_name);
        out->status = read_device(source, out->text, sizeof out->text, out->note);
        note_clean(out->text);
        return true;
    }
    const struct rule *rule = &rules[index];
    int value;
    out->status = read_rule(rule, source, &value, out->note);
    out->variable = rule->name;
    out->what = rule->what;
    out->value = number_of(value);
    out->fallback = number_of(rule->fallback);
    out->least = (uint64_t)rule->min;
    out->most = (uint64_t)rule->max;
    out->is_set = source_text(source, rule->name) != NULL;
    out->is_named = source_is_named(source, rule->name);
    return true;
}

enum ibv_mtu mtu_code(uint32_t bytes) {
    switch (bytes) {
    case 256:
        return IBV_MTU_256;
    case 512:
        return IBV_MTU_512;
    case 1024:
        return IBV_MTU_1024;
    case 2048:
        return IBV_MTU_2048;
    case 4096:
        return IBV_MTU_4096;
    default:
        return 0;
    }
}
