/* SPDX-License-Identifier: Apache-2.0 */
/* net.h: the simulated control network. See net.c. */
#ifndef WEIR_SIM_NET_H
#define WEIR_SIM_NET_H

#include "world.h"

/* The control port of a node; self is the struct sim_node. */
extern const struct weir_control_ops SIM_CONTROL_OPS;

struct sim_net *sim_net_open(struct sim_world *world);
void sim_net_close(struct sim_net *net);
/* The node's process is gone: its connections break. The other ends hear of it,
 * unless silent: then when they next send. */
void sim_net_drop(struct sim_node *node, bool silent);
/* Breaks every connection between two nodes; both ends hear of it. */
void sim_net_break(struct sim_net *net, uint32_t a, uint32_t b);
/* Breaks connections whose other end is gone and not heard of yet: the kernel's
 * keepalive does that in time. */
void sim_net_reap(struct sim_net *net);
/* The nodes, bit i for node i, whose BYE has arrived at this one and was not polled yet, if nothing
 * that ends a session by itself came before it. */
uint32_t sim_net_leavers(const struct sim_node *node);

#endif
