/* SPDX-License-Identifier: Apache-2.0 */
/* settings.c: the environment variables of the efa backend.
 *
 * Owns their names. Left to others: whether there is such a domain or fabric (select.c). */
#include <stddef.h>
#include <string.h>

#include "efa.h"

#define NAME_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

static bool is_no_name(const char *text) {
    return strspn(text, NAME_LETTERS) != strlen(text);
}

static bool is_no_fabric(const char *text) {
    return strcmp(text, "efa") != 0 && strcmp(text, "efa-direct") != 0;
}

#define AT(member) offsetof(struct fabric_names, member)
const struct fabric_rule efa_rules[EFA_RULES] = {
    {"WEIR_EFA_DOMAIN", AT(domain), "name of a domain of libfabric's: an EFA device", "",
     is_no_name},
    {"WEIR_EFA_FABRIC", AT(fabric), "fabric of libfabric's: efa-direct or efa", "", is_no_fabric},
};

bool efa_setting(size_t index, const struct setting_source *source,
                 struct weir_device_setting *out) {
    return fabric_setting(&efa_backend, index, source, out);
}
