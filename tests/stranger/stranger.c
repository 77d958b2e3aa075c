/* SPDX-License-Identifier: Apache-2.0 */
/* stranger.c: one who can connect to both of a pair, and what becomes of its connections.
 *
 * Owns its connections: those that it makes to either, and those that they make to the address that
 * it tells. Some speak at random, some answer as a peer would, some stay silent, some are reset or
 * left in the middle of a message, some never read. How much is said changes all the time, from
 * a word now and then to all that the connections take. */
#define _GNU_SOURCE
#include "lore.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    CONNS = 160,
    FRAME_MAX = 4 + WEIR_CONTROL_MESSAGE_MAX,
    BURST = 64,
    WEATHER_MOST_MS = 2000,
    DEEDS_MOST = 64, /* between two looks at what has come */
};

enum deed {
    DEED_MADE,
    DEED_ACCEPTED,
    DEED_CLOSED,
    DEED_RESET,
    DEED_SILENT,
    DEED_HALF,
    DEED_BURST,
    DEED_DEAF,
    DEED_CLOSED_THERE,
    DEED_UP
};

struct conn {
    int fd; /* -1: none */
    int target;
    bool is_silent, is_deaf, answers;
    bool is_decent;                 /* it speaks as a peer does, until a session is up, or longer */
    struct wire_message who, hello; /* what it says when it is connected, and then */
    uint8_t as[WIRE_INSTANCE_SIZE];
    uint32_t length;
    uint8_t bytes[FRAME_MAX];
};

static struct conn conns[CONNS];
static int listener = -1;
static uint32_t deeds_now, pause_us; /* the weather */
static uint64_t weather_until_ns;

static uint32_t pick(uint32_t limit) {
    return below(&lore.prng, limit);
}
static bool chance(uint32_t count) {
    return one_in(&lore.prng, count);
}
static void did(enum deed deed) {
    board->deeds.conns[deed]++;
}

/* ---- connections -------------------------------------------------------- */

