/* SPDX-License-Identifier: Apache-2.0 */
/* test_memory_held.c: memory that takes long to make or to give back keeps nobody but the caller
 * (W5), and peers that stop inside an access (W4).
 *
 * The system calls whose time grows with the memory are intercepted here: while one of them is
 * under way, another thread uses the same engine, and has to come back before it goes on. So
 * nothing depends on how long any of them takes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "engine_side.h"

enum { BIG = 8 << 20, SMALL = 4096 };

/* The function that the armed thread runs in its next such call. */
static _Thread_local void (*in_call)(void);
static unsigned calls; /* in which something was done */

static void call_is_made(void) {
    void (*now)(void) = in_call;
    if (now == NULL)
        return;
    in_call = NULL;
    calls++;
    now();
}

#define NEXT(name, type) ((type)(uintptr_t)dlsym(RTLD_NEXT, name))

int madvise(void *address, size_t length, int advice) {
    if (length >= BIG && (advice == MADV_POPULATE_READ || advice == MADV_POPULATE_WRITE))
        call_is_made();
    return NEXT("madvise", int (*)(void *, size_t, int))(address, length, advice);
}

int munmap(void *address, size_t length) {
    if (length >= BIG)
        call_is_made();
    return NEXT("munmap", int (*)(void *, size_t))(address, length);
}

int fallocate(int fd, int mode, off_t offset, off_t length) {
    if (length >= BIG)
        call_is_made();
    return NEXT("fallocate", int (*)(int, int, off_t, off_t))(fd, mode, offset, length);
}

int sched_yield(void) {
    call_is_made();
    return NEXT("sched_yield", int (*)(void))();
}

ssize_t process_vm_writev(pid_t pid, const struct iovec *local, unsigned long local_count,
                          const struct iovec *remote, unsigned long remote_count,
                          unsigned long flags) {
    call_is_made();
    return NEXT("process_vm_writev",
                ssize_t(*)(pid_t, const struct iovec *, unsigned long, const struct iovec *,
                           unsigned long, unsigned long))(pid, local, local_count, remote,
                                                          remote_count, flags);
}

/* ---- another thread ---- */

static struct side a, b;
static pthread_t other;
static bool other_runs;
static atomic_bool other_is_back;
static const char *other_wrong; /* cmocka's asserts are for the main thread */

static bool written(void) {
    weir_segment segment = segment_of(&a, 0, 0, SMALL);
    weir_transfer transfer;
    if (weir_write(a.engine, a.peer, &segment, 1, NULL, &transfer) != WEIR_OK)
        return false;
    bool well = weir_transfer_wait(a.engine, transfer, PATIENCE_NS) == WEIR_OK;
    return weir_transfer_release(a.engine, transfer) == WEIR_OK && well;
}

/* Calls of all kinds, and a transfer. */
static void *use_the_engine(void *argument) {
    static uint8_t bytes[SMALL];
    weir_engine_info stats = WEIR_ENGINE_INFO_INIT;
    uint8_t descriptor[WEIR_DESCRIPTOR_MAX];
    size_t length = sizeof(descriptor);
    weir_memory memory;
    void *base;

    (void)argument;
    if (weir_engine_query(a.engine, &stats) != WEIR_OK || weir_engine_progress(a.engine) < 0)
        other_wrong = "stats, progress";
    else if (weir_memory_register(a.engine, bytes, SMALL, WEIR_ACCESS_ALL, &memory) != WEIR_OK ||
             weir_memory_release(a.engine, memory) != WEIR_OK)
        other_wrong = "register, release";
    else if (weir_memory_allocate(a.engine, SMALL, WEIR_ACCESS_ALL, &memory, &base) != WEIR_OK ||
             weir_memory_export(a.engine, memory, descriptor, &length) != WEIR_OK ||
             weir_memory_release(a.engine, memory) != WEIR_OK)
        other_wrong = "allocate, export, release";
    else if (!written())
        other_wrong = "write";
    atomic_store(&other_is_back, true);
    return NULL;
}

/* The patience is only for tests that fail. */
static void others_go_on(void) {
    struct timespec until;

    atomic_store(&other_is_back, false);
    other_runs = pthread_create(&other, NULL, use_the_engine, NULL) == 0;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 10;
    if (other_runs && pthread_timedjoin_np(other, NULL, &until) == 0)
        other_runs = false;
}

