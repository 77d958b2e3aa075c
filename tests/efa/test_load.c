/* SPDX-License-Identifier: Apache-2.0 */
/* test_load.c: the provider that plays EFA, under load: processes with endpoints with threads, all
 * of which write to all others, read what they wrote, and send messages; processes are stopped, and
 * go on.
 *
 *     test_load PROCESSES ENDPOINTS THREADS ROUNDS */
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "side.h"

enum {
    ALL_MAX = 512, /* endpoints */
    PROCESSES_MAX = 16,
    PART = 96 * 1024, /* of a buffer, for what one thread writes, and for what it reads */
    MESSAGE = 1024,
    RECEIVES = 64,
};

/* For all processes. */
static struct shared {
    struct about about[ALL_MAX];
    atomic_uint there, done;
} * shared;
static unsigned processes, endpoints, threads, rounds;

struct member;

/* A context comes first, so that a completion's is its job's. */
struct job {
    struct fi_context2 context;
    atomic_bool done;
    size_t at; /* of a receive */
};

struct member {
    struct side side;
    unsigned number;
    fi_addr_t peers[ALL_MAX];
    struct job receives[RECEIVES];
};

struct worker {
    struct member *member;
    unsigned number;
    uint64_t state;
    pthread_t thread;
};

static uint64_t draw(struct worker *worker) {
    worker->state ^= worker->state << 13;
    worker->state ^= worker->state >> 7;
    worker->state ^= worker->state << 17;
    return worker->state;
}

static unsigned all(void) {
    return processes * endpoints;
}

/* ---- the buffer: parts of threads, parts of others' threads, receives ---- */

static size_t own_part(unsigned thread, unsigned which) {
    return ((size_t)thread * 2 + which) * PART;
}

static size_t part_of(unsigned member, unsigned thread) {
    return ((size_t)threads * 2 + (size_t)member * threads + thread) * PART;
}

static size_t receive_at(unsigned i) {
    return part_of(all(), 0) + (size_t)i * MESSAGE;
}

/* ---- completions: any thread takes any ---- */

static void take(struct member *member, const struct fi_cq_msg_entry *entry) {
    struct job *job = entry->op_context;
    if ((entry->flags & FI_RECV) == 0) {
        atomic_store(&job->done, true);
        return;
    }
    const uint8_t *bytes = member->side.bytes + job->at;
    CHECK(entry->len >= 1 && is_pattern(bytes + 1, entry->len - 1, bytes[0]));
    CHECK(try_receive(&member->side, job->at, MESSAGE, job) == 0);
}

static bool look(struct member *member) {
    struct fi_cq_msg_entry entries[4];
    ssize_t n = fi_cq_read(member->side.cq, entries, 4);
    CHECK(n > 0 || n == -FI_EAGAIN);
    for (ssize_t i = 0; i < n; i++)
        take(member, &entries[i]);
    return n > 0;
}

static void look_or_sleep(struct member *member) {
    if (look(member))
        return;
    int fd;
    CHECK(fi_control(&member->side.cq->fid, FI_GETWAIT, &fd) == 0);
    struct pollfd pollfd = {.fd = fd, .events = POLLIN};
    poll(&pollfd, 1, 1);
}

static void finish(struct member *member, struct job *job) {
    uint64_t end_ms = now_ms() + PATIENCE_S * 1000u;
    while (!atomic_load(&job->done)) {
        look_or_sleep(member);
        CHECK(now_ms() < end_ms);
    }
    atomic_store(&job->done, false);
}

/* ---- a thread ---- */

#define POST(post)                                                                                 \
    do {                                                                                           \
        ssize_t posted;                                                                            \
        while ((posted = (post)) == -FI_EAGAIN)                                                    \
            look_or_sleep(member);                                                                 \
        CHECK(posted == 0);                                                                        \
    } while (0)

static ssize_t transfer(struct worker *worker, bool writes, size_t at, size_t len, unsigned to,
                        struct job *job) {
    struct member *member = worker->member;
    struct iovec iov = {member->side.bytes + at, len};
    void *desc = fi_mr_desc(member->side.mr);
    const struct about *about = &shared->about[to];
    struct fi_rma_iov remote = {.addr = about->base + part_of(member->number, worker->number),
                                .len = len,
                                .key = about->key};
    struct fi_msg_rma msg = {.msg_iov = &iov,
                             .desc = &desc,
                             .iov_count = 1,
                             .addr = member->peers[to],
                             .rma_iov = &remote,
                             .rma_iov_count = 1,
                             .context = &job->context};
    return writes ? fi_writemsg(member->side.ep, &msg, FI_COMPLETION | FI_DELIVERY_COMPLETE)
                  : fi_readmsg(member->side.ep, &msg, FI_COMPLETION);
}

static ssize_t message(struct member *member, size_t at, size_t len, unsigned to, struct job *job) {
    struct iovec iov = {member->side.bytes + at, len};
    void *desc = fi_mr_desc(member->side.mr);
    struct fi_msg msg = {.msg_iov = &iov,
                         .desc = &desc,
                         .iov_count = 1,
                         .addr = member->peers[to],
                         .context = &job->context};
    return fi_sendmsg(member->side.ep, &msg, FI_COMPLETION);
}

