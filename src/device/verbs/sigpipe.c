/* SPDX-License-Identifier: Apache-2.0 */
/* sigpipe.c: calls of a provider that may raise SIGPIPE, which ends the process.
 *
 * Linux' software iWARP (siw) writes to a TCP socket within the calls of whoever posts, puts a
 * QP into the error state, accepts, rejects or destroys; of a stream that the other side has
 * closed the kernel tells that thread by SIGPIPE (send(2); siw does not say MSG_NOSIGNAL). So
 * the signal is held back meanwhile, and one that came is taken off the thread. One of the
 * application's that was pending before stays (and where that was the whole process's, one of ours
 * stays behind it); one that somebody sends the process just then may be taken for ours. Threads of
 * the library hold all signals back anyway (thread.h). */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include "verbs.h"

/* siw's SIW_VENDOR_ID; it names no vendor's part. */
enum { SIW_VENDOR_ID = 0x626d74 };

bool sigpipe_is_raised(const struct ibv_device_attr *attr) {
    return attr->vendor_id == SIW_VENDOR_ID;
}

enum verbs_sigpipe sigpipe_hold(const struct weir_device *device) {
    sigset_t pipe, before;
    if (VERBS_LIKELY(!device->raises_sigpipe) || sigpending(&pipe) != 0 ||
        sigismember(&pipe, SIGPIPE) != 0)
        return SIGPIPE_LEFT; /* pending: it is held back */
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    if (pthread_sigmask(SIG_BLOCK, &pipe, &before) != 0)
        return SIGPIPE_LEFT;
    return sigismember(&before, SIGPIPE) == 1 ? SIGPIPE_WAS_HELD : SIGPIPE_HELD;
}

void sigpipe_release(enum verbs_sigpipe hold) {
    static const struct timespec now = {0};
    sigset_t pipe;
    if (VERBS_LIKELY(hold == SIGPIPE_LEFT))
        return;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    while (sigtimedwait(&pipe, NULL, &now) < 0 && errno == EINTR)
        continue; /* EAGAIN: none came */
    if (hold == SIGPIPE_HELD)
        pthread_sigmask(SIG_UNBLOCK, &pipe, NULL);
}
