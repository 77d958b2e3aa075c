/* SPDX-License-Identifier: Apache-2.0 */
/* blob.c: the blobs by which a verbs device tells the other side of a QP, and of a region.
 *
 * Owns the byte layout (little-endian, versioned by its first four bytes) and the checks
 * of what came from a peer. Left to others: everything that needs a device.
 *
 *   address  magic 4, qpn 4, lid 2, fabric 1, zero 1, gid 16
 *   iWARP's  magic 4, cookie 8, fence 8, fence's key 4, TCP port 2, zero 2, IP address 16
 *   region   magic 4, rkey 4, base 8, length 8, access 4 */
#include <string.h>

#include "bytes.h"
#include "verbs.h"

#define MAGIC_ADDRESS   0x31515657u /* "WVQ1" */
#define MAGIC_IWARP     0x31495657u /* "WVI1" */
#define MAGIC_REGION    0x314d5657u /* "WVM1" */
#define LID_UNICAST_MAX 0xbfff      /* IBA 1.5, 4.1.1 */

enum { ADDRESS_BYTES = 28, IWARP_BYTES = 44, REGION_BYTES = 28 };
_Static_assert(ADDRESS_BYTES <= WEIR_QP_BLOB_MAX && IWARP_BYTES <= WEIR_QP_BLOB_MAX &&
                   REGION_BYTES <= WEIR_MR_BLOB_MAX,
               "they fit");

static uint32_t write_iwarp(const struct verbs_address *address, uint8_t *out) {
    bytes_put(&out, MAGIC_IWARP, 4);
    bytes_put(&out, address->cookie, 8);
    bytes_put(&out, address->fence, 8);
    bytes_put(&out, address->fence_key, 4);
    bytes_put(&out, address->tcp_port, 2);
    bytes_put(&out, 0, 2);
    memcpy(out, address->gid.raw, sizeof address->gid.raw);
    return IWARP_BYTES;
}

static int read_iwarp(const uint8_t *bytes, struct verbs_address *address_out) {
    struct verbs_address address = {.fabric = FABRIC_IWARP};
    address.cookie = bytes_get(&bytes, 8);
    address.fence = bytes_get(&bytes, 8);
    address.fence_key = (uint32_t)bytes_get(&bytes, 4);
    address.tcp_port = (uint16_t)bytes_get(&bytes, 2);
    uint64_t zero = bytes_get(&bytes, 2);
    memcpy(address.gid.raw, bytes, sizeof address.gid.raw);
    if (zero != 0 || address.cookie == 0 || address.tcp_port == 0 ||
        gid_rank(&address.gid) == GID_UNUSABLE)
        return WEIR_EINVAL;
    *address_out = address;
    return WEIR_OK;
}

uint32_t blob_write_address(const struct verbs_address *address, uint8_t *out) {
    if (address->fabric == FABRIC_IWARP)
        return write_iwarp(address, out);
    bytes_put(&out, MAGIC_ADDRESS, 4);
    bytes_put(&out, address->qpn, 4);
    bytes_put(&out, address->lid, 2);
    bytes_put(&out, address->fabric, 1);
    bytes_put(&out, 0, 1);
    memcpy(out, address->gid.raw, sizeof address->gid.raw);
    return ADDRESS_BYTES;
}

static bool address_is_possible(const struct verbs_address *address) {
    /* 0 and 1 are the management QPs, 0xffffff is multicast (IBA 1.5, 3.5.10). */
    if (address->qpn < 2 || address->qpn >= 0xffffff)
        return false;
    if (address->fabric == FABRIC_ROCE)
        return gid_rank(&address->gid) != GID_UNUSABLE;
    return address->fabric == FABRIC_INFINIBAND && address->lid != 0 &&
           address->lid <= LID_UNICAST_MAX;
}

int blob_read_address(const uint8_t *bytes, uint32_t length, struct verbs_address *address_out) {
    if (length != ADDRESS_BYTES && length != IWARP_BYTES)
        return WEIR_EINVAL;
    uint64_t magic = bytes_get(&bytes, 4);
    if (length == IWARP_BYTES)
        return magic == MAGIC_IWARP ? read_iwarp(bytes, address_out) : WEIR_EINVAL;
    if (magic != MAGIC_ADDRESS)
        return WEIR_EINVAL;
    struct verbs_address address = {0};
    address.qpn = (uint32_t)bytes_get(&bytes, 4);
    address.lid = (uint16_t)bytes_get(&bytes, 2);
    address.fabric = (uint8_t)bytes_get(&bytes, 1);
    if (bytes_get(&bytes, 1) != 0)
        return WEIR_EINVAL;
    memcpy(address.gid.raw, bytes, sizeof address.gid.raw);
    if (!address_is_possible(&address))
        return WEIR_EINVAL;
    *address_out = address;
    return WEIR_OK;
}

uint32_t blob_write_region(const struct verbs_region *region, uint8_t *out) {
    bytes_put(&out, MAGIC_REGION, 4);
    bytes_put(&out, region->rkey, 4);
    bytes_put(&out, region->base, 8);
    bytes_put(&out, region->length, 8);
    bytes_put(&out, region->access, 4);
    return REGION_BYTES;
}

int blob_read_region(const uint8_t *bytes, uint32_t length, struct verbs_region *region_out) {
    if (length != REGION_BYTES || bytes_get(&bytes, 4) != MAGIC_REGION)
        return WEIR_EINVAL;
    struct verbs_region region;
    region.rkey = (uint32_t)bytes_get(&bytes, 4);
    region.base = bytes_get(&bytes, 8);
    region.length = bytes_get(&bytes, 8);
    region.access = (uint32_t)bytes_get(&bytes, 4);
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
