/* SPDX-License-Identifier: Apache-2.0 */
/* resolve.c: a few detached threads, each in one blocking getaddrinfo(3).
 *
 * Why not getaddrinfo_a(3): a request that has begun cannot be cancelled there
 * (gai_cancel(3), EAI_NOTCANCELED) and goes on writing into the caller's memory, so
 * closing would have to wait for a dead name server. Here the last reference that is
 * dropped frees the memory.
 *
 * Owns the jobs and the eventfd. Invariants: every field that changes is read and
 * written under the mutex, which is never held across a lookup; `references` is one
 * for the opener while it is open and one for each running thread; the last one to
 * leave frees everything. Memory comes from malloc, because the environment's must
 * not be called from these threads.
 */
#define _GNU_SOURCE
#include "resolve.h"
#include "fork.h"
#include "os.h"
#include "thread.h"

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum resolve_state { RESOLVE_FREE = 0, RESOLVE_RUNNING, RESOLVE_DONE };

struct resolve_job {
    struct resolver *resolver;
    enum resolve_state state;
    int status;
    uint64_t ticket;
    uint16_t port;
    char host[ADDRESS_HOST_MAX];
    struct address_list list;
};

struct resolver {
    pthread_mutex_t mutex;
    int event_fd;
    uint32_t references;
    bool closed;
    struct resolve_job jobs[RESOLVE_JOBS];
};

int resolver_open(struct resolver **resolver_out) {
    struct resolver *resolver = calloc(1, sizeof *resolver);
    if (resolver == NULL) {
        return WEIR_ENOMEM;
    }
    /* EFD_SEMAPHORE: one read takes one finished job off, eventfd(2). */
    fork_hold();
    resolver->event_fd = fork_own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE));
    fork_release();
    int rc = WEIR_ENOMEM;
    if (resolver->event_fd < 0) {
        rc = os_fd_error(errno);
        goto free_resolver;
    }
    if (pthread_mutex_init(&resolver->mutex, NULL) != 0) {
        goto close_event;
    }
    resolver->references = 1;
    for (uint32_t i = 0; i < RESOLVE_JOBS; i++) {
        resolver->jobs[i].resolver = resolver;
    }
    *resolver_out = resolver;
    return WEIR_OK;

close_event:
    fork_close(resolver->event_fd);
free_resolver:
    free(resolver);
    return rc;
}

/* Called with the mutex held; releases it. */
static void resolver_put(struct resolver *resolver) {
    assert(resolver->references > 0);
    const bool last = --resolver->references == 0;
    pthread_mutex_unlock(&resolver->mutex);
    if (last) {
        pthread_mutex_destroy(&resolver->mutex);
        fork_close(resolver->event_fd);
        free(resolver);
    }
}

void resolver_close(struct resolver *resolver) {
    if (resolver == NULL) {
        return;
    }
    pthread_mutex_lock(&resolver->mutex);
    resolver->closed = true;
    resolver_put(resolver);
}

void resolver_abandon(struct resolver *resolver) {
    free(resolver);
}

int resolver_fd(const struct resolver *resolver) {
    return resolver->event_fd;
}

/* Called with the mutex held. */
static void resolver_done(struct resolver *resolver, struct resolve_job *job, int status) {
    job->status = status;
    job->state = RESOLVE_DONE;
    if (!resolver->closed) {
        const uint64_t one = 1;
        ssize_t put = write(resolver->event_fd, &one, sizeof one);
        (void)put; /* at most RESOLVE_JOBS are outstanding: the counter cannot be full */
    }
}

static void *resolver_thread(void *argument) {
    struct resolve_job *job = argument;
    struct resolver *resolver = job->resolver;
    char host[ADDRESS_HOST_MAX];

    pthread_mutex_lock(&resolver->mutex);
    memcpy(host, job->host, sizeof host);
    const uint16_t port = job->port;
    pthread_mutex_unlock(&resolver->mutex);

    struct address_list list = {.count = 0};
    const int status = address_resolve(host, port, &list);

    pthread_mutex_lock(&resolver->mutex);
    job->list = list;
    resolver_done(resolver, job, status);
    resolver_put(resolver);
    return NULL;
}

static int resolver_spawn(struct resolve_job *job) {
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0) {
        return WEIR_ENOMEM;
    }
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_t thread;
    const int rc = thread_create(&thread, &attributes, resolver_thread, job);
    pthread_attr_destroy(&attributes);
    return rc == 0 ? WEIR_OK : WEIR_ENOMEM;
}

int resolver_start(struct resolver *resolver, const char *host, uint16_t port, uint64_t ticket) {
    const size_t length = strlen(host);
    assert(length < ADDRESS_HOST_MAX);
    int rc = WEIR_EAGAIN;
    pthread_mutex_lock(&resolver->mutex);
    for (uint32_t i = 0; i < RESOLVE_JOBS; i++) {
        struct resolve_job *job = &resolver->jobs[i];
        if (job->state != RESOLVE_FREE) {
            continue;
        }
        memcpy(job->host, host, length + 1);
        job->port = port;
        job->ticket = ticket;
        /* The thread starts by taking the mutex, so it finds its reference counted. */
        const int failed = resolver_spawn(job);
        if (failed == WEIR_OK) {
            job->state = RESOLVE_RUNNING;
            resolver->references++;
        } else {
            resolver_done(resolver, job, failed);
        }
        rc = WEIR_OK;
        break;
    }
    pthread_mutex_unlock(&resolver->mutex);
    return rc;
}

int resolver_take(struct resolver *resolver, uint64_t *ticket_out, int *status_out,
                  struct address_list *list_out) {
    uint64_t count;
    if (read(resolver->event_fd, &count, sizeof count) != (ssize_t)sizeof count) {
        return 0;
    }
    int found = 0;
    pthread_mutex_lock(&resolver->mutex);
    for (uint32_t i = 0; i < RESOLVE_JOBS && !found; i++) {
        struct resolve_job *job = &resolver->jobs[i];
        if (job->state == RESOLVE_DONE) {
            *ticket_out = job->ticket;
            *status_out = job->status;
            *list_out = job->list;
            job->state = RESOLVE_FREE;
            found = 1;
        }
    }
    pthread_mutex_unlock(&resolver->mutex);
    return found;
}
