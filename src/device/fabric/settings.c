/* SPDX-License-Identifier: Apache-2.0 */
/* settings.c: settings of backends over libfabric.
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

static int read_rule(const struct fabric_rule *rule, const struct setting_source *source,
                     char value_out[FABRIC_NAME_MAX], char note_out[FABRIC_NOTE_MAX]) {
    const char *text = source_text(source, rule->name), *name = source_name(source, rule->name);
    snprintf(value_out, FABRIC_NAME_MAX, "%s", rule->fallback);
    if (text == NULL)
        return WEIR_OK;
    size_t length = strlen(text);
    if (length == 0 || length >= FABRIC_NAME_MAX) {
        snprintf(note_out, FABRIC_NOTE_MAX, "%s is %s", name,
                 length == 0 ? "empty" : "longer than any such name");
        return WEIR_EINVAL;
    }
    if (rule->is_wrong(text)) {
        snprintf(note_out, FABRIC_NOTE_MAX, "%s=%.40s is no %s", name, text, rule->what);
        fabric_note_clean(note_out);
        return WEIR_EINVAL;
    }
    memcpy(value_out, text, length + 1);
    return WEIR_OK;
}

int fabric_names_read(const struct fabric_backend *backend, const struct setting_source *source,
                      struct fabric_names *names_out, char note_out[FABRIC_NOTE_MAX]) {
    int rc = WEIR_OK;
    *names_out = (struct fabric_names){.provider = ""};
    for (size_t i = 0; i < backend->rule_count && rc == WEIR_OK; i++) {
        const struct fabric_rule *rule = &backend->rules[i];
        rc = read_rule(rule, source, (char *)names_out + rule->offset, note_out);
    }
    return rc;
}

bool fabric_setting(const struct fabric_backend *backend, size_t index,
                    const struct setting_source *source, struct weir_device_setting *out) {
    if (index >= backend->rule_count)
        return false;
    const struct fabric_rule *rule = &backend->rules[index];
    char value[FABRIC_NAME_MAX];
    const char *text = source_text(source, rule->name);
    *out = (struct weir_device_setting){.device = backend->name,
                                        .variable = rule->name,
                                        .what = rule->what,
                                        .value = UINT64_MAX,
                                        .fallback = UINT64_MAX,
                                        .is_set = text != NULL,
                                        .is_named = source_is_named(source, rule->name)};
    out->status = read_rule(rule, source, value, out->note);
    snprintf(out->text, sizeof out->text, "%s", text != NULL ? text : rule->fallback);
    fabric_note_clean(out->text);
    return true;
}
