/* SPDX-License-Identifier: Apache-2.0 */
/* select.c: which RDMA device, port and address this process uses.
 *
 * Owns the choice: what the settings name, else the first active port with the best
 * address: InfiniBand with a LID, or RoCE v2 with a GID that is an IPv4 address, then a
 * global one, then a link-local one, or iWARP with an IPv4 address, then a global one. Of its
 * partition keys, that of the default partition. Says why nothing could be chosen. Changes nothing
 * on the device. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verbs.h"

__attribute__((format(printf, 2, 3))) static int refuse(char *note, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(note, VERBS_NOTE_MAX, format, arguments);
    va_end(arguments);
    note_clean(note);
    return WEIR_ENODEVICE;
}

static const char *device_name(const struct verbs_choice *choice) {
    return ibv_get_device_name(choice->context->device);
}

/* ---- one port ---- */

/* Entries of its tables that are looked at. */
#define GIDS_MAX  256u
#define PKEYS_MAX 256u

static bool gid_read(const struct verbs_choice *choice, uint8_t port, uint32_t index,
                     struct ibv_gid_entry *entry_out) {
    return ibv_query_gid_ex(choice->context, port, index, entry_out, 0) == 0;
}

/* The RoCE v2 GID that is asked for, or the best. Its rank. */
static int choose_gid(const struct verbs_settings *settings, struct verbs_choice *choice) {
    uint32_t count = (uint32_t)choice->port_attr.gid_tbl_len;
    int best = GID_UNUSABLE;
    for (uint32_t i = 0; i < count && i < GIDS_MAX; i++) {
        struct ibv_gid_entry entry;
        if (settings->gid_index != VERBS_UNSET && settings->gid_index != (int)i)
            continue;
        if (!gid_read(choice, choice->port, i, &entry) || entry.gid_type != IBV_GID_TYPE_ROCE_V2)
            continue;
        int rank = gid_rank(&entry.gid);
        if (rank > best) {
            best = rank;
            choice->gid = entry.gid;
            choice->gid_index = (uint8_t)i;
        }
    }
    return best;
}

static int choose_ip_address(const struct verbs_settings *settings, struct verbs_choice *choice) {
    const char *why;
    if (settings->gid_index != VERBS_UNSET)
        return refuse(choice->note, "%.32s is iWARP: WEIR_VERBS_GID_INDEX means nothing",
                      device_name(choice));
    if (!cm_address(device_name(choice), &choice->gid, &why))
        return refuse(choice->note, "%.32s: %s", device_name(choice), why);
    return WEIR_OK;
}

static int choose_address(const struct verbs_settings *settings, struct verbs_choice *choice,
                          int *rank_out) {
    const char *name = device_name(choice);
    if (choice->fabric == FABRIC_IWARP) {
        int rc = choose_ip_address(settings, choice);
        *rank_out = rc == WEIR_OK ? gid_rank(&choice->gid) : GID_UNUSABLE;
        return rc;
    }
    if (choice->fabric == FABRIC_ROCE) {
        *rank_out = choose_gid(settings, choice);
        if (*rank_out != GID_UNUSABLE)
            return WEIR_OK;
        if (settings->gid_index != VERBS_UNSET)
            return refuse(choice->note, "%.32s port %u: GID %d is no RoCE v2 address", name,
                          choice->port, settings->gid_index);
        return refuse(choice->note, "%.32s port %u: no RoCE v2 GID (has its interface an address?)",
                      name, choice->port);
    }
    uint32_t index = settings->gid_index == VERBS_UNSET ? 0 : (uint32_t)settings->gid_index;
    struct ibv_gid_entry entry;
    if (choice->port_attr.lid == 0)
        return refuse(choice->note, "%.32s port %u: no LID (does a subnet manager run?)", name,
                      choice->port);
    if (!gid_read(choice, choice->port, index, &entry))
        return refuse(choice->note, "%.32s port %u: no GID %u", name, choice->port, index);
    choice->gid = entry.gid;
    choice->gid_index = (uint8_t)index;
    *rank_out = GID_IPV4;
    return WEIR_OK;
}

