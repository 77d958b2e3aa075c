/* SPDX-License-Identifier: Apache-2.0 */
/* shm_child.c: see shm_child.h. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "shm_child.h"

#define RECV_BYTES 64u

struct weir_env child_env;

/* ---- a side ---- */

int side_open(struct side *side, void *registered) {
    struct weir_qp_options options = {
        .tag = 42, .sq_depth = 16, .rq_depth = 8, .recv_bytes_max = RECV_BYTES};
    memset(side, 0, sizeof *side);
    int rc = shm_device_ops.open(&child_env, &side->device);
    if (rc == 0)
        rc = shm_device_ops.mr_allocate(side->device, REGION_BYTES, WEIR_ACCESS_ALL, &side->mrs[0]);
    if (rc == 0)
        rc = shm_device_ops.mr_register(side->device, registered, REGION_BYTES, WEIR_ACCESS_ALL,
                                        &side->mrs[1]);
    if (rc == 0)
        rc = shm_device_ops.qp_create(side->device, &options, &side->ticket.granted, &side->qp);
    for (int i = 0; i < 2 && rc == 0; i++)
        rc = shm_device_ops.mr_export(side->device, &side->mrs[i], side->ticket.blobs[i],
                                      &side->ticket.blob_lengths[i]);
    if (rc == 0) {
        struct weir_device_caps caps;
        shm_device_ops.query(side->device, &caps);
        memcpy(side->ticket.fabric, caps.fabric, sizeof caps.fabric);
        side->ticket.base = (uint64_t)(uintptr_t)side->device->map;
    }
    side->ticket.rc = rc;
    return rc;
}

struct weir_async side_event(struct side *side) {
    struct weir_async event = {.type = 0, .error = WEIR_ETIMEDOUT};
    struct pollfd polled = {.fd = shm_device_ops.fd(side->device), .events = POLLIN};
    while (shm_device_ops.events(side->device, &event, 1) == 0) {
        (void)shm_device_ops.arm(side->device);
        if (poll(&polled, 1, 10000) != 1)
            break;
        shm_device_ops.disarm(side->device);
    }
    return event;
}

int side_connect(struct side *side, const struct ticket *other) {
    struct weir_qp_path path = {.blob_length = other->granted.blob_length,
                                .blob = other->granted.blob};
    int rc = shm_device_ops.qp_connect(side->qp, &path);
    return rc == WEIR_EINPROGRESS ? side_event(side).error : rc;
}

int import_of(struct weir_device *device, const struct ticket *ticket, int which,
              struct weir_rmr *remote_out) {
    int rc = WEIR_EINPROGRESS;
    while (rc == WEIR_EINPROGRESS)
        rc = shm_device_ops.mr_import(device, ticket->blobs[which], ticket->blob_lengths[which],
                                      REGION_BYTES, WEIR_ACCESS_ALL, 1000, remote_out);
    return rc;
}

int side_import(struct side *side, const struct ticket *other, int which) {
    return import_of(side->device, other, which, &side->remotes[which]);
}

void side_close(struct side *side) {
    if (side->qp != NULL)
        assert_int_equal(shm_device_ops.qp_destroy(side->qp), 0);
    for (int i = 0; i < 2; i++) {
        if (side->remotes[i].rkey != 0)
            shm_device_ops.mr_forget(side->device, &side->remotes[i]);
        if (side->mrs[i].lkey != 0)
            assert_int_equal(shm_device_ops.mr_release(side->device, &side->mrs[i]), 0);
    }
    if (side->device != NULL)
        shm_device_ops.close(side->device);
}

uint32_t run_wr(struct side *side, uint8_t opcode, int which) {
    struct weir_wr wr = {.laddr = (uint64_t)(uintptr_t)side->mrs[0].base,
                         .raddr = side->remotes[which].raddr,
                         .length = REGION_BYTES / 2,
                         .lkey = side->mrs[0].lkey,
                         .rkey = side->remotes[which].rkey,
                         .opcode = opcode};
    struct weir_post post;
    if (shm_device_ops.post_send(side->qp, &wr, 1, &post) != 0 || post.done == 1)
        return post.done == 1 ? WEIR_CQE_OK : WEIR_CQE_DEVICE;
    struct weir_cqe cqe;
    return shm_device_ops.poll(side->device, &cqe, 1) == 1 ? cqe.status : WEIR_CQE_DEVICE;
}

/* ---- another process ---- */

void put(int fd, const void *bytes, size_t length) {
    if (write(fd, bytes, length) != (ssize_t)length)
        _exit(3);
}

bool get(int fd, void *bytes, size_t length) {
    return read(fd, bytes, length) == (ssize_t)length;
}

void *fixed_memory(void) {
    void *memory = mmap(FIXED_PLACE, REGION_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* The life of a peer: become, open, say what it is, connect if it is told a ticket. */
static _Noreturn void live(become_fn *become, obey_fn *obey, int from, int to) {
    static uint8_t memory[REGION_BYTES];
    struct side side = {.device = NULL};
    char letter;
    if (become != NULL && !become()) {
        side.ticket.rc = WEIR_ENOTSUP;
        put(to, &side.ticket, sizeof side.ticket);
        _exit(0);
    }
    void *fixed = fixed_memory();
    side_open(&side, fixed != NULL ? fixed : memory);
    put(to, &side.ticket, sizeof side.ticket);
    while (get(from, &letter, 1)) {
        struct ticket other;
        int rc[3] = {WEIR_EAGAIN, WEIR_EAGAIN, WEIR_EAGAIN};
        if (letter != 'c') {
            if (!obey(&side, letter, from, to))
                break;
            continue;
        }
        if (!get(from, &other, sizeof other))
            _exit(4);
        rc[0] = side_connect(&side, &other);
        for (int i = 0; i < 2; i++)
            rc[1 + i] = side_import(&side, &other, i);
        put(to, rc, sizeof rc);
    }
    _exit(0);
}

static bool obey_nothing(struct side *side, char letter, int from, int to) {
    (void)side, (void)letter, (void)from, (void)to;
    return false;
}

struct child child_start(become_fn *become, obey_fn *obey, struct ticket *ticket_out) {
    int down[2], up[2];
    assert_int_equal(pipe2(down, O_CLOEXEC), 0);
    assert_int_equal(pipe2(up, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(down[1]);
        close(up[0]);
        live(become, obey != NULL ? obey : obey_nothing, down[0], up[1]);
    }
    close(down[0]);
    close(up[1]);
    struct child child = {.pid = pid, .to = down[1], .from = up[0]};
    assert_true(get(child.from, ticket_out, sizeof *ticket_out));
    return child;
}

struct outcome child_connect(struct child *child, const struct side *side) {
    struct outcome outcome;
    put(child->to, "c", 1);
    put(child->to, &side->ticket, sizeof side->ticket);
    assert_true(get(child->from, &outcome, sizeof outcome));
    return outcome;
}

void child_end(struct child *child) {
    close(child->to);
    close(child->from);
    kill(child->pid, SIGKILL);
    assert_int_equal(waitpid(child->pid, NULL, 0), child->pid);
}

void assert_outcome(const struct outcome *outcome, int connected, int allocated, int registered) {
    assert_int_equal(outcome->rc[0], connected);
    assert_int_equal(outcome->rc[1], allocated);
    assert_int_equal(outcome->rc[2], registered);
}
