/* SPDX-License-Identifier: Apache-2.0 */
/* test_conformance_messages_efa.c: messages over EFA by libfabric; see conformance/engines.h. Where
 * there is no network card, a provider that plays one (tests/efa), by FI_PROVIDER_PATH. */
#include "device.h"
#include "engines_here.h"

int main(void) {
    const struct conformance_pair pair = {
        .name = "efa", .ops = &efa_device_ops, .advance_ns = 10 * 1000};
    return engines_here_run(&pair);
}
