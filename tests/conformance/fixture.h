/* SPDX-License-Identifier: Apache-2.0 */
/* fixture.h: the parts that the files of the conformance suite share: two devices of a world, with
 * a region and a QP each, and what tests do with them.
 *
 * Helpers assert what holds for every call: whoever calls them tests it, too. A device may
 * complete a WR in the post (`done`) or later with a CQE, so tests look at outcomes through
 * run_wrs, which takes either. */
#ifndef WEIR_CONFORMANCE_FIXTURE_H
#define WEIR_CONFORMANCE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "conformance.h"
#include "tests.h"

#define REGION_BYTES ((uint64_t)3 << 20)
#define RECV_BYTES   320u
#define RECV_DEPTH   8u
#define SEND_DEPTH   16u
#define DEPTH_MAX    1024u   /* no device grants this much to who asks for SEND_DEPTH */
#define ROUNDS_MAX   100000  /* of poll and advance, before something is called lost */
#define PENDING      0xffffu /* no outcome yet */

/* One device with one region and one QP. Receives lie at the region's start. */
struct side {
    struct weir_device *device;
    struct weir_mr mr;
    struct weir_rmr remote; /* the other side's mr */
    struct weir_qp *qp;
    struct weir_qp_granted granted;
    uint32_t tag; /* of its QP; odd on device a, even on b */
};

struct fixture {
    struct conformance_world *world;
    const struct weir_device_ops *ops;
    struct weir_device_caps caps;
    struct side a, b;
};

/* ---- making and unmaking ---- */

/* Opens the world of a cmocka state; both sides with REGION_BYTES, allocated by their
 * devices or registered, connected. */
void fixture_open(struct fixture *f, void **state, bool is_allocated);
void fixture_close(struct fixture *f);
void make_qp(struct fixture *f, struct side *side);
/* The result of qp_connect, now or with its event. */
int connect_qp(struct fixture *f, struct side *side, const struct weir_qp_granted *other);
/* Both at once, each knowing of the other. */
void connect_crossing(struct fixture *f);
void make_pair(struct fixture *f);
/* Until it is gone; no QP: nothing. */
void destroy_qp(struct fixture *f, struct side *side);
void remake_pair(struct fixture *f);
/* A second pair of QPs between the same devices and regions, with tags 3 and 4. */
void make_sibling(struct fixture *f, struct side *a_out, struct side *b_out);
struct weir_rmr import_mr(struct fixture *f, struct side *owner, struct side *user,
                          const struct weir_mr *mr, uint32_t access);
void forget_mr(struct fixture *f, struct side *user, const struct weir_rmr *remote);
/* length bytes of `memory`, or allocated ones. */
struct weir_mr make_mr(struct fixture *f, struct side *side, void *memory, uint64_t length,
                       uint32_t access, bool is_allocated);

/* Until peers are through with it. */
void release_mr(struct fixture *f, struct weir_device *device, const struct weir_mr *mr);

/* ---- doing ---- */

uint8_t *bytes_of(const struct side *side);
/* Signalled; offsets into the regions of this side and of the other. */
struct weir_wr make_wr(const struct side *side, uint8_t opcode, uint64_t local, uint64_t remote,
                       uint64_t length);
/* Polls until one completion came; false: none will. */
bool wait_cqe(struct fixture *f, const struct side *side, struct weir_cqe *cqe);
void assert_no_cqe(struct fixture *f, const struct side *side);
/* Polls until nothing came for a while: a device may tell of a QP that is gone. */
void drain(struct fixture *f, const struct side *side);
/* Lets pass what is under way, polling nothing. */
void settle(struct fixture *f);
/* Posts signalled WRs as one chain and takes their outcomes, in the order of the
 * chain on ordered devices. All must be accepted. */
void run_wrs(struct fixture *f, const struct side *side, struct weir_wr *wrs, uint32_t count,
             uint32_t *statuses);
uint32_t run_wr(struct fixture *f, const struct side *side, struct weir_wr wr);
/* RECV_BYTES at a slot of the side's region. */
int post_recv(struct fixture *f, const struct side *side, uint64_t wr_id, uint32_t slot);
void fill(uint8_t *bytes, uint64_t length, uint32_t seed);
/* The status of a WR that failed at the target, or found none, or was flushed behind such a one.
 * Where nothing is blamed it was flushed, or the end of its QP came while it was being sent. */
void assert_ended(const struct fixture *f, uint32_t is, uint32_t status);
/* A failed WR of side a: its status, both QPs are made again, the target is as it was. Where
 * there are packets, a write whose source turns out bad on the way has sent those before, and
 * a driver (Soft-RoCE of Linux 6.12) may tell of a bad source as of any other flushed WR, or
 * of an operation that failed; and so is everything told, and sent, where nothing is blamed. */
void expect_failure(struct fixture *f, struct weir_wr wr, uint32_t status);
/* The WR's memory over there, which was imported as `rmr`, was released. A device that sees it
 * refuses the WR, with a good one in front of it or alone, and the QP is as it was. */
void expect_released(struct fixture *f, struct weir_wr wr, const struct weir_rmr *rmr);
/* The target does not give that right. */
void expect_denied(struct fixture *f, struct weir_wr wr);

#endif
