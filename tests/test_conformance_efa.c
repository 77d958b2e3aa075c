/* SPDX-License-Identifier: Apache-2.0 */
/* test_conformance_efa.c: EFA by libfabric through the conformance suite, both devices in this
 * process. Where there is no network card, a provider that plays one (tests/efa), by
 * FI_PROVIDER_PATH: one that takes what is posted as long as there is room, so that what was posted
 * to a QP before its error state was sent. */
#include <stdlib.h>

#include "device.h"
#include "pair.h"

int main(void) {
    const struct conformance_pair pair = {.name = "efa",
                                          .ops = &efa_device_ops,
                                          .advance_ns = 20 * 1000,
                                          .sends_wait = true,
                                          .devices_talk = true};
    setenv("EFA_FAKE_EAGAIN", "0", 1);
    setenv("EFA_FAKE_HANDSHAKE_US", "0", 1);
    return conformance_pair_run(&pair);
}
