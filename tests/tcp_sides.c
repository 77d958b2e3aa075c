/* SPDX-License-Identifier: Apache-2.0 */
/* tcp_sides.c: see tcp_sides.h. */
#define _GNU_SOURCE
#include "tcp_sides.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <dirent.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct weir_env real;

/* ---- a clock that can be pushed ----------------------------------------- */

uint64_t skew_ns;      /* added to every reading */
uint64_t skew_step_ns; /* added to skew_ns by every reading */
int allocs_left;       /* before alloc fails; negative: never */

static uint64_t env_now(void *self) {
    (void)self;
    skew_ns += skew_step_ns;
    return real.ops->now(real.self) + skew_ns;
}

static void env_entropy(void *self, void *out, size_t length) {
    (void)self;
    real.ops->entropy(real.self, out, length);
}

static void *env_alloc(void *self, size_t bytes) {
    (void)self;
    if (allocs_left == 0) {
        return NULL;
    }
    allocs_left--;
    return real.ops->alloc(real.self, bytes);
}

static void env_free(void *self, void *memory, size_t bytes) {
    (void)self;
    real.ops->free(real.self, memory, bytes);
}

static const struct weir_env_ops env_ops = {.now = env_now,
                                            .coarse = env_now,
                                            .entropy = env_entropy,
                                            .alloc = env_alloc,
                                            .free = env_free};
const struct weir_env env = {.ops = &env_ops};

/* ---- two sides ----------------------------------------------------------- */

struct weir_control server, client;
char address[WEIR_ADDRESS_MAX];
static int fds_before;

int fd_count(void) {
    DIR *directory = opendir("/proc/self/fd");
    int count = 0;
    while (readdir(directory) != NULL) {
        count++;
    }
    closedir(directory);
    return count;
}

int sides_open(const char *listen, uint32_t conns_max) {
    skew_ns = skew_step_ns = 0;
    allocs_left = -1;
    fds_before = fd_count();
    return os_env_init(&real) != WEIR_OK || tcp_open(&env, conns_max, &server) != WEIR_OK ||
           tcp_open(&env, 0, &client) != WEIR_OK ||
           server.ops->listen(server.self, listen, address, sizeof address) != WEIR_OK;
}

int sides_close(void **state) {
    (void)state;
    tcp_close(&client);
    tcp_close(&server);
    return fd_count() != fds_before;
}

/* One event, waited for on the descriptor only. */
int take(struct weir_control *side, struct weir_control_event *event, int wait_ms) {
    for (int turns = 0; turns < 100000; turns++) {
        if (side->ops->poll(side->self, event)) {
            return 1;
        }
        struct pollfd set = {.fd = side->ops->fd(side->self), .events = POLLIN};
        if (poll(&set, 1, wait_ms) == 0) {
            return 0;
        }
    }
    fail_msg("the descriptor is readable for ever and poll has nothing: a busy loop");
    return 0;
}

struct weir_control_event expect(struct weir_control *side, enum weir_control_type type) {
    struct weir_control_event event;
    assert_int_equal(take(side, &event, PATIENCE_MS), 1);
    assert_int_equal(event.type, type);
    assert_true(event.conn != 0);
    return event;
}

void expect_closed(struct weir_control *side, uint64_t conn, int error) {
    const struct weir_control_event event = expect(side, WEIR_CONTROL_CLOSED);
    assert_int_equal(event.conn, conn);
    assert_int_equal(event.error, error);
}

/* Nothing for a while, and few wake-ups in it: paused means asleep. */
void expect_quiet(struct weir_control *side) {
    const uint64_t until = real.ops->now(real.self) + (uint64_t)QUIET_MS * 1000000;
    struct pollfd set = {.fd = side->ops->fd(side->self), .events = POLLIN};
    int wakeups = 0;
    while (real.ops->now(real.self) < until) {
        struct weir_control_event event;
        assert_int_equal(side->ops->poll(side->self, &event), 0);
        wakeups += poll(&set, 1, QUIET_MS / 4) > 0;
    }
    assert_true(wakeups <= 5);
}

void put(struct weir_control *side, uint64_t conn, const void *message, uint32_t length) {
    assert_int_equal(side->ops->send(side->self, conn, message, length), WEIR_OK);
}

void expect_message(struct weir_control *side, uint64_t conn, const void *message,
                    uint32_t length) {
    const struct weir_control_event event = expect(side, WEIR_CONTROL_MESSAGE);
    assert_int_equal(event.conn, conn);
    assert_int_equal(event.length, length);
    assert_memory_equal(event.message, message, length);
}

void join(uint64_t *at_client, uint64_t *at_server) {
    assert_int_equal(client.ops->dial(client.self, address, at_client), WEIR_OK);
    *at_server = expect(&server, WEIR_CONTROL_ACCEPTED).conn;
    assert_int_equal(expect(&client, WEIR_CONTROL_CONNECTED).conn, *at_client);
}

/* ---- a raw client -------------------------------------------------------- */

uint16_t server_port(void) {
    return (uint16_t)atoi(strrchr(address, ':') + 1);
}

int raw_socket(void) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    return fd;
}

void raw_connect(int fd) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(server_port())};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(fd, (const struct sockaddr *)&to, sizeof to), 0);
}

int raw_join(uint64_t *at_server) {
    const int fd = raw_socket();
    raw_connect(fd);
    *at_server = expect(&server, WEIR_CONTROL_ACCEPTED).conn;
    return fd;
}

void raw_send(int fd, const void *bytes, size_t length) {
    assert_int_equal(send(fd, bytes, length, MSG_NOSIGNAL), length);
}

size_t frame(uint8_t *out, const void *message, uint32_t length) {
    for (int i = 0; i < 4; i++) {
        out[i] = (uint8_t)(length >> (8 * i));
    }
    memcpy(out + 4, message, length);
    return 4 + (size_t)length;
}
