/* SPDX-License-Identifier: Apache-2.0 */
/* test_ofi.c: the ofi device where the world is not kind: wrong settings, memory that is released
 * under a peer's access, a peer that is stopped, strangers at its port, forks, and no memory. Over
 * loopback. Skipped where there is no libfabric. It is long because all of it stands on one pair of
 * devices. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "device.h"
#include "os.h"

#define MIB          ((uint64_t)1 << 20)
#define S            UINT64_C(1000000000)
#define REGION_BYTES (64 * MIB)
enum { LONGEST_NAME = 64, PATIENCE = 300000, DEPTH = 16, RECEIVES = 8 };

/* ---- the devices' environment ---- */

static struct weir_env real;
static _Atomic uint64_t skew_ns; /* added to the clock */
static int allocs_left = -1;

static uint64_t skewed_now(void *self) {
    (void)self;
    return real.ops->now(real.self) + skew_ns;
}

static void *counted_alloc(void *self, size_t bytes) {
    (void)self;
    if (allocs_left == 0)
        return NULL;
    allocs_left -= allocs_left > 0;
    return real.ops->alloc(real.self, bytes);
}

static void plain_free(void *self, void *memory, size_t bytes) {
    (void)self;
    real.ops->free(real.self, memory, bytes);
}

static void plain_entropy(void *self, void *out, size_t length) {
    (void)self;
    real.ops->entropy(real.self, out, length);
}

static const struct weir_env_ops env_ops = {.now = skewed_now,
                                            .coarse = skewed_now,
                                            .entropy = plain_entropy,
                                            .alloc = counted_alloc,
                                            .free = plain_free};
static const struct weir_env env = {.ops = &env_ops};

static void rest(void) {
    nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
}

/* ---- a side: a device with memory and a QP ---- */

struct ticket {
    struct weir_qp_granted granted;
    uint8_t blob[WEIR_MR_BLOB_MAX];
    uint32_t blob_length;
};

struct side {
    struct weir_device *device;
    struct weir_mr mr;
    struct weir_rmr remote; /* the other side's */
    struct weir_qp *qp;
    struct ticket ticket;
};

static void make_qp(struct side *side) {
    struct weir_qp_options options = {
        .tag = 1, .sq_depth = DEPTH, .rq_depth = RECEIVES, .recv_bytes_max = 64};
    assert_int_equal(
        ofi_device_ops.qp_create(side->device, &options, &side->ticket.granted, &side->qp), 0);
}

static void side_open(struct side *side, uint64_t bytes) {
    *side = (struct side){.device = NULL};
    assert_int_equal(ofi_device_ops.open(&env, &side->device), 0);
    assert_int_equal(ofi_device_ops.mr_allocate(side->device, bytes, WEIR_ACCESS_ALL, &side->mr),
                     0);
    assert_int_equal(ofi_device_ops.mr_export(side->device, &side->mr, side->ticket.blob,
                                              &side->ticket.blob_length),
                     0);
    make_qp(side);
}

static int begin(struct side *side, const struct ticket *other, bool crossing) {
    struct weir_qp_path path = {.blob_length = other->granted.blob_length,
                                .blob = other->granted.blob,
                                .crossing = crossing};
    return ofi_device_ops.qp_connect(side->qp, &path);
}

static void import(struct side *side, const struct ticket *other, uint64_t bytes) {
    assert_int_equal(ofi_device_ops.mr_import(side->device, other->blob, other->blob_length, bytes,
                                              WEIR_ACCESS_ALL, 0, &side->remote),
                     0);
}

/* Whether an event of this type came; its error. */
static bool take_event(struct side *side, uint32_t type, int *error_out) {
    struct weir_async event;
    if (ofi_device_ops.events(side->device, &event, 1) != 1)
        return false;
    *error_out = event.error;
    return event.type == type;
}

static void await_event(struct side *side, uint32_t type, int *error_out) {
    for (int i = 0; i < PATIENCE; i++) {
        if (take_event(side, type, error_out))
            return;
        rest();
    }
    fail_msg("an event never came");
}

/* Both in this process. */
static void join(struct side *a, struct side *b) {
    int rc = begin(a, &b->ticket, true), error;
    int other = begin(b, &a->ticket, true);
    if (rc == WEIR_EINPROGRESS) {
        for (int i = 0; i < PATIENCE && !take_event(a, WEIR_ASYNC_CONNECTED, &error); i++) {
            if (other == WEIR_EINPROGRESS && take_event(b, WEIR_ASYNC_CONNECTED, &error))
                other = error;
            rest();
        }
    }
    if (other == WEIR_EINPROGRESS)
        await_event(b, WEIR_ASYNC_CONNECTED, &other);
    assert_int_equal(other, 0);
}

