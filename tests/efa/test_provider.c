/* SPDX-License-Identifier: Apache-2.0 */
/* test_provider.c: the provider that plays EFA, by itself: the efa device's tests
 * stand on it.
 *
 * Each test is a process, or two, that is forked before libfabric is touched. FI_PROVIDER_PATH
 * names the provider's directory; arguments are the names of tests to run. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <glob.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "side.h"

/* ---- what tests have in common ---- */

static void open_two(struct side *a, struct side *b, struct about *of_b_out, size_t size) {
    open_side(a, size, 0);
    open_side(b, size, 0);
    struct about of_a = about(a);
    *of_b_out = about(b);
    meet(a, of_b_out);
    meet(b, &of_a);
}

static const size_t message_sizes[] = {0, 1, 8, 100, 4095, 8192};
static const size_t transfer_sizes[] = {8, 9, 4096, 32768, 100003, MIB, 8 * MIB};

static void test_getinfo(int fd) {
    (void)fd;
    struct fi_info *info = ask();
    CHECK(strcmp(info->domain_attr->name, "rdmap0s6-rdm") == 0);
    CHECK(info->next != NULL && strcmp(info->next->fabric_attr->name, "efa") == 0);
    CHECK(info->next->next == NULL);
    CHECK(info->ep_attr->max_msg_size == 1u << 30 && info->tx_attr->size == 4096);
    struct fi_info *hints = fi_dupinfo(info), *none = NULL;
    hints->domain_attr->mr_mode &= ~FI_MR_LOCAL;
    free(hints->fabric_attr->prov_name);
    hints->fabric_attr->prov_name = strdup("efa");
    CHECK(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, hints, &none) == -FI_ENODATA);
    fi_freeinfo(hints);
    fi_freeinfo(info);
}

static void test_messages(int fd) {
    (void)fd;
    struct side a, b;
    struct about of_b;
    open_two(&a, &b, &of_b, 64 * 1024);
    for (size_t i = 0; i < sizeof message_sizes / sizeof message_sizes[0]; i++) {
        size_t len = message_sizes[i];
        pattern(a.bytes, len, (unsigned)i);
        CHECK(try_receive(&b, 16384, 8192, &b.contexts[i]) == 0);
        INSIST(try_send(&a, 0, len, &a.contexts[i]));
        expect(&b, &b.contexts[i], FI_RECV | FI_MSG, len);
        expect(&a, &a.contexts[i], FI_SEND | FI_MSG, len);
        CHECK(is_pattern(b.bytes + 16384, len, (unsigned)i));
    }
    CHECK(try_receive(&b, 0, 10, &b.contexts[100]) == 0);
    INSIST(try_send(&a, 0, 11, &a.contexts[100]));
    CHECK(status_of(&a, &a.contexts[100]) == 11);
    INSIST(try_send(&a, 0, 10000, &a.contexts[100]));
    CHECK(status_of(&a, &a.contexts[100]) == 6);
    close_side(&a);
    close_side(&b);
}

/* The thirds of a buffer: written from, read into, and for the other side to do that to. */
static void transfer(struct side *side, const struct about *other, unsigned seed, size_t len) {
    size_t third = side->size / 3 / 8 * 8;
    pattern(side->bytes, len, seed);
    memset(side->bytes + third, 0, len);
    INSIST(try_transfer(side, true, 0, len, other, 2 * third + 8, &side->contexts[0]));
    expect(side, &side->contexts[0], FI_WRITE | FI_RMA, 0);
    INSIST(try_transfer(side, false, third, len, other, 2 * third + 8, &side->contexts[1]));
    expect(side, &side->contexts[1], FI_READ | FI_RMA, 0);
    CHECK(is_pattern(side->bytes + third, len, seed));
}

static void test_transfers(int fd) {
    (void)fd;
    struct side a, b;
    struct about of_b;
    open_two(&a, &b, &of_b, 30 * MIB);
    for (size_t i = 0; i < sizeof transfer_sizes / sizeof transfer_sizes[0]; i++) {
        transfer(&a, &of_b, (unsigned)i, transfer_sizes[i]);
        CHECK(is_pattern(b.bytes + 20 * MIB + 8, transfer_sizes[i], (unsigned)i));
    }
    transfer(&a, &of_b, 0, 0);
    close_side(&a);
    close_side(&b);
}

