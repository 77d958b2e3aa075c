/* SPDX-License-Identifier: Apache-2.0 */
/* thread.h: threads of the library. */
#ifndef PORTS_THREAD_H
#define PORTS_THREAD_H

#include <pthread.h>

/* pthread_create(3), of a thread that blocks all signals but those that a fault raises: SIGSEGV,
 * SIGBUS, SIGFPE, SIGILL, SIGTRAP and SIGSYS, for which the application may have a handler. */
int thread_create(pthread_t *thread_out, const pthread_attr_t *attributes, void *(*run)(void *),
                  void *argument);

#endif
