/* SPDX-License-Identifier: Apache-2.0 */
/* nic.h: the state that the parts of a NIC share. All of it belongs to the NIC's thread, except
 * what is said to be other threads' too. */
#ifndef EFA_NIC_H
#define EFA_NIC_H

#include <sys/socket.h>
#include <sys/un.h>

#include "fake.h"

enum {
    HELD_MAX = 256,    /* packets that wait for their turn */
    CHUNKS_MAX = 32,   /* of reads and writes to a peer, that are not answered */
    SENDS_MAX = 64,    /* messages to a peer, likewise */
    LINK_TURN = 16,    /* packets to a peer, before it is the next one's turn */
    RECEIVE_TURN = 64, /* packets that are taken from the socket at once */
    SPARE_MAX = 8,     /* packets that are kept for the next ones */
    LINKS = 256,       /* lists of the table */
};
#define PROBE_NS (2 * NS_PER_MS)
#define NEVER    UINT64_MAX

enum packet_type {
    PACKET_SEND = 1,
    PACKET_WRITE,
    PACKET_READ,
    PACKET_ANSWER, /* to one of these, with the bytes that were read */
    PACKET_ASK,    /* whether the operation is still wanted */
    PACKET_WANTED,
    PACKET_UNWANTED,
};

/* Both sides are of one host, and of one build. */
struct wire {
    uint32_t magic;
    uint8_t type, status;
    uint16_t from_qpn;
    uint64_t from_token;
    uint32_t from_connid, to_connid;
    uint64_t id;     /* of the operation: generation and index */
    uint64_t offset; /* of this packet within it */
    uint64_t total, remote, key;
    uint64_t data;
    uint64_t sent_ns;
    uint32_t len; /* that follow, or of a read, that are asked for */
    uint32_t has_data;
};
#define WIRE_MAGIC UINT32_C(0x45464130)

struct packet {
    TAILQ_ENTRY(packet) queued;
    uint64_t number; /* in the order of arrival */
    uint64_t due_ns, fresh_ns;
    bool whole; /* has room for any packet */
    struct wire wire;
    uint8_t bytes[];
};
TAILQ_HEAD(packets, packet);

struct answer {
    STAILQ_ENTRY(answer) queued;
    struct wire wire;
    bool reads;
};

/* All that a NIC has to do with another endpoint. */
struct link {
    SLIST_ENTRY(link) found;
    TAILQ_ENTRY(link) queued; /* busy, or idle with an open descriptor */
    bool busy;
    uint64_t token;
    uint16_t qpn;
    uint32_t connid;
    int fd;              /* connected to it; -1: none */
    bool heard;          /* ever */
    uint64_t idle_ns;    /* since */
    uint64_t blocked_ns; /* until then its queue is taken to be full */
    uint64_t backoff_ns;
    uint64_t patience_ns;   /* between looks */
    uint64_t probe_ns;      /* the next look whether it is there */
    uint64_t dead_ns;       /* then its operations fail; 0: it is alive */
    uint64_t cut_ns;        /* since then its cable is out; 0: it is not */
    uint32_t chunks, sends; /* that are not answered */
    STAILQ_HEAD(, answer) answers;
    struct ops messages, transfers; /* to be sent, or the rest of them */
    struct ops known;               /* all that are not finished */
};
TAILQ_HEAD(links, link);

struct nic {
    TAILQ_ENTRY(nic) all; /* of the process, for forks */
    struct endpoint *endpoint;
    const struct habits *habits;
    struct draws draws;
    pthread_t thread;
    pid_t pid;
    int fd, wake_fd; /* its socket; written by whoever posts */
    atomic_bool woken, ends;

    int probe_fd, cut_fd; /* cut_fd: bound while the cable is out, for others to see */
    uint64_t now_ns, next_ns;
    uint64_t received; /* messages, where that is counted; */
    uint64_t finished; /* and operations */
    bool broken;
    uint64_t cut_ns; /* since then the cable is out; 0: it is not */
    SLIST_HEAD(, link) links[LINKS];
    struct links busy, idle;
    struct packet *held[HELD_MAX];
    size_t held_count;
    uint64_t arrived;
    struct packets spare; /* that are whole */
    size_t spare_count;
    struct packets waiting; /* messages without a receive */
    struct packets asked;   /* of which is asked whether they are wanted */
    uint64_t waiting_probe_ns;
    struct ops late; /* operations that are finished, and not completed */
    struct counts counts;
    struct {
        struct wire wire;
        uint8_t bytes[CHUNK_MAX];
    } out;
};

void nic_due(struct nic *nic, uint64_t ns);
bool move_bytes(const struct nic *nic, void *to, const void *from, size_t len);

/* link.c */
struct link *link_of(struct nic *nic, uint64_t token, uint16_t qpn, uint32_t connid);
void link_push(struct nic *nic, struct link *link);
void link_make_busy(struct nic *nic, struct link *link);
void link_answer(struct nic *nic, const struct wire *request, enum packet_type type,
                 enum status status);
bool link_is_gone(struct nic *nic, struct link *link);
void links_tidy(struct nic *nic);
void links_close(struct nic *nic);
socklen_t link_name(struct sockaddr_un *name_out, uint64_t token, uint16_t qpn, const char *end);

/* initiator.c */
void initiator_take(struct nic *nic);
size_t initiator_gather(struct nic *nic, struct op *op, struct wire *wire_out);
void initiator_sent(struct nic *nic, struct op *op, size_t len);
void initiator_answered(struct nic *nic, const struct packet *packet);
bool initiator_wants(struct nic *nic, const struct wire *wire);
void initiator_finish(struct nic *nic, struct op *op, enum status status);
void initiator_complete(struct nic *nic);
void initiator_flush(struct nic *nic);

/* target.c */
void target_execute(struct nic *nic, struct packet *packet); /* takes it */
void target_waiting(struct nic *nic);
void target_flush(struct nic *nic);
enum status target_read(struct nic *nic, const struct wire *wire, void *bytes_out);

/* nic.c */
void packet_drop(struct nic *nic, struct packet *packet);

#endif