static void test_two_processes(int fd) {
    struct side side;
    open_side(&side, 30 * MIB, 0);
    for (int i = 0; i < 6; i++)
        CHECK(try_receive(&side, 9 * MIB + (size_t)i * 8192, 8192, &side.contexts[10 + i]) == 0);
    struct about other = swap(&side, fd);
    unsigned received = 0, sent = 0;
    pattern(side.bytes, 8192, 7);
    for (int i = 0; i < 6; i++)
        INSIST(try_send(&side, 0, message_sizes[i], &side.contexts[i]));
    while (received < 6 || sent < 6) {
        struct fi_cq_msg_entry entry;
        CHECK(next(&side, &entry) == 0);
        received += (entry.flags & FI_RECV) != 0;
        sent += (entry.flags & FI_SEND) != 0;
    }
    for (size_t i = 0; i < sizeof transfer_sizes / sizeof transfer_sizes[0]; i++)
        transfer(&side, &other, (unsigned)i,
                 transfer_sizes[i] > 4 * MIB ? 4 * MIB : transfer_sizes[i]);
    tell(fd);
    hear(fd);
    close_side(&side);
}

/* The depth is full of messages that no receive is posted for: they go on for ever. */
static void test_depth_and_rnr(int fd) {
    (void)fd;
    setenv("EFA_FAKE_TX", "16", 1);
    setenv("EFA_FAKE_EAGAIN", "0", 1);
    struct side a, b;
    struct about of_b;
    open_two(&a, &b, &of_b, 64 * 1024);
    for (int i = 0; i < 16; i++)
        INSIST(try_send(&a, 0, 64, &a.contexts[i]));
    struct fi_cq_msg_entry entry;
    CHECK(next_within(&a, &entry, 200) == -1);
    CHECK(try_send(&a, 0, 64, &a.contexts[16]) == -FI_EAGAIN);
    CHECK(try_transfer(&a, true, 0, 8, &of_b, 0, &a.contexts[16]) == -FI_EAGAIN);
    for (int i = 0; i < 16; i++)
        CHECK(try_receive(&b, 0, 64, &b.contexts[i]) == 0);
    for (int i = 0; i < 16; i++) {
        CHECK(next(&b, &entry) == 0);
        CHECK(next(&a, &entry) == 0);
    }
    CHECK(try_send(&a, 0, 64, &a.contexts[16]) == 0);
    close_side(&a);
    close_side(&b);
}

static void test_rnr_ends(int fd) {
    (void)fd;
    setenv("EFA_FAKE_RNR_RETRIES", "20", 1);
    struct side a, b;
    struct about of_b;
    open_two(&a, &b, &of_b, 4096);
    INSIST(try_send(&a, 0, 64, &a.contexts[0]));
    CHECK(status_of(&a, &a.contexts[0]) == 10);
    close_side(&a);
    close_side(&b);
}