static void arm(void) {
    calls = 0;
    other_wrong = NULL;
    in_call = others_go_on;
}

/* The armed call was made, and the other thread came back during it. */
static void check_nobody_was_kept(const char *what) {
    in_call = NULL;
    if (other_runs) {
        pthread_join(other, NULL);
        other_runs = false;
        fail_msg("%s keeps the engine", what);
    }
    if (other_wrong != NULL)
        fail_msg("%s meanwhile: %s", what, other_wrong);
    assert_int_equal(calls, 1);
}

/* ---- long work ---- */

static void allocate_and_release(uint32_t access) {
    weir_memory memory;
    void *base;

    arm();
    assert_int_equal(weir_memory_allocate(a.engine, BIG, access, &memory, &base), WEIR_OK);
    check_nobody_was_kept("allocate");
    memset(base, 1, BIG);
    arm();
    assert_int_equal(weir_memory_release(a.engine, memory), WEIR_OK);
    check_nobody_was_kept("release");
}

static void test_W5_big_memory_of_our_own_keeps_nobody(void **state) {
    (void)state;
    pair_open(&a, &b, NULL);
    allocate_and_release(WEIR_ACCESS_ALL);
    allocate_and_release(0);
    pair_close(&a, &b);
}

static void test_W5_big_memory_of_a_peer_keeps_nobody(void **state) {
    uint8_t descriptor[WEIR_DESCRIPTOR_MAX];
    size_t length = sizeof(descriptor);
    weir_memory memory;
    weir_remote remote;
    void *base;

    (void)state;
    pair_open(&a, &b, NULL);
    for (uint32_t access = WEIR_ACCESS_REMOTE_READ; access <= WEIR_ACCESS_ALL; access++) {
        length = sizeof(descriptor);
        assert_int_equal(weir_memory_allocate(b.engine, BIG, access, &memory, &base), WEIR_OK);
        assert_int_equal(weir_memory_export(b.engine, memory, descriptor, &length), WEIR_OK);
        arm();
        assert_int_equal(weir_memory_import(a.engine, a.peer, descriptor, length, &remote),
                         WEIR_OK);
        check_nobody_was_kept("import");
        arm();
        assert_int_equal(weir_remote_release(a.engine, remote), WEIR_OK);
        check_nobody_was_kept("remote release");
        assert_int_equal(weir_memory_release(b.engine, memory), WEIR_OK);
    }
    pair_close(&a, &b);
}

/* ---- a peer that stops inside a write ---- */

static void stop_here(void) {
    raise(SIGSTOP);
}

/* The facts that the child needs. */
struct card {
    char address[WEIR_ADDRESS_MAX];
    uint8_t descriptor[WEIR_DESCRIPTOR_MAX];
    size_t length;
};

/* Writes to the parent's memory, and stops in the system call that does it. */
static void child_run(int from) {
    struct card card;
    weir_remote remote;

    if (read(from, &card, sizeof card) != (ssize_t)sizeof card)
        _exit(2);
    side_open(&b, NULL);
    if (weir_peer_open(b.engine, card.address, &b.peer) != WEIR_OK ||
        weir_memory_import(b.engine, b.peer, card.descriptor, card.length, &remote) != WEIR_OK)
        _exit(3);
    memset(b.bytes, 7, SMALL);
    weir_segment segment = {.local = b.memory, .remote = remote, .length = SMALL};
    weir_transfer transfer;
    in_call = NULL;
    connect_now(&b, NULL);
    in_call = stop_here;
    if (weir_write(b.engine, b.peer, &segment, 1, NULL, &transfer) != WEIR_OK)
        _exit(4);
    if (weir_transfer_wait(b.engine, transfer, PATIENCE_NS) != WEIR_OK)
        _exit(5);
    side_close(&b);
    _exit(0);
}

static bool child_has_stopped(pid_t child) {
    int status;
    pid_t pid = waitpid(child, &status, WUNTRACED | WNOHANG);
    assert_true(pid == 0 || pid == child);
    if (pid == child)
        assert_true(WIFSTOPPED(status));
    return pid == child;
}

