/* SPDX-License-Identifier: Apache-2.0 */
/* turns.h: whose turn it is to post. */
#ifndef WEIR_ENGINE_TURNS_H
#define WEIR_ENGINE_TURNS_H

#include "state.h"

void turns_serve(weir_engine *engine, struct peer *peer, uint64_t bytes_most);
/* The turn of the first on the run list, which is not empty. */
void turns_next(weir_engine *engine, uint64_t bytes_most);
/* The peer's next transfer is too long for a turn that is shorter than usual. */
static inline bool turns_next_is_long(const weir_engine *engine, const struct peer *peer,
                                      uint64_t bytes_most) {
    uint32_t next = peer->lists[LIST_PENDING].head;
    return bytes_most < engine->post_bytes_max && next != NONE &&
           engine->transfers[next].bytes > bytes_most;
}
void turns_inflight(weir_engine *engine);

#endif
