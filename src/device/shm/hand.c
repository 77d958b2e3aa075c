/* SPDX-License-Identifier: Apache-2.0 */
/* hand.c: questions and answers between devices; see hand.h.
 *
 * Owns the thread that answers, and its visitors. The thread reads of the device the fields that
 * never change while it runs (the segment, its descriptor, the bell's), and the tables of regions
 * and of links under the mutex: between the look at a region's key and the hand-out of its
 * descriptor the number is not closed, and no other file gets it. */
#define _GNU_SOURCE
#include "hand.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "fork.h"
#include "ready.h"
#include "shm.h"
#include "thread.h"
#include "tracer.h"

#define STACK_BYTES   ((size_t)256 << 10)
#define NS_PER_MS     UINT64_C(1000000)
#define PAUSE_NS      10000000 /* before another try when there are no descriptors */
#define SPARE_MS      100      /* until another try to have one in reserve */
#define WAIT_LEAST_MS 1

/* Room for the descriptors of one message. */
union control {
    char bytes[CMSG_SPACE(HAND_FDS_MAX * sizeof(int))];
    struct cmsghdr align;
};

uint64_t hand_now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* The milliseconds until long_ms after since_ms, or `left` if that is fewer. left -1:
 * without end. */
static int sooner(int left, uint64_t since_ms, uint64_t long_ms, uint64_t now) {
    int more = (int)(long_ms - (now - since_ms)) + WAIT_LEAST_MS;
    return left < 0 || more < left ? more : left;
}

/* ---- the descriptor in reserve ---- */

/* A process without a descriptor left has to answer all the same: its own thread is told then by
 * the next call that needs one, while another device that is not let in waits in vain. So one
 * descriptor is kept, a second number for the listening socket, whose place a visitor takes. */
static bool spare_renew(struct shm_hand *hand) {
    if (hand->spare_fd >= 0)
        return true;
    fork_hold();
    hand->spare_fd = fork_own(fcntl(hand->listen_fd, F_DUPFD_CLOEXEC, 0));
    fork_release();
    return hand->spare_fd >= 0;
}

static bool spare_spend(struct shm_hand *hand) {
    if (hand->spare_fd < 0)
        return false;
    fork_close(hand->spare_fd);
    hand->spare_fd = -1;
    return true;
}

/* ---- receiving ---- */

static void close_all(const int *fds, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        fork_close(fds[i]);
}

