/* SPDX-License-Identifier: Apache-2.0 */
/* test_dmabuf.c: weir_memory_register_dmabuf on devices that have no use for a dma-buf, and
 * its arguments. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "weir.h"

static void test_S15_arguments(void **state) {
    (void)state;
    weir_engine *engine;
    weir_memory memory = {0};
    assert_int_equal(weir_engine_open(NULL, &engine), WEIR_OK);
    int (*call)(weir_engine *, int, uint64_t, uint64_t, uint64_t, uint32_t, weir_memory *) =
        weir_memory_register_dmabuf;
    assert_int_equal(call(NULL, 0, 0, 4096, 0, 0, &memory), WEIR_EINVAL);
    assert_int_equal(call(engine, -1, 0, 4096, 0, 0, &memory), WEIR_EINVAL);
    assert_int_equal(call(engine, 0, 0, 0, 0, 0, &memory), WEIR_EINVAL);
    assert_int_equal(call(engine, 0, 0, 4096, 0, 4, &memory), WEIR_EINVAL);
    assert_int_equal(call(engine, 0, 0, 4096, 0, 0, NULL), WEIR_EINVAL);
    assert_int_equal(call(engine, 0, UINT64_MAX, 4096, 0, 0, &memory), WEIR_EINVAL);
    assert_int_equal(call(engine, 0, 0, 4096, UINT64_MAX - 4094, 0, &memory), WEIR_EINVAL);
    for (int i = 0; i < 10000; i++) /* no place is lost */
        assert_int_equal(call(engine, 0, 0, 4096, 0, WEIR_ACCESS_ALL, &memory), WEIR_ENOTSUP);
    assert_int_equal(memory.id, 0);
    weir_engine_close(engine);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_S15_arguments),
    };
    return cmocka_run_group_tests_name("dmabuf", tests, NULL, NULL);
}
