/* link.c: the other devices that this one shares memory with, and their deaths.
 *
 * Owns the link table: for each foreign segment its mapping, its process's pidfd
 * and its bell, fetched with pidfd_getfd(2) from the process that the blob names.
 * A pid may have been reused since the blob was written; the segment's random
 * nonce tells.
 *
 * Invariants: a link is in its bucket as long as it has references; `dead` is set
 * once, and only when the kernel says that the process has exited. Left to
 * others: what death means to a QP (post.c answers its posts, poll.c tells). */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "shm.h"

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

static int error_of(int error) {
    switch (error) {
    case ESRCH:
        return WEIR_EPEER;
    case EBADF:  /* no such descriptor there */
    case EINVAL: /* not a process (a thread's id) */
        return WEIR_EINVAL;
    default: /* also EPERM: ptrace(2) access mode checks; ENOSYS */
        return seg_error(error);
    }
}

/* Whether a descriptor is an eventfd: writing to anything else could block or do
 * harm. proc(5): such links read "anon_inode:[eventfd]". */
static bool is_eventfd(int fd) {
    char path[40], target[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(path, target, sizeof target);
    static const char want[] = "anon_inode:[eventfd]";
    return length == (ssize_t)sizeof want - 1 && memcmp(target, want, sizeof want - 1) == 0;
}

int link_fetch(const struct shm_link *link, int number) {
    /* Of our own process without the two system calls: they are newer (Linux 5.3 and
     * 5.6) than the rest, and valgrind does not know the second. */
    int fd = link->self ? fcntl(number, F_DUPFD_CLOEXEC, 0)
                        : (int)syscall(SYS_pidfd_getfd, link->pidfd, number, 0);
    return fd >= 0 ? fd : error_of(errno);
}

/* Sets pid, self and pidfd. */
static int open_process(struct weir_device *device, int32_t pid, struct shm_link *link) {
    link->pid = pid;
    link->self = pid == device->map->head.pid;
    link->pidfd = -1;
    if (link->self)
        return 0;
    link->pidfd = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
    return link->pidfd >= 0 ? 0 : error_of(errno);
}

static void close_process(const struct shm_link *link) {
    if (link->pidfd >= 0)
        close(link->pidfd);
}

static int open_bell(struct shm_link *link) {
    int fd = link_fetch(link, link->map->head.bell_fd);
    if (fd < 0)
        return fd;
    if (!is_eventfd(fd)) {
        close(fd);
        return WEIR_EINVAL;
    }
    link->bell_fd = fd;
    return 0;
}

static int watch(struct weir_device *device, struct shm_link *link) {
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = link};
    if (link->self || epoll_ctl(device->epoll_fd, EPOLL_CTL_ADD, link->pidfd, &event) == 0)
        return 0;
    return seg_error(errno);
}

/* Fills in everything that can fail; closes what it opened if something does. */
static int link_open(struct weir_device *device, const struct shm_blob *blob,
                     struct shm_link *link) {
    int rc = open_process(device, blob->pid, link);
    if (rc != 0)
        return rc;
    int map_fd = link_fetch(link, blob->map_fd);
    if (map_fd < 0) {
        rc = map_fd;
        goto close_process;
    }
    rc = seg_attach(map_fd, blob->pid, blob->nonce, &link->map);
    close(map_fd);
    if (rc != 0)
        goto close_process;
    rc = open_bell(link);
    if (rc != 0)
        goto unmap;
    rc = watch(device, link);
    if (rc == 0)
        return 0;
    close(link->bell_fd);
unmap:
    seg_unmap(link->map);
close_process:
    close_process(link);
    return rc;
}

int link_get(struct weir_device *device, const struct shm_blob *blob, struct shm_link **link_out) {
    struct shm_link **bucket = &device->links[blob->nonce % SHM_LINK_BUCKETS];
    for (struct shm_link *link = *bucket; link != NULL; link = link->next) {
        if (link->nonce == blob->nonce && link->pid == blob->pid) {
            if (link->dead)
                return WEIR_EPEER;
            link->references++;
            *link_out = link;
            return 0;
        }
    }
    struct shm_link *link = device->env.ops->alloc(device->env.self, sizeof *link);
    if (link == NULL)
        return WEIR_ENOMEM;
    int rc = link_open(device, blob, link);
    if (rc != 0) {
        device->env.ops->free(device->env.self, link, sizeof *link);
        return rc;
    }
    link->nonce = blob->nonce;
    link->references = 1;
    link->next = *bucket;
    *bucket = link;
    *link_out = link;
    return 0;
}

void link_put(struct weir_device *device, struct shm_link *link) {
    if (--link->references != 0)
        return;
    struct shm_link **at = &device->links[link->nonce % SHM_LINK_BUCKETS];
    while (*at != link)
        at = &(*at)->next;
    *at = link->next;
    /* A pidfd may be shared with a forked child, so closing it does not remove it. */
    if (link->pidfd >= 0)
        epoll_ctl(device->epoll_fd, EPOLL_CTL_DEL, link->pidfd, NULL);
    close_process(link);
    close(link->bell_fd);
    seg_unmap(link->map);
    device->env.ops->free(device->env.self, link, sizeof *link);
}

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
    struct pollfd poll_fd = {.fd = link->pidfd, .events = POLLIN};
    return !link->self && poll(&poll_fd, 1, 0) == 1;
}

bool link_was_alive(const struct weir_device *device, struct shm_link *link) {
    uint64_t now = device->env.ops->now(device->env.self);
    if (!link->dead && link->alive_ns != 0 && now - link->alive_ns < SHM_ALIVE_NS)
        return true;
    link->alive_ns = now;
    return link_is_alive(link);
}

void link_ring(const struct shm_link *link) {
    uint64_t one = 1;
    /* The counter cannot overflow in practice, and its owner never reads it: see
     * shm_disarm. A bell that fails belongs to a peer that is gone. */
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
            epoll_ctl(device->epoll_fd, EPOLL_CTL_DEL, link->pidfd, NULL);
            link_mark_dead(link);
        }
        if (count < SHM_EPOLL_BATCH)
            return;
    }
}
