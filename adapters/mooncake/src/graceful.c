/* SPDX-License-Identifier: Apache-2.0 */
/* graceful.c: engines whose entries leave the metadata when the process is told to end.
 *
 * A signal's handler writes to a pipe; a thread reads it, takes the entries out, and lets the
 * signal have the effect that it had before. Engines are not closed there: other threads may use
 * them. */
#include "adapter.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct mc_engine *alive;
static int pipe_ends[2] = {-1, -1};
static pid_t installed_in;
static bool is_at_exit;

static void remove_entries(void) {
    char why[STORE_WHY];
    pthread_mutex_lock(&lock);
    if (installed_in == getpid()) { /* a child of vfork(2) has no part in it */
        for (struct mc_engine *engine = alive; engine != NULL; engine = engine->next_alive) {
            if (engine->store != NULL)
                store_remove(engine->store, engine->name, engine->address, why);
        }
        alive = NULL;
    }
    pthread_mutex_unlock(&lock);
}

static void handle(int number) {
    int saved = errno;
    unsigned char byte = (unsigned char)number;
    if (installed_in != getpid() || write(pipe_ends[1], &byte, 1) != 1) {
        signal(number, SIG_DFL);
        raise(number);
    }
    errno = saved;
}

static void *watch(void *unused) {
    unsigned char number;
    ssize_t length;
    (void)unused;
    do
        length = read(pipe_ends[0], &number, 1);
    while (length < 0 && errno == EINTR);
    if (length != 1)
        return NULL;
    remove_entries();
    signal(number, SIG_DFL);
    kill(getpid(), number);
    return NULL;
}

/* One for which the application has a handler, or that it ignores, is left alone. */
static void take_signal(int number) {
    struct sigaction before, ours = {.sa_handler = handle, .sa_flags = SA_RESTART};
    sigemptyset(&ours.sa_mask);
    if (sigaction(number, NULL, &before) == 0 && (before.sa_flags & SA_SIGINFO) == 0 &&
        before.sa_handler == SIG_DFL)
        sigaction(number, &ours, NULL);
}

static void close_pipe(void) {
    for (int i = 0; i < 2; i++) {
        if (pipe_ends[i] >= 0)
            close(pipe_ends[i]);
        pipe_ends[i] = -1;
    }
}

/* Under the lock. False: there is no descriptor, or no thread. */
static bool install(void) {
    pthread_t thread;
    if (installed_in == getpid())
        return true;
    if (pipe2(pipe_ends, O_CLOEXEC) != 0)
        return false;
    if (!thread_start(&thread, watch, NULL)) {
        close_pipe();
        return false;
    }
    pthread_detach(thread);
    if (!is_at_exit)
        is_at_exit = atexit(remove_entries) == 0;
    installed_in = getpid();
    take_signal(SIGTERM);
    take_signal(SIGINT);
    return is_at_exit;
}

void graceful_enable(struct mc_engine *engine) {
    pthread_mutex_lock(&lock);
    bool good = install();
    if (!engine->is_graceful) {
        engine->is_graceful = true;
        engine->next_alive = alive;
        alive = engine;
    }
    pthread_mutex_unlock(&lock);
    if (!good)
        mc_log("the entries of %s stay in the metadata when the process is told to end: no "
               "descriptor, or no thread",
               engine->name);
}

void graceful_forked(void) {
    pthread_mutex_init(&lock, NULL); /* a thread of the parent's may have had it */
    installed_in = 0;
    alive = NULL;
    close_pipe();
}

void graceful_forget(struct mc_engine *engine) {
    pthread_mutex_lock(&lock);
    for (struct mc_engine **at = &alive; *at != NULL; at = &(*at)->next_alive) {
        if (*at == engine) {
            *at = engine->next_alive;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
}
