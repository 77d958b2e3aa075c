/* SPDX-License-Identifier: Apache-2.0 */
/* side.c: see side.h. */
#define _GNU_SOURCE
#include "side.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define LOCAL_RIGHTS  (FI_RECV | FI_READ | FI_WRITE)
#define REMOTE_RIGHTS (FI_REMOTE_READ | FI_REMOTE_WRITE)

uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void nap(unsigned ms) {
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    nanosleep(&time, NULL);
}

void pattern(uint8_t *bytes, size_t len, unsigned seed) {
    for (size_t i = 0; i < len; i++)
        bytes[i] = (uint8_t)((i * 31 + seed + (i >> 8)) & 0xff);
}

bool is_pattern(const uint8_t *bytes, size_t len, unsigned seed) {
    for (size_t i = 0; i < len; i++) {
        if (bytes[i] != (uint8_t)((i * 31 + seed + (i >> 8)) & 0xff))
            return false;
    }
    return true;
}

/* ---- sides ---- */

struct fi_info *ask(void) {
    struct fi_info *hints = fi_allocinfo(), *info = NULL;
    CHECK(hints != NULL);
    hints->caps = FI_MSG | FI_RMA;
    hints->mode = FI_CONTEXT | FI_CONTEXT2;
    hints->ep_attr->type = FI_EP_RDM;
    hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    hints->fabric_attr->prov_name = strdup("efa");
    int rc = fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &info);
    fi_freeinfo(hints);
    CHECK(rc == 0 && info != NULL);
    return info;
}

void open_cq(struct side *side, enum fi_wait_obj wait, size_t size) {
    struct fi_cq_attr attr = {.size = size, .format = FI_CQ_FORMAT_MSG, .wait_obj = wait};
    CHECK(fi_cq_open(side->domain, &attr, &side->cq, NULL) == 0);
}

void open_side(struct side *side, size_t size, size_t cq_size) {
    memset(side, 0, sizeof *side);
    side->info = ask();
    CHECK(strcmp(side->info->fabric_attr->name, "efa-direct") == 0);
    CHECK(side->info->fabric_attr->prov_version == FI_VERSION(200, 0));
    CHECK(fi_fabric(side->info->fabric_attr, &side->fabric, NULL) == 0);
    CHECK(fi_domain(side->fabric, side->info, &side->domain, NULL) == 0);
    struct fi_av_attr av = {.type = FI_AV_TABLE};
    CHECK(fi_av_open(side->domain, &av, &side->av, NULL) == 0);
    open_cq(side, FI_WAIT_FD, cq_size);
    CHECK(fi_endpoint(side->domain, side->info, &side->ep, NULL) == 0);
    CHECK(fi_ep_bind(side->ep, &side->av->fid, 0) == 0);
    CHECK(fi_ep_bind(side->ep, &side->cq->fid, FI_TRANSMIT | FI_RECV) == 0);
    int one = 1;
    CHECK(fi_setopt(&side->ep->fid, FI_OPT_ENDPOINT, 4711, &one, sizeof one) == -FI_ENOPROTOOPT);
    CHECK(fi_enable(side->ep) == 0);
    side->size = size;
    side->bytes = aligned_alloc(4096, size);
    CHECK(side->bytes != NULL);
    memset(side->bytes, 0, size);
    CHECK(fi_mr_reg(side->domain, side->bytes, size, LOCAL_RIGHTS | REMOTE_RIGHTS, 0, 0, 0,
                    &side->mr, NULL) == 0);
}

void close_side(struct side *side) {
    CHECK(fi_close(&side->domain->fid) == -FI_EBUSY);
    CHECK(fi_close(&side->ep->fid) == 0);
    CHECK(side->mr == NULL || fi_close(&side->mr->fid) == 0);
    CHECK(fi_close(&side->cq->fid) == 0);
    CHECK(fi_close(&side->av->fid) == 0);
    CHECK(fi_close(&side->domain->fid) == 0);
    CHECK(fi_close(&side->fabric->fid) == 0);
    fi_freeinfo(side->info);
    free(side->bytes);
}

struct about about(struct side *side) {
    struct about about = {.base = (uint64_t)(uintptr_t)side->bytes, .key = fi_mr_key(side->mr)};
    size_t len = sizeof about.address;
    CHECK(fi_getname(&side->ep->fid, about.address, &len) == 0 && len == ADDRESS);
    return about;
}

