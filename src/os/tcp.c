/* SPDX-License-Identifier: Apache-2.0 */
/* tcp.c: the control channel over TCP.
 *
 * Owns the listener, the connections, with two bounded buffers while something is in them
 * (tcp_room.h), and one epoll set that also holds a timer and the resolver. A frame is a 32-bit
 * little-endian length and that many bytes. Leaves to others: what messages mean, deadlines of
 * attempts, retransmission, keepalive of engines. The file is long because all of its parts
 * write the state of connections and their queues.
 *
 *              dial name        dial numeric            accept
 *                 |                  |                     |
 *             RESOLVING ------> CONNECTING ------------> OPEN
 *                 '------------------+------ CLOSED -------'---> FREE
 *
 * Invariants:
 *  - No more bytes are read from a socket than the frame at hand lacks, so nothing
 *    whole ever waits in user space: the epoll set is readable exactly when poll has
 *    something to do, and a busy sender gets one message a turn.
 *  - A connection's number is {generation, index}; the generation grows with every
 *    life of the index. The number is what epoll carries, so an event that was
 *    fetched before its connection ended finds nobody.
 *  - A connection is in at most one queue: waiting for the resolver, for an address
 *    to answer, for the rest of a first or half-received message, or, a visitor, for what
 *    it says next. Within a queue all have the same time limit, so the head is always the
 *    next to expire.
 *  - Visitors, whom the engine does not know as a peer, have half of the connections at
 *    most: peers, and dials of our own, have the other half to themselves. Nor have they more than
 *    a quarter of the descriptors that the process may have.
 *  - For each batch of events one connection at most is accepted, so that work that was begun goes
 *    before new work.
 *  - Every step of poll is bounded: TCP_BATCH events, each one accept, one connect
 *    attempt per address left, one frame or one flush.
 */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "address.h"
#include "fork.h"
#include "os.h"
#include "resolve.h"
#include "socket.h"
#include "tcp_room.h"

#define TCP_MS       UINT64_C(1000000)
#define TCP_FRAME_NS (10000 * TCP_MS) /* a first or half-received message is complete by then */
#define TCP_YIELD_NS (1000 * TCP_MS)  /* a visitor silent for so long makes room for another */
#define TCP_VISIT_NS (10000 * TCP_MS) /* one who talks on for so long makes room, too */
/* Until the next address of a name is tried, or the dial ends. The kernel sends a SYN again after
 * 1 s, 2 s, 4 s...: a new dial does not sleep through the end of an outage. */
#define TCP_ADDRESS_NS (1500 * TCP_MS)
#define TCP_ACCEPT_NS  (100 * TCP_MS) /* until accept is tried again after it failed */

enum { TCP_BATCH = 64, TCP_INDEX_BITS = 16, TCP_INDEX_MASK = (1 << TCP_INDEX_BITS) - 1 };

/* The tokens of descriptors that are no connections: generation 0, which no life has. */
enum { TCP_TOKEN_LISTEN = 1, TCP_TOKEN_TIMER = 2, TCP_TOKEN_RESOLVER = 3 };

#define TCP_NIL UINT32_MAX

enum tcp_state { TCP_FREE = 0, TCP_RESOLVING, TCP_CONNECTING, TCP_OPEN };

enum tcp_queue_name {
    TCP_Q_NONE = 0,
    TCP_Q_NAME,    /* dials that wait for the resolver */
    TCP_Q_ADDRESS, /* dials that wait for an address to answer */
    TCP_Q_FRAME,   /* a first or half-received message is waited for */
    TCP_Q_VISITOR, /* visitors that have spoken, by when they did last */
    TCP_Q_COUNT
};

struct tcp_queue {
    uint32_t head;
    uint32_t tail;
};

struct tcp_conn {
    uint64_t id; /* of this life, or of the last one while free */
    enum tcp_state state;
    enum tcp_queue_name queue;
    uint32_t previous; /* in the queue */
    uint32_t next;     /* in the queue, or of the free list */
    uint64_t since_ns; /* when it joined the queue */
    uint64_t came_ns;  /* accepted: when */
    int fd;            /* -1: none */
    bool accepted;
    bool kept;    /* a peer's: not a visitor's */
    bool broken;  /* a send failed; the socket's end is still to be read */
    bool writing; /* EPOLLOUT is asked for */
    int why;      /* of a dial: the error of its addresses so far that speaks least for a death */
    uint32_t in_length;
    uint32_t out_head;
    uint32_t out_tail;
    uint32_t address_next; /* of addresses: the first one not tried */
    struct tcp_room *room; /* NULL: nothing is half received, unsent or being dialled */
};

