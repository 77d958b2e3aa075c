/* SPDX-License-Identifier: Apache-2.0 */
/* link.c: the other devices that this one shares memory with, and their deaths.
 *
 * Owns the link table: for each foreign segment its mapping, its bell, and what tells of
 * its end. They come from the device itself: it has brought them with a question of its own, or it
 * is asked for them (hand.h). Of a device of this process the descriptors are duplicated. The
 * answer takes as long as the other process needs, so a link may be *opening*: it has no mapping
 * yet, QPs wait for it, and its answer comes through the epoll descriptor.
 *
 * Invariants: a link is in its bucket as long as it has references; `dead` is set
 * once: when the process has exited, runs another program, or has closed the device, or when
 * the link could not be opened (open_error). Left to others: what death means to a QP (post.c
 * answers its posts, poll.c tells). */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "fork.h"
#include "ready.h"
#include "shm.h"

#define LINK_GROWTH 8u

void blob_write(const struct weir_device *device, uint32_t what, uint32_t index, uint64_t key,
                uint8_t *out) {
    struct shm_blob blob = {
        .what = what,
        .pid = device->map->head.pid,
        .map_fd = device->map_fd,
        .index = index,
        .nonce = device->nonce,
        .key = key,
    };
    memcpy(out, &blob, sizeof blob);
}

int blob_read(const uint8_t *bytes, uint32_t length, uint32_t what, uint32_t limit,
              struct shm_blob *blob_out) {
    struct shm_blob blob;
    if (length != sizeof blob)
        return WEIR_EINVAL;
    memcpy(&blob, bytes, sizeof blob);
    if (blob.what != what || blob.index >= limit || blob.pid <= 0 || blob.map_fd < 0 ||
        blob.key == 0)
        return WEIR_EINVAL;
    *blob_out = blob;
    return 0;
}

/* Of our own table of descriptors. */
static int error_of(int error) {
    int rc = seg_error(error);
    return rc == WEIR_EDEVICE ? WEIR_EINVAL : rc; /* EBADF: no such descriptor */
}

/* Whether a descriptor is an eventfd: writing to anything else could block or do
 * harm. The kernel has one inode for all files that have none of their own; of those that
 * can be had without privileges only eventfds do anything when 8 bytes are written to them.
 * Where that inode is not shared, proc(5) says what it is: "anon_inode:[eventfd]". */
