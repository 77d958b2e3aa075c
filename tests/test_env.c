/* SPDX-License-Identifier: Apache-2.0 */
/* test_env.c: the environment port of Linux: clock, entropy, set-up memory, room; and memory that
 * others may read (M11). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <cmocka.h>

#include "os.h"

static struct weir_env env;

static int setup(void **state) {
    (void)state;
    return os_env_init(&env);
}

static void test_clock_never_runs_backwards(void **state) {
    (void)state;
    uint64_t before = env.ops->now(env.self);
    assert_true(before > 0);
    for (int i = 0; i < 100000; i++) {
        const uint64_t now = env.ops->now(env.self);
        assert_true(now >= before);
        before = now;
    }
}

/* Every byte position changes at least once in 16 draws; honest bytes fail that less
 * than once in 2^100 runs. Sizes on both sides of getrandom's 256. */
static void test_entropy_reaches_every_byte(void **state) {
    (void)state;
    static const size_t lengths[] = {1, 16, 255, 256, 257, 4096};
    for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; l++) {
        uint8_t first[4096 + 1] = {0};
        uint8_t changed[4096] = {0};
        const size_t length = lengths[l];
        first[length] = 0xa5;
        env.ops->entropy(env.self, first, length);
        assert_int_equal(first[length], 0xa5);
        for (int draw = 0; draw < 16; draw++) {
            uint8_t next[4096];
            env.ops->entropy(env.self, next, length);
            for (size_t i = 0; i < length; i++) {
                changed[i] |= next[i] != first[i];
            }
        }
        for (size_t i = 0; i < length; i++) {
            assert_true(changed[i]);
        }
    }
    env.ops->entropy(env.self, NULL, 0);
}

static int is_zero(const uint8_t *bytes, size_t length) {
    for (size_t i = 0; i < length; i++) {
        if (bytes[i] != 0) {
            return 0;
        }
    }
    return 1;
}

/* Freed dirty and taken again, so that zeroes are not luck. */
static void test_memory_is_zeroed_and_aligned(void **state) {
    (void)state;
    static const size_t sizes[] = {0, 1, 63, 64, 65, 4096, 131071, 131072, 131073, 1 << 20};
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            uint8_t *memory = env.ops->alloc(env.self, sizes[i]);
            assert_non_null(memory);
            assert_int_equal((uintptr_t)memory % 64, 0);
            assert_true(is_zero(memory, sizes[i]));
            memset(memory, 0xff, sizes[i]);
            env.ops->free(env.self, memory, sizes[i]);
        }
    }
    env.ops->free(env.self, NULL, 4096);
}

static void test_memory_that_cannot_be_had(void **state) {
    (void)state;
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 63, SIZE_MAX / 2};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        assert_null(env.ops->alloc(env.self, sizes[i]));
    }
}

/* Some, and no more than the machine has in all. */
static void test_room_is_that_of_this_machine(void **state) {
    struct sysinfo info;
    (void)state;
    assert_int_equal(sysinfo(&info), 0);
    const uint64_t room = env.ops->room(env.self);
    assert_in_range(room, UINT64_C(1) << 20,
                    ((uint64_t)info.totalram + info.totalswap) * info.mem_unit);
}

/* M11: memory that others may read is theirs to find, by its number, and is gone when it is closed.
 */
static void test_M11_shared_memory_is_found(void **state) {
    enum { BYTES = 200000 };
    struct shared first, second, found;
    (void)state;
    assert_int_equal(shared_find(getpid(), 0, &found), WEIR_ESTALE);
    assert_int_equal(shared_open(BYTES, &first), WEIR_OK);
    assert_int_equal(shared_open(2 * BYTES, &second), WEIR_OK);
    *(uint64_t *)second.base = 42;
    assert_int_equal(shared_find(getpid(), 1, &found), WEIR_OK);
    assert_int_equal(found.bytes, 2 * BYTES);
    assert_int_equal(*(uint64_t *)found.base, 42);
    shared_forget(&found);
    assert_int_equal(shared_find(getpid(), 2, &found), WEIR_ESTALE);
    shared_close(&first);
    shared_close(&first); /* it is zeroed */
    assert_int_equal(shared_find(getpid(), 0, &found), WEIR_OK);
    assert_int_equal(found.bytes, 2 * BYTES);
    shared_forget(&found);
    shared_close(&second);
    assert_int_equal(shared_find(getpid(), 0, &found), WEIR_ESTALE);
}

/* Where a file may not be so long, nobody else can read it, and no signal comes. */
static void test_M11_shared_memory_without_a_file(void **state) {
    enum { BYTES = 200000 };
    struct rlimit before, small;
    struct shared memory, found;
    (void)state;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = BYTES - 1;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    int rc = shared_open(BYTES, &memory);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(rc, WEIR_OK);
    memset(memory.base, 1, BYTES);
    assert_int_equal(shared_find(getpid(), 0, &found), WEIR_ESTALE);
    shared_close(&memory);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clock_never_runs_backwards),
        cmocka_unit_test(test_entropy_reaches_every_byte),
        cmocka_unit_test(test_memory_is_zeroed_and_aligned),
        cmocka_unit_test(test_memory_that_cannot_be_had),
        cmocka_unit_test(test_room_is_that_of_this_machine),
        cmocka_unit_test(test_M11_shared_memory_is_found),
        cmocka_unit_test(test_M11_shared_memory_without_a_file),
    };
    return cmocka_run_group_tests_name("env", tests, setup, NULL);
}
