/* SPDX-License-Identifier: Apache-2.0 */
/* settings.c: the environment variables of the ofi backend.
 *
 * Owns their names and rules. Left to others: reading them (fabric.h), and whether there is such a
 * provider, domain or address (select.c). */
#include <arpa/inet.h>
#include <stddef.h>
#include <string.h>

#include "ofi.h"

#define NAME_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-;"

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

#define AT(member) offsetof(struct fabric_names, member)
const struct fabric_rule ofi_rules[OFI_RULES] = {
    {"WEIR_OFI_PROVIDER", AT(provider), "name of libfabric's provider", "tcp", is_no_name},
    {"WEIR_OFI_DOMAIN", AT(domain), "name of the provider's domain: a network interface", "",
     is_nothing_wrong},
    {"WEIR_OFI_ADDRESS", AT(address), "IP address that peers are told", "", is_no_address},
};

bool ofi_setting(size_t index, const struct setting_source *source,
                 struct weir_device_setting *out) {
    return fabric_setting(&ofi_backend, index, source, out);
}
