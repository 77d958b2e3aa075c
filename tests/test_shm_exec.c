/* SPDX-License-Identifier: Apache-2.0 */
/* test_shm_exec.c: peers of the shm device that become another program, are closed or are
 * stopped (S13, W4, W5). */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "held.h"
#include "os.h"
#include "shm_child.h"

#define PATTERN 0x5a

static char own_path[4096]; /* of this program */

/* ---- W4: another program in a peer's place ---- */

/* `e`: becomes this program anew (another_program below), with the same number; `f`: the
 * same, and a child that was forked before lives on. `w`: the letters there are for it. */
static bool obey_exec(struct side *side, char letter, int from, int to) {
    char down[16], up[16], base[32];
    pid_t parent = getpid();
    (void)side;
    if (letter == 'f' && fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (getppid() == parent) /* which may have ended already */
            pause();
        _exit(0);
    }
    fcntl(from, F_SETFD, 0);
    fcntl(to, F_SETFD, 0);
    snprintf(down, sizeof down, "%d", from);
    snprintf(up, sizeof up, "%d", to);
    snprintf(base, sizeof base, "%llu",
             letter == 'i' ? (unsigned long long)side->ticket.base : 0ULL);
    execl(own_path, own_path, "--another-program", down, up, base, (char *)NULL);
    _exit(5);
}

/* The program that takes a peer's place: it has memory of its own where the peer had registered
 * some (and, if told, where the peer had its segment), and says how much of it was changed. */
static int another_program(char **arguments) {
    int from = atoi(arguments[0]), to = atoi(arguments[1]);
    uint64_t base = strtoull(arguments[2], NULL, 10);
    uint8_t *memory = fixed_memory();
    char letter = memory != NULL ? 'y' : 'n';
    if (memory != NULL)
        memset(memory, PATTERN, REGION_BYTES);
    if (base != 0 && mmap((void *)(uintptr_t)base, sizeof(struct seg_map), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1,
                          0) == MAP_FAILED)
        letter = 'n';
    put(to, &letter, 1);
    while (get(from, &letter, 1)) {
        uint32_t changed = 0;
        for (uint64_t i = 0; i < REGION_BYTES; i++)
            changed += memory[i] != PATTERN;
        put(to, &changed, sizeof changed);
    }
    return 0;
}

static void pair_open(struct side *side, struct child *child, obey_fn *obey) {
    static uint8_t memory[REGION_BYTES];
    struct ticket ticket;
    *child = child_start(NULL, obey, &ticket);
    assert_int_equal(ticket.rc, 0);
    assert_int_equal(side_open(side, memory), 0);
    struct outcome outcome = child_connect(child, side);
    assert_int_equal(side_connect(side, &ticket), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(outcome.rc[1 + i], 0);
        assert_int_equal(side_import(side, &ticket, i), 0);
    }
    assert_int_equal(outcome.rc[0], 0);
}

/* The child becomes another program; how a transfer on the memory ends then, and how many bytes
 * of that program's memory are others than before. */
static uint32_t run_after_exec(char letter, uint8_t opcode, int which, uint32_t *changed_out) {
    struct side side;
    struct child child;
    char ready = 0;
    pair_open(&side, &child, obey_exec);
    assert_int_equal(run_wr(&side, WEIR_OP_WRITE, which), WEIR_CQE_OK);
    put(child.to, &letter, 1);
    assert_true(get(child.from, &ready, 1));
    assert_int_equal(ready, 'y');
    uint32_t status = run_wr(&side, opcode, which);
    put(child.to, "w", 1);
    assert_true(get(child.from, changed_out, sizeof *changed_out));
    child_end(&child);
    side_close(&side);
    return status;
}

/* Whether segments lie where no program has anything: not under all sanitizers. */
static bool is_apart(void) {
    static uint8_t memory[REGION_BYTES];
    struct side side;
    assert_int_equal(side_open(&side, memory), 0);
    bool apart = side.ticket.base >> 44 >= 2 && side.ticket.base >> 44 < 5;
    side_close(&side);
    if (!apart)
        print_message("a segment cannot lie apart here\n");
    return apart;
}

