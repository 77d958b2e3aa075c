/* SPDX-License-Identifier: Apache-2.0 */
/* test_ofi_cheats.c: the ofi device against peers and a provider that do not play fair: a question
 * that is never answered, events that come in a flood, a queue that fails for good, and a dial from
 * a port that is another socket's, too. Over loopback; functions of the provider's objects are
 * replaced. Skipped where there is no libfabric. */
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
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <net/if.h>

#include "device.h"
#include "ofi.h"
#include "os.h"

#define S     UINT64_C(1000000000)
#define BYTES 65536u
enum { DEPTH = 16, RECEIVES = 8, PATIENCE = 60000 };

static const struct weir_device_ops *const ops = &ofi_device_ops;
static struct weir_env env, real;
static struct weir_env_ops clock_ops;
static _Atomic uint64_t skew_ns;

static uint64_t skewed(void *self) {
    (void)self;
    return real.ops->now(real.self) + skew_ns;
}

static void rest(void) {
    nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
}

/* ---- a side ---- */

struct side {
    struct weir_device *device;
    struct weir_mr mr;
    struct weir_qp *qp;
    struct weir_qp_granted granted;
    uint32_t receives, messages;
    bool connected, fatal;
};

static void post_receives(struct side *side) {
    uint32_t number = side->receives % RECEIVES;
    while (ops->post_recv(side->device, side->qp, number, (uint8_t *)side->mr.base + 64 * number,
                          64, side->mr.lkey) == 0)
        number = ++side->receives % RECEIVES;
}

static void side_open(struct side *side, uint64_t bytes) {
    struct weir_qp_options options = {
        .tag = 1, .sq_depth = DEPTH, .rq_depth = RECEIVES, .recv_bytes_max = 64};
    memset(side, 0, sizeof *side);
    assert_int_equal(ops->open(&env, &side->device), 0);
    assert_int_equal(ops->mr_allocate(side->device, bytes, WEIR_ACCESS_ALL, &side->mr), 0);
    assert_int_equal(ops->qp_create(side->device, &options, &side->granted, &side->qp), 0);
    post_receives(side);
}

static void take(struct side *side) {
    struct weir_cqe cqe;
    struct weir_async event;
    while (ops->poll(side->device, &cqe, 1) == 1)
        side->messages += cqe.recv && cqe.status == WEIR_CQE_OK;
    while (ops->events(side->device, &event, 1) == 1) {
        side->connected |= event.type == WEIR_ASYNC_CONNECTED && event.error == 0;
        side->fatal |= event.type == WEIR_ASYNC_QP_FATAL;
    }
    post_receives(side);
}

static int begin(struct side *side, const struct side *other) {
    struct weir_qp_path path = {.blob_length = other->granted.blob_length,
                                .blob = other->granted.blob};
    return ops->qp_connect(side->qp, &path);
}

static void connect_to(struct side *side, struct side *other) {
    assert_int_equal(begin(side, other), WEIR_EINPROGRESS);
    for (int i = 0; !side->connected && i < PATIENCE; i++) {
        take(side);
        take(other);
        rest();
    }
    assert_true(side->connected);
}

static void say(struct side *side) {
    struct weir_wr wr = {.wr_id = 1,
                         .laddr = (uint64_t)(uintptr_t)side->mr.base + 4096,
                         .lkey = side->mr.lkey,
                         .length = 8,
                         .opcode = WEIR_OP_SEND,
                         .flags = WEIR_WR_SIGNALED};
    struct weir_post post;
    int rc = ops->post_send(side->qp, &wr, 1, &post);
    assert_true(rc == 0 || rc == WEIR_EAGAIN);
}

static void side_close(struct side *side) {
    int rc = WEIR_EBUSY;
    if (side->qp != NULL)
        assert_int_equal(ops->qp_destroy(side->qp), 0);
    for (int i = 0; rc == WEIR_EBUSY && i < PATIENCE; i++)
        rc = ops->mr_release(side->device, &side->mr);
    assert_int_equal(rc, 0);
    ops->close(side->device);
}

