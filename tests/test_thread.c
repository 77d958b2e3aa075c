/* SPDX-License-Identifier: Apache-2.0 */
/* test_thread.c: the signal mask of a thread of the library (thread.h). */
#define _DEFAULT_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "thread.h"

enum { HANDLED = 42, NOT_HANDLED = 43 };

static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};

static void *tell_mask(void *argument) {
    pthread_sigmask(SIG_SETMASK, NULL, argument);
    return NULL;
}

static sigset_t mask_of_a_thread(void) {
    pthread_t thread;
    sigset_t mask;

    sigemptyset(&mask);
    assert_int_equal(thread_create(&thread, NULL, tell_mask, &mask), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    return mask;
}

static bool is_a_fault(int sig) {
    bool is = false;

    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
        is |= faults[i] == sig;
    return is;
}

static void test_signals_of_the_application_stay_out(void **state) {
    sigset_t mask = mask_of_a_thread();

    (void)state;
    for (int sig = 1; sig < 32; sig++) {
        if (sig != SIGKILL && sig != SIGSTOP)
            assert_int_equal(sigismember(&mask, sig), is_a_fault(sig) ? 0 : 1);
    }
    assert_int_equal(sigismember(&mask, SIGRTMIN), 1);
    assert_int_equal(sigismember(&mask, SIGRTMAX), 1);
}

static void test_faults_are_heard_whatever_the_creator_blocks(void **state) {
    sigset_t all, before, after;

    (void)state;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    sigset_t mask = mask_of_a_thread();
    pthread_sigmask(SIG_SETMASK, &before, &after);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        assert_int_equal(sigismember(&mask, faults[i]), 0);
        assert_int_equal(sigismember(&after, faults[i]), 1); /* the creator's own stays */
    }
}

static void on_fault(int sig) {
    _exit(sig == SIGSEGV ? HANDLED : NOT_HANDLED);
}

static void *fault(void *argument) {
    *(volatile int *)argument = 1;
    return NULL;
}

/* Of a fault in a thread that blocks its signal, the kernel says nothing to anybody: it ends the
 * process (signal(7)). */
static void test_a_fault_reaches_the_applications_handler(void **state) {
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        pthread_t thread;
        long page = sysconf(_SC_PAGESIZE);
        signal(SIGSEGV, on_fault);
        if (thread_create(&thread, NULL, fault, (void *)(uintptr_t)(page / 2)) == 0)
            pthread_join(thread, NULL);
        _exit(NOT_HANDLED);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), HANDLED);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_signals_of_the_application_stay_out),
        cmocka_unit_test(test_faults_are_heard_whatever_the_creator_blocks),
        cmocka_unit_test(test_a_fault_reaches_the_applications_handler),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
