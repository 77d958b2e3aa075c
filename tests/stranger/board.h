/* SPDX-License-Identifier: Apache-2.0 */
/* board.h: the parts that the processes of the stranger's run share: memory that all of them see,
 * made before they are forked, and the drawing of random numbers.
 *
 * The supervisor (main.c) writes the phase, each side (pair.c) its own report and what the other
 * side needs to reach it, the stranger (stranger.c) its counts. Everybody reads all. */
#ifndef STRANGER_BOARD_H
#define STRANGER_BOARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "weir.h"
#include "wire.h"

#define MS     UINT64_C(1000000)
#define SECOND (1000 * MS)

enum {
    EVENT_TYPES = WEIR_EVENT_DEVICE_FAILED + 1,
    MEMORIES = 3, /* of a side: allocated, registered, and one that nothing is behind */
    HAND_DEEDS = 16,
    CONN_DEEDS = 16
};

enum phase {
    PHASE_BEGIN,  /* the pair connects */
    PHASE_RUN,    /* it is busy, and the stranger comes */
    PHASE_FINISH, /* it ends what it has begun, without the stranger */
    PHASE_LEAVE
};

/* The report of one side of the pair. */
struct report {
    uint64_t transfers_ok, transfers_failed, broken_on_purpose, reads_verified, bytes_verified;
    uint64_t wrong_bytes; /* transfers with content that was never written */
    uint64_t sent, arrived, doubled, foreign, renamed;
    uint64_t own_events[EVENT_TYPES];   /* of the other side */
    uint64_t other_events[EVENT_TYPES]; /* of whomever else */
    uint64_t reopens, imports_again;
    uint64_t longest_ns; /* between two transfers that ended */
    uint64_t longest_reopen_ns;
    int last_error, last_gone, last_break;
    weir_engine_info stats;
};

struct side_board {
    _Atomic bool ready, idle;
    pid_t pid;
    char address[WEIR_ADDRESS_MAX];
    uint8_t descriptors[MEMORIES][WEIR_DESCRIPTOR_MAX];
    size_t descriptor_lengths[MEMORIES];
    _Atomic uint64_t sent, arrived; /* as in the report, while it runs */
    struct report report;
};

/* The stranger's deeds. */
struct deeds {
    uint64_t said[WIRE_TYPE_END], heard[WIRE_TYPE_END];
    uint64_t conns[CONN_DEEDS], hands[HAND_DEEDS];
    uint64_t as_peer, as_self, as_others, passes_overheard;
};

struct board {
    _Atomic enum phase phase;
    _Atomic bool stranger_leaves;
    uint64_t seed;
    bool alone; /* without a stranger: what the pair does by itself */
    struct side_board sides[2];
    struct deeds deeds;
};

extern struct board *board;

/* splitmix64 (Vigna): a state of 64 bits, each of which reaches each bit of what is drawn. */
struct prng {
    uint64_t state;
};
static inline uint64_t mix(uint64_t value) {
    value = (value ^ (value >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ (value >> 27)) * UINT64_C(0x94d049bb133111eb);
    return value ^ (value >> 31);
}
static inline uint64_t draw(struct prng *prng) {
    return mix(prng->state += UINT64_C(0x9e3779b97f4a7c15));
}
static inline uint32_t below(struct prng *prng, uint32_t limit) {
    return (uint32_t)((draw(prng) >> 32) * limit >> 32);
}
static inline bool one_in(struct prng *prng, uint32_t count) {
    return below(prng, count) == 0;
}

uint64_t now_ns(void);
/* Ends the process with a line on standard error. */
_Noreturn void give_up(const char *what, int error);

/* The processes. */
int side_main(int which);
int stranger_main(void);

#endif
