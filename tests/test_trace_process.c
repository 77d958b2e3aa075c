/* SPDX-License-Identifier: Apache-2.0 */
/* test_trace_process.c: the changes of state of engines in this process and in others (M11, W4). */
#define _GNU_SOURCE
#include "engine_side.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROOM = 64 * WEIR_TRACE_MIN };

static char text[ROOM];

static int trace_of(pid_t pid, size_t index) {
    size_t length;
    return weir_process_trace(pid, index, WEIR_TRACE_TEXT, text, sizeof(text), &length);
}

static void test_M11_all_engines_of_a_process(void **state) {
    struct side a, b;
    (void)state;
    assert_int_equal(trace_of(getpid(), 0), WEIR_ESTALE);
    pair_open(&a, &b, NULL);
    for (size_t i = 0; i < 2; i++) {
        size_t room = 0;
        assert_int_equal(weir_process_trace(getpid(), i, WEIR_TRACE_JSON, NULL, 0, &room), WEIR_OK);
        assert_true(room > 1 << 20);
        assert_int_equal(trace_of(getpid(), i), WEIR_OK);
        assert_non_null(strstr(text, "a session is up: epoch "));
        assert_non_null(strstr(text, "the application is told: up"));
    }
    assert_int_equal(trace_of(getpid(), 2), WEIR_ESTALE);
    pair_close(&a, &b);
    assert_int_equal(trace_of(getpid(), 0), WEIR_ESTALE);
}

/* A child has no engine, and nothing of its parent's memory; it may look at its parent. */
static void test_M11_in_a_child_of_fork(void **state) {
    struct side a, b;
    (void)state;
    pair_open(&a, &b, NULL);
    pid_t child = fork();
    if (child == 0) {
        size_t length;
        int closed = weir_engine_trace(a.engine, 0, text, sizeof(text), &length);
        int own = trace_of(getpid(), 0), parents = trace_of(getppid(), 1);
        _exit(closed != WEIR_ECLOSED ? 1 : own != WEIR_ESTALE ? 2 : parents != WEIR_OK ? 3 : 0);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    pair_close(&a, &b);
}

/* The memory of an engine that is being opened, before it has its size, and before it is one's. */
static void test_M11_an_engine_that_is_being_opened(void **state) {
    (void)state;
    int fd = memfd_create("weir-trace", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 1 << 20), 0);
    assert_int_equal(trace_of(getpid(), 0), WEIR_ENOTREADY);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
    assert_int_equal(trace_of(getpid(), 0), WEIR_ENOTREADY);
    assert_int_equal(trace_of(getpid(), 1), WEIR_ESTALE);
    assert_int_equal(pwrite(fd, "another version", 15, 0), 15);
    assert_int_equal(trace_of(getpid(), 0), WEIR_ENOTSUP);
    close(fd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_M11_all_engines_of_a_process),
        cmocka_unit_test(test_M11_in_a_child_of_fork),
        cmocka_unit_test(test_M11_an_engine_that_is_being_opened),
    };
    return cmocka_run_group_tests_name("traces of processes", tests, NULL, NULL);
}
