/* SPDX-License-Identifier: Apache-2.0 */
/* provider.c: the entry for libfabric, fi_getinfo(3), and fabrics.
 *
 * Of two providers of one name libfabric takes the one with the higher version, and hides the
 * other. */
#define _GNU_SOURCE
#include <rdma/providers/fi_prov.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake.h"

static const char direct_name[] = "efa-direct", rdm_name[] = "efa";
static const int mr_modes = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
#define TX_CAPS (FI_MSG | FI_RMA | FI_SEND | FI_READ | FI_WRITE)
#define RX_CAPS (FI_MSG | FI_RMA | FI_RECV | FI_REMOTE_READ | FI_REMOTE_WRITE)
#define CAPS    (TX_CAPS | RX_CAPS | FI_LOCAL_COMM | FI_REMOTE_COMM)

_Noreturn void give_up(const char *why) {
    fprintf(stderr, "efa-fi: %s\n", why);
    fflush(stderr);
    signal(SIGABRT, SIG_DFL); /* one of libfabric's libraries takes it */
    abort();
}

void *allocate(size_t bytes) {
    void *memory = calloc(1, bytes);
    if (memory == NULL)
        give_up("out of memory");
    return memory;
}

/* ---- fi_getinfo ---- */

static void fill(struct fi_info *info, const struct habits *habits, bool direct, uint64_t nic) {
    char name[16];
    snprintf(name, sizeof name, "rdmap%us6-rdm", (unsigned)nic);
    uint64_t mode = direct ? FI_CONTEXT2 : 0;
    info->caps = CAPS;
    info->mode = mode;
    info->addr_format = FI_ADDR_EFA;
    *info->tx_attr = (struct fi_tx_attr){.caps = TX_CAPS,
                                         .mode = mode,
                                         .op_flags = FI_COMPLETION,
                                         .inject_size = INJECT_MAX,
                                         .size = habits->tx_size,
                                         .iov_limit = IOVS_MAX,
                                         .rma_iov_limit = 1};
    *info->rx_attr = (struct fi_rx_attr){.caps = RX_CAPS,
                                         .mode = mode,
                                         .op_flags = FI_COMPLETION,
                                         .size = habits->rx_size,
                                         .iov_limit = IOVS_MAX};
    info->ep_attr->type = FI_EP_RDM;
    info->ep_attr->protocol = FI_PROTO_EFA;
    info->ep_attr->max_msg_size = MESSAGE_MAX;
    info->ep_attr->tx_ctx_cnt = 1;
    info->ep_attr->rx_ctx_cnt = 1;
    info->domain_attr->name = strdup(name);
    info->domain_attr->threading = FI_THREAD_SAFE;
    info->domain_attr->control_progress = FI_PROGRESS_AUTO;
    info->domain_attr->data_progress = FI_PROGRESS_AUTO;
    info->domain_attr->resource_mgmt = FI_RM_DISABLED;
    info->domain_attr->av_type = FI_AV_TABLE;
    info->domain_attr->mr_mode = mr_modes;
    info->domain_attr->mr_key_size = sizeof(uint64_t);
    info->domain_attr->cq_data_size = 4;
    info->domain_attr->cq_cnt = 4096;
    info->domain_attr->ep_cnt = 4096;
    info->domain_attr->tx_ctx_cnt = 4096;
    info->domain_attr->rx_ctx_cnt = 4096;
    info->domain_attr->max_ep_tx_ctx = 1;
    info->domain_attr->max_ep_rx_ctx = 1;
    info->domain_attr->mr_iov_limit = 1;
    info->domain_attr->mr_cnt = 65536;
    info->domain_attr->caps = FI_LOCAL_COMM | FI_REMOTE_COMM;
    info->fabric_attr->name = strdup(direct ? direct_name : rdm_name);
    if (info->domain_attr->name == NULL || info->fabric_attr->name == NULL)
        give_up("out of memory");
}

static bool endpoint_fits(const struct fi_info *hints) {
    const struct fi_ep_attr *ep = hints->ep_attr;
    if (ep != NULL &&
        ((ep->type != FI_EP_UNSPEC && ep->type != FI_EP_RDM) || ep->max_msg_size > MESSAGE_MAX ||
         (ep->protocol != FI_PROTO_UNSPEC && ep->protocol != FI_PROTO_EFA)))
        return false;
    const struct fi_tx_attr *tx = hints->tx_attr;
    return tx == NULL || (tx->iov_limit <= IOVS_MAX && tx->rma_iov_limit <= 1 &&
                          tx->inject_size <= INJECT_MAX && tx->msg_order == 0);
}

