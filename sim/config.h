/* SPDX-License-Identifier: Apache-2.0 */
/* config.h: everything that one simulated run may vary; plain data.
 *
 * A profile and a seed fill it (profile.c); the run is a function of it and of the
 * seed. Rates are in 1 / SIM_ALWAYS (prng.h). */
#ifndef WEIR_SIM_CONFIG_H
#define WEIR_SIM_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

enum {
    SIM_NODES_MAX = 104,   /* of a world */
    SIM_RUN_NODES_MAX = 4, /* that profiles draw, the workload drives and the oracle judges */
};

/* How often, and when, a device reports LAST_WQE for a QP in error. Real kernels
 * differ in all of these. */
enum sim_last_wqe {
    SIM_LAST_WQE_NEVER,
    SIM_LAST_WQE_EARLY, /* before the flushes */
    SIM_LAST_WQE_LATE,  /* after them */
    SIM_LAST_WQE_MANY,  /* both, repeated */
    SIM_LAST_WQE_COUNT
};

/* The send-queue depth that a device grants, against the one it is asked for. */
enum sim_grant {
    SIM_GRANT_EXACT,
    SIM_GRANT_POWER_OF_TWO,
    SIM_GRANT_MORE,
    SIM_GRANT_LESS,
    SIM_GRANT_COUNT
};

struct sim_nic_config {
    bool ordered;
    bool isolates; /* a WR that fails fails alone; without order, and where failures are told */
    bool completes_inline;
    bool srq;
    bool cq_clean;         /* destroying a QP removes its CQEs (mlx5 does, others do not) */
    bool fatal_events;     /* a QP that fails by itself reports QP_FATAL */
    bool peer_dead_news;   /* the device knows when the process behind a QP dies */
    bool nak_kills_target; /* a refused access moves the target's QP to ERR, too */
    bool import_maps;      /* an import looks at the memory, as a shared mapping does, */
    bool import_waits;     /* and may have to wait for its owner, or for what a mapping takes */
    bool sees_release;     /* a post knows whether its memory over there was released, as where both
                            * are processes of one host */
    bool qp_rings;         /* each QP has a completion ring of its own, polled in turn */
    bool recv_rings;       /* and one more for its receives: they may come after the flush of
                            * sends that were posted later, a beacon among them */
    bool no_blame;     /* a QP that fails takes the QP of the other side along, and nobody is told
                        * which WR it was that the target refused or that found nobody */
    bool buffers;      /* with no_blame: what comes for a process that is stopped waits in its host,
                        * and is taken when that goes on, whatever became of its sender */
    bool mute_errors;  /* an error that one WR is to blame for comes as a mere flush */
    bool news_first;   /* that a QP failed is told by an event, or by its receives, before the
                        * completion is there that says why */
    uint32_t last_wqe; /* enum sim_last_wqe */
    uint32_t grant;    /* enum sim_grant */
    uint32_t sq_depth_max;
    uint32_t sq_shared; /* slots that all QPs share, without order; 0: each has its own */
    uint32_t rq_depth_max;
    uint32_t mtu_max;
    uint32_t rd_atomic_max;
    uint32_t inline_bytes_max;
    uint32_t gathers_max;   /* pieces of local memory in one write; 0: none gathers */
    uint32_t pieces_max;    /* a message arrives in up to this many packets */
    uint32_t ring_turn_max; /* completions of one ring before the next has its turn */
    uint32_t retry_count;
    uint32_t destroy_fails_max;
    uint32_t qps_max;        /* at once; 0: many */
    uint64_t connect_ns_max; /* a connect may take this long, and is told as an event then */
    uint64_t message_bytes_max;
    uint64_t post_bytes_max;
    uint64_t latency_min_ns;
    uint64_t latency_max_ns;
    uint64_t bytes_per_us; /* that its port sends, and takes; 0: bytes take no time */
    uint64_t late_ns_max;  /* a completion may be this late beyond the latency */
    uint64_t flush_ns_max; /* 0: flushes are there when the call that causes them returns */
    uint64_t rto_ns;       /* retransmission time-out */
    /* rates */
    uint32_t post_eagain;
    uint32_t post_edevice;
    uint32_t post_einval;
    uint32_t qp_fail; /* a post is followed by a failure of the QP */
    uint32_t still;   /* a QP sends nothing any more, completes nothing of that, and says nothing */
    uint32_t packet_loss;
    uint32_t srq_swallow;
    uint32_t mr_fail;
    uint32_t create_fail;
    uint32_t connect_fail;
    uint32_t device_fail; /* after a post the device fails for good: an event says so, and its QPs
                           * go on to work, or fail with it */
    uint32_t recv_refuse; /* from a receive on that is posted, none is taken... */
    uint64_t recv_refuse_ns_max; /* ...for up to this long */
    uint32_t lack; /* from a call on that makes or connects a QP, the node lacks what it takes... */
    uint64_t lack_ns_max; /* ...for up to this long... */
    bool lacks_memory;    /* ...to make QPs; else only a descriptor to connect them */
};

struct sim_net_config {
    uint64_t latency_min_ns;
    uint64_t latency_max_ns;
    /* rates */
    uint32_t loss;
    uint32_t duplicate;
    uint32_t reorder;
    uint32_t break_on_send;
    uint32_t refuse;
    uint32_t full;        /* send answers EAGAIN */
    uint32_t breaks_max;  /* by break_on_send, over the run; 0: no limit */
    uint32_t breaks_type; /* each message of this wire type breaks its connection; 0: none */
};

