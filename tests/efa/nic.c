/* SPDX-License-Identifier: Apache-2.0 */
/* nic.c: the thread of an endpoint's NIC.
 *
 * Round and round: it takes what the user has posted, and what others have sent; executes packets
 * whose turn has come; sends; and writes completions that are due. Then it sleeps until a packet
 * comes, somebody posts, or something is due. It never waits for anything else, so that two NICs
 * never wait for each other.
 *
 * Packets do not come in order: some are held for a while, and of those whose time has come any may
 * be the next. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "nic.h"

#define NS_PER_S UINT64_C(1000000000)

/* ---- forks: a child has none of its parent's NICs, and must not keep their sockets ---- */

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static struct { TAILQ_HEAD(, nic) nics; } all = {TAILQ_HEAD_INITIALIZER(all.nics)};

static void before_fork(void) {
    pthread_mutex_lock(&all_lock);
}

static void after_fork(void) {
    pthread_mutex_unlock(&all_lock);
}

static void close_in_child(void) {
    struct nic *nic;
    while ((nic = TAILQ_FIRST(&all.nics)) != NULL) {
        TAILQ_REMOVE(&all.nics, nic, all);
        close(nic->fd);
        close(nic->wake_fd);
        close(nic->probe_fd);
        nic->fd = nic->wake_fd = nic->probe_fd = -1;
    }
    pthread_mutex_unlock(&all_lock);
}

static void watch_forks(void) {
    pthread_atfork(before_fork, after_fork, close_in_child);
}

/* ---- bytes ---- */

struct word {
    uint64_t value;
} __attribute__((packed, may_alias));

/* Registered memory is read and written by others at any time, as with any NIC. Sanitizers would
 * call that a race, so this is not for them to see. Words that are aligned are written whole. */
__attribute__((noinline, no_sanitize("thread"))) static void copy(void *to, const void *from,
                                                                  size_t len) {
    volatile uint8_t *out = to;
    const volatile uint8_t *in = from;
    while (len != 0 && (((uintptr_t)out & 7) != 0 || len < 8)) {
        *out++ = *in++;
        len--;
    }
    while (len >= 8) {
        *(volatile uint64_t *)(uintptr_t)out = ((const volatile struct word *)(uintptr_t)in)->value;
        out += 8;
        in += 8;
        len -= 8;
    }
    while (len-- != 0)
        *out++ = *in++;
}

/* Through the kernel, if it lets us: a NIC has pinned the memory, and goes on when it is unmapped.
 * False: some of it is. */
bool move_bytes(const struct nic *nic, void *to, const void *from, size_t len) {
    static atomic_bool refused;
    while (len != 0 && !atomic_load_explicit(&refused, memory_order_relaxed)) {
        struct iovec local = {to, len}, remote = {(void *)(uintptr_t)from, len};
        long moved = syscall(SYS_process_vm_readv, nic->pid, &local, 1L, &remote, 1L, 0L);
        if (moved < 0 && errno == EFAULT)
            return false;
        if (moved <= 0) {
            atomic_store(&refused, true);
            break;
        }
        to = (uint8_t *)to + moved;
        from = (const uint8_t *)from + moved;
        len -= (size_t)moved;
    }
    if (len != 0)
        copy(to, from, len);
    return true;
}

/* ---- packets ---- */

static struct packet *spare_packet(struct nic *nic) {
    struct packet *packet = TAILQ_FIRST(&nic->spare);
    if (packet == NULL) {
        packet = malloc(sizeof *packet + CHUNK_MAX);
        if (packet == NULL)
            give_up("out of memory");
        packet->whole = true;
        return packet;
    }
    TAILQ_REMOVE(&nic->spare, packet, queued);
    nic->spare_count--;
    return packet;
}

void packet_drop(struct nic *nic, struct packet *packet) {
    if (!packet->whole || nic->spare_count == SPARE_MAX) {
        free(packet);
        return;
    }
    TAILQ_INSERT_HEAD(&nic->spare, packet, queued);
    nic->spare_count++;
}

static void free_packets(struct packets *packets) {
    struct packet *packet;
    while ((packet = TAILQ_FIRST(packets)) != NULL) {
        TAILQ_REMOVE(packets, packet, queued);
        free(packet);
    }
}

void nic_due(struct nic *nic, uint64_t ns) {
    if (ns < nic->next_ns)
        nic->next_ns = ns;
}

