/* SPDX-License-Identifier: Apache-2.0 */
/* child.c: see child.h. A child that was reaped in child_gone is remembered by the caller: no
 * process id is used after its process was reaped. */
#define _GNU_SOURCE
#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "host.h"
#include "weir.h"

#define CHILD_READY_MS 10000
#define CHILD_END_MS   5000
#define CHILD_LOOK_NS  (20 * NS_PER_MS) /* between two looks where a child has no descriptor */
#define SIGNAL_BASE    128              /* a shell's status of a child that a signal killed */

/* In the child, between fork and exec: calls that take no lock. (host_pin takes none: the CPUs were
 * counted before the fork.) */
static void become(const char *program, char *const *argv, const struct child_files *files,
                   pid_t parent, int cpu) {
    const int given[] = {files->in, files->out, files->err};

    host_pin(cpu);
    /* prctl(2): the signal is lost if the parent died before this call; hence getppid. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(CHILD_NOT_EXECUTED);
    for (int fd = 0; fd < 3; fd++) {
        if (given[fd] >= 0 && dup2(given[fd], fd) < 0)
            _exit(CHILD_NOT_EXECUTED);
    }
    execvp(program, argv);
    _exit(CHILD_NOT_EXECUTED);
}

int child_start(const char *program, char *const *argv, const struct child_files *files, int cpu) {
    pid_t parent = getpid(), pid = fork();

    if (pid == 0)
        become(program, argv, files, parent, cpu);
    return pid > 0 ? (int)pid : complain("%s cannot be started: %s", argv[0], strerror(errno));
}

int child_fork(int (*run)(void *context), void *context) {
    pid_t parent = getpid(), pid = fork();

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* as in become */
        _exit(getppid() == parent ? run(context) : EXIT_FAILED);
    }
    return pid > 0 ? (int)pid : complain("a process cannot be started: %s", strerror(errno));
}

/* One line, without its end; -1 when none came in time. */
static int read_line(int fd, char *line_out, size_t size) {
    uint64_t until = host_now_ns() + CHILD_READY_MS * NS_PER_MS;
    size_t have = 0;

    while (have < size) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        uint64_t now = host_now_ns();
        ssize_t got;

        if (now >= until || host_interrupted())
            return -1;
        if (poll(&wait, 1, (int)((until - now) / NS_PER_MS) + 1) <= 0)
            continue;
        got = read(fd, line_out + have, size - have);
        if (got <= 0)
            return -1;
        have += (size_t)got;
        for (size_t i = 0; i < have; i++) {
            if (line_out[i] == '\n') {
                line_out[i] = '\0';
                return 0;
            }
        }
    }
    return -1;
}

/* Asks it to end, then makes it; returns its status of waitpid(2). */
static int reap(pid_t pid) {
    const struct timespec pause = {.tv_nsec = 2 * (long)NS_PER_MS};
    int status = 0;

    kill(pid, SIGTERM);
    kill(pid, SIGCONT); /* one that is stopped hears nothing */
    for (int waited = 0; waited < CHILD_END_MS; waited += 2) {
        if (waitpid(pid, &status, WNOHANG) == pid)
            return status;
        nanosleep(&pause, NULL);
    }
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    return status;
}

int child_wait(int pid, uint64_t timeout_ns) {
    int fd = pidfd_open(pid, 0); /* -1 on an old kernel: a look now and then does as well */
    uint64_t start = host_now_ns(), most = fd >= 0 ? UINT64_MAX : CHILD_LOOK_NS;
    int status = 0;

    while (waitpid(pid, &status, WNOHANG) != pid) {
        uint64_t past = host_now_ns() - start;
        uint64_t left = past < timeout_ns ? timeout_ns - past : 0;
        if (host_interrupted() || left == 0) {
            status = reap(pid);
            break;
        }
        host_sleep_on(fd, -1, timeout_ns == UINT64_MAX || most < left ? most : left);
    }
    if (fd >= 0)
        close(fd);
    return WIFSIGNALED(status) ? SIGNAL_BASE + WTERMSIG(status) : WEXITSTATUS(status);
}

/* After no address came. A target that ended by itself has said why, on the stderr that it
 * shares with us, and one line is enough. */
static int give_up(pid_t pid, const char *listen) {
    int status = reap(pid);

    if (WIFEXITED(status) &&
        (WEXITSTATUS(status) == EXIT_FAILED || WEXITSTATUS(status) == EXIT_USAGE))
        return -1;
    if (host_interrupted())
        return complain("interrupted");
    return complain("the target process did not start at %s", listen);
}

int child_target(const struct options *options, const char *listen, int cpu, char *address_out,
                 size_t address_size) {
    char depth[32], qps[32], sessions[32], where[WEIR_ADDRESS_MAX];
    char *argv[16] = {CHILD_TARGET, "serve", "--listen", where};
    int argc = 4, ends[2], pid;

    snprintf(where, sizeof(where), "%s", listen);
    if (options->device != NULL) {
        argv[argc++] = "--device";
        argv[argc++] = (char *)(uintptr_t)options->device; /* execv does not write to it */
    }
    if (options->depth != 0) {
        snprintf(depth, sizeof(depth), "%" PRIu64, options->depth);
        argv[argc++] = "--depth";
        argv[argc++] = depth;
    }
    if (options->qps != 0) {
        snprintf(qps, sizeof(qps), "%" PRIu64, options->qps);
        argv[argc++] = "--qps";
        argv[argc++] = qps;
    }
    if (options->sessions != 0) {
        snprintf(sessions, sizeof(sessions), "%" PRIu64, options->sessions);
        argv[argc++] = "--sessions";
        argv[argc++] = sessions;
    }
    if (pipe2(ends, O_CLOEXEC) != 0)
        return complain("the target cannot be started: %s", strerror(errno));
    pid = child_start(CHILD_SELF, argv, &(struct child_files){-1, ends[1], -1}, cpu);
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return -1;
    }
    if (read_line(ends[0], address_out, address_size) != 0) {
        close(ends[0]);
        return give_up(pid, where);
    }
    close(ends[0]);
    return pid;
}

int child_gone(int pid, char *text_out) {
    int status;

    if (waitpid(pid, &status, WNOHANG) != pid)
        return 0;
    if (WIFSIGNALED(status))
        snprintf(text_out, 64, "killed by signal %d", WTERMSIG(status));
    else
        snprintf(text_out, 64, "gone: it ended with status %d", WEXITSTATUS(status));
    return 1;
}

void child_end(int pid) {
    (void)reap(pid);
}

void child_kill(int pid) {
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}
