/* SPDX-License-Identifier: Apache-2.0 */
/* directory.h: published names in a simulated run, and what is right of them. */
#ifndef WEIR_SIM_DIRECTORY_H
#define WEIR_SIM_DIRECTORY_H

#include "workload.h"

struct sim_directory *directory_open(struct sim_run *run);
void directory_close(struct sim_directory *directory);

/* A life of the node begins. */
void directory_start(struct sim_app *app);
/* An act: something is published, withdrawn, looked up or listed. */
void directory_act(struct sim_app *app);
void directory_event(struct sim_app *app, const weir_event *event);
/* The memory of a region was released, or its release has begun: it has no name any more. */
void directory_region_gone(struct sim_app *app, uint32_t region);

/* When nothing is published any more: how many names of peers this node does not have as they are.
 * say: each is a violation. */
uint32_t directory_unsettled(struct sim_app *app, bool say);

#endif