static void pair_open(struct side *a, struct side *b, uint64_t bytes) {
    side_open(a, bytes);
    side_open(b, bytes);
    join(a, b);
    import(a, &b->ticket, bytes);
    import(b, &a->ticket, bytes);
}

static void release(struct side *side) {
    int rc = WEIR_EBUSY;
    for (int i = 0; i < PATIENCE && rc == WEIR_EBUSY; i++)
        rc = ofi_device_ops.mr_release(side->device, &side->mr);
    assert_int_equal(rc, 0);
    side->mr.base = NULL;
}

static void side_close(struct side *side) {
    if (side->qp != NULL)
        assert_int_equal(ofi_device_ops.qp_destroy(side->qp), 0);
    if (side->mr.base != NULL)
        release(side);
    ofi_device_ops.close(side->device);
}

static void post(struct side *side, uint8_t opcode, uint64_t at, uint64_t bytes) {
    struct weir_wr wr = {.wr_id = at,
                         .laddr = (uint64_t)(uintptr_t)side->mr.base + at,
                         .raddr = side->remote.raddr + at,
                         .length = bytes,
                         .lkey = side->mr.lkey,
                         .rkey = side->remote.rkey,
                         .opcode = opcode,
                         .flags = WEIR_WR_SIGNALED};
    struct weir_post posted;
    assert_int_equal(ofi_device_ops.post_send(side->qp, &wr, 1, &posted), 0);
}

static uint32_t await_cqe(struct side *side) {
    for (int i = 0; i < PATIENCE; i++) {
        struct weir_cqe cqe;
        int got = ofi_device_ops.poll(side->device, &cqe, 1);
        assert_in_range(got, 0, 1);
        if (got == 1)
            return cqe.status;
        if (i > 1000)
            rest();
    }
    fail_msg("a completion never came");
    return WEIR_CQE_DEVICE;
}

static void expect_traffic(struct side *a, struct side *b) {
    uint8_t *from = a->mr.base;
    const uint8_t *to = b->mr.base;
    from[0]++;
    post(a, WEIR_OP_WRITE, 0, 8);
    assert_int_equal(await_cqe(a), WEIR_CQE_OK);
    assert_int_equal(to[0], from[0]);
}

/* ---- peers' accesses ---- */

/* An access may come in more than one piece, each of which is told. */
static void await_quiet(struct side *side) {
    for (int i = 0; i < PATIENCE; i++) {
        if (!ofi_device_ops.has_served(side->device))
            return;
        rest();
    }
    fail_msg("the device serves without end");
}

/* Nobody polls the target, whose own thread serves it. */
static void test_M7_a_peers_access_is_told_once(void **state) {
    (void)state;
    struct side a, b;
    pair_open(&a, &b, MIB);
    for (int i = 0; i < 3; i++) {
        await_quiet(&b);
        post(&a, WEIR_OP_WRITE, 0, MIB / 2);
        assert_int_equal(await_cqe(&a), WEIR_CQE_OK);
        assert_true(ofi_device_ops.has_served(b.device));
    }
    await_quiet(&b);
    side_close(&a);
    side_close(&b);
}

/* ---- settings ---- */

static const char *const variables[] = {"WEIR_OFI_PROVIDER", "WEIR_OFI_DOMAIN", "WEIR_OFI_ADDRESS"};

static void expect_refusal(const char *variable, const char *value, int rc, const char *says) {
    struct weir_device_caps caps = {.note = ""};
    struct weir_device *device = NULL;
    setenv(variable, value, 1);
    assert_int_equal(ofi_device_ops.probe(NULL, &caps), rc);
    assert_non_null(strstr(caps.note, says));
    assert_null(strchr(caps.note, '\n'));
    assert_int_equal(ofi_device_ops.open(&env, &device), rc);
    assert_null(device);
    unsetenv(variable);
}

