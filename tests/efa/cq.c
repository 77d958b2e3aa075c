/* SPDX-License-Identifier: Apache-2.0 */
/* cq.c: completion queues.
 *
 * Entries are a ring. Nothing protects it from its user: a CQ that is too small for what is posted
 * overflows, and that ends the process. Its descriptor is readable while the CQ is not empty; it is
 * written and read with the lock held, where the first entry comes and the last one goes. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "fake.h"

static int cq_close(struct fid *fid) {
    struct cq *cq = (struct cq *)(void *)fid;
    if (atomic_load(&cq->users) != 0)
        return -FI_EBUSY;
    if (cq->fd >= 0)
        close(cq->fd);
    pthread_mutex_destroy(&cq->lock);
    atomic_fetch_sub(&cq->domain->users, 1);
    free(cq->ring);
    free(cq);
    return 0;
}

/* ---- the ring: with the lock held ---- */

static void signal_first(struct cq *cq) {
    uint64_t one = 1;
    if (cq->fd >= 0 && write(cq->fd, &one, sizeof one) != (ssize_t)sizeof one)
        give_up("a CQ's descriptor cannot be written");
}

static void signal_none(struct cq *cq) {
    uint64_t value;
    if (cq->fd >= 0 && read(cq->fd, &value, sizeof value) != (ssize_t)sizeof value)
        give_up("a CQ's descriptor cannot be read");
}

static void append(struct cq *cq, const struct completion *completion, size_t room) {
    if (cq->count >= room)
        give_up("a CQ overflows");
    cq->ring[(cq->first + cq->count) % cq->room] = *completion;
    if (cq->count++ == 0)
        signal_first(cq);
}

static void take_first(struct cq *cq) {
    struct completion *first = &cq->ring[cq->first];
    if (first->endpoint != NULL) {
        atomic_uint *used = first->received ? &first->endpoint->rx_used : &first->endpoint->tx_used;
        atomic_fetch_sub(used, 1);
    }
    cq->first = (cq->first + 1) % cq->room;
    if (--cq->count == 0)
        signal_none(cq);
}

void cq_push(struct cq *cq, const struct completion *completion) {
    uint64_t nonsense = cq->domain->habits.nonsense;
    pthread_mutex_lock(&cq->lock);
    append(cq, completion, nonsense != 0 ? cq->room : cq->size);
    if (draw_one_in(&cq->draws, nonsense) && cq->count < cq->room) {
        struct completion more = *completion;
        more.endpoint = NULL;
        if (draw_percent(&cq->draws, 50))
            more.entry.op_context =
                (void *)(uintptr_t)(draw(&cq->draws) & UINT64_C(0x7ffffffffff8));
        append(cq, &more, cq->room);
    }
    pthread_mutex_unlock(&cq->lock);
}

void cq_forget(struct cq *cq, const struct endpoint *endpoint) {
    pthread_mutex_lock(&cq->lock);
    size_t left = 0, before = cq->count;
    for (size_t i = 0; i < before; i++) {
        const struct completion *from = &cq->ring[(cq->first + i) % cq->room];
        if (from->endpoint != endpoint)
            cq->ring[(cq->first + left++) % cq->room] = *from;
    }
    cq->count = left;
    if (before != 0 && left == 0)
        signal_none(cq);
    pthread_mutex_unlock(&cq->lock);
}

bool cq_is_empty(struct cq *cq) {
    pthread_mutex_lock(&cq->lock);
    bool empty = cq->count == 0;
    pthread_mutex_unlock(&cq->lock);
    return empty;
}

/* ---- what the user calls ---- */

static ssize_t cq_read(struct fid_cq *fid, void *entries_out, size_t count) {
    struct cq *cq = (struct cq *)(void *)fid;
    size_t taken = 0;
    ssize_t result = -FI_EAGAIN;
    pthread_mutex_lock(&cq->lock);
    if (cq->count != 0 && draw_one_in(&cq->draws, cq->domain->habits.nonsense * 3)) {
        pthread_mutex_unlock(&cq->lock);
        return -FI_EOTHER;
    }
    while (taken < count && cq->count != 0) {
        const struct completion *first = &cq->ring[cq->first];
        if (first->entry.prov_errno != 0)
            break;
        const struct fi_cq_tagged_entry entry = {.op_context = first->entry.op_context,
                                                 .flags = first->entry.flags,
                                                 .len = first->entry.len,
                                                 .data = first->entry.data};
        memcpy((uint8_t *)entries_out + taken++ * cq->entry_size, &entry, cq->entry_size);
        take_first(cq);
    }
    if (taken != 0)
        result = (ssize_t)taken;
    else if (cq->count != 0 && cq->ring[cq->first].entry.prov_errno != 0)
        result = -FI_EAVAIL;
    pthread_mutex_unlock(&cq->lock);
    return result;
}