/* ---- a question that is never answered ---- */

static ssize_t swallow(struct fid_ep *ep, const struct fi_msg_rma *message, uint64_t flags) {
    (void)ep, (void)message, (void)flags;
    return 0;
}

/* A release ends, whatever the peer says meanwhile, and completes: it is the answer that counts. */
static void release_ends(bool peer_speaks, bool peer_completes) {
    static struct fi_ops_rma rma;
    struct side a, b;
    struct weir_mr victim;
    int rc = WEIR_EBUSY;
    side_open(&a, BYTES);
    side_open(&b, BYTES);
    assert_int_equal(ops->mr_allocate(a.device, 4096, WEIR_ACCESS_ALL, &victim), 0);
    connect_to(&a, &b);
    assert_int_equal(begin(&b, &a), 0);
    device_lock(a.device); /* the device's thread calls these, too */
    rma = *a.qp->ep->rma;
    rma.readmsg = swallow;
    a.qp->ep->rma = &rma;
    device_unlock(a.device);
    for (int i = 0; rc == WEIR_EBUSY && i < 40; i++) {
        if (peer_speaks)
            say(&b);
        if (peer_completes)
            say(&a);
        for (int k = 0; k < 5; k++) {
            take(&a);
            take(&b);
            rest();
        }
        rc = ops->mr_release(a.device, &victim);
        skew_ns += 9 * S;
        take(&a);
    }
    assert_int_equal(rc, 0);
    assert_true(a.fatal);
    assert_true(!peer_speaks || a.messages > 0);
    side_close(&a);
    side_close(&b);
}

static void test_S13_a_release_ends_without_the_answer(void **state) {
    (void)state;
    release_ends(false, false);
    release_ends(true, false);
    release_ends(false, true);
    release_ends(true, true);
}

/* ---- events in a flood ---- */

static struct fi_ops_eq flood;
static ssize_t (*read_eq)(struct fid_eq *, uint32_t *, void *, size_t, uint64_t);
enum { CALM, FLOODS, OVER };
static _Atomic int weather;

/* Behind a call there are events of strangers without end. A look that takes none lets the provider
 * run. */
static ssize_t read_flood(struct fid_eq *eq, uint32_t *event, void *bytes, size_t size,
                          uint64_t flags) {
    struct fi_eq_cm_entry entry;
    uint32_t type;
    if (weather != FLOODS || bytes == NULL) { /* without one, libfabric itself looks */
        ssize_t got = read_eq(eq, event, bytes, size, flags);
        if (weather == CALM && got > 0 && *event == FI_CONNREQ)
            weather = FLOODS;
        return got;
    }
    (void)read_eq(eq, &type, &entry, sizeof entry, flags | FI_PEEK);
    memset(bytes, 0, sizeof entry);
    *event = FI_JOIN_COMPLETE;
    return sizeof entry;
}

static int link_of(const struct side *side) {
    device_lock(side->device);
    int link = (int)side->qp->link;
    device_unlock(side->device);
    return link;
}

/* A QP may be up that is not known to be: no release is over before it is asked, too. */
static void test_S13_a_release_waits_for_all_that_are_up(void **state) {
    struct side a, b;
    (void)state;
    side_open(&a, BYTES);
    side_open(&b, BYTES);
    weather = CALM;
    device_lock(a.device);
    flood = *a.device->eq->ops;
    read_eq = flood.read;
    flood.read = read_flood;
    a.device->eq->ops = &flood;
    device_unlock(a.device);
    connect_to(&b, &a);
    assert_int_equal(link_of(&a), OFI_LINK_ACCEPTED);
    assert_int_equal(ops->mr_release(a.device, &a.mr), WEIR_EBUSY);
    weather = OVER;
    assert_int_equal(begin(&a, &b), WEIR_EINPROGRESS);
    for (int i = 0; link_of(&a) != OFI_LINK_UP && i < PATIENCE; i++) {
        struct weir_async event;
        (void)ops->events(a.device, &event, 1);
        (void)ops->events(b.device, &event, 1);
        rest();
    }
    assert_int_equal(link_of(&a), OFI_LINK_UP);
    side_close(&a); /* the release is over now */
    side_close(&b);
}

