/* SPDX-License-Identifier: Apache-2.0 */
/* lists.h: the lists of transfers. */
#ifndef WEIR_ENGINE_LISTS_H
#define WEIR_ENGINE_LISTS_H

#include "state.h"

/* The list of peer's that the transfer waits on for a credit of the session's QP `index`. */
static inline uint8_t credit_list(const struct transfer *transfer, uint32_t index) {
    return (uint8_t)((transfer->kind == TRANSFER_PLAIN ? LIST_CREDITS : LIST_WORDS) + index);
}
/* The engine's own: nobody waits for its end. */
static inline bool transfer_is_own(const struct transfer *transfer) {
    return transfer->kind >= TRANSFER_SKIP;
}

/* At the end of the list, which is LIST_ROOM, that of the transfer's stream, or one of the peer's.
 */
void list_push(weir_engine *engine, struct peer *peer, struct transfer *transfer, uint8_t list);
void list_push_front(weir_engine *engine, struct peer *peer, struct transfer *transfer,
                     uint8_t list);
void list_remove(weir_engine *engine, struct transfer *transfer);
void list_push_posted(weir_engine *engine, struct peer *peer, struct transfer *transfer,
                      uint32_t index);
/* Behind another transfer that is there. */
void list_push_behind(weir_engine *engine, struct peer *peer, struct transfer *transfer,
                      uint32_t before, uint8_t list);

#endif
