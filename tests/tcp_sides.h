/* SPDX-License-Identifier: Apache-2.0 */
/* tcp_sides.h: a server's and a client's control channel, and raw sockets that behave
 * as no peer should, for the tests of tcp.c. Loopback only.
 *
 * Events are awaited through the channel's descriptor, so that a channel which has
 * something to say without being readable fails here as it would hang an engine. All
 * functions assert; none returns a failure.
 */
#ifndef WEIR_TCP_SIDES_H
#define WEIR_TCP_SIDES_H

#include <stddef.h>
#include <stdint.h>

#include "os.h"

enum { PATIENCE_MS = 300000, QUIET_MS = 60 };
#define S UINT64_C(1000000000)

extern struct weir_env real;      /* the machine's */
extern const struct weir_env env; /* the channels': as follows */
extern uint64_t skew_ns;          /* added to every reading of the clock */
extern uint64_t skew_step_ns;     /* added to skew_ns by every reading */
extern int allocs_left;           /* before alloc fails; negative: never */

extern struct weir_control server, client;
extern char address[WEIR_ADDRESS_MAX]; /* the server's */

/* For cmocka's setup and teardown; closing finds descriptors that were left. */
int sides_open(const char *listen, uint32_t conns_max);
int sides_close(void **state);
int fd_count(void);

/* One event within the time: 1 or 0. */
int take(struct weir_control *side, struct weir_control_event *event, int wait_ms);
struct weir_control_event expect(struct weir_control *side, enum weir_control_type type);
void expect_closed(struct weir_control *side, uint64_t conn, int error);
void expect_message(struct weir_control *side, uint64_t conn, const void *message, uint32_t length);
/* Nothing for a while, and few wake-ups in it. */
void expect_quiet(struct weir_control *side);
void put(struct weir_control *side, uint64_t conn, const void *message, uint32_t length);
/* The client dials the server; both numbers of the connection. */
void join(uint64_t *at_client, uint64_t *at_server);

uint16_t server_port(void);
int raw_socket(void);
void raw_connect(int fd);
int raw_join(uint64_t *at_server);
void raw_send(int fd, const void *bytes, size_t length);
/* Writes header and message; the length of both. */
size_t frame(uint8_t *out, const void *message, uint32_t length);

#endif
