/* SPDX-License-Identifier: Apache-2.0 */
/* direct.h: messages that are written where they belong. */
#ifndef WEIR_ENGINE_DIRECT_H
#define WEIR_ENGINE_DIRECT_H

#include "records.h"

enum { DIRECT_NOT = 1 };

/* Sends the parts as a message that asks for nothing but a tag, to a peer with a fast_qp. OK: it is
 * in the peer's inbox, and there is no record of it; the peer may be due for a turn. DIRECT_NOT:
 * nothing was done. */
int direct_send(weir_engine *engine, struct peer *peer, uint32_t inbox, const weir_part *parts,
                size_t count, uint64_t tag);

/* Likewise, of a message in a loan that its receiver reads where it is. */
int direct_lend(weir_engine *engine, struct peer *peer, const struct request *request);
/* The first message that waits for room in the stream is in a loan that its receiver reads where it
 * is. True: the receiver has it. */
bool direct_lend_waiting(weir_engine *engine, struct peer *peer, struct stream *stream,
                         const struct transfer *transfer);

#endif