static void conn_end(struct conn *conn, bool reset) {
    const struct linger now = {.l_onoff = 1, .l_linger = 0};
    if (reset)
        setsockopt(conn->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    close(conn->fd);
    conn->fd = -1;
}

/* False: it ended there. Bytes that do not fit into the socket are dropped. */
static bool put(struct conn *conn, const uint8_t *bytes, size_t length) {
    ssize_t sent = send(conn->fd, bytes, length, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent == (ssize_t)length)
        return true;
    if (sent < 0 && errno == EAGAIN)
        return true;
    did(sent >= 0 ? DEED_HALF : DEED_CLOSED_THERE); /* half a frame cannot be gone on with */
    conn_end(conn, sent >= 0);
    return false;
}

static size_t frame(const struct wire_message *message, uint8_t out[FRAME_MAX]) {
    uint32_t length;
    if (wire_encode(message, out + 4, WEIR_CONTROL_MESSAGE_MAX, &length) != WEIR_OK)
        return 0;
    for (int i = 0; i < 4; i++)
        out[i] = (uint8_t)(length >> (8 * i));
    return 4 + (size_t)length;
}

static bool say(struct conn *conn, const struct wire_message *message) {
    uint8_t bytes[FRAME_MAX];
    size_t length = frame(message, bytes);
    if (length == 0)
        give_up("a message is not well-formed", 0);
    board->deeds.said[message->type]++;
    return put(conn, bytes, length);
}

static struct conn *free_conn(void) {
    for (int i = 0; i < CONNS; i++) {
        if (conns[i].fd < 0)
            return &conns[i];
    }
    return NULL;
}

static struct conn *some_conn(void) {
    struct conn *conn = &conns[pick(CONNS)];
    return conn->fd >= 0 ? conn : NULL;
}

static struct conn *conn_take(int fd, int target) {
    struct conn *conn = free_conn();
    if (conn == NULL) {
        close(fd);
        return NULL;
    }
    fcntl(fd, F_SETFL, O_NONBLOCK);
    *conn = (struct conn){.fd = fd, .target = target};
    conn->is_silent = chance(6);
    conn->is_deaf = chance(12);
    conn->answers = chance(2);
    choose_self(target, conn->as);
    conn->hello.type = WIRE_TYPE_END;
    if (conn->is_silent)
        did(DEED_SILENT);
    if (conn->is_deaf)
        did(DEED_DEAF);
    return conn;
}

/* NULL: it did not come to that. */
static struct conn *visit(int target) {
    struct sockaddr_in at = {.sin_family = AF_INET};
    const char *colon = strrchr(board->sides[target].address, ':');
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    at.sin_port = htons((uint16_t)strtoul(colon + 1, NULL, 10));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return NULL;
    if (connect(fd, (struct sockaddr *)&at, sizeof(at)) != 0 && errno != EINPROGRESS) {
        close(fd);
        return NULL;
    }
    did(DEED_MADE);
    return conn_take(fd, target);
}

/* Which of the pair it is, its WHO says; until then it may be either. */
static void let_in(void) {
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    did(DEED_ACCEPTED);
    conn_take(fd, (int)pick(2));
}

/* ---- what is heard ------------------------------------------------------ */

/* One that speaks as a peer does: its HELLO again as long as it is put off, then READY. Most then
 * keep their session for a while, and some begin to talk nonsense. */
static void go_on(struct conn *conn, const struct wire_message *heard) {
    struct wire_message message;
    bool later = heard->type == WIRE_REFUSE && (heard->echo & WIRE_ECHO_LATER) != 0;
    if (heard->type == WIRE_IAM && conn->hello.type == WIRE_TYPE_END)
        say_hello(conn->target, conn->as, &conn->hello);
    if (conn->hello.type == WIRE_HELLO && (later || heard->type == WIRE_IAM)) {
        say(conn, &conn->hello);
        return;
    }
    if (heard->type == WIRE_HELLO_ACK)
        did(DEED_UP);
    if (heard->type == WIRE_HELLO_ACK && chance(8))
        conn->is_decent = false;
    if (say_answer(conn->target, conn->as, heard, &message))
        say(conn, &message);
}

static void on_message(struct conn *conn, const uint8_t *bytes, uint32_t length) {
    struct wire_message message, answer;
    if (wire_decode(bytes, length, &message) != WEIR_OK)
        give_up("one of the pair says what cannot be read", 0);
    for (int i = 0; i < 2; i++) {
        if (lore.known[i] && memcmp(lore.instances[i], message.from, WIRE_INSTANCE_SIZE) == 0)
            conn->target = i;
    }
    if (message.type == WIRE_IAM && message.pass != 0 && lore.known[1 - conn->target] &&
        memcmp(message.to, lore.instances[1 - conn->target], WIRE_INSTANCE_SIZE) == 0)
        board->deeds.passes_overheard++;
    lore_hear(conn->target, &message);
    if (conn->is_decent)
        go_on(conn, &message);
    else if (conn->answers && !conn->is_silent &&
             say_answer(conn->target, conn->as, &message, &answer))
        say(conn, &answer);
}

static void on_bytes(struct conn *conn) {
    ssize_t got = recv(conn->fd, conn->bytes + conn->length, sizeof(conn->bytes) - conn->length,
                       MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN)
        return;
    if (got <= 0) {
        did(DEED_CLOSED_THERE);
        conn_end(conn, false);
        return;
    }
    conn->length += (uint32_t)got;
    while (conn->fd >= 0 && conn->length >= 4) {
        uint32_t length = conn->bytes[0] | (uint32_t)conn->bytes[1] << 8 |
                          (uint32_t)conn->bytes[2] << 16 | (uint32_t)conn->bytes[3] << 24;
        if (length > WEIR_CONTROL_MESSAGE_MAX)
            give_up("one of the pair says more than a message holds", 0);
        if (conn->length < 4 + length)
            return;
        uint8_t bytes[WEIR_CONTROL_MESSAGE_MAX];
        memcpy(bytes, conn->bytes + 4, length);
        conn->length -= 4 + length;
        memmove(conn->bytes, conn->bytes + 4 + length, conn->length);
        on_message(conn, bytes, length);
    }
}

static void listen_to_all(int timeout_ms) {
    struct pollfd polled[CONNS + 1];
    struct conn *of[CONNS + 1] = {NULL};
    nfds_t count = 1;
    polled[0] = (struct pollfd){.fd = listener, .events = POLLIN};
    for (int i = 0; i < CONNS; i++) {
        if (conns[i].fd < 0 || conns[i].is_deaf)
            continue;
        of[count] = &conns[i];
        polled[count++] = (struct pollfd){
            .fd = conns[i].fd,
            .events = (short)(POLLIN | (conns[i].who.type == WIRE_WHO ? POLLOUT : 0))};
    }
    if (poll(polled, count, timeout_ms) <= 0)
        return;
    for (nfds_t i = 1; i < count; i++) {
        if ((polled[i].revents & POLLOUT) != 0) {
            struct wire_message who = of[i]->who;
            of[i]->who.type = WIRE_TYPE_END;
            say(of[i], &who);
        } else if (polled[i].revents != 0) {
            on_bytes(of[i]);
        }
    }
    if (polled[0].revents != 0)
        let_in();
}

/* ---- what it does ------------------------------------------------------- */

static void say_something(struct conn *conn) {
    struct wire_message message;
    if (conn->is_silent || conn->is_decent)
        return;
    if (lore.known[conn->target] && chance(8))
        say_hello(conn->target, conn->as, &message);
    else
        say_any(conn->target, &message);
    say(conn, &message);
}

/* As one who is there for the first time. */
static void introduce(int target) {
    struct wire_message message = {.type = WIRE_WHO};
    struct conn *conn = visit(target);
    if (conn == NULL)
        return;
    conn->is_decent = true;
    conn->is_silent = conn->is_deaf = false;
    memcpy(message.from, conn->as, WIRE_INSTANCE_SIZE);
    memcpy(message.address, lore.addresses[chance(4) ? pick(3) : 2], WEIR_ADDRESS_MAX);
    conn->who = message;
}

static void say_half(struct conn *conn) {
    struct wire_message message;
    uint8_t bytes[FRAME_MAX];
    if (conn->is_silent || conn->is_decent)
        return;
    say_any(conn->target, &message);
    size_t length = frame(&message, bytes);
    if (length == 0)
        return;
    did(DEED_HALF);
    if (put(conn, bytes, 1 + pick((uint32_t)length - 1)) && !chance(4))
        conn_end(conn, chance(2));
    else
        conn->is_silent = true; /* the rest never comes */
}

static void act(void) {
    struct conn *conn = some_conn();
    uint32_t what = pick(64);
    if (what < 4 && free_conn() != NULL) {
        visit((int)pick(2));
    } else if (what < 6 && free_conn() != NULL) {
        introduce((int)pick(2));
    } else if (what < 8) {
        hands_step();
    } else if (conn == NULL) {
        return;
    } else if (what < 9) {
        bool reset = chance(2);
        did(reset ? DEED_RESET : DEED_CLOSED);
        conn_end(conn, reset);
    } else if (what < 10) {
        say_half(conn);
    } else if (what < 11) {
        did(DEED_BURST);
        for (int i = 0; i < BURST && conn->fd >= 0; i++)
            say_something(conn);
    } else {
        say_something(conn);
    }
}

/* Some whom it said to be are never heard of again. */
static void change_selves(void) {
    uint8_t *self = lore.selves[pick(SELVES)];
    for (int i = 0; i < WIRE_INSTANCE_SIZE; i++)
        self[i] = (uint8_t)draw(&lore.prng);
}

static void change_weather(void) {
    uint64_t now = now_ns();
    if (now < weather_until_ns)
        return;
    weather_until_ns = now + (1 + pick(WEATHER_MOST_MS)) * MS;
    deeds_now = 1 + pick(chance(4) ? DEEDS_MOST : 8);
    pause_us = chance(4) ? 0 : pick(chance(2) ? 20000 : 2000);
    change_selves();
}

static void listen_somewhere(void) {
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t length = sizeof(at);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&at, sizeof(at)) != 0 ||
        listen(listener, SOMAXCONN) != 0 ||
        getsockname(listener, (struct sockaddr *)&at, &length) != 0)
        give_up("the stranger cannot listen", 0);
    snprintf(lore.addresses[2], WEIR_ADDRESS_MAX, "127.0.0.1:%u", (unsigned)ntohs(at.sin_port));
}

int stranger_main(void) {
    lore_begin();
    listen_somewhere();
    hands_begin();
    for (int i = 0; i < CONNS; i++)
        conns[i].fd = -1;
    while (!board->stranger_leaves) {
        change_weather();
        for (uint32_t i = 0; i < deeds_now; i++)
            act();
        listen_to_all(0);
        if (pause_us > 0)
            usleep(pause_us);
    }
    hands_end();
    return 0;
}
