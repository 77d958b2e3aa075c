/* SPDX-License-Identifier: Apache-2.0 */
/* test_recorder.c: the ring of changes of state, read while it is written (M11). */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "handle.h"
#include "recorder.h"

enum { NAMES = 4 };

static struct recorder recorder;
static void *memory;

static size_t begin(void) {
    size_t bytes = recorder_bytes(NAMES);
    struct recorder_owner owner = {.opened_ns = 7, .opened_unix = 8, .pid = 9, .device = "lone"};
    memory = calloc(1, bytes);
    assert_non_null(memory);
    recorder_begin(&recorder, memory, bytes, &owner);
    return bytes;
}

static void end(void) {
    free(memory);
}

static struct record of(uint64_t number) {
    return (struct record){.ns = number,
                           .handle = number * 3,
                           .kind = (uint32_t)number,
                           .error = -(int32_t)(uint32_t)(number % 40),
                           .a = number * 5,
                           .b = UINT64_MAX - number};
}

static void add(uint64_t number) {
    struct record record = of(number);
    recorder_add(&recorder, &record);
}

static bool is_of(const struct record *record, uint64_t number) {
    struct record right = of(number);
    return record->ns == right.ns && record->handle == right.handle && record->kind == right.kind &&
           record->error == right.error && record->a == right.a && record->b == right.b;
}

static void test_M11_the_last_ones_are_there(void **state) {
    (void)state;
    uint64_t first, last;
    struct record record;
    begin();
    recorder_range(memory, &first, &last);
    assert_int_equal(first, 0);
    assert_int_equal(last, 0);
    assert_false(recorder_read(memory, 0, &record));
    for (uint64_t i = 0; i < 3 * RECORDER_RECORDS; i++) {
        add(i);
        recorder_range(memory, &first, &last);
        assert_int_equal(last, i + 1);
        assert_int_equal(first, i + 1 < RECORDER_RECORDS ? 0 : i + 2 - RECORDER_RECORDS);
        assert_true(recorder_read(memory, i, &record));
        assert_true(is_of(&record, i));
        assert_true(recorder_read(memory, first, &record));
        assert_true(is_of(&record, first));
        assert_false(recorder_read(memory, i + 1, &record));
        if (first > 0)
            assert_false(recorder_read(memory, first - 1, &record));
    }
    end();
}

static void test_M11_handles_have_names(void **state) {
    (void)state;
    char name[RECORDER_NAME], longer[2 * RECORDER_NAME];
    size_t bytes = begin();
    uint64_t handle = handle_first(2), next = handle_next(handle);
    recorder_read_name(memory, bytes, handle, name);
    assert_string_equal(name, "");
    recorder_name(&recorder, handle, "10.0.0.9:9");
    recorder_read_name(memory, bytes, handle, name);
    assert_string_equal(name, "10.0.0.9:9");
    recorder_read_name(memory, bytes, next, name); /* the entry's next handle is another's */
    assert_string_equal(name, "");
    recorder_name(&recorder, next, "10.0.0.8:9");
    recorder_read_name(memory, bytes, handle, name);
    assert_string_equal(name, "");
    recorder_name(&recorder, next, "10.0.0.7:9"); /* its address is learned later */
    recorder_read_name(memory, bytes, next, name);
    assert_string_equal(name, "10.0.0.7:9");
    memset(longer, 'x', sizeof(longer));
    longer[sizeof(longer) - 1] = '\0';
    recorder_name(&recorder, next, longer);
    recorder_read_name(memory, bytes, next, name);
    assert_int_equal(strlen(name), RECORDER_NAME - 1);
    /* Handles beyond the table have none. */
    recorder_name(&recorder, handle_first(NAMES), "nobody");
    recorder_read_name(memory, bytes, handle_first(NAMES), name);
    assert_string_equal(name, "");
    recorder_read_name(memory, bytes, 0, name);
    assert_string_equal(name, "");
    end();
}