static void test_W10_wrong_settings_are_one_clear_line(void **state) {
    (void)state;
    char longest[200];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    unsetenv("WEIR_OFI_ADDRESS");
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        char says[64];
        snprintf(says, sizeof says, "%s is empty", variables[i]);
        expect_refusal(variables[i], "", WEIR_EINVAL, says);
        snprintf(says, sizeof says, "%s is longer", variables[i]);
        expect_refusal(variables[i], longest, WEIR_EINVAL, says);
    }
    expect_refusal("WEIR_OFI_PROVIDER", "no\nsuch", WEIR_EINVAL, "WEIR_OFI_PROVIDER=no?such is no");
    expect_refusal("WEIR_OFI_PROVIDER", "^tcp", WEIR_EINVAL, "WEIR_OFI_PROVIDER=^tcp is no");
    expect_refusal("WEIR_OFI_PROVIDER", "nosuch", WEIR_ENODEVICE,
                   "no provider nosuch with connected endpoints (there are: ");
    expect_refusal("WEIR_OFI_DOMAIN", "nowhere0", WEIR_ENODEVICE,
                   "no domain nowhere0 (there are: ");
    expect_refusal("WEIR_OFI_ADDRESS", "203.0.113.77", WEIR_ENODEVICE,
                   "no address 203.0.113.77 (there are: ");
    memset(longest, 'y', LONGEST_NAME - 1); /* one with no room for what there is behind it */
    longest[LONGEST_NAME - 1] = '\0';
    expect_refusal("WEIR_OFI_DOMAIN", longest, WEIR_ENODEVICE, "no domain yyyy");
    expect_refusal("WEIR_OFI_ADDRESS", "localhost", WEIR_EINVAL,
                   "WEIR_OFI_ADDRESS=localhost is no IP address");
    setenv("WEIR_OFI_ADDRESS", "127.0.0.1", 1);
}

/* The engine's own address is taken, if the device can have it. */
static void test_W10_the_address_is_the_engines(void **state) {
    struct weir_env wishes = env;
    (void)state;
    unsetenv("WEIR_OFI_ADDRESS");
    static const struct {
        const char *host;
        bool taken;
    } CASES[] = {{"127.0.0.1", true}, {"192.0.2.77", false}, {"2001:db8::77", false}, {"", false}};
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        struct weir_device *device;
        struct weir_device_caps caps;
        snprintf(wishes.wishes.host, sizeof wishes.wishes.host, "%s", CASES[i].host);
        assert_int_equal(ofi_device_ops.open(&wishes, &device), 0);
        ofi_device_ops.query(device, &caps);
        char expected[64];
        snprintf(expected, sizeof expected, "address %s;", CASES[i].host);
        assert_true((strstr(caps.note, expected) != NULL) == CASES[i].taken);
        ofi_device_ops.close(device);
    }
    setenv("WEIR_OFI_ADDRESS", "127.0.0.1", 1);
}

static void test_W10_the_address_is_the_one_asked_for(void **state) {
    struct weir_device_caps caps = {.note = ""};
    (void)state;
    assert_int_equal(ofi_device_ops.probe(NULL, &caps), 0);
    assert_non_null(strstr(caps.note, "tcp on "));
    assert_non_null(strstr(caps.note, "address 127.0.0.1; libfabric "));
}

/* ---- memory that is released under an access ---- */

static void await_change(volatile const uint8_t *byte, uint8_t from) {
    for (int i = 0; i < PATIENCE && *byte == from; i++)
        rest();
    assert_int_not_equal(*byte, from);
}

/* Other memory of the owner's, which the user knows in the place of what it knew. */
static void lend(struct side *owner, uint8_t *memory, struct side *user) {
    assert_int_equal(ofi_device_ops.mr_register(owner->device, memory, REGION_BYTES,
                                                WEIR_ACCESS_ALL, &owner->mr),
                     0);
    assert_int_equal(ofi_device_ops.mr_export(owner->device, &owner->mr, owner->ticket.blob,
                                              &owner->ticket.blob_length),
                     0);
    ofi_device_ops.mr_forget(user->device, &user->remote);
    import(user, &owner->ticket, REGION_BYTES);
}

/* T8: when the release of memory has returned, no byte of a write that was landing lands any more.
 */
