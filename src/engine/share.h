/* SPDX-License-Identifier: Apache-2.0 */
/* share.h: messages that share work requests. */
#ifndef WEIR_ENGINE_SHARE_H
#define WEIR_ENGINE_SHARE_H

#include "state.h"

/* Whether the data of the message, none of which is posted, waits for the credit of its note, on
 * the QP of the live session: it is to share a WR then. */
bool share_waits(weir_engine *engine, const struct peer *peer, const struct transfer *transfer);

/* Posts the notes of messages that wait for a credit of QP `index` of the live session, from the
 * first on, in one SEND, and in front of it their data, as far as it waits, too, in one WRITE.
 * Returns how many messages went; adds their bytes. 0: they have to go one by one, or wait. */
uint32_t share_post(weir_engine *engine, struct peer *peer, uint32_t index, uint64_t *bytes);

#endif
