/* SPDX-License-Identifier: Apache-2.0 */
/* transfer.h: the life of a transfer once the thread that has the engine has it. */
#ifndef WEIR_ENGINE_TRANSFER_H
#define WEIR_ENGINE_TRANSFER_H

#include "state.h"

/* turn: the caller gives the peer a turn now, and sees to watch_begun behind it. */
struct peer *transfer_start(weir_engine *engine, struct transfer *transfer, bool turn);
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
/* Nobody will say any more what became of our sessions up to `epoch`: what they took along ends
 * with `error`. */
void transfer_abandon(weir_engine *engine, struct peer *peer, uint64_t epoch, int error);
/* The peer is gone, or the engine closes: what is the engine's own ends. */
void transfer_end_own(weir_engine *engine, struct peer *peer);
/* There is a session: so is work that waited for one without asking for it. */
void transfer_unshelve(weir_engine *engine, struct peer *peer);
/* The peer forgot what was put in its inboxes, or is gone: what of it is not under way waits for
 * room again. */
void transfer_unput(weir_engine *engine, struct peer *peer);
/* Messages that wait for room go to another peer's streams: the two are one. */
void transfer_move_room(weir_engine *engine, struct peer *from, struct peer *to);
/* All messages of the stream that wait for room, and what of it is not under way, end. */
void transfer_fail_stream(weir_engine *engine, struct stream *stream, int error);
/* Puts the first message that waits for room where there is some. */
void transfer_put(weir_engine *engine, struct stream *stream);
void transfer_rebind(weir_engine *engine, struct peer *peer);
void transfer_cancel(weir_engine *engine, struct transfer *transfer);

#endif
