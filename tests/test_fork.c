/* SPDX-License-Identifier: Apache-2.0 */
/* test_fork.c: the things that a child of fork(2) is kept from having (fork.h): descriptors,
 * mappings of devices, pages; who holds, and who watches (W4). A child tells by its exit status. */
#define _DEFAULT_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "fork.h"

enum { PAGE = 4096 };

/* Not by _exit(2), where ThreadSanitizer looks for threads that the child does not have. */
static _Noreturn void child_ends(int status) {
    syscall(SYS_exit_group, status);
    abort();
}

static void reap(pid_t child) {
    int status = -1;

    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static bool is_open(int fd) {
    return fcntl(fd, F_GETFD) >= 0;
}

/* A mapping is there, if the kernel reads from it. */
static bool is_mapped(const void *page) {
    int fds[2];
    bool there = pipe(fds) == 0 && write(fds[1], page, 1) == 1;

    close(fds[0]);
    close(fds[1]);
    return there;
}

static int own_null(void) {
    fork_hold();
    int fd = fork_own(open("/dev/null", O_RDONLY | O_CLOEXEC));
    fork_release();
    assert_true(fd >= 0);
    return fd;
}

/* ---- descriptors ---- */

static void test_W4_a_child_has_what_is_not_owned(void **state) {
    int fds[3] = {own_null(), open("/dev/null", O_RDONLY), own_null()};

    (void)state;
    fork_hold();
    fork_disown(fds[2]);
    fork_release();
    pid_t child = fork();
    if (child == 0)
        child_ends(is_open(fds[0]) * 1 + !is_open(fds[1]) * 2 + !is_open(fds[2]) * 4);
    reap(child);
    assert_true(is_open(fds[0]) && is_open(fds[1]) && is_open(fds[2]));
    fork_close(fds[0]);
    assert_false(is_open(fds[0]));
    close(fds[1]);
    close(fds[2]);
}

/* A child owns nothing of its parent's any more: a number that was closed is its own. */
static void test_W4_a_child_closes_once(void **state) {
    int fd = own_null();

    (void)state;
    pid_t child = fork();
    if (child == 0) {
        int own = open("/dev/null", O_RDONLY), status = -1;
        if (own != fd)
            child_ends(1);
        pid_t second = fork();
        if (second == 0)
            child_ends(!is_open(own));
        child_ends(waitpid(second, &status, 0) == second && status == 0 ? 0 : 2);
    }
    reap(child);
    fork_close(fd);
}

static void test_W4_high_numbers_too(void **state) {
    struct rlimit before = {0}, limit;
    const int wanted[] = {8191, 8192, 9000};

    (void)state;
    getrlimit(RLIMIT_NOFILE, &before);
    limit = before;
    limit.rlim_cur = limit.rlim_cur > 9001 ? limit.rlim_cur : 9001;
    limit.rlim_max = limit.rlim_max > 9001 ? limit.rlim_max : 9001;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        skip(); /* less is allowed here */
    for (int i = 0; i < 3; i++) {
        int fd = own_null();
        fork_hold();
        assert_int_equal(fork_own(dup2(fd, wanted[i])), wanted[i]);
        fork_release();
        fork_close(fd);
    }
    pid_t child = fork();
    if (child == 0)
        child_ends(is_open(wanted[0]) || is_open(wanted[1]) || is_open(wanted[2]));
    reap(child);
    for (int i = 0; i < 3; i++)
        fork_close(wanted[i]);
    setrlimit(RLIMIT_NOFILE, &before);
}

static void test_no_descriptor_is_an_error_of_open(void **state) {
    (void)state;
    errno = EMFILE;
    assert_int_equal(fork_own(-1), -1);
    assert_int_equal(errno, EMFILE);
    assert_false(fork_note(-1));
    fork_disown(-1);
}

/* ---- memory ---- */

static void test_W4_pages_kept_out_are_not_in_a_child(void **state) {
    (void)state;
    fork_hold();
    uint8_t *pages =
        mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(pages, MAP_FAILED);
    assert_true(fork_keep_out(pages + PAGE, PAGE));
    fork_release();
    pages[0] = pages[PAGE] = pages[2 * PAGE] = 1;
    pid_t child = fork();
    if (child == 0)
        child_ends(!is_mapped(pages) || is_mapped(pages + PAGE) || !is_mapped(pages + 2 * PAGE));
    reap(child);
    assert_true(is_mapped(pages + PAGE));
    munmap(pages, 3 * PAGE);
}

static int file_of_pages(char name[32], int count) {
    strcpy(name, "/tmp/weir-fork-XXXXXX");
    int fd = mkstemp(name);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)count * PAGE), 0);
    return fd;
}

static uint8_t *map_at(int fd, int page) {
    uint8_t *map = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)page * PAGE);
    assert_ptr_not_equal(map, MAP_FAILED);
    return map;
}

