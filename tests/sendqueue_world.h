/* SPDX-License-Identifier: Apache-2.0 */
/* sendqueue_world.h: up to 66 engines in one world, simulated or on shm, of which the first
 * posts through a send queue that the test has in its hands.
 *
 * The first engine's device is wrapped. On shm, which is done with most work in the post, the
 * wrapper is a device that queues: WRs wait, in order, until they are polled for, and give
 * completions. (SENDs go to the shm device's own ring then.) In both worlds the wrapper can
 * keep all completions back, take a part of a chain, and break a QP; it fails the test when
 * a QP holds more WRs than it was granted slots.
 */
#ifndef SENDQUEUE_WORLD_H
#define SENDQUEUE_WORLD_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "engine.h"
#include "world.h"

#define MS     UINT64_C(1000000)
#define SECOND (1000 * MS)

enum { QW_ENGINES = 66, QW_QPS = 256, QW_TURNS_MAX = 4000000 };

struct qw_options {
    uint64_t seed; /* 0: shm */
    uint32_t engines;
    uint64_t bytes;     /* of each engine's memory */
    bool unordered;     /* sim: nothing of a QP comes in order */
    bool isolates;      /* sim, unordered: a WR that fails fails alone */
    uint32_t sq_shared; /* likewise: slots that all peers of an engine share */
    bool inline_;       /* done in the post: sim's device is one that does; shm's is as it is */
    bool own_memory;    /* the test's own, registered; otherwise the engine's */
    bool small_others;  /* but the first engine, which alone submits: of one peer, shallow */
    weir_engine_options limits;
};

struct qw_slow; /* a WR that waits, on shm */

struct qw_qp {
    struct weir_qp *qp; /* NULL: free */
    uint32_t granted;
    bool failed;
    struct qw_slow *slow; /* a ring of those granted */
    uint32_t head, count;
};

struct queue_world {
    struct qw_options options;
    struct sim_world *sim; /* NULL: shm */
    struct weir_ports ports[QW_ENGINES];
    weir_engine *engines[QW_ENGINES];
    weir_memory memory[QW_ENGINES];
    uint8_t *bytes[QW_ENGINES];
    weir_peer peers[QW_ENGINES]; /* as the first engine knows them */
    weir_remote remotes[QW_ENGINES];

    /* The behaviour of the first engine's device. */
    bool stalled;           /* it completes nothing more */
    uint64_t poll_ns;       /* so much longer a poll takes, on shm */
    uint32_t take_of_next;  /* of the next chain that is longer, it takes so many WRs... */
    int take_error;         /* ...if not 0, and says this of the rest */
    uint32_t take_again;    /* ...and so of so many more chains */
    uint32_t takes;         /* how often it did */
    int empty_error;        /* it says this of the next empty write, and takes it not; 0: none */
    uint32_t break_posts;   /* so many posts of data, or of direct messages, from now the QP breaks;
                               0: none does */
    uint64_t wr_ids_zero;   /* WRs that were posted with wr_id 0 */
    uint64_t last_signaled; /* the wr_id of the last one that gives a completion */
    uint64_t signaled;      /* how many do */
    bool frozen[QW_ENGINES]; /* the engine is not run: its process is stopped */

    /* The calls that it got. */
    uint64_t posts, polls, sleeps;

    struct qw_qp qps[QW_QPS];
    struct weir_cqe *cqes;
    uint32_t cqe_head, cqe_count;
};

/* False: there is no shm here. */
bool qw_has_shm(void);
/* Small limits: one QP. */
struct qw_options qw_options(uint64_t seed);
void qw_open(struct queue_world *world, const struct qw_options *options);
/* Peers of the first engine are connected. */
void qw_connect(struct queue_world *world);
void qw_close(struct queue_world *world);
void qw_turn(struct queue_world *world);
/* The first engine's device tells of a completion that nobody asked for. */
void qw_invent(struct queue_world *world, uint64_t wr_id, uint32_t status);
/* Turns until the condition holds, or fails the test. */
#define QW_UNTIL(world, condition)                                                                 \
    do {                                                                                           \
        uint32_t qw_turns = 0;                                                                     \
        while (!(condition)) {                                                                     \
            if (++qw_turns > QW_TURNS_MAX)                                                         \
                fail_msg("%s:%d: never: %s", __FILE__, __LINE__, #condition);                      \
            qw_turn(world);                                                                        \
        }                                                                                          \
    } while (0)

weir_segment qw_segment(const struct queue_world *world, uint32_t peer, uint64_t local,
                        uint64_t remote, uint64_t length);
/* Turns until it is terminal; releases it; its status. */
int qw_finish(struct queue_world *world, weir_transfer transfer);
int qw_status(struct queue_world *world, weir_transfer transfer);
weir_engine_info qw_stats(struct queue_world *world);
weir_peer_info qw_info(struct queue_world *world, uint32_t peer);
/* S1: no slot is taken and nobody waits, and the books of the engine are in order. */
void qw_assert_quiet(struct queue_world *world);

#endif