static void test_T8_release_ends_a_write_under_way(void **state) {
    struct side a, b;
    static uint8_t memory[REGION_BYTES], seen[REGION_BYTES];
    uint64_t landed = 0;
    (void)state;
    pair_open(&a, &b, REGION_BYTES);
    release(&b);
    memset(a.mr.base, 0x77, REGION_BYTES);
    for (int round = 0; round < 4; round++) {
        memset(memory, 0, sizeof memory);
        lend(&b, memory, &a);
        for (uint64_t at = 0; at < REGION_BYTES; at += 16 * MIB)
            post(&a, WEIR_OP_WRITE, at, 16 * MIB);
        await_change(&memory[round * (int)MIB], 0);
        release(&b);
        memcpy(seen, memory, sizeof seen);
        for (int i = 0; i < 4; i++) {
            (void)await_cqe(&a);
            for (uint64_t k = 0; k < REGION_BYTES; k += MIB)
                landed += seen[k] != 0;
        }
        assert_memory_equal(memory, seen, sizeof seen);
        assert_int_equal(ofi_device_ops.qp_destroy(a.qp), 0);
        assert_int_equal(ofi_device_ops.qp_destroy(b.qp), 0);
        assert_memory_equal(memory, seen, sizeof seen);
        make_qp(&a);
        make_qp(&b);
        join(&a, &b);
    }
    print_message("# of 256 MiB %llu had landed when the releases returned\n",
                  (unsigned long long)landed / 4);
    side_close(&a);
    side_close(&b);
}

/* T8: nor is a byte of it sent to a reader that the memory gets later. */
static void test_T8_release_ends_a_read_under_way(void **state) {
    struct side a, b;
    static uint8_t memory[REGION_BYTES];
    (void)state;
    pair_open(&a, &b, REGION_BYTES);
    release(&b);
    memset(memory, 0x11, sizeof memory);
    lend(&b, memory, &a);
    for (uint64_t at = 0; at < REGION_BYTES; at += 16 * MIB)
        post(&a, WEIR_OP_READ, at, 16 * MIB);
    await_change(a.mr.base, 0);
    release(&b);
    memset(memory, 0x99, sizeof memory);
    for (int i = 0; i < 4; i++)
        (void)await_cqe(&a);
    assert_null(memchr(a.mr.base, 0x99, REGION_BYTES));
    side_close(&a);
    side_close(&b);
}

/* ---- a read whose answer is cut ---- */

/* Four reads, until the first byte is here. False: a whole one is. */
static bool begin_reads(struct side *side) {
    struct weir_cqe cqe;
    const volatile uint8_t *first = side->mr.base;
    int got = 0;
    *(uint8_t *)side->mr.base = 0;
    for (uint64_t at = 0; at < REGION_BYTES; at += 16 * MIB)
        post(side, WEIR_OP_READ, at, 16 * MIB);
    for (int i = 0; i < PATIENCE && *first == 0 && got == 0; i++) {
        got = ofi_device_ops.poll(side->device, &cqe, 1);
        if (i > 1000)
            rest();
    }
    assert_int_not_equal(*first, 0);
    return got == 0;
}

/* Reads and writes at once, each of its own bytes. */
static void expect_own_bytes(struct side *a, struct side *b) {
    static uint8_t want[DEPTH][MIB];
    for (int i = 0; i < DEPTH; i++) {
        uint8_t *source = i % 2 == 0 ? a->mr.base : b->mr.base;
        uint8_t *target = i % 2 == 0 ? b->mr.base : a->mr.base;
        memset(want[i], 0x10 + i, MIB);
        memset(source + (uint64_t)i * MIB, 0x10 + i, MIB);
        memset(target + (uint64_t)i * MIB, 0, MIB);
    }
    for (int i = 0; i < DEPTH; i++)
        post(a, i % 2 == 0 ? WEIR_OP_WRITE : WEIR_OP_READ, (uint64_t)i * MIB, MIB);
    for (int i = 0; i < DEPTH; i++)
        assert_int_equal(await_cqe(a), WEIR_CQE_OK);
    for (int i = 0; i < DEPTH; i++) {
        const uint8_t *target = i % 2 == 0 ? b->mr.base : a->mr.base;
        assert_memory_equal(target + (uint64_t)i * MIB, want[i], MIB);
    }
}

/* S9: a QP that ends in the middle of an answer to its read does nothing to the device's others
 * (libfabric before 1.18 frees such a read twice). Either end may be the one that fails. */
