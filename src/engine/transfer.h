/* SPDX-License-Identifier: Apache-2.0 */
/* transfer.h: the life of a transfer once the thread that has the engine has it. */
#ifndef WEIR_ENGINE_TRANSFER_H
#define WEIR_ENGINE_TRANSFER_H

#include "state.h"

void list_push(weir_engine *engine, struct peer *peer, struct transfer *transfer, uint8_t list);
void list_push_front(weir_engine *engine, struct peer *peer, struct transfer *transfer,
                     uint8_t list);
void list_remove(weir_engine *engine, struct transfer *transfer);
void list_push_posted(weir_engine *engine, struct peer *peer, struct transfer *transfer,
                      uint32_t index);
struct peer *transfer_start(weir_engine *engine, struct transfer *transfer);
void transfer_finish(weir_engine *engine, struct transfer *transfer, int status);
void transfer_check(weir_engine *engine, struct transfer *transfer);
void transfer_stop(weir_engine *engine, struct transfer *transfer, int result);
void transfer_timer(weir_engine *engine, struct transfer *transfer);
void transfer_park(weir_engine *engine, struct peer *peer, const struct session *session);
void transfer_unpark(weir_engine *engine, struct peer *peer);
void transfer_judge(weir_engine *engine, struct peer *peer, const struct session *session);
/* judged: the session has drained. */
void transfer_excuse(weir_engine *engine, struct peer *peer, uint64_t epoch, bool refused,
                     bool judged);
void transfer_fail_all(weir_engine *engine, struct peer *peer, int error, bool parked_too);
/* Nobody will say any more what became of our sessions up to `epoch`. */
void transfer_abandon(weir_engine *engine, struct peer *peer, uint64_t epoch, int error);
void transfer_rebind(weir_engine *engine, struct peer *peer);
void transfer_cancel(weir_engine *engine, struct transfer *transfer);

#endif