/* ---- a queue that fails for good ---- */

static ssize_t fail_read(struct fid_cq *cq, void *entries, size_t count) {
    (void)cq, (void)entries, (void)count;
    return -FI_EOTHER;
}

/* The provider's descriptors stay readable: whoever sleeps on the device's is not woken by them. */
static void test_W9_a_device_that_is_lost_lets_sleep(void **state) {
    static struct fi_ops_cq broken;
    struct side a, b;
    struct weir_cqe cqe;
    struct weir_async event;
    (void)state;
    side_open(&a, BYTES);
    side_open(&b, BYTES);
    connect_to(&a, &b);
    assert_int_equal(begin(&b, &a), 0);
    (void)ops->arm(a.device); /* it hears the provider from now on */
    ops->disarm(a.device);
    device_lock(a.device);
    broken = *a.device->cq->ops;
    broken.read = fail_read;
    a.device->cq->ops = &broken;
    device_unlock(a.device);
    struct pollfd queue = {.fd = a.device->cq_fd, .events = POLLIN};
    for (int i = 0; poll(&queue, 1, 0) == 0 && i < PATIENCE; i++) {
        say(&b);
        (void)ops->poll(b.device, &cqe, 1);
        rest();
    }
    assert_int_equal(poll(&queue, 1, 0), 1);
    assert_int_equal(ops->poll(a.device, &cqe, 1), WEIR_EDEVICE);
    uint32_t told = 0;
    while (ops->events(a.device, &event, 1) == 1)
        told += event.type == WEIR_ASYNC_DEVICE_FATAL;
    assert_int_equal(told, 1);
    assert_int_equal(ops->qp_destroy(a.qp), 0);
    a.qp = NULL;
    struct pollfd ours = {.fd = ops->fd(a.device), .events = POLLIN};
    ops->disarm(a.device); /* takes what woke for the event */
    for (int i = 0; i < 3; i++) {
        assert_int_equal(poll(&queue, 1, 0), 1);
        assert_int_equal(ops->arm(a.device), 0);
        assert_int_equal(poll(&ours, 1, 0), 0);
        ops->disarm(a.device);
    }
    side_close(&a);
    side_close(&b);
}

/* ---- a port that is another socket's, too ---- */

enum { PORTS = 8, FIRST_PORT = 40000, LISTENER = 5555, MUTE = 7777, APART = 100 };

static struct sockaddr_in at(const char *address, int port) {
    struct sockaddr_in out = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    inet_pton(AF_INET, address, &out.sin_addr);
    return out;
}

/* A network of its own, in which there are few ports. False: this process may not. */
static bool network_begins(void) {
    struct ifreq lo = {.ifr_name = "lo"};
    char range[32];
    if (unshare(CLONE_NEWNET) != 0)
        return false;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    lo.ifr_flags = IFF_UP;
    bool up = ioctl(fd, SIOCSIFFLAGS, &lo) == 0;
    close(fd);
    snprintf(range, sizeof range, "%d %d", FIRST_PORT, FIRST_PORT + PORTS - 1);
    fd = open("/proc/sys/net/ipv4/ip_local_port_range", O_WRONLY | O_CLOEXEC);
    up = up && fd >= 0 && write(fd, range, strlen(range)) > 0;
    if (fd >= 0)
        close(fd);
    return up;
}

