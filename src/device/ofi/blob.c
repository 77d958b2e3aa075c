/* SPDX-License-Identifier: Apache-2.0 */
/* blob.c: the blob by which an ofi device tells the other side of a QP.
 *
 * Owns the byte layout (little-endian, versioned by its first four bytes) and the checks of what
 * came from a peer. Left to others: everything that needs a device, and the blobs
 * of regions (regions.h).
 *
 *   magic 4, port 2, zero 2, cookie 8, fence's key 8, fence's address 8, IP 16 */
#include <string.h>

#include "bytes.h"
#include "ofi.h"

#define MAGIC_ADDRESS 0x31514f57u /* "WOQ1" */

enum { ADDRESS_BYTES = 48 };
_Static_assert(ADDRESS_BYTES <= WEIR_QP_BLOB_MAX, "it fits");

uint32_t ofi_blob_write_address(const struct ofi_address *address, uint8_t *out) {
    bytes_put(&out, MAGIC_ADDRESS, 4);
    bytes_put(&out, address->port, 2);
    bytes_put(&out, 0, 2);
    bytes_put(&out, address->cookie, 8);
    bytes_put(&out, address->fence_key, 8);
    bytes_put(&out, address->fence_raddr, 8);
    memcpy(out, address->ip, sizeof address->ip);
    return ADDRESS_BYTES;
}

int ofi_blob_read_address(const uint8_t *bytes, uint32_t length, struct ofi_address *address_out) {
    if (length != ADDRESS_BYTES || bytes_get(&bytes, 4) != MAGIC_ADDRESS)
        return WEIR_EINVAL;
    struct ofi_address address;
    address.port = (uint16_t)bytes_get(&bytes, 2);
    uint64_t zero = bytes_get(&bytes, 2);
    address.cookie = bytes_get(&bytes, 8);
    address.fence_key = bytes_get(&bytes, 8);
    address.fence_raddr = bytes_get(&bytes, 8);
    memcpy(address.ip, bytes, sizeof address.ip);
    if (zero != 0 || address.cookie == 0 || address.port == 0 ||
        ofi_address_rank(address.ip) == OFI_ADDRESS_NONE)
        return WEIR_EINVAL;
    *address_out = address;
    return WEIR_OK;
}