static bool receive_one(struct nic *nic) {
    struct packet *packet = spare_packet(nic);
    struct iovec parts[] = {{&packet->wire, sizeof packet->wire}, {packet->bytes, CHUNK_MAX}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    ssize_t len = recvmsg(nic->fd, &message, MSG_DONTWAIT);
    const struct wire *wire = &packet->wire;
    if (len < (ssize_t)sizeof *wire || wire->magic != WIRE_MAGIC ||
        (wire->type != PACKET_READ && wire->len != (size_t)len - sizeof *wire)) {
        packet_drop(nic, packet);
        return len >= 0; /* a stranger's */
    }
    packet->number = nic->arrived++;
    packet->due_ns = nic->now_ns;
    packet->fresh_ns = wire->sent_ns;
    if (draw_percent(&nic->draws, nic->habits->reorder))
        packet->due_ns += NS_PER_US * draw_below(&nic->draws, nic->habits->hold_us + 1);
    nic->held[nic->held_count++] = packet;
    return true;
}

static void receive_some(struct nic *nic) {
    for (int i = 0; i < RECEIVE_TURN && nic->held_count < HELD_MAX; i++) {
        if (!receive_one(nic))
            return;
    }
    nic_due(nic, nic->now_ns); /* there may be more */
}

/* Any of those that are due, HELD_MAX: none is. */
static size_t next_held(struct nic *nic) {
    size_t begin = (size_t)draw_below(&nic->draws, nic->held_count);
    for (size_t i = 0; i < nic->held_count; i++) {
        size_t at = (begin + i) % nic->held_count;
        if (nic->held[at]->due_ns <= nic->now_ns)
            return at;
        nic_due(nic, nic->held[at]->due_ns);
    }
    return HELD_MAX;
}

static bool overtakes(const struct nic *nic, const struct packet *packet) {
    for (size_t i = 0; i < nic->held_count; i++) {
        if (nic->held[i]->number < packet->number)
            return true;
    }
    return false;
}

static void execute_some(struct nic *nic) {
    size_t at;
    while (nic->held_count != 0 && (at = next_held(nic)) != HELD_MAX) {
        struct packet *packet = nic->held[at];
        nic->held[at] = nic->held[--nic->held_count];
        nic->counts.reordered += overtakes(nic, packet);
        target_execute(nic, packet);
    }
}

/* ---- the cable ---- */

/* While it is out a socket of another name says so to other NICs. */
static void look_at_cable(struct nic *nic) {
    if (nic->habits->cut[0] == '\0')
        return;
    nic_due(nic, nic->now_ns + NS_PER_MS);
    bool out = access(nic->habits->cut, F_OK) == 0;
    if (out == (nic->cut_ns != 0))
        return;
    nic->cut_ns = out ? nic->now_ns : 0;
    if (out) {
        struct sockaddr_un name;
        const struct address *own = &nic->endpoint->address;
        socklen_t len = link_name(&name, own->token, own->qpn, "-cut");
        nic->cut_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (nic->cut_fd >= 0 && bind(nic->cut_fd, (struct sockaddr *)&name, len) != 0)
            give_up("the name for a cable that is out is taken");
    } else if (nic->cut_fd >= 0) {
        close(nic->cut_fd);
        nic->cut_fd = -1;
    }
}

/* ---- the thread ---- */

static void push_links(struct nic *nic) {
    struct link *link, *next;
    for (link = TAILQ_FIRST(&nic->busy); link != NULL; link = next) {
        next = TAILQ_NEXT(link, queued);
        link_push(nic, link);
    }
    links_tidy(nic);
}

static void sleep_until_due(struct nic *nic) {
    bool deaf = nic->cut_ns != 0 || nic->held_count == HELD_MAX;
    struct pollfd fds[] = {{.fd = nic->wake_fd, .events = POLLIN},
                           {.fd = deaf ? -1 : nic->fd, .events = POLLIN}};
    uint64_t now = now_ns(), left = nic->next_ns > now ? nic->next_ns - now : 0;
    struct timespec time = {.tv_sec = (time_t)(left / NS_PER_S),
                            .tv_nsec = (long)(left % NS_PER_S)};
    if (ppoll(fds, 2, nic->next_ns == NEVER ? NULL : &time, NULL) <= 0 || fds[0].revents == 0)
        return;
    uint64_t value;
    if (read(nic->wake_fd, &value, sizeof value) < 0 && errno != EAGAIN)
        give_up("a NIC's descriptor cannot be read");
    atomic_store(&nic->woken, false); /* before it looks at what was posted */
}

static void *run(void *arg) {
    struct nic *nic = arg;
    while (!atomic_load(&nic->ends)) {
        nic->now_ns = now_ns();
        nic->next_ns = NEVER;
        look_at_cable(nic);
        initiator_take(nic);
        if (nic->cut_ns == 0) {
            receive_some(nic);
            execute_some(nic);
            target_waiting(nic);
        }
        if (nic->broken) {
            initiator_flush(nic);
            target_flush(nic);
        }
        push_links(nic);
        initiator_complete(nic);
        sleep_until_due(nic);
    }
    return NULL;
}

/* ---- from the user's threads ---- */

void nic_wake(struct nic *nic) {
    uint64_t one = 1;
    if (!atomic_exchange(&nic->woken, true) &&
        write(nic->wake_fd, &one, sizeof one) != (ssize_t)sizeof one)
        give_up("a NIC's descriptor cannot be written");
}

static bool open_descriptors(struct nic *nic) {
    struct sockaddr_un name;
    const struct address *own = &nic->endpoint->address;
    socklen_t len = link_name(&name, own->token, own->qpn, "");
    nic->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    nic->probe_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    nic->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return nic->fd >= 0 && nic->probe_fd >= 0 && nic->wake_fd >= 0 &&
           bind(nic->fd, (struct sockaddr *)&name, len) == 0;
}

static void close_descriptors(const struct nic *nic) {
    const int fds[] = {nic->fd, nic->probe_fd, nic->wake_fd, nic->cut_fd};
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
    }
}

