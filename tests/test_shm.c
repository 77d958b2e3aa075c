/* SPDX-License-Identifier: Apache-2.0 */
/* test_shm.c: the particulars of the shm device: other processes and their deaths, what is left
 * behind, and shared memory whose other writer is not what it should be. The rules common to all
 * devices are in conformance/.
 *
 * It is long because it plays all that another process may do to shared memory. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "held.h"
#include "os.h"
#include "shm.h"

#define REGION_BYTES ((uint64_t)1 << 20)
#define RECV_BYTES   64u
#define RECV_DEPTH   8u

static struct weir_env env;

/* The ticket that one side gives the other. */
struct ticket {
    struct weir_qp_granted granted;
    uint8_t blob[WEIR_MR_BLOB_MAX];
    uint32_t blob_length;
};

struct side {
    struct weir_device *device;
    struct weir_mr mr;
    struct weir_rmr remote;
    struct weir_qp *qp;
    struct ticket ticket;
};

/* ---- making ---- */

static int side_open(struct side *side, const struct weir_env *with, void *registered) {
    memset(side, 0, sizeof *side);
    int rc = shm_device_ops.open(with, &side->device);
    if (rc == 0)
        rc = registered != NULL ? shm_device_ops.mr_register(side->device, registered, REGION_BYTES,
                                                             WEIR_ACCESS_ALL, &side->mr)
                                : shm_device_ops.mr_allocate(side->device, REGION_BYTES,
                                                             WEIR_ACCESS_ALL, &side->mr);
    struct weir_qp_options options = {
        .tag = 42, .sq_depth = 16, .rq_depth = RECV_DEPTH, .recv_bytes_max = RECV_BYTES};
    if (rc == 0)
        rc = shm_device_ops.qp_create(side->device, &options, &side->ticket.granted, &side->qp);
    if (rc == 0)
        rc = shm_device_ops.mr_export(side->device, &side->mr, side->ticket.blob,
                                      &side->ticket.blob_length);
    return rc;
}

/* Until the device's descriptor is readable; 1 if it was in time. */
static int wait_readable(int fd, int timeout_ms) {
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    return poll(&poll_fd, 1, timeout_ms);
}

/* How a connect ended that takes as long as the other process. */
static int side_connected(struct side *side) {
    struct weir_async event;
    for (;;) {
        while (shm_device_ops.events(side->device, &event, 1) == 1) {
            if (event.type == WEIR_ASYNC_CONNECTED)
                return event.error;
        }
        if (wait_readable(shm_device_ops.fd(side->device), 10000) != 1)
            return WEIR_ETIMEDOUT;
    }
}

static int side_connect(struct side *side, const struct ticket *other) {
    struct weir_qp_path path = {.blob_length = other->granted.blob_length,
                                .blob = other->granted.blob};
    int rc = shm_device_ops.qp_connect(side->qp, &path);
    if (rc == WEIR_EINPROGRESS)
        rc = side_connected(side);
    for (bool again = rc == 0; again; again = rc == WEIR_EINPROGRESS)
        rc = shm_device_ops.mr_import(side->device, other->blob, other->blob_length, REGION_BYTES,
                                      WEIR_ACCESS_ALL, 1000, &side->remote);
    return rc;
}

/* Whatever of it there is. */
static void side_close(struct side *side) {
    if (side->qp != NULL)
        assert_int_equal(shm_device_ops.qp_destroy(side->qp), 0);
    if (side->remote.rkey != 0)
        shm_device_ops.mr_forget(side->device, &side->remote);
    if (side->mr.lkey != 0)
        assert_int_equal(shm_device_ops.mr_release(side->device, &side->mr), 0);
    if (side->device != NULL)
        shm_device_ops.close(side->device);
}

static void pair_open(struct side *a, struct side *b, void *registered) {
    assert_int_equal(side_open(a, &env, NULL), 0);
    assert_int_equal(side_open(b, &env, registered), 0);
    assert_int_equal(side_connect(b, &a->ticket), 0);
    assert_int_equal(side_connect(a, &b->ticket), 0);
}

static struct weir_wr make_wr(const struct side *side, uint8_t opcode, uint64_t length) {
    return (struct weir_wr){.laddr = (uint64_t)(uintptr_t)side->mr.base,
                            .raddr = side->remote.raddr,
                            .length = length,
                            .lkey = side->mr.lkey,
                            .rkey = side->remote.rkey,
                            .opcode = opcode};
}

