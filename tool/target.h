/* SPDX-License-Identifier: Apache-2.0 */
/* target.h: the serving side of a bench session, see proto.h. Internal to target*.c but for
 * target_serve. */
#ifndef TOOL_TARGET_H
#define TOOL_TARGET_H

#include <stdbool.h>
#include <stdint.h>

#include "lent.h"
#include "options.h"
#include "proto.h"
#include "weir.h"

enum served_state {
    SERVED_FREE = 0,
    SERVED_OPEN,
    SERVED_CLOSING, /* its memory is given back as soon as nobody uses it */
    SERVED_LEFT     /* over; the place is free when the client has taken its answers, or is gone */
};

/* A request of a replay between its REQUEST and its CHECKED. */
struct served_seat {
    uint32_t *pages; /* granted; room for list_bytes / 8, from the session's open on */
    uint32_t count;  /* blocks; 0: the seat is idle */
    bool granted;
};

struct served {
    enum served_state state;
    bool answer_close; /* the client asked, and waits for CLOSED */
    uint32_t index;    /* in target.served */
    weir_peer peer;
    char name[WEIR_ADDRESS_MAX]; /* of the client, for people */
    struct proto_open open;
    weir_memory memory;  /* what the client imported */
    weir_memory scratch; /* local source and destination of our own transfers */
    struct lent lent;    /* of a session of faults */
    weir_remote remote;  /* the client's memory, when it was exported */
    unsigned char *base;
    unsigned char *scratch_base;
    uint64_t map_bytes; /* base is our own mapping of this size; 0: weir's */
    uint64_t remote_bytes;
    uint64_t notifications;
    uint64_t answers;     /* ever sent by target_send, or refused since too many were unread */
    uint64_t retry_ns;    /* CLOSING: no try before */
    uint64_t pause_ns;    /* CLOSING: after the next try */
    uint64_t word;        /* PING_MEMORY: the last word seen */
    weir_transfer copied; /* PING_MEMORY: the write of that word, until it has ended */
    uint32_t queued;      /* enum queued: the transfer that is under way */
    /* Sends. */
    weir_inbox inbox;
    uint64_t *due;      /* of each seat: the number of its next message */
    weir_message *held; /* a ring of open.hold */
    uint64_t kept;      /* messages that were put there, ever */
    struct proto_drained drained;
    uint64_t drain_at; /* what is asked for; 0: nothing */
    /* Fill. */
    weir_segment *segments;
    uint64_t repetition;
    uint64_t submitted_ns;
    uint64_t pages_asked;
    struct proto_fill_done fill;
    /* Replay: a ring of free pages, oldest first, so that memory comes back cold. */
    uint32_t *free_pages;
    uint32_t free_head;
    uint32_t free_count;
    struct served_seat *seats;
    uint32_t *waiting; /* ring of seats that wait for pages, in order of arrival */
    uint32_t waiting_head;
    uint32_t waiting_count;
};

struct target {
    const struct options *options;
    weir_engine *engine;
    struct metrics *metrics; /* NULL: not asked for */
    struct served *served;   /* served_max of them; further OPENs are refused with EAGAIN */
    uint32_t served_max;
    uint32_t open_count; /* sessions that are not FREE */
    bool device_failed;
};

/* Runs until SIGINT or SIGTERM. Returns an exit status. */
int target_serve(const struct options *options);

/* Sends a message to the session's client, without waiting. 0, or the error after which the session
 * cannot go on: EAGAIN when the client leaves too many unread. */
int target_send(struct target *target, struct served *served, uint64_t tag, const void *payload,
                uint32_t length, const weir_segment *segments, size_t segment_count);

/* Sends a message to an inbox of the session's client, likewise. */
int target_post(struct target *target, struct served *served, uint32_t inbox, uint64_t tag,
                const weir_part *part);

/* target_work.c: the kinds of session. An int is 0 (of work_watch_word also 1), or a WEIR_E* after
 * which the session is closed. */
int work_open(struct target *target, struct served *served);
void work_close(struct served *served);
/* Bytes that the session's memory and its scratch need; the kind was checked. */
uint64_t work_memory_bytes(const struct proto_open *open);
uint64_t work_scratch_bytes(const struct proto_open *open);
uint64_t work_inbox_bytes(const struct proto_open *open); /* and of those that are held */
int work_check(struct target *target, struct served *served, const weir_notification *message);
int work_pong(struct target *target, struct served *served);
/* Copies the word back if it changed; 1 if it did, 0 or an error. */
int work_watch_word(struct target *target, struct served *served);
int work_fill(struct target *target, struct served *served, const weir_notification *message);
/* The session's queued transfer ended. */
int work_completed(struct target *target, struct served *served, int status);
int work_request(struct target *target, struct served *served, const weir_notification *message);
int work_blocks(struct target *target, struct served *served, const weir_notification *message);
int work_lend(struct target *target, struct served *served);
int work_recall(struct target *target, struct served *served);
int work_strike(struct target *target, struct served *served);

/* target_inbox.c: sessions of messages. Takes some of those that wait: how many; or an error. */
int inbox_open(struct target *target, struct served *served);
int inbox_take(struct target *target, struct served *served);
/* Nothing is held any more, and nobody can send. Harmless at any stage. */
void inbox_shut(struct target *target, struct served *served);
void inbox_free(struct served *served);
int inbox_name(struct target *target, struct served *served);
int inbox_drain(struct target *target, struct served *served, const weir_notification *message);
static inline bool inbox_is_of(const struct served *served) {
    return served->open.kind >= PROTO_KIND_SEND;
}

#endif