static ssize_t cq_read_from(struct fid_cq *fid, void *entries_out, size_t count,
                            fi_addr_t *from_out) {
    ssize_t result = cq_read(fid, entries_out, count);
    for (ssize_t i = 0; i < result && from_out != NULL; i++)
        from_out[i] = FI_ADDR_NOTAVAIL;
    return result;
}

static ssize_t cq_read_error(struct fid_cq *fid, struct fi_cq_err_entry *entry_out,
                             uint64_t flags) {
    (void)flags;
    struct cq *cq = (struct cq *)(void *)fid;
    ssize_t result = -FI_EAGAIN;
    pthread_mutex_lock(&cq->lock);
    if (cq->count != 0 && cq->ring[cq->first].entry.prov_errno != 0) {
        const struct fi_cq_err_entry *entry = &cq->ring[cq->first].entry;
        *entry_out = *entry;
        entry_out->err_data = NULL;
        entry_out->err_data_size = 0;
        take_first(cq);
        result = 1;
    }
    pthread_mutex_unlock(&cq->lock);
    return result;
}

static ssize_t no_sread(struct fid_cq *cq, void *entries, size_t count, const void *condition,
                        int timeout) {
    (void)cq;
    (void)entries;
    (void)count;
    (void)condition;
    (void)timeout;
    return -FI_ENOSYS;
}

static ssize_t no_sread_from(struct fid_cq *cq, void *entries, size_t count, fi_addr_t *from,
                             const void *condition, int timeout) {
    (void)from;
    return no_sread(cq, entries, count, condition, timeout);
}

static int no_signal(struct fid_cq *cq) {
    (void)cq;
    return -FI_ENOSYS;
}

static const char *error_text(struct fid_cq *cq, int prov_errno, const void *data, char *text,
                              size_t len) {
    (void)cq;
    (void)data;
    const char *what = status_text(prov_errno);
    if (text != NULL && len != 0)
        snprintf(text, len, "%s", what);
    return what;
}

static int cq_control(struct fid *fid, int command, void *arg) {
    const struct cq *cq = (struct cq *)(void *)fid;
    if (command != FI_GETWAIT || cq->fd < 0)
        return -FI_ENODATA;
    *(int *)arg = cq->fd;
    return 0;
}

static struct fi_ops cq_fid_ops = {.size = sizeof(struct fi_ops),
                                   .close = cq_close,
                                   .bind = none_bind,
                                   .control = cq_control,
                                   .ops_open = none_ops_open};
static struct fi_ops_cq cq_ops = {.size = sizeof(struct fi_ops_cq),
                                  .read = cq_read,
                                  .readfrom = cq_read_from,
                                  .readerr = cq_read_error,
                                  .sread = no_sread,
                                  .sreadfrom = no_sread_from,
                                  .signal = no_signal,
                                  .strerror = error_text};

static const size_t entry_sizes[] = {
    [FI_CQ_FORMAT_UNSPEC] = sizeof(struct fi_cq_msg_entry),
    [FI_CQ_FORMAT_CONTEXT] = sizeof(struct fi_cq_entry),
    [FI_CQ_FORMAT_MSG] = sizeof(struct fi_cq_msg_entry),
    [FI_CQ_FORMAT_DATA] = sizeof(struct fi_cq_data_entry),
    [FI_CQ_FORMAT_TAGGED] = sizeof(struct fi_cq_tagged_entry),
};

int cq_open(struct fid_domain *domain_fid, struct fi_cq_attr *attr, struct fid_cq **cq_out,
            void *context) {
    static atomic_uint opened;
    struct domain *domain = (struct domain *)(void *)domain_fid;
    const struct habits *habits = &domain->habits;
    bool waits = attr->wait_obj == FI_WAIT_FD;
    if (attr->wait_obj != FI_WAIT_NONE && attr->wait_obj != FI_WAIT_UNSPEC && !waits)
        return -FI_ENOSYS;
    if (waits && habits->no_wait != 0)
        return -FI_ENOSYS;
    if (attr->format > FI_CQ_FORMAT_TAGGED)
        return -FI_EINVAL;
    int fd = waits ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK) : -1;
    if (waits && fd < 0)
        return -FI_EMFILE;
    struct cq *cq = allocate(sizeof *cq);
    cq->fid.fid = (struct fid){FI_CLASS_CQ, context, &cq_fid_ops};
    cq->fid.ops = &cq_ops;
    cq->domain = domain;
    cq->size = attr->size != 0 ? attr->size : habits->tx_size + habits->rx_size;
    cq->room = cq->size + (habits->nonsense != 0 ? cq->size : 0);
    cq->ring = allocate(cq->room * sizeof cq->ring[0]);
    cq->entry_size = entry_sizes[attr->format];
    cq->fd = fd;
    pthread_mutex_init(&cq->lock, NULL);
    draws_begin(&cq->draws, habits->seed, 3000 + atomic_fetch_add(&opened, 1));
    atomic_fetch_add(&domain->users, 1);
    *cq_out = &cq->fid;
    return 0;
}