static void test_bad_keys(int fd) {
    (void)fd;
    struct side a, b;
    struct about of_b;
    open_two(&a, &b, &of_b, MIB);
    struct about wrong = of_b;
    wrong.key++;
    INSIST(try_transfer(&a, true, 0, 8, &wrong, 0, &a.contexts[0]));
    CHECK(status_of(&a, &a.contexts[0]) == 7);
    INSIST(try_transfer(&a, false, 0, 0, &wrong, 0, &a.contexts[0]));
    CHECK(status_of(&a, &a.contexts[0]) == 7);
    INSIST(try_transfer(&a, true, 0, 500000, &of_b, MIB - 499999, &a.contexts[0]));
    CHECK(status_of(&a, &a.contexts[0]) == 7);
    CHECK(b.bytes[MIB - 499999] == 0);
    struct fid_mr *mr;
    CHECK(fi_mr_reg(b.domain, b.bytes, 4096, FI_REMOTE_READ, 0, 0, 0, &mr, NULL) == 0);
    wrong.key = fi_mr_key(mr);
    INSIST(try_transfer(&a, true, 0, 8, &wrong, 0, &a.contexts[0]));
    CHECK(status_of(&a, &a.contexts[0]) == 7);
    INSIST(try_transfer(&a, false, 0, 8, &wrong, 0, &a.contexts[0]));
    CHECK(status_of(&a, &a.contexts[0]) == 0);
    CHECK(fi_close(&mr->fid) == 0);
    INSIST(try_transfer(&a, false, 0, 8, &wrong, 0, &a.contexts[0]));
    CHECK(status_of(&a, &a.contexts[0]) == 7);
    CHECK(fi_mr_reg(a.domain, a.bytes, 4096, FI_WRITE, 0, 0, 0, &mr, NULL) == 0);
    struct fid_mr *before = a.mr;
    a.mr = mr;
    INSIST(try_transfer(&a, false, 0, 64, &of_b, 0, &a.contexts[0]));
    CHECK(status_of(&a, &a.contexts[0]) == 5);
    a.mr = before;
    CHECK(fi_close(&mr->fid) == 0);
    CHECK(fi_mr_reg(b.domain, (void *)4096, 4096, FI_READ, 0, 0, 0, &mr, NULL) == -FI_EFAULT);
    close_side(&a);
    close_side(&b);
}

/* Closes the memory amid a write. False: the write was over before. */
static bool closed_amid(size_t all) {
    struct side a, b;
    struct about of_b;
    open_two(&a, &b, &of_b, all);
    memset(a.bytes, 1, all);
    INSIST(try_transfer(&a, true, 0, all, &of_b, 0, &a.contexts[0]));
    volatile uint8_t *bytes = b.bytes;
    for (bool begun = false; !begun;) {
        for (size_t i = 0; i < all; i += 32768)
            begun = begun || bytes[i] != 0;
    }
    CHECK(fi_close(&b.mr->fid) == 0);
    b.mr = NULL;
    size_t landed = 0, later = 0;
    for (size_t i = 0; i < all; i++)
        landed += bytes[i];
    int status = status_of(&a, &a.contexts[0]);
    nap(50);
    for (size_t i = 0; i < all; i++)
        later += bytes[i];
    CHECK(landed == later && landed != 0);
    CHECK(status == (landed < all ? 7 : 0));
    close_side(&a);
    close_side(&b);
    return landed < all;
}

static void test_mr_close(int fd) {
    (void)fd;
    /* A write ends before the close where this thread has no processor for so long. */
    for (int rounds = 1; !closed_amid(64 * (size_t)MIB); rounds++)
        CHECK(rounds < 100);
}

static void test_endpoint_close(int fd) {
    (void)fd;
    struct side a, b;
    struct about of_b;
    open_two(&a, &b, &of_b, 16 * MIB);
    INSIST(try_transfer(&a, true, 0, 16 * MIB, &of_b, 0, &a.contexts[0]));
    INSIST(try_send(&a, 0, 64, &a.contexts[1]));
    close_side(&a);
    struct about gone = of_b;
    open_side(&a, 4096, 0);
    struct about of_a = about(&a);
    meet(&b, &of_a);
    CHECK(fi_close(&a.ep->fid) == 0);
    CHECK(fi_endpoint(a.domain, a.info, &a.ep, NULL) == 0);
    gone.key = 1;
    INSIST(try_transfer(&b, true, 0, 8, &gone, 0, &b.contexts[0]));
    CHECK(status_of(&b, &b.contexts[0]) == 9);
    close_side(&a);
    close_side(&b);
}

