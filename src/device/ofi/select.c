/* SPDX-License-Identifier: Apache-2.0 */
/* select.c: which provider, domain and address a device has.
 *
 * The provider has to have connected
 * endpoints that read and write, and complete when the target has the bytes. Of its addresses the
 * best is taken that peers elsewhere may reach: the one at which the engine listens, IPv4, IPv6,
 * and loopback as the last; of several, the one of the default route. An address of a link only is
 * none that another host could be told.
 *
 * Owns the note: what was taken, or what is missing. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "fork.h"
#include "ofi.h"
#include "reach.h"

/* ---- addresses ---- */

static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff}; /* ::ffff:a.b.c.d */

bool ofi_address_of(const void *socket_address, uint8_t address_out[OFI_ADDRESS_BYTES]) {
    const struct sockaddr *any = socket_address;
    if (any == NULL)
        return false;
    if (any->sa_family == AF_INET) {
        memcpy(address_out, mapped, sizeof mapped);
        memcpy(address_out + sizeof mapped, &((const struct sockaddr_in *)socket_address)->sin_addr,
               4);
        return true;
    }
    if (any->sa_family != AF_INET6)
        return false;
    memcpy(address_out, &((const struct sockaddr_in6 *)socket_address)->sin6_addr,
           OFI_ADDRESS_BYTES);
    return true;
}

int ofi_address_rank(const uint8_t address[OFI_ADDRESS_BYTES]) {
    static const uint8_t zero[15] = {0};
    if (memcmp(address, mapped, sizeof mapped) == 0) {
        const uint8_t *v4 = address + sizeof mapped;
        if (v4[0] == 127)
            return OFI_ADDRESS_LOOPBACK;
        /* this network, link-local, multicast, broadcast */
        return v4[0] == 0 || (v4[0] == 169 && v4[1] == 254) || v4[0] >= 224 ? OFI_ADDRESS_NONE
                                                                            : OFI_ADDRESS_IPV4;
    }
    if (memcmp(address, zero, sizeof zero) == 0)
        return address[15] == 1 ? OFI_ADDRESS_LOOPBACK : OFI_ADDRESS_NONE;
    if (address[0] == 0xff || (address[0] == 0xfe && (address[1] & 0xc0) == 0x80))
        return OFI_ADDRESS_NONE;
    return OFI_ADDRESS_IPV6;
}

static int rank_of(const struct fi_info *info) {
    uint8_t address[OFI_ADDRESS_BYTES];
    return ofi_address_of(info->src_addr, address) ? ofi_address_rank(address) : OFI_ADDRESS_NONE;
}

/* ---- asking libfabric ---- */

/* False: there is no memory. */
static bool set_hints(struct fi_info *hints, const struct fabric_names *names) {
    hints->caps = FI_MSG | FI_RMA;
    hints->ep_attr->type = FI_EP_MSG;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->domain_attr->threading = FI_THREAD_SAFE;
    hints->tx_attr->msg_order = FI_ORDER_WAW | FI_ORDER_RAW | FI_ORDER_SAW | FI_ORDER_SAS;
    return fabric_hint(&hints->fabric_attr->prov_name, names->provider) &&
           fabric_hint(&hints->domain_attr->name, names->domain);
}

/* A negated errno of libfabric's. depth: of the send queue that is asked for; 0: its own. */
static int ask_depth(const struct fabric_library *library, const struct fabric_names *names,
                     size_t depth, struct fi_info **list_out) {
    struct fi_info *hints = library->dupinfo(NULL);
    if (hints == NULL)
        return -FI_ENOMEM;
    if (!set_hints(hints, names)) {
        library->freeinfo(hints);
        return -FI_ENOMEM;
    }
    hints->tx_attr->size = hints->rx_attr->size = depth;
    const char *node = names->address[0] != '\0' ? names->address : NULL;
    int rc = library->getinfo(FABRIC_API_VERSION, node, NULL,
                              node != NULL ? FI_SOURCE | FI_NUMERICHOST : 0, hints, list_out);
    library->freeinfo(hints);
    return rc;
}

static int ask(const struct fabric_library *library, const struct fabric_names *names,
               struct fi_info **list_out) {
    int rc = ask_depth(library, names, OFI_DEPTH_WANTED, list_out);
    return rc == 0 ? rc : ask_depth(library, names, 0, list_out);
}

