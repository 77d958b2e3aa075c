/* SPDX-License-Identifier: Apache-2.0 */
/* link.c: packets from a NIC to one other endpoint, and whether that one is there.
 *
 * An endpoint's socket has a name that its address gives. Each link has a socket that is connected
 * to it, so that a peer that does not read fills that one's buffer and no other's. Nothing blocks:
 * when the queue is full, the link is tried again a little later. The kernel loses no packet, and
 * says when the other socket is gone. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nic.h"

#define BACKOFF_LEAST_NS (20 * NS_PER_US)
#define BACKOFF_MOST_NS  (1 * NS_PER_MS)
#define PATIENCE_MOST_NS (8 * NS_PER_MS)
#define IDLE_NS          (200 * NS_PER_MS)

enum sent { SENT, BLOCKED, GONE };

socklen_t link_name(struct sockaddr_un *name_out, uint64_t token, uint16_t qpn, const char *end) {
    memset(name_out, 0, sizeof *name_out);
    name_out->sun_family = AF_UNIX;
    int len = snprintf(name_out->sun_path + 1, sizeof name_out->sun_path - 1, "efa-fi-%016llx-%u%s",
                       (unsigned long long)token, qpn, end);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
}

/* ---- the table ---- */

struct link *link_of(struct nic *nic, uint64_t token, uint16_t qpn, uint32_t connid) {
    uint64_t place = (token ^ (token >> 20) ^ qpn) % LINKS;
    struct link *link;
    SLIST_FOREACH(link, &nic->links[place], found) {
        if (link->token == token && link->qpn == qpn && link->connid == connid)
            return link;
    }
    link = allocate(sizeof *link);
    link->token = token;
    link->qpn = qpn;
    link->connid = connid;
    link->fd = -1;
    link->backoff_ns = BACKOFF_LEAST_NS;
    STAILQ_INIT(&link->answers);
    TAILQ_INIT(&link->messages);
    TAILQ_INIT(&link->transfers);
    TAILQ_INIT(&link->known);
    SLIST_INSERT_HEAD(&nic->links[place], link, found);
    return link;
}

void link_make_busy(struct nic *nic, struct link *link) {
    if (link->busy)
        return;
    if (link->fd >= 0)
        TAILQ_REMOVE(&nic->idle, link, queued);
    link->busy = true;
    link->patience_ns = PROBE_NS;
    link->probe_ns = nic->now_ns + PROBE_NS;
    TAILQ_INSERT_TAIL(&nic->busy, link, queued);
}

static void make_idle(struct nic *nic, struct link *link) {
    TAILQ_REMOVE(&nic->busy, link, queued);
    link->busy = false;
    link->idle_ns = nic->now_ns;
    if (link->fd >= 0)
        TAILQ_INSERT_TAIL(&nic->idle, link, queued);
}

void links_tidy(struct nic *nic) {
    struct link *link;
    while ((link = TAILQ_FIRST(&nic->idle)) != NULL) {
        if (link->idle_ns + IDLE_NS > nic->now_ns) {
            nic_due(nic, link->idle_ns + IDLE_NS);
            return;
        }
        TAILQ_REMOVE(&nic->idle, link, queued);
        close(link->fd);
        link->fd = -1;
    }
}

static void drop_answers(struct link *link) {
    struct answer *answer;
    while ((answer = STAILQ_FIRST(&link->answers)) != NULL) {
        STAILQ_REMOVE_HEAD(&link->answers, queued);
        free(answer);
    }
}

void links_close(struct nic *nic) {
    for (size_t i = 0; i < LINKS; i++) {
        struct link *link;
        while ((link = SLIST_FIRST(&nic->links[i])) != NULL) {
            SLIST_REMOVE_HEAD(&nic->links[i], found);
            drop_answers(link);
            if (link->fd >= 0)
                close(link->fd);
            free(link);
        }
    }
}

/* ---- its socket ---- */

static enum sent outcome_of(int error) {
    return error == ECONNREFUSED || error == ENOTCONN || error == ECONNRESET || error == EPIPE
               ? GONE
               : BLOCKED;
}

static enum sent connect_to(int fd, const struct link *link, const char *end) {
    struct sockaddr_un name;
    socklen_t len = link_name(&name, link->token, link->qpn, end);
    return connect(fd, (struct sockaddr *)&name, len) == 0 ? SENT : outcome_of(errno);
}

static enum sent make_sure(struct link *link) {
    if (link->fd >= 0)
        return SENT;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return BLOCKED;
    int room = 4 * CHUNK_MAX;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    enum sent outcome = connect_to(fd, link, "");
    if (outcome == SENT)
        link->fd = fd;
    else
        close(fd);
    return outcome;
}

bool link_is_gone(struct nic *nic, struct link *link) {
    return connect_to(nic->probe_fd, link, "") == GONE;
}

