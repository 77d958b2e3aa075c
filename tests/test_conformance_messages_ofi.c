/* SPDX-License-Identifier: Apache-2.0 */
/* test_conformance_messages_ofi.c: messages over TCP by libfabric; see conformance/engines.h.
 * Skipped where there is no libfabric. */
#include <stdlib.h>

#include "device.h"
#include "engines_here.h"

int main(void) {
    const struct conformance_pair pair = {
        .name = "ofi", .ops = &ofi_device_ops, .advance_ns = 10 * 1000};
    setenv("WEIR_OFI_ADDRESS", "127.0.0.1", 1);
    return engines_here_run(&pair);
}