/* WEIR_CQE_* of one WR. */
static uint32_t run_wr(struct side *side, uint8_t opcode, uint64_t length) {
    struct weir_wr wr = make_wr(side, opcode, length);
    struct weir_post post;
    if (shm_device_ops.post_send(side->qp, &wr, 1, &post) != 0 || post.done == 1)
        return post.done == 1 ? WEIR_CQE_OK : WEIR_CQE_DEVICE;
    struct weir_cqe cqe;
    return shm_device_ops.poll(side->device, &cqe, 1) == 1 ? cqe.status : WEIR_CQE_DEVICE;
}

static int post_recv(struct side *side, uint64_t wr_id) {
    uint8_t *buffer = (uint8_t *)side->mr.base + (wr_id % RECV_DEPTH) * RECV_BYTES;
    return shm_device_ops.post_recv(side->device, side->qp, wr_id, buffer, RECV_BYTES,
                                    side->mr.lkey);
}

/* ---- another process ---- */

struct child {
    pid_t pid;
    int to;
    int from;
};

static void put(int fd, const void *bytes, size_t length) {
    if (write(fd, bytes, length) != (ssize_t)length)
        _exit(3);
}

static int get(int fd, void *bytes, size_t length) {
    return read(fd, bytes, length) == (ssize_t)length ? 0 : -1;
}

/* Forks a process that opens a side, connects it to the parent's, and runs `body`. The parent's
 * is opened after it: it has a thread, and ThreadSanitizer wants none in who forks. */