static bool is_eventfd(const struct weir_device *device, int fd) {
    struct stat own, other;
    if (fstat(device->bell_fd, &own) == 0 && fstat(fd, &other) == 0 && own.st_dev == other.st_dev &&
        own.st_ino == other.st_ino)
        return true;
    char path[40], target[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(path, target, sizeof target);
    static const char want[] = "anon_inode:[eventfd]";
    return length == (ssize_t)sizeof want - 1 && memcmp(target, want, sizeof want - 1) == 0;
}

/* ---- opening ---- */

/* Takes over the bell, and the mapping of the segment. */
static int open_segment(const struct weir_device *device, struct shm_link *link, int map_fd,
                        int bell_fd, int32_t owner_pid) {
    if (!is_eventfd(device, bell_fd))
        return WEIR_EINVAL;
    int rc = seg_attach(map_fd, owner_pid, link->nonce, &link->map);
    if (rc == 0) {
        link->bell_fd = bell_fd;
        link->base = link->map->head.base;
        link->ordered = device->orders && link->map->head.order == 1;
    }
    return rc;
}

/* Another descriptor of the same; -1, and errno says why. Where none at all is allowed, fcntl(2)
 * finds the lowest number too high (EINVAL): that is a lack, too. */
static int again(int fd) {
    fork_hold();
    int copy = fork_own(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    fork_release();
    if (copy < 0 && errno == EINVAL)
        errno = EMFILE;
    return copy;
}

/* A device of this process: its descriptors have the numbers that the blob and the segment
 * say. EINVAL: it is none. */
static int open_self(const struct weir_device *device, const struct shm_blob *blob,
                     struct shm_link *link) {
    int map_fd = again(blob->map_fd);
    if (map_fd < 0)
        return error_of(errno);
    struct seg_map *map;
    int rc = seg_attach(map_fd, blob->pid, blob->nonce, &map), bell_fd = -1;
    if (rc == 0) {
        bell_fd = again(map->head.bell_fd);
        seg_unmap(map);
        rc = bell_fd < 0 ? error_of(errno) : open_segment(device, link, map_fd, bell_fd, blob->pid);
    }
    fork_close(map_fd);
    if (rc == 0) {
        link->self = true;
        link->pid = getpid();
    } else if (bell_fd >= 0) {
        fork_close(bell_fd);
    }
    return rc;
}

static int watch(struct weir_device *device, struct shm_link *link, int fd, uint32_t once) {
    struct epoll_event event = {.events = EPOLLIN | once, .data.ptr = link};
    if (epoll_ctl(device->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0)
        return 0;
    return errno == ENOMEM || errno == ENOSPC ? WEIR_ENOMEM : WEIR_EINVAL;
}

/* Arms the event of the socket again: the answer was not there yet. */
static void ask_again(struct weir_device *device, struct shm_link *link) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.ptr = link};
    epoll_ctl(device->epoll_fd, EPOLL_CTL_MOD, link->ask_fd, &event);
}

/* A child of fork(2) shares it for a moment, so closing it may not remove it. */
static void unwatch(struct weir_device *device, int *fd) {
    if (*fd < 0)
        return;
    epoll_ctl(device->epoll_fd, EPOLL_CTL_DEL, *fd, NULL);
    fork_close(*fd);
    *fd = -1;
}

/* Gives back what open_handed took. */
static void link_empty(struct weir_device *device, struct shm_link *link) {
    unwatch(device, &link->pidfd);
    unwatch(device, &link->life_fd);
    if (link->bell_fd >= 0)
        fork_close(link->bell_fd);
    link->bell_fd = -1;
    if (link->map != NULL)
        seg_unmap(link->map);
    link->map = NULL;
}

/* The descriptors handed to us: segment, bell, life, and perhaps a pidfd. Each is the link's, or
 * closed. */
static int open_handed(struct weir_device *device, struct shm_link *link, const int *fds,
                       int count) {
    int rc = count < 3 ? WEIR_EINVAL : open_segment(device, link, fds[0], fds[1], link->owner_pid);
    if (rc == 0)
        rc = watch(device, link, fds[2], 0);
    if (rc == 0)
        link->life_fd = fds[2];
    if (rc == 0 && count > 3) {
        rc = watch(device, link, fds[3], 0);
        if (rc == 0)
            link->pidfd = fds[3];
    }
    for (int i = 0; i < count; i++) {
        if (fds[i] != link->bell_fd && fds[i] != link->life_fd && fds[i] != link->pidfd)
            fork_close(fds[i]);
    }
    return rc;
}

/* The link is open (0) or will not be: its QPs hear of it. They hold references, as imports that
 * wait for it do, and give them back if it is for nothing. */
static void opened(struct weir_device *device, struct shm_link *link, int error) {
    device->opening--;
    link->references++;
    link->dead = error != 0;
    link->open_error = error;
    while (link->waiting != NULL)
        qp_link_done(link->waiting, error);
    if (error != 0)
        memory_unasked(device, link);
    link_put(device, link);
}

/* False: the answer is not there yet. */
static bool take_answer(struct weir_device *device, struct shm_link *link, bool had_event,
                        uint64_t until_ms) {
    int fds[HAND_FDS_MAX];
    int rc = hand_wait(link->ask_fd, until_ms, fds);
    if (rc == WEIR_EINPROGRESS)
        return false;
    if (!had_event)
        unwatch(device, &link->ask_fd);
    else
        fork_close(link->ask_fd); /* there is no other event (EPOLLONESHOT) */
    link->ask_fd = -1;
    opened(device, link, rc < 0 ? rc : open_handed(device, link, fds, rc));
    return true;
}

/* With what the other device brought, when it asked us. False: it has brought nothing of use. */
static bool open_brought(struct weir_device *device, const struct shm_blob *blob,
                         struct shm_link *link) {
    int fds[HAND_FDS_MAX];
    int count = blob->what == BLOB_QP ? hand_take_brought(device, blob, fds, &link->pid) : 0;
    if (count == 0 || open_handed(device, link, fds, count) == 0)
        return count != 0;
    link_empty(device, link);
    return false;
}

/* Opens it or begins to: 0, EINPROGRESS, or an error and nothing is taken. from: as for
 * link_get. */
static int link_open(struct weir_device *device, const struct shm_blob *blob,
                     const struct weir_qp *from, struct shm_link *link) {
    int here = WEIR_EPEER;
    if (blob->pid == device->map->head.pid) {
        /* In another pid namespace there may be somebody else with our pid. */
        here = open_self(device, blob, link);
        if (here != WEIR_EINVAL)
            return here;
    }
    if (open_brought(device, blob, link))
        return 0;
    int socket = hand_ask_link(device, blob->nonce, from, &link->pid);
    if (socket < 0)
        return socket == WEIR_EPEER ? here : socket;
    int rc = watch(device, link, socket, EPOLLONESHOT);
    if (rc != 0) {
        fork_close(socket);
        return rc;
    }
    link->ask_fd = socket;
    device->opening++;
    return WEIR_EINPROGRESS;
}

static struct shm_link **bucket_of(const struct weir_device *device, uint64_t nonce) {
    return &device->links[nonce & (device->link_buckets - 1)];
}

static void table_free(struct weir_device *device, struct shm_link **table, uint32_t buckets) {
    if (table != device->links_first)
        device->env.ops->free(device->env.self, table, buckets * sizeof *table);
}

/* Room for one link more in short chains. Without memory they become long. */
static void table_grow(struct weir_device *device) {
    struct shm_link **old = device->links;
    uint32_t buckets = device->link_buckets;
    if (device->link_count++ < buckets)
        return;
    struct shm_link **table =
        device->env.ops->alloc(device->env.self, buckets * LINK_GROWTH * sizeof *table);
    if (table == NULL)
        return;
    device->links = table;
    device->link_buckets = buckets * LINK_GROWTH;
    for (uint32_t i = 0; i < buckets; i++) {
        for (struct shm_link *link = old[i], *next; link != NULL; link = next) {
            next = link->next;
            link->next = *bucket_of(device, link->nonce);
            *bucket_of(device, link->nonce) = link;
        }
    }
    table_free(device, old, buckets);
}

void links_open(struct weir_device *device) {
    device->links = device->links_first;
    device->link_buckets = SHM_LINK_BUCKETS;
}

void links_close(struct weir_device *device) {
    table_free(device, device->links, device->link_buckets);
}

static struct shm_link *link_find(const struct weir_device *device, uint64_t nonce,
                                  int32_t owner_pid) {
    struct shm_link *link = *bucket_of(device, nonce);
    while (link != NULL && (link->nonce != nonce || link->owner_pid != owner_pid))
        link = link->next;
    return link;
}

bool link_is_known(const struct weir_device *device, uint64_t nonce, int32_t owner_pid) {
    return link_find(device, nonce, owner_pid) != NULL;
}

int link_get(struct weir_device *device, const struct shm_blob *blob, const struct weir_qp *from,
             struct shm_link **link_out) {
    struct shm_link *link = link_find(device, blob->nonce, blob->pid);
    int rc = 0;
    if (link != NULL) {
        if (link->dead)
            return WEIR_EPEER;
        rc = link->ask_fd >= 0 ? WEIR_EINPROGRESS : 0;
    } else {
        link = device->env.ops->alloc(device->env.self, sizeof *link);
        if (link == NULL)
            return WEIR_ENOMEM;
        *link = (struct shm_link){.nonce = blob->nonce, .owner_pid = blob->pid};
        link->ask_fd = link->pidfd = link->life_fd = link->bell_fd = -1;
        rc = link_open(device, blob, from, link);
        if (rc != 0 && rc != WEIR_EINPROGRESS) {
            device->env.ops->free(device->env.self, link, sizeof *link);
            return rc;
        }
        hand_lock(device);
        table_grow(device);
        struct shm_link **bucket = bucket_of(device, blob->nonce);
        link->next = *bucket;
        *bucket = link;
        hand_unlock(device);
    }
    link->references++;
    *link_out = link;
    return rc;
}

/* The error of a question that had no answer: EPEER if the process has ended, which the next call
 * shows; else rc. */
static int not_answered(const struct weir_device *device, uint64_t nonce, int rc) {
    int32_t pid;
    if (rc != WEIR_EAGAIN)
        return rc;
    int socket = place_call(&device->place, nonce, &pid);
    if (socket >= 0)
        fork_close(socket);
    return socket == WEIR_EPEER ? WEIR_EPEER : rc;
}

int link_wait(struct weir_device *device, const struct shm_asked *asked) {
    struct shm_link *link = asked->link;
    if (link->ask_fd >= 0 && !take_answer(device, link, false, asked->until_ms))
        return WEIR_EINPROGRESS;
    if (!link->dead)
        return 0;
    return link->open_error != 0 ? not_answered(device, link->nonce, link->open_error) : WEIR_EPEER;
}

void link_put(struct weir_device *device, struct shm_link *link) {
    if (--link->references != 0)
        return;
    hand_lock(device);
    struct shm_link **at = bucket_of(device, link->nonce);
    device->link_count--;
    while (*at != link)
        at = &(*at)->next;
    *at = link->next;
    hand_unlock(device);
    device->opening -= link->ask_fd >= 0;
    unwatch(device, &link->ask_fd);
    link_empty(device, link);
    device->env.ops->free(device->env.self, link, sizeof *link);
}

int link_fetch(const struct weir_device *device, struct shm_asked *asked, int number, int *fd_out) {
    if (asked->link->self) {
        int fd = number >= 0 ? again(number) : -1;
        if (fd < 0 && number >= 0)
            return error_of(errno);
        *fd_out = fd;
        return 0;
    }
    if (asked->socket < 0) {
        const struct hand_question question = {.magic = HAND_MAGIC,
                                               .nonce = asked->blob.nonce,
                                               .key = asked->blob.key,
                                               .what = HAND_MEMORY,
                                               .index = asked->blob.index};
        int32_t pid;
        int socket = hand_ask(device, &question, &pid);
        if (socket < 0)
            return socket;
        asked->socket = socket;
    }
    int fds[HAND_FDS_MAX];
    int rc = hand_wait(asked->socket, asked->until_ms, fds);
    if (rc == WEIR_EINPROGRESS)
        return rc;
    fork_close(asked->socket);
    asked->socket = -1;
    for (int i = 1; i < rc; i++)
        fork_close(fds[i]);
    if (rc >= 0)
        *fd_out = rc > 0 ? fds[0] : -1;
    return rc < 0 ? not_answered(device, asked->blob.nonce, rc) : 0;
}

/* ---- death ---- */

void link_mark_dead(struct shm_link *link) {
    if (link->dead)
        return;
    link->dead = true;
    for (struct weir_qp *qp = link->qps; qp != NULL; qp = qp->link_next) {
        /* No state word equals this, so the next post takes the slow road. */
        qp->remote_ready = SHM_STATE_NEVER;
        qp_raise(qp, WEIR_ASYNC_PEER_DEAD);
        if (qp->state == QP_ERROR)
            qp_make_ready(qp); /* its flush may have waited for the peer */
    }
}

bool link_is_alive(struct shm_link *link) {
    if (!link->dead && link_has_ended(link))
        link_mark_dead(link);
    return !link->dead;
}

bool link_has_ended(const struct shm_link *link) {
    struct pollfd polled[2] = {{.fd = link->life_fd, .events = POLLIN},
                               {.fd = link->pidfd, .events = POLLIN}};
    return !link->self && ready_wait(polled, 2, 0) > 0;
}

void link_ring(const struct shm_link *link) {
    uint64_t one = 1;
    /* The counter cannot overflow in practice, and its owner never reads it: see
     * open_descriptors in shm.c. A bell that fails belongs to a peer that is gone. */
    ssize_t written = write(link->bell_fd, &one, sizeof one);
    (void)written;
}

void link_health(struct weir_device *device) {
    struct epoll_event events[SHM_EPOLL_BATCH];
    for (int round = 0; round < SHM_EPOLL_ROUNDS; round++) {
        int count = epoll_wait(device->epoll_fd, events, SHM_EPOLL_BATCH, 0);
        for (int i = 0; i < count; i++) {
            struct shm_link *link = events[i].data.ptr;
            if (link == NULL)
                continue; /* the bell: edge-triggered, so this took it */
            if (link->ask_fd >= 0) {
                if (!take_answer(device, link, true, 0))
                    ask_again(device, link);
                continue;
            }
            epoll_ctl(device->epoll_fd, EPOLL_CTL_DEL, link->life_fd, NULL);
            if (link->pidfd >= 0)
                epoll_ctl(device->epoll_fd, EPOLL_CTL_DEL, link->pidfd, NULL);
            link_mark_dead(link);
        }
        if (count < SHM_EPOLL_BATCH)
            break;
    }
    memory_sweep(device); /* behind the events, which name links */
}

/* ---- stopped processes --------------------------------------------------- */

int64_t shm_peer_process(struct weir_qp *qp) {
    return qp->link == NULL || qp->link->dead || qp->link->pid <= 0 ? 0 : qp->link->pid;
}

/* proc(5): the state is the first letter behind the name, which is in brackets and may have any. */
bool shm_process_is_stopped(int64_t process) {
    char path[40], text[128];
    snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", process);
    fork_hold();
    int fd = fork_own(open(path, O_RDONLY | O_CLOEXEC));
    fork_release();
    if (fd < 0)
        return false;
    ssize_t length = read(fd, text, sizeof text - 1);
    fork_close(fd);
    text[length > 0 ? length : 0] = '\0';
    const char *end = strrchr(text, ')');
    return end != NULL && (strncmp(end, ") T", 3) == 0 || strncmp(end, ") t", 3) == 0);
}
