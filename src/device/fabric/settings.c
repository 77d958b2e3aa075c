/* SPDX-License-Identifier: Apache-2.0 */
/* settings.c: environment variables of backends over libfabric.
 *
 * Owns the lines that say what is wrong with one. Left to the backends: their names, and what is
 * wrong. */
#include <stdio.h>
#include <string.h>

#include "fabric.h"

void fabric_note_clean(char *text) {
    for (; *text != '\0'; text++) { /* ASCII, whatever the locale is */
        if (*text < ' ' || *text > '~')
            *text = '?';
    }
}

static int read_rule(const struct fabric_rule *rule, const char *text,
                     char value_out[FABRIC_NAME_MAX], char note_out[FABRIC_NOTE_MAX]) {
    value_out[0] = '\0';
    if (text == NULL)
        return WEIR_OK;
    size_t length = strlen(text);
    if (length == 0 || length >= FABRIC_NAME_MAX) {
        snprintf(note_out, FABRIC_NOTE_MAX, "%s is %s", rule->name,
                 length == 0 ? "empty" : "longer than any such name");
        return WEIR_EINVAL;
    }
    if (rule->is_wrong(text)) {
        snprintf(note_out, FABRIC_NOTE_MAX, "%s=%.40s is no %s", rule->name, text, rule->what);
        fabric_note_clean(note_out);
        return WEIR_EINVAL;
    }
    memcpy(value_out, text, length + 1);
    return WEIR_OK;
}

int fabric_settings_read(const struct fabric_rule *rules, size_t count,
                         char *(*get)(const char *name), void *settings_out,
                         char note_out[FABRIC_NOTE_MAX]) {
    int rc = WEIR_OK;
    for (size_t i = 0; i < count && rc == WEIR_OK; i++)
        rc = read_rule(&rules[i], get(rules[i].name), (char *)settings_out + rules[i].offset,
                       note_out);
    return rc;
}

bool fabric_setting(const char *device, const struct fabric_rule *rules, size_t count, size_t index,
                    char *(*get)(const char *name), struct weir_device_setting *out) {
    if (index >= count)
        return false;
    char value[FABRIC_NAME_MAX];
    const char *text = get(rules[index].name);
    *out = (struct weir_device_setting){.device = device,
                                        .variable = rules[index].name,
                                        .what = rules[index].what,
                                        .value = UINT64_MAX,
                                        .fallback = UINT64_MAX,
                                        .is_set = text != NULL};
    out->status = read_rule(&rules[index], text, value, out->note);
    snprintf(out->text, sizeof out->text, "%s", text != NULL ? text : "");
    fabric_note_clean(out->text);
    return true;
}
