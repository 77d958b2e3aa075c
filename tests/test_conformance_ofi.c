/* SPDX-License-Identifier: Apache-2.0 */
/* test_conformance_ofi.c: TCP by libfabric through the conformance suite, both devices in this
 * process, over loopback. Skipped where there is no libfabric. */
#include <stdlib.h>

#include "device.h"
#include "pair.h"

int main(void) {
    const struct conformance_pair pair = {
        .name = "ofi", .ops = &ofi_device_ops, .advance_ns = 20 * 1000, .sends_wait = true};
    setenv("WEIR_OFI_ADDRESS", "127.0.0.1", 1);
    return conformance_pair_run(&pair);
}