static struct child child_start(void (*body)(struct side *side, int from, int to)) {
    int down[2], up[2];
    assert_int_equal(pipe2(down, O_CLOEXEC), 0);
    assert_int_equal(pipe2(up, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct side side;
        struct ticket ticket;
        close(down[1]);
        close(up[0]);
        if (side_open(&side, &env, NULL) != 0)
            _exit(1);
        put(up[1], &side.ticket, sizeof side.ticket);
        if (get(down[0], &ticket, sizeof ticket) != 0 || side_connect(&side, &ticket) != 0)
            _exit(2);
        put(up[1], "c", 1);
        body(&side, down[0], up[1]);
        _exit(0);
    }
    close(down[0]);
    close(up[1]);
    return (struct child){.pid = pid, .to = down[1], .from = up[0]};
}

static void child_connect(struct child *child, struct side *side) {
    struct ticket ticket;
    char connected;
    assert_int_equal(get(child->from, &ticket, sizeof ticket), 0);
    put(child->to, &side->ticket, sizeof side->ticket);
    assert_int_equal(get(child->from, &connected, 1), 0);
    assert_int_equal(side_connect(side, &ticket), 0);
}

/* Its wait status. */
static int child_end(struct child *child) {
    int status = -1;
    close(child->to);
    close(child->from);
    assert_int_equal(waitpid(child->pid, &status, 0), child->pid);
    return status;
}

static void body_sleep(struct side *side, int from, int to) {
    char never;
    (void)side;
    (void)to;
    (void)get(from, &never, 1);
}

/* Writes as fast as it can until it is killed. */
static void body_write(struct side *side, int from, int to) {
    char go;
    if (get(from, &go, 1) != 0 || run_wr(side, WEIR_OP_WRITE, 65536) != WEIR_CQE_OK)
        _exit(4);
    put(to, "w", 1);
    while (run_wr(side, WEIR_OP_WRITE, 65536) == WEIR_CQE_OK) {
    }
    _exit(4);
}

/* Kills it in the middle of its writes. */
static void kill_writer(struct child *child) {
    char writing;
    put(child->to, "g", 1);
    assert_int_equal(get(child->from, &writing, 1), 0);
    assert_int_equal(kill(child->pid, SIGKILL), 0);
    assert_true(WIFSIGNALED(child_end(child)));
}

/* H12: a killed peer wakes the sleeper, is told once for its QP, and answers posts
 * with RETRY. */
static void test_H12_killed_target_is_noticed(void **state) {
    (void)state;
    struct side side;
    struct child child = child_start(body_sleep);
    assert_int_equal(side_open(&side, &env, NULL), 0);
    child_connect(&child, &side);
    assert_int_equal(run_wr(&side, WEIR_OP_WRITE, 4096), WEIR_CQE_OK);
    struct weir_async event;
    assert_int_equal(shm_device_ops.events(side.device, &event, 1), 0);
    assert_int_equal(shm_device_ops.arm(side.device), 0);
    assert_int_equal(kill(child.pid, SIGKILL), 0);
    assert_int_equal(wait_readable(shm_device_ops.fd(side.device), 4000), 1);
    shm_device_ops.disarm(side.device);
    assert_int_equal(shm_device_ops.events(side.device, &event, 1), 1);
    assert_int_equal(event.type, WEIR_ASYNC_PEER_DEAD);
    assert_int_equal(event.qp_tag, 42);
    assert_int_equal(shm_device_ops.events(side.device, &event, 1), 0);
    assert_int_equal(wait_readable(shm_device_ops.fd(side.device), 0), 0);
    assert_int_equal(run_wr(&side, WEIR_OP_WRITE, 4096), WEIR_CQE_RETRY);
    assert_int_equal(run_wr(&side, WEIR_OP_WRITE, 4096), WEIR_CQE_FLUSHED);
    assert_true(WIFSIGNALED(child_end(&child)));
    side_close(&side);
}

/* H12: an initiator killed in the middle of its writes; also without ever sleeping. */
static void test_H12_killed_initiator_is_noticed(void **state) {
    (void)state;
    struct side side;
    struct child child = child_start(body_write);
    assert_int_equal(side_open(&side, &env, NULL), 0);
    child_connect(&child, &side);
    kill_writer(&child);
    struct weir_async event = {.type = 0};
    struct weir_cqe cqe;
    for (int i = 0; i < 300000 && event.type == 0; i++) {
        usleep(1000);
        assert_int_equal(shm_device_ops.poll(side.device, &cqe, 1), 0);
        shm_device_ops.events(side.device, &event, 1);
    }
    assert_int_equal(event.type, WEIR_ASYNC_PEER_DEAD);
    side_close(&side);
}

/* T3, H12: descriptors and mappings are where they began. */
static void test_T3_nothing_is_left(void **state) {
    (void)state;
    int fds = held_fds(), maps = held_shared_maps();
    struct side a;
    assert_int_equal(side_open(&a, &env, NULL), 0);
    int fds_open = held_fds(), maps_open = held_shared_maps();
    for (int i = 0; i < 1000; i++) {
        struct side b;
        assert_int_equal(side_open(&b, &env, NULL), 0);
        assert_int_equal(side_connect(&a, &b.ticket), 0);
        assert_int_equal(side_connect(&b, &a.ticket), 0);
        assert_int_equal(run_wr(&a, WEIR_OP_WRITE, 8), WEIR_CQE_OK);
        assert_int_equal(shm_device_ops.qp_destroy(a.qp), 0);
        shm_device_ops.mr_forget(a.device, &a.remote);
        side_close(&b);
        struct weir_qp_options options = {
            .tag = 42, .sq_depth = 16, .rq_depth = RECV_DEPTH, .recv_bytes_max = RECV_BYTES};
        assert_int_equal(shm_device_ops.qp_create(a.device, &options, &a.ticket.granted, &a.qp), 0);
    }
    a.remote.rkey = 0;
    assert_int_equal(held_fds(), fds_open);
    assert_int_equal(held_shared_maps(), maps_open);
    side_close(&a);
    for (int i = 0; i < 20; i++) {
        struct child child = child_start(body_write);
        assert_int_equal(side_open(&a, &env, NULL), 0);
        child_connect(&child, &a);
        kill_writer(&child);
        side_close(&a);
    }
    assert_int_equal(held_fds(), fds);
    assert_int_equal(held_shared_maps(), maps);
}

/* Connecting to, or importing from, a process that is gone. */
static void test_H5_gone_process_is_epeer(void **state) {
    (void)state;
    struct side side;
    struct ticket ticket;
    struct child child = child_start(body_sleep);
    assert_int_equal(side_open(&side, &env, NULL), 0);
    assert_int_equal(get(child.from, &ticket, sizeof ticket), 0);
    kill(child.pid, SIGKILL);
    child_end(&child);
    assert_int_equal(side_connect(&side, &ticket), WEIR_EPEER);
    struct weir_rmr remote;
    assert_int_equal(shm_device_ops.mr_import(side.device, ticket.blob, ticket.blob_length,
                                              REGION_BYTES, WEIR_ACCESS_ALL, 1000, &remote),
                     WEIR_EPEER);
    side_close(&side);
}

/* ---- sleeping, two processes ---- */

#define PINGS 20000

/* Sleeps until a message is there and posts its receive again. */
static int take_message(struct side *side) {
    struct weir_cqe cqe;
    for (;;) {
        int got = shm_device_ops.poll(side->device, &cqe, 1);
        if (got == 1)
            return cqe.recv && cqe.status == WEIR_CQE_OK ? post_recv(side, cqe.wr_id) : -1;
        if (shm_device_ops.arm(side->device) != 0)
            continue;
        if (wait_readable(shm_device_ops.fd(side->device), 10000) != 1)
            return -1; /* a wake-up was lost */
        shm_device_ops.disarm(side->device);
    }
}

static void body_echo(struct side *side, int from, int to) {
    (void)from;
    for (uint64_t i = 0; i < RECV_DEPTH; i++)
        if (post_recv(side, i) != 0)
            _exit(5);
    put(to, "r", 1);
    for (int i = 0; i < PINGS; i++)
        if (take_message(side) != 0 || run_wr(side, WEIR_OP_SEND, 8) != WEIR_CQE_OK)
            _exit(6);
}

static void test_no_wakeup_is_lost(void **state) {
    (void)state;
    struct side side;
    char ready;
    struct child child = child_start(body_echo);
    assert_int_equal(side_open(&side, &env, NULL), 0);
    child_connect(&child, &side);
    for (uint64_t i = 0; i < RECV_DEPTH; i++)
        assert_int_equal(post_recv(&side, i), 0);
    assert_int_equal(get(child.from, &ready, 1), 0);
    for (int i = 0; i < PINGS; i++) {
        assert_int_equal(run_wr(&side, WEIR_OP_SEND, 8), WEIR_CQE_OK);
        assert_int_equal(take_message(&side), 0);
    }
    assert_int_equal(child_end(&child), 0);
    side_close(&side);
}

/* Two devices in two threads of one process: ThreadSanitizer looks on. */
static void *thread_echo(void *arg) {
    struct side *side = arg;
    for (int i = 0; i < PINGS / 10; i++)
        if (take_message(side) != 0 || run_wr(side, WEIR_OP_SEND, 8) != WEIR_CQE_OK)
            return side;
    return NULL;
}

static void test_S16_two_threads(void **state) {
    (void)state;
    struct side a, b;
    pair_open(&a, &b, NULL);
    for (uint64_t i = 0; i < RECV_DEPTH; i++) {
        assert_int_equal(post_recv(&a, i), 0);
        assert_int_equal(post_recv(&b, i), 0);
    }
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, thread_echo, &b), 0);
    for (int i = 0; i < PINGS / 10; i++) {
        assert_int_equal(run_wr(&a, WEIR_OP_SEND, 8), WEIR_CQE_OK);
        assert_int_equal(take_message(&a), 0);
    }
    void *result = &a;
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_null(result);
    side_close(&a);
    side_close(&b);
}

