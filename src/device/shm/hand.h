/* hand.h: how one device gets descriptors of another: asking for them, and handing them out.
 *
 * Over a socket of place.h goes one question and one answer, with descriptors (SCM_RIGHTS in
 * unix(7)). That takes no right to trace the other process, is nobody else's business, and
 * works where pids mean nothing. Questions are answered by a thread of the device's own, so
 * that it does not matter what the application does meanwhile.
 *
 *     HAND_LINK    segment, bell, life, and a pidfd of the process where the kernel gives one
 *     HAND_MEMORY  the memfd of a region; of one that is reached with process_vm, nothing:
 *                  but then the process that asked is let in (tracer.h)
 *
 * A stranger (place_admits) is told so and is let go at once. Of others at most HAND_VISITORS
 * are listened to, and each for no longer than HAND_PATIENCE_MS.
 *
 * `life` is the read end of a pipe that nobody writes to. Its other end closes when the
 * process exits, when another program takes its place (execve(2)), or when the device is
 * closed. A child that was made without fork(2) may hold it: of an exit the pidfd tells all the
 * same. */
#ifndef SHM_HAND_H
#define SHM_HAND_H

#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>

#include "place.h"

#define HAND_VISITORS    8
#define HAND_PATIENCE_MS 1000
#define HAND_FDS_MAX     4
#define HAND_WATCHERS    4    /* of one file: each may have two epoll sets over it */
#define HAND_WAIT_MS     1000 /* that an import waits for its answer: see hand_wait */

#define HAND_MAGIC       UINT64_C(0x31306b7361727377) /* "wsrask01" */
enum { HAND_LINK = 1, HAND_MEMORY = 2 };

struct hand_question {
    uint64_t magic;
    uint64_t nonce;
    uint64_t key; /* HAND_MEMORY: of the region */
    uint32_t what;
    uint32_t index;
};

struct hand_answer {
    uint64_t magic;
    int32_t status; /* 0, EAGAIN, EDENIED, EINVAL or ESTALE */
    uint32_t count; /* of descriptors */
};
_Static_assert(sizeof(struct hand_question) == 32 && sizeof(struct hand_answer) == 16,
               "no padding");

/* The side that hands out. */
struct shm_hand {
    pthread_t thread;
    sem_t started;
    pthread_mutex_t mutex; /* what a region's entry says of its key and descriptor */
    int listen_fd;
    int life_fds[2];   /* the first is the thread's, */
    uint32_t watchers; /* and was given to so many */
    uint32_t offered;  /* entries ever offered: with the mutex */
    bool is_open;
};

struct weir_device;

/* EMFILE, ENOMEM, EDEVICE. What was opened is closed by hand_close, which may be called without. */
int hand_open(struct weir_device *device);
void hand_close(struct weir_device *device);

/* Around each change of a region's key or descriptor: what is handed out is a region's own. */
void hand_lock(struct weir_device *device);
void hand_unlock(struct weir_device *device);
/* With the lock: regions up to this one may be asked for. */
void hand_offer(struct weir_device *device, uint32_t index);

/* Asks the device with the question's nonce. A socket on which the answer will come, and
 * that device's process; or an error of place_call. */
int hand_ask(const struct weir_device *device, const struct hand_question *question,
             int32_t *pid_out);
/* The answer, with its descriptors: how many, the caller's from now on, or its error.
 * EINPROGRESS: not yet. EAGAIN: there will be none. EPEER, EDENIED, ESTALE, EINVAL; EMFILE: no
 * room for them. */
int hand_take(int socket, int fds_out[HAND_FDS_MAX]);
/* As hand_take, but waits up to HAND_WAIT_MS; EAGAIN after that. */
int hand_wait(int socket, int fds_out[HAND_FDS_MAX]);

#endif
