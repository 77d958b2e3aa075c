/* SPDX-License-Identifier: Apache-2.0 */
/* engines.h: up to three engines over the device under test, in one thread, with memory that is
 * filled, who know each other: what the tests of messages on every device (E4) share.
 *
 * Engine 0 receives in most tests, and its ports are of the second device of a pair; 1 and 2 have
 * the first one. The device of all is wrapped, so that a test can break QPs in the middle of what
 * is posted. Nothing here depends on how fast the machine is: a wait ends with what it waits for,
 * or fails the test after the world's patience. */
#ifndef WEIR_CONFORMANCE_ENGINES_H
#define WEIR_CONFORMANCE_ENGINES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "engine.h"

#define MS     UINT64_C(1000000)
#define SECOND (1000 * MS)

enum { ENGINES_MAX = 3, ENGINE_BYTES = 1 << 18 };

struct engines;

/* The hooks of a device under test. The ports that they fill are of one life of an engine. */
struct engines_world {
    const char *name;
    uint64_t patience_ns; /* by the clock of the ports; only a hang takes as long */
    /* A world without engines. 0 or a WEIR_E* code. */
    int (*open)(struct engines_world *world, struct engines *engines);
    void (*close)(struct engines_world *world);
    /* The ports of an engine, before it is created and after it is closed. */
    int (*boot)(struct engines_world *world, uint32_t index, struct weir_ports *ports);
    void (*shut)(struct engines_world *world, uint32_t index, struct weir_ports *ports);
    /* The address that the engine is to have; NULL: any. */
    const char *(*listen)(struct engines_world *world, uint32_t index);
    /* All engines get on for a moment, but those that are paused. */
    void (*turn)(struct engines_world *world, struct engines *engines);
    /* The driver under test tells of a SEND once more for each receive of the shared queue, when
     * the QP goes to the error state meanwhile: its fault, which engines bear, and count. */
    bool sends_repeated;
    void *self; /* the hooks' own */
};

/* Runs the tests of engine_tests.h with cmocka; the number of failed ones. */
int engines_run(struct engines_world *world);

struct engines_options {
    uint32_t count; /* of engines */
    uint32_t qps;
    uint64_t bytes; /* of each one's memory */
};

struct engines {
    struct engines_world *world;
    struct engines_options options;
    struct weir_ports ports[ENGINES_MAX];
    weir_engine *of[ENGINES_MAX]; /* NULL: there is none */
    char address[ENGINES_MAX][WEIR_ADDRESS_MAX];
    weir_memory memory[ENGINES_MAX];
    uint8_t *bytes[ENGINES_MAX];
    weir_peer peers[ENGINES_MAX][ENGINES_MAX]; /* [i][k]: k, as i knows it */
    bool paused[ENGINES_MAX];                  /* nobody makes progress there */
    uint32_t break_wrs; /* so many WRs of data or notes from now their QP breaks; 0: none does */
    uint32_t breaks;    /* how often one did */
};

/* Engines with small limits, whose peers are known and not connected. options NULL: two, with one
 * QP and ENGINE_BYTES. */
void engines_open(struct engines *engines, void **state, const struct engines_options *options);
/* Each engine that is there is in order, got nothing that was malformed, and is closed. */
void engines_close(struct engines *engines);
/* One of them is closed, and has a new life at the same address; all meet it again. */
void engine_shut(struct engines *engines, uint32_t index);
void engine_again(struct engines *engines, uint32_t index);
void engines_meet(struct engines *engines, uint32_t index, uint32_t peer);

uint64_t engines_now(struct engines *engines);
void turn(struct engines *engines);
void some_turns(struct engines *engines);
#define UNTIL(engines, condition)                                                                  \
    do {                                                                                           \
        uint64_t until_begin = engines_now(engines);                                               \
        while (!(condition)) {                                                                     \
            if (engines_now(engines) - until_begin > (engines)->world->patience_ns)                \
                fail_msg("%s:%d: never: %s", __FILE__, __LINE__, #condition);                      \
            turn(engines);                                                                         \
        }                                                                                          \
    } while (0)

weir_engine_info engine_stats(struct engines *engines, uint32_t index);
weir_peer_info peer_of(struct engines *engines, uint32_t index, uint32_t peer);
/* A failure tells both by their names. */
void assert_status(int status, int expected, const char *what);
int status_of(struct engines *engines, uint32_t index, weir_transfer transfer);
/* Until it is terminal; releases it; its status. */
int finish(struct engines *engines, uint32_t index, weir_transfer transfer);

#endif