static void test_S9_a_read_that_is_cut_harms_nobody(void **state) {
    struct side a, b;
    int cut = 0;
    (void)state;
    pair_open(&a, &b, REGION_BYTES);
    memset(b.mr.base, 0x5a, REGION_BYTES);
    for (int round = 0; round < 6; round++) {
        ((uint8_t *)b.mr.base)[0] = 0x5a;
        bool is_cut = begin_reads(&a);
        cut += is_cut;
        assert_int_equal(ofi_device_ops.qp_error(round % 3 == 0 ? b.qp : a.qp), 0);
        for (int i = is_cut ? 0 : 1; i < 4 && round % 3 < 2; i++)
            (void)await_cqe(&a);
        assert_int_equal(ofi_device_ops.qp_destroy(a.qp), 0);
        assert_int_equal(ofi_device_ops.qp_destroy(b.qp), 0);
        make_qp(&a);
        make_qp(&b);
        join(&a, &b);
        expect_own_bytes(&a, &b);
    }
    print_message("# %d of 6 were cut\n", cut);
    side_close(&a);
    side_close(&b);
}

/* ---- a peer in another process ---- */

struct child {
    pid_t pid;
    int to, from;
};

static void put(int fd, const void *bytes, size_t length) {
    if (write(fd, bytes, length) != (ssize_t)length)
        _exit(3);
}

static void get(int fd, void *bytes, size_t length) {
    for (size_t got = 0; got < length;) {
        ssize_t one = read(fd, (char *)bytes + got, length - got);
        if (one <= 0)
            _exit(2);
        got += (size_t)one;
    }
}

/* The peer connects, says so, and writes all of the other side's memory again and again. */
static void child_run(int from, int to) {
    struct side side;
    struct ticket other;
    struct weir_cqe cqe;
    int rc, error = 0;
    side_open(&side, 16 * MIB);
    put(to, &side.ticket, sizeof side.ticket);
    get(from, &other, sizeof other);
    rc = begin(&side, &other, false);
    if (rc == WEIR_EINPROGRESS)
        await_event(&side, WEIR_ASYNC_CONNECTED, &error);
    put(to, &error, sizeof error);
    import(&side, &other, 16 * MIB);
    memset(side.mr.base, 0x77, 16 * MIB);
    for (;;) {
        post(&side, WEIR_OP_WRITE, 0, 16 * MIB);
        while (ofi_device_ops.poll(side.device, &cqe, 1) == 0)
            continue;
    }
}

static struct child child_start(struct ticket *ticket_out) {
    int down[2], up[2];
    assert_int_equal(pipe(down), 0);
    assert_int_equal(pipe(up), 0);
    struct child child = {.pid = fork(), .to = down[1], .from = up[0]};
    if (child.pid == 0) {
        close(down[1]);
        close(up[0]);
        child_run(down[0], up[1]);
        _exit(0);
    }
    close(down[0]);
    close(up[1]);
    get(child.from, ticket_out, sizeof *ticket_out);
    return child;
}

static void child_join(struct child *child, struct side *side, const struct ticket *its) {
    int error = -1;
    put(child->to, &side->ticket, sizeof side->ticket);
    for (int i = 0; i < PATIENCE; i++) { /* its call is taken meanwhile */
        struct weir_async event;
        struct pollfd ready = {.fd = child->from, .events = POLLIN};
        (void)ofi_device_ops.events(side->device, &event, 1);
        if (poll(&ready, 1, 1) == 1)
            break;
    }
    get(child->from, &error, sizeof error);
    assert_int_equal(error, 0);
    int rc = begin(side, its, false);
    if (rc == WEIR_EINPROGRESS)
        await_event(side, WEIR_ASYNC_CONNECTED, &rc);
    assert_int_equal(rc, 0);
}

static void child_end(struct child *child) {
    kill(child->pid, SIGKILL);
    assert_int_equal(waitpid(child->pid, NULL, 0), child->pid);
    close(child->to);
    close(child->from);
}

/* T8: a peer that is stopped within a write holds its memory up, and after ten seconds loses its
 * QP. Nothing lands afterwards when it goes on. */
static void test_T8_release_outlives_a_stopped_peer(void **state) {
    struct ticket its;
    struct side side;
    int error;
    (void)state;
    struct child child = child_start(&its);
    side_open(&side, 16 * MIB);
    child_join(&child, &side, &its);
    await_change(side.mr.base, 0);
    assert_int_equal(kill(child.pid, SIGSTOP), 0);
    assert_int_equal(waitpid(child.pid, NULL, WUNTRACED), child.pid);
    int rc = ofi_device_ops.mr_release(side.device, &side.mr);
    for (int i = 0; i < 3 && rc != 0; i++) {
        assert_int_equal(rc, WEIR_EBUSY);
        rc = ofi_device_ops.mr_release(side.device, &side.mr);
    }
    assert_int_equal(rc, WEIR_EBUSY);
    assert_false(take_event(&side, WEIR_ASYNC_QP_FATAL, &error));
    skew_ns += 11 * S;
    release(&side);
    await_event(&side, WEIR_ASYNC_QP_FATAL, &error);
    assert_int_equal(kill(child.pid, SIGCONT), 0);
    for (int i = 0; i < 50; i++)
        rest();
    child_end(&child);
    side_close(&side);
}

