/* SPDX-License-Identifier: Apache-2.0 */
/* wire.h: the bytes of control messages and of exported memory descriptors.
 *
 * Owns the layout and the checks that need no context: what decodes is in range
 * and canonical, so that encoding it again gives the same bytes; but for lists of devices, where
 * what this version does not know is skipped. Leaves to
 * others what a message means (endpoint.h) and whether its sender may say it.
 * The header in front of data-path messages is in wire_data.h.
 *
 * Integers are little-endian. A control message is
 *
 *      0  magic     4   'W' 'E' 'I' 'R'
 *      4  version   2
 *      6  type      2   enum wire_type
 *      8  length    4   of the whole message
 *     12  from     16   the sender's instance
 *     28  to       16   the receiver's instance; zeros in WHO
 *     44  body
 *
 * Of these the first 28 bytes are the same in all versions, for ever; the types' numbers are not.
 *
 *     WHO          address: length 2 (with its terminator), then the bytes
 *     IAM          address likewise, pass 8 (0: none)
 *     HELLO        epoch 8, pass 8 (not 0), life 8 (not 0), devices
 *     HELLO_ACK    epoch 8, echo 8, pass 8 (not 0), life 8 (not 0), devices
 *     READY        epoch 8, echo 8
 *     REFUSE       echo 8 (perhaps with WIRE_ECHO_LATER), reason 4, devices without QP sets
 *     SETTLE       epoch 8
 *     SETTLED      echo 8, base 8, bitmap WIRE_WINDOW_SIZE / 8, broke 8, reason 4
 *     BYE          nothing
 *     ASK          epoch 8: the number of the question, of the sender's own counting
 *     STATE        echo 8: of the question; away 8, session 8, notifications 4, flags 1 (bit 0:
 *                  thread), inbox count 1, zero 2, then for each: number 4, ready 4, held 4
 *
 * `epoch` is always the sender's own number, `echo` always one of the receiver's.
 *
 *     devices      version of the list 1 (WIRE_DEVICES_VERSION; a higher one only adds), entry
 * count 1 (up to WIRE_DEVICES_MAX), then the entries entry        length 2 of what follows, kind 1
 * (1: device; any other is skipped), and of a device: flags 1 (bit 0: used, bit 1: untried; others
 * are ignored), name length 1 (without a terminator), name, fabric 16, QP set length 2 (0: none),
 * QP set; what is behind that is skipped QP set       mtu 4, rd_atomic 4, recv_credits 4,
 * recv_bytes_max 4, flags 1 (bit 0: ordered; others are ignored), QP count 1, then for each QP: PSN
 * 3, blob length 1, blob; what is behind that is skipped
 *
 * A memory descriptor is
 *
 *      0  magic     4   'W' 'E' 'I' 'M'
 *      4  version   1
 *      5  access    1
 *      6  name length 1 (without a terminator), blob length 1
 *      8  instance 16
 *     24  memory id 8
 *     32  length    8
 *     40  fabric   16
 *     56  name, blob
 *      .  XXH3_64bits of all before it, 8: against damage, not against forgery
 */
#ifndef WEIR_WIRE_H
#define WEIR_WIRE_H

#include "ports.h"

enum {
    WIRE_VERSION = 10,
    WIRE_INSTANCE_SIZE = 16,
    WIRE_HEADER_SIZE = 44,
    WIRE_DEVICES_VERSION = 1,
    WIRE_DEVICES_MAX = 8, /* entries of a list, of any kind */
    WIRE_QP_SET_SIZE_MAX = 18 + WEIR_QPS_MAX * (4 + WEIR_QP_BLOB_MAX),
    WIRE_DEVICE_SIZE_MAX = 23 + (WEIR_DEVICE_NAME_MAX - 1), /* without a QP set */
    /* Of those that are encoded here: */
    WIRE_HELLO_SIZE_MAX =
        WIRE_HEADER_SIZE + 26 + WIRE_DEVICES_MAX * WIRE_DEVICE_SIZE_MAX + WIRE_QP_SET_SIZE_MAX,
    WIRE_HELLO_ACK_SIZE_MAX = WIRE_HEADER_SIZE + 34 + WIRE_DEVICE_SIZE_MAX + WIRE_QP_SET_SIZE_MAX,
    WIRE_REFUSE_SIZE_MAX = WIRE_HEADER_SIZE + 14 + WIRE_DEVICES_MAX * WIRE_DEVICE_SIZE_MAX,
    WIRE_WINDOW_SIZE = 1024, /* numbers in a window of notifications */
    WIRE_SETTLED_SIZE = WIRE_HEADER_SIZE + 28 + WIRE_WINDOW_SIZE / 8,
    WIRE_STATE_INBOXES = 8, /* that a STATE tells of */
    WIRE_STATE_SIZE = WIRE_HEADER_SIZE + 32 + WIRE_STATE_INBOXES * 12,
    WIRE_CREDITS_MAX = 65535
};

