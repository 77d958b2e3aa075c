/* SPDX-License-Identifier: Apache-2.0 */
/* test_conformance_messages_shm.c: messages on the shm device; see conformance/engines.h. */
#include "device.h"
#include "engines_here.h"

int main(void) {
    const struct conformance_pair pair = {
        .name = "shm", .ops = &shm_device_ops, .advance_ns = 10 * 1000};
    return engines_here_run(&pair);
}
