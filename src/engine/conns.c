/* SPDX-License-Identifier: Apache-2.0 */
/* conns.c: control connections: what is sent on them, whose they are, visitors.
 *
 * Owns the sending of a message on a connection, the end of its use, and the words that visitors
 * said of themselves before they were peers. It leaves to others when a peer is dialled (dial.c),
 * and what is made of the messages that come (control.c).
 */
#include "conns.h"

#include "found.h"
#include "notes.h"
#include "tables.h"

/* ---- messages out ------------------------------------------------------ */

/* False: there is no such connection any more. */
bool conn_send(weir_engine *engine, uint64_t conn, const uint8_t *data, uint32_t length,
               bool again) {
    if (conn == 0)
        return false;
    int rc = engine->ports.control.ops->send(engine->ports.control.self, conn, data, length);
    if (rc == WEIR_OK) {
        engine->stats.control_sent++;
        engine->stats.control_retransmits += again;
    } else if (rc == WEIR_ECONNECT) {
        visitor_drop(engine, conn);
        note_conn_lost(engine, conn); /* its CLOSED event was not polled yet, or was lost */
        return false;
    }
    return true;
}

/* WHO or IAM. pass: of IAM; 0: none is shown. False: there is no such connection any more. */
bool conn_identify(weir_engine *engine, uint64_t conn, enum wire_type type, const uint8_t *to,
                   uint64_t pass, bool again) {
    struct wire_message message = {.type = type, .pass = pass};
    memcpy(message.from, engine->instance, WIRE_INSTANCE_SIZE);
    if (to != NULL)
        memcpy(message.to, to, WIRE_INSTANCE_SIZE);
    if (engine->listening && address_dialable(engine->address))
        memcpy(message.address, engine->address, sizeof(message.address));
    uint8_t bytes[WEIR_CONTROL_MESSAGE_MAX];
    uint32_t length;
    return wire_encode(&message, bytes, sizeof(bytes), &length) == WEIR_OK &&
           conn_send(engine, conn, bytes, length, again);
}

/* To the sender of `message`, without an endpoint. */
void conn_reply(weir_engine *engine, uint64_t conn, const struct wire_message *message,
                struct wire_message *out) {
    uint8_t bytes[WIRE_HEADER_SIZE + 16];
    uint32_t length;

    memcpy(out->from, engine->instance, WIRE_INSTANCE_SIZE);
    memcpy(out->to, message->from, WIRE_INSTANCE_SIZE);
    if (wire_encode(out, bytes, sizeof(bytes), &length) == WEIR_OK)
        conn_send(engine, conn, bytes, length, false);
}

/* ---- visitors ---------------------------------------------------------- */

/* The entry of a connection, a new one if need be: a free one, or else the oldest of those
 * that only asked. A visitor that said HELLO is not displaced, so it comes in even while others ask
 * and ask. NULL: no room. */
struct visitor *visitor_add(weir_engine *engine, uint64_t conn) {
    struct visitor *visitor = found_visitor(engine, conn);
    if (visitor == NULL)
        visitor = found_visitor(engine, 0);
    for (uint32_t i = 0; i < VISITORS && visitor == NULL; i++) {
        struct visitor *candidate =
            &engine->visitors[engine->visitor_next++ % engine->visitors_max];
        if (!candidate->asked)
            visitor = candidate;
    }
    if (visitor != NULL && visitor->conn != conn)
        found_visitor_set(engine, visitor, conn);
    return visitor;
}

void visitor_drop(weir_engine *engine, uint64_t conn) {
    struct visitor *visitor = found_visitor(engine, conn);
    if (visitor != NULL)
        found_visitor_set(engine, visitor, 0);
}

/* ---- connections of peers ---------------------------------------------- */

bool conn_is_of(const struct peer *peer, uint64_t conn) {
    return conn == peer->conn_dialled || conn == peer->conn_accepted || conn == peer->conn_before;
}

bool conn_is_aside(const struct peer *peer, uint64_t conn) {
    return (peer->accepted_aside && conn == peer->conn_accepted) ||
           (peer->before_aside && conn == peer->conn_before);
}

/* Gives up the use of a connection; closes it unless another peer lives on it (one
 * that was replaced may have dialled what its successor speaks on). */
void conn_hangup(weir_engine *engine, struct peer *peer, uint64_t *conn) {
    uint64_t number = *conn;
    uint32_t at = NONE;
    found_conn_set(engine, peer, conn, 0);
    if (number == 0 || found_by_conn(engine, number, &at) != NULL)
        return;
    if (peer->conn_last == number)
        peer->conn_last = 0;
    peer->unheard |= peer->conn_said == number;
    visitor_drop(engine, number);
    engine->ports.control.ops->hangup(engine->ports.control.self, number);
}

/* Whether the address is of the host at the other end. */
bool conn_vouches(const weir_engine *engine, uint64_t conn, const char *address) {
    char host[WEIR_ADDRESS_MAX];
    engine->ports.control.ops->from(engine->ports.control.self, conn, host, sizeof(host));
    size_t length = strlen(host);
    return length > 0 && strncmp(address, host, length) == 0 && address[length] == ':';
}

/* The port is what is behind the last colon. */
bool conn_leads_to(const weir_engine *engine, uint64_t conn, const char *dialled,
                   const char *address) {
    const char *port = strrchr(dialled, ':'), *other = strrchr(address, ':');
    return port != NULL && other != NULL && strcmp(port, other) == 0 &&
           conn_vouches(engine, conn, address);
}