static void *work(void *arg) {
    struct worker *worker = arg;
    struct member *member = worker->member;
    struct job jobs[4];
    memset(jobs, 0, sizeof jobs);
    size_t from = own_part(worker->number, 0), into = own_part(worker->number, 1);
    for (unsigned round = 0; round < rounds; round++) {
        unsigned to = (unsigned)(draw(worker) % all()), seed = (unsigned)draw(worker) & 0xff;
        size_t len = draw(worker) % 4 == 0 ? 1 + draw(worker) % PART : 8 + draw(worker) % 512;
        pattern(member->side.bytes + from, len, seed);
        memset(member->side.bytes + into, 0, len);
        POST(transfer(worker, true, from, len, to, &jobs[0]));
        finish(member, &jobs[0]);
        POST(transfer(worker, false, into, len, to, &jobs[1]));
        finish(member, &jobs[1]);
        CHECK(is_pattern(member->side.bytes + into, len, seed));
        len = 1 + draw(worker) % (MESSAGE - 1);
        pattern(member->side.bytes + from + 1, len, seed);
        member->side.bytes[from] = (uint8_t)seed;
        for (unsigned i = 2; i < 4; i++)
            POST(message(member, from, len, (to + i) % all(), &jobs[i]));
        for (unsigned i = 2; i < 4; i++)
            finish(member, &jobs[i]);
    }
    /* The others' messages still need receives. */
    atomic_fetch_add(&shared->done, 1);
    uint64_t end_ms = now_ms() + PATIENCE_S * 1000u;
    while (atomic_load(&shared->done) != all() * threads) {
        look_or_sleep(member);
        CHECK(now_ms() < end_ms);
    }
    return NULL;
}

/* ---- processes ---- */

static void join_in(struct member *member, unsigned number) {
    open_side(&member->side, receive_at(RECEIVES), 0);
    member->number = number;
    shared->about[number] = about(&member->side);
    for (unsigned i = 0; i < RECEIVES; i++) {
        member->receives[i].at = receive_at(i);
        CHECK(try_receive(&member->side, receive_at(i), MESSAGE, &member->receives[i]) == 0);
    }
    atomic_fetch_add(&shared->there, 1);
}

static void process(unsigned first) {
    struct member *members = calloc(endpoints, sizeof *members);
    struct worker *workers = calloc((size_t)endpoints * threads, sizeof *workers);
    CHECK(members != NULL && workers != NULL);
    for (unsigned i = 0; i < endpoints; i++)
        join_in(&members[i], first + i);
    while (atomic_load(&shared->there) != all())
        nap(1);
    for (unsigned i = 0; i < endpoints; i++) {
        for (unsigned j = 0; j < all(); j++)
            CHECK(fi_av_insert(members[i].side.av, shared->about[j].address, 1,
                               &members[i].peers[j], 0, NULL) == 1);
    }
    for (unsigned i = 0; i < endpoints * threads; i++) {
        workers[i] = (struct worker){.member = &members[i / threads],
                                     .number = i % threads,
                                     .state = (uint64_t)(first + 1) * 1000003 + i};
        CHECK(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
    }
    for (unsigned i = 0; i < endpoints * threads; i++)
        pthread_join(workers[i].thread, NULL);
    for (unsigned i = 0; i < endpoints; i++)
        close_side(&members[i].side);
    free(members);
    free(workers);
}

static bool watch(const pid_t *pids) {
    bool fine = true;
    uint64_t lot = 1;
    for (unsigned left = processes; left != 0;) {
        int status;
        pid_t ended = waitpid(-1, &status, WNOHANG);
        if (ended > 0) {
            left--;
            fine = fine && status == 0;
            continue;
        }
        nap(5);
        lot = lot * 6364136223846793005u + 1442695040888963407u;
        pid_t stopped = pids[(lot >> 33) % processes];
        if (left != processes || (lot >> 40) % 8 != 0)
            continue;
        kill(stopped, SIGSTOP);
        nap(20);
        kill(stopped, SIGCONT);
    }
    return fine;
}

int main(int argc, char **argv) {
    if (getenv("FI_PROVIDER_PATH") == NULL || argc != 5)
        return SKIPPED;
    processes = (unsigned)atoi(argv[1]);
    endpoints = (unsigned)atoi(argv[2]);
    threads = (unsigned)atoi(argv[3]);
    rounds = (unsigned)atoi(argv[4]);
    if (processes > PROCESSES_MAX || all() > ALL_MAX)
        return SKIPPED;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    pid_t pids[PROCESSES_MAX];
    uint64_t begin_ms = now_ms();
    for (unsigned i = 0; i < processes; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            alarm(2 * PATIENCE_S);
            process(i * endpoints);
            exit(0);
        }
    }
    bool fine = watch(pids);
    printf("%s: %llu ms\n", fine ? "fine" : "FAILED", (unsigned long long)(now_ms() - begin_ms));
    return fine ? 0 : 1;
}
