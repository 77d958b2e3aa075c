/* SPDX-License-Identifier: Apache-2.0 */
/* direct.h: messages that are written where they belong. */
#ifndef WEIR_ENGINE_DIRECT_H
#define WEIR_ENGINE_DIRECT_H

#include "records.h"

enum { DIRECT_MESSAGES = 32 }; /* are written at once, at most */

/* Sends messages, one at least, which ask for nothing but their tags. Returns how many, from the
 * front: those are in the peer's inbox, there is no record of them, and the peer may be due for a
 * turn. Fewer than there are: their number and bytes are bounded, and one
 * that is not plain, or has no room now, is left to submit.c's other ways. */
uint32_t direct_send(weir_engine *engine, struct peer *peer, uint32_t inbox,
                     const weir_outgoing *messages, size_t count);

/* Likewise, a message in a loan that its receiver reads where it is. False: nothing was done. */
bool direct_lend(weir_engine *engine, struct peer *peer, const struct request *request);
/* The first message that waits for room in the stream is in a loan that its receiver reads where it
 * is. True: the receiver has it. */
bool direct_lend_waiting(weir_engine *engine, struct peer *peer, struct stream *stream,
                         const struct transfer *transfer);
/* As outbox_room, and looks for a renewal where there is none. */
bool direct_room(weir_engine *engine, const struct peer *peer, struct stream *stream,
                 uint32_t length);
/* There is room for the first message that waits in the stream. True: it is in the peer's inbox. */
bool direct_put_waiting(weir_engine *engine, struct peer *peer, struct stream *stream,
                        const struct transfer *transfer);

#endif
