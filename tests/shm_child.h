/* SPDX-License-Identifier: Apache-2.0 */
/* shm_child.h: sides of shm devices in processes of their own, for tests of what the world does
 * to them. A peer is forked, made different, and then opens its device. */
#ifndef SHM_CHILD_H
#define SHM_CHILD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "shm.h"

#define REGION_BYTES ((uint64_t)65536)
/* Where nothing is mapped by itself, in a test and what it execs, with a sanitizer too. */
#define FIXED_PLACE ((void *)(uintptr_t)0x7e9000000000)

extern struct weir_env child_env; /* for the devices of this process, and of children */

/* ---- a side: a device with an allocated (0) and a registered memory (1), and a QP ---- */

struct ticket {
    struct weir_qp_granted granted;
    uint8_t blobs[2][WEIR_MR_BLOB_MAX];
    uint32_t blob_lengths[2];
    uint8_t fabric[WEIR_FABRIC_ID_SIZE];
    uint64_t base; /* of its segment */
    int rc;        /* of opening: no ticket if it is not 0 */
};

struct side {
    struct weir_device *device;
    struct weir_mr mrs[2];
    struct weir_rmr remotes[2];
    struct weir_qp *qp;
    struct ticket ticket;
};

/* registered: REGION_BYTES. */
int side_open(struct side *side, void *registered);
/* The next event of the device; WEIR_ETIMEDOUT in .error if none comes. */
struct weir_async side_event(struct side *side);
/* Both wait for the other process. */
int side_connect(struct side *side, const struct ticket *other);
int import_of(struct weir_device *device, const struct ticket *ticket, int which,
              struct weir_rmr *remote_out);
int side_import(struct side *side, const struct ticket *other, int which);
void side_close(struct side *side);
/* WEIR_CQE_* of one WR on the memory. */
uint32_t run_wr(struct side *side, uint8_t opcode, int which);

/* ---- another process ---- */

struct child {
    pid_t pid;
    int to;
    int from;
};

/* Between parent and child; put ends the process when nobody listens. */
void put(int fd, const void *bytes, size_t length);
bool get(int fd, void *bytes, size_t length);

/* Memory at FIXED_PLACE; NULL: there is some already. */
void *fixed_memory(void);

/* Makes the process what the test needs; false: it cannot be had here (WEIR_ENOTSUP in its
 * ticket). */
typedef bool become_fn(void);
/* Obeys a letter that the process is sent; false: the end. NULL: nothing. */
typedef bool obey_fn(struct side *side, char letter, int from, int to);

struct child child_start(become_fn *become, obey_fn *obey, struct ticket *ticket_out);

/* The results of connecting and of both imports. */
struct outcome {
    int rc[3];
};
/* The child's, with the side. */
struct outcome child_connect(struct child *child, const struct side *side);
/* Kills it. */
void child_end(struct child *child);
void assert_outcome(const struct outcome *outcome, int connected, int allocated, int registered);

#endif
