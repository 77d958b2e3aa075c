/* SPDX-License-Identifier: Apache-2.0 */
/* proto.h: the messages between a bench and its target (`weir serve`), over weir itself.
 *
 * Every message is a notification. Its tag is the type (8 bits) and an argument (56 bits); its
 * payload one of the structs below, in the byte order of both machines (which the magic number
 * proves to be one and the same), or a memory descriptor. A bench opens one session, the target
 * allocates memory for it:
 *
 *   bench                                 target
 *   OPEN {kind, sizes}             ->     allocates
 *                                  <-     OPENED arg = -error, payload = descriptor
 *   EXPORT payload = descriptor    ->     imports the bench's memory (not for streams)
 *                                  <-     EXPORTED arg = -error
 *   ... the messages of the session's kind ...
 *   MARK                           ->
 *                                  <-     MARKED {CPU time, counters}
 *   CLOSE                          ->     releases
 *                                  <-     CLOSED
 *                                  <-     CLOSED arg = -error: the target ends the session by
 * itself
 *
 * Streams:  DATA arg = 0: counted.
 *           CHECK arg = lane {round}: data came with it; CHECKED arg = lane {round, wrong bytes}.
 * Faults:   a stream that is checked, and what breaks a QP of either side meanwhile, once each:
 *           LEND -> LENT payload = descriptor of a page; RECALL -> RECALLED: it is released, and
 *           what the bench writes to it is refused;
 *           STRIKE -> STRUCK arg = -error: a word was written to the bench's memory, which the
 *           bench has released since EXPORT.
 * Ping:     PING and 8 bytes at 0 -> PONG and 8 bytes at 0; or, kind PING_MEMORY, no messages:
 *           the target copies the word at 0 of its memory to the bench's whenever it changes.
 * Fill:     the bench's memory is `page_count` pages and then one list, of page numbers.
 *           FILL arg = repetition: the target reads the list, writes the pages, with
 *           FILLED arg = repetition; then FILL_DONE {times}.
 * Send:     the target opens an inbox. INBOX -> NUMBER {its number, its memory}.
 *           Messages have tags of proto_message_tag; DRAIN {count} -> DRAINED {what came of all},
 *           once the target has taken so many since the session began.
 * Send ping: the same; and each message is answered by one of that length, with the same tag, to
 *           the inbox `answers` of the bench.
 * Replay:   memory of both sides: pages, then `seats` lists of list_bytes each.
 *           REQUEST arg = seat {count}: the ids of the blocks were written to the target's list;
 *           GRANT arg = seat: page numbers were written to the bench's list;
 *           BLOCKS arg = seat: the blocks were written to those pages;
 *           CHECKED arg = seat {wrong bytes, times}: verified, pages free again.
 */
#ifndef TOOL_PROTO_H
#define TOOL_PROTO_H

#include <stdbool.h>
#include <stdint.h>

#define PROTO_MAGIC    0x31766e6272696577u
#define PROTO_ARG_BITS 56

enum proto_type {
    PROTO_OPEN = 1,
    PROTO_OPENED,
    PROTO_EXPORT,
    PROTO_EXPORTED,
    PROTO_MARK,
    PROTO_MARKED,
    PROTO_CLOSE,
    PROTO_CLOSED,
    PROTO_DATA,
    PROTO_CHECK,
    PROTO_CHECKED,
    PROTO_PING,
    PROTO_PONG,
    PROTO_FILL,
    PROTO_FILLED,
    PROTO_FILL_DONE,
    PROTO_REQUEST,
    PROTO_GRANT,
    PROTO_BLOCKS,
    PROTO_LEND,
    PROTO_LENT,
    PROTO_RECALL,
    PROTO_RECALLED,
    PROTO_STRIKE,
    PROTO_STRUCK,
    PROTO_INBOX,
    PROTO_NUMBER,
    PROTO_DRAIN,
    PROTO_DRAINED
};