/* An entry of the port's table of partition keys. False: it cannot be read. */
static bool pkey_read(const struct verbs_choice *choice, uint32_t index, uint16_t *pkey_out) {
    __be16 pkey;
    if (ibv_query_pkey(choice->context, choice->port, (int)index, &pkey) != 0)
        return false;
    *pkey_out = ntohs(pkey);
    return true;
}

/* How good a partition key is: the default partition, as a full member, goes before; limited
 * members do not reach each other (IBA 1.5, 10.9.3). */
enum { PKEY_NONE = 0, PKEY_OTHER, PKEY_LIMITED, PKEY_FULL };
static int pkey_rank(uint16_t pkey) {
    if ((pkey & 0x7fff) == 0)
        return PKEY_NONE; /* of no partition: the entry is empty */
    if ((pkey & 0x7fff) != 0x7fff)
        return PKEY_OTHER;
    return (pkey & 0x8000) != 0 ? PKEY_FULL : PKEY_LIMITED;
}

static int choose_named_pkey(const struct verbs_settings *settings, struct verbs_choice *choice) {
    uint32_t count = choice->port_attr.pkey_tbl_len;
    uint16_t pkey;
    choice->pkey_index = (uint16_t)settings->pkey_index;
    if ((uint32_t)settings->pkey_index >= count)
        refuse(choice->note, "WEIR_VERBS_PKEY_INDEX=%d: %.32s port %u has %u", settings->pkey_index,
               device_name(choice), choice->port, count);
    else if (pkey_read(choice, choice->pkey_index, &pkey) && pkey_rank(pkey) == PKEY_NONE)
        refuse(choice->note, "WEIR_VERBS_PKEY_INDEX=%d: %.32s port %u has no P_Key there",
               settings->pkey_index, device_name(choice), choice->port);
    else
        return WEIR_OK;
    return WEIR_EINVAL;
}

/* The index of the best key, the first of its kind; 0 where none can be read. */
static int choose_pkey(const struct verbs_settings *settings, struct verbs_choice *choice) {
    if (settings->pkey_index != VERBS_UNSET)
        return choose_named_pkey(settings, choice);
    uint32_t count = choice->port_attr.pkey_tbl_len;
    int best = PKEY_NONE;
    choice->pkey_index = 0;
    for (uint32_t i = 0; i < count && i < PKEYS_MAX && best < PKEY_FULL; i++) {
        uint16_t pkey;
        int rank = pkey_read(choice, i, &pkey) ? pkey_rank(pkey) : PKEY_NONE;
        if (rank > best) {
            best = rank;
            choice->pkey_index = (uint16_t)i;
        }
    }
    return WEIR_OK;
}

/* The path MTU in bytes of IBV_MTU_256 and so on. */
static uint32_t mtu_bytes(enum ibv_mtu code) {
    return code >= IBV_MTU_256 && code <= IBV_MTU_4096 ? 128u << code : 0;
}

static int choose_mtu(const struct verbs_settings *settings, struct verbs_choice *choice) {
    uint32_t active = mtu_bytes(choice->port_attr.active_mtu);
    if (active == 0)
        return refuse(choice->note, "%.32s port %u: active MTU not known", device_name(choice),
                      choice->port);
    choice->mtu = active;
    if (settings->mtu == VERBS_UNSET)
        return WEIR_OK;
    if ((uint32_t)settings->mtu > active) {
        refuse(choice->note, "WEIR_VERBS_MTU=%d: %.32s port %u has %u", settings->mtu,
               device_name(choice), choice->port, active);
        return WEIR_EINVAL;
    }
    choice->mtu = (uint32_t)settings->mtu;
    return WEIR_OK;
}

