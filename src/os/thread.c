/* SPDX-License-Identifier: Apache-2.0 */
/* thread.c: see thread.h. A thread inherits the signal mask of its creator (signal(7)). */
#include "thread.h"

#include <signal.h>

int thread_create(pthread_t *thread_out, const pthread_attr_t *attributes, void *(*run)(void *),
                  void *argument) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(thread_out, attributes, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}