enum proto_kind {
    PROTO_KIND_WRITE = 1,
    PROTO_KIND_READ, /* the target fills its pages with content_key(seed, page) */
    PROTO_KIND_PING,
    PROTO_KIND_PING_MEMORY,
    PROTO_KIND_FILL,
    PROTO_KIND_REPLAY,
    PROTO_KIND_FAULTS, /* PROTO_KIND_WRITE, with faults */
    PROTO_KIND_SEND,
    PROTO_KIND_SEND_PING,
    PROTO_KIND_LOAN_PING /* likewise, made in loans both ways */
};

#define PROTO_SEATS_MAX 1024
#define PROTO_PAGES_MAX (1u << 28)
/* Of a message; of messages that wait, and of those that the target holds. */
#define PROTO_MESSAGE_MAX  (8u << 20)
#define PROTO_MESSAGES_MAX 65536u

struct proto_open {
    uint64_t magic;
    uint32_t kind;
    uint32_t memory; /* enum memory_kind */
    uint64_t page_bytes;
    uint64_t page_stride; /* from one page to the next; >= page_bytes */
    uint64_t page_count;
    uint64_t lanes; /* streams: page_count / lanes pages belong to each lane */
    uint64_t seats;
    uint64_t list_bytes; /* of one seat */
    uint64_t seed;
    /* Sends. Seats are senders: the messages of each come in the order of their numbers. */
    uint64_t message_bytes; /* of each message */
    uint32_t waiting;       /* messages that have room for one peer; 0: as weir has it */
    uint32_t hold;          /* messages that the target keeps before it gives one back */
    uint32_t crowd;         /* 1: of any peers, 0: of the session's alone */
    uint32_t verify;        /* 1: the content is content_key(seed, tag) */
    uint32_t answers;       /* ping: the bench's inbox */
    uint32_t reserved;
};

struct proto_round {
    uint64_t round;
    uint64_t lane_count; /* consecutive lanes that this transfer filled */
};

struct proto_checked {
    uint64_t wrong_bytes;
    uint64_t checked_bytes;
    uint64_t round;     /* of a stream: that of CHECK */
    uint64_t verify_ns; /* from taking the notification to having compared all of it */
};

struct proto_marked {
    uint64_t cpu_ns;
    uint64_t notifications; /* DATA, CHECK, PING, FILL, REQUEST and BLOCKS of this session */
};

struct proto_inbox {
    uint32_t number;
    uint32_t chunks;
    uint64_t chunk_bytes;
};

struct proto_drained {
    uint64_t taken;     /* messages; these all since the session began */
    uint64_t misplaced; /* of another number than the one that was due, or of another length */
    uint64_t checked_bytes;
    uint64_t wrong_bytes;
};

struct proto_count {
    uint64_t count;
};

struct proto_fill_done {
    uint64_t list_read_ns; /* the one-sided read of the page list */
    uint64_t write_ns;     /* from submitting the pages to their terminal status */
    uint64_t generate_ns;  /* making the content, outside of the other two */
    int64_t status;
};

static inline uint64_t proto_tag(enum proto_type type, uint64_t argument) {
    return ((uint64_t)type << PROTO_ARG_BITS) | argument;
}

static inline enum proto_type proto_type(uint64_t tag) {
    return (enum proto_type)(tag >> PROTO_ARG_BITS);
}

static inline uint64_t proto_argument(uint64_t tag) {
    return tag & ((UINT64_C(1) << PROTO_ARG_BITS) - 1);
}

/* A message's tag: whose it is, and how many that sender sent before in this session. */
#define PROTO_SEAT_SHIFT 48

static inline uint64_t proto_message_tag(uint64_t seat, uint64_t number) {
    return seat << PROTO_SEAT_SHIFT | number;
}

/* An inbox's memory is cut as weir(3), "Messages", has it: the room of a message, the messages of a
 * chunk, the messages of one peer that have room, and the bytes of all chunks. Messages that are
 * held have room besides, and so has a chunk that the last of them keeps from being free: the
 * messages that wait do not wait for those that are held. */
