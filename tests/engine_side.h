/* SPDX-License-Identifier: Apache-2.0 */
/* engine_side.h: the parts that the tests of the whole engine share: an engine with memory, pairs
 * of them that know each other, and progress on several until something holds.
 *
 * Everything goes through weir.h, over the shm device. Nothing here waits longer
 * than PATIENCE_NS: a test that would hang fails instead. */
#ifndef ENGINE_SIDE_H
#define ENGINE_SIDE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "weir.h"

#define MS          UINT64_C(1000000)
#define SECOND      (1000 * MS)
#define PATIENCE_NS (600 * SECOND) /* of what comes when it comes: only a hang takes as long */

enum { SIDE_BYTES = 1 << 16 };

/* One engine. Its knowledge of the other is there after side_join. */
struct side {
    weir_engine *engine;
    char address[WEIR_ADDRESS_MAX];
    weir_memory memory;
    uint8_t *bytes;
    uint64_t length;
    weir_peer peer;
    weir_remote remote; /* the other side's memory */
};

/* Small limits, so that opening is quick. */
weir_engine_options side_options(void);
/* options NULL: side_options(). With SIDE_BYTES of allocated memory. */
void side_open(struct side *side, const weir_engine_options *options);
void side_open_bytes(struct side *side, const weir_engine_options *options, uint64_t length);
void side_close(struct side *side);

/* `side` opens the other and imports its memory; makes no connection. */
void side_join(struct side *side, struct side *other);
weir_remote side_import(struct side *side, weir_peer peer, struct side *other, weir_memory memory);
/* Both know each other and a session is up. */
void pair_open(struct side *a, struct side *b, const weir_engine_options *options);
void pair_close(struct side *a, struct side *b);

uint64_t now_ns(void);
/* One round of progress on both; b may be NULL. */
void step(struct side *a, struct side *b);
/* Rounds until the condition holds, or fails the test. */
#define STEP_UNTIL(a, b, condition)                                                                \
    do {                                                                                           \
        uint64_t step_until_end = now_ns() + PATIENCE_NS;                                          \
        while (!(condition)) {                                                                     \
            if (now_ns() > step_until_end)                                                         \
                fail_msg("%s:%d: never: %s", __FILE__, __LINE__, #condition);                      \
            step((a), (b));                                                                        \
        }                                                                                          \
    } while (0)

/* One segment between the start of our memory and of the other side's. */
weir_segment segment_of(const struct side *side, uint64_t local_offset, uint64_t remote_offset,
                        uint64_t length);
/* Progress on both until the transfer is terminal; releases it; its status. */
int finish(struct side *a, struct side *b, weir_transfer transfer);
/* Submits and finishes. */
int write_now(struct side *a, struct side *b, const weir_segment *segments, size_t count,
              const weir_transfer_options *options);
int read_now(struct side *a, struct side *b, const weir_segment *segments, size_t count,
             const weir_transfer_options *options);
void connect_now(struct side *a, struct side *b);
bool is_connected(struct side *side);
weir_engine_info stats_of(struct side *side);
weir_peer_info info_of(struct side *side);
/* The next event of this type; others before it are dropped. */
weir_event next_event(struct side *a, struct side *b, weir_event_type type);

/* Bytes that say where they came from. */
uint8_t pattern(uint64_t seed, uint64_t offset);
void fill_pattern(uint8_t *bytes, uint64_t length, uint64_t seed);

#endif
