/* SPDX-License-Identifier: Apache-2.0 */
/* oracle.h: right and wrong, judged from outside the code under test.
 *
 * Owns the memory that applications register, and a record of every transfer that
 * they ever submit. Each segment has ranges of its own on both sides and content
 * of its own, so that every landing byte can be told to be right, stale, late or
 * nobody's. The NIC reports each landing and each fetch before it happens, the
 * workload each submit, status and notification after. */
#ifndef WEIR_SIM_ORACLE_H
#define WEIR_SIM_ORACLE_H

#include "world.h"

enum {
    SIM_REGIONS = 2, /* of each node */
    SIM_REGION_BYTES = 32768,
    SIM_GRANULE = 16, /* ranges of different segments share none */
    SIM_GRANULES = SIM_REGION_BYTES / SIM_GRANULE,
    SIM_LETTERS = 4096, /* among the first so many of a run, none comes twice */
};

/* In the tag of a notification that was sent through an address, and is of no record:
 * oracle_letter.
 */
#define SIM_LETTER (UINT64_C(1) << 62)

struct sim_region {
    uint8_t *base; /* own, or what the engine allocated */
    uint8_t *own;
    bool registered;
    uint32_t version; /* counts registrations */
    uint32_t cursor;
    weir_memory memory;
    size_t descriptor_length;
    uint8_t descriptor[WEIR_DESCRIPTOR_MAX];
    uint32_t owner[SIM_GRANULES]; /* record number; 0: free */
    uint32_t owner_segment[SIM_GRANULES];
};

struct sim_segment {
    uint32_t local_region;
    uint32_t remote_region;
    uint32_t remote_version;
    uint32_t local_offset;
    uint32_t remote_offset;
    uint32_t length;
};

struct sim_transfer {
    uint32_t number; /* from 1; the notification's tag */
    uint32_t from, to;
    uint32_t from_life, to_life;
    bool read, notify, once, queued;
    bool cancelled, peer_closed, released;
    bool terminal;
    bool orphan; /* its engine is gone, or its handle was given back: no end will be seen */
    bool memory_released; /* a side gave up memory under it */
    bool refused;         /* its target had released memory of it before it began */
    bool had_data;        /* when it ended, all of its data was there */
    int status;
    uint32_t notified;
    uint32_t segment_count;
    uint64_t bytes;
    uint64_t fetched; /* of a read, at the target */
    uint64_t deadline_ns;
    uint64_t began_ns, ended_ns;
    uint64_t unfinished_ns;  /* ended: when its node last saw that it had not */
    uint64_t away_before_ns; /* how long its node had been away, when it began */
    struct sim_segment *segments;
    weir_transfer handle;
};

enum { SIM_STALLS = 64 };

/* What a node's application was told of stalls, and what it saw of its transfers: stalls.c. */
struct sim_stalls {
    uint64_t told[SIM_STALLS]; /* handles of which STALLED was told, and neither RESUMED nor GONE */
    uint64_t closed[SIM_STALLS]; /* handles that the application closed once, at least */
    uint32_t told_count, closed_count;
    bool unknown;        /* events were lost */
    bool masked;         /* a handle was closed of which STALLED had been told */
    uint32_t blind;      /* bit i: a transfer to node i was given back before its end */
    uint64_t stepped_ns; /* the last time that it made progress and looked at all transfers */
    uint64_t regular_ns; /* since when it has done so often enough for any watchdog */
    /* By node, when it was last seen there that nothing was outstanding to it; and when something
     * of that was last seen to be done, or nobody could say. */
    uint64_t idle_ns[SIM_RUN_NODES_MAX], active_ns[SIM_RUN_NODES_MAX];
    uint64_t fresh_ns[SIM_RUN_NODES_MAX]; /* likewise, without what only moved */
};

