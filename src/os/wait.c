/* wait.c: the sleeping port of Linux: one epoll set with an eventfd in it.
 *
 * Owns the two descriptors; the sources stay their owners' and leave the set when
 * those close them (epoll(7), Q6). Invariant: the eventfd is readable from a wake
 * until the next clear. Leaves to others: whether anybody sleeps at all, so a wake
 * always costs its system call; who clears, and what was done before.
 */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "os.h"

struct wait {
    struct weir_env env;
    int epoll_fd;
    int wake_fd;
};

static int wait_fd(void *self) {
    const struct wait *wait = self;
    return wait->epoll_fd;
}

static int wait_add(void *self, int source_fd) {
    const struct wait *wait = self;
    struct epoll_event event = {.events = EPOLLIN, .data.fd = source_fd};
    if (epoll_ctl(wait->epoll_fd, EPOLL_CTL_ADD, source_fd, &event) != 0) {
        return errno == ENOMEM || errno == ENOSPC ? WEIR_ENOMEM : WEIR_EINVAL;
    }
    return WEIR_OK;
}

static void wait_sleep(void *self, uint64_t timeout_ns) {
    const struct wait *wait = self;
    struct timespec timeout = {
        .tv_sec = (time_t)(timeout_ns / UINT64_C(1000000000)),
        .tv_nsec = (long)(timeout_ns % UINT64_C(1000000000)),
    };
    /* ppoll of the epoll set rather than epoll_pwait of it: it takes nanoseconds on
     * every kernel (epoll_pwait2 came with 5.11), and all sleepers wake together,
     * where epoll_wait lets one event wake one of them (epoll(7)). A signal ends the
     * sleep early, which the contract allows and a handler that wakes wants. */
    struct pollfd set = {.fd = wait->epoll_fd, .events = POLLIN};
    (void)ppoll(&set, 1, timeout_ns == UINT64_MAX ? NULL : &timeout, NULL);
}

static void wait_wake(void *self) {
    const struct wait *wait = self;
    const int saved = errno; /* signal-safety(7) */
    const uint64_t one = 1;
    /* eventfd(2): EAGAIN means that the counter is full, so it is readable anyway. */
    ssize_t put = write(wait->wake_fd, &one, sizeof one);
    (void)put;
    errno = saved;
}

static void wait_clear(void *self) {
    const struct wait *wait = self;
    uint64_t count;
    ssize_t got = read(wait->wake_fd, &count, sizeof count); /* EAGAIN: not set */
    (void)got;
}

static const struct weir_wait_ops wait_ops = {
    .fd = wait_fd,
    .add = wait_add,
    .sleep = wait_sleep,
    .wake = wait_wake,
    .clear = wait_clear,
};

int wait_open(const struct weir_env *env, struct weir_wait *wait_out) {
    struct wait *wait = env->ops->alloc(env->self, sizeof *wait);
    if (wait == NULL) {
        return WEIR_ENOMEM;
    }
    wait->env = *env;
    wait->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (wait->epoll_fd < 0) {
        goto free_wait;
    }
    wait->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wait->wake_fd < 0) {
        goto close_epoll;
    }
    if (wait_add(wait, wait->wake_fd) != WEIR_OK) {
        goto close_wake;
    }
    *wait_out = (struct weir_wait){.ops = &wait_ops, .self = wait};
    return WEIR_OK;

close_wake:
    close(wait->wake_fd);
close_epoll:
    close(wait->epoll_fd);
free_wait:
    env->ops->free(env->self, wait, sizeof *wait);
    return WEIR_ENOMEM;
}

void wait_close(struct weir_wait *port) {
    struct wait *wait = port->self;
    if (wait == NULL) {
        return;
    }
    assert(port->ops == &wait_ops);
    close(wait->wake_fd);
    close(wait->epoll_fd);
    const struct weir_env env = wait->env;
    env.ops->free(env.self, wait, sizeof *wait);
    *port = (struct weir_wait){0};
}