/* ---- hostile memory ---- */

static void test_E6_only_sealed_memfds_are_mapped(void **state) {
    (void)state;
    uint64_t inode;
    int fd = seg_memfd("weir-test", 8192);
    assert_true(fd >= 0);
    assert_int_equal(seg_check(fd, &inode), 8192);
    assert_int_equal(ftruncate(fd, 4096), -1);
    assert_int_equal(ftruncate(fd, 16384), -1);
    close(fd);
    fd = memfd_create("weir-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_int_equal(ftruncate(fd, 8192), 0);
    assert_int_equal(seg_check(fd, &inode), 0); /* could shrink */
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SEAL), 0);
    assert_int_equal(seg_check(fd, &inode), 0);
    close(fd);
    fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    assert_int_equal(seg_check(fd, &inode), 0);
    close(fd);
}

/* The entry of a region says something else than its memfd, or than the descriptor. */
static void test_E6_lying_region_entry(void **state) {
    (void)state;
    struct side a, b;
    pair_open(&a, &b, NULL);
    struct seg_mr *entry = &b.device->map->mrs[b.mr.cookie], good = {.kind = 0};
    memcpy(&good, (const void *)entry, sizeof good);
    int unsealed = memfd_create("weir-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int small = seg_memfd("weir-test", 4096);
    int fds = held_fds(), maps = held_shared_maps();
    for (int lie = 0; lie < 7; lie++) {
        struct weir_rmr remote;
        if (lie == 0)
            entry->fd = small;
        else if (lie == 1)
            entry->fd = unsealed;
        else if (lie == 2)
            entry->fd = -1;
        else if (lie == 3)
            entry->length = REGION_BYTES * 2;
        else if (lie == 4)
            entry->inode++;
        else if (lie == 5)
            entry->kind = 9;
        else
            entry->access = WEIR_ACCESS_REMOTE_READ;
        assert_int_equal(shm_device_ops.mr_import(a.device, b.ticket.blob, b.ticket.blob_length,
                                                  REGION_BYTES, WEIR_ACCESS_ALL, 1000, &remote),
                         WEIR_EINVAL);
        memcpy((void *)entry, &good, sizeof good);
    }
    assert_int_equal(held_fds(), fds);
    assert_int_equal(held_shared_maps(), maps);
    close(unsealed);
    close(small);
    side_close(&a);
    side_close(&b);
}

/* The entry of a QP describes a ring that is not inside the ring area. */
static void test_E6_lying_ring_entry(void **state) {
    (void)state;
    struct side a, b;
    assert_int_equal(side_open(&a, &env, NULL), 0);
    assert_int_equal(side_open(&b, &env, NULL), 0);
    struct seg_qp *entry = b.qp->shared;
    uint64_t offset = entry->ring_offset;
    const uint64_t offsets[] = {0, offset + 1, sizeof(struct seg_map) - 64, UINT64_MAX - 63};
    for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++) {
        entry->ring_offset = offsets[i];
        assert_int_equal(side_connect(&a, &b.ticket), WEIR_EINVAL);
    }
    entry->ring_offset = offset;
    const uint32_t counts[] = {3, 1u << 20, UINT32_MAX};
    uint32_t cells = entry->cell_count;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        entry->cell_count = counts[i];
        assert_int_equal(side_connect(&a, &b.ticket), WEIR_EINVAL);
    }
    entry->cell_count = cells;
    entry->cell_bytes += 64;
    assert_int_equal(side_connect(&a, &b.ticket), WEIR_EINVAL);
    entry->cell_bytes -= 64;
    assert_int_equal(side_connect(&a, &b.ticket), 0);
    side_close(&a);
    side_close(&b);
}