/* A child that is inside a write to bytes, which are memory of a's. */
static pid_t child_stopped(uint8_t *bytes, weir_memory *memory_out) {
    int down[2];
    struct card card = {.length = sizeof card.descriptor};

    assert_int_equal(pipe2(down, O_CLOEXEC), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(down[1]);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        child_run(down[0]);
    }
    close(down[0]);
    side_open(&a, NULL);
    strcpy(card.address, a.address);
    assert_int_equal(
        weir_memory_register(a.engine, bytes, SMALL, WEIR_ACCESS_REMOTE_WRITE, memory_out),
        WEIR_OK);
    assert_int_equal(weir_memory_export(a.engine, *memory_out, card.descriptor, &card.length),
                     WEIR_OK);
    assert_int_equal(write(down[1], &card, sizeof card), sizeof card);
    close(down[1]);
    STEP_UNTIL(&a, NULL, child_has_stopped(child));
    return child;
}

/* The release has begun: the handle is good for nothing else. */
static void check_is_leaving(weir_memory memory) {
    uint8_t descriptor[WEIR_DESCRIPTOR_MAX];
    size_t length = sizeof(descriptor);

    assert_int_equal(weir_memory_export(a.engine, memory, descriptor, &length), WEIR_ESTALE);
    assert_int_equal(weir_memory_query(a.engine, memory, NULL, NULL), WEIR_ESTALE);
    assert_int_equal(weir_memory_release(a.engine, memory), WEIR_EINPROGRESS);
}

static int release_rc(weir_memory memory) {
    return weir_memory_release(a.engine, memory);
}

static void released_after(int signal, int status_wanted) {
    static uint8_t bytes[SMALL];
    weir_memory memory;
    int status;

    memset(bytes, 0, SMALL);
    pid_t child = child_stopped(bytes, &memory);
    assert_int_equal(release_rc(memory), WEIR_EINPROGRESS);
    check_is_leaving(memory);
    assert_int_equal(bytes[0], 0);
    assert_int_equal(kill(child, signal), 0);
    STEP_UNTIL(&a, NULL, release_rc(memory) == WEIR_OK);
    assert_int_equal(bytes[0], signal == SIGCONT ? 7 : 0); /* it came before */
    assert_int_equal(release_rc(memory), WEIR_ESTALE);
    STEP_UNTIL(&a, NULL, waitpid(child, &status, WNOHANG) == child);
    assert_int_equal(WIFEXITED(status) ? WEXITSTATUS(status) : -1, status_wanted);
    side_close(&a);
}

static void test_W4_a_release_ends_when_a_stopped_peer_goes_on(void **state) {
    (void)state;
    released_after(SIGCONT, 0);
}

static void test_W4_a_release_ends_when_a_stopped_peer_dies(void **state) {
    (void)state;
    released_after(SIGKILL, -1);
}

/* A stopped peer keeps the caller of the release for a while, and nobody else. */
static void test_W5_waiting_for_a_stopped_peer_keeps_nobody(void **state) {
    static uint8_t bytes[SMALL];
    struct side here;
    weir_memory memory;

    (void)state;
    pid_t child = child_stopped(bytes, &memory);
    side_open(&here, NULL);
    assert_int_equal(weir_peer_open(a.engine, here.address, &a.peer), WEIR_OK);
    a.remote = side_import(&a, a.peer, &here, here.memory);
    connect_now(&a, &here);
    arm();
    assert_int_equal(release_rc(memory), WEIR_EINPROGRESS);
    check_nobody_was_kept("a release that waits");
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    side_close(&here);
    STEP_UNTIL(&a, NULL, release_rc(memory) == WEIR_OK);
    side_close(&a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_W5_big_memory_of_our_own_keeps_nobody),
        cmocka_unit_test(test_W5_big_memory_of_a_peer_keeps_nobody),
        cmocka_unit_test(test_W4_a_release_ends_when_a_stopped_peer_goes_on),
        cmocka_unit_test(test_W4_a_release_ends_when_a_stopped_peer_dies),
        cmocka_unit_test(test_W5_waiting_for_a_stopped_peer_keeps_nobody),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
