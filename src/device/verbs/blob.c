/* blob.c: what a verbs device tells the other side of a QP, and of a region.
 *
 * Owns the byte layout (little-endian, versioned by its first four bytes) and the checks
 * of what came from a peer. Left to others: everything that needs a device.
 *
 *   address  magic 4, qpn 4, lid 2, link layer 1, zero 1, gid 16
 *   region   magic 4, rkey 4, base 8, length 8, access 4 */
#include <string.h>

#include "verbs.h"

#define MAGIC_ADDRESS   0x31515657u /* "WVQ1" */
#define MAGIC_REGION    0x314d5657u /* "WVM1" */
#define LID_UNICAST_MAX 0xbfff      /* IBA 1.5, 4.1.1 */

enum { ADDRESS_BYTES = 28, REGION_BYTES = 28 };
_Static_assert(ADDRESS_BYTES <= WEIR_QP_BLOB_MAX && REGION_BYTES <= WEIR_MR_BLOB_MAX, "they fit");

static void put(uint8_t **at, uint64_t value, uint32_t bytes) {
    for (uint32_t i = 0; i < bytes; i++)
        *(*at)++ = (uint8_t)(value >> (8 * i));
}

static uint64_t get(const uint8_t **at, uint32_t bytes) {
    uint64_t value = 0;
    for (uint32_t i = 0; i < bytes; i++)
        value |= (uint64_t)(*(*at)++) << (8 * i);
    return value;
}

uint32_t blob_write_address(const struct verbs_address *address, uint8_t *out) {
    put(&out, MAGIC_ADDRESS, 4);
    put(&out, address->qpn, 4);
    put(&out, address->lid, 2);
    put(&out, address->link_layer, 1);
    put(&out, 0, 1);
    memcpy(out, address->gid.raw, sizeof address->gid.raw);
    return ADDRESS_BYTES;
}

static bool address_is_possible(const struct verbs_address *address) {
    /* 0 and 1 are the management QPs, 0xffffff is multicast (IBA 1.5, 3.5.10). */
    if (address->qpn < 2 || address->qpn >= 0xffffff)
        return false;
    if (address->link_layer == IBV_LINK_LAYER_ETHERNET)
        return gid_rank(&address->gid) != GID_UNUSABLE;
    return address->link_layer == IBV_LINK_LAYER_INFINIBAND && address->lid != 0 &&
           address->lid <= LID_UNICAST_MAX;
}

int blob_read_address(const uint8_t *bytes, uint32_t length, struct verbs_address *address_out) {
    if (length != ADDRESS_BYTES || get(&bytes, 4) != MAGIC_ADDRESS)
        return WEIR_EINVAL;
    struct verbs_address address;
    address.qpn = (uint32_t)get(&bytes, 4);
    address.lid = (uint16_t)get(&bytes, 2);
    address.link_layer = (uint8_t)get(&bytes, 1);
    if (get(&bytes, 1) != 0)
        return WEIR_EINVAL;
    memcpy(address.gid.raw, bytes, sizeof address.gid.raw);
    if (!address_is_possible(&address))
        return WEIR_EINVAL;
    *address_out = address;
    return WEIR_OK;
}

uint32_t blob_write_region(const struct verbs_region *region, uint8_t *out) {
    put(&out, MAGIC_REGION, 4);
    put(&out, region->rkey, 4);
    put(&out, region->base, 8);
    put(&out, region->length, 8);
    put(&out, region->access, 4);
    return REGION_BYTES;
}

int blob_read_region(const uint8_t *bytes, uint32_t length, struct verbs_region *region_out) {
    if (length != REGION_BYTES || get(&bytes, 4) != MAGIC_REGION)
        return WEIR_EINVAL;
    struct verbs_region region;
    region.rkey = (uint32_t)get(&bytes, 4);
    region.base = get(&bytes, 8);
    region.length = get(&bytes, 8);
    region.access = (uint32_t)get(&bytes, 4);
    if (region.length == 0 || region.base > UINT64_MAX - region.length ||
        (region.access & ~(uint32_t)WEIR_ACCESS_ALL) != 0)
        return WEIR_EINVAL;
    *region_out = region;
    return WEIR_OK;
}

int gid_rank(const union ibv_gid *gid) {
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff}; /* ::ffff:a.b.c.d */
    static const uint8_t zero[16] = {0};
    const uint8_t *raw = gid->raw;
    if (memcmp(raw, mapped, sizeof mapped) == 0) {
        if (raw[12] == 0 || raw[12] >= 224) /* this network, multicast, broadcast */
            return GID_UNUSABLE;
        return raw[12] == 169 && raw[13] == 254 ? GID_LINK_LOCAL : GID_IPV4;
    }
    if (memcmp(raw, zero, sizeof zero) == 0 || raw[0] == 0xff)
        return GID_UNUSABLE;
    return raw[0] == 0xfe && (raw[1] & 0xc0) == 0x80 ? GID_LINK_LOCAL : GID_GLOBAL;
}
