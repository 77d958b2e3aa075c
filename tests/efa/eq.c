/* SPDX-License-Identifier: Apache-2.0 */
/* eq.c: event queues, on which the provider tells of its own failures. This one has none: the
 * queues are empty. */
#include <stdlib.h>

#include "fake.h"

static int eq_close(struct fid *fid) {
    free(fid);
    return 0;
}

static ssize_t eq_read(struct fid_eq *eq, uint32_t *event, void *bytes, size_t len,
                       uint64_t flags) {
    (void)eq;
    (void)event;
    (void)bytes;
    (void)len;
    (void)flags;
    return -FI_EAGAIN;
}

static ssize_t eq_readerr(struct fid_eq *eq, struct fi_eq_err_entry *entry, uint64_t flags) {
    (void)eq;
    (void)entry;
    (void)flags;
    return -FI_EAGAIN;
}

static ssize_t no_write(struct fid_eq *eq, uint32_t event, const void *bytes, size_t len,
                        uint64_t flags) {
    (void)eq;
    (void)event;
    (void)bytes;
    (void)len;
    (void)flags;
    return -FI_ENOSYS;
}

static ssize_t no_sread(struct fid_eq *eq, uint32_t *event, void *bytes, size_t len, int timeout,
                        uint64_t flags) {
    (void)timeout;
    return no_write(eq, *event, bytes, len, flags);
}

static const char *eq_strerror(struct fid_eq *eq, int status, const void *bytes, char *out,
                               size_t len) {
    (void)eq;
    (void)status;
    (void)bytes;
    (void)out;
    (void)len;
    return "";
}

static struct fi_ops eq_fid_ops = {.size = sizeof(struct fi_ops),
                                   .close = eq_close,
                                   .bind = none_bind,
                                   .control = none_control,
                                   .ops_open = none_ops_open};
static struct fi_ops_eq eq_ops = {.size = sizeof(struct fi_ops_eq),
                                  .read = eq_read,
                                  .readerr = eq_readerr,
                                  .write = no_write,
                                  .sread = no_sread,
                                  .strerror = eq_strerror};

int eq_open(struct fid_fabric *fabric, struct fi_eq_attr *attr, struct fid_eq **eq_out,
            void *context) {
    (void)fabric;
    if (attr->wait_obj != FI_WAIT_NONE && attr->wait_obj != FI_WAIT_UNSPEC)
        return -FI_ENOSYS;
    struct fid_eq *eq = allocate(sizeof *eq);
    eq->fid = (struct fid){FI_CLASS_EQ, context, &eq_fid_ops};
    eq->ops = &eq_ops;
    *eq_out = eq;
    return 0;
}
