/* SPDX-License-Identifier: Apache-2.0 */
/* wait.c: the sleeping port of Linux: two epoll sets with an eventfd in each, one for
 * those who sleep here, one for the application's own poll loop.
 *
 * Owns the four descriptors; the sources stay their owners' and leave the sets when
 * those close them (epoll(7), Q6). Invariant: the eventfd of a set is readable from a
 * wake (raise) until the next clear (lower). Leaves to others: whether anybody sleeps
 * at all, so a wake always costs its system call; who clears, and what was done before.
 * The sets are side by side, not one in the other: epoll sets nest five deep at most
 * (epoll_ctl(2), ELOOP), and sources and applications have sets of their own.
 */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "fork.h"
#include "os.h"
#include "ready.h"

struct set {
    int epoll_fd;
    int event_fd;
};

struct wait {
    struct weir_env env;
    struct set sleepers;
    struct set application;
};

/* ---- one set ----------------------------------------------------------- */

static int set_add(const struct set *set, int source_fd) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = source_fd};
    if (epoll_ctl(set->epoll_fd, EPOLL_CTL_ADD, source_fd, &event) != 0) {
        return errno == ENOMEM || errno == ENOSPC ? WEIR_ENOMEM : WEIR_EINVAL;
    }
    return WEIR_OK;
}

static void set_raise(const struct set *set) {
    const int saved = errno; /* signal-safety(7) */
    const uint64_t one = 1;
    /* eventfd(2): EAGAIN means that the counter is full, so it is readable anyway. */
    ssize_t put = write(set->event_fd, &one, sizeof one);
    (void)put;
    errno = saved;
}

static void set_lower(const struct set *set) {
    uint64_t count;
    ssize_t got = read(set->event_fd, &count, sizeof count); /* EAGAIN: not set */
    (void)got;
}

static void set_close(struct set *set) {
    if (set->event_fd >= 0) {
        fork_close(set->event_fd);
    }
    if (set->epoll_fd >= 0) {
        fork_close(set->epoll_fd);
    }
    *set = (struct set){-1, -1};
}

static int set_open(struct set *set) {
    int rc = WEIR_OK;
    fork_hold();
    set->epoll_fd = fork_own(epoll_create1(EPOLL_CLOEXEC));
    set->event_fd = fork_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (set->epoll_fd < 0 || set->event_fd < 0) {
        rc = os_fd_error(errno);
    }
    fork_release();
    if (rc == WEIR_OK && set_add(set, set->event_fd) != WEIR_OK) {
        rc = WEIR_ENOMEM;
    }
    if (rc != WEIR_OK) {
        set_close(set);
    }
    return rc;
}

/* ---- the port ---------------------------------------------------------- */

static int wait_fd(void *self) {
    const struct wait *wait = self;
    return wait->application.epoll_fd;
}

static int wait_add(void *self, int source_fd) {
    const struct wait *wait = self;
    int rc = set_add(&wait->sleepers, source_fd);
    if (rc == WEIR_OK) {
        rc = set_add(&wait->application, source_fd);
        if (rc != WEIR_OK) {
            (void)epoll_ctl(wait->sleepers.epoll_fd, EPOLL_CTL_DEL, source_fd, NULL);
        }
    }
    return rc;
}

static void wait_sleep(void *self, uint64_t timeout_ns) {
    const struct wait *wait = self;
    /* ppoll(2) of the epoll set rather than epoll_pwait of it: it takes nanoseconds on
     * every kernel (epoll_pwait2 came with 5.11), and all sleepers wake together,
     * where epoll_wait lets one event wake one of them (epoll(7)). A signal ends the
     * sleep early, which the contract allows and a handler that wakes wants. */
    struct pollfd set = {.fd = wait->sleepers.epoll_fd, .events = POLLIN};
    (void)ready_wait(&set, 1, timeout_ns);
}

static void wait_wake(void *self) {
    const struct wait *wait = self;
    set_raise(&wait->sleepers);
}

static void wait_clear(void *self) {
    const struct wait *wait = self;
    set_lower(&wait->sleepers);
}

static void wait_raise(void *self) {
    const struct wait *wait = self;
    set_raise(&wait->application);
}

static void wait_lower(void *self) {
    const struct wait *wait = self;
    set_lower(&wait->application);
}

static const struct weir_wait_ops wait_ops = {
    .add = wait_add,
    .sleep = wait_sleep,
    .wake = wait_wake,
    .clear = wait_clear,
    .fd = wait_fd,
    .raise = wait_raise,
    .lower = wait_lower,
};

int wait_open(const struct weir_env *env, struct weir_wait *wait_out) {
    struct wait *wait = env->ops->alloc(env->self, sizeof *wait);
    if (wait == NULL) {
        return WEIR_ENOMEM;
    }
    wait->env = *env;
    int rc = set_open(&wait->sleepers);
    if (rc != WEIR_OK) {
        goto free_wait;
    }
    rc = set_open(&wait->application);
    if (rc != WEIR_OK) {
        goto close_sleepers;
    }
    *wait_out = (struct weir_wait){.ops = &wait_ops, .self = wait};
    return WEIR_OK;

close_sleepers:
    set_close(&wait->sleepers);
free_wait:
    env->ops->free(env->self, wait, sizeof *wait);
    return rc;
}

void wait_close(struct weir_wait *port) {
    struct wait *wait = port->self;
    if (wait == NULL) {
        return;
    }
    assert(port->ops == &wait_ops);
    set_close(&wait->application);
    set_close(&wait->sleepers);
    const struct weir_env env = wait->env;
    env.ops->free(env.self, wait, sizeof *wait);
    *port = (struct weir_wait){0};
}