void meet(struct side *side, const struct about *other) {
    fi_addr_t again;
    CHECK(fi_av_insert(side->av, other->address, 1, &side->peer, 0, NULL) == 1);
    CHECK(fi_av_insert(side->av, other->address, 1, &again, 0, NULL) == 1 && again == side->peer);
    CHECK(fi_av_remove(side->av, &again, 1, 0) == 0);
}

struct about swap(struct side *side, int fd) {
    struct about own = about(side), other;
    CHECK(write(fd, &own, sizeof own) == (ssize_t)sizeof own);
    CHECK(recv(fd, &other, sizeof other, MSG_WAITALL) == (ssize_t)sizeof other);
    meet(side, &other);
    return other;
}

void tell(int fd) {
    CHECK(write(fd, "!", 1) == 1);
}

void hear(int fd) {
    char c;
    CHECK(read(fd, &c, 1) == 1);
}

/* ---- operations ---- */

ssize_t try_receive(struct side *side, size_t at, size_t len, void *context) {
    struct iovec iov = {side->bytes + at, len};
    void *desc = fi_mr_desc(side->mr);
    struct fi_msg msg = {.msg_iov = &iov, .desc = &desc, .iov_count = 1, .context = context};
    return fi_recvmsg(side->ep, &msg, FI_COMPLETION);
}

ssize_t try_send(struct side *side, size_t at, size_t len, void *context) {
    struct iovec iov = {side->bytes + at, len};
    void *desc = fi_mr_desc(side->mr);
    struct fi_msg msg = {
        .msg_iov = &iov, .desc = &desc, .iov_count = 1, .addr = side->peer, .context = context};
    return fi_sendmsg(side->ep, &msg, FI_COMPLETION);
}

ssize_t try_transfer(struct side *side, bool writes, size_t at, size_t len,
                     const struct about *other, size_t to, void *context) {
    /* In two parts, where there is enough for two. */
    struct iovec iov[2] = {{side->bytes + at, len / 3},
                           {side->bytes + at + len / 3, len - len / 3}};
    void *desc[2] = {fi_mr_desc(side->mr), fi_mr_desc(side->mr)};
    struct fi_rma_iov remote = {.addr = other->base + to, .len = len, .key = other->key};
    struct fi_msg_rma msg = {.msg_iov = iov,
                             .desc = desc,
                             .iov_count = 2,
                             .addr = side->peer,
                             .rma_iov = &remote,
                             .rma_iov_count = 1,
                             .context = context};
    return writes ? fi_writemsg(side->ep, &msg, FI_COMPLETION | FI_DELIVERY_COMPLETE)
                  : fi_readmsg(side->ep, &msg, FI_COMPLETION);
}

/* Sleeps for the next completion; its status. */
int next_within(struct side *side, struct fi_cq_msg_entry *entry_out, unsigned ms) {
    int fd;
    CHECK(fi_control(&side->cq->fid, FI_GETWAIT, &fd) == 0);
    for (uint64_t end_ms = now_ms() + ms; now_ms() <= end_ms;) {
        ssize_t n = fi_cq_read(side->cq, entry_out, 1);
        if (n == 1)
            return 0;
        if (n == -FI_EAVAIL) {
            struct fi_cq_err_entry error = {0};
            CHECK(fi_cq_readerr(side->cq, &error, 0) == 1);
            CHECK(error.prov_errno > 0 && error.err > 0);
            CHECK(fi_cq_strerror(side->cq, error.prov_errno, NULL, NULL, 0) != NULL);
            *entry_out =
                (struct fi_cq_msg_entry){.op_context = error.op_context, .flags = error.flags};
            return error.prov_errno;
        }
        CHECK(n == -FI_EAGAIN);
        struct fid *fids[] = {&side->cq->fid};
        struct pollfd pollfd = {.fd = fd, .events = POLLIN};
        if (fi_trywait(side->fabric, fids, 1) == 0)
            poll(&pollfd, 1, 10);
    }
    return -1;
}

int next(struct side *side, struct fi_cq_msg_entry *entry_out) {
    int status = next_within(side, entry_out, PATIENCE_S * 1000);
    CHECK(status >= 0);
    return status;
}

void expect(struct side *side, const void *context, uint64_t flags, size_t len) {
    struct fi_cq_msg_entry entry;
    CHECK(next(side, &entry) == 0);
    CHECK(entry.op_context == context && entry.flags == flags);
    CHECK((flags & FI_RECV) == 0 || entry.len == len);
}

int status_of(struct side *side, const void *context) {
    struct fi_cq_msg_entry entry;
    int status = next(side, &entry);
    CHECK(entry.op_context == context);
    return status;
}
