/* SPDX-License-Identifier: Apache-2.0 */
/* hand.h: how one device gets descriptors of another: asking for them, and handing them out.
 *
 * Over a socket of place.h goes one question and one answer, with descriptors (SCM_RIGHTS in
 * unix(7)). That takes no right to trace the other process, is nobody else's business, and
 * works where pids mean nothing. Questions are answered by a thread of the device's own, so
 * that it does not matter what the application does meanwhile.
 *
 *     HAND_LINK    segment, bell, life, and a pidfd of the process where the kernel gives one.
 *                  The question brings those of the device that asks, so that it is not asked
 *                  back
 *     HAND_MEMORY  the memfd of a region; of one that is reached with process_vm, nothing:
 *                  but then the process that asked is let in (tracer.h)
 *
 * The descriptors that a question brought are kept for HAND_BROUGHT_MS, of HAND_BROUGHT devices at
 * most to which there is no link yet; they are used only to connect to the QP whose key the
 * question said. Its device told that key only to the device that it is to be connected to. Where
 * the descriptors are not there, the device is asked.
 *
 * A stranger (place_admits) is told so and is let go at once. Of others at most HAND_VISITORS
 * are listened to, and each for no longer than HAND_PATIENCE_MS. A process that has no descriptor
 * left answers one at a time.
 *
 * `life` is the read end of a pipe that nobody writes to. Its other end closes when the
 * process exits, when another program takes its place (execve(2)), or when the device is
 * closed. A child that was made without fork(2) may hold it: of an exit the pidfd tells all the
 * same. */
#ifndef SHM_HAND_H
#define SHM_HAND_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "place.h"

#define HAND_VISITORS    8
#define HAND_PATIENCE_MS 1000
#define HAND_FDS_MAX     4
#define HAND_WATCHERS    8 /* of one file: see hand.c */
#define HAND_BROUGHT     8
#define HAND_BROUGHT_MS  10000 /* a crowd takes its time */

#define HAND_MAGIC       UINT64_C(0x32306b7361727377) /* "wsrask02" */
enum { HAND_LINK = 1, HAND_MEMORY = 2 };

struct hand_question {
    uint64_t magic;
    uint64_t nonce;
    uint64_t key; /* HAND_MEMORY: of the region */
    uint32_t what;
    uint32_t index;
    /* HAND_LINK: of the QP that asks, as its blob says. from_key 0: nothing is brought. */
    uint64_t from_nonce;
    uint64_t from_key;
    int32_t from_pid;
    uint32_t from_index;
};

struct hand_answer {
    uint64_t magic;
    int32_t status; /* 0, EAGAIN, EDENIED, EINVAL or ESTALE */
    uint32_t count; /* of descriptors */
};
_Static_assert(sizeof(struct hand_question) == 56 && sizeof(struct hand_answer) == 16,
               "no padding");

/* The descriptors that a question brought. */
struct hand_brought {
    struct hand_question question;
    uint64_t since_ms;
    int32_t pid; /* as it is to us */
    int count;   /* 0: nothing */
    int fds[HAND_FDS_MAX];
};

/* The side that hands out. */
struct shm_hand {
    pthread_t thread;
    sem_t started;
    /* Guards the key and descriptor in a region's entry, which links are in their table, and of
     * the fields below: brought, watchers, life_fds[0], offered. */
    pthread_mutex_t mutex;
    struct hand_brought brought[HAND_BROUGHT];
    uint32_t watchers; /* of life_fds[0] */
    int life_fds[2];
    int listen_fd;
    int spare_fd;     /* the thread's, while it runs; -1: a visitor has its place */
    uint32_t offered; /* entries ever offered: with the mutex */
    bool is_open;
    _Atomic bool ends; /* the thread is to end */
};

struct weir_device;
struct weir_qp;
struct shm_blob;

/* An error of place_listen. hand_close closes what was opened, and may be called without. */
int hand_open(struct weir_device *device);
void hand_close(struct weir_device *device);

/* Around each change of a region's key or descriptor: the key and descriptor handed out are of one
 * region. */
void hand_lock(struct weir_device *device);
void hand_unlock(struct weir_device *device);
/* With the lock: regions up to this one may be asked for. */
void hand_offer(struct weir_device *device, uint32_t index);

/* Asks the device with the question's nonce. A socket on which the answer will come, and
 * that device's process; or an error of place_call. */
int hand_ask(const struct weir_device *device, const struct hand_question *question,
             int32_t *pid_out);
/* HAND_LINK; from: the QP that is to be connected, or NULL. */
int hand_ask_link(struct weir_device *device, uint64_t nonce, const struct weir_qp *from,
                  int32_t *pid_out);
/* The descriptors that this QP's device has brought: how many, the caller's from now on, or 0. */
int hand_take_brought(struct weir_device *device, const struct shm_blob *blob,
                      int fds_out[HAND_FDS_MAX], int32_t *pid_out);
/* The answer, with its descriptors: how many, the caller's from now on, or its error.
 * EINPROGRESS: not yet. EAGAIN: there will be none. EDENIED, ESTALE, EINVAL; EMFILE, ENOMEM: no
 * room for them. */
int hand_take(int socket, int fds_out[HAND_FDS_MAX]);
/* As hand_take, but waits until hand_now_ms is until_ms before it says so. */
int hand_wait(int socket, uint64_t until_ms, int fds_out[HAND_FDS_MAX]);
/* Of CLOCK_MONOTONIC. */
uint64_t hand_now_ms(void);

#endif