struct tcp {
    struct weir_env env;
    uint32_t conns_max;
    uint32_t visitors_max;
    uint32_t visitors; /* accepted and not kept */
    uint32_t fresh;    /* [fresh, conns_max) were never used: their pages are untouched */
    uint32_t free;     /* list of those used before */
    int epoll_fd;
    int timer_fd;
    int listen_fd;
    bool listen_paused;
    bool starved;              /* the last accept found no descriptor, or no memory */
    uint64_t listen_resume_ns; /* UINT64_MAX: when a connection ends */
    uint64_t timer_ns;         /* what the timer is set to; UINT64_MAX: not set */
    struct resolver *resolver;
    struct tcp_queue queues[TCP_Q_COUNT];
    struct epoll_event batch[TCP_BATCH];
    uint32_t batch_next;
    uint32_t batch_count;
    struct tcp_conn *conns;
    struct tcp_rooms rooms;
};

static const uint64_t tcp_limits_ns[TCP_Q_COUNT] = {
    [TCP_Q_NONE] = UINT64_MAX,        [TCP_Q_NAME] = UINT64_MAX, /* bounded by the resolver's own
                                                                    configuration, resolv.conf(5) */
    [TCP_Q_ADDRESS] = TCP_ADDRESS_NS, [TCP_Q_FRAME] = TCP_FRAME_NS, [TCP_Q_VISITOR] = UINT64_MAX,
};

static uint64_t tcp_now(const struct tcp *tcp) {
    return tcp->env.ops->now(tcp->env.self);
}

static uint32_t tcp_index(const struct tcp_conn *conn) {
    return (uint32_t)(conn->id & TCP_INDEX_MASK);
}

static struct tcp_conn *tcp_find(struct tcp *tcp, uint64_t id) {
    const uint32_t index = (uint32_t)(id & TCP_INDEX_MASK);
    if (index >= tcp->fresh) {
        return NULL;
    }
    struct tcp_conn *conn = &tcp->conns[index];
    return conn->id == id && conn->state != TCP_FREE ? conn : NULL;
}

/* ---- queues and the timer ---------------------------------------------- */

static void tcp_dequeue(struct tcp *tcp, struct tcp_conn *conn) {
    if (conn->queue == TCP_Q_NONE) {
        return;
    }
    struct tcp_queue *queue = &tcp->queues[conn->queue];
    if (conn->previous == TCP_NIL) {
        queue->head = conn->next;
    } else {
        tcp->conns[conn->previous].next = conn->next;
    }
    if (conn->next == TCP_NIL) {
        queue->tail = conn->previous;
    } else {
        tcp->conns[conn->next].previous = conn->previous;
    }
    conn->queue = TCP_Q_NONE;
}

static void tcp_enqueue(struct tcp *tcp, struct tcp_conn *conn, enum tcp_queue_name name) {
    assert(conn->queue == TCP_Q_NONE);
    struct tcp_queue *queue = &tcp->queues[name];
    const uint32_t index = tcp_index(conn);
    conn->queue = name;
    conn->since_ns = tcp_now(tcp);
    conn->previous = queue->tail;
    conn->next = TCP_NIL;
    if (queue->tail == TCP_NIL) {
        queue->head = index;
    } else {
        tcp->conns[queue->tail].next = index;
    }
    queue->tail = index;
}

static struct tcp_conn *tcp_head(const struct tcp *tcp, enum tcp_queue_name name) {
    const uint32_t head = tcp->queues[name].head;
    return head == TCP_NIL ? NULL : &tcp->conns[head];
}

static uint64_t tcp_queue_deadline(const struct tcp *tcp, enum tcp_queue_name name) {
    const struct tcp_conn *head = tcp_head(tcp, name);
    return head == NULL ? UINT64_MAX : head->since_ns + tcp_limits_ns[name];
}

/* Sets the timer if something is due before it. It is left alone when its cause goes
 * away, and then fires once for nothing: cheaper than a system call per message. */
static void tcp_arm(struct tcp *tcp) {
    uint64_t due = tcp->listen_paused ? tcp->listen_resume_ns : UINT64_MAX;
    static const enum tcp_queue_name timed[] = {TCP_Q_ADDRESS, TCP_Q_FRAME};
    for (size_t i = 0; i < sizeof timed / sizeof timed[0]; i++) {
        const uint64_t deadline = tcp_queue_deadline(tcp, timed[i]);
        due = deadline < due ? deadline : due;
    }
    if (due >= tcp->timer_ns) {
        return;
    }
    const uint64_t now = tcp_now(tcp);
    const uint64_t in_ns = due > now ? due - now : 1; /* timerfd_settime(2): 0 would disarm */
    const struct itimerspec setting = {
        .it_value.tv_sec = (time_t)(in_ns / (1000 * TCP_MS)),
        .it_value.tv_nsec = (long)(in_ns % (1000 * TCP_MS)),
    };
    int rc = timerfd_settime(tcp->timer_fd, 0, &setting, NULL);
    assert(rc == 0);
    (void)rc;
    tcp->timer_ns = due;
}

/* ---- descriptors in the epoll set -------------------------------------- */

static int tcp_watch(const struct tcp *tcp, int operation, int fd, uint32_t events, uint64_t id) {
    struct epoll_event event = {.events = events, .data.u64 = id};
    return epoll_ctl(tcp->epoll_fd, operation, fd, &event) == 0 ? WEIR_OK : WEIR_EAGAIN;
}

/* Taken out of the set by hand, because close alone does not do that while a child
 * of a fork holds the same socket (epoll(7), Q6), as one does for a moment. */
