/* settings.c: the environment variables of the verbs backend.
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
    const char *hint; /* why not more or less; "" */
};

#define AT(member) offsetof(struct verbs_settings, member)
/* Codes of InfiniBand's QP attributes (ibv_modify_qp(3)). timeout 0 waits for ever, rnr_retry
 * 7 retries for ever, min_rnr_timer 0 is 655 ms: none of them is let through. 14 is 67 ms,
 * 12 is 0.64 ms. A retry_cnt of 7 is finite, but not to Soft-RoCE, so it is not the default. */
static const struct rule rules[] = {
    {"WEIR_VERBS_PORT", AT(port), VERBS_UNSET, 1, 255, ""},
    {"WEIR_VERBS_GID_INDEX", AT(gid_index), VERBS_UNSET, 0, 255, ""},
    {"WEIR_VERBS_PKEY_INDEX", AT(pkey_index), VERBS_UNSET, 0, 65535, ""},
    {"WEIR_VERBS_MTU", AT(mtu), VERBS_UNSET, 256, 4096, ""},
    {"WEIR_VERBS_TRAFFIC_CLASS", AT(traffic_class), 0, 0, 255, ""},
    {"WEIR_VERBS_SERVICE_LEVEL", AT(service_level), 0, 0, 15, ""},
    {"WEIR_VERBS_TIMEOUT", AT(timeout), 14, 1, 31, " (4.096 us * 2^n; 0 would wait for ever)"},
    {"WEIR_VERBS_RETRY_CNT", AT(retry_cnt), 6, 0, 7, ""},
    {"WEIR_VERBS_RNR_RETRY", AT(rnr_retry), 6, 0, 6, " (7 would retry for ever)"},
    {"WEIR_VERBS_MIN_RNR_TIMER", AT(min_rnr_timer), 12, 1, 31, " (0 would be 655 ms)"},
    {"WEIR_VERBS_SRQ", AT(srq), 1, 0, 1, ""},
};

static const char device_name[] = "WEIR_VERBS_DEVICE";

const char *verbs_variable(size_t index) {
    const size_t count = sizeof rules / sizeof rules[0];
    return index < count ? rules[index].name : index == count ? device_name : NULL;
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

int settings_read(char *(*get)(const char *name), struct verbs_settings *settings_out,
                  char note_out[VERBS_NOTE_MAX]) {
    struct verbs_settings settings = {0};
    const char *device = get(device_name);
    if (device != NULL && strlen(device) >= sizeof settings.device) {
        snprintf(note_out, VERBS_NOTE_MAX, "WEIR_VERBS_DEVICE is longer than a device's name");
        return WEIR_EINVAL;
    }
    if (device != NULL)
        strcpy(settings.device, device);
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        const struct rule *rule = &rules[i];
        const char *text = get(rule->name);
        int value = rule->fallback;
        if (text != NULL && read_number(text, rule, &value) != WEIR_OK) {
            snprintf(note_out, VERBS_NOTE_MAX, "%s=%.24s: not a number from %d to %d%s", rule->name,
                     text, rule->min, rule->max, rule->hint);
            return WEIR_EINVAL;
        }
        memcpy((char *)&settings + rule->offset, &value, sizeof value);
    }
    if (settings.mtu != VERBS_UNSET && mtu_code((uint32_t)settings.mtu) == 0) {
        snprintf(note_out, VERBS_NOTE_MAX, "WEIR_VERBS_MTU=%d: not 256, 512, 1024, 2048 or 4096",
                 settings.mtu);
        return WEIR_EINVAL;
    }
    *settings_out = settings;
    return WEIR_OK;
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
