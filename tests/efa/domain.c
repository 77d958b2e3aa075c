/* SPDX-License-Identifier: Apache-2.0 */
/* domain.c: domains, each of which is open on one NIC. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fake.h"

static int domain_close(struct fid *fid) {
    struct domain *domain = (struct domain *)(void *)fid;
    if (atomic_load(&domain->users) != 0)
        return -FI_EBUSY;
    atomic_fetch_sub(&domain->fabric->users, 1);
    pthread_mutex_destroy(&domain->mr_lock);
    free(domain->mrs);
    free(domain);
    return 0;
}

static int no_scalable_ep(struct fid_domain *domain, struct fi_info *info, struct fid_ep **sep,
                          void *context) {
    (void)domain;
    (void)info;
    (void)sep;
    (void)context;
    return -FI_ENOSYS;
}

static int no_cntr_open(struct fid_domain *domain, struct fi_cntr_attr *attr,
                        struct fid_cntr **cntr, void *context) {
    (void)domain;
    (void)attr;
    (void)cntr;
    (void)context;
    return -FI_ENOSYS;
}

static int no_poll_open(struct fid_domain *domain, struct fi_poll_attr *attr,
                        struct fid_poll **poll) {
    (void)domain;
    (void)attr;
    (void)poll;
    return -FI_ENOSYS;
}

static int no_stx(struct fid_domain *domain, struct fi_tx_attr *attr, struct fid_stx **stx,
                  void *context) {
    (void)domain;
    (void)attr;
    (void)stx;
    (void)context;
    return -FI_ENOSYS;
}

static int no_srx(struct fid_domain *domain, struct fi_rx_attr *attr, struct fid_ep **rx,
                  void *context) {
    (void)domain;
    (void)attr;
    (void)rx;
    (void)context;
    return -FI_ENOSYS;
}

static struct fi_ops domain_fid_ops = {.size = sizeof(struct fi_ops),
                                       .close = domain_close,
                                       .bind = none_bind,
                                       .control = none_control,
                                       .ops_open = none_ops_open};
static struct fi_ops_domain domain_ops = {.size = offsetof(struct fi_ops_domain, query_atomic),
                                          .av_open = av_open,
                                          .cq_open = cq_open,
                                          .endpoint = endpoint_open,
                                          .scalable_ep = no_scalable_ep,
                                          .cntr_open = no_cntr_open,
                                          .poll_open = no_poll_open,
                                          .stx_ctx = no_stx,
                                          .srx_ctx = no_srx};

int domain_open(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain_out,
                void *context) {
    if (info == NULL || info->domain_attr == NULL ||
        (info->domain_attr->mr_mode & FI_MR_LOCAL) == 0)
        return -FI_EINVAL;
    static atomic_uint opened;
    struct domain *domain = allocate(sizeof *domain);
    domain->fid.fid = (struct fid){FI_CLASS_DOMAIN, context, &domain_fid_ops};
    domain->fid.ops = &domain_ops;
    domain->fid.mr = &mr_ops;
    domain->fabric = (struct fabric *)(void *)fabric;
    habits_read(&domain->habits);
    domain->token = unlike_any();
    domain->pid = getpid();
    pthread_mutex_init(&domain->mr_lock, NULL);
    draws_begin(&domain->draws, domain->habits.seed, 1000 + atomic_fetch_add(&opened, 1));
    atomic_fetch_add(&domain->fabric->users, 1);
    *domain_out = &domain->fid;
    return 0;
}
