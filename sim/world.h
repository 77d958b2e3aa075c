/* SPDX-License-Identifier: Apache-2.0 */
/* world.h: one simulated world: its time, its chance, its processes.
 *
 * Owns the clock, the event heap, the random stream, the trace and the nodes'
 * environments. A node is a place with an address; a life is one process at it.
 * Time moves only from event to event, and by CLOCK_STEP_NS for every reading of a
 * clock, so that code which spins on its clock gets out.
 *
 * It leaves the NIC to nic.c, the control network to net.c, what applications do
 * to workload.c, and what is right to oracle.c. The world knows an engine only as
 * a function that steps it. */
#ifndef WEIR_SIM_WORLD_H
#define WEIR_SIM_WORLD_H

#include <stdarg.h>
#include <stdio.h>

#include "config.h"
#include "heap.h"
#include "ports.h"
#include "prng.h"

enum { SIM_ADDRESS_MAX = 32, SIM_VIOLATION_MAX = 512 };

struct sim_node;
struct sim_net;

/* A watch on the NIC from outside. Any entry may be NULL. */
struct sim_watch {
    /* Bytes are about to land at `at` in the node's memory. */
    void (*landing)(void *self, struct sim_node *node, const void *at, const void *bytes,
                    uint64_t length);
    /* A device is about to read bytes at `at` in the node's memory. */
    void (*fetch)(void *self, struct sim_node *node, const void *at, uint64_t length);
    void *self;
};

struct sim_block; /* set-up memory that an engine holds */

struct sim_node {
    struct sim_world *world;
    uint32_t index;
    uint32_t life; /* counts processes at this address, from 1 */
    bool alive;
    bool stepping; /* the engine of this node is on the stack */
    bool listening;
    bool woken;     /* something came while it was stepping */
    bool may_sleep; /* it is in a call that is allowed to */
    bool closing;   /* its engine is being closed */
    char address[SIM_ADDRESS_MAX];
    char second[SIM_ADDRESS_MAX]; /* another name of that */
    char told[SIM_ADDRESS_MAX];   /* what it tells others of that; "": the same */
    uint64_t step_at_ns;          /* when the pending step is due; UINT64_MAX: none */
    uint64_t step_ticket;         /* only the newest scheduled step counts */
    uint64_t paused_until_ns;     /* the process is stopped (SIGSTOP), or at work */
    uint64_t stopped_until_ns;    /* it is stopped */
    uint64_t pace_ns;   /* not 0: how often the application looks; an arrival wakes the node only
                         * while it sleeps in a call */
    uint32_t asks;      /* its application asked for a connection: a dial each, at most */
    uint64_t looked_ns; /* when its engine last made progress */
    bool sleeps;        /* until its engine has work: it is not absent */
    uint64_t woke_ns;   /* the end of its last sleep */
    uint64_t away_ns;   /* of this life: the sum of the times by which looks came later than a tenth
                         * of connect_timeout_ns after the last */
    bool absent; /* for once it looked at nothing, or not far, for so long that its peers may have
                  * given it up */
    bool full;   /* for once its engine had no entry for one more peer: one that the application has
                  * closed may have been told to leave, whatever that one does here */
    void (*step)(struct sim_node *node); /* the workload's: runs engine and application */
    struct weir_device *nic;             /* of this life; NULL before open and after a crash */
    struct sim_block *blocks;
    size_t block_bytes;
    uint64_t allocs;         /* ever */
    uint64_t alloc_fails_at; /* the k-th alloc from now fails; 0: none does */
    struct weir_ports ports;
    struct weir_device_ops device_ops; /* the NIC's, with the run's plant */
    void *app;                         /* the workload's */
};

struct sim_world {
    struct sim_config config;
    uint64_t seed;
    struct sim_prng prng;
    struct sim_heap heap;
    uint64_t now_ns;
    uint64_t events;
    uint64_t digest; /* of all events so far: equal runs have equal ones */
    bool faults;     /* false once the world has healed */
    FILE *trace;     /* NULL: none */
    struct sim_net *net;
    struct sim_watch watch;
    struct sim_node nodes[SIM_NODES_MAX];
    bool control_cut[SIM_NODES_MAX][SIM_NODES_MAX];
    bool data_cut[SIM_NODES_MAX][SIM_NODES_MAX];
    uint64_t broke_ns[SIM_NODES_MAX][SIM_NODES_MAX]; /* when a fault last broke control there */
    uint32_t breaks;                                 /* by break_on_send */
    uint64_t qp_uid;                                 /* of the newest QP of this world */
    char violation[SIM_VIOLATION_MAX];               /* the first; "" while all is well */
};

/* A world with config->nodes nodes, no process at any. NULL: no memory. */
struct sim_world *sim_world_open(const struct sim_config *config, uint64_t seed, FILE *trace);
/* All nodes must be dead or their engines closed. */
void sim_world_close(struct sim_world *world);

/* Starts a life: fills node->ports and opens the NIC. 0 or WEIR_ENOMEM. */
int sim_node_boot(struct sim_node *node);
/* Ends a life without a word: the NIC and its QPs vanish, connections break. The
 * engine was abandoned before. `silent`: peers are not told that connections broke. */
void sim_node_crash(struct sim_node *node, bool silent);
/* Ends a life whose engine was closed. */
void sim_node_shutdown(struct sim_node *node);
/* Something arrived for the node: its engine is stepped soon. */
void sim_node_wake(struct sim_node *node);
/* As above, at a given time at the latest. */
void sim_node_wake_at(struct sim_node *node, uint64_t at_ns);
/* For how long it has not looked at its engine, although that had work for it. */
uint64_t sim_node_unlooked_ns(const struct sim_node *node);
/* Whether it tells another's address as its own, and its host vouches for that. It is given up by
 * an engine whose application opens that address, or hears the one that is there. */
bool sim_node_claims(const struct sim_node *node);
/* Whether each node answers at its address as soon as latencies allow, all the time. */
bool sim_ways_open(const struct sim_world *world);

/* Events. at_ns in the past means now. */
void sim_schedule(struct sim_world *world, const struct sim_event *event);
/* Fires the next event; false when there is none. */
bool sim_step(struct sim_world *world);
/* Runs until the clock says until_ns. */
void sim_run_until(struct sim_world *world, uint64_t until_ns);

bool sim_fault(struct sim_world *world, uint32_t rate); /* chance, while faults are on */

void sim_trace(struct sim_world *world, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Notes the first broken property. */
void sim_violation(struct sim_world *world, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