/* Whether these hints allow this info. */
static bool fits(const struct fi_info *hints, const struct fi_info *info, bool direct) {
    if (hints == NULL)
        return !direct; /* nobody said that there are contexts */
    if ((hints->caps & ~CAPS) != 0 || !endpoint_fits(hints))
        return false;
    if (direct && (hints->mode & FI_CONTEXT2) == 0)
        return false;
    if (hints->addr_format != FI_FORMAT_UNSPEC && hints->addr_format != FI_ADDR_EFA)
        return false;
    const struct fi_domain_attr *domain = hints->domain_attr;
    if (domain != NULL && ((domain->mr_mode & mr_modes) != mr_modes ||
                           (domain->name != NULL && strcmp(domain->name, info->domain_attr->name))))
        return false;
    const struct fi_fabric_attr *fabric = hints->fabric_attr;
    return fabric == NULL || fabric->name == NULL ||
           strcmp(fabric->name, info->fabric_attr->name) == 0;
}

static int get_info(uint32_t version, const char *node, const char *service, uint64_t flags,
                    const struct fi_info *hints, struct fi_info **info_out) {
    (void)version;
    (void)flags;
    if (node != NULL || service != NULL)
        return -FI_ENODATA;
    struct habits habits;
    habits_read(&habits);
    struct fi_info *first = NULL, **end = &first;
    for (int direct = 1; direct >= 0; direct--) {
        for (uint64_t nic = 0; nic < habits.nics; nic++) {
            struct fi_info *info = fi_allocinfo();
            if (info == NULL)
                give_up("out of memory");
            fill(info, &habits, direct != 0, nic);
            if (!fits(hints, info, direct != 0)) {
                fi_freeinfo(info);
                continue;
            }
            *end = info;
            end = &info->next;
        }
    }
    *info_out = first;
    return first != NULL ? 0 : -FI_ENODATA;
}

bool fabric_is_direct(const struct fi_info *info) {
    return info->fabric_attr != NULL && info->fabric_attr->name != NULL &&
           strcmp(info->fabric_attr->name, direct_name) == 0;
}

/* ---- calls that objects do not have ---- */

int none_bind(struct fid *fid, struct fid *other, uint64_t flags) {
    (void)fid;
    (void)other;
    (void)flags;
    return -FI_ENOSYS;
}

int none_control(struct fid *fid, int command, void *arg) {
    (void)fid;
    (void)command;
    (void)arg;
    return -FI_ENOSYS;
}

int none_ops_open(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context) {
    (void)fid;
    (void)name;
    (void)flags;
    (void)ops;
    (void)context;
    return -FI_ENOSYS;
}

/* ---- fabrics ---- */

static int fabric_close(struct fid *fid) {
    struct fabric *fabric = (struct fabric *)(void *)fid;
    if (atomic_load(&fabric->users) != 0)
        return -FI_EBUSY;
    free(fabric);
    return 0;
}

static int no_passive_ep(struct fid_fabric *fabric, struct fi_info *info, struct fid_pep **pep,
                         void *context) {
    (void)fabric;
    (void)info;
    (void)pep;
    (void)context;
    return -FI_ENOSYS;
}

static int no_wait_open(struct fid_fabric *fabric, struct fi_wait_attr *attr,
                        struct fid_wait **wait) {
    (void)fabric;
    (void)attr;
    (void)wait;
    return -FI_ENOSYS;
}

static int fabric_try_wait(struct fid_fabric *fabric, struct fid **fids, int count) {
    (void)fabric;
    for (int i = 0; i < count; i++) {
        if (fids[i]->fclass != FI_CLASS_CQ)
            return -FI_EINVAL;
        if (!cq_is_empty((struct cq *)(void *)fids[i]))
            return -FI_EAGAIN;
    }
    return 0;
}

static struct fi_ops fabric_fid_ops = {.size = sizeof(struct fi_ops),
                                       .close = fabric_close,
                                       .bind = none_bind,
                                       .control = none_control,
                                       .ops_open = none_ops_open};
static struct fi_ops_fabric fabric_ops = {.size = offsetof(struct fi_ops_fabric, domain2),
                                          .domain = domain_open,
                                          .passive_ep = no_passive_ep,
                                          .eq_open = eq_open,
                                          .wait_open = no_wait_open,
                                          .trywait = fabric_try_wait};

static int fabric_open(struct fi_fabric_attr *attr, struct fid_fabric **fabric_out, void *context) {
    bool direct = attr->name != NULL && strcmp(attr->name, direct_name) == 0;
    if (!direct && attr->name != NULL && strcmp(attr->name, rdm_name) != 0)
        return -FI_ENODATA;
    struct fabric *fabric = allocate(sizeof *fabric);
    fabric->fid.fid = (struct fid){FI_CLASS_FABRIC, context, &fabric_fid_ops};
    fabric->fid.ops = &fabric_ops;
    fabric->fid.api_version = attr->api_version;
    fabric->direct = direct;
    *fabric_out = &fabric->fid;
    return 0;
}

static void clean_up(void) {
}

static struct fi_provider provider = {.version = FI_VERSION(200, 0),
                                      .fi_version = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION),
                                      .name = "efa",
                                      .getinfo = get_info,
                                      .fabric = fabric_open,
                                      .cleanup = clean_up};

struct fi_provider *fi_prov_ini(void);
__attribute__((visibility("default"))) struct fi_provider *fi_prov_ini(void) {
    return &provider;
}