/* The second side is killed with operations of the first in flight. */
static void test_killed(int fd) {
    struct side side;
    open_side(&side, MIB, 0);
    struct about other = swap(&side, fd);
    struct {
        pid_t pid;
        bool first;
    } own = {getpid(), (getpid() & 1) != 0}, its;
    CHECK(write(fd, &own.pid, sizeof own.pid) == (ssize_t)sizeof own.pid);
    CHECK(read(fd, &its.pid, sizeof its.pid) == (ssize_t)sizeof its.pid);
    if (own.pid > its.pid) {
        tell(fd);
        pause();
    }
    for (int i = 0; i < 4; i++)
        INSIST(try_send(&side, 0, 64, &side.contexts[i]));
    hear(fd);
    nap(20);
    uint64_t begin_ms = now_ms();
    kill(its.pid, SIGKILL);
    struct fi_cq_msg_entry entry;
    for (int i = 0; i < 4; i++)
        CHECK(next(&side, &entry) == 9);
    INSIST(try_transfer(&side, true, 0, 8, &other, 0, &side.contexts[0]));
    CHECK(next(&side, &entry) == 9);
    CHECK(now_ms() - begin_ms < 5000);
    fi_addr_t peer = side.peer;
    CHECK(fi_av_remove(side.av, &peer, 1, 0) == 0);
    close_side(&side);
}

static void test_reordering(int fd) {
    (void)fd;
    struct side a, b;
    struct about of_b;
    open_two(&a, &b, &of_b, MIB);
    unsigned out_of_order = 0;
    for (unsigned round = 0; round < 50; round++) {
        for (unsigned i = 0; i < 32; i++)
            INSIST(try_transfer(&a, i % 2 == 0, i * 8, 8, &of_b, i * 8, &a.contexts[i]));
        for (unsigned i = 0; i < 32; i++) {
            struct fi_cq_msg_entry entry;
            CHECK(next(&a, &entry) == 0);
            out_of_order += entry.op_context != &a.contexts[i];
        }
    }
    CHECK(out_of_order > 20);
    close_side(&a);
    close_side(&b);
}

static void test_cut(int fd) {
    (void)fd;
    char path[64];
    snprintf(path, sizeof path, "/tmp/efa-fi-cut-%ld", (long)getpid());
    setenv("EFA_FAKE_CUT", path, 1);
    setenv("EFA_FAKE_CUT_MS", "1500", 1); /* far longer than the naps below */
    struct side a, b;
    struct about of_b;
    open_two(&a, &b, &of_b, 64 * 1024);
    transfer(&a, &of_b, 1, 4096);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    fclose(file);
    nap(20);
    uint64_t begin_ms = now_ms();
    CHECK(try_receive(&b, 0, 64, &b.contexts[0]) == 0);
    INSIST(try_transfer(&a, true, 0, 64, &of_b, 60000, &a.contexts[0]));
    CHECK(status_of(&a, &a.contexts[0]) == 13);
    CHECK(now_ms() - begin_ms >= 1250);
    INSIST(try_send(&a, 0, 64, &a.contexts[1]));
    nap(50);
    CHECK(remove(path) == 0);
    expect(&a, &a.contexts[1], FI_SEND | FI_MSG, 0);
    expect(&b, &b.contexts[0], FI_RECV | FI_MSG, 64);
    CHECK(b.bytes[60000] == 0);
    transfer(&a, &of_b, 2, 4096);
    close_side(&a);
    close_side(&b);
}

/* A cable that is out at the other side only; what waits there, and has failed here, never lands.
 */
static void test_far_cut(int fd) {
    (void)fd;
    char path[64];
    snprintf(path, sizeof path, "/tmp/efa-fi-far-%ld", (long)getpid());
    setenv("EFA_FAKE_CUT_MS", "1500", 1); /* likewise */
    struct side a, b;
    open_side(&a, 64 * 1024, 0);
    setenv("EFA_FAKE_CUT", path, 1);
    open_side(&b, 64 * 1024, 0);
    struct about of_b = about(&b);
    meet(&a, &of_b);
    transfer(&a, &of_b, 1, 4096);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    fclose(file);
    nap(20);
    pattern(a.bytes, 64, 5);
    INSIST(try_transfer(&a, true, 0, 64, &of_b, 60000, &a.contexts[0]));
    CHECK(status_of(&a, &a.contexts[0]) == 13);
    INSIST(try_transfer(&a, true, 0, 64, &of_b, 61000, &a.contexts[0]));
    nap(100);
    CHECK(remove(path) == 0);
    CHECK(status_of(&a, &a.contexts[0]) == 0);
    nap(20);
    CHECK(b.bytes[60000] == 0 && is_pattern(b.bytes + 61000, 64, 5));
    close_side(&a);
    close_side(&b);
}

