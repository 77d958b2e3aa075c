/* SPDX-License-Identifier: Apache-2.0 */
/* submit.h: the way in for transfers. */
#ifndef WEIR_ENGINE_SUBMIT_H
#define WEIR_ENGINE_SUBMIT_H

#include "state.h"

/* Takes over the caller's reference. Any thread. */
void submit_cancel(weir_engine *engine, struct transfer *transfer);

/* A message in a loan: loan.c. */
struct submit_loan {
    uint32_t loan; /* plus 1 */
    uint32_t inbox;
    uint64_t round;
    uint64_t peer_id;
    weir_part part;
};
/* With the engine, and no options but a tag: in one go. False: nothing was done. */
bool submit_loan_now(weir_engine *engine, const struct submit_loan *loan, uint64_t tag);
/* As weir_message_send, without the engine. *id_out: the handle of the transfer, also of one that
 * is queued; 0: it is done. */
int submit_loan(weir_engine *engine, const struct submit_loan *loan,
                const weir_transfer_options *options, weir_transfer *transfer_out,
                uint64_t *id_out);

#endif
