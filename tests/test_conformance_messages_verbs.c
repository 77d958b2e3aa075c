/* SPDX-License-Identifier: Apache-2.0 */
/* test_conformance_messages_verbs.c: messages on RDMA devices, all engines in this process; see
 * conformance/engines.h. Skipped where there is none. */
#include "engines_here.h"
#include "verbs_pair.h"

int main(void) {
    const struct conformance_pair pair = conformance_verbs_pair();
    return engines_here_run(&pair);
}