/* Whatever the memory of another process holds, reading it stays inside. */
static void test_M11_any_bytes_can_be_read(void **state) {
    (void)state;
    size_t bytes = begin();
    struct recorder_owner owner;
    struct record record;
    char name[RECORDER_NAME];
    uint64_t first, last;
    assert_true(recorder_is_one(memory, bytes));
    assert_false(recorder_is_one(memory, recorder_bytes(0) - 1));
    for (unsigned fill = 0; fill < 256; fill += 85) {
        memset(memory, (int)fill, bytes);
        assert_false(recorder_is_one(memory, bytes));
        assert_int_equal(recorder_is_begun(memory, bytes), fill != 0);
        recorder_read_owner(memory, &owner);
        assert_true(strlen(owner.device) < RECORDER_TEXT);
        assert_true(strlen(owner.address) < RECORDER_NAME);
        recorder_range(memory, &first, &last);
        assert_true(last - first < RECORDER_RECORDS);
        recorder_read(memory, first, &record);
        recorder_read(memory, last, &record);
        recorder_read_name(memory, bytes, handle_first(NAMES - 1), name);
        assert_true(strlen(name) < RECORDER_NAME);
    }
    end();
}

static void test_M11_without_memory_nothing_is_recorded(void **state) {
    (void)state;
    struct recorder none = {0};
    struct record record = of(1);
    recorder_add(&none, &record);
    recorder_name(&none, handle_first(0), "10.0.0.9:9");
    assert_int_equal(none.written, 0);
}

static _Atomic bool stop;

/* The second handle of an entry has names of 'a's, the third of 'b's, and so on. */
static void rename_one(uint64_t number) {
    char name[RECORDER_NAME] = "";
    memset(name, (int)('a' + number % 4), RECORDER_NAME - 1);
    recorder_name(&recorder, (2 + number % 4) << HANDLE_INDEX_BITS, name);
}

static void *write_on(void *argument) {
    uint64_t *written = argument;
    while (!atomic_load(&stop)) {
        for (int i = 0; i < 64; i++) {
            rename_one(*written);
            add((*written)++);
        }
    }
    return NULL;
}

/* Whether there is a name; if so it is whole, and its handle's. */
static bool name_is_whole(size_t bytes, uint64_t number) {
    char name[RECORDER_NAME];
    recorder_read_name(memory, bytes, (2 + number % 4) << HANDLE_INDEX_BITS, name);
    for (size_t i = 0; name[0] != '\0' && i < RECORDER_NAME - 1; i++)
        assert_int_equal(name[i], 'a' + number % 4);
    return name[0] != '\0';
}

/* A record that is given out is one that was written, never a mixture of two. */
static void test_M11_a_reader_sees_no_mixture(void **state) {
    (void)state;
    enum { GOOD = 20000 };
    pthread_t thread;
    uint64_t written = 0, good = 0, lost = 0, names = 0;
    size_t bytes = begin();
    atomic_store(&stop, false);
    assert_int_equal(pthread_create(&thread, NULL, write_on, &written), 0);
    while (good < GOOD || lost == 0 || names < GOOD / 20) {
        uint64_t first, last;
        struct record record;
        recorder_range(memory, &first, &last);
        for (uint64_t i = first; i < last; i++) {
            bool read = recorder_read(memory, i, &record);
            assert_true(!read || is_of(&record, i));
            good += read;
            lost += !read;
            names += name_is_whole(bytes, i);
        }
    }
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    end();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_M11_the_last_ones_are_there),
        cmocka_unit_test(test_M11_handles_have_names),
        cmocka_unit_test(test_M11_any_bytes_can_be_read),
        cmocka_unit_test(test_M11_without_memory_nothing_is_recorded),
        cmocka_unit_test(test_M11_a_reader_sees_no_mixture),
    };
    return cmocka_run_group_tests_name("recorder", tests, NULL, NULL);
}
