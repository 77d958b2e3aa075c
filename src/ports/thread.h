/* thread.h: threads of the library. */
#ifndef PORTS_THREAD_H
#define PORTS_THREAD_H

#include <pthread.h>
#include <signal.h>

/* pthread_create(3), of a thread that no signal of the application is delivered to: it inherits
 * the mask of its creator (signal(7)). */
static inline int thread_create(pthread_t *thread_out, const pthread_attr_t *attributes,
                                void *(*run)(void *), void *argument) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(thread_out, attributes, run, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

#endif