static void tcp_close_fd(const struct tcp *tcp, int fd) {
    (void)epoll_ctl(tcp->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
    fork_close(fd);
}

static void tcp_listen_pause(struct tcp *tcp, uint64_t resume_ns) {
    (void)tcp_watch(tcp, EPOLL_CTL_MOD, tcp->listen_fd, 0, TCP_TOKEN_LISTEN);
    tcp->listen_paused = true;
    tcp->listen_resume_ns = resume_ns;
    tcp_arm(tcp);
}

static void tcp_listen_resume(struct tcp *tcp) {
    if (tcp->listen_paused) {
        (void)tcp_watch(tcp, EPOLL_CTL_MOD, tcp->listen_fd, EPOLLIN, TCP_TOKEN_LISTEN);
        tcp->listen_paused = false;
    }
}

/* ---- connections -------------------------------------------------------- */

static bool tcp_full(const struct tcp *tcp) {
    return tcp->free == TCP_NIL && tcp->fresh == tcp->conns_max;
}

/* Gives its room back if nothing is left in it. The message received last stays there until poll is
 * called again: only a read writes over it. */
static void tcp_room_settle(struct tcp *tcp, struct tcp_conn *conn) {
    const bool empty = conn->state == TCP_OPEN && conn->in_length == 0 && conn->out_tail == 0;
    if (conn->state == TCP_FREE || empty) {
        tcp_room_give(&tcp->rooms, &conn->room);
    }
}

static struct tcp_conn *tcp_take(struct tcp *tcp, enum tcp_state state) {
    assert(!tcp_full(tcp));
    uint32_t index = tcp->free;
    struct tcp_conn *conn;
    if (index != TCP_NIL) {
        conn = &tcp->conns[index];
        tcp->free = conn->next;
    } else {
        index = tcp->fresh++;
        conn = &tcp->conns[index];
        conn->id = index;
    }
    conn->id += UINT64_C(1) << TCP_INDEX_BITS;
    conn->state = state;
    conn->queue = TCP_Q_NONE;
    conn->fd = -1;
    conn->accepted = conn->kept = conn->broken = conn->writing = false;
    conn->why = WEIR_EPEER;
    conn->in_length = conn->out_head = conn->out_tail = 0;
    conn->address_next = 0;
    conn->room = NULL;
    return conn;
}

static void tcp_give(struct tcp *tcp, struct tcp_conn *conn) {
    tcp_dequeue(tcp, conn);
    tcp->visitors -= conn->accepted && !conn->kept;
    if (conn->fd >= 0) {
        tcp_close_fd(tcp, conn->fd);
        conn->fd = -1;
    }
    conn->state = TCP_FREE;
    tcp_room_settle(tcp, conn);
    conn->next = tcp->free;
    tcp->free = tcp_index(conn);
    /* An entry is free, and mostly a descriptor: accept is tried again. */
    tcp_listen_resume(tcp);
}

static int tcp_event(struct weir_control_event *event_out, const struct tcp_conn *conn,
                     enum weir_control_type type) {
    *event_out = (struct weir_control_event){.conn = conn->id, .type = type};
    return 1;
}

static int tcp_closed(struct tcp *tcp, struct tcp_conn *conn, int error,
                      struct weir_control_event *event_out) {
    (void)tcp_event(event_out, conn, WEIR_CONTROL_CLOSED);
    event_out->error = error;
    tcp_give(tcp, conn);
    return 1;
}

/* Sends what the socket takes now, and asks for EPOLLOUT while something is left. */
static void tcp_flush(struct tcp *tcp, struct tcp_conn *conn) {
    while (conn->out_head < conn->out_tail && !conn->broken) {
        const ssize_t sent = send(conn->fd, conn->room->out + conn->out_head,
                                  conn->out_tail - conn->out_head, MSG_NOSIGNAL);
        if (sent >= 0) {
            conn->out_head += (uint32_t)sent;
        } else if (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM) {
            break;
        } else if (errno != EINTR) {
            /* Messages that arrived before are still to be delivered; then reading finds the end,
             * also after an error that TCP itself would survive. */
            conn->broken = true;
            (void)shutdown(conn->fd, SHUT_RDWR);
        }
    }
    if (conn->out_head == conn->out_tail || conn->broken) {
        conn->out_head = conn->out_tail = 0;
    }
    const bool writing = conn->out_tail > 0;
    if (writing != conn->writing) {
        const uint32_t events = writing ? EPOLLIN | EPOLLOUT : EPOLLIN;
        (void)tcp_watch(tcp, EPOLL_CTL_MOD, conn->fd, events, conn->id);
        conn->writing = writing;
    }
    tcp_room_settle(tcp, conn);
}

/* ---- dialling ----------------------------------------------------------- */

/* One address of a dial was tried in vain. False: this process lacks something, so the
 * next address would fail, too. */
static bool tcp_try_next(struct tcp_conn *conn, int rc) {
    if (rc == WEIR_ECONNECT || (rc == WEIR_EUNREACH && conn->why == WEIR_EPEER))
        conn->why = rc;
    return rc == WEIR_EPEER || rc == WEIR_EUNREACH || rc == WEIR_ECONNECT;
}

/* Starts on the next address that lets itself be started on. EMFILE, ENOMEM; no address is left:
 * EPEER if all refused, ECONNECT if one was silent, or EUNREACH. */
static int tcp_connect(struct tcp *tcp, struct tcp_conn *conn) {
    int rc = WEIR_EPEER;
    do {
        if (conn->address_next == conn->room->addresses.count)
            return conn->why;
        rc = socket_connect(&conn->room->addresses.entries[conn->address_next++], &conn->fd);
        if (rc != WEIR_OK && !tcp_try_next(conn, rc))
            return rc;
    } while (rc != WEIR_OK);
    if (tcp_watch(tcp, EPOLL_CTL_ADD, conn->fd, EPOLLOUT, conn->id) != WEIR_OK) {
        return WEIR_ENOMEM; /* tcp_give closes the socket */
    }
    conn->state = TCP_CONNECTING;
    tcp_enqueue(tcp, conn, TCP_Q_ADDRESS);
    tcp_arm(tcp);
    return WEIR_OK;
}

/* Why a dial ends. */
static int tcp_dial_error(int rc) {
    return rc == WEIR_EPEER || rc == WEIR_EMFILE || rc == WEIR_ENOMEM || rc == WEIR_EUNREACH
               ? rc
               : WEIR_ECONNECT;
}

static int tcp_connect_again(struct tcp *tcp, struct tcp_conn *conn, int why,
                             struct weir_control_event *event_out) {
    tcp_dequeue(tcp, conn);
    tcp_close_fd(tcp, conn->fd);
    conn->fd = -1;
    (void)tcp_try_next(conn, why);
    const int rc = tcp_connect(tcp, conn);
    return rc == WEIR_OK ? 0 : tcp_closed(tcp, conn, tcp_dial_error(rc), event_out);
}

static int tcp_connected(struct tcp *tcp, struct tcp_conn *conn,
                         struct weir_control_event *event_out) {
    const int rc = socket_connect_result(conn->fd);
    if (rc != WEIR_OK) {
        return tcp_connect_again(tcp, conn, rc, event_out);
    }
    tcp_dequeue(tcp, conn);
    socket_tune(conn->fd);
    conn->state = TCP_OPEN;
    conn->writing = true; /* as connect left it; flush corrects */
    tcp_flush(tcp, conn);
    if (conn->writing) {
        (void)tcp_watch(tcp, EPOLL_CTL_MOD, conn->fd, EPOLLIN | EPOLLOUT, conn->id);
    }
    return tcp_event(event_out, conn, WEIR_CONTROL_CONNECTED);
}

/* Hands waiting names to the resolver, as many as it takes. */
static void tcp_resolve_next(struct tcp *tcp) {
    for (uint32_t i = 0; i < RESOLVE_JOBS; i++) {
        struct tcp_conn *conn = tcp_head(tcp, TCP_Q_NAME);
        if (conn == NULL || resolver_start(tcp->resolver, conn->room->host, conn->room->port,
                                           conn->id) != WEIR_OK) {
            return;
        }
        tcp_dequeue(tcp, conn);
    }
}

static int tcp_resolved(struct tcp *tcp, struct weir_control_event *event_out) {
    uint64_t ticket;
    int status;
    struct address_list list;
    if (resolver_take(tcp->resolver, &ticket, &status, &list) == 0) {
        return 0;
    }
    tcp_resolve_next(tcp);
    struct tcp_conn *conn = tcp_find(tcp, ticket);
    if (conn == NULL) {
        return 0; /* hung up meanwhile */
    }
    if (status != WEIR_OK) {
        return tcp_closed(tcp, conn, status, event_out);
    }
    conn->room->addresses = list;
    const int rc = tcp_connect(tcp, conn);
    return rc == WEIR_OK ? 0 : tcp_closed(tcp, conn, tcp_dial_error(rc), event_out);
}

/* ---- receiving ---------------------------------------------------------- */

static uint32_t tcp_frame_length(const uint8_t *in) {
    return (uint32_t)in[0] | (uint32_t)in[1] << 8 | (uint32_t)in[2] << 16 | (uint32_t)in[3] << 24;
}

/* No room for another visitor. */
static bool tcp_crowded(const struct tcp *tcp) {
    return tcp_full(tcp) || tcp->visitors >= tcp->visitors_max;
}

/* A visitor who was here for long, while others wait. */
static bool tcp_overstays(const struct tcp *tcp, const struct tcp_conn *conn) {
    return conn->accepted && !conn->kept && tcp->listen_paused && tcp_crowded(tcp) &&
           tcp_now(tcp) - conn->came_ns >= TCP_VISIT_NS;
}

static int tcp_message(struct tcp *tcp, struct tcp_conn *conn,
                       struct weir_control_event *event_out) {
    if (tcp_overstays(tcp, conn)) {
        return tcp_closed(tcp, conn, WEIR_ECONNECT, event_out);
    }
    (void)tcp_event(event_out, conn, WEIR_CONTROL_MESSAGE);
    event_out->length = conn->in_length - TCP_HEADER;
    event_out->message = conn->room->in + TCP_HEADER; /* not written again before the next poll */
    conn->in_length = 0;
    tcp_room_settle(tcp, conn);
    tcp_dequeue(tcp, conn);
    if (conn->accepted && !conn->kept) {
        tcp_enqueue(tcp, conn, TCP_Q_VISITOR);
    }
    return 1;
}

/* At most one frame: its header, then exactly its body. */
static int tcp_read(struct tcp *tcp, struct tcp_conn *conn, struct weir_control_event *event_out) {
    uint32_t need = TCP_HEADER;
    tcp_room_take(&tcp->rooms, &conn->room);
    if (conn->in_length >= TCP_HEADER) {
        need += tcp_frame_length(conn->room->in);
    }
    while (conn->in_length < need) {
        const ssize_t got =
            recv(conn->fd, conn->room->in + conn->in_length, need - conn->in_length, 0);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
            break;
        }
        if (got <= 0) {
            const bool clean = got == 0 && conn->in_length == 0 && !conn->broken;
            return tcp_closed(tcp, conn, clean ? WEIR_EPEER : WEIR_ECONNECT, event_out);
        }
        conn->in_length += (uint32_t)got;
        if (need == TCP_HEADER && conn->in_length == TCP_HEADER) {
            const uint32_t length = tcp_frame_length(conn->room->in);
            if (length > WEIR_CONTROL_MESSAGE_MAX) {
                return tcp_closed(tcp, conn, WEIR_ETOOBIG, event_out);
            }
            need += length;
        }
    }
    if (conn->in_length == need) {
        return tcp_message(tcp, conn, event_out);
    }
    if (conn->in_length > 0 && conn->queue != TCP_Q_FRAME) {
        tcp_dequeue(tcp, conn);
        tcp_enqueue(tcp, conn, TCP_Q_FRAME);
        tcp_arm(tcp);
    }
    tcp_room_settle(tcp, conn);
    return 0;
}

