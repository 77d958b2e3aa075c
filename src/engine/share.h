/* SPDX-License-Identifier: Apache-2.0 */
/* share.h: messages that share work requests. */
#ifndef WEIR_ENGINE_SHARE_H
#define WEIR_ENGINE_SHARE_H

#include "state.h"

/* Whether the data of the message, none of which is posted, waits for the credit of its note, on
 * the QP of the live session: it is to share a WR then. */
bool share_waits(weir_engine *engine, const struct peer *peer, const struct transfer *transfer);

/* Posts the notes of messages that are first on one of the peer's lists, pending or waiting for a
 * credit of the live session's only QP, in one SEND, and in front of it their data, as far as none
 * of it is posted, in one WRITE. Pending ones have to wait behind those that wait for a credit.
 * Returns how many messages went; adds their bytes. 0: they have to go one by one, or wait. */
uint32_t share_post(weir_engine *engine, struct peer *peer, uint8_t list, uint64_t *bytes);

#endif