/* Our cable is out before there was an answer; the other side's is not. */
static void test_near_cut(int fd) {
    (void)fd;
    char path[64];
    snprintf(path, sizeof path, "/tmp/efa-fi-near-%ld", (long)getpid());
    setenv("EFA_FAKE_CUT_MS", "200", 1);
    struct side a, b;
    open_side(&b, 4096, 0);
    setenv("EFA_FAKE_CUT", path, 1);
    open_side(&a, 4096, 0);
    struct about of_b = about(&b), of_a = about(&a);
    meet(&a, &of_b);
    meet(&b, &of_a);
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    fclose(file);
    nap(20);
    INSIST(try_send(&a, 0, 8, &a.contexts[0]));
    INSIST(try_transfer(&b, false, 0, 8, &of_a, 0, &b.contexts[0]));
    CHECK(status_of(&a, &a.contexts[0]) == 15);
    CHECK(status_of(&b, &b.contexts[0]) == 15);
    CHECK(remove(path) == 0);
    nap(20);
    transfer(&a, &of_b, 1, 64);
    close_side(&a);
    close_side(&b);
}

static void test_wait_object(int fd) {
    (void)fd;
    struct side a, b;
    struct about of_b;
    open_two(&a, &b, &of_b, 4096);
    int wait_fd;
    CHECK(fi_control(&a.cq->fid, FI_GETWAIT, &wait_fd) == 0);
    struct pollfd pollfd = {.fd = wait_fd, .events = POLLIN};
    CHECK(poll(&pollfd, 1, 0) == 0);
    for (int i = 0; i < 2; i++)
        INSIST(try_transfer(&a, true, 0, 8, &of_b, 0, &a.contexts[i]));
    struct fid *fids[] = {&a.cq->fid};
    struct fi_cq_msg_entry entries[4];
    int patience_ms = PATIENCE_S * 1000;
    CHECK(poll(&pollfd, 1, patience_ms) == 1 && fi_trywait(a.fabric, fids, 1) == -FI_EAGAIN);
    CHECK(fi_cq_read(a.cq, entries, 1) == 1 && poll(&pollfd, 1, patience_ms) == 1);
    CHECK(fi_cq_read(a.cq, entries, 4) == 1 && poll(&pollfd, 1, 0) == 0);
    CHECK(fi_cq_read(a.cq, entries, 4) == -FI_EAGAIN && fi_trywait(a.fabric, fids, 1) == 0);
    setenv("EFA_FAKE_NOWAIT", "1", 1);
    struct fid_domain *domain;
    struct fid_cq *cq;
    CHECK(fi_domain(a.fabric, a.info, &domain, NULL) == 0);
    struct fi_cq_attr attr = {.format = FI_CQ_FORMAT_MSG, .wait_obj = FI_WAIT_FD};
    CHECK(fi_cq_open(domain, &attr, &cq, NULL) == -FI_ENOSYS);
    attr.wait_obj = FI_WAIT_NONE;
    CHECK(fi_cq_open(domain, &attr, &cq, NULL) == 0 && fi_close(&cq->fid) == 0);
    CHECK(fi_close(&domain->fid) == 0);
    close_side(&a);
    close_side(&b);
}

/* ---- habits that are off by default ---- */

static void test_refusals(int fd) {
    (void)fd;
    setenv("EFA_FAKE_NICS", "2", 1);
    struct side a;
    open_side(&a, 4096, 0);
    CHECK(strcmp(a.info->next->domain_attr->name, "rdmap1s6-rdm") == 0);
    setenv("EFA_FAKE_REFUSE_MR", "2", 1);
    struct fid_domain *domain;
    CHECK(fi_domain(a.fabric, a.info->next, &domain, NULL) == 0);
    unsigned refused = 0;
    for (int i = 0; i < 100; i++) {
        struct fid_mr *mr;
        int rc = fi_mr_reg(domain, a.bytes, 4096, FI_READ, 0, 0, 0, &mr, NULL);
        CHECK(rc == 0 || rc == -FI_ENOMEM);
        refused += rc != 0;
        CHECK(rc != 0 || fi_close(&mr->fid) == 0);
    }
    CHECK(refused > 20 && refused < 80);
    CHECK(fi_close(&domain->fid) == 0);
    close_side(&a);
}