static void test_W4_registered_memory_of_a_replaced_program_is_not_touched(void **state) {
    (void)state;
    uint32_t changed = UINT32_MAX;
    if (!is_apart())
        skip();
    assert_int_equal(run_after_exec('e', WEIR_OP_WRITE, 1, &changed), WEIR_CQE_RETRY);
    assert_int_equal(changed, 0);
    assert_int_equal(run_after_exec('e', WEIR_OP_READ, 1, &changed), WEIR_CQE_RETRY);
    /* A child that was forked before the exec holds all descriptors of the peer that was. */
    assert_int_equal(run_after_exec('f', WEIR_OP_WRITE, 1, &changed), WEIR_CQE_RETRY);
    assert_int_equal(changed, 0);
}

/* A program that has memory where the peer had its segment could be taken for it. */
static void test_W4_a_program_that_imitates_the_peer_is_no_success(void **state) {
    (void)state;
    uint32_t changed;
    if (!is_apart())
        skip();
    assert_int_equal(run_after_exec('i', WEIR_OP_WRITE, 1, &changed), WEIR_CQE_RETRY);
    assert_int_equal(run_after_exec('i', WEIR_OP_READ, 1, &changed), WEIR_CQE_RETRY);
}

/* Also who sleeps, and has transferred nothing since, hears of it. */
static void test_W4_exec_is_a_death(void **state) {
    (void)state;
    struct side side;
    struct child child;
    pair_open(&side, &child, obey_exec);
    put(child.to, "e", 1);
    assert_int_equal(side_event(&side).type, WEIR_ASYNC_PEER_DEAD);
    assert_int_equal(run_wr(&side, WEIR_OP_WRITE, 0), WEIR_CQE_RETRY);
    child_end(&child);
    side_close(&side);
}

static bool obey_close(struct side *side, char letter, int from, int to) {
    (void)letter, (void)from;
    side_close(side);
    put(to, "d", 1);
    pause();
    return false;
}

/* A device that is closed is gone, though its process lives. */
static void test_W4_closing_is_a_death(void **state) {
    (void)state;
    struct side side;
    struct child child;
    pair_open(&side, &child, obey_close);
    put(child.to, "x", 1);
    assert_int_equal(side_event(&side).type, WEIR_ASYNC_PEER_DEAD);
    child_end(&child);
    side_close(&side);
}

/* ---- W5: peers that are stopped ---- */

/* However often it is asked for, the memory of a peer that is stopped is not there yet. */
static void assert_waits(struct side *side, const struct ticket *ticket, int which) {
    struct weir_rmr remote;
    for (int i = 0; i < 4; i++)
        assert_int_equal(shm_device_ops.mr_import(side->device, ticket->blobs[which],
                                                  ticket->blob_lengths[which], REGION_BYTES,
                                                  WEIR_ACCESS_ALL, 5, &remote),
                         WEIR_EINPROGRESS);
}

/* The descriptors that this process holds once its device's own thread has seen its visitors off.
 */
static int held_at_rest(void) {
    int least = held_fds();
    for (int i = 0; i < 20; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        int now = held_fds();
        least = now < least ? now : least;
    }
    return least;
}

