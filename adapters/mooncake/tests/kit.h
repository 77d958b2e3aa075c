/* SPDX-License-Identifier: Apache-2.0 */
/* kit.h: what the tests of the Mooncake adapter share: engines, bytes that can be told apart, and
 * processes that are targets and do what a line says (target.c).
 *
 * Nothing here looks at how long anything takes: PATIENCE_S only ends what hangs. */
#ifndef KIT_H
#define KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <cmocka.h>

#include "transfer_engine_c.h"

enum { PATIENCE_S = 300 };

/* Bytes of a seed: those of each place differ from those of others and of other seeds. */
void fill(void *bytes, uint64_t place, size_t length, uint64_t seed);
/* The first byte that differs, or -1. */
int64_t differs(const void *bytes, uint64_t place, size_t length, uint64_t seed);

/* Page-aligned memory that is not shared with a child. */
uint8_t *map_bytes(size_t length);

/* An engine on the device of this run, with P2PHANDSHAKE. */
transfer_engine_t open_engine(void);
/* Waits of engines and children that are opened from now on: short ones, where a test is about
 * peers that are not there, which then tries again where one is; or such as only end what hangs. */
void wait_shortly(void);
void wait_long(void);
/* Its name, in static storage of the calling thread. */
const char *name_of(transfer_engine_t engine);

/* Another process. */
struct child {
    pid_t pid;
    int to;
    void *from; /* a FILE */
    char name[512];
    uint64_t base; /* of its buffers, side by side */
    uint64_t length;
    uint64_t count;
};
void child_start(struct child *child);
/* Says the line, and returns the answer without "ok "; fails the test on any other. */
const char *child_say(struct child *child, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The two begin: "open" with this metadata, and count buffers of that length, filled by seed. */
void child_open(struct child *child, const char *metadata, const char *name);
void child_map(struct child *child, uint64_t count, uint64_t length, uint64_t seed);
void child_kill(struct child *child);
/* Stops a process of this one's, and returns when none of its threads runs: kill() alone does not
 * wait for that. SIGCONT lets it go on. */
void process_stop(pid_t pid);
void child_quit(struct child *child);

/* A request of one task. */
transfer_request_t request(int opcode, void *source, segment_id_t target, uint64_t offset,
                           uint64_t length);
/* Until the task is over: its status. */
int wait_task(transfer_engine_t engine, batch_id_t batch, size_t task);
/* Submits, waits for all and frees; the worst status. */
int transfer(transfer_engine_t engine, transfer_request_t *entries, size_t count);
/* Until the condition holds, or the test fails. */
#define UNTIL(condition)                                                                           \
    do {                                                                                           \
        for (uint64_t until_end = seconds() + PATIENCE_S; !(condition);) {                         \
            if (seconds() > until_end)                                                             \
                fail_msg("%s:%d: never: %s", __FILE__, __LINE__, #condition);                      \
            pause_ms();                                                                            \
        }                                                                                          \
    } while (0)
uint64_t seconds(void);
void pause_ms(void);

#endif