struct sim_oracle {
    struct sim_world *world;
    uint64_t watchdog_ns; /* of all engines */
    struct sim_stalls stalls[SIM_RUN_NODES_MAX];
    struct sim_region regions[SIM_RUN_NODES_MAX][SIM_REGIONS];
    struct sim_transfer *transfers; /* [0] unused */
    uint32_t count;
    uint32_t capacity;
    bool lives_ended; /* a crash or a leave happened in this run */
    uint32_t ok, failed, notifications;
    bool cancels; /* a transfer was cancelled before its handle was given back */
    uint32_t leavers[SIM_RUN_NODES_MAX]; /* of each node: oracle_leavers */
    uint32_t degraded[SIM_RUN_NODES_MAX];
    uint32_t letters;
    uint64_t letters_taken[SIM_LETTERS / 64]; /* one bit each */
};

struct sim_oracle *oracle_open(struct sim_world *world);
void oracle_close(struct sim_oracle *oracle);

/* The tag of a notification that is sent through an address at which node `to` is: it has to reach
 * that node or nobody, and once. */
uint64_t oracle_letter(struct sim_oracle *oracle, uint32_t to);

/* A record with up to want segments, ranges taken and filled; fewer when memory is
 * short, maybe none. If the submit is refused, oracle_withdraw takes the record back. */
struct sim_transfer *oracle_draft(struct sim_oracle *oracle, uint32_t from, uint32_t to, bool read,
                                  uint32_t want, uint32_t bytes_max);
/* The submit was refused: gives the ranges back. */
void oracle_withdraw(struct sim_oracle *oracle, struct sim_transfer *transfer);
/* Whether a status says that the transfer is over at its target, too. */
bool oracle_promises(int status);
/* A terminal status was seen, for the first time or again. */
void oracle_status(struct sim_oracle *oracle, struct sim_transfer *transfer, int status);
void oracle_notification(struct sim_oracle *oracle, uint32_t node,
                         const weir_notification *notification);
/* The payload that a transfer's notification carries; returns its length. */
uint32_t oracle_payload(const struct sim_transfer *transfer, uint8_t *out);
/* The node's process ended: its transfers are orphans, its memory is nobody's. */
void oracle_life_ended(struct sim_oracle *oracle, uint32_t node);
/* The region was released: what others still do to it must be refused. */
void oracle_region_released(struct sim_oracle *oracle, uint32_t node, uint32_t region);
/* The node is about to make a call of its engine, and these, bit i for node i, have said in order
 * that they leave. All events before were taken. */
void oracle_leavers(struct sim_oracle *oracle, uint32_t node, uint32_t leavers);
/* Its application took an event of node `to`; UINT32_MAX: of which is not known. */
void oracle_event(struct sim_oracle *oracle, uint32_t node, uint32_t to, const weir_event *event);
/* It took all of them. */
void oracle_events_taken(struct sim_oracle *oracle, uint32_t node);
/* stalls.c: the node's application begins a life. */
void oracle_stalls_begin(struct sim_oracle *oracle, uint32_t node);
/* The transfer ended, for all that is known; something of it was done. */
void oracle_stalls_ended(struct sim_oracle *oracle, const struct sim_transfer *transfer);
void oracle_stalls_moved(struct sim_oracle *oracle, const struct sim_transfer *transfer);
/* The node's application took an event. to: the node that its handle names, UINT32_MAX: not known.
 */
void oracle_stalls_event(struct sim_oracle *oracle, uint32_t node, uint32_t to,
                         const weir_event *event);
/* It closes a handle. */
void oracle_stalls_closed(struct sim_oracle *oracle, uint32_t node, weir_peer handle);
/* It made progress just now, and has looked at all transfers and events. works: bit i: transfers to
 * node i are not finished; waits: likewise, and that peer is not known to be gone, and nothing else
 * is sent there that the oracle does not know of. */
void oracle_stalls_step(struct sim_oracle *oracle, uint32_t node, uint32_t works, uint32_t waits);
/* After all is quiet: notifications came exactly once. */
void oracle_final(struct sim_oracle *oracle);

#endif
