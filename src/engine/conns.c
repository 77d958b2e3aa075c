/* SPDX-License-Identifier: Apache-2.0 */
/* conns.c: control connections: what is sent on them, whose they are, visitors.
 *
 * Owns the sending of a message on a connection, the end of a connection's use, and the table of
 * visitors: instance and address of each, until it is a peer. Dialling is dial.c's, and received
 * messages are control.c's.
 */
#include "conns.h"

#include "found.h"
#include "notes.h"
#include "tables.h"
#include "trace.h"

/* ---- messages out ------------------------------------------------------ */

/* Queues a message. False: there is no such connection any more. True also when the connection's
 * buffer is full and the message is dropped: the sender's own timer repeats it. */
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

/* Sends WHO or IAM. pass: of IAM; 0: none is shown. False: as of conn_send. */
bool conn_identify(weir_engine *engine, uint64_t conn, enum wire_type type, const uint8_t *to,
                   uint64_t pass, bool again) {
    struct wire_message message = {.type = type, .pass = pass};
    memcpy(message.from, engine->instance, WIRE_INSTANCE_SIZE);
    if (to != NULL)
        memcpy(message.to, to, WIRE_INSTANCE_SIZE);
    memcpy(message.address, engine->told, sizeof(message.address));
    uint8_t bytes[WEIR_CONTROL_MESSAGE_MAX];
    uint32_t length;
    if (wire_encode(&message, bytes, sizeof(bytes), &length) != WEIR_OK ||
        !conn_send(engine, conn, bytes, length, again))
        return false;
    TRACE_VISITOR(engine, said, 0, (uint64_t)type, 0);
    return true;
}

/* Sends *out to the sender of `message`, from no endpoint. */
void conn_reply(weir_engine *engine, uint64_t conn, const struct wire_message *message,
                struct wire_message *out) {
    struct peer *peer = peer_by_instance(engine, message->from);
    uint8_t bytes[WIRE_STATE_SIZE];
    uint32_t length;

    memcpy(out->from, engine->instance, WIRE_INSTANCE_SIZE);
    memcpy(out->to, message->from, WIRE_INSTANCE_SIZE);
    if (wire_encode(out, bytes, sizeof(bytes), &length) != WEIR_OK ||
        !conn_send(engine, conn, bytes, length, false))
        return;
    if (peer != NULL)
        TRACE_WORD(engine, said, peer, 0, (uint64_t)out->type, wire_epoch_of(out));
    else
        TRACE_VISITOR(engine, said, 0, (uint64_t)out->type, wire_epoch_of(out));
}

/* ---- visitors ---------------------------------------------------------- */

/* The entry of a connection, or a new one. Without a free entry it displaces a visitor that was not
 * asked WHO, among the next VISITORS entries in turn. A visitor that says HELLO after it was
 * displaced is asked, and not displaced again, so others that only say WHO cannot keep it out.
 * NULL: no room. */
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

/* Takes a connection from the peer, and closes it unless it is a peer's still: a peer that was
 * replaced may have dialled the connection that its successor speaks on. */
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
