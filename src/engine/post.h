/* post.h: from pending transfers to chains of WRs on QPs. */
#ifndef WEIR_ENGINE_POST_H
#define WEIR_ENGINE_POST_H

#include "state.h"

void post_service(weir_engine *engine, struct peer *peer, uint64_t bytes_most);
/* The turn of the first on the run list, which is not empty. */
void post_run_first(weir_engine *engine, uint64_t bytes_most);
/* The peer's next transfer is too long for a turn that is shorter than usual. */
static inline bool post_is_long(const weir_engine *engine, const struct peer *peer,
                                uint64_t bytes_most) {
    uint32_t next = peer->lists[LIST_PENDING].head;
    return bytes_most < engine->post_bytes_max && next != NONE &&
           engine->transfers[next].bytes > bytes_most;
}
void post_inflight(weir_engine *engine);
bool post_at_once(weir_engine *engine, struct peer *peer, struct transfer *transfer,
                  uint32_t index);
bool post_heal(weir_engine *engine, struct qp *qp);
bool post_life(weir_engine *engine, const struct peer *peer);
bool post_empty(weir_engine *engine, struct qp *qp);
int post_message(weir_engine *engine, struct peer *peer, struct qp *qp, struct transfer *transfer,
                 uint8_t parts);

#endif