#define PROTO_LINE        UINT64_C(64)
#define PROTO_CHUNK       UINT64_C(65536)
#define PROTO_CHUNK_LONG  UINT64_C(262144) /* of messages of which fewer than these go into that */
#define PROTO_CHUNK_LEAST 4
#define PROTO_LINE_HOLDS  40 /* bytes that fit into the first line */
#define PROTO_ROOM_LEAST  16
#define PROTO_ROOM_FEWEST 2
#define PROTO_ROOM_LONG   (UINT64_C(64) << 20)  /* of one peer's messages that are long, */
#define PROTO_ROOM_ALL    (UINT64_C(256) << 20) /* of all peers' */
#define PROTO_ROOM_USUAL  UINT64_C(1048576)     /* of many peers, but the room of these at least, */
#define PROTO_CROWD_LEAST 4                     /* and of these at most */
#define PROTO_CROWD_MOST  16

static inline uint64_t proto_message_room(const struct proto_open *open) {
    uint64_t lines = (open->message_bytes + PROTO_LINE - 1) / PROTO_LINE;

    return PROTO_LINE * (open->message_bytes <= PROTO_LINE_HOLDS ? 1 : 1 + lines);
}

static inline uint64_t proto_chunk_messages(const struct proto_open *open) {
    uint64_t room = proto_message_room(open);

    if (PROTO_CHUNK / room >= PROTO_CHUNK_LEAST)
        return PROTO_CHUNK / room;
    if (PROTO_CHUNK_LONG / room >= PROTO_CHUNK_LEAST)
        return PROTO_CHUNK_LEAST;
    return PROTO_CHUNK_LONG < room ? 1 : PROTO_CHUNK_LONG / room;
}

static inline uint64_t proto_peer_messages(const struct proto_open *open) {
    uint64_t chunk = proto_chunk_messages(open);
    uint64_t least = PROTO_ROOM_LONG / (open->message_bytes > 0 ? open->message_bytes : 1);

    if (least > PROTO_ROOM_LEAST)
        least = chunk > PROTO_ROOM_LEAST ? chunk : PROTO_ROOM_LEAST;
    else if (least < PROTO_ROOM_FEWEST)
        least = PROTO_ROOM_FEWEST;
    return (open->waiting != 0 ? open->waiting : least) +
           (open->hold != 0 ? open->hold + chunk : 0);
}

/* Whether there is room for several such peers, as weir has it, and all senders of `incast`. */
static inline bool proto_has_crowds(const struct proto_open *open) {
    return open->crowd != 0 || open->waiting == 0;
}

/* All peers together have the room of so many. */
static inline uint64_t proto_crowd(const struct proto_open *open) {
    uint64_t peer = proto_peer_messages(open), fit = PROTO_ROOM_USUAL, all = PROTO_ROOM_ALL;

    fit /= proto_message_room(open) * peer;
    all /= (open->message_bytes > 0 ? open->message_bytes : 1) * peer;
    if (!proto_has_crowds(open))
        return 1;
    if (fit > PROTO_CROWD_LEAST)
        return fit < PROTO_CROWD_MOST ? fit : PROTO_CROWD_MOST;
    return all > PROTO_CROWD_LEAST ? PROTO_CROWD_LEAST : all > 0 ? all : 1;
}

static inline uint64_t proto_inbox_bytes(const struct proto_open *open) {
    uint64_t chunk = proto_chunk_messages(open), room = proto_message_room(open);
    uint64_t messages = proto_peer_messages(open) * proto_crowd(open);

    return (messages + chunk - 1) / chunk *
           (chunk * room > PROTO_CHUNK ? chunk * room : PROTO_CHUNK);
}

/* Where a session's lists begin: after its pages, on a cache line. */
static inline uint64_t proto_list_offset(const struct proto_open *open, uint64_t seat) {
    uint64_t pages = open->page_stride * open->page_count;

    return ((pages + 63) & ~UINT64_C(63)) + seat * open->list_bytes;
}

/* The whole memory of a session. */
static inline uint64_t proto_bytes(const struct proto_open *open) {
    return proto_list_offset(open, open->seats);
}

#endif