/* ---- accepting ---------------------------------------------------------- */

/* The visitor that has said nothing for longest; NULL. Half of a message is nothing. */
static struct tcp_conn *tcp_most_silent(const struct tcp *tcp) {
    struct tcp_conn *spoke = tcp_head(tcp, TCP_Q_VISITOR);
    uint32_t index = tcp->queues[TCP_Q_FRAME].head;
    while (index != TCP_NIL && (!tcp->conns[index].accepted || tcp->conns[index].kept)) {
        index = tcp->conns[index].next;
    }
    struct tcp_conn *mute = index == TCP_NIL ? NULL : &tcp->conns[index];
    if (spoke == NULL || mute == NULL) {
        return spoke == NULL ? mute : spoke;
    }
    return spoke->since_ns < mute->since_ns ? spoke : mute;
}

/* The visitor that was silent for longest makes room, but not before it had time to speak;
 * otherwise a storm of honest peers would throw each other out. Bounded by conns_max, and only
 * while crowded. */
static int tcp_make_room(struct tcp *tcp, struct weir_control_event *event_out) {
    const uint64_t now = tcp_now(tcp);
    struct tcp_conn *conn = tcp_most_silent(tcp);
    if (conn != NULL && now - conn->since_ns >= TCP_YIELD_NS) {
        return tcp_closed(tcp, conn, WEIR_ECONNECT, event_out);
    }
    tcp_listen_pause(tcp, conn == NULL ? UINT64_MAX : now + TCP_ACCEPT_NS);
    return 0;
}

