/* SPDX-License-Identifier: Apache-2.0 */
/* conformance.c: runs what tests.h lists; see conformance.h. */
#include "conformance.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests.h"

#define TEST(name) {#name, name, NULL, NULL, world},

int conformance_run(struct conformance_world *world) {
    const struct CMUnitTest tests[] = {CONFORMANCE_TESTS(TEST)};
    return cmocka_run_group_tests_name(world->name, tests, NULL, NULL);
}
