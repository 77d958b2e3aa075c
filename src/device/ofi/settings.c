/* SPDX-License-Identifier: Apache-2.0 */
/* settings.c: the environment variables of the ofi backend.
 *
 * Owns their names, and the line that says what is wrong with one. Left to others: whether there is
 * such a provider, domain or address (select.c). */
#include <arpa/inet.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "ofi.h"

#define NAME_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-;"

struct rule {
    const char *name;
    size_t offset;
    const char *what;
    bool (*is_wrong)(const char *text);
};

/* libfabric takes more for the name of a provider: lists, and what is not meant. */
static bool is_no_name(const char *text) {
    return strspn(text, NAME_LETTERS) != strlen(text);
}

static bool is_no_address(const char *text) {
    struct in6_addr address;
    return inet_pton(AF_INET, text, &address) != 1 && inet_pton(AF_INET6, text, &address) != 1;
}

static bool is_nothing_wrong(const char *text) {
    (void)text;
    return false;
}

#define AT(member) offsetof(struct ofi_settings, member)
static const struct rule rules[] = {
    {"WEIR_OFI_PROVIDER", AT(provider), "name of libfabric's provider", is_no_name},
    {"WEIR_OFI_DOMAIN", AT(domain), "name of the provider's domain: a network interface",
     is_nothing_wrong},
    {"WEIR_OFI_ADDRESS", AT(address), "IP address that peers are told", is_no_address},
};
enum { RULES = sizeof rules / sizeof rules[0] };

void ofi_note_clean(char *text) {
    for (; *text != '\0'; text++) { /* ASCII, whatever the locale is */
        if (*text < ' ' || *text > '~')
            *text = '?';
    }
}

static int read_rule(const struct rule *rule, const char *text, char value_out[OFI_NAME_MAX],
                     char note_out[OFI_NOTE_MAX]) {
    value_out[0] = '\0';
    if (text == NULL)
        return WEIR_OK;
    size_t length = strlen(text);
    if (length == 0 || length >= OFI_NAME_MAX) {
        snprintf(note_out, OFI_NOTE_MAX, "%s is %s", rule->name,
                 length == 0 ? "empty" : "longer than any such name");
        return WEIR_EINVAL;
    }
    if (rule->is_wrong(text)) {
        snprintf(note_out, OFI_NOTE_MAX, "%s=%.40s is no %s", rule->name, text, rule->what);
        ofi_note_clean(note_out);
        return WEIR_EINVAL;
    }
    memcpy(value_out, text, length + 1);
    return WEIR_OK;
}

int ofi_settings_read(char *(*get)(const char *name), struct ofi_settings *settings_out,
                      char note_out[OFI_NOTE_MAX]) {
    int rc = WEIR_OK;
    for (size_t i = 0; i < RULES && rc == WEIR_OK; i++)
        rc = read_rule(&rules[i], get(rules[i].name), (char *)settings_out + rules[i].offset,
                       note_out);
    return rc;
}

bool ofi_setting(size_t index, char *(*get)(const char *name), struct weir_device_setting *out) {
    if (index >= RULES)
        return false;
    char value[OFI_NAME_MAX];
    const char *text = get(rules[index].name);
    *out = (struct weir_device_setting){.device = "ofi",
                                        .variable = rules[index].name,
                                        .what = rules[index].what,
                                        .value = UINT64_MAX,
                                        .fallback = UINT64_MAX,
                                        .is_set = text != NULL};
    out->status = read_rule(&rules[index], text, value, out->note);
    snprintf(out->text, sizeof out->text, "%s", text != NULL ? text : "");
    ofi_note_clean(out->text);
    return true;
}