/* In REFUSE's echo, where no epoch reaches: the attempt is not refused for good; the sender lacks
 * something now, says what, and will look again when HELLO is repeated. To an engine that does not
 * know of this, it names an attempt that there is not, and means nothing. */
#define WIRE_ECHO_LATER (UINT64_C(1) << 63)

_Static_assert(WIRE_HELLO_SIZE_MAX <= WEIR_CONTROL_MESSAGE_MAX, "a HELLO fits");
_Static_assert(WIRE_HELLO_ACK_SIZE_MAX <= WIRE_HELLO_SIZE_MAX,
               "where a HELLO fits, its answer does");
_Static_assert(WIRE_SETTLED_SIZE <= WEIR_CONTROL_MESSAGE_MAX, "a SETTLED fits");
_Static_assert(WIRE_STATE_SIZE <= WEIR_CONTROL_MESSAGE_MAX, "a STATE fits");
_Static_assert(WIRE_HEADER_SIZE + 10 + WEIR_ADDRESS_MAX <= WEIR_CONTROL_MESSAGE_MAX, "an IAM fits");

enum wire_type {
    WIRE_WHO = 1,
    WIRE_IAM,
    WIRE_HELLO,
    WIRE_HELLO_ACK,
    WIRE_READY,
    WIRE_REFUSE,
    WIRE_SETTLE,
    WIRE_SETTLED,
    WIRE_BYE,
    WIRE_ASK,
    WIRE_STATE,
    WIRE_TYPE_END /* first value that is no type */
};

struct wire_qp {
    uint32_t psn; /* 24 bits */
    uint32_t blob_length;
    uint8_t blob[WEIR_QP_BLOB_MAX]; /* zeros behind blob_length after decoding */
};

/* A device that the sender has, or could have. */
struct wire_device {
    char name[WEIR_DEVICE_NAME_MAX];     /* printable, terminated, not empty */
    uint8_t fabric[WEIR_FABRIC_ID_SIZE]; /* of one that is untried: zeros */
    bool used;                           /* the sender's engine has it open */
    bool untried; /* it is there, perhaps: nobody has looked whether it can be used */
};

struct wire_devices {
    uint32_t count;                               /* up to WIRE_DEVICES_MAX */
    struct wire_device entries[WIRE_DEVICES_MAX]; /* zeros behind count after decoding */
};

/* One side's description of itself for one session. */
struct wire_qp_set {
    char device[WEIR_DEVICE_NAME_MAX]; /* printable, terminated, not empty */
    uint8_t fabric[WEIR_FABRIC_ID_SIZE];
    uint32_t mtu;            /* mtu_max of the device; 0: does not matter */
    uint32_t rd_atomic;      /* 0: does not matter */
    uint32_t recv_credits;   /* notifications that the other side may have in flight on a QP:
                              * 1..WIRE_CREDITS_MAX */
    uint32_t recv_bytes_max; /* the longest SEND that it may send, header included */
    uint64_t pass;           /* what the other side shows on a new connection of its; not 0 */
    uint64_t life;           /* of all that the sender knows of the other side; not 0 */
    bool ordered;
    uint32_t qp_count; /* 1..WEIR_QPS_MAX; 0: there is no set, and of all this only pass
                        * and life */
    struct wire_qp qps[WEIR_QPS_MAX]; /* zeros behind qp_count after decoding */
};

/* Which notifications were delivered: all numbers <= base, and base + 1 + i when
 * bit i % 64 of bits[i / 64] is set. And which session of the receiver's, the last one up to
 * the echo, the sender broke for a transfer of its own, and that one's error. */
struct wire_settled {
    uint64_t base;
    uint64_t bits[WIRE_WINDOW_SIZE / 64];
    uint64_t broke; /* the receiver's epoch; 0: none */
    int32_t reason; /* WEIR_E*, WIRE_REASON_MIN..-1; 0: broke is 0 */
};

/* How the sender of STATE is. It is its own word: for a sentence to a person, and for nothing else.
 */
struct wire_state {
    uint64_t away_ns;       /* until it heard the question nobody made progress for so long */
    uint64_t session;       /* the receiver's epoch of the session that is live there; 0: none */
    uint32_t notifications; /* received there, from anybody, and not taken */
    bool thread;            /* its engine has a thread of its own */
    uint32_t inbox_count;
    struct wire_state_inbox { /* one that the receiver wants more room in than it has */
        uint32_t number;
        uint32_t ready;            /* senders with a message to take there */
        uint32_t held;             /* messages that were taken and not given back */
    } inboxes[WIRE_STATE_INBOXES]; /* zeros behind inbox_count after decoding */
};