static void test_nonsense(int fd) {
    (void)fd;
    setenv("EFA_FAKE_NONSENSE", "4", 1);
    struct side a, b;
    struct about of_b;
    open_two(&a, &b, &of_b, 4096);
    unsigned twice = 0, unknown = 0, other = 0;
    for (int i = 0; i < 200; i++) {
        struct fi_context2 *context = &a.contexts[i];
        INSIST(try_transfer(&a, true, 0, 8, &of_b, 0, context));
        for (unsigned seen = 0, ms = 0; seen == 0 || ms < 2;) {
            struct fi_cq_msg_entry entry;
            ssize_t n = fi_cq_read(a.cq, &entry, 1);
            CHECK(n == 1 || n == -FI_EAGAIN || n == -FI_EOTHER);
            other += n == -FI_EOTHER;
            unknown += n == 1 && entry.op_context != context;
            twice += n == 1 && entry.op_context == context && seen++ != 0;
            if (n == -FI_EAGAIN) {
                nap(1);
                ms++;
            }
        }
    }
    CHECK(twice > 5 && unknown > 5 && other > 5);
    close_side(&a);
    close_side(&b);
}

static void test_stats(int fd) {
    (void)fd;
    char path[64], line[256] = "";
    snprintf(path, sizeof path, "/tmp/efa-fi-stats-%ld", (long)getpid());
    setenv("EFA_FAKE_STATS", path, 1);
    struct side a, b;
    struct about of_b;
    open_two(&a, &b, &of_b, 4096);
    transfer(&a, &of_b, 1, 64);
    close_side(&a);
    FILE *file = fopen(path, "r");
    CHECK(file != NULL && fgets(line, sizeof line, file) != NULL);
    CHECK(strstr(line, " posted=2 ") != NULL && strstr(line, " completed=2 errors=0\n") != NULL);
    fclose(file);
    close_side(&b);
    CHECK(remove(path) == 0);
}

/* A post with FI_MORE is kept back until the next one without. */
static void test_more(int fd) {
    (void)fd;
    struct side a, b;
    struct about of_b;
    setenv("EFA_FAKE_EAGAIN", "0", 1);
    open_two(&a, &b, &of_b, 4096);
    transfer(&a, &of_b, 1, 8);
    struct iovec iov = {a.bytes, 8};
    void *desc = fi_mr_desc(a.mr);
    struct fi_rma_iov remote = {.addr = of_b.base, .len = 8, .key = of_b.key};
    struct fi_msg_rma msg = {.msg_iov = &iov,
                             .desc = &desc,
                             .iov_count = 1,
                             .addr = a.peer,
                             .rma_iov = &remote,
                             .rma_iov_count = 1,
                             .context = &a.contexts[0]};
    struct fi_cq_msg_entry entry;
    CHECK(fi_writemsg(a.ep, &msg, FI_COMPLETION | FI_MORE) == 0);
    CHECK(next_within(&a, &entry, 50) == -1);
    msg.context = &a.contexts[1];
    CHECK(fi_writemsg(a.ep, &msg, FI_COMPLETION) == 0);
    CHECK(next(&a, &entry) == 0 && next(&a, &entry) == 0);
    close_side(&a);
    close_side(&b);
}

/* ---- processes ---- */

/* A child that was forked holds nothing of its parent's endpoints. */
static void test_forked(int fd) {
    (void)fd;
    struct side a, b;
    struct about of_b;
    open_two(&a, &b, &of_b, 4096);
    transfer(&a, &of_b, 1, 64);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        CHECK(fi_close(&a.ep->fid) == 0 && fi_close(&a.mr->fid) == 0);
        pause();
    }
    transfer(&a, &of_b, 2, 64);
    CHECK(fi_close(&b.ep->fid) == 0);
    INSIST(try_transfer(&a, true, 0, 8, &of_b, 0, &a.contexts[0]));
    CHECK(status_of(&a, &a.contexts[0]) == 9);
    CHECK(fi_endpoint(b.domain, b.info, &b.ep, NULL) == 0);
    kill(pid, SIGKILL);
    CHECK(waitpid(pid, NULL, 0) == pid);
    close_side(&a);
    close_side(&b);
}

