/* SPDX-License-Identifier: Apache-2.0 */
/* mail.h: messages in a simulated run: inboxes, letters, and what is right of them. */
#ifndef WEIR_SIM_MAIL_H
#define WEIR_SIM_MAIL_H

#include "workload.h"

/* In the user data of letters, so that their completions are told from those of transfers. */
#define SIM_MAIL (UINT64_C(1) << 61)

struct sim_mail *mail_open(struct sim_run *run);
void mail_close(struct sim_mail *mail);

/* A life of the node began; it ended. */
void mail_start(struct sim_app *app);
void mail_life_ended(struct sim_app *app);
/* An act: a letter is sent or cancelled, an inbox is opened or closed. */
void mail_act(struct sim_app *app);
/* Letters that came are taken, some of them given back; the ends of letters that were sent are
 * heard. */
void mail_look(struct sim_app *app);
void mail_completed(struct sim_app *app, const weir_completion *completion);
/* GONE: the order of what one sends to the other begins anew. UP and RECOVERED: news of the other
 * side come again. */
void mail_event(struct sim_app *app, const weir_event *event);

/* Letters without an end that this node can see. */
uint32_t mail_unfinished(const struct sim_app *app);
void mail_say_stuck(const struct sim_app *app);
/* After all is quiet: what ended well was taken. */
void mail_final(struct sim_mail *mail);

#endif
