/* SPDX-License-Identifier: Apache-2.0 */
/* verbs_fake_cm.h: a connection manager that is played, beside verbs_fake.h: librdmacm's
 * functions, defined in the test program, and one interface with the address 10.77.0.1.
 *
 * The test says what the other side does: it calls, and answers calls. Counts ids and what is taken
 * and acknowledged. Fails the test where the real one would never return, or not soon: when an id
 * goes of which an event was taken and not acknowledged, and when the thread that has the device
 * destroys the id of a call that nobody has answered. An id of a caller exists from when its event
 * is taken; what was not taken goes with its id. */
#ifndef TESTS_VERBS_FAKE_CM_H
#define TESTS_VERBS_FAKE_CM_H

#include <rdma/rdma_cma.h>

#include "verbs_fake.h"

enum { FAKE_CM_EVENTS = 64, FAKE_CALL_MAX = 56 };

struct fake_id {
    struct rdma_cm_id cm;          /* the first */
    struct rdma_event_channel own; /* of an id whose calls block */
    struct fake_count events;
    bool calls;    /* rdma_connect, and no answer */
    bool is_call;  /* of somebody else */
    bool answered; /* by us: accepted, or rejected */
    uint32_t qp_num;
    uint8_t responder_resources, initiator_depth, rnr_retry_count, srq, tos;
    uint16_t to_port; /* host byte order */
    uint8_t said[FAKE_CALL_MAX];
    uint32_t said_length;
};

/* Counts, under a mutex of the fake's: read them while no thread works, or by fake_cm_count. */
struct fake_cm {
    uint32_t ids, channels; /* alive */
    uint32_t dials;         /* rdma_connect, those that worked */
    uint32_t accepts, rejects;
    uint32_t drops; /* calls without an answer that were ended */
    /* errno; 0: none */
    int bind_error, listen_error, resolve_error, route_error, migrate_error, connect_error;
    int accept_error, channel_error;
    uint16_t port;         /* that listens */
    uint32_t late_answers; /* an address is not resolved in time, so often */
};
extern struct fake_cm fake_cm;

/* Everything as new, and this thread the one that has the device. With verbs_fake's. */
void fake_cm_reset(void);
uint32_t fake_cm_count(const uint32_t *of);
/* Until a count is so high. */
void fake_cm_wait(const uint32_t *of, uint32_t least);

/* rdma_connect blocks; so does the end of a call that has no answer. */
void fake_cm_hold_connects(bool held);
void fake_cm_hold_drops(bool held);

/* The id of a QP's connection, as the driver found it when it connected or accepted: NULL: none. */
struct fake_id *fake_cm_id_of(const struct weir_qp *qp);

/* Somebody calls, and says this. */
void fake_cm_call(const void *said, uint32_t length);
/* An event of an id. */
void fake_cm_event(struct fake_id *id, enum rdma_cm_event_type type);
/* How many were not taken. */
uint32_t fake_cm_waiting(void);

/* ---- an iWARP device over it ---- */

/* Three QPs of three entries a slot, and a quarter for shared receives, fill its CQ. */
enum { IWARP_QPS = 3, IWARP_CQ = IWARP_QPS * 3 * GRANTED * 4 / 3 };
/* The peer that the QPs are connected to. */
enum { PEER_PORT = 777, PEER_FENCE_KEY = 4711 };
#define PEER_COOKIE UINT64_C(0x1234567890abcdef)
#define PEER_FENCE  UINT64_C(0x7000123456789008)

struct weir_device *iwarp_open(void);
struct weir_device *iwarp_open_siw(void); /* Linux' software device, by its vendor's number */
/* All ids but the listener's are gone. */
void iwarp_close(struct weir_device *device);
struct weir_qp *iwarp_create(struct weir_device *device, uint32_t tag);
int iwarp_connect(struct weir_qp *qp, uint64_t cookie, bool crossing);
/* Connects it, until the call is on its way, and the device knows; its id. */
struct fake_id *iwarp_dial(struct weir_qp *qp);
struct weir_qp *iwarp_make(struct weir_device *device, uint32_t tag); /* connected */
void iwarp_destroy(struct weir_qp *qp);                               /* however long it takes */

struct weir_async iwarp_event(struct weir_device *device); /* the next */
void iwarp_expect(struct weir_device *device, uint32_t type, const struct weir_qp *qp, int error);
void iwarp_expect_none(struct weir_device *device);
/* Until a link is so far, of which nobody is told. */
void iwarp_until(struct weir_device *device, const struct weir_qp *qp, enum verbs_link link);

#endif