static void describe(struct verbs_choice *choice) {
    char address[INET6_ADDRSTRLEN] = "";
    inet_ntop(AF_INET6, choice->gid.raw, address, sizeof address);
    bool roce = choice->fabric == FABRIC_ROCE;
    if (choice->fabric == FABRIC_IWARP)
        snprintf(choice->note, VERBS_NOTE_MAX, "%.32s port %u, iWARP, %s", device_name(choice),
                 choice->port, address);
    else
        snprintf(choice->note, VERBS_NOTE_MAX, "%.32s port %u, %s, GID %u %s, MTU %u, P_Key %u",
                 device_name(choice), choice->port, roce ? "RoCE v2" : "InfiniBand",
                 choice->gid_index, address, choice->mtu, choice->pkey_index);
}

static int try_port(const struct verbs_settings *settings, struct verbs_choice *choice,
                    uint8_t port, int *rank_out) {
    const char *name = device_name(choice);
    choice->port = port;
    memset(&choice->port_attr, 0, sizeof choice->port_attr);
    if (ibv_query_port(choice->context, port, &choice->port_attr) != 0)
        return refuse(choice->note, "%.32s port %u: cannot be queried", name, port);
    if (choice->port_attr.link_layer == IBV_LINK_LAYER_UNSPECIFIED)
        choice->port_attr.link_layer = IBV_LINK_LAYER_INFINIBAND; /* older than the field */
    choice->fabric =
        choice->port_attr.link_layer == IBV_LINK_LAYER_ETHERNET ? FABRIC_ROCE : FABRIC_INFINIBAND;
    if (choice->context->device->transport_type == IBV_TRANSPORT_IWARP)
        choice->fabric = FABRIC_IWARP;
    if (choice->port_attr.state != IBV_PORT_ACTIVE)
        return refuse(choice->note, "%.32s port %u: %s", name, port,
                      ibv_port_state_str(choice->port_attr.state));
    if (choice->port_attr.max_msg_sz < 4096)
        return refuse(choice->note, "%.32s port %u: messages of at most %u bytes", name, port,
                      choice->port_attr.max_msg_sz);
    int rc = choose_address(settings, choice, rank_out);
    if (rc == WEIR_OK)
        rc = choose_pkey(settings, choice);
    if (rc == WEIR_OK)
        rc = choose_mtu(settings, choice);
    if (rc == WEIR_OK)
        describe(choice);
    return rc;
}

/* ---- one device ---- */

/* Opens the device. context is NULL after an error. */
static int try_open(struct ibv_device *device, struct verbs_choice *choice) {
    const char *name = ibv_get_device_name(device);
    if (device->transport_type != IBV_TRANSPORT_IWARP &&
        (device->transport_type != IBV_TRANSPORT_IB || device->node_type != IBV_NODE_CA))
        return refuse(choice->note, "%.32s: neither InfiniBand, RoCE nor iWARP", name);
    choice->context = inherit_open_device(device);
    if (choice->context == NULL)
        return refuse(choice->note, "%.32s: cannot be opened: %.60s", name, strerror(errno));
    if (ibv_query_device(choice->context, &choice->attr) != 0)
        refuse(choice->note, "%.32s: cannot be queried", name);
    else if (choice->attr.max_qp_rd_atom <= 0 || choice->attr.max_qp_init_rd_atom <= 0)
        refuse(choice->note, "%.32s: does no RDMA reads", name);
    else
        return WEIR_OK;
    inherit_close_device(choice->context);
    choice->context = NULL;
    return WEIR_ENODEVICE;
}

