/* SPDX-License-Identifier: Apache-2.0 */
/* select.c: which fabric and domain a device has.
 *
 * The provider is libfabric's efa, whose endpoints for reliable datagrams read and write remote
 * memory. Its fabric efa-direct (libfabric 2.1 and later) goes before efa, which adds a protocol of
 * its own. Of several network cards the first is taken.
 *
 * Owns the note: what was taken, or what is missing. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "efa.h"

#define PROVIDER "efa"
/* FI_RX_CQ_DATA: writes with immediate data may take receives. */
#define MODES (FI_CONTEXT | FI_CONTEXT2 | FI_RX_CQ_DATA)
/* From here on the provider reads and writes with the network card where that can. Newer than that,
 * libfabric could give more than this was built for. */
#define API_VERSION FI_VERSION(1, 18)

/* Without FI_LOCAL_COMM the provider uses no memory of the host's between processes of one host: it
 * would never say that a process is gone. */

/* False: there is no memory. */
static bool set_hints(struct fi_info *hints, const struct fabric_names *names) {
    hints->caps = FI_MSG | FI_RMA | FI_REMOTE_COMM;
    hints->mode = MODES;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->domain_attr->threading = FI_THREAD_SAFE;
    return fabric_hint(&hints->fabric_attr->prov_name, PROVIDER) &&
           fabric_hint(&hints->domain_attr->name, names->domain) &&
           fabric_hint(&hints->fabric_attr->name, names->fabric);
}

static int ask(const struct fabric_library *library, const struct fabric_names *names,
               struct fi_info **list_out) {
    struct fi_info *hints = library->dupinfo(NULL);
    if (hints == NULL)
        return -FI_ENOMEM;
    if (!set_hints(hints, names)) {
        library->freeinfo(hints);
        return -FI_ENOMEM;
    }
    uint32_t version = library->version();
    int rc = library->getinfo(FI_VERSION_LT(version, API_VERSION) ? version : API_VERSION, NULL,
                              NULL, 0, hints, list_out);
    library->freeinfo(hints);
    return rc;
}

static bool is_named(const char *wanted, const char *name) {
    return wanted[0] == '\0' || (name != NULL && strcmp(wanted, name) == 0);
}

/* A provider that asks for more than this device does is not taken; nor is one with queues of a
 * few places, or messages that ours do not fit in. Providers may give what was not asked for. */
static bool is_fit(const struct fi_info *info, const struct fabric_names *names) {
    return is_named(names->domain, info->domain_attr->name) &&
           is_named(names->fabric, info->fabric_attr->name) && (info->mode & ~MODES) == 0 &&
           info->domain_attr->mr_key_size <= sizeof(uint64_t) &&
           info->tx_attr->size >= 2 * (size_t)EFA_CONTROLS && info->rx_attr->size >= EFA_CONTROLS &&
           info->ep_attr->max_msg_size >= EFA_BUFFER_BYTES;
}

/* The provider that is part of libfabric has its version, 118 for 1.18; before that no card writes
 * remote memory by itself. */
#define PROVIDER_LEAST 118u

static bool is_old(const struct fi_info *info) {
    return FI_MAJOR(info->fabric_attr->prov_version) < PROVIDER_LEAST;
}

static bool is_direct(const struct fi_info *info) {
    return strcmp(info->fabric_attr->name, "efa-direct") == 0;
}

static const struct fi_info *best(const struct fi_info *list, const struct fabric_names *names) {
    const struct fi_info *found = NULL;
    for (const struct fi_info *at = list; at != NULL; at = at->next) {
        if (is_fit(at, names) && !is_old(at) &&
            (found == NULL || (is_direct(at) && !is_direct(found))))
            found = at;
    }
    return found;
}

static void domain_of(const struct fi_info *info, const struct fabric_names *beside,
                      char name_out[FABRIC_NAME_MAX]) {
    (void)beside;
    snprintf(name_out, FABRIC_NAME_MAX, "%s", info->domain_attr->name);
}

static void note_missing(const struct fabric_library *library, const struct fabric_names *names,
                         const struct fi_info *list, char note_out[FABRIC_NOTE_MAX]) {
    const char *why =
        list == NULL ? "no EFA device"
        : is_old(list)
            ? "libfabric before 1.18 does not write with an EFA device"
            : "no EFA device that reads and writes remote memory, with a queue of 128 sends";
    int used = snprintf(note_out, FABRIC_NOTE_MAX, "%s", why);
    if (names->domain[0] != '\0')
        used += snprintf(note_out + used, FABRIC_NOTE_MAX - (size_t)used, " named %.24s",
                         names->domain);
    if (names->fabric[0] != '\0')
        snprintf(note_out + used, FABRIC_NOTE_MAX - (size_t)used, ", of fabric %.16s",
                 names->fabric);
    const struct fabric_names any = {.provider = ""};
    struct fi_info *found = NULL;
    if ((names->domain[0] != '\0' || names->fabric[0] != '\0') && ask(library, &any, &found) == 0)
        fabric_note_offers(found, domain_of, NULL, note_out);
    library->freeinfo(found);
}

static void note_taken(const struct fi_info *info, uint32_t version,
                       char note_out[FABRIC_NOTE_MAX]) {
    snprintf(note_out, FABRIC_NOTE_MAX, "%.24s on %.24s; libfabric %u.%u", info->fabric_attr->name,
             info->domain_attr->name, FI_MAJOR(version), FI_MINOR(version));
}

const struct fabric_backend efa_backend = {
    .name = "efa",
    .rules = efa_rules,
    .rule_count = EFA_RULES,
    .ask = ask,
    .best = best,
    .note_taken = note_taken,
    .note_missing = note_missing,
    .fill_caps = efa_fill_caps,
};