/* The descriptors that came with a message; the kernel made them ours already. */
static uint32_t received(struct msghdr *message, int fds_out[HAND_FDS_MAX]) {
    uint32_t count = 0;
    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header != NULL;
         header = CMSG_NXTHDR(message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
            continue;
        count = (uint32_t)((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(fds_out, CMSG_DATA(header), count * sizeof(int));
        break; /* the buffer holds one, with HAND_FDS_MAX at most */
    }
    return count;
}

/* The descriptors are the library's from now on. False: not all of them; the others are closed. */
static bool own_received(struct msghdr *message, int fds_out[HAND_FDS_MAX], uint32_t *count_out) {
    int fds[HAND_FDS_MAX];
    uint32_t count = received(message, fds), owned = 0;
    for (uint32_t i = 0; i < count; i++) {
        int fd = fork_own(fds[i]);
        if (fd >= 0)
            fds_out[owned++] = fd;
    }
    *count_out = owned;
    return owned == count;
}

/* As recvmsg(2), with up to HAND_FDS_MAX descriptors. *lack_out: 0, or why there are fewer than
 * were sent: EMFILE, ENOMEM. */
static ssize_t receive(int socket, void *text, size_t size, int fds_out[HAND_FDS_MAX],
                       uint32_t *count_out, int *lack_out) {
    struct iovec vector = {text, size};
    union control control;
    struct msghdr message = {.msg_iov = &vector,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    *count_out = 0;
    *lack_out = 0;
    fork_hold();
    ssize_t length = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    /* Descriptors may come with nothing, too. */
    if (length >= 0 && !own_received(&message, fds_out, count_out))
        *lack_out = WEIR_ENOMEM;
    else if (length >= 0 && (message.msg_flags & MSG_CTRUNC) != 0)
        *lack_out = WEIR_EMFILE;
    fork_release();
    return length;
}

/* ---- handing out ---- */

static bool send_with(int socket, void *text, size_t length, const int *fds, uint32_t count) {
    struct iovec vector = {text, length};
    union control control;
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    memset(&control, 0, sizeof control);
    if (count != 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(count * sizeof *fds);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(count * sizeof *fds);
        memcpy(CMSG_DATA(header), fds, count * sizeof *fds);
    }
    return sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
}

static bool send_answer(int socket, int status, const int *fds, uint32_t count) {
    struct hand_answer text = {.magic = HAND_MAGIC, .status = status, .count = count};
    return send_with(socket, &text, sizeof text, fds, count);
}

/* If too many descriptors of this user are under way (ETOOMANYREFS), the answer is EAGAIN, without
 * descriptors. A visitor that gets neither is gone. */
static void answer(int socket, int status, const int *fds, uint32_t count) {
    if (!send_answer(socket, status, fds, count) && count != 0)
        send_answer(socket, WEIR_EAGAIN, NULL, 0);
}

/* The end of the life pipe that peers watch, opened anew for each HAND_WATCHERS of them: where
 * epoll sets are in epoll sets, the kernel lets only so many watch one file, 500 down to 10, the
 * fewer the deeper they are nested (epoll_ctl(2), EINVAL). Without /proc all share it. */
static void life_renew(struct shm_hand *hand) {
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", hand->life_fds[0]);
    fork_hold();
    int fd = fork_own(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    fork_release();
    if (fd >= 0) {
        fork_close(hand->life_fds[0]);
        hand->life_fds[0] = fd;
    }
    hand->watchers = 0;
}

/* Sends the descriptors that make a link to us, with an answer, or with a question. */
static bool send_link(struct weir_device *device, int socket, void *text, size_t length,
                      uint32_t *count_in_text) {
    struct shm_hand *hand = &device->hand;
    hand_lock(device);
    if (hand->watchers == HAND_WATCHERS)
        life_renew(hand);
    hand->watchers++;
    /* Older kernels and some sandboxes have none: then `life` has to do. */
    fork_hold();
    int pidfd = fork_own((int)syscall(SYS_pidfd_open, getpid(), 0));
    fork_release();
    int fds[HAND_FDS_MAX] = {device->map_fd, device->bell_fd, hand->life_fds[0], pidfd};
    uint32_t count = pidfd >= 0 ? 4 : 3;
    if (count_in_text != NULL)
        *count_in_text = count;
    bool sent = send_with(socket, text, length, fds, count);
    int error = errno;
    hand_unlock(device);
    if (pidfd >= 0)
        fork_close(pidfd);
    errno = error;
    return sent;
}

static void answer_link(struct weir_device *device, int socket) {
    struct hand_answer text = {.magic = HAND_MAGIC};
    if (!send_link(device, socket, &text, sizeof text, &text.count))
        send_answer(socket, WEIR_EAGAIN, NULL, 0);
}

static void answer_memory(struct weir_device *device, int socket, int32_t pid,
                          const struct hand_question *question) {
    hand_lock(device);
    const struct shm_mr *mr =
        question->index < device->hand.offered ? mr_at(device, question->index) : NULL;
    if (mr == NULL || mr->key != question->key || mr->key == 0)
        answer(socket, WEIR_ESTALE, NULL, 0);
    else if (mr->fd >= 0)
        answer(socket, 0, &mr->fd, 1);
    else
        answer(socket, tracer_allow(&device->is_traced, pid), NULL, 0);
    hand_unlock(device);
}

/* ---- what questions bring ---- */

static void brought_drop(struct hand_brought *brought) {
    close_all(brought->fds, (uint32_t)brought->count);
    brought->count = 0;
}

/* Keeps the descriptors that a question brought, in the place of the oldest ones if none is free:
 * the device of those will be asked. False: there is a link to this device already, and the caller
 * closes them. */
static bool brought_keep(struct weir_device *device, const struct hand_question *question,
                         int32_t pid, const int *fds, uint32_t count) {
    hand_lock(device);
    if (link_is_known(device, question->from_nonce, question->from_pid)) {
        hand_unlock(device);
        return false;
    }
    struct hand_brought *place = &device->hand.brought[0];
    for (int i = 0; i < HAND_BROUGHT && place->count != 0; i++) {
        struct hand_brought *other = &device->hand.brought[i];
        if (other->count == 0 || other->since_ms < place->since_ms)
            place = other;
    }
    brought_drop(place);
    *place = (struct hand_brought){
        .question = *question, .since_ms = hand_now_ms(), .pid = pid, .count = (int)count};
    memcpy(place->fds, fds, count * sizeof *fds);
    hand_unlock(device);
    return true;
}

/* Closes the descriptors that were kept for HAND_BROUGHT_MS. The time until the next are; -1: none
 * are kept. */
static int brought_expire(struct weir_device *device) {
    uint64_t now = hand_now_ms();
    int left = -1;
    hand_lock(device);
    for (int i = 0; i < HAND_BROUGHT; i++) {
        struct hand_brought *brought = &device->hand.brought[i];
        if (brought->count != 0 && now - brought->since_ms >= HAND_BROUGHT_MS)
            brought_drop(brought);
        if (brought->count != 0)
            left = sooner(left, brought->since_ms, HAND_BROUGHT_MS, now);
    }
    hand_unlock(device);
    return left;
}

int hand_take_brought(struct weir_device *device, const struct shm_blob *blob,
                      int fds_out[HAND_FDS_MAX], int32_t *pid_out) {
    int count = 0;
    hand_lock(device);
    for (int i = 0; i < HAND_BROUGHT && count == 0; i++) {
        struct hand_brought *brought = &device->hand.brought[i];
        const struct hand_question *question = &brought->question;
        if (brought->count == 0 || question->from_nonce != blob->nonce ||
            question->from_key != blob->key || question->from_pid != blob->pid ||
            question->from_index != blob->index)
            continue;
        count = brought->count;
        memcpy(fds_out, brought->fds, sizeof brought->fds);
        *pid_out = brought->pid;
        brought->count = 0;
    }
    hand_unlock(device);
    return count;
}

/* ---- questions ---- */

static void answer_question(struct weir_device *device, int socket, int32_t pid,
                            const struct hand_question *question) {
    if (question->magic != HAND_MAGIC || question->nonce != device->nonce)
        answer(socket, WEIR_EINVAL, NULL, 0);
    else if (question->what == HAND_LINK)
        answer_link(device, socket);
    else if (question->what == HAND_MEMORY)
        answer_memory(device, socket, pid, question);
    else
        answer(socket, WEIR_EINVAL, NULL, 0);
}

/* ---- visitors ---- */

struct visitor {
    uint64_t since_ms;
    int socket; /* -1: nobody */
    int32_t pid;
};

struct visitors {
    struct visitor of[HAND_VISITORS];
};

static void visitor_end(struct visitor *visitor) {
    fork_close(visitor->socket);
    visitor->socket = -1;
}

/* Keeps what came with it before it is answered: a visitor that has the answer may go on at once.
 * False: its question is not there yet. */
static bool visitor_serve(struct weir_device *device, struct visitor *visitor) {
    struct hand_question question;
    int fds[HAND_FDS_MAX];
    uint32_t count;
    int lack;
    ssize_t length = receive(visitor->socket, &question, sizeof question, fds, &count, &lack);
    if (length < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    bool is_question = length == (ssize_t)sizeof question;
    bool is_kept = is_question && lack == 0 && count != 0 && question.magic == HAND_MAGIC &&
                   question.nonce == device->nonce && question.what == HAND_LINK &&
                   question.from_key != 0 &&
                   brought_keep(device, &question, visitor->pid, fds, count);
    if (!is_kept)
        close_all(fds, count);
    if (is_question)
        answer_question(device, visitor->socket, visitor->pid, &question);
    visitor_end(visitor);
    return true;
}

/* A free place, or that of the one who has said nothing for longest. */
static struct visitor *visitor_place(struct visitors *visitors) {
    struct visitor *oldest = &visitors->of[0];
    for (int i = 0; i < HAND_VISITORS; i++) {
        if (visitors->of[i].socket < 0)
            return &visitors->of[i];
        if (visitors->of[i].since_ms < oldest->since_ms)
            oldest = &visitors->of[i];
    }
    visitor_end(oldest);
    return oldest;
}

/* A stranger is told so. His question is taken first if it is there: an answer that stands behind
 * something unread is lost at the close. */
static void turn_away(int socket) {
    struct hand_question question;
    ssize_t length = recv(socket, &question, sizeof question, MSG_DONTWAIT);
    (void)length;
    answer(socket, WEIR_EDENIED, NULL, 0);
    fork_close(socket);
}

/* As accept4(2). */
static int accept_visitor(int listen_fd) {
    fork_hold();
    int socket = fork_own(accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
    fork_release();
    return socket;
}

static void let_in(struct weir_device *device, struct visitors *visitors) {
    struct shm_hand *hand = &device->hand;
    int32_t pid = 0;
    int socket = accept_visitor(hand->listen_fd);
    if (socket < 0 && (errno == EMFILE || errno == ENFILE) && spare_spend(hand))
        socket = accept_visitor(hand->listen_fd);
    if (socket < 0) {
        /* A lack, or a socket that somebody closed behind the library: it is ready all the time. */
        if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
            nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
        return;
    }
    if (!place_admits(&device->place, socket, &pid)) {
        turn_away(socket);
        return;
    }
    struct visitor *visitor = visitor_place(visitors);
    *visitor = (struct visitor){.since_ms = hand_now_ms(), .socket = socket, .pid = pid};
    visitor_serve(device, visitor);
}

/* The time until somebody's patience is over; -1: nobody is there. Visitors for whom it is over
 * go. */
static int see_off(struct visitors *visitors) {
    uint64_t now = hand_now_ms();
    int left = -1;
    for (int i = 0; i < HAND_VISITORS; i++) {
        struct visitor *visitor = &visitors->of[i];
        if (visitor->socket < 0)
            continue;
        uint64_t age = now - visitor->since_ms;
        if (age >= HAND_PATIENCE_MS) {
            visitor_end(visitor);
            continue;
        }
        left = sooner(left, visitor->since_ms, HAND_PATIENCE_MS, now);
    }
    return left;
}

/* Until the device is closed. */
static void *hand_run(void *argument) {
    struct weir_device *device = argument;
    struct visitors visitors;
    sem_post(&device->hand.started);
    for (int i = 0; i < HAND_VISITORS; i++)
        visitors.of[i].socket = -1;
    while (!atomic_load(&device->hand.ends)) {
        struct pollfd polled[HAND_VISITORS + 1] = {
            {.fd = device->hand.listen_fd, .events = POLLIN}};
        int timeout = see_off(&visitors), kept = brought_expire(device);
        if (kept >= 0 && (timeout < 0 || kept < timeout))
            timeout = kept;
        if (!spare_renew(&device->hand) && (timeout < 0 || SPARE_MS < timeout))
            timeout = SPARE_MS;
        for (int i = 0; i < HAND_VISITORS; i++)
            polled[i + 1] = (struct pollfd){.fd = visitors.of[i].socket, .events = POLLIN};
        ready_wait(polled, HAND_VISITORS + 1,
                   timeout < 0 ? UINT64_MAX : (uint64_t)timeout * NS_PER_MS);
        for (int i = 0; i < HAND_VISITORS; i++) {
            if (visitors.of[i].socket >= 0 && polled[i + 1].revents != 0)
                visitor_serve(device, &visitors.of[i]);
        }
        if (polled[0].revents != 0 && !atomic_load(&device->hand.ends))
            let_in(device, &visitors);
    }
    for (int i = 0; i < HAND_VISITORS; i++) {
        if (visitors.of[i].socket >= 0)
            visitor_end(&visitors.of[i]);
    }
    return NULL;
}

/* ---- open, close ---- */

/* Returns when the thread runs: a child that is forked while a thread begins keeps for ever the
 * locks that the thread holds then (those of sanitizers, say). */
static int start_thread(struct weir_device *device) {
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0)
        return WEIR_ENOMEM;
    sem_init(&device->hand.started, 0, 0);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    int error = thread_create(&device->hand.thread, &attributes, hand_run, device);
    pthread_attr_destroy(&attributes);
    while (error == 0 && sem_wait(&device->hand.started) != 0) {
    }
    sem_destroy(&device->hand.started);
    return error == 0 ? 0 : WEIR_ENOMEM;
}

/* Both ends of the pipe; an end that could not be had is -1. */
static int open_life(int fds_out[2]) {
    int fds[2] = {-1, -1};
    fork_hold();
    fds_out[0] = pipe2(fds, O_CLOEXEC | O_NONBLOCK) == 0 ? fork_own(fds[0]) : -1;
    fds_out[1] = fds[1] >= 0 ? fork_own(fds[1]) : -1;
    fork_release();
    return fds_out[0] >= 0 && fds_out[1] >= 0 ? 0 : seg_error(errno);
}

int hand_open(struct weir_device *device) {
    struct shm_hand *hand = &device->hand;
    hand->life_fds[0] = hand->life_fds[1] = hand->spare_fd = -1;
    hand->listen_fd = place_listen(&device->place, device->nonce);
    if (hand->listen_fd < 0)
        return hand->listen_fd;
    int rc = open_life(hand->life_fds);
    if (rc == 0 && !spare_renew(hand))
        rc = seg_error(errno);
    if (rc == 0)
        rc = start_thread(device);
    if (rc == 0) {
        hand->is_open = true;
        return 0;
    }
    for (int i = 0; i < 2; i++) {
        if (hand->life_fds[i] >= 0)
            fork_close(hand->life_fds[i]);
    }
    spare_spend(hand);
    place_leave(&device->place, device->nonce);
    fork_close(hand->listen_fd);
    return rc;
}

void hand_close(struct weir_device *device) {
    struct shm_hand *hand = &device->hand;
    if (!hand->is_open)
        return;
    place_leave(&device->place, device->nonce);
    atomic_store(&hand->ends, true);
    shutdown(hand->listen_fd, SHUT_RDWR); /* wakes the thread */
    pthread_join(hand->thread, NULL);
    spare_spend(hand);
    fork_close(hand->listen_fd);
    fork_close(hand->life_fds[1]); /* peers see it */
    fork_close(hand->life_fds[0]);
    for (int i = 0; i < HAND_BROUGHT; i++)
        brought_drop(&hand->brought[i]);
    hand->is_open = false;
}

void hand_lock(struct weir_device *device) {
    pthread_mutex_lock(&device->hand.mutex);
}

void hand_unlock(struct weir_device *device) {
    pthread_mutex_unlock(&device->hand.mutex);
}

void hand_offer(struct weir_device *device, uint32_t index) {
    if (index >= device->hand.offered)
        device->hand.offered = index + 1;
}

/* ---- asking ---- */

/* The socket, or ENOMEM, and the socket is closed. After EPIPE and ECONNRESET the socket is kept:
 * the device has turned us away, and its answer says so. The socket's buffer has room for
 * one question. */
static int asked(int socket, bool is_sent) {
    if (is_sent || errno == EPIPE || errno == ECONNRESET)
        return socket;
    fork_close(socket);
    return WEIR_ENOMEM;
}

int hand_ask(const struct weir_device *device, const struct hand_question *question,
             int32_t *pid_out) {
    struct hand_question text = *question;
    int socket = place_call(&device->place, question->nonce, pid_out);
    return socket < 0 ? socket : asked(socket, send_with(socket, &text, sizeof text, NULL, 0));
}

int hand_ask_link(struct weir_device *device, uint64_t nonce, const struct weir_qp *from,
                  int32_t *pid_out) {
    struct hand_question text = {.magic = HAND_MAGIC, .nonce = nonce, .what = HAND_LINK};
    int socket = place_call(&device->place, nonce, pid_out);
    if (socket < 0)
        return socket;
    if (from != NULL) {
        text.from_nonce = device->nonce;
        text.from_key = from->key;
        text.from_pid = device->map->head.pid;
        text.from_index = from->index;
        if (send_link(device, socket, &text, sizeof text, NULL))
            return socket;
        text.from_key = 0; /* too many descriptors of this user are under way, say */
    }
    return asked(socket, send_with(socket, &text, sizeof text, NULL, 0));
}

/* Errors that a device answers with. Another's word is not taken for an error of our own. */
static bool is_answer(int32_t status) {
    switch (status) {
    case 0:
    case WEIR_EAGAIN:
    case WEIR_EDENIED:
    case WEIR_EINVAL:
    case WEIR_ESTALE:
        return true;
    default:
        return false;
    }
}

int hand_take(int socket, int fds_out[HAND_FDS_MAX]) {
    struct hand_answer text;
    ssize_t length = -1;
    int fds[HAND_FDS_MAX], rc = 0, lack;
    uint32_t count = 0;
    /* ECONNRESET comes once, before what was answered. So does the end: recv(2) may find the queue
     * empty, then that the other side has answered and closed, and say the latter. */
    for (int tries = 0; tries < 2 && length <= 0 && count == 0; tries++) {
        length = receive(socket, &text, sizeof text, fds, &count, &lack);
        if (length < 0 && (errno == EAGAIN || errno == EINTR))
            return WEIR_EINPROGRESS;
    }
    if (length <= 0)
        rc = WEIR_EAGAIN;
    else if (lack == WEIR_ENOMEM)
        rc = WEIR_ENOMEM;
    else if (length != (ssize_t)sizeof text || text.magic != HAND_MAGIC || !is_answer(text.status))
        rc = WEIR_EINVAL;
    else if (text.status != 0)
        rc = text.status;
    else if (text.count != count) /* MSG_CTRUNC: no room for them in this process, or too many */
        rc = lack != 0 && text.count <= HAND_FDS_MAX ? lack : WEIR_EINVAL;
    if (rc != 0) {
        close_all(fds, count);
        return rc;
    }
    memcpy(fds_out, fds, count * sizeof *fds);
    return (int)count;
}

int hand_wait(int socket, uint64_t until_ms, int fds_out[HAND_FDS_MAX]) {
    for (;;) {
        int rc = hand_take(socket, fds_out);
        uint64_t now = hand_now_ms();
        if (rc != WEIR_EINPROGRESS || now >= until_ms)
            return rc;
        struct pollfd polled = {.fd = socket, .events = POLLIN};
        ready_wait(&polled, 1, (until_ms - now + WAIT_LEAST_MS) * NS_PER_MS);
    }
}