/* No descriptor or no memory is left for a connection: it stays in the backlog for a while. */
static int tcp_starve(struct tcp *tcp, int error, struct weir_control_event *event_out) {
    const bool known = tcp->starved;
    tcp->starved = true;
    tcp_listen_pause(tcp, tcp_now(tcp) + TCP_ACCEPT_NS);
    *event_out = (struct weir_control_event){.type = WEIR_CONTROL_STARVED, .error = error};
    return known ? 0 : 1;
}

static int tcp_accept(struct tcp *tcp, struct weir_control_event *event_out) {
    if (tcp_crowded(tcp)) {
        return tcp_make_room(tcp, event_out);
    }
    const int fd = socket_accept(tcp->listen_fd);
    if (fd < 0) {
        /* accept(2): these leave the connection in the backlog and the listener
         * readable; trying at once again would be a busy loop. Other errors are of
         * connections that are gone already. */
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            return tcp_starve(tcp, os_fd_error(errno), event_out);
        }
        return 0;
    }
    tcp->starved = false;
    struct tcp_conn *conn = tcp_take(tcp, TCP_OPEN);
    if (tcp_watch(tcp, EPOLL_CTL_ADD, fd, EPOLLIN, conn->id) != WEIR_OK) {
        fork_close(fd);
        tcp_give(tcp, conn);
        tcp_listen_pause(tcp, tcp_now(tcp) + TCP_ACCEPT_NS);
        return 0;
    }
    conn->fd = fd;
    conn->accepted = true;
    tcp->visitors++;
    tcp_enqueue(tcp, conn, TCP_Q_FRAME);
    conn->came_ns = conn->since_ns;
    tcp_arm(tcp);
    return tcp_event(event_out, conn, WEIR_CONTROL_ACCEPTED);
}

