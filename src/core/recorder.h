/* SPDX-License-Identifier: Apache-2.0 */
/* recorder.h: the last changes of state, in memory that others may read while it is written.
 *
 * A ring of records of five words, and a table of names for the handles in them. One thread writes
 * at a time. A reader, of this process or of another that has the memory mapped, never waits and is
 * never waited for: it takes a record, or a name, for good only if that was not being overwritten
 * meanwhile. So the oldest record is not to be had, and a name may be missing.
 *
 * The memory that a reader is given may hold any bytes, and change while it is read. Owns the
 * layout, and knows no clock and no kind of record. */
#ifndef WEIR_RECORDER_H
#define WEIR_RECORDER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    RECORDER_RECORDS = 4096, /* a power of two; one less can be read */
    RECORDER_NAME = 48,      /* bytes of a name with its terminator; longer ones are cut */
    RECORDER_TEXT = 32       /* likewise, of the engine's device */
};

struct record {
    uint64_t ns; /* of a clock that everybody on this host has */
    uint64_t handle;
    uint32_t kind;
    int32_t error;
    uint64_t a, b;
};

/* The engine that records are of. All numbers are native: readers are on this host. */
struct recorder_owner {
    uint64_t opened_ns;   /* of that clock, */
    uint64_t opened_unix; /* and in seconds since 1970; 0: not known */
    int64_t pid;
    char device[RECORDER_TEXT];
    char address[RECORDER_NAME]; /* where the engine listens; "": nowhere */
};

struct recorder {
    struct recorder_memory *memory; /* NULL: nothing is recorded */
    uint64_t written;               /* as in the memory, which others may write */
    uint32_t names_max;
};

/* The memory of a recorder whose handles have indexes below names_max. */
size_t recorder_bytes(uint32_t names_max);
/* memory: zeroed, of so many bytes, which recorder_bytes says; what is beyond a record's is names.
 */
void recorder_begin(struct recorder *recorder, void *memory, size_t bytes,
                    const struct recorder_owner *owner);
void recorder_add(struct recorder *recorder, const struct record *record);
/* The name of a handle, from its next record on. */
void recorder_name(struct recorder *recorder, uint64_t handle, const char *name);

/* ---- reading ---- */

/* Whether recorder_begin has written to the memory, whatever its layout. */
bool recorder_is_begun(const void *memory, size_t bytes);
/* Whether the memory is a recorder's of this layout. */
bool recorder_is_one(const void *memory, size_t bytes);
void recorder_read_owner(const void *memory, struct recorder_owner *owner_out);
/* Records [first, end) are there now; all numbers count from the first one ever. */
void recorder_range(const void *memory, uint64_t *first_out, uint64_t *end_out);
/* False: it is overwritten. */
bool recorder_read(const void *memory, uint64_t number, struct record *record_out);
/* "": none. bytes: of the memory. */
void recorder_read_name(const void *memory, size_t bytes, uint64_t handle,
                        char name_out[RECORDER_NAME]);

#endif