/* Messages that no sender of ours writes: too long, or without a receive. The QP goes
 * to the error state by itself, says so, and flushes. */
static void test_E6_nonsense_in_the_ring(void **state) {
    (void)state;
    for (int lie = 0; lie < 2; lie++) {
        struct side a, b;
        pair_open(&a, &b, NULL);
        if (lie == 0)
            assert_int_equal(post_recv(&b, 7), 0);
        struct seg_cell *cell = (struct seg_cell *)(void *)a.qp->tx_ring;
        cell->length = lie == 0 ? RECV_BYTES + 1 : 8;
        atomic_store(&cell->seq, a.qp->tx_secret);
        atomic_store(&b.qp->shared->ring_backed, 1);
        seg_notify(b.device->map, b.qp->index);
        struct weir_cqe cqe;
        int flushed = 0;
        for (int i = 0; i < 10; i++) {
            if (shm_device_ops.poll(b.device, &cqe, 1) == 1) {
                assert_int_equal(cqe.status, WEIR_CQE_FLUSHED);
                assert_int_equal(cqe.wr_id, 7);
                flushed++;
            }
        }
        assert_int_equal(flushed, lie == 0);
        struct weir_async event;
        assert_int_equal(shm_device_ops.events(b.device, &event, 1), 1);
        assert_int_equal(event.type, WEIR_ASYNC_QP_FATAL);
        assert_int_equal(run_wr(&a, WEIR_OP_WRITE, 8), WEIR_CQE_RETRY);
        side_close(&a);
        side_close(&b);
    }
}

/* Any bits in the pending words, for QPs that are not there as well, and any credit. */
static void test_E6_nonsense_in_the_words(void **state) {
    (void)state;
    struct side a, b;
    pair_open(&a, &b, NULL);
    for (uint32_t i = 0; i < SHM_LEAF_WORDS; i++)
        atomic_store(&b.device->map->leaf[i], UINT64_MAX);
    for (uint32_t i = 0; i < SHM_TOP_WORDS; i++)
        atomic_store(&b.device->map->head.top[i], UINT64_MAX);
    struct weir_cqe cqe;
    for (int i = 0; i < 10; i++)
        assert_int_equal(shm_device_ops.poll(b.device, &cqe, 1), 0);
    atomic_store(&b.qp->shared->posted, UINT32_MAX); /* sends stay inside its own ring */
    for (uint32_t i = 0; i < 1000; i++)
        assert_int_equal(run_wr(&a, WEIR_OP_SEND, RECV_BYTES), WEIR_CQE_OK);
    side_close(&a);
    side_close(&b);
}

