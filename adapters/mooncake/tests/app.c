/* SPDX-License-Identifier: Apache-2.0 */
/* app.c: a program of Mooncake's interface that writes to memory of its own, through its own
 * segment. exports.sh, and the test of the Debian package, link it with each of the adapter's
 * libraries. */
#include "transfer_engine_c.h"
#include <string.h>

int main(void) {
    char bytes[2][4096] = {"moved"};
    transfer_engine_t engine = createTransferEngine("P2PHANDSHAKE", "127.0.0.1", "", 0, 1);
    if (engine == 0 || registerLocalMemory(engine, bytes, sizeof(bytes), "*", 1) != 0)
        return 1;
    struct transfer_request entry = {OPCODE_WRITE, bytes[0], LOCAL_SEGMENT, (uintptr_t)bytes[1],
                                     sizeof(bytes[0])};
    struct transfer_status status = {STATUS_WAITING, 0};
    batch_id_t batch = allocateBatchID(engine, 1);
    if (submitTransfer(engine, batch, &entry, 1) != 0)
        return 2;
    while (status.status == STATUS_WAITING)
        getTransferStatus(engine, batch, 0, &status);
    freeBatchID(engine, batch);
    destroyTransferEngine(engine);
    return status.status == STATUS_COMPLETED && strcmp(bytes[1], "moved") == 0 ? 0 : 3;
}