static int bound(const char *address, int port, int type) {
    int one = 1;
    struct sockaddr_in here = at(address, port);
    int fd = socket(AF_INET, SOCK_STREAM | type, 0);
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    (void)setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
    assert_int_equal(bind(fd, (struct sockaddr *)&here, sizeof here), 0);
    return fd;
}

/* A listener whose backlog is full, so that calls go nowhere. */
static void make_mute(void) {
    struct sockaddr_in there = at("127.0.0.9", MUTE);
    int fd = bound("127.0.0.9", MUTE, 0);
    assert_int_equal(listen(fd, 0), 0);
    for (int i = 0; i < 4; i++) {
        int caller = bound("127.0.0.2", 0, SOCK_NONBLOCK);
        (void)connect(caller, (struct sockaddr *)&there, sizeof there);
        (void)fcntl(caller, F_DUPFD, APART);
        close(caller);
    }
    (void)fcntl(fd, F_DUPFD, APART);
    close(fd);
}

/* The application's connections use all ports there are; the device's dial shares one of them. A
 * number in front of theirs is free, so that the dial's descriptor is none of the last. */
static int dial_beside(void) {
    struct sockaddr_in there = at("127.0.0.1", LISTENER), mute = at("127.0.0.9", MUTE);
    struct side side;
    int connections[PORTS], count = 0;
    setenv("WEIR_OFI_ADDRESS", "127.0.0.1", 1);
    side_open(&side, BYTES);
    make_mute();
    int hole = dup(STDERR_FILENO);
    int listener = fcntl(bound("127.0.0.1", LISTENER, 0), F_DUPFD, APART);
    if (listen(listener, PORTS) != 0)
        return 1;
    for (; count < PORTS; count++) {
        connections[count] = bound("127.0.0.1", 0, 0);
        if (connect(connections[count], (struct sockaddr *)&there, sizeof there) != 0)
            break;
    }
    close(hole);
    struct ofi_address address = {.port = MUTE, .cookie = 42};
    uint8_t blob[WEIR_QP_BLOB_MAX];
    ofi_address_of(&mute, address.ip);
    struct weir_qp_path path = {.blob = blob};
    path.blob_length = ofi_blob_write_address(&address, blob);
    int rc = ops->qp_connect(side.qp, &path);
    bool failed = false;
    for (int i = 0; rc == WEIR_EINPROGRESS && !failed && i < PATIENCE; i++) {
        struct weir_async event;
        failed = ops->events(side.device, &event, 1) == 1 && event.error != 0;
        skew_ns += S / 100;
        rest();
    }
    int wrong = count < PORTS / 2 || !failed;
    for (int i = 0; i < count; i++) {
        wrong += (fcntl(connections[i], F_GETFD) & FD_CLOEXEC) != 0;
        wrong += send(connections[i], "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT) != 1;
    }
    return wrong;
}

static void test_W4_a_dial_takes_no_other_socket(void **state) {
    int status = -1;
    (void)state;
    pid_t child = fork();
    if (child == 0)
        _exit(network_begins() ? dial_beside() : 77);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_W4_a_dial_takes_no_other_socket), /* it forks before any thread */
        cmocka_unit_test(test_S13_a_release_ends_without_the_answer),
        cmocka_unit_test(test_S13_a_release_waits_for_all_that_are_up),
        cmocka_unit_test(test_W9_a_device_that_is_lost_lets_sleep),
    };
    struct weir_device_caps caps = {.note = ""};
    setenv("WEIR_OFI_ADDRESS", "127.0.0.1", 1);
    if (ops->probe(NULL, &caps) != 0) {
        fprintf(stderr, "skipped: %s\n", caps.note);
        return 77;
    }
    if (os_env_init(&real) != 0)
        return EXIT_FAILURE;
    clock_ops = *real.ops;
    clock_ops.now = clock_ops.coarse = skewed;
    env = real;
    env.ops = &clock_ops;
    return cmocka_run_group_tests_name("ofi_cheats", tests, NULL, NULL);
}