/* Files stand for two devices here, one of which is the library's; whatever maps the first. */
static void test_W4_mappings_of_a_device_are_not_in_a_child(void **state) {
    char names[2][32];
    int fds[2] = {file_of_pages(names[0], 200), file_of_pages(names[1], 1)};
    uint8_t *maps[101];

    (void)state;
    for (int i = 0; i < 100; i++)
        maps[i] = map_at(fds[0], 2 * i); /* apart, so that none is merged with another */
    maps[100] = map_at(fds[1], 0);
    fork_hold();
    assert_true(fork_note_device(fds[0]));
    fork_release();
    pid_t child = fork();
    if (child == 0) {
        bool wrong = is_open(fds[0]) || !is_open(fds[1]) || !is_mapped(maps[100]);
        for (int i = 0; i < 100; i++)
            wrong = wrong || is_mapped(maps[i]);
        child_ends(wrong);
    }
    reap(child);
    for (int i = 0; i < 101; i++) {
        assert_true(is_mapped(maps[i]));
        munmap(maps[i], PAGE);
    }
    for (int i = 0; i < 2; i++) {
        unlink(names[i]);
        fork_close(fds[i]); /* of one that is not owned: it is closed */
    }
}

/* ---- who holds, who watches ---- */

struct holder {
    _Atomic bool holds;
    _Atomic bool let_go;
    int fd;
};

static void nap(void) {
    nanosleep(&(struct timespec){.tv_nsec = 2 * 1000 * 1000}, NULL);
}

/* Has a descriptor open that is not noted yet, as one that was just opened. */
static void *hold_main(void *argument) {
    struct holder *holder = argument;

    fork_hold();
    holder->fd = open("/dev/null", O_RDONLY);
    atomic_store(&holder->holds, true);
    for (int i = 0; i < 20; i++)
        nap();
    holder->fd = fork_own(holder->fd);
    atomic_store(&holder->let_go, true);
    fork_release();
    return NULL;
}

static void test_W4_a_fork_waits_for_who_opens(void **state) {
    struct holder holder = {.fd = -1};
    pthread_t thread;

    (void)state;
    assert_int_equal(pthread_create(&thread, NULL, hold_main, &holder), 0);
    while (!atomic_load(&holder.holds))
        nap();
    pid_t child = fork();
    if (child == 0)
        child_ends(!atomic_load(&holder.let_go) || is_open(holder.fd));
    reap(child);
    pthread_join(thread, NULL);
    fork_close(holder.fd);
}

static _Atomic int forked_child;

static void fork_now(int signal_number) {
    (void)signal_number;
    forked_child = fork();
}

/* In a handler of the thread that holds: it cannot wait for itself, and goes on after a while, in
 * both. */
static void test_W4_a_fork_amid_a_hold_of_its_own_ends(void **state) {
    struct sigaction action = {.sa_handler = fork_now}, before;

    (void)state;
    assert_int_equal(sigaction(SIGUSR1, &action, &before), 0);
    fork_hold();
    raise(SIGUSR1);
    fork_release();
    fork_hold();
    fork_release();
    if (forked_child == 0)
        child_ends(0);
    reap(forked_child);
    sigaction(SIGUSR1, &before, NULL);
    pid_t child = fork();
    if (child == 0)
        child_ends(0);
    reap(child);
}

struct watcher {
    struct fork_watch watch; /* the first */
    int told;
};

static void count_it(struct fork_watch *watch) {
    ((struct watcher *)watch)->told++;
}

static void test_W4_who_watches_is_told_once(void **state) {
    struct watcher watchers[3] = {
        {.watch.in_child = count_it}, {.watch.in_child = count_it}, {.watch.in_child = count_it}};

    (void)state;
    for (int i = 0; i < 3; i++)
        assert_true(fork_watch(&watchers[i].watch));
    fork_unwatch(&watchers[1].watch);
    pid_t child = fork();
    if (child == 0) {
        bool wrong = watchers[0].told != 1 || watchers[1].told != 0 || watchers[2].told != 1;
        int status = -1;
        pid_t second = fork();
        if (second == 0)
            child_ends(watchers[0].told != 1 || watchers[2].told != 1);
        child_ends(wrong || waitpid(second, &status, 0) != second || status != 0);
    }
    reap(child);
    for (int i = 0; i < 3; i++)
        assert_int_equal(watchers[i].told, 0);
    fork_unwatch(&watchers[2].watch);
    fork_unwatch(&watchers[0].watch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_W4_a_child_has_what_is_not_owned),
        cmocka_unit_test(test_W4_a_child_closes_once),
        cmocka_unit_test(test_W4_high_numbers_too),
        cmocka_unit_test(test_no_descriptor_is_an_error_of_open),
        cmocka_unit_test(test_W4_pages_kept_out_are_not_in_a_child),
        cmocka_unit_test(test_W4_mappings_of_a_device_are_not_in_a_child),
        cmocka_unit_test(test_W4_a_fork_waits_for_who_opens),
        cmocka_unit_test(test_W4_a_fork_amid_a_hold_of_its_own_ends),
        cmocka_unit_test(test_W4_who_watches_is_told_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