/* A peer that is stopped keeps nobody: to connect goes on behind, to import is for another call. */
static void test_W5_a_stopped_peer_keeps_nobody(void **state) {
    (void)state;
    static uint8_t memory[REGION_BYTES];
    struct side side;
    struct ticket ticket;
    int at_first = held_fds();
    struct child child = child_start(NULL, NULL, &ticket);
    assert_int_equal(side_open(&side, memory), 0);
    assert_int_equal(kill(child.pid, SIGSTOP), 0);
    assert_int_equal(waitpid(child.pid, NULL, WUNTRACED), child.pid);
    struct weir_qp_path path = {.blob_length = ticket.granted.blob_length,
                                .blob = ticket.granted.blob};
    assert_int_equal(shm_device_ops.qp_connect(side.qp, &path), WEIR_EINPROGRESS);
    assert_waits(&side, &ticket, 0);
    assert_int_equal(kill(child.pid, SIGCONT), 0);
    struct weir_async event = side_event(&side);
    assert_int_equal(event.type, WEIR_ASYNC_CONNECTED);
    assert_int_equal(event.error, 0);
    struct outcome there = child_connect(&child, &side);
    assert_outcome(&there, 0, 0, 0);
    assert_int_equal(side_import(&side, &ticket, 0), 0);
    assert_int_equal(run_wr(&side, WEIR_OP_WRITE, 0), WEIR_CQE_OK);

    /* Over a link that there is, the memory alone is waited for. */
    shm_device_ops.mr_forget(side.device, &side.remotes[0]);
    int before = held_at_rest();
    assert_int_equal(kill(child.pid, SIGSTOP), 0);
    assert_int_equal(waitpid(child.pid, NULL, WUNTRACED), child.pid);
    assert_waits(&side, &ticket, 0);
    assert_int_equal(held_fds(), before + 1);
    assert_int_equal(kill(child.pid, SIGCONT), 0);
    assert_int_equal(side_import(&side, &ticket, 0), 0);
    assert_int_equal(run_wr(&side, WEIR_OP_WRITE, 0), WEIR_CQE_OK);
    assert_int_equal(held_fds(), before);

    /* An import that nobody comes back for ends after a while, and with its peer. */
    shm_device_ops.mr_forget(side.device, &side.remotes[0]);
    side.remotes[0].rkey = 0;
    assert_int_equal(kill(child.pid, SIGSTOP), 0);
    assert_int_equal(waitpid(child.pid, NULL, WUNTRACED), child.pid);
    assert_waits(&side, &ticket, 0);
    link_health(side.device);
    assert_int_equal(held_fds(), before + 1);
    side.device->asked->since_ns -= SHM_ASKED_NS;
    link_health(side.device);
    assert_int_equal(held_fds(), before);
    assert_null(side.device->asked);
    assert_waits(&side, &ticket, 0);
    child_end(&child);
    assert_int_equal(side_event(&side).type, WEIR_ASYNC_PEER_DEAD);
    assert_null(side.device->asked);
    side_close(&side);
    assert_int_equal(held_fds(), at_first);
}

/* A side, and a child that is stopped: before there is a link between the two, or with one. */
static struct child stopped_child(struct side *side, struct ticket *ticket, bool linked) {
    static uint8_t memory[REGION_BYTES];
    struct child child = child_start(NULL, NULL, ticket);
    assert_int_equal(side_open(side, memory), 0);
    if (linked) {
        assert_int_equal(side_connect(side, ticket), 0);
        struct outcome there = child_connect(&child, side);
        assert_outcome(&there, 0, 0, 0);
    }
    assert_int_equal(kill(child.pid, SIGSTOP), 0);
    assert_int_equal(waitpid(child.pid, NULL, WUNTRACED), child.pid);
    return child;
}

/* An import that nobody comes back for ends with its device, whatever it waits for. */
static void test_W5_imports_that_wait_end_with_the_device(void **state) {
    (void)state;
    for (int linked = 0; linked < 2; linked++) {
        struct side side;
        struct ticket ticket;
        int at_first = held_fds();
        struct child child = stopped_child(&side, &ticket, linked);
        assert_waits(&side, &ticket, 0);
        side_close(&side);
        child_end(&child);
        assert_int_equal(held_fds(), at_first);
    }
}

/* `w`: writes to the other's memory, anew each time, until it cannot; then it says so. */
static bool obey_write(struct side *side, char letter, int from, int to) {
    uint8_t round = 1;
    (void)from;
    do
        memset(side->mrs[0].base, round++, REGION_BYTES / 2);
    while (run_wr(side, WEIR_OP_WRITE, 0) == WEIR_CQE_OK);
    put(to, &letter, 1);
    return true;
}

/* S13: a peer that is stopped inside a write keeps our QP until it is out of it; once the QP is
 * given back, no byte of our memory changes. */
