/* SPDX-License-Identifier: Apache-2.0 */
/* mr.c: registered memory, and what may be done with it.
 *
 * A key is an index into the domain's table and a number that no other region of the process had:
 * a key of a region that is gone, or of another domain, finds nothing.
 *
 * Registration looks whether the memory is there, as pinning it would: in /proc/self/maps, since a
 * look at the bytes might be one too many. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake.h"

enum { INDEX_BITS = 24 };

/* Local memory that a NIC writes: as the provider asks of the device. */
#define WRITTEN_RIGHTS (FI_RECV | FI_READ | FI_REMOTE_WRITE)

/* ---- the memory that is there ---- */

static bool is_mapped(uint64_t base, uint64_t len, bool written) {
    FILE *maps = fopen("/proc/self/maps", "re");
    if (maps == NULL)
        return true;
    char line[512];
    uint64_t from, to, at = base, end = base + len;
    char rights[5];
    while (at < end && fgets(line, sizeof line, maps) != NULL) {
        if (strchr(line, '\n') == NULL) {
            int c;
            while ((c = getc(maps)) != EOF && c != '\n')
                ;
        }
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s", &from, &to, rights) != 3 || to <= at)
            continue;
        if (from > at || rights[0] != 'r' || (written && rights[1] != 'w'))
            break;
        at = to;
    }
    fclose(maps);
    return at >= end;
}

/* ---- the table: with mr_lock held ---- */

static struct mr *find(struct domain *domain, uint64_t key) {
    size_t index = (size_t)(key & ((UINT64_C(1) << INDEX_BITS) - 1));
    struct mr *mr = index < domain->mrs_size ? domain->mrs[index] : NULL;
    return mr != NULL && mr->fid.key == key ? mr : NULL;
}

static bool is_within(const struct mr *mr, uint64_t address, uint64_t len) {
    return address >= mr->base && len <= mr->len && address - mr->base <= mr->len - len;
}

bool mr_covers(struct domain *domain, uint64_t key, uint64_t address, uint64_t len,
               uint64_t any_of) {
    const struct mr *mr = find(domain, key);
    return mr != NULL && (mr->access & any_of) != 0 && is_within(mr, address, len);
}

bool mr_is_local(struct domain *domain, const struct segment *segment, bool written) {
    const struct mr *mr = find(domain, segment->key);
    return mr != NULL && is_within(mr, (uint64_t)(uintptr_t)segment->base, segment->len) &&
           (!written || (mr->access & WRITTEN_RIGHTS) != 0);
}

static void enter(struct mr *mr) {
    static atomic_uint_fast32_t made;
    struct domain *domain = mr->domain;
    size_t index = 0;
    while (index < domain->mrs_size && domain->mrs[index] != NULL)
        index++;
    if (index == domain->mrs_size) {
        size_t size = domain->mrs_size == 0 ? 64 : 2 * domain->mrs_size;
        struct mr **mrs = allocate(size * sizeof(struct mr *));
        if (domain->mrs != NULL)
            memcpy(mrs, domain->mrs, domain->mrs_size * sizeof(struct mr *));
        free(domain->mrs);
        domain->mrs = mrs;
        domain->mrs_size = size;
    }
    domain->mrs[index] = mr;
    mr->index = index;
    uint64_t number = 1 + atomic_fetch_add(&made, 1);
    uint64_t lot = draw_below(&domain->draws, 1 << 8);
    mr->fid.key = (((number << 8) | lot) << INDEX_BITS) | index;
    mr->fid.mem_desc = (void *)(uintptr_t)mr->fid.key;
}

/* ---- what the user calls ---- */

static int mr_close(struct fid *fid) {
    struct mr *mr = (struct mr *)(void *)fid;
    struct domain *domain = mr->domain;
    if (domain->pid != getpid())
        return 0; /* a fork's: its parent's NIC may hold the lock for ever */
    pthread_mutex_lock(&domain->mr_lock);
    domain->mrs[mr->index] = NULL;
    pthread_mutex_unlock(&domain->mr_lock);
    atomic_fetch_sub(&domain->users, 1);
    free(mr);
    return 0;
}

static struct fi_ops mr_fid_ops = {.size = sizeof(struct fi_ops),
                                   .close = mr_close,
                                   .bind = none_bind,
                                   .control = none_control,
                                   .ops_open = none_ops_open};

static int reg_attr(struct fid *fid, const struct fi_mr_attr *attr, uint64_t flags,
                    struct fid_mr **mr_out) {
    if (fid->fclass != FI_CLASS_DOMAIN || flags != 0 || attr->iov_count != 1 ||
        attr->iface != FI_HMEM_SYSTEM)
        return -FI_EINVAL;
    struct domain *domain = (struct domain *)(void *)fid;
    uint64_t access = attr->access != 0 ? attr->access : FI_SEND | FI_RECV;
    uint64_t base = (uint64_t)(uintptr_t)attr->mr_iov[0].iov_base, len = attr->mr_iov[0].iov_len;
    if (len == 0 || base > UINT64_MAX - len)
        return -FI_EINVAL;
    if (!is_mapped(base, len, (access & WRITTEN_RIGHTS) != 0))
        return -FI_EFAULT;
    struct mr *mr = allocate(sizeof *mr);
    mr->fid.fid = (struct fid){FI_CLASS_MR, attr->context, &mr_fid_ops};
    mr->domain = domain;
    mr->base = base;
    mr->len = len;
    mr->access = access;
    pthread_mutex_lock(&domain->mr_lock);
    bool refused = draw_one_in(&domain->draws, domain->habits.refuse_mr);
    if (!refused)
        enter(mr);
    pthread_mutex_unlock(&domain->mr_lock);
    if (refused) {
        free(mr);
        return -FI_ENOMEM;
    }
    atomic_fetch_add(&domain->users, 1);
    *mr_out = &mr->fid;
    return 0;
}

static int reg_v(struct fid *fid, const struct iovec *iov, size_t count, uint64_t access,
                 uint64_t offset, uint64_t requested_key, uint64_t flags, struct fid_mr **mr_out,
                 void *context) {
    struct fi_mr_attr attr = {.mr_iov = iov,
                              .iov_count = count,
                              .access = access,
                              .offset = offset,
                              .requested_key = requested_key,
                              .context = context};
    return reg_attr(fid, &attr, flags, mr_out);
}

static int reg(struct fid *fid, const void *base, size_t len, uint64_t access, uint64_t offset,
               uint64_t requested_key, uint64_t flags, struct fid_mr **mr_out, void *context) {
    struct iovec iov = {.iov_base = (void *)(uintptr_t)base, .iov_len = len};
    return reg_v(fid, &iov, 1, access, offset, requested_key, flags, mr_out, context);
}

struct fi_ops_mr mr_ops = {
    .size = sizeof(struct fi_ops_mr), .reg = reg, .regv = reg_v, .regattr = reg_attr};
