/* SPDX-License-Identifier: Apache-2.0 */
/* region.c: see region.h. */
#include "region.h"

int region_pair(const struct regions *regions, uint64_t party, uint32_t access, uint64_t local_id,
                uint64_t remote_id, struct region_pair *pair_out) {
    const struct region_local *local = region_local(regions, local_id);
    const struct region_remote *remote = region_remote(regions, remote_id);
    if (local == NULL || remote == NULL)
        return WEIR_ESTALE;
    if (remote->party != party) {
        /* Of another incarnation of this peer: stale. Of another peer: a mistake. */
        return remote->party == 0 || (uint32_t)remote->party == (uint32_t)party ? WEIR_ESTALE
                                                                                : WEIR_EINVAL;
    }
    if ((remote->access & access) != access)
        return WEIR_EACCESS;
    *pair_out = (struct region_pair){
        .version = regions->version,
        .local_id = local_id,
        .remote_id = remote_id,
        .local_length = local->length,
        .remote_length = remote->length,
        .length_max = local->length < remote->length ? local->length : remote->length,
        .span = {.laddr = local->base,
                 .raddr = remote->raddr,
                 .lkey = local->lkey,
                 .rkey = remote->rkey,
                 .opcode = access == WEIR_ACCESS_REMOTE_READ ? WEIR_OP_READ : WEIR_OP_WRITE},
    };
    return WEIR_OK;
}