/* The best port of a device. On success the device is open. */
static int try_device(const struct verbs_settings *settings, struct ibv_device *device,
                      struct verbs_choice *choice, int *rank_out) {
    *choice = (struct verbs_choice){0};
    *rank_out = GID_UNUSABLE;
    int rc = try_open(device, choice);
    if (rc != WEIR_OK)
        return rc;
    uint8_t count = choice->attr.phys_port_cnt;
    struct verbs_choice best = *choice;
    rc = refuse(best.note, "%.32s: no port %d (its last one is %u)", device_name(choice),
                settings->port, count);
    for (uint32_t port = 1; port <= count; port++) {
        int rank;
        if (settings->port != VERBS_UNSET && settings->port != (int)port)
            continue;
        int tried = try_port(settings, choice, (uint8_t)port, &rank);
        if (tried == WEIR_OK && rank > *rank_out) {
            best = *choice;
            *rank_out = rank;
            rc = WEIR_OK;
        } else if (rc != WEIR_OK) {
            best = *choice; /* its reason */
            rc = tried;
        }
    }
    *choice = best;
    if (rc == WEIR_OK)
        return WEIR_OK;
    inherit_close_device(choice->context);
    choice->context = NULL;
    return rc;
}

/* There is no device of that name; which there are instead, as far as there is room. */
static int refuse_name(const char *name, struct ibv_device **list, int count, char *note) {
    int rc = refuse(note, "no RDMA device %.40s", name);
    size_t used = strlen(note);
    for (int i = 0; list != NULL && i < count; i++) {
        const char *other = ibv_get_device_name(list[i]);
        bool fits = used + strlen(other) + sizeof " (there are: , ...)" <= VERBS_NOTE_MAX;
        used += (size_t)snprintf(note + used, VERBS_NOTE_MAX - used, "%s%s",
                                 i > 0 ? ", " : " (there are: ", fits ? other : "...");
        if (i + 1 == count || !fits) {
            snprintf(note + used, VERBS_NOTE_MAX - used, ")");
            break;
        }
    }
    note_clean(note);
    return rc;
}

int select_open(const struct verbs_settings *settings, struct verbs_choice *choice_out) {
    int count = 0;
    struct ibv_device **list = inherit_list_devices(&count);
    struct verbs_choice choice;
    int best = GID_UNUSABLE;
    *choice_out = (struct verbs_choice){0};
    int rc = settings->device[0] != '\0'
                 ? refuse_name(settings->device, list, count, choice_out->note)
                 : refuse(choice_out->note, "no RDMA device (is its driver loaded?)");
    bool reason = false;
    for (int i = 0; list != NULL && i < count; i++) {
        int rank;
        if (settings->device[0] != '\0' &&
            strcmp(settings->device, ibv_get_device_name(list[i])) != 0)
            continue;
        int tried = try_device(settings, list[i], &choice, &rank);
        if (tried == WEIR_OK && rank > best) {
            if (choice_out->context != NULL)
                inherit_close_device(choice_out->context);
            *choice_out = choice;
            best = rank;
            rc = WEIR_OK;
        } else if (tried == WEIR_OK) {
            inherit_close_device(choice.context);
        } else if (rc != WEIR_OK && !reason) {
            *choice_out = choice; /* the first one's reason */
            reason = true;
            rc = tried;
        }
    }
    if (list != NULL)
        ibv_free_device_list(list);
    return rc;
}

int select_refresh(const struct verbs_settings *settings, struct verbs_choice *choice) {
    struct verbs_choice again = *choice;
    int rank;
    /* Peers were told MTU and fabric, and cannot be told less; iWARP listens where it did, also
     * where there is a better address now. */
    if (try_port(settings, &again, choice->port, &rank) != WEIR_OK || again.mtu < choice->mtu ||
        again.fabric != choice->fabric)
        return WEIR_EDEVICE;
    if (choice->fabric == FABRIC_IWARP) {
        again.gid = choice->gid;
        if (!cm_has_address(device_name(choice), &again.gid))
            return WEIR_EDEVICE;
    }
    choice->port_attr = again.port_attr;
    choice->gid = again.gid;
    choice->gid_index = again.gid_index;
    choice->pkey_index = again.pkey_index;
    return WEIR_OK;
}