static void test_S13_a_peer_that_is_stopped_inside_a_write_is_waited_for(void **state) {
    (void)state;
    enum { ROUNDS = 10, ROUNDS_MAX = 1000 };
    static uint8_t memory[REGION_BYTES], then[REGION_BYTES];
    int inside = 0, round = 0;
    for (; round < ROUNDS || (inside == 0 && round < ROUNDS_MAX); round++) {
        struct side side;
        struct ticket ticket;
        char letter = 'w';
        struct child child = child_start(NULL, obey_write, &ticket);
        assert_int_equal(side_open(&side, memory), 0);
        assert_int_equal(side_connect(&side, &ticket), 0);
        struct outcome there = child_connect(&child, &side);
        assert_outcome(&there, 0, 0, 0);
        put(child.to, &letter, 1);
        const volatile uint8_t *first = side.mrs[0].base;
        while (*first == 0) /* it has begun */
            sched_yield();
        nanosleep(&(struct timespec){.tv_nsec = round * 17 * 1000}, NULL);
        assert_int_equal(kill(child.pid, SIGSTOP), 0);
        assert_int_equal(waitpid(child.pid, NULL, WUNTRACED), child.pid);
        int rc = shm_device_ops.qp_destroy(side.qp);
        inside += rc == WEIR_EBUSY;
        if (rc == 0)
            memcpy(then, side.mrs[0].base, REGION_BYTES);
        else
            assert_int_equal(rc, WEIR_EBUSY);
        assert_int_equal(kill(child.pid, SIGCONT), 0);
        if (rc != 0) {
            while ((rc = shm_device_ops.qp_destroy(side.qp)) == WEIR_EBUSY)
                sched_yield();
            assert_int_equal(rc, 0);
            memcpy(then, side.mrs[0].base, REGION_BYTES);
        }
        side.qp = NULL;
        assert_true(get(child.from, &letter, 1)); /* it has written all that it will */
        assert_memory_equal(then, side.mrs[0].base, REGION_BYTES);
        child_end(&child);
        side_close(&side);
    }
    assert_true(inside > 0);
}

/* `w`, `r`: writes to, or reads from, the other's registered memory, until it cannot. */
static bool obey_call(struct side *side, char letter, int from, int to) {
    (void)from;
    memset(side->mrs[1].base, PATTERN, REGION_BYTES);
    while (run_wr(side, letter == 'w' ? WEIR_OP_WRITE : WEIR_OP_READ, 1) == WEIR_CQE_OK) {
    }
    uint32_t changed = 0;
    for (uint64_t i = 0; i < REGION_BYTES; i++)
        changed += ((const uint8_t *)side->mrs[1].base)[i] != PATTERN;
    put(to, &changed, sizeof changed);
    return true;
}

/* Holds the child where it enters a system call of this number. False: it may not be traced. */
static bool hold_in_call(const struct child *child, long number) {
    if (ptrace(PTRACE_SEIZE, child->pid, 0, PTRACE_O_TRACESYSGOOD) != 0 ||
        ptrace(PTRACE_INTERRUPT, child->pid, 0, 0) != 0)
        return false;
    for (;;) {
        int status;
        assert_int_equal(waitpid(child->pid, &status, __WALL), child->pid);
        assert_true(WIFSTOPPED(status));
        struct __ptrace_syscall_info info;
        assert_true(ptrace(PTRACE_GET_SYSCALL_INFO, child->pid, sizeof info, &info) > 0);
        if (info.op == PTRACE_SYSCALL_INFO_ENTRY && (long)info.entry.nr == number)
            return true;
        assert_int_equal(ptrace(PTRACE_SYSCALL, child->pid, 0, 0), 0);
    }
}

/* S13: a device that is closed while a peer is held on its way into a system call on our memory:
 * that call moves nothing any more, neither here nor there. */
static void test_S13_a_call_that_was_held_moves_nothing_once_memory_is_revoked(void **state) {
    (void)state;
    static uint8_t memory[REGION_BYTES];
    for (int reads = 0; reads < 2; reads++) {
        struct side side;
        struct ticket ticket;
        struct child child = child_start(NULL, obey_call, &ticket);
        memset(memory, PATTERN, sizeof memory);
        assert_int_equal(side_open(&side, memory), 0);
        assert_int_equal(side_connect(&side, &ticket), 0);
        struct outcome there = child_connect(&child, &side);
        assert_outcome(&there, 0, 0, 0);
        put(child.to, reads ? "r" : "w", 1);
        if (!hold_in_call(&child, reads ? SYS_process_vm_readv : SYS_process_vm_writev)) {
            print_message("a child may not be traced here\n");
            child_end(&child);
            side_close(&side);
            skip();
        }
        assert_int_equal(shm_device_ops.qp_destroy(side.qp), WEIR_EBUSY);
        if (!reads) /* else revoke itself has to wait for the call */
            assert_int_equal(shm_device_ops.mr_release(side.device, &side.mrs[1]), WEIR_EBUSY);
        shm_device_ops.revoke(side.device);
        assert_int_equal(shm_device_ops.mr_release(side.device, &side.mrs[1]), WEIR_EBUSY);
        memset(memory, ~PATTERN, sizeof memory); /* the application has it back */
        assert_int_equal(ptrace(PTRACE_DETACH, child.pid, 0, 0), 0);
        uint32_t changed;
        assert_true(get(child.from, &changed, sizeof changed));
        assert_int_equal(changed, 0);
        for (uint64_t i = 0; i < REGION_BYTES; i++)
            assert_int_equal(memory[i], (uint8_t)~PATTERN);
        side_close(&side); /* the QP, and then the memory, can be given back now */
        child_end(&child);
    }
}