/* A decoded control message. */
struct wire_message {
    enum wire_type type;
    uint8_t from[WIRE_INSTANCE_SIZE];
    uint8_t to[WIRE_INSTANCE_SIZE];
    uint64_t epoch; /* HELLO, HELLO_ACK, READY, SETTLE, ASK: not 0 */
    uint64_t echo;  /* HELLO_ACK, READY, REFUSE, SETTLED, STATE: not 0 */
    int32_t reason; /* REFUSE: WEIR_E*, WIRE_REASON_MIN..-1 */
    uint64_t pass;  /* IAM: what the receiver gave the sender in a QP set; 0: nothing is shown */
    union {
        char address[WEIR_ADDRESS_MAX]; /* WHO, IAM: printable, terminated, may be "" */
        struct {
            struct wire_devices devices; /* HELLO, HELLO_ACK: without that of qps; REFUSE */
            struct wire_qp_set qps;      /* HELLO, HELLO_ACK: of a device that is used */
        };
        struct wire_settled settled; /* SETTLED */
        struct wire_state state;     /* STATE */
    };
};

enum { WIRE_REASON_MIN = -4095 };

/* Writes *message into at most `size` bytes at `out`. EINVAL: a field is out of
 * range. ETOOBIG: `size` is too small. WEIR_CONTROL_MESSAGE_MAX bytes hold any. */
int wire_encode(const struct wire_message *message, uint8_t *out, size_t size,
                uint32_t *length_out);

/* Reads exactly one message of `length` bytes. EINVAL for anything that
 * wire_encode would not have written, byte for byte, but for what is skipped in a list of devices;
 * *message_out is then unspecified. Members that the type does not have are left alone.
 *
 * Of several QP sets the one of the device `own` is read, by name and fabric, else by name, else
 * the first; the other devices count as used. own: NULL: the first. */
int wire_decode_for(const uint8_t *in, size_t length, const struct wire_device *own,
                    struct wire_message *message_out);
static inline int wire_decode(const uint8_t *in, size_t length, struct wire_message *message_out) {
    return wire_decode_for(in, length, NULL, message_out);
}

/* The version of the protocol that a message is of; 0: it is none. */
uint32_t wire_version_of(const uint8_t *in, size_t length);

/* The session that a message is about: its own epoch, or the one that it echoes; 0: of none. */
uint64_t wire_epoch_of(const struct wire_message *message);
/* Of an encoded message its type and such an epoch: for who sends what others encoded. */
enum wire_type wire_peek(const uint8_t *in, size_t length, uint64_t *epoch_out);

/* The type's name in capitals, for traces; "?" for any other value. */
const char *wire_type_name(enum wire_type type);

/* The terms that two sides agree on. */
struct wire_agreed {
    uint32_t qp_count; /* the smaller; the other side's further QPs stay unused */
    uint32_t mtu;      /* the smaller; one that does not matter gives way */
    uint32_t rd_atomic;
    bool ordered; /* on both sides */
};

/* EREFUSED: the devices or fabrics differ, or there is no remote set, or the remote cannot receive
 * the longest notification. Symmetric but for the last. */
int wire_qp_set_negotiate(const struct wire_qp_set *local, const struct wire_qp_set *remote,
                          struct wire_agreed *agreed_out);

/* The first device of ours that the other side has as well: of one fabric, or untried on a side.
 * One that both have tried goes before others. NULL: there is none. *remote_out: theirs. */
const struct wire_device *wire_devices_common(const struct wire_devices *local,
                                              const struct wire_devices *remote,
                                              const struct wire_device **remote_out);
/* The first that is used; NULL. */
const struct wire_device *wire_devices_used(const struct wire_devices *devices);

/* An exported memory. */
struct wire_descriptor {
    uint8_t instance[WIRE_INSTANCE_SIZE];
    uint64_t memory_id;
    uint64_t length; /* not 0 */
    uint32_t access; /* WEIR_ACCESS_*, not 0 */
    char device[WEIR_DEVICE_NAME_MAX];
    uint8_t fabric[WEIR_FABRIC_ID_SIZE];
    uint32_t blob_length;
    uint8_t blob[WEIR_MR_BLOB_MAX]; /* zeros behind blob_length after decoding */
};

enum { WIRE_DESCRIPTOR_SIZE_MAX = 56 + (WEIR_DEVICE_NAME_MAX - 1) + WEIR_MR_BLOB_MAX + 8 };
_Static_assert(WIRE_DESCRIPTOR_SIZE_MAX <= WEIR_DESCRIPTOR_MAX, "a descriptor fits");

/* As wire_encode and wire_decode, but ETOOBIG leaves the buffer as it is. */
int wire_descriptor_encode(const struct wire_descriptor *descriptor, uint8_t *out, size_t size,
                           uint32_t *length_out);
int wire_descriptor_decode(const uint8_t *in, size_t length,
                           struct wire_descriptor *descriptor_out);

#endif