/* Sends nic->out, with so many bytes behind its header. */
static enum sent send_out(struct nic *nic, struct link *link, size_t len) {
    const struct address *own = &nic->endpoint->address;
    struct wire *wire = &nic->out.wire;
    wire->magic = WIRE_MAGIC;
    wire->from_token = own->token;
    wire->from_qpn = own->qpn;
    wire->from_connid = own->connid;
    wire->to_connid = link->connid;
    wire->sent_ns = nic->now_ns;
    enum sent outcome = make_sure(link);
    if (outcome == SENT &&
        send(link->fd, &nic->out, sizeof *wire + len, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        outcome = outcome_of(errno);
    if (outcome == SENT) {
        link->backoff_ns = BACKOFF_LEAST_NS;
        return SENT;
    }
    if (outcome == BLOCKED) {
        link->blocked_ns = nic->now_ns + link->backoff_ns + draw_below(&nic->draws, 10 * NS_PER_US);
        link->backoff_ns =
            2 * link->backoff_ns < BACKOFF_MOST_NS ? 2 * link->backoff_ns : BACKOFF_MOST_NS;
    } else if (link->dead_ns == 0) {
        link->dead_ns =
            nic->now_ns + NS_PER_MS * (1 + draw_below(&nic->draws, nic->habits->kill_ms));
    }
    return outcome;
}

/* ---- answers ---- */

void link_answer(struct nic *nic, const struct wire *request, enum packet_type type,
                 enum status status) {
    struct link *link = link_of(nic, request->from_token, request->from_qpn, request->from_connid);
    struct answer *answer = allocate(sizeof *answer);
    answer->wire = *request;
    answer->reads = type == PACKET_ANSWER && status == STATUS_OK && request->type == PACKET_READ;
    answer->wire.type = (uint8_t)type;
    answer->wire.status = (uint8_t)status;
    STAILQ_INSERT_TAIL(&link->answers, answer, queued);
    link_make_busy(nic, link);
}

static enum sent send_answer(struct nic *nic, struct link *link) {
    struct answer *answer = STAILQ_FIRST(&link->answers);
    size_t len = 0;
    nic->out.wire = answer->wire;
    if (answer->reads) {
        enum status status = target_read(nic, &answer->wire, nic->out.bytes);
        nic->out.wire.status = (uint8_t)status;
        len = status == STATUS_OK ? answer->wire.len : 0;
    }
    nic->out.wire.len = (uint32_t)len;
    enum sent outcome = send_out(nic, link, len);
    if (outcome == SENT) {
        STAILQ_REMOVE_HEAD(&link->answers, queued);
        free(answer);
    }
    return outcome;
}

/* ---- its turn ---- */

static enum sent send_of(struct nic *nic, struct link *link, struct op *op) {
    size_t len = initiator_gather(nic, op, &nic->out.wire);
    if (op->status != STATUS_OK)
        return SENT; /* there was nothing to send */
    enum sent outcome = send_out(nic, link, op->kind == KIND_READ ? 0 : len);
    if (outcome == SENT)
        initiator_sent(nic, op, len);
    return outcome;
}

static void send_some(struct nic *nic, struct link *link) {
    for (int i = 0; i < LINK_TURN; i++) {
        enum sent outcome;
        if (!STAILQ_EMPTY(&link->answers))
            outcome = send_answer(nic, link);
        else if (!TAILQ_EMPTY(&link->messages) && link->sends < SENDS_MAX)
            outcome = send_of(nic, link, TAILQ_FIRST(&link->messages));
        else if (!TAILQ_EMPTY(&link->transfers) && link->chunks < CHUNKS_MAX)
            outcome = send_of(nic, link, TAILQ_FIRST(&link->transfers));
        else
            return;
        if (outcome == BLOCKED)
            nic_due(nic, link->blocked_ns);
        if (outcome != SENT)
            return;
    }
    nic_due(nic, nic->now_ns); /* there may be more */
}

static void fail_all(struct nic *nic, struct link *link, enum status status) {
    struct op *op;
    while ((op = TAILQ_FIRST(&link->known)) != NULL)
        initiator_finish(nic, op, status);
}

static void bury(struct nic *nic, struct link *link) {
    fail_all(nic, link, STATUS_REMOTE_BAD_QPN);
    drop_answers(link);
    if (link->fd >= 0)
        close(link->fd);
    link->fd = -1;
    link->dead_ns = 0;
}

/* A look at what the peer is, and at how long its cable, or ours, has been out. */
static void probe(struct nic *nic, struct link *link) {
    link->probe_ns = nic->now_ns + link->patience_ns;
    if (link->patience_ns < PATIENCE_MOST_NS)
        link->patience_ns *= 2;
    if (nic->cut_ns == 0 && link->dead_ns == 0 && link_is_gone(nic, link))
        link->dead_ns =
            nic->now_ns + NS_PER_MS * (1 + draw_below(&nic->draws, nic->habits->kill_ms));
    bool cut = connect_to(nic->probe_fd, link, "-cut") == SENT;
    if (!cut)
        link->cut_ns = 0;
    else if (link->cut_ns == 0)
        link->cut_ns = nic->now_ns;
    uint64_t since = link->cut_ns > nic->cut_ns ? link->cut_ns : nic->cut_ns;
    if (link->cut_ns != 0 && nic->cut_ns != 0 && nic->cut_ns < since)
        since = nic->cut_ns;
    uint64_t bound = nic->habits->cut_ms * NS_PER_MS;
    struct op *op, *next;
    for (op = TAILQ_FIRST(&link->known); since != 0 && op != NULL; op = next) {
        next = TAILQ_NEXT(op, known);
        uint64_t from = op->posted_ns > since ? op->posted_ns : since;
        if (nic->now_ns - from >= bound)
            initiator_finish(nic, op, link->heard ? STATUS_UNRESPONSIVE : STATUS_UNREACHABLE);
    }
}

void link_push(struct nic *nic, struct link *link) {
    if (nic->now_ns >= link->probe_ns)
        probe(nic, link);
    if (nic->cut_ns == 0) {
        if (link->dead_ns == 0 && link->blocked_ns <= nic->now_ns)
            send_some(nic, link);
        else if (link->dead_ns == 0)
            nic_due(nic, link->blocked_ns);
        if (link->dead_ns != 0 && link->dead_ns <= nic->now_ns)
            bury(nic, link);
        if (link->dead_ns != 0)
            nic_due(nic, link->dead_ns);
    }
    if (STAILQ_EMPTY(&link->answers) && TAILQ_EMPTY(&link->known) && link->dead_ns == 0)
        make_idle(nic, link);
    else
        nic_due(nic, link->probe_ns);
}
