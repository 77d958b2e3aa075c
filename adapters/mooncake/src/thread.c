/* SPDX-License-Identifier: Apache-2.0 */
/* thread.c: threads of the adapter. A thread inherits the signal mask of its creator (signal(7)).
 */
#include <signal.h>

#include "adapter.h"

/* A fault in a thread that blocks its signal ends the process without a word to its handler. */
static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};

bool thread_start(pthread_t *thread_out, void *(*run)(void *), void *argument) {
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (unsigned i = 0; i < sizeof faults / sizeof faults[0]; i++)
        sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    bool good = pthread_create(thread_out, NULL, run, argument) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return good;
}