/* T4: the end of a process is the end of its QPs, without anybody asking. */
static void test_T4_a_killed_peer_is_noticed(void **state) {
    struct ticket its;
    struct side side;
    int error;
    (void)state;
    struct child child = child_start(&its);
    side_open(&side, 16 * MIB);
    child_join(&child, &side, &its);
    await_change(side.mr.base, 0);
    child_end(&child);
    await_event(&side, WEIR_ASYNC_QP_FATAL, &error);
    side_close(&side);
}

/* ---- strangers ---- */

static int count_fds(void) {
    int count = 0;
    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static int dial(const struct side *side) {
    uint16_t port = (uint16_t)(side->ticket.granted.blob[4] | side->ticket.granted.blob[5] << 8);
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

/* W6: whoever says anything at the port, or nothing, ends there, and others go on. */
static void test_W6_strangers_at_the_port(void **state) {
    struct side a, b;
    int silent[8], before = count_fds();
    (void)state;
    pair_open(&a, &b, MIB);
    for (int i = 0; i < 8; i++)
        silent[i] = dial(&b);
    for (int round = 0; round < 200; round++) {
        uint8_t bytes[512];
        int fd = dial(&b);
        size_t length = (size_t)(round * 37 % (int)sizeof bytes);
        for (size_t i = 0; i < length; i++)
            bytes[i] = (uint8_t)(round < 100 ? rand() : 0);
        if (round % 3 == 0 && length > 4) { /* as libfabric's own would begin */
            bytes[0] = 3;
            bytes[1] = 1;
        }
        assert_true(length == 0 || send(fd, bytes, length, MSG_NOSIGNAL) > 0);
        if (round % 2 == 0)
            rest();
        close(fd);
        expect_traffic(&a, &b);
        expect_traffic(&b, &a);
    }
    assert_int_equal(ofi_device_ops.qp_destroy(a.qp), 0);
    assert_int_equal(ofi_device_ops.qp_destroy(b.qp), 0);
    make_qp(&a);
    make_qp(&b);
    join(&a, &b);
    expect_traffic(&a, &b);
    side_close(&a);
    side_close(&b);
    for (int i = 0; i < 8; i++)
        close(silent[i]);
    assert_int_equal(count_fds(), before);
}

static void send_one(struct side *from, struct side *to) {
    struct weir_wr wr = {.laddr = (uint64_t)(uintptr_t)from->mr.base,
                         .length = 8,
                         .lkey = from->mr.lkey,
                         .opcode = WEIR_OP_SEND,
                         .flags = WEIR_WR_SIGNALED};
    struct weir_post posted;
    assert_int_equal(ofi_device_ops.post_send(from->qp, &wr, 1, &posted), 0);
    assert_int_equal(await_cqe(from), WEIR_CQE_OK);
    assert_int_equal(await_cqe(to), WEIR_CQE_OK);
}

/* H2: both have called, since the wait for the other's call was over: they meet all the same, with
 * the receives that were posted before. */
static void test_H2_calls_that_cross_late(void **state) {
    struct side sides[2];
    (void)state;
    side_open(&sides[0], MIB);
    side_open(&sides[1], MIB);
    for (int round = 0; round < 20; round++) {
        struct side *first = &sides[round % 2], *second = &sides[1 - round % 2];
        int results[2], error;
        for (int i = 0; i < 2; i++)
            for (int k = 0; k < RECEIVES; k++)
                assert_int_equal(ofi_device_ops.post_recv(sides[i].device, sides[i].qp, 1,
                                                          (uint8_t *)sides[i].mr.base + 65536, 64,
                                                          sides[i].mr.lkey),
                                 0);
        results[0] = begin(first, &second->ticket, true);
        skew_ns += S + S / 5;
        (void)take_event(first, 0, &error);
        results[1] = begin(second, &first->ticket, true);
        skew_ns += (uint64_t)(round % 3) * S / 4;
        for (int i = 0; i < PATIENCE; i++) {
            if (results[0] == WEIR_EINPROGRESS && take_event(first, WEIR_ASYNC_CONNECTED, &error))
                results[0] = error;
            if (results[1] == WEIR_EINPROGRESS && take_event(second, WEIR_ASYNC_CONNECTED, &error))
                results[1] = error;
            if (results[0] != WEIR_EINPROGRESS && results[1] != WEIR_EINPROGRESS)
                break;
            rest();
        }
        assert_int_equal(results[0], 0);
        assert_int_equal(results[1], 0);
        send_one(first, second);
        send_one(second, first);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(ofi_device_ops.qp_destroy(sides[i].qp), 0);
            make_qp(&sides[i]);
        }
    }
    side_close(&sides[0]);
    side_close(&sides[1]);
}

/* W6: one that begins as a peer of libfabric's does, and says no more, holds up nothing; nor do
 * many that say nothing, and the descriptors that they take come back. */
static void test_W6_half_a_call_holds_up_nobody(void **state) {
    static const uint8_t header[32] = {3, 0, 0, 24};
    enum { SILENT = 100 };
    struct side a, b;
    int half[4], silent[SILENT], before = count_fds(), left = 0;
    (void)state;
    pair_open(&a, &b, MIB);
    int open_before = count_fds();
    for (int i = 0; i < 4; i++) {
        half[i] = dial(&b);
        assert_int_equal(send(half[i], header, sizeof header, MSG_NOSIGNAL), sizeof header);
        expect_traffic(&a, &b);
        expect_traffic(&b, &a);
    }
    for (int i = 0; i < SILENT; i++)
        silent[i] = dial(&b);
    for (int i = 0; i < 100; i++) {
        struct weir_async event;
        assert_int_equal(ofi_device_ops.events(b.device, &event, 1), 0);
        skew_ns += S / 10;
        rest();
    }
    left = count_fds() - open_before - 4 - SILENT;
    assert_in_range(left, 0, 8);
    expect_traffic(&a, &b);
    side_close(&a);
    side_close(&b);
    for (int i = 0; i < 4; i++)
        close(half[i]);
    for (int i = 0; i < SILENT; i++)
        close(silent[i]);
    assert_int_equal(count_fds(), before);
}

/* W4: a socket of the application that has the listener's number, of another kind, stays. */
static void test_W4_the_programs_sockets_stay_its_own(void **state) {
    struct side a;
    (void)state;
    side_open(&a, MIB);
    struct sockaddr_in at = {
        .sin_family = AF_INET,
        .sin_port = htons((uint16_t)(a.ticket.granted.blob[4] | a.ticket.granted.blob[5] << 8)),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int udp = socket(AF_INET, SOCK_DGRAM, 0);
    assert_int_equal(bind(udp, (struct sockaddr *)&at, sizeof at), 0);
    side_close(&a);
    assert_int_equal(send(udp, "", 0, MSG_NOSIGNAL), -1); /* not connected, and open */
    assert_int_equal(errno, EDESTADDRREQ);
    close(udp);
}

/* W6: a QP that knows whom it expects takes no call of another, however well-formed. */
static void test_W6_a_call_of_another_is_no_peer(void **state) {
    struct side a, b, c;
    int error;
    (void)state;
    side_open(&a, MIB);
    side_open(&b, MIB);
    side_open(&c, MIB);
    int rc = begin(&c, &b.ticket, false); /* c knows b's cookie, as only a should */
    assert_int_equal(rc, WEIR_EINPROGRESS);
    for (int i = 0; i < PATIENCE && rc == WEIR_EINPROGRESS; i++) {
        (void)take_event(&b, 0, &error);
        if (take_event(&c, WEIR_ASYNC_CONNECTED, &error))
            rc = error;
        rest();
    }
    assert_int_equal(begin(&b, &a.ticket, false), WEIR_EPEER);
    side_close(&a);
    side_close(&b);
    side_close(&c);
}

/* ---- children ---- */

static bool is_tcp(int fd) {
    int protocol = 0;
    socklen_t size = sizeof protocol;
    return getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size) == 0 &&
           protocol == IPPROTO_TCP;
}

static void test_W4_a_child_has_no_connection(void **state) {
    struct side a, b;
    int found = 0, status = -1;
    (void)state;
    pair_open(&a, &b, MIB);
    expect_traffic(&a, &b);
    for (int fd = 0; fd < 1024; fd++) {
        if (!is_tcp(fd))
            continue;
        found++;
        assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    }
    assert_int_equal(found, 4); /* two listeners, two ends */
    pid_t child = fork();
    if (child == 0) {
        int left = 0;
        for (int fd = 0; fd < 1024; fd++)
            left += is_tcp(fd);
        _exit(left);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    expect_traffic(&b, &a);
    side_close(&a);
    side_close(&b);
}

/* ---- lack ---- */

/* E5: without memory nothing opens, and nothing is left of the attempt. */
static void test_E5_no_memory_at_every_step(void **state) {
    (void)state;
    int before = count_fds();
    bool opened = false;
    for (int allowed = 0; !opened; allowed++) {
        struct weir_device *device = NULL;
        struct weir_qp *qp = NULL;
        struct weir_mr mr;
        struct weir_qp_options options = {
            .tag = 1, .sq_depth = DEPTH, .rq_depth = RECEIVES, .recv_bytes_max = 64};
        struct weir_qp_granted granted;
        assert_true(allowed < 50);
        allocs_left = allowed;
        int rc = ofi_device_ops.open(&env, &device);
        assert_true(rc == 0 || rc == WEIR_ENOMEM);
        if (rc == 0) {
            int made = ofi_device_ops.qp_create(device, &options, &granted, &qp);
            assert_true(made == 0 || made == WEIR_ENOMEM);
            int allocated = ofi_device_ops.mr_allocate(device, 4096, WEIR_ACCESS_ALL, &mr);
            assert_true(allocated == 0 || allocated == WEIR_ENOMEM);
            opened = made == 0 && allocated == 0;
            if (made == 0)
                assert_int_equal(ofi_device_ops.qp_destroy(qp), 0);
            if (allocated == 0)
                assert_int_equal(ofi_device_ops.mr_release(device, &mr), 0);
            ofi_device_ops.close(device);
        }
        allocs_left = -1;
    }
    assert_int_equal(count_fds(), before);
}

/* W4: the library takes no signal for itself when it is loaded. cmocka takes some, later. */
static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGINT, SIGTERM};
enum { SIGNALS = sizeof signals / sizeof signals[0] };
static struct sigaction before_it[SIGNALS], behind_it[SIGNALS];

static void look_at_signals(struct sigaction out[SIGNALS]) {
    for (size_t i = 0; i < SIGNALS; i++)
        sigaction(signals[i], NULL, &out[i]);
}

static void test_W4_signals_stay_the_programs(void **state) {
    (void)state;
    for (size_t i = 0; i < SIGNALS; i++)
        assert_true(behind_it[i].sa_handler == before_it[i].sa_handler);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_W4_signals_stay_the_programs),
        cmocka_unit_test(test_M7_a_peers_access_is_told_once),
        cmocka_unit_test(test_W10_wrong_settings_are_one_clear_line),
        cmocka_unit_test(test_W10_the_address_is_the_engines),
        cmocka_unit_test(test_W10_the_address_is_the_one_asked_for),
        cmocka_unit_test(test_T8_release_ends_a_write_under_way),
        cmocka_unit_test(test_T8_release_ends_a_read_under_way),
        cmocka_unit_test(test_S9_a_read_that_is_cut_harms_nobody),
        cmocka_unit_test(test_T8_release_outlives_a_stopped_peer),
        cmocka_unit_test(test_T4_a_killed_peer_is_noticed),
        cmocka_unit_test(test_W6_strangers_at_the_port),
        cmocka_unit_test(test_H2_calls_that_cross_late),
        cmocka_unit_test(test_W6_half_a_call_holds_up_nobody),
        cmocka_unit_test(test_W4_the_programs_sockets_stay_its_own),
        cmocka_unit_test(test_W6_a_call_of_another_is_no_peer),
        cmocka_unit_test(test_W4_a_child_has_no_connection),
        cmocka_unit_test(test_E5_no_memory_at_every_step),
    };
    struct weir_device_caps caps = {.note = ""};
    setenv("WEIR_OFI_ADDRESS", "127.0.0.1", 1);
    look_at_signals(before_it);
    int rc = ofi_device_ops.probe(NULL, &caps);
    look_at_signals(behind_it);
    if (rc != 0) {
        fprintf(stderr, "skipped: %s\n", caps.note);
        return 77;
    }
    if (os_env_init(&real) != 0)
        return EXIT_FAILURE;
    return cmocka_run_group_tests_name("ofi", tests, NULL, NULL);
}