/* ---- the port ----------------------------------------------------------- */

/* One thing that is due, at most; the timer fires again at once for the next. */
static int tcp_expire(struct tcp *tcp, struct weir_control_event *event_out) {
    uint64_t expirations;
    ssize_t drained = read(tcp->timer_fd, &expirations, sizeof expirations);
    (void)drained;
    tcp->timer_ns = UINT64_MAX;
    const uint64_t now = tcp_now(tcp);
    int got = 0;
    if (tcp->listen_paused && now >= tcp->listen_resume_ns) {
        tcp_listen_resume(tcp);
    } else if (now >= tcp_queue_deadline(tcp, TCP_Q_ADDRESS)) {
        got = tcp_connect_again(tcp, tcp_head(tcp, TCP_Q_ADDRESS), WEIR_ECONNECT, event_out);
    } else if (now >= tcp_queue_deadline(tcp, TCP_Q_FRAME)) {
        got = tcp_closed(tcp, tcp_head(tcp, TCP_Q_FRAME), WEIR_ECONNECT, event_out);
    }
    tcp_arm(tcp);
    return got;
}

static int tcp_handle(struct tcp *tcp, const struct epoll_event *event,
                      struct weir_control_event *event_out) {
    switch (event->data.u64) {
    case TCP_TOKEN_LISTEN:
        return tcp_accept(tcp, event_out);
    case TCP_TOKEN_TIMER:
        return tcp_expire(tcp, event_out);
    case TCP_TOKEN_RESOLVER:
        return tcp_resolved(tcp, event_out);
    default:
        break;
    }
    struct tcp_conn *conn = tcp_find(tcp, event->data.u64);
    if (conn == NULL) {
        return 0; /* ended after the batch was fetched */
    }
    if (conn->state == TCP_CONNECTING) {
        return tcp_connected(tcp, conn, event_out);
    }
    if (event->events & EPOLLOUT) {
        tcp_flush(tcp, conn);
    }
    if (event->events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        return tcp_read(tcp, conn, event_out);
    }
    return 0;
}

static int tcp_poll(void *self, struct weir_control_event *event_out) {
    struct tcp *tcp = self;
    bool fetched = false;
    for (;;) {
        if (tcp->batch_next == tcp->batch_count) {
            if (fetched) {
                return 0; /* a whole batch without an event: the caller's turn */
            }
            const int count = epoll_wait(tcp->epoll_fd, tcp->batch, TCP_BATCH, 0);
            tcp->batch_next = 0;
            tcp->batch_count = count > 0 ? (uint32_t)count : 0;
            fetched = true;
            continue;
        }
        if (tcp_handle(tcp, &tcp->batch[tcp->batch_next++], event_out)) {
            return 1;
        }
    }
}

static int tcp_listen(void *self, const char *text, char *actual_out, size_t actual_size) {
    struct tcp *tcp = self;
    if (tcp->listen_fd >= 0) {
        return WEIR_EINVAL;
    }
    char host[ADDRESS_HOST_MAX];
    uint16_t port;
    struct address_list list;
    /* Resolving here may block: weir_engine_open says so. */
    if (address_split(text, host, &port) != WEIR_OK) {
        return WEIR_EADDRESS;
    }
    const int resolved = address_resolve(host, port, &list);
    if (resolved != WEIR_OK) { /* what this process lacks is no fault of the address */
        return resolved == WEIR_EMFILE || resolved == WEIR_ENOMEM ? resolved : WEIR_EADDRESS;
    }
    int fd = -1;
    for (uint32_t i = 0; i < list.count && fd < 0; i++) {
        fd = socket_listen(&list.entries[i]);
    }
    if (fd < 0) {
        const bool lacks =
            errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS;
        return lacks ? os_fd_error(errno) : WEIR_EADDRESS;
    }
    struct address actual = {.length = sizeof actual.storage};
    int rc = WEIR_EADDRESS;
    if (getsockname(fd, (struct sockaddr *)&actual.storage, &actual.length) == 0) {
        rc = address_print(&actual, actual_out, actual_size);
    }
    if (rc == WEIR_OK && tcp_watch(tcp, EPOLL_CTL_ADD, fd, EPOLLIN, TCP_TOKEN_LISTEN) != WEIR_OK) {
        rc = WEIR_ENOMEM;
    }
    if (rc != WEIR_OK) {
        fork_close(fd);
        return rc;
    }
    tcp->listen_fd = fd;
    return WEIR_OK;
}

int tcp_address_check(const char *address) {
    char host[ADDRESS_HOST_MAX];
    uint16_t port;
    const int rc = address_split(address, host, &port);
    return rc == WEIR_OK && port == 0 ? WEIR_EADDRESS : rc;
}