/* Operations to a process that is stopped go on when it does. */
/* Stops a process, and returns when none of its threads runs: kill() alone does not wait for that.
 * The process is no child of this one, so that its states are looked at. */
static void stop_process(pid_t pid) {
    char pattern[64];
    CHECK(kill(pid, SIGSTOP) == 0);
    snprintf(pattern, sizeof pattern, "/proc/%d/task/*/stat", (int)pid);
    for (bool runs = true; runs; nap(1)) {
        glob_t found;
        CHECK(glob(pattern, 0, NULL, &found) == 0);
        runs = false;
        for (size_t i = 0; i < found.gl_pathc; i++) {
            char state = '\0';
            FILE *stat = fopen(found.gl_pathv[i], "r");
            runs = stat == NULL || fscanf(stat, "%*d %*s %c", &state) != 1 || state != 'T' || runs;
            if (stat != NULL)
                fclose(stat);
        }
        globfree(&found);
    }
}

static void test_stopped(int fd) {
    struct side side;
    open_side(&side, MIB, 0);
    struct about other = swap(&side, fd);
    pid_t own = getpid(), its;
    CHECK(write(fd, &own, sizeof own) == (ssize_t)sizeof own);
    CHECK(read(fd, &its, sizeof its) == (ssize_t)sizeof its);
    if (own < its) {
        transfer(&side, &other, 1, 64);
        stop_process(its);
        INSIST(try_transfer(&side, true, 0, MIB / 3, &other, 0, &side.contexts[0]));
        struct fi_cq_msg_entry entry;
        CHECK(next_within(&side, &entry, 300) == -1);
        kill(its, SIGCONT);
        expect(&side, &side.contexts[0], FI_WRITE | FI_RMA, 0);
    }
    tell(fd);
    hear(fd);
    close_side(&side);
}

static unsigned descriptors(void) {
    unsigned count = 0;
    for (int i = 0; i < 1024; i++)
        count += fcntl(i, F_GETFD) >= 0;
    return count;
}

static void test_nothing_is_left(int fd) {
    (void)fd;
    struct side a, b;
    struct about of_b;
    open_two(&a, &b, &of_b, 4096);
    close_side(&a);
    close_side(&b);
    unsigned before = descriptors();
    for (int i = 0; i < 20; i++) {
        open_two(&a, &b, &of_b, 4096);
        INSIST(try_send(&a, 0, 8, &a.contexts[200]));
        transfer(&a, &of_b, 1, 64);
        close_side(&b);
        close_side(&a);
    }
    CHECK(descriptors() == before);
}

/* A process may end without closing anything. */
static void test_left_open(int fd) {
    (void)fd;
    static struct side a, b;
    struct about of_b;
    open_two(&a, &b, &of_b, 16 * MIB);
    INSIST(try_transfer(&a, true, 0, 16 * MIB, &of_b, 0, &a.contexts[0]));
}

/* ---- what ends the process ---- */

static void abort_overflow(int fd) {
    (void)fd;
    struct side a, b;
    open_side(&a, 4096, 4);
    open_side(&b, 4096, 0);
    struct about of_b = about(&b);
    meet(&a, &of_b);
    for (int i = 0; i < 5; i++)
        INSIST(try_transfer(&a, true, 0, 8, &of_b, 0, &a.contexts[i]));
    nap(PATIENCE_S * 1000);
}

static void abort_context(int fd) {
    (void)fd;
    struct side a, b;
    struct about of_b;
    open_two(&a, &b, &of_b, 4096);
    INSIST(try_send(&a, 0, 8, &a.contexts[0]));
    INSIST(try_send(&a, 0, 8, &a.contexts[0]));
}

