/* SPDX-License-Identifier: Apache-2.0 */
/* workload.h: the application on each node of a simulated run. */
#ifndef WEIR_SIM_WORKLOAD_H
#define WEIR_SIM_WORKLOAD_H

#include "oracle.h"

enum { APP_HELD_MAX = 256, APP_TOLD_MAX = 1024 };

struct app_peer {
    bool open;
    bool gone; /* an event or an error said so: open it anew before use */
    weir_peer handle;
    uint64_t wanted_ns; /* since when a transfer waits for a connection; 0: none does */
    bool met;           /* it was connected */
    bool imported[SIM_REGIONS];
    uint32_t version[SIM_REGIONS]; /* of the region that the remote handle names */
    uint32_t life[SIM_REGIONS];
    weir_remote remote[SIM_REGIONS];
};

/* By which handle the application knows a node's present life. */
struct app_known {
    weir_peer handle; /* 0: it has not heard of it */
    uint32_t life;
    bool up;
};

/* A handle that the application has open, and what it waits to hear of it. */
struct app_name {
    uint64_t handle;   /* 0: none */
    uint64_t same_as;  /* the handle that events about the peer carry: SAME said so */
    uint64_t asked_ns; /* since when weir_peer_connect has no answer; 0: none is due */
};

/* The application of one node; app_start begins each life of it. */
enum { APP_OWN_BYTES = 64 };

struct sim_app {
    struct sim_run *run;
    struct sim_node *node;
    weir_engine *engine; /* NULL: none now */
    struct app_peer peers[SIM_RUN_NODES_MAX];
    struct app_known known[SIM_RUN_NODES_MAX];
    /* The handles in peers, and as many that nothing is sent to. */
    struct app_name names[2 * SIM_RUN_NODES_MAX];
    uint64_t told[APP_TOLD_MAX]; /* the last handles that events told of, or that were opened */
    uint32_t told_count;
    bool events_lost;               /* that may have told of others */
    uint64_t untold;                /* a handle of which an event has to tell; 0: none */
    uint8_t own[2 * APP_OWN_BYTES]; /* memory that the node writes to by itself */
    uint32_t held[APP_HELD_MAX];    /* records whose handle we hold, or that are queued */
    uint32_t held_count;
    uint64_t act_at_ns;
    uint64_t take_at_ns; /* no notification is taken before */
    bool handling;       /* notifications are taken, one after the other, and no progress made */
    uint32_t verified;   /* how often its engine's invariants were */
    bool slept;          /* it went to sleep with nothing to wait for */
};

enum { SIM_OVERHEARD = 16 };

/* The stranger's connections, and its knowledge. */
struct sim_stranger {
    uint8_t instance[16];
    uint64_t epoch;
    uint64_t conns[SIM_RUN_NODES_MAX];  /* to each node, in another's name; 0: none */
    uint64_t visits[SIM_RUN_NODES_MAX]; /* in its own */
    struct sim_overheard {
        uint8_t of[16], by[16]; /* a pass that the one gave, and the other showed */
        uint64_t pass;
    } overheard[SIM_OVERHEARD];
    uint32_t heard;
};

struct sim_mail;      /* mail.h */
struct sim_directory; /* directory.h */

struct sim_run {
    struct sim_world *world;
    struct sim_mail *mail;           /* NULL: no messages are sent */
    struct sim_directory *directory; /* NULL: nothing is published */
    struct sim_oracle *oracle;
    struct sim_app apps[SIM_RUN_NODES_MAX];
    uint32_t submits_left;
    struct sim_stranger stranger;
    bool acting; /* false: only finish what was begun */
};

static inline struct sim_prng *app_prng(const struct sim_app *app) {
    return &app->run->world->prng;
}
/* Records move when one is added: a call that may block adds some. */
static inline struct sim_transfer *app_record(const struct sim_app *app, uint32_t number) {
    return &app->run->oracle->transfers[number];
}

/* acts.c: one act of a node, a submit among others. */
void app_act(struct sim_app *app);

/* workload.c */
void app_submit(struct sim_app *app);
void app_held_drop(struct sim_app *app, uint32_t i);
/* Registers the region's own memory, or has the engine allocate some. */
bool app_region_register(struct sim_app *app, uint32_t index);
bool app_peer_ready(struct sim_app *app, uint32_t to);
void app_peer_drop(struct sim_app *app, uint32_t to);
/* Makes sure that the peer's region is imported. */
bool app_remote_ready(struct sim_app *app, uint32_t to, uint32_t index);

/* Boots the node and opens an engine on it. False: it failed cleanly (a fault). */
bool app_start(struct sim_app *app);
/* As SIGKILL. */
void app_crash(struct sim_app *app, bool silent);
/* weir_engine_close, with whatever is in flight. */
void app_leave(struct sim_app *app);
/* Unfinished transfers that this node can see, and connects without an answer. */
uint32_t app_unfinished(const struct sim_app *app);
/* Releases what is finished; at the end of a run. */
void app_release_finished(struct sim_app *app);

#endif
