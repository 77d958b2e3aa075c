/* SPDX-License-Identifier: Apache-2.0 */
/* ready.c: see ready.h. A process that locks itself in may lower RLIMIT_NOFILE to less than it has
 * open, or to 0; poll(2) takes no more entries than that. select(2) has no such limit, and takes
 * sets of any size, whatever FD_SETSIZE is (its man page, "BUGS"). */
#define _GNU_SOURCE
#include "ready.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/select.h>
#include <time.h>

enum {
    WORD_BITS = sizeof(fd_mask) * CHAR_BIT,
    PAUSE_NS = 10 * 1000 * 1000 /* there is no memory for the set */
};

static fd_mask bit_of(int fd) {
    return (fd_mask)(1UL << (fd % WORD_BITS));
}

static int select_of(struct pollfd *polled, nfds_t count, const struct timespec *timeout) {
    const struct timespec now = {0};
    int last = -1, ready = 0;
    for (nfds_t i = 0; i < count; i++)
        last = polled[i].fd > last ? polled[i].fd : last;
    fd_mask *set = calloc((size_t)(last + 1) / WORD_BITS + 1, sizeof *set);
    if (set == NULL) {
        if (timeout == NULL || timeout->tv_sec > 0 || timeout->tv_nsec > PAUSE_NS)
            nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
        return 0;
    }
    for (nfds_t i = 0; i < count; i++) {
        polled[i].revents = 0;
        if (polled[i].fd >= 0 && fcntl(polled[i].fd, F_GETFD) < 0) {
            polled[i].revents = POLLNVAL; /* one of these would hide all others: EBADF */
            ready++;
        } else if (polled[i].fd >= 0) {
            set[polled[i].fd / WORD_BITS] |= bit_of(polled[i].fd);
        }
    }
    bool some = pselect(last + 1, (fd_set *)set, NULL, NULL, ready > 0 ? &now : timeout, NULL) > 0;
    for (nfds_t i = 0; i < count; i++) {
        const int fd = polled[i].fd;
        if (some && fd >= 0 && polled[i].revents == 0 && (set[fd / WORD_BITS] & bit_of(fd)) != 0) {
            polled[i].revents = POLLIN;
            ready++;
        }
    }
    free(set);
    return ready;
}

int ready_wait(struct pollfd *polled, nfds_t count, uint64_t timeout_ns) {
    const struct timespec timeout = {
        .tv_sec = (time_t)(timeout_ns / UINT64_C(1000000000)),
        .tv_nsec = (long)(timeout_ns % UINT64_C(1000000000)),
    };
    const struct timespec *until = timeout_ns == UINT64_MAX ? NULL : &timeout;
    int ready = ppoll(polled, count, until, NULL);
    if (ready < 0 && errno == EINVAL)
        ready = select_of(polled, count, until);
    return ready > 0 ? ready : 0;
}
