/* SPDX-License-Identifier: Apache-2.0 */
/* thread.c: see thread.h. A thread inherits the signal mask of its creator (signal(7)). */
#include "thread.h"

#include <signal.h>

/* Signals that a fault raises in the thread at fault. Where they are blocked, the kernel ends the
 * process without a word to its handler (signal(7), sigprocmask(2)). */
static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};

int thread_create(pthread_t *thread_out, const pthread_attr_t *attributes, void *(*run)(void *),
                  void *argument) {
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (unsigned i = 0; i < sizeof faults / sizeof faults[0]; i++)
        sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    int error = pthread_create(thread_out, attributes, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}