/* A ring that is used again: what an earlier connection left there is no message. */
static void test_T8_stale_message_is_not_taken(void **state) {
    (void)state;
    struct side a, b;
    pair_open(&a, &b, NULL);
    assert_int_equal(post_recv(&b, 1), 0);
    uint64_t old_secret = a.qp->tx_secret;
    assert_int_equal(run_wr(&a, WEIR_OP_SEND, 8), WEIR_CQE_OK);
    uint8_t *ring = b.qp->rx_ring;
    assert_int_equal(shm_device_ops.qp_destroy(b.qp), 0);
    struct weir_qp_options options = {
        .tag = 42, .sq_depth = 16, .rq_depth = RECV_DEPTH, .recv_bytes_max = RECV_BYTES};
    assert_int_equal(shm_device_ops.qp_create(b.device, &options, &b.ticket.granted, &b.qp), 0);
    assert_ptr_equal(b.qp->rx_ring, ring);
    shm_device_ops.mr_forget(b.device, &b.remote);
    assert_int_equal(side_connect(&b, &a.ticket), 0);
    assert_int_equal(post_recv(&b, 2), 0);
    assert_int_equal(((struct seg_cell *)(void *)ring)->seq, old_secret);
    assert_int_equal(atomic_load(&b.qp->shared->ring_backed), 0);
    atomic_store(&b.qp->shared->ring_backed, 1);
    seg_notify(b.device->map, b.qp->index);
    struct weir_cqe cqe;
    for (int i = 0; i < 10; i++)
        assert_int_equal(shm_device_ops.poll(b.device, &cqe, 1), 0);
    side_close(&a);
    side_close(&b);
}

/* T3: QPs that come and go touch no more of the segment than those that are there at once. */
static void test_T3_qps_take_no_new_room(void **state) {
    (void)state;
    struct weir_qp_options options = {
        .tag = 1, .sq_depth = 16, .rq_depth = RECV_DEPTH, .recv_bytes_max = RECV_BYTES};
    struct side a;
    assert_int_equal(side_open(&a, &env, NULL), 0);
    const uint8_t *ring = a.qp->rx_ring;
    for (uint32_t i = 0; i < 10 * SHM_QPS_FIRST; i++) {
        assert_int_equal(shm_device_ops.qp_destroy(a.qp), 0);
        assert_int_equal(shm_device_ops.qp_create(a.device, &options, &a.ticket.granted, &a.qp), 0);
        assert_true(a.qp->index < SHM_QPS_FIRST && a.qp->rx_ring == ring);
    }
    side_close(&a);
}

/* ---- registered memory ---- */

/* S13: neither release nor destroy is done while a live peer is inside an operation. */
static void test_S13_release_waits_for_the_peer(void **state) {
    (void)state;
    static uint8_t memory[REGION_BYTES];
    struct side a, b;
    pair_open(&a, &b, memory);
    assert_int_equal(run_wr(&a, WEIR_OP_WRITE, 4096), WEIR_CQE_OK);
    uint64_t quiet = atomic_load(&a.qp->shared->busy);
    assert_int_equal(quiet % SHM_BUSY_NEXT, 0);
    atomic_store(&a.qp->shared->busy, quiet + SHM_BUSY_POST + SHM_BUSY_CALL); /* stopped in there */
    for (int i = 0; i < 2; i++) { /* and is not waited for again: it is the same call */
        assert_int_equal(shm_device_ops.mr_release(b.device, &b.mr), WEIR_EBUSY);
        assert_int_equal(b.qp->given_up, quiet + SHM_BUSY_POST + SHM_BUSY_CALL);
    }
    assert_int_equal(shm_device_ops.qp_destroy(b.qp), WEIR_EBUSY);
    atomic_store(&a.qp->shared->busy, quiet + SHM_BUSY_POST); /* in a post, and not in a call */
    assert_int_equal(shm_device_ops.qp_destroy(b.qp), WEIR_EBUSY);
    assert_int_equal(shm_device_ops.mr_release(b.device, &b.mr), 0);
    atomic_store(&a.qp->shared->busy, quiet + SHM_BUSY_NEXT);
    b.mr.lkey = 0;
    side_close(&b);
    side_close(&a);
}

static uint32_t looks; /* at the time */
static uint64_t counted_now(void *self) {
    looks++;
    return env.ops->now(self);
}

/* Behind a revoke no peer is waited for, whatever it says of itself: there may be many memories. */
static void test_S13_a_revoked_peer_holds_up_no_release(void **state) {
    (void)state;
    static uint8_t memory[REGION_BYTES];
    struct weir_env_ops ops = *env.ops;
    struct weir_env counted = env;
    ops.now = counted_now;
    counted.ops = &ops;
    struct side a, b;
    assert_int_equal(side_open(&a, &env, NULL), 0);
    assert_int_equal(side_open(&b, &counted, memory), 0);
    assert_int_equal(side_connect(&b, &a.ticket), 0);
    assert_int_equal(side_connect(&a, &b.ticket), 0);
    assert_int_equal(run_wr(&a, WEIR_OP_WRITE, 4096), WEIR_CQE_OK);
    uint64_t quiet = atomic_load(&a.qp->shared->busy), call = quiet + SHM_BUSY_POST + SHM_BUSY_CALL;
    atomic_store(&a.qp->shared->busy, call);
    shm_device_ops.revoke(b.device);
    assert_int_equal(b.qp->given_up, call);
    atomic_store(&a.qp->shared->busy, call + SHM_BUSY_NEXT); /* in another one, as it says */
    looks = 0;
    for (int i = 0; i < 3; i++)
        assert_int_equal(shm_device_ops.mr_release(b.device, &b.mr), WEIR_EBUSY);
    assert_in_range(looks, 0, 10); /* one that waits looks again and again */
    atomic_store(&a.qp->shared->busy, quiet + 2 * SHM_BUSY_NEXT);
    assert_int_equal(shm_device_ops.mr_release(b.device, &b.mr), 0);
    b.mr.lkey = 0;
    side_close(&b);
    side_close(&a);
}

