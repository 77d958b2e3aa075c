/* SPDX-License-Identifier: Apache-2.0 */
/* doors.h: the strikes on the ways between nodes, and whom applications know. See doors.c. */
#ifndef WEIR_SIM_DOORS_H
#define WEIR_SIM_DOORS_H

#include "workload.h"

/* Before any engine is opened. */
void doors_start(struct sim_run *run);
/* Two nodes, not the same. */
void doors_two(struct sim_world *world, uint32_t *a, uint32_t *b);

/* The name by which the application dials the node. */
const char *doors_name(const struct sim_app *app, uint32_t to);
/* A transfer to the node waits, maybe for a connection. */
void doors_wanted(struct sim_app *app, uint32_t to);
/* After the engine has made progress: who is connected now was so in time. */
void doors_look(struct sim_app *app);

/* The application opened it, and keeps it there in its names. */
void doors_opened(struct sim_app *app, uint32_t at, weir_peer peer);
/* Opens, connects or closes a peer under a name of its own. */
void doors_act(struct sim_app *app);
/* How many connects have no answer yet. */
uint32_t doors_unanswered(const struct sim_app *app);
void doors_say_unanswered(const struct sim_app *app);

/* A notification of this node came under this handle. */
void doors_heard(struct sim_app *app, uint32_t from, weir_peer handle);
void doors_event(struct sim_app *app, const weir_event *event);
/* All events were taken: whatever handle a notification came under was told. */
void doors_judge_told(struct sim_app *app);
/* The application closed it. */
void doors_closed(struct sim_app *app, weir_peer handle);

#endif