/* A bug planted at a port, to prove that the oracle sees its like. */
enum sim_plant {
    SIM_PLANT_NONE,
    SIM_PLANT_LOST_COMPLETION, /* one CQE of a healthy QP never arrives */
    SIM_PLANT_EARLY_NOTIFY,    /* the last SEND of a chain is posted before its writes */
    SIM_PLANT_CROSSED_QPS,     /* a QP is connected to a sibling of the one it was given */
    SIM_PLANT_OVERFILL,        /* the device claims a deeper send queue than it has */
    SIM_PLANT_DOUBLE_WRITE,    /* a write is posted again behind its chain */
    SIM_PLANT_LEAKED_QP,       /* a destroy says yes and does nothing */
    SIM_PLANT_LOST_BUFFER,     /* a receive buffer never reaches the device */
    SIM_PLANT_WRONG_PSN,       /* one side is told another starting PSN */
    SIM_PLANT_LOST_MESSAGE,    /* one received message is never reported */
    SIM_PLANT_SKIPPED_WRITE,   /* a write completes and moves nothing */
    SIM_PLANT_KEPT_MEMORY,     /* a release of memory says yes and does nothing */
    SIM_PLANT_COUNT
};

/* The address at which a node tells others that it listens. */
enum sim_told {
    SIM_TOLD_TRUE,
    SIM_TOLD_WILDCARD, /* nothing that can be dialled */
    SIM_TOLD_ANOTHERS, /* the next node's address */
    SIM_TOLD_NOBODYS,
    SIM_TOLD_COUNT
};

/* The events of the run, beside the devices' and the network's own faults. */
struct sim_workload_config {
    uint32_t transfers;      /* submits over the run, all nodes together */
    uint32_t segments_max;   /* of one transfer */
    uint32_t bytes_max;      /* of one segment */
    uint32_t concurrent_max; /* unfinished transfers of a node */
    uint64_t think_ns_max;   /* between two acts of a node */
    uint64_t rest_ns_max;    /* the same, now and then; 0: never */
    uint64_t pause_ns_max;   /* a node that is stopped for a while */
    /* chances of an act or a property of a transfer */
    uint32_t notify;
    uint32_t reads;
    uint32_t queued;
    uint32_t once;
    uint32_t deadline;
    uint32_t cancel;
    uint32_t early_release;
    uint32_t bad_segment;
    uint32_t memory_release;
    uint32_t stale; /* imports are used on, though the target has released their memory */
    uint32_t peer_close;
    uint32_t ask; /* an act begins with weir_peer_connect, or with another name of a peer's */
    uint32_t pause;
    uint32_t crash;
    uint32_t leave;            /* weir_engine_close in the middle, then a new life */
    uint32_t leave_connecting; /* the same, of one whose NIC connects a QP just then */
    uint32_t cut_control;
    uint32_t cut_data;
    bool cut_kept;       /* when the world heals, data between two nodes is cut for good */
    bool stops_kept;     /* the stopped go on in their own time, also when the world has healed */
    uint32_t slow_taker; /* notifications are left lying for a while */
    uint32_t block;      /* a submit may wait for room */
    uint32_t wait;       /* an act waits for a transfer or for news */
    uint32_t allocate;   /* memory comes from the engine */
    bool crowded;        /* more letters are under way than there are credits for their notes */
    uint32_t hasty;      /* acts come before the engine has caught up */
    uint32_t crossing;   /* the first submits of all nodes fall together */
    bool doors;          /* only what doors.c does strikes: every peer lives */
    uint32_t reset;      /* the control connections between two nodes end */
    bool ring;           /* each submits to the one before it alone */
    uint32_t long_cut;   /* control is cut for up to four connect time-outs */
    uint32_t stranger;   /* somebody says a word in another's name */
    uint32_t told[SIM_RUN_NODES_MAX]; /* enum sim_told */
    bool one_host; /* the nodes are at ports of one host, which so vouches for what each tells */
    bool second_name[SIM_RUN_NODES_MAX][SIM_RUN_NODES_MAX]; /* the first dials the other by that */
    bool prompt; /* nobody waits for a pause before it is connected */

    bool mail;       /* messages are sent, too */
    bool names;      /* names are published and looked up, too */
    uint32_t steady; /* of the nodes, the first so many never stop */
    uint32_t scale;  /* the run's own times are so many times as long; 0: once */
    /* Applications that are slow: 0 for one that does all at once. */
    uint64_t pace_ns[SIM_RUN_NODES_MAX];    /* looks so often, and only then: nothing wakes it */
    uint64_t handler_ns[SIM_RUN_NODES_MAX]; /* works up to this long on each notification */
};

/* Limits given to every engine. 0: the library's default. */
struct sim_engine_config {
    uint32_t transfers_max;
    uint32_t segments_max;
    uint32_t qp_count[SIM_NODES_MAX];
    uint32_t sq_depth[SIM_NODES_MAX];
    uint32_t chain_max;
    uint32_t signal_interval;
    uint32_t inline_bytes;
    uint32_t poll_budget;
    uint32_t recv_credits;
    uint32_t credits_of[SIM_NODES_MAX]; /* of a node that has another number; 0: it has not */
    uint32_t notifications_max;
    uint64_t connect_timeout_ns;
    uint64_t retransmit_ns;
    uint64_t teardown_timeout_ns;
    uint64_t settle_grace_ns;
    uint64_t stall_timeout_ns;
    uint64_t backoff_timeout_ns;
    uint64_t inflight_bytes_max;
};

struct sim_config {
    const char *profile;
    uint32_t nodes;
    uint32_t plant;       /* enum sim_plant */
    uint64_t step_ns_max; /* from something arriving until the engine is stepped */
    struct sim_nic_config nic[SIM_NODES_MAX];
    struct sim_net_config net;
    struct sim_workload_config work;
    struct sim_engine_config engine;
};

#endif
