/* SPDX-License-Identifier: Apache-2.0 */
/* test_conformance_verbs.c: RDMA devices through the conformance suite, both ends in this process.
 * Skipped where there is none. */
#include "verbs_pair.h"

int main(void) {
    const struct conformance_pair pair = conformance_verbs_pair();
    return conformance_pair_run(&pair);
}