static void *kill_soon(void *argument) {
    const struct child *child = argument;
    struct timespec pause = {.tv_nsec = 50 * 1000 * 1000};
    nanosleep(&pause, NULL);
    kill(child->pid, SIGKILL);
    return NULL;
}

/* It dies while it is asked for its memory: before there is a link to it, and with one. */
static void test_W4_a_peer_that_dies_before_it_answers_is_dead(void **state) {
    (void)state;
    for (int linked = 0; linked < 2; linked++) {
        struct side side;
        struct ticket ticket;
        struct weir_rmr remote;
        pthread_t thread;
        struct child child = stopped_child(&side, &ticket, linked);
        assert_int_equal(pthread_create(&thread, NULL, kill_soon, &child), 0);
        assert_int_equal(import_of(side.device, &ticket, 0, &remote), WEIR_EPEER);
        pthread_join(thread, NULL);
        child_end(&child);
        side_close(&side);
    }
}

/* A QP that is given up while its link is being opened: in any order, nothing is left. */
static void test_W5_who_waits_for_a_link_may_give_up(void **state) {
    (void)state;
    static uint8_t memory[REGION_BYTES];
    struct side side;
    struct ticket ticket;
    int before = held_fds();
    struct child child = child_start(NULL, NULL, &ticket);
    assert_int_equal(kill(child.pid, SIGSTOP), 0);
    assert_int_equal(waitpid(child.pid, NULL, WUNTRACED), child.pid);
    for (int way = 0; way < 2; way++) {
        assert_int_equal(side_open(&side, memory), 0);
        struct weir_qp_path path = {.blob_length = ticket.granted.blob_length,
                                    .blob = ticket.granted.blob};
        assert_int_equal(shm_device_ops.qp_connect(side.qp, &path), WEIR_EINPROGRESS);
        if (way == 1) {
            assert_int_equal(shm_device_ops.qp_error(side.qp), 0);
            struct weir_async event = side_event(&side);
            assert_int_equal(event.type, WEIR_ASYNC_CONNECTED);
            assert_int_equal(event.error, WEIR_ECANCELED);
        }
        side_close(&side);
    }
    child_end(&child);
    assert_int_equal(held_fds(), before);
}

int main(int argc, char **argv) {
    struct weir_device_caps caps;
    if (argc > 4 && strcmp(argv[1], "--another-program") == 0)
        return another_program(argv + 2);
    if (shm_device_ops.probe(NULL, &caps) != 0)
        return 77; /* meson: skipped */
    ssize_t length = readlink("/proc/self/exe", own_path, sizeof own_path - 1);
    if (os_env_init(&child_env) != 0 || length <= 0)
        return EXIT_FAILURE;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_W4_registered_memory_of_a_replaced_program_is_not_touched),
        cmocka_unit_test(test_W4_a_program_that_imitates_the_peer_is_no_success),
        cmocka_unit_test(test_W4_exec_is_a_death),
        cmocka_unit_test(test_W4_closing_is_a_death),
        cmocka_unit_test(test_W5_a_stopped_peer_keeps_nobody),
        cmocka_unit_test(test_W5_imports_that_wait_end_with_the_device),
        cmocka_unit_test(test_S13_a_peer_that_is_stopped_inside_a_write_is_waited_for),
        cmocka_unit_test(test_S13_a_call_that_was_held_moves_nothing_once_memory_is_revoked),
        cmocka_unit_test(test_W5_who_waits_for_a_link_may_give_up),
        cmocka_unit_test(test_W4_a_peer_that_dies_before_it_answers_is_dead),
    };
    return cmocka_run_group_tests_name("shm peers that change", tests, NULL, NULL);
}
