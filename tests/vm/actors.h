/* SPDX-License-Identifier: Apache-2.0 */
/* actors.h: the processes of cycles.c: a target that serves memory until told to stop, a writer
 * that writes to targets, and what the parent asks them over pipes.
 *
 * The parent of all of them never opens an engine: what it forks holds nothing of another's. */
#ifndef ACTORS_H
#define ACTORS_H

#include <stdint.h>
#include <sys/types.h>

#include "weir.h"

#define MS          UINT64_C(1000000)
#define SECOND      (1000 * MS)
#define PATIENCE_NS (300 * SECOND)

/* How long a broken peer is tried again before it counts as gone. */
#define CONNECT_TIMEOUT_NS (6 * SECOND)

enum { ACTOR_BYTES = 1 << 18, WRITE_BYTES = 1 << 14, IN_FLIGHT = 4, PATH_MAX_SHOWN = 96 };

/* The address that a target tells once. */
struct actor_address {
    char address[WEIR_ADDRESS_MAX];
    uint8_t descriptor[WEIR_DESCRIPTOR_MAX];
    uint64_t descriptor_length;
};

/* The answer of any actor when asked, by value: it is sent through a pipe. */
struct actor_report {
    weir_engine_info stats;
    uint64_t gone_count;   /* GONE events */
    uint64_t gone_ns;      /* when the last one was taken */
    int64_t gone_error;    /* and its error */
    uint64_t wrong_bytes;  /* of what the writer read back */
    uint64_t terminal_ns;  /* writer: when the last transfer of a dead target was terminal */
    uint64_t failed;       /* writer: transfers that failed */
    int64_t first_failure; /* writer: the first status of these */
};

/* The remains of an actor's engine in a child that the actor forked, as the child found them. The
 * child lives until the pipes to the actor are closed. */
struct actor_orphan {
    int64_t pid;
    uint64_t descriptors;       /* of sockets, connections, things to sleep on */
    uint64_t devices;           /* descriptors of RDMA devices, and of their events */
    uint64_t mappings;          /* of devices, and of what the engine shares */
    int64_t status;             /* of a call on the engine */
    char first[PATH_MAX_SHOWN]; /* of those descriptors and mappings */
};

/* A child, as its parent sees it. */
struct actor {
    pid_t pid;
    int commands; /* we write */
    int answers;  /* we read */
};

uint64_t now_ns(void);
void sleep_ms(uint64_t ms);
_Noreturn void fail(const char *what, int error);
void must(int rc, const char *what);
/* Reads or writes all of it, or fails: also when it takes longer than PATIENCE_NS. */
void pipe_read(int fd, void *bytes, size_t size);
void pipe_write(int fd, const void *bytes, size_t size);

/* Small limits, so that opening is quick; device and rdma_device as for the environment. */
weir_engine *engine_open(const char *device, const char *rdma_device);

/* A process that serves until actor_end. */
struct actor target_start(const char *device, const char *rdma_device,
                          struct actor_address *address_out);
/* The same at this address, not at any. */
struct actor target_start_at(const char *device, const char *rdma_device, const char *listen,
                             struct actor_address *address_out);
/* A process that writes to one target after the other, without end, until that is gone. */
struct actor writer_start(const char *device, const char *rdma_device);
/* Makes a writer begin; returns when its first write has ended well. */
void writer_begin(struct actor *writer, const struct actor_address *target);
/* The same; it forks when its first write has ended well. */
struct actor_orphan writer_begin_and_fork(struct actor *writer, const struct actor_address *target);
/* A target forks. */
struct actor_orphan target_leave_child(struct actor *target);
/* A target becomes another program, which does nothing. */
void target_exec(struct actor *target);
/* Asks an actor, which must not be a writer that is writing. */
struct actor_report actor_ask(struct actor *actor);
/* A writer's report after its target died; waits for it. */
struct actor_report writer_result(struct actor *writer);
void actor_kill(struct actor *actor);
/* The pipes stay, and a child that it forked with them. */
void actor_kill_alone(const struct actor *actor);
void actor_close(const struct actor *actor);
/* Lets it close its engine; its exit status must be 0. */
void actor_end(struct actor *actor);

#endif
