/* SPDX-License-Identifier: Apache-2.0 */
/* hands.c: a stranger where descriptors are handed over (hand.h of the shm device).
 *
 * Owns its calls at the pair's devices, as one of the same user and as nobody, and a place of its
 * own, of which its QP sets tell: devices that call there get answers in the right framing, with
 * descriptors that are not what they should be. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hand.h"
#include "lore.h"
#include "segment.h"

enum { CALLS = 24, FDS_MOST = HAND_FDS_MAX + 2, NOBODY = 65534 };

enum deed {
    DEED_CALLED,
    DEED_TRUE,
    DEED_FALSE,
    DEED_SHORT,
    DEED_WITH_FDS,
    DEED_SILENT,
    DEED_NOBODY,
    DEED_ANSWER,
    DEED_TAKEN,
    DEED_VISITED,
    DEED_FALSE_ANSWER,
    DEED_FALSE_FDS,
    DEED_NO_ANSWER,
    DEED_REFUSED
};

static int calls[CALLS];  /* ours, at the pair's devices; -1: none */
static int visits[CALLS]; /* theirs, that were not answered yet */
static int place = -1;
static int segment = -1;          /* as an engine would have one */
static int kept[2][HAND_FDS_MAX]; /* what one of the pair handed to us */

static uint32_t pick(uint32_t limit) {
    return below(&lore.prng, limit);
}
static bool chance(uint32_t count) {
    return one_in(&lore.prng, count);
}
static void did(enum deed deed) {
    board->deeds.hands[deed]++;
}