/* Whether this host has the address. Providers believe what they are asked for. */
static bool is_here(const struct fi_info *info) {
    const struct sockaddr *address = info->src_addr;
    fork_hold();
    int fd = fork_own(socket(address->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    fork_release();
    if (fd < 0)
        return true; /* nothing is known */
    bool here = bind(fd, address, (socklen_t)info->src_addrlen) == 0;
    fork_close(fd);
    return here;
}

/* A provider that asks for more than this device does is not taken. Nor is a domain of another
 * name: providers may give what was not asked for. */
static bool is_fit(const struct fi_info *info, const struct fabric_names *names) {
    const char *domain = info->domain_attr->name;
    bool named = names->domain[0] == '\0' || (domain != NULL && strcmp(names->domain, domain) == 0);
    return named && domain != NULL && info->mode == 0 &&
           info->ep_attr->rx_ctx_cnt != FI_SHARED_CONTEXT &&
           info->domain_attr->mr_key_size <= sizeof(uint64_t) &&
           rank_of(info) != OFI_ADDRESS_NONE && is_here(info);
}

/* The best address to tell peers is the one at which the engine listens, then one that packets to
 * the rest of the network leave with. */
struct preferred {
    uint8_t host[OFI_ADDRESS_BYTES], by_route[2][OFI_ADDRESS_BYTES]; /* zeros: not known */
};

static void prefer(const char *host, struct preferred *out) {
    static const int families[2] = {AF_INET, AF_INET6};
    *out = (struct preferred){.host = {0}};
    uint8_t v4[4];
    if (inet_pton(AF_INET, host, v4) == 1) {
        memcpy(out->host, mapped, sizeof mapped);
        memcpy(out->host + sizeof mapped, v4, sizeof v4);
    } else if (inet_pton(AF_INET6, host, out->host) != 1) {
        memset(out->host, 0, sizeof out->host);
    }
    for (int i = 0; i < 2; i++) {
        struct sockaddr_storage address;
        if (reach_by_route(families[i], &address))
            ofi_address_of(&address, out->by_route[i]);
    }
}

static int score_of(const struct fi_info *info, const struct preferred *preferred) {
    uint8_t address[OFI_ADDRESS_BYTES];
    int score = rank_of(info);
    if (!ofi_address_of(info->src_addr, address))
        return score;
    if (memcmp(address, preferred->host, sizeof address) == 0)
        score += 2 * OFI_ADDRESS_RANKS;
    for (int i = 0; i < 2; i++) {
        if (memcmp(address, preferred->by_route[i], sizeof address) == 0)
            score += OFI_ADDRESS_RANKS;
    }
    return score;
}

static const struct fi_info *best(const struct fi_info *list, const struct fabric_names *names) {
    const struct fi_info *found = NULL;
    struct preferred preferred;
    prefer(names->host, &preferred);
    for (const struct fi_info *at = list; at != NULL; at = at->next) {
        if (is_fit(at, names) &&
            (found == NULL || score_of(at, &preferred) > score_of(found, &preferred)))
            found = at;
    }
    return found;
}

/* ---- saying it ---- */

static void text_of(const uint8_t address[OFI_ADDRESS_BYTES], char out[INET6_ADDRSTRLEN]) {
    bool is_v4 = memcmp(address, mapped, sizeof mapped) == 0;
    inet_ntop(is_v4 ? AF_INET : AF_INET6, is_v4 ? address + sizeof mapped : address, out,
              INET6_ADDRSTRLEN);
}

static void provider_of(const struct fi_info *info, const struct fabric_names *beside,
                        char name_out[FABRIC_NAME_MAX]) {
    snprintf(name_out, FABRIC_NAME_MAX, "%s",
             is_fit(info, beside) ? info->fabric_attr->prov_name : "");
}

static void domain_of(const struct fi_info *info, const struct fabric_names *beside,
                      char name_out[FABRIC_NAME_MAX]) {
    snprintf(name_out, FABRIC_NAME_MAX, "%s", is_fit(info, beside) ? info->domain_attr->name : "");
}

static void address_of(const struct fi_info *info, const struct fabric_names *beside,
                       char name_out[FABRIC_NAME_MAX]) {
    uint8_t address[OFI_ADDRESS_BYTES];
    name_out[0] = '\0';
    if (is_fit(info, beside) && ofi_address_of(info->src_addr, address))
        text_of(address, name_out);
}

static bool has_any(const struct fabric_library *library, const struct fabric_names *names) {
    struct fi_info *list = NULL;
    bool has = ask_depth(library, names, 0, &list) == 0 && best(list, names) != NULL;
    library->freeinfo(list);
    return has;
}

/* The names are asked for one after the other: the first with which nothing fits is missing, and
 * without it there are others. */
static void note_missing(const struct fabric_library *library, const struct fabric_names *names,
                         const struct fi_info *list, char note_out[FABRIC_NOTE_MAX]) {
    (void)list;
    struct fabric_names asked = {.provider = ""};
    const struct {
        const char *what, *name, *behind;
        char *at;
        fabric_name_of *name_of;
    } steps[] = {
        {"provider", names->provider, " with connected endpoints", asked.provider, provider_of},
        {"domain", names->domain, "", asked.domain, domain_of},
        {"address", names->address, "", asked.address, address_of}};
    const size_t count = sizeof steps / sizeof steps[0];
    struct fi_info *others = NULL;
    size_t i = 0;
    for (; i < count; i++) {
        snprintf(steps[i].at, FABRIC_NAME_MAX, "%s", steps[i].name);
        if (!has_any(library, &asked))
            break;
    }
    if (i == count) {
        snprintf(note_out, FABRIC_NOTE_MAX, "no endpoint of provider %.24s", names->provider);
        return;
    }
    snprintf(note_out, FABRIC_NOTE_MAX, "no %s %.40s%s", steps[i].what, steps[i].name,
             steps[i].behind);
    steps[i].at[0] = '\0';
    if (ask_depth(library, &asked, 0, &others) == 0)
        fabric_note_offers(others, steps[i].name_of, &asked, note_out);
    library->freeinfo(others);
}

static void note_taken(const struct fi_info *info, uint32_t version,
                       char note_out[FABRIC_NOTE_MAX]) {
    uint8_t address[OFI_ADDRESS_BYTES];
    char text[INET6_ADDRSTRLEN] = "?";
    if (ofi_address_of(info->src_addr, address))
        text_of(address, text);
    snprintf(note_out, FABRIC_NOTE_MAX, "%.24s on %.24s, address %s; libfabric %u.%u",
             info->fabric_attr->prov_name, info->domain_attr->name, text, FI_MAJOR(version),
             FI_MINOR(version));
}

const struct fabric_backend ofi_backend = {
    .name = "ofi",
    .rules = ofi_rules,
    .rule_count = OFI_RULES,
    .ask = ask,
    .best = best,
    .note_taken = note_taken,
    .note_missing = note_missing,
    .fill_caps = ofi_fill_caps,
    .cannot_open = range_is_full,
};