static int tcp_check(void *self, const char *text) {
    (void)self;
    char host[ADDRESS_HOST_MAX];
    uint16_t port;
    struct address address;
    const int rc = tcp_address_check(text);
    const bool any = rc == WEIR_OK && address_split(text, host, &port) == WEIR_OK &&
                     address_numeric(host, port, &address) == WEIR_OK && address_is_any(&address);
    return any ? WEIR_EADDRESS : rc;
}

static bool tcp_numeric(void *self, const char *text) {
    (void)self;
    return address_is_plain(text);
}

static int tcp_dial(void *self, const char *text, uint64_t *conn_out) {
    struct tcp *tcp = self;
    if (tcp_address_check(text) != WEIR_OK) {
        return WEIR_EADDRESS;
    }
    if (tcp_full(tcp)) {
        return WEIR_EFULL;
    }
    struct tcp_conn *conn = tcp_take(tcp, TCP_RESOLVING);
    tcp_room_take(&tcp->rooms, &conn->room);
    conn->room->addresses.count = 0;
    int rc = address_split(text, conn->room->host, &conn->room->port);
    assert(rc == WEIR_OK);
    if (address_numeric(conn->room->host, conn->room->port, &conn->room->addresses.entries[0]) ==
        WEIR_OK) {
        conn->room->addresses.count = 1;
        rc = tcp_connect(tcp, conn);
        if (rc != WEIR_OK) {
            tcp_give(tcp, conn);
            return rc;
        }
    } else {
        tcp_enqueue(tcp, conn, TCP_Q_NAME);
        tcp_resolve_next(tcp);
    }
    *conn_out = conn->id;
    return WEIR_OK;
}

static int tcp_send(void *self, uint64_t id, const uint8_t *message, uint32_t length) {
    struct tcp *tcp = self;
    struct tcp_conn *conn = tcp_find(tcp, id);
    if (conn == NULL) {
        return WEIR_ECONNECT;
    }
    if (length > WEIR_CONTROL_MESSAGE_MAX) {
        return WEIR_ETOOBIG;
    }
    if (conn->broken) {
        return WEIR_OK; /* lost, as messages may be; CLOSED is on its way */
    }
    const uint32_t frame = TCP_HEADER + length;
    tcp_room_take(&tcp->rooms, &conn->room);
    if (TCP_OUT_BYTES - conn->out_tail < frame && conn->out_head > 0) {
        memmove(conn->room->out, conn->room->out + conn->out_head, conn->out_tail - conn->out_head);
        conn->out_tail -= conn->out_head;
        conn->out_head = 0;
    }
    if (TCP_OUT_BYTES - conn->out_tail < frame) {
        return WEIR_EAGAIN;
    }
    uint8_t *at = conn->room->out + conn->out_tail;
    for (uint32_t i = 0; i < TCP_HEADER; i++) {
        at[i] = (uint8_t)(length >> (8 * i));
    }
    if (length > 0) {
        memcpy(at + TCP_HEADER, message, length);
    }
    conn->out_tail += frame;
    if (conn->state == TCP_OPEN && !conn->writing) {
        tcp_flush(tcp, conn);
    }
    return WEIR_OK;
}

static void tcp_hangup(void *self, uint64_t id) {
    struct tcp *tcp = self;
    struct tcp_conn *conn = tcp_find(tcp, id);
    if (conn == NULL) {
        return;
    }
    if (conn->state == TCP_OPEN) {
        tcp_flush(tcp, conn);
        /* Closing with bytes unread resets the connection (RFC 1122 4.2.2.13), which
         * would throw away what was just sent. More unread bytes than this are a flood. The in
         * buffer is not touched: it may hold the message of the last poll. */
        tcp_room_take(&tcp->rooms, &conn->room);
        (void)recv(conn->fd, conn->room->out, sizeof conn->room->out, 0);
    }
    tcp_give(tcp, conn);
}

static void tcp_keep(void *self, uint64_t id) {
    struct tcp *tcp = self;
    struct tcp_conn *conn = tcp_find(tcp, id);
    if (conn == NULL || conn->kept) {
        return;
    }
    conn->kept = true;
    if (conn->queue == TCP_Q_VISITOR) {
        tcp_dequeue(tcp, conn);
    }
    if (conn->accepted) {
        tcp->visitors--;
        tcp_listen_resume(tcp);
    }
}

static void tcp_from(void *self, uint64_t id, char *host_out, size_t size) {
    struct tcp *tcp = self;
    const struct tcp_conn *conn = tcp_find(tcp, id);
    host_out[0] = '\0';
    if (conn == NULL || conn->fd < 0 || socket_from(conn->fd, host_out, size) != WEIR_OK) {
        return;
    }
    *strrchr(host_out, ':') = '\0'; /* address_print ends with the port */
}

static bool tcp_look(void *self, uint64_t id, struct weir_control_look *look_out) {
    const struct tcp_conn *conn = tcp_find(self, id);
    return conn != NULL && conn->fd >= 0 &&
           socket_silent(conn->fd, &look_out->silent, &look_out->retransmits) == WEIR_OK;
}

