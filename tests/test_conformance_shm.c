/* SPDX-License-Identifier: Apache-2.0 */
/* test_conformance_shm.c: the shm device through the conformance suite, both devices
 * in this process. */
#include "device.h"
#include "pair.h"

int main(void) {
    const struct conformance_pair pair = {.name = "shm", .ops = &shm_device_ops};
    return conformance_pair_run(&pair);
}
