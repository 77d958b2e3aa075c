/* SPDX-License-Identifier: Apache-2.0 */
/* blob.c: what an efa device tells another one: where a QP is, and the header of a message.
 *
 * Owns both byte layouts (little-endian, versioned by their first bytes) and the checks of what
 * came from a peer. Left to others: everything that needs a device.
 *
 *   address  magic 4, index 4, cookie 8, endpoint 32
 *   header   magic 4, kind 4, to: index 4, from: index 4, to: cookie 8, from: cookie 8, number 4,
 *            zero 4 */
#include <string.h>

#include "bytes.h"
#include "efa.h"

#define MAGIC_ADDRESS 0x31514557u /* "WEQ1" */
#define MAGIC_HEADER  0x31484557u /* "WEH1" */

enum { ADDRESS_BYTES = 16 + EFA_NAME_BYTES };
_Static_assert(ADDRESS_BYTES <= WEIR_QP_BLOB_MAX, "it fits");

bool efa_name_is_plain(const uint8_t name[EFA_NAME_BYTES]) {
    uint8_t tail = 0;
    for (uint32_t i = EFA_NAME_MEANS; i < EFA_NAME_BYTES; i++)
        tail |= name[i];
    return tail == 0;
}

uint32_t efa_blob_write(const struct efa_address *address, uint8_t *out) {
    bytes_put(&out, MAGIC_ADDRESS, 4);
    bytes_put(&out, address->index, 4);
    bytes_put(&out, address->cookie, 8);
    memcpy(out, address->name, EFA_NAME_BYTES);
    return ADDRESS_BYTES;
}

int efa_blob_read(const uint8_t *bytes, uint32_t length, struct efa_address *address_out) {
    if (length != ADDRESS_BYTES || bytes_get(&bytes, 4) != MAGIC_ADDRESS)
        return WEIR_EINVAL;
    struct efa_address address;
    address.index = (uint32_t)bytes_get(&bytes, 4);
    address.cookie = bytes_get(&bytes, 8);
    memcpy(address.name, bytes, EFA_NAME_BYTES);
    if (address.cookie == 0 || address.index >= EFA_QPS_MAX || !efa_name_is_plain(address.name))
        return WEIR_EINVAL;
    *address_out = address;
    return WEIR_OK;
}

void efa_header_write(const struct efa_header *header, uint8_t out[EFA_HEADER_BYTES]) {
    bytes_put(&out, MAGIC_HEADER, 4);
    bytes_put(&out, header->kind, 4);
    bytes_put(&out, header->to_index, 4);
    bytes_put(&out, header->from_index, 4);
    bytes_put(&out, header->to_cookie, 8);
    bytes_put(&out, header->from_cookie, 8);
    bytes_put(&out, header->number, 4);
    bytes_put(&out, 0, 4);
}

bool efa_header_read(const uint8_t *bytes, uint64_t length, struct efa_header *header_out) {
    if (length < EFA_HEADER_BYTES || bytes_get(&bytes, 4) != MAGIC_HEADER)
        return false;
    header_out->kind = (uint32_t)bytes_get(&bytes, 4);
    header_out->to_index = (uint32_t)bytes_get(&bytes, 4);
    header_out->from_index = (uint32_t)bytes_get(&bytes, 4);
    header_out->to_cookie = bytes_get(&bytes, 8);
    header_out->from_cookie = bytes_get(&bytes, 8);
    header_out->number = (uint32_t)bytes_get(&bytes, 4);
    bool is_known = bytes_get(&bytes, 4) == 0 && header_out->kind >= EFA_MESSAGE &&
                    header_out->kind <= EFA_STOP;
    if (!is_known || header_out->kind == EFA_MESSAGE)
        return is_known;
    return length >= EFA_HEADER_BYTES + EFA_NAME_BYTES && efa_name_is_plain(bytes);
}