/* Signals are the user's threads'. */
static int start(struct nic *nic) {
    sigset_t every, before;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before);
    int error = pthread_create(&nic->thread, NULL, run, nic);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0)
        pthread_setname_np(nic->thread, "efa-fi");
    return error;
}

int nic_open(struct endpoint *endpoint) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static atomic_uint opened;
    pthread_once(&once, watch_forks);
    struct nic *nic = allocate(sizeof *nic);
    nic->endpoint = endpoint;
    nic->habits = &endpoint->domain->habits;
    nic->pid = getpid();
    nic->cut_fd = -1;
    draws_begin(&nic->draws, nic->habits->seed, 5000 + atomic_fetch_add(&opened, 1));
    TAILQ_INIT(&nic->busy);
    TAILQ_INIT(&nic->idle);
    TAILQ_INIT(&nic->spare);
    TAILQ_INIT(&nic->waiting);
    TAILQ_INIT(&nic->asked);
    TAILQ_INIT(&nic->late);
    pthread_mutex_lock(&all_lock);
    bool fine = open_descriptors(nic) && start(nic) == 0;
    if (fine)
        TAILQ_INSERT_TAIL(&all.nics, nic, all);
    pthread_mutex_unlock(&all_lock);
    if (!fine) {
        close_descriptors(nic);
        free(nic);
        return -FI_ENOMEM;
    }
    endpoint->nic = nic;
    return 0;
}

static void write_counts(const struct nic *nic) {
    const struct counts *posts = &nic->endpoint->counts, *counts = &nic->counts;
    char line[256];
    int len =
        snprintf(line, sizeof line,
                 "pid=%ld qpn=%u posted=%llu eagain=%llu reordered=%llu completed=%llu "
                 "errors=%llu\n",
                 (long)nic->pid, nic->endpoint->address.qpn, (unsigned long long)posts->posted,
                 (unsigned long long)posts->eagain, (unsigned long long)counts->reordered,
                 (unsigned long long)counts->completed, (unsigned long long)counts->errors);
    int fd = open(nic->habits->stats, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0 || write(fd, line, (size_t)len) != len)
        give_up("EFA_FAKE_STATS cannot be written");
    close(fd);
}

bool nic_is_ours(const struct nic *nic) {
    return nic->pid == getpid();
}

void nic_close(struct endpoint *endpoint) {
    struct nic *nic = endpoint->nic;
    atomic_store(&nic->ends, true);
    uint64_t one = 1;
    if (write(nic->wake_fd, &one, sizeof one) != (ssize_t)sizeof one)
        give_up("a NIC's descriptor cannot be written");
    pthread_join(nic->thread, NULL);
    pthread_mutex_lock(&all_lock);
    TAILQ_REMOVE(&all.nics, nic, all);
    close_descriptors(nic);
    pthread_mutex_unlock(&all_lock);
    if (nic->habits->stats[0] != '\0')
        write_counts(nic);
    links_close(nic);
    free_packets(&nic->spare);
    free_packets(&nic->waiting);
    free_packets(&nic->asked);
    for (size_t i = 0; i < nic->held_count; i++)
        free(nic->held[i]);
    free(nic);
    endpoint->nic = NULL;
}
