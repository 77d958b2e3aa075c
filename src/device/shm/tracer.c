/* SPDX-License-Identifier: Apache-2.0 */
/* tracer.c: the one name that Yama knows for this process; see tracer.h. */
#define _GNU_SOURCE
#include "tracer.h"
#include "fork.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "weir.h"

/* A mirror of what the kernel keeps of this process, and gives to nobody to read. */
static struct {
    pthread_mutex_t mutex;
    uint32_t users;
    int32_t named; /* a pid; ANY; 0: nobody */
} tracer = {.mutex = PTHREAD_MUTEX_INITIALIZER};

#define ANY (-1)

int tracer_scope(void) {
    char text[8] = "";
    fork_hold();
    int fd = fork_own(open("/proc/sys/kernel/yama/ptrace_scope", O_RDONLY | O_CLOEXEC));
    fork_release();
    if (fd < 0)
        return errno == ENOENT ? 0 : -1;
    ssize_t length = read(fd, text, sizeof text - 1);
    fork_close(fd);
    return length <= 0 ? 0 : (int)strtol(text, NULL, 10);
}

static bool is_gone(int32_t pid) {
    return kill(pid, 0) != 0 && errno == ESRCH;
}

int tracer_allow(bool *is_user_io, int32_t pid) {
    int scope = tracer_scope();
    if (scope == 0 || scope > 1)
        return 0; /* open to all of this user, or only to the privileged, which need no name */
    pthread_mutex_lock(&tracer.mutex);
    int32_t want = pid <= 0 ? ANY : pid;
    if (tracer.named != 0 && tracer.named != want &&
        (tracer.named == ANY || !is_gone(tracer.named)))
        want = ANY;
    int rc = prctl(PR_SET_PTRACER, want == ANY ? PR_SET_PTRACER_ANY : (unsigned long)want, 0, 0, 0);
    if (rc == 0) {
        tracer.named = want;
        tracer.users += !*is_user_io;
        *is_user_io = true;
    }
    const bool is_refused =
        rc != 0 && (scope == 1 || errno != EINVAL); /* EINVAL: there is no Yama */
    pthread_mutex_unlock(&tracer.mutex);
    return is_refused ? WEIR_EDENIED : 0;
}

void tracer_forget(bool *is_user_io) {
    if (!*is_user_io)
        return;
    pthread_mutex_lock(&tracer.mutex);
    if (--tracer.users == 0) {
        prctl(PR_SET_PTRACER, 0, 0, 0, 0);
        tracer.named = 0;
    }
    pthread_mutex_unlock(&tracer.mutex);
    *is_user_io = false;
}