static socklen_t name_of(uint64_t nonce, struct sockaddr_un *out) {
    memset(out, 0, sizeof(*out));
    out->sun_family = AF_UNIX;
    int length = snprintf(out->sun_path + 1, sizeof(out->sun_path) - 1, "weir-shm-%016llx",
                          (unsigned long long)nonce);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

/* ---- descriptors of all kinds ------------------------------------------- */

static int some_fd(void) {
    int pair[2] = {-1, -1};
    switch (pick(12)) {
    case 0:
        return eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
    case 1:
        return open("/dev/null", O_RDWR | O_CLOEXEC);
    case 2:
        return open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    case 3:
        return memfd_create("unsealed", MFD_CLOEXEC);
    case 4:
        return epoll_create1(EPOLL_CLOEXEC);
    case 5: /* a pipe that nobody writes to any more */
    case 6: /* or into which somebody may */
        if (pipe2(pair, O_CLOEXEC) != 0)
            return -1;
        close(pair[1]);
        return pair[0];
    case 7:
        return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    case 8:
        return (int)syscall(SYS_pidfd_open, getpid(), 0);
    default:
        return fcntl(kept[pick(2)][pick(HAND_FDS_MAX)], F_DUPFD_CLOEXEC, 0);
    }
}

/* A descriptor as an engine would hand it over, and nothing behind it. */
static int right_fd(uint32_t at) {
    switch (at) {
    case 0:
        return fcntl(segment, F_DUPFD_CLOEXEC, 0);
    case 1:
        return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    case 2: /* as good as a pipe that nobody writes to */
        return eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    default:
        return (int)syscall(SYS_pidfd_open, getpid(), 0);
    }
}

/* With up to FDS_MOST descriptors, which stay ours as well until they are closed here. */
static bool send_with(int socket, const void *bytes, size_t length, uint32_t count, bool right) {
    union {
        char bytes[CMSG_SPACE(FDS_MOST * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec vector = {(void *)(uintptr_t)bytes, length};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    int fds[FDS_MOST];
    uint32_t have = 0;
    memset(&control, 0, sizeof(control));
    for (uint32_t i = 0; i < count; i++) {
        fds[have] = right ? right_fd(i) : some_fd();
        have += fds[have] >= 0;
    }
    if (have > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(have * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(have * sizeof(int));
        memcpy(CMSG_DATA(header), fds, have * sizeof(int));
    }
    bool sent = sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0;
    for (uint32_t i = 0; i < have; i++)
        close(fds[i]);
    return sent;
}

/* ---- calling ------------------------------------------------------------ */

static int call(int target) {
    struct sockaddr_un at;
    socklen_t length = name_of(lore.nonces[target], &at);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)&at, length) == 0) {
        did(DEED_CALLED);
        return fd;
    }
    if (fd >= 0)
        close(fd);
    did(DEED_REFUSED);
    return -1;
}

static struct hand_question some_question(int target) {
    struct hand_question question = {.magic = HAND_MAGIC,
                                     .nonce = lore.nonces[target],
                                     .key = draw(&lore.prng),
                                     .what = chance(2) ? HAND_LINK : HAND_MEMORY,
                                     .index = pick(6),
                                     .from_nonce = lore.nonces[pick(3)],
                                     .from_key = chance(2) ? 0 : lore.nonces[2] | 1,
                                     .from_pid = lore.pids[pick(3)],
                                     .from_index = pick(OWN_QPS)};
    if (chance(2)) {
        did(DEED_TRUE);
        return question;
    }
    did(DEED_FALSE);
    switch (pick(4)) {
    case 0:
        question.magic ^= UINT64_C(1) << pick(64);
        break;
    case 1:
        question.nonce = lore.nonces[pick(3)] + chance(2);
        break;
    case 2:
        question.what = pick(5) + (chance(4) ? UINT32_MAX - 4 : 0);
        break;
    default:
        question.index = pick(UINT32_MAX);
        break;
    }
    return question;
}

static void ask(int target) {
    int *at = &calls[pick(CALLS)];
    if (*at >= 0)
        close(*at);
    *at = call(target);
    if (*at < 0)
        return;
    if (chance(6)) {
        did(DEED_SILENT);
        return;
    }
    struct hand_question question = some_question(target);
    size_t length = sizeof(question);
    if (chance(8)) {
        did(DEED_SHORT);
        length = pick((uint32_t)length);
    }
    uint32_t count = chance(4) ? 1 + pick(FDS_MOST) : 0;
    if (count > 0)
        did(DEED_WITH_FDS);
    send_with(*at, &question, length, count, false);
    if (chance(4)) {
        close(*at);
        *at = -1;
    }
}

/* The descriptors that came with an answer; EINPROGRESS: it is not there yet. */
static int take(int call, int fds_out[FDS_MOST]) {
    union {
        char bytes[CMSG_SPACE(FDS_MOST * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct hand_answer text;
    struct iovec vector = {&text, sizeof(text)};
    struct msghdr message = {.msg_iov = &vector,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    if (recvmsg(call, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) < 0)
        return errno == EAGAIN ? WEIR_EINPROGRESS : 0;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header == NULL || header->cmsg_type != SCM_RIGHTS)
        return 0;
    size_t bytes = header->cmsg_len - CMSG_LEN(0);
    memcpy(fds_out, CMSG_DATA(header), bytes);
    return (int)(bytes / sizeof(int));
}

/* The answers to our questions; the latest descriptors of each of the pair are kept. */
static void take_answers(void) {
    for (int i = 0; i < CALLS; i++) {
        int fds[FDS_MOST], count = 0;
        if (calls[i] >= 0)
            count = take(calls[i], fds);
        if (calls[i] < 0 || count == WEIR_EINPROGRESS)
            continue;
        did(DEED_ANSWER);
        close(calls[i]);
        calls[i] = -1;
        if (count > 0)
            did(DEED_TAKEN);
        int *keep = kept[pick(2)];
        for (int k = 0; k < count && k < HAND_FDS_MAX; k++) {
            if (keep[k] >= 0)
                close(keep[k]);
            keep[k] = fds[k];
        }
    }
}

/* One of another user is turned away, whatever it asks. */
static void ask_as_nobody(int target) {
    pid_t pid = fork();
    if (pid == 0) {
        int fd = setresuid(NOBODY, NOBODY, NOBODY) == 0 ? call(target) : -1;
        struct hand_question question = some_question(target);
        if (fd >= 0)
            send(fd, &question, sizeof(question), MSG_DONTWAIT | MSG_NOSIGNAL);
        _exit(0);
    }
    did(DEED_NOBODY);
    if (pid > 0)
        waitpid(pid, NULL, 0);
}

/* ---- being called ------------------------------------------------------- */

static void answer(int visit) {
    struct hand_question question;
    struct hand_answer text = {.magic = HAND_MAGIC, .count = 4};
    ssize_t got = recv(visit, &question, sizeof(question), MSG_DONTWAIT);
    (void)got;
    bool right = !chance(3);
    uint32_t count = right ? 4 : pick(FDS_MOST + 1);
    text.count = count;
    if (!right && chance(4))
        text.count = pick(8);
    if (!right && chance(8))
        text.magic ^= UINT64_C(1) << pick(64);
    if (!right && chance(4))
        text.status = (int32_t)pick(80) - 60;
    did(DEED_FALSE_ANSWER);
    if (count > 0)
        did(DEED_FALSE_FDS);
    send_with(visit, &text, !right && chance(8) ? pick(sizeof(text)) : sizeof(text), count, right);
}

static void receive(void) {
    int fd;
    while ((fd = accept4(place, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0) {
        int *at = &visits[pick(CALLS)];
        did(DEED_VISITED);
        if (*at >= 0)
            close(*at);
        *at = fd;
        if (chance(4))
            did(DEED_NO_ANSWER); /* it is let go of sometime */
        else
            answer(fd);
        if (chance(2)) {
            close(fd);
            *at = -1;
        }
    }
}

/* ---- the whole ----------------------------------------------------------- */

/* A segment as another engine would have it, with QPs that take no messages. */
static int make_segment(void) {
    struct seg_map *map;
    int fd = memfd_create("weir-shm", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, sizeof(*map)) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
        give_up("a segment", 0);
    map = mmap(NULL, sizeof(*map), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (map == MAP_FAILED)
        give_up("a segment", 0);
    map->head.magic = SHM_MAGIC;
    map->head.nonce = lore.nonces[2];
    map->head.pid = lore.pids[2];
    for (int i = 0; i < OWN_QPS; i++) {
        map->qps[i].key = lore.nonces[2] | 1;
        map->qps[i].state = SHM_STATE_INIT;
    }
    munmap(map, sizeof(*map));
    return fd;
}

void hands_begin(void) {
    struct sockaddr_un at;
    for (int i = 0; i < CALLS; i++)
        calls[i] = visits[i] = -1;
    memset(kept, -1, sizeof(kept));
    lore.nonces[2] = draw(&lore.prng);
    socklen_t length = name_of(lore.nonces[2], &at);
    place = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (place < 0 || bind(place, (struct sockaddr *)&at, length) != 0 || listen(place, 64) != 0)
        give_up("the stranger has no place", 0);
    segment = make_segment();
}

void hands_step(void) {
    if (!chance(3))
        ask((int)pick(2));
    if (geteuid() == 0 && chance(512))
        ask_as_nobody((int)pick(2));
    take_answers();
    receive();
}

void hands_end(void) {
    close(place);
    close(segment);
}