/* Memory that was registered and then unmapped is the target's mistake: the initiator
 * gets an error, and what came before in the chain is done. */
static void test_E6_unmapped_target(void **state) {
    (void)state;
    uint8_t *memory =
        mmap(NULL, REGION_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    struct side a, b;
    pair_open(&a, &b, memory);
    memset(a.mr.base, 0x77, 65536);
    assert_int_equal(munmap(memory + 8192, 4096), 0);
    struct weir_wr wrs[4];
    for (uint64_t i = 0; i < 4; i++) {
        wrs[i] = make_wr(&a, WEIR_OP_WRITE, 4096);
        wrs[i].raddr += i * 4096;
        wrs[i].wr_id = i;
    }
    struct weir_post post;
    assert_int_equal(shm_device_ops.post_send(a.qp, wrs, 4, &post), 0);
    assert_int_equal(post.accepted, 4);
    assert_int_equal(post.done, 2);
    assert_int_equal(memory[8191], 0x77);
    assert_int_equal(memory[12288], 0);
    struct weir_cqe cqes[2];
    assert_int_equal(shm_device_ops.poll(a.device, cqes, 2), 2);
    assert_int_equal(cqes[0].status, WEIR_CQE_REMOTE_ACCESS);
    assert_int_equal(cqes[1].status, WEIR_CQE_FLUSHED);
    side_close(&a);
    side_close(&b);
    munmap(memory, REGION_BYTES);
}

/* The status of one WR of 8,192 bytes whose second page, there or here, is as protected. The
 * QP is used up by it, so there is a pair of sides for each. */
static uint32_t run_protected(uint8_t opcode, bool here, int protection) {
    uint8_t *memory[2];
    for (int i = 0; i < 2; i++) {
        memory[i] =
            mmap(NULL, REGION_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(memory[i], MAP_FAILED);
    }
    struct side a, b;
    pair_open(&a, &b, memory[0]);
    struct weir_mr local;
    assert_int_equal(shm_device_ops.mr_register(a.device, memory[1], REGION_BYTES, 0, &local), 0);
    assert_int_equal(mprotect(memory[here] + 4096, 4096, protection), 0);
    struct weir_wr wr = make_wr(&a, opcode, 8192);
    wr.laddr = (uint64_t)(uintptr_t)memory[1];
    wr.lkey = local.lkey;
    struct weir_post post;
    struct weir_cqe cqe = {.status = WEIR_CQE_OK};
    assert_int_equal(shm_device_ops.post_send(a.qp, &wr, 1, &post), 0);
    if (post.done == 0)
        assert_int_equal(shm_device_ops.poll(a.device, &cqe, 1), 1);
    assert_int_equal(shm_device_ops.mr_release(a.device, &local), 0);
    side_close(&a);
    side_close(&b);
    for (int i = 0; i < 2; i++)
        munmap(memory[i], REGION_BYTES);
    return cqe.status;
}

/* The side whose memory cannot be used is blamed. */
static void test_E6_local_fault_is_local(void **state) {
    (void)state;
    assert_int_equal(run_protected(WEIR_OP_WRITE, true, PROT_NONE), WEIR_CQE_LOCAL_PROT);
    assert_int_equal(run_protected(WEIR_OP_READ, true, PROT_NONE), WEIR_CQE_LOCAL_PROT);
    assert_int_equal(run_protected(WEIR_OP_READ, true, PROT_READ), WEIR_CQE_LOCAL_PROT);
    assert_int_equal(run_protected(WEIR_OP_WRITE, true, PROT_READ), WEIR_CQE_OK);
    assert_int_equal(run_protected(WEIR_OP_WRITE, false, PROT_NONE), WEIR_CQE_REMOTE_ACCESS);
    assert_int_equal(run_protected(WEIR_OP_WRITE, false, PROT_READ), WEIR_CQE_REMOTE_ACCESS);
    assert_int_equal(run_protected(WEIR_OP_READ, false, PROT_NONE), WEIR_CQE_REMOTE_ACCESS);
    assert_int_equal(run_protected(WEIR_OP_READ, false, PROT_READ), WEIR_CQE_OK);
}

/* ---- set-up ---- */

struct failing {
    struct weir_env real;
    int left; /* allocations before one fails */
    int balance;
};

static uint64_t failing_now(void *self) {
    struct failing *f = self;
    return f->real.ops->now(f->real.self);
}

static void failing_entropy(void *self, void *out, size_t length) {
    struct failing *f = self;
    f->real.ops->entropy(f->real.self, out, length);
}

static void *failing_alloc(void *self, size_t bytes) {
    struct failing *f = self;
    if (f->left-- == 0)
        return NULL;
    f->balance++;
    return f->real.ops->alloc(f->real.self, bytes);
}

static void failing_free(void *self, void *memory, size_t bytes) {
    struct failing *f = self;
    f->balance--;
    f->real.ops->free(f->real.self, memory, bytes);
}

/* E5: every set-up allocation fails in turn; nothing is lost, the error is ENOMEM. */
static void test_E5_every_allocation_fails(void **state) {
    (void)state;
    static const struct weir_env_ops failing_ops = {.now = failing_now,
                                                    .coarse = failing_now,
                                                    .entropy = failing_entropy,
                                                    .alloc = failing_alloc,
                                                    .free = failing_free};
    int fds = held_fds(), maps = held_shared_maps(), rc = WEIR_ENOMEM, k = 0;
    for (; rc != 0; k++) {
        struct failing f = {.real = env, .left = k};
        struct weir_env with = {.ops = &failing_ops, .self = &f};
        struct side side;
        assert_in_range(k, 0, 50);
        rc = side_open(&side, &with, NULL);
        if (rc == 0)
            rc = side_connect(&side, &side.ticket); /* to itself */
        if (rc != 0)
            assert_int_equal(rc, WEIR_ENOMEM);
        side_close(&side);
        assert_int_equal(f.balance, 0);
    }
    assert_true(k > 5);
    assert_int_equal(held_fds(), fds);
    assert_int_equal(held_shared_maps(), maps);
}

/* Descriptors run out at every point: an error, and nothing is taken. */
static void test_E5_descriptors_run_out(void **state) {
    (void)state;
    int fds = held_fds(), maps = held_shared_maps(), rc = -1;
    struct rlimit old;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    int lowest = dup(0);
    assert_true(lowest >= 0);
    close(lowest);
    for (rlim_t spare = 0; rc != 0; spare++) {
        struct rlimit tight = {.rlim_cur = (rlim_t)lowest + spare, .rlim_max = old.rlim_max};
        struct side side;
        assert_in_range(spare, 0, 50);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
        rc = side_open(&side, &env, NULL);
        if (rc == 0)
            rc = side_connect(&side, &side.ticket); /* to itself */
        side_close(&side);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    }
    assert_int_equal(held_fds(), fds);
    assert_int_equal(held_shared_maps(), maps);
}

int main(void) {
    struct weir_device_caps caps;
    if (shm_device_ops.probe(NULL, &caps) != 0)
        return 77; /* meson: skipped */
    if (os_env_init(&env) != 0)
        return EXIT_FAILURE;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_H12_killed_target_is_noticed),
        cmocka_unit_test(test_H12_killed_initiator_is_noticed),
        cmocka_unit_test(test_T3_nothing_is_left),
        cmocka_unit_test(test_H5_gone_process_is_epeer),
        cmocka_unit_test(test_no_wakeup_is_lost),
        cmocka_unit_test(test_S16_two_threads),
        cmocka_unit_test(test_E6_only_sealed_memfds_are_mapped),
        cmocka_unit_test(test_E6_lying_region_entry),
        cmocka_unit_test(test_E6_lying_ring_entry),
        cmocka_unit_test(test_E6_nonsense_in_the_ring),
        cmocka_unit_test(test_E6_nonsense_in_the_words),
        cmocka_unit_test(test_T8_stale_message_is_not_taken),
        cmocka_unit_test(test_T3_qps_take_no_new_room),
        cmocka_unit_test(test_S13_release_waits_for_the_peer),
        cmocka_unit_test(test_S13_a_revoked_peer_holds_up_no_release),
        cmocka_unit_test(test_E6_unmapped_target),
        cmocka_unit_test(test_E6_local_fault_is_local),
        cmocka_unit_test(test_E5_every_allocation_fails),
        cmocka_unit_test(test_E5_descriptors_run_out),
    };
    return cmocka_run_group_tests_name("shm device", tests, NULL, NULL);
}
