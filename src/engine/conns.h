/* SPDX-License-Identifier: Apache-2.0 */
/* conns.h: control connections: what is sent on them, whose they are, visitors. */
#ifndef WEIR_ENGINE_CONNS_H
#define WEIR_ENGINE_CONNS_H

#include "state.h"

/* False: there is no such connection any more. */
bool conn_send(weir_engine *engine, uint64_t conn, const uint8_t *data, uint32_t length,
               bool again);
bool conn_identify(weir_engine *engine, uint64_t conn, enum wire_type type, const uint8_t *to,
                   uint64_t pass, bool again);
void conn_reply(weir_engine *engine, uint64_t conn, const struct wire_message *message,
                struct wire_message *out);

struct visitor *visitor_add(weir_engine *engine, uint64_t conn);
void visitor_drop(weir_engine *engine, uint64_t conn);

/* Whether the address is of the host at the other end. */
bool conn_vouches(const weir_engine *engine, uint64_t conn, const char *address);
/* Whether the connection, which was dialled by this name, leads to that address. */
bool conn_leads_to(const weir_engine *engine, uint64_t conn, const char *dialled,
                   const char *address);
bool conn_is_of(const struct peer *peer, uint64_t conn);
/* Whether the peer keeps it, and answered on it after it was dialled here. */
bool conn_is_aside(const struct peer *peer, uint64_t conn);
void conn_hangup(weir_engine *engine, struct peer *peer, uint64_t *conn);

#endif