static int tcp_fd(void *self) {
    const struct tcp *tcp = self;
    return tcp->epoll_fd;
}

static const struct weir_control_ops tcp_ops = {
    .check = tcp_check,
    .numeric = tcp_numeric,
    .listen = tcp_listen,
    .dial = tcp_dial,
    .send = tcp_send,
    .hangup = tcp_hangup,
    .keep = tcp_keep,
    .from = tcp_from,
    .poll = tcp_poll,
    .fd = tcp_fd,
    .look = tcp_look,
};

/* The most that strangers may take: half of the connections, and a quarter of the descriptors that
 * the process may have, so that they keep neither peers nor the application from having some. */
static uint32_t tcp_visitors_max(uint32_t conns_max) {
    const uint32_t half = (conns_max + 1) / 2;
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur / 4 >= half) {
        return half;
    }
    return limit.rlim_cur < 8 ? 1 : (uint32_t)(limit.rlim_cur / 4);
}

static size_t tcp_conns_bytes(uint32_t conns_max) {
    return conns_max * sizeof(struct tcp_conn);
}

static void tcp_free(struct tcp *tcp) {
    const struct weir_env env = tcp->env;
    if (tcp->epoll_fd >= 0) {
        fork_close(tcp->epoll_fd);
    }
    if (tcp->timer_fd >= 0) {
        fork_close(tcp->timer_fd);
    }
    resolver_close(tcp->resolver);
    if (tcp->conns != NULL) {
        env.ops->free(env.self, tcp->conns, tcp_conns_bytes(tcp->conns_max));
    }
    if (tcp->rooms.rooms != NULL) {
        env.ops->free(env.self, tcp->rooms.rooms, tcp_rooms_bytes(tcp->conns_max));
    }
    env.ops->free(env.self, tcp, sizeof *tcp);
}

size_t tcp_bytes(uint32_t conns_max) {
    return tcp_conns_bytes(conns_max) + tcp_rooms_bytes(conns_max);
}

int tcp_open(const struct weir_env *env, uint32_t conns_max, struct weir_control *control_out) {
    if (conns_max > TCP_CONNS_MAX) {
        return WEIR_EINVAL;
    }
    struct tcp *tcp = env->ops->alloc(env->self, sizeof *tcp);
    if (tcp == NULL) {
        return WEIR_ENOMEM;
    }
    tcp->env = *env;
    tcp->conns_max = conns_max == 0 ? TCP_CONNS_DEFAULT : conns_max;
    tcp->visitors_max = tcp_visitors_max(tcp->conns_max);
    tcp->free = TCP_NIL;
    tcp->timer_ns = UINT64_MAX;
    tcp->listen_fd = -1;
    for (uint32_t i = 0; i < TCP_Q_COUNT; i++) {
        tcp->queues[i] = (struct tcp_queue){.head = TCP_NIL, .tail = TCP_NIL};
    }
    int rc = WEIR_OK;
    fork_hold();
    tcp->epoll_fd = fork_own(epoll_create1(EPOLL_CLOEXEC));
    tcp->timer_fd = fork_own(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    if (tcp->epoll_fd < 0 || tcp->timer_fd < 0) {
        rc = os_fd_error(errno);
    }
    fork_release();
    if (rc == WEIR_OK) {
        rc = resolver_open(&tcp->resolver);
    }
    tcp->conns = env->ops->alloc(env->self, tcp_conns_bytes(tcp->conns_max));
    tcp->rooms.rooms = env->ops->alloc(env->self, tcp_rooms_bytes(tcp->conns_max));
    tcp->rooms.count = tcp->conns_max;
    if (rc == WEIR_OK &&
        (tcp->conns == NULL || tcp->rooms.rooms == NULL ||
         tcp_watch(tcp, EPOLL_CTL_ADD, tcp->timer_fd, EPOLLIN, TCP_TOKEN_TIMER) != WEIR_OK ||
         tcp_watch(tcp, EPOLL_CTL_ADD, resolver_fd(tcp->resolver), EPOLLIN, TCP_TOKEN_RESOLVER) !=
             WEIR_OK)) {
        rc = WEIR_ENOMEM;
    }
    if (rc != WEIR_OK) {
        tcp_free(tcp);
        return rc;
    }
    *control_out = (struct weir_control){.ops = &tcp_ops, .self = tcp};
    return WEIR_OK;
}

void tcp_close(struct weir_control *control) {
    struct tcp *tcp = control->self;
    if (tcp == NULL) {
        return;
    }
    assert(control->ops == &tcp_ops);
    for (uint32_t i = 0; i < tcp->fresh; i++) {
        if (tcp->conns[i].state != TCP_FREE) {
            tcp_hangup(tcp, tcp->conns[i].id);
        }
    }
    if (tcp->listen_fd >= 0) {
        tcp_close_fd(tcp, tcp->listen_fd);
    }
    tcp_free(tcp);
    *control = (struct weir_control){0};
}

void tcp_abandon(struct weir_control *control) {
    struct tcp *tcp = control->self;
    resolver_abandon(tcp->resolver);
    *control = (struct weir_control){0};
}