static void abort_remove(int fd) {
    (void)fd;
    struct side a, b;
    struct about of_b;
    open_two(&a, &b, &of_b, 4096);
    INSIST(try_send(&a, 0, 8, &a.contexts[0]));
    fi_av_remove(a.av, &a.peer, 1, 0);
}

static void abort_local(int fd) {
    (void)fd;
    struct side a, b;
    struct about of_b;
    open_two(&a, &b, &of_b, 4096);
    INSIST(try_send(&a, 4090, 8, &a.contexts[0]));
}

/* ---- running ---- */

static const struct test {
    const char *name;
    void (*run)(int fd);
    int processes, signal;
} tests[] = {
    {"getinfo", test_getinfo, 1, 0},
    {"messages", test_messages, 1, 0},
    {"transfers", test_transfers, 1, 0},
    {"two_processes", test_two_processes, 2, 0},
    {"depth_and_rnr", test_depth_and_rnr, 1, 0},
    {"rnr_ends", test_rnr_ends, 1, 0},
    {"bad_keys", test_bad_keys, 1, 0},
    {"mr_close", test_mr_close, 1, 0},
    {"endpoint_close", test_endpoint_close, 1, 0},
    {"killed", test_killed, 2, 0},
    {"reordering", test_reordering, 1, 0},
    {"cut", test_cut, 1, 0},
    {"far_cut", test_far_cut, 1, 0},
    {"near_cut", test_near_cut, 1, 0},
    {"wait_object", test_wait_object, 1, 0},
    {"refusals", test_refusals, 1, 0},
    {"nonsense", test_nonsense, 1, 0},
    {"stats", test_stats, 1, 0},
    {"more", test_more, 1, 0},
    {"forked", test_forked, 1, 0},
    {"stopped", test_stopped, 2, 0},
    {"nothing_is_left", test_nothing_is_left, 1, 0},
    {"left_open", test_left_open, 1, 0},
    {"abort_overflow", abort_overflow, 1, SIGABRT},
    {"abort_context", abort_context, 1, SIGABRT},
    {"abort_remove", abort_remove, 1, SIGABRT},
    {"abort_local", abort_local, 1, SIGABRT},
};

static pid_t begin(const struct test *test, int fd, int others_fd) {
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        struct rlimit none = {0, 0};
        if (test->signal != 0)
            setrlimit(RLIMIT_CORE, &none);
        close(others_fd);
        signal(SIGABRT, SIG_DFL); /* one of libfabric's libraries takes it */
        alarm(PATIENCE_S + 20);
        test->run(fd);
        exit(0);
    }
    return pid;
}

static bool run(const struct test *test) {
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
        return false;
    uint64_t begin_ms = now_ms();
    int left = test->processes, killed = 0;
    bool fine = true;
    for (int i = 0; i < test->processes; i++)
        begin(test, fds[i], fds[1 - i]);
    close(fds[0]);
    close(fds[1]);
    for (; left != 0; left--) {
        int status;
        pid_t pid = wait(&status);
        killed += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        bool right = test->signal != 0 ? WIFSIGNALED(status) && WTERMSIG(status) == test->signal
                                       : status == 0 || (test->run == test_killed && killed == 1);
        if (!right)
            fprintf(stderr, "%s: process %ld ended with %#x\n", test->name, (long)pid,
                    (unsigned)status);
        fine = fine && right;
    }
    printf("%s %s (%llu ms)\n", fine ? "fine  " : "FAILED", test->name,
           (unsigned long long)(now_ms() - begin_ms));
    return fine;
}

int main(int argc, char **argv) {
    bool fine = true;
    if (getenv("FI_PROVIDER_PATH") == NULL) {
        fprintf(stderr, "FI_PROVIDER_PATH has to name the provider's directory\n");
        return SKIPPED;
    }
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        bool wanted = argc == 1;
        for (int j = 1; j < argc; j++)
            wanted = wanted || strcmp(argv[j], tests[i].name) == 0;
        if (wanted)
            fine = run(&tests[i]) && fine;
    }
    return fine ? 0 : 1;
}
