/* SPDX-License-Identifier: Apache-2.0 */
/* wire.c: encoding and decoding of control messages and memory descriptors.
 *
 * Both directions walk the bytes with a cursor (cursor.h), so one check at the end is enough.
 * Lengths read from the message are compared with their limit before they move a cursor.
 *
 * Every field is checked by the same function in both directions, so that
 * one side writes only messages that the other accepts.
 */
#include "wire.h"

#include <assert.h>
#include <string.h>

#include "cursor.h"
#include "wire_data.h"

/* Used from its header, so that the core links with nothing. It hashes a short,
 * complete buffer. */
#define XXH_INLINE_ALL
#include <xxhash.h>

static const uint8_t MESSAGE_MAGIC[4] = {'W', 'E', 'I', 'R'};
static const uint8_t DESCRIPTOR_MAGIC[4] = {'W', 'E', 'I', 'M'};

enum {
    QP_SET_FLAG_ORDERED = 0x1,
    ENTRY_DEVICE = 1, /* a kind */
    DEVICE_FLAG_USED = 0x1,
    DEVICE_FLAG_UNTRIED = 0x2,
    STATE_FLAG_THREAD = 0x1,
    PSN_MAX = 0xffffff,
    QP_SET_HEAD_SIZE = 18,
    DESCRIPTOR_HEAD_SIZE = 56,
    CHECKSUM_SIZE = 8,
    LENGTH_OFFSET = 8, /* of the length field in a message */
    HEAD_FIXED = 28    /* bytes that all versions have */
};

/* ---- checks ------------------------------------------------------------ */

/* Names and addresses end up in logs and in terminals: printable ASCII without
 * blanks, nothing else. Returns the length, or -1 when it is not terminated
 * within size or has another character. */
static int text_length(const char *text, size_t size) {
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '\0')
            return (int)i;
        if (text[i] < 0x21 || text[i] > 0x7e)
            return -1;
    }
    return -1;
}

static bool name_valid(const char *name) {
    return text_length(name, WEIR_DEVICE_NAME_MAX) > 0;
}

/* Of none only pass and life say something. */
static bool qp_set_valid(const struct wire_qp_set *set) {
    if (set->pass == 0 || set->life == 0 || set->qp_count > WEIR_QPS_MAX)
        return false;
    if (set->qp_count == 0)
        return true;
    if (!name_valid(set->device) || set->recv_credits < 1 || set->recv_credits > WIRE_CREDITS_MAX)
        return false;
    for (uint32_t i = 0; i < set->qp_count; i++) {
        if (set->qps[i].psn > PSN_MAX || set->qps[i].blob_length > WEIR_QP_BLOB_MAX)
            return false;
    }
    return true;
}

/* beside: entries of the same list that are elsewhere. */
static bool devices_valid(const struct wire_devices *devices, uint32_t beside) {
    if (devices->count + beside > WIRE_DEVICES_MAX)
        return false;
    for (uint32_t i = 0; i < devices->count; i++) {
        if (!name_valid(devices->entries[i].name))
            return false;
    }
    return true;
}

static bool has_epoch(enum wire_type type) {
    return type == WIRE_HELLO || type == WIRE_HELLO_ACK || type == WIRE_READY ||
           type == WIRE_SETTLE || type == WIRE_ASK;
}

static bool has_echo(enum wire_type type) {
    return type == WIRE_HELLO_ACK || type == WIRE_READY || type == WIRE_REFUSE ||
           type == WIRE_SETTLED || type == WIRE_STATE;
}

static bool is_zero(const uint8_t *bytes, size_t length) {
    uint8_t any = 0;

    for (size_t i = 0; i < length; i++)
        any |= bytes[i];
    return any == 0;
}

/* All that is not a matter of bytes. */
static bool message_valid(const struct wire_message *m) {
    if (has_epoch(m->type) && m->epoch == 0)
        return false;
    if (has_echo(m->type) && m->echo == 0)
        return false;
    /* WHO goes to nobody in particular, and nothing else does. */
    if (is_zero(m->from, WIRE_INSTANCE_SIZE) ||
        is_zero(m->to, WIRE_INSTANCE_SIZE) != (m->type == WIRE_WHO))
        return false;
    switch (m->type) {
    case WIRE_WHO:
    case WIRE_IAM:
        return text_length(m->address, WEIR_ADDRESS_MAX) >= 0;
    case WIRE_HELLO:
    case WIRE_HELLO_ACK:
        return qp_set_valid(&m->qps) && devices_valid(&m->devices, m->qps.qp_count > 0);
    case WIRE_REFUSE:
        return m->reason >= WIRE_REASON_MIN && m->reason < 0 && devices_valid(&m->devices, 0);
    case WIRE_SETTLED:
        return m->settled.reason >= WIRE_REASON_MIN && m->settled.reason <= 0 &&
               (m->settled.reason == 0) == (m->settled.broke == 0);
    case WIRE_STATE:
        return m->state.inbox_count <= WIRE_STATE_INBOXES;
    case WIRE_READY:
    case WIRE_SETTLE:
    case WIRE_BYE:
    case WIRE_ASK:
        return true;
    case WIRE_TYPE_END:
        break;
    }
    return false;
}

/* A later version may offer what this one does not know, and nothing else. This one has a set. */
static bool lacks_set(const struct wire_message *m) {
    return (m->type == WIRE_HELLO || m->type == WIRE_HELLO_ACK) && m->qps.qp_count == 0;
}

/* ---- pieces: the put_ ones write what was checked ------------------------ */

static uint32_t qp_set_length(const struct wire_qp_set *set) {
    uint32_t length = QP_SET_HEAD_SIZE;

    for (uint32_t i = 0; i < set->qp_count; i++)
        length += 4 + set->qps[i].blob_length;
    return length;
}

static void put_qp_set(struct writer *w, const struct wire_qp_set *set) {
    put_uint(w, set->mtu, 4);
    put_uint(w, set->rd_atomic, 4);
    put_uint(w, set->recv_credits, 4);
    put_uint(w, set->recv_bytes_max, 4);
    put_uint(w, set->ordered ? QP_SET_FLAG_ORDERED : 0, 1);
    put_uint(w, set->qp_count, 1);
    for (uint32_t i = 0; i < set->qp_count; i++) {
        put_uint(w, set->qps[i].psn, 3);
        put_uint(w, set->qps[i].blob_length, 1);
        put_bytes(w, set->qps[i].blob, set->qps[i].blob_length);
    }
}

/* All that is left of the reader is the set's. pass and life stay as they are. */
static bool get_qp_set(struct reader r, const struct wire_device *device, struct wire_qp_set *set) {
    const uint64_t pass = set->pass, life = set->life;

    *set = (struct wire_qp_set){.pass = pass, .life = life};
    memcpy(set->device, device->name, sizeof(set->device));
    memcpy(set->fabric, device->fabric, sizeof(set->fabric));
    set->mtu = (uint32_t)get_uint(&r, 4);
    set->rd_atomic = (uint32_t)get_uint(&r, 4);
    set->recv_credits = (uint32_t)get_uint(&r, 4);
    set->recv_bytes_max = (uint32_t)get_uint(&r, 4);
    set->ordered = (get_uint(&r, 1) & QP_SET_FLAG_ORDERED) != 0;
    set->qp_count = (uint32_t)get_uint(&r, 1);
    if (r.bad || set->qp_count < 1 || set->qp_count > WEIR_QPS_MAX)
        return false;
    for (uint32_t i = 0; i < set->qp_count && !r.bad; i++) {
        set->qps[i].psn = (uint32_t)get_uint(&r, 3);
        set->qps[i].blob_length = (uint32_t)get_uint(&r, 1);
        if (set->qps[i].blob_length > WEIR_QP_BLOB_MAX)
            return false;
        get_bytes(&r, set->qps[i].blob, set->qps[i].blob_length);
    }
    return !r.bad;
}

/* set: NULL: none. */
static void put_device(struct writer *w, const struct wire_device *device,
                       const struct wire_qp_set *set) {
    const size_t name_length = strlen(device->name);
    const size_t set_length = set != NULL ? qp_set_length(set) : 0;

    put_uint(w, 5 + name_length + WEIR_FABRIC_ID_SIZE + set_length, 2);
    put_uint(w, ENTRY_DEVICE, 1);
    put_uint(w,
             (device->used ? DEVICE_FLAG_USED : 0u) | (device->untried ? DEVICE_FLAG_UNTRIED : 0u),
             1);
    put_uint(w, name_length, 1);
    put_bytes(w, device->name, name_length);
    put_bytes(w, device->fabric, sizeof(device->fabric));
    put_uint(w, set_length, 2);
    if (set != NULL)
        put_qp_set(w, set);
}

/* set: NULL, or without QPs: none. Its device comes first. */
static void put_devices(struct writer *w, const struct wire_devices *devices,
                        const struct wire_qp_set *set) {
    const bool with_set = set != NULL && set->qp_count > 0;

    put_uint(w, WIRE_DEVICES_VERSION, 1);
    put_uint(w, devices->count + (with_set ? 1u : 0u), 1);
    if (with_set) {
        struct wire_device own = {.used = true};
        memcpy(own.name, set->device, sizeof(own.name));
        memcpy(own.fabric, set->fabric, sizeof(own.fabric));
        put_device(w, &own, set);
    }
    for (uint32_t i = 0; i < devices->count; i++)
        put_device(w, &devices->entries[i], NULL);
}

/* A part of what the reader has: so many bytes. */
static struct reader get_part(struct reader *r, size_t length) {
    struct reader part = {.in = r->in, .left = length, .bad = r->bad || r->left < length};

    if (part.bad) {
        r->bad = true;
        return part;
    }
    r->in += length;
    r->left -= length;
    return part;
}

/* The part of an entry that is a device, and its set, without bytes if there is none. */
static void get_device(struct reader *r, struct wire_device *device, struct reader *set_out) {
    const uint64_t flags = get_uint(r, 1);
    const size_t name_length = get_uint(r, 1);

    *device = (struct wire_device){.used = (flags & DEVICE_FLAG_USED) != 0,
                                   .untried = (flags & DEVICE_FLAG_UNTRIED) != 0};
    if (name_length >= sizeof(device->name)) {
        r->bad = true;
        return;
    }
    get_bytes(r, device->name, name_length);
    get_bytes(r, device->fabric, sizeof(device->fabric));
    *set_out = get_part(r, get_uint(r, 2));
    device->used |= set_out->left > 0; /* nobody has QPs on a device that is not open */
    if (strlen(device->name) != name_length || !name_valid(device->name))
        r->bad = true;
}

/* How well a set of this device would do, more than 0. */
static int rank_of(const struct wire_device *device, const struct wire_device *own) {
    if (own == NULL || strncmp(device->name, own->name, sizeof(own->name)) != 0)
        return 1;
    return memcmp(device->fabric, own->fabric, sizeof(own->fabric)) == 0 ? 3 : 2;
}

/* set: NULL: sets are skipped. That of a device which is not ours need not be one as this version
 * knows them: a later engine may have more QPs there. */
static void get_devices(struct reader *r, const struct wire_device *own,
                        struct wire_devices *devices, struct wire_qp_set *set) {
    const uint64_t version = get_uint(r, 1), count = get_uint(r, 1);
    struct reader best = {0};
    uint32_t chosen = 0;
    int rank = 0;

    memset(devices, 0, sizeof(*devices));
    if (version < 1 || count > WIRE_DEVICES_MAX)
        r->bad = true;
    for (uint64_t i = 0; i < count && !r->bad; i++) {
        struct reader entry = get_part(r, get_uint(r, 2)), set_bytes = {0};
        if (get_uint(&entry, 1) == ENTRY_DEVICE && !entry.bad) {
            struct wire_device *device = &devices->entries[devices->count++];
            get_device(&entry, device, &set_bytes);
            if (!entry.bad && set != NULL && set_bytes.left > 0 && rank_of(device, own) > rank) {
                rank = rank_of(device, own);
                chosen = devices->count - 1;
                best = set_bytes;
            }
        }
        r->bad |= entry.bad;
    }
    if (rank == 0 || r->bad)
        return;
    if (!get_qp_set(best, &devices->entries[chosen], set)) {
        *set = (struct wire_qp_set){.pass = set->pass, .life = set->life};
        r->bad = rank > 1;
        return;
    }
    devices->count--;
    memmove(&devices->entries[chosen], &devices->entries[chosen + 1],
            (devices->count - chosen) * sizeof(devices->entries[0]));
    memset(&devices->entries[devices->count], 0, sizeof(devices->entries[0]));
}

static void put_address(struct writer *w, const char *address) {
    size_t length = strlen(address) + 1;

    put_uint(w, length, 2);
    put_bytes(w, address, length);
}

static void get_address(struct reader *r, char *address) {
    uint64_t length = get_uint(r, 2);

    memset(address, 0, WEIR_ADDRESS_MAX);
    if (length < 1 || length > WEIR_ADDRESS_MAX) {
        r->bad = true;
        return;
    }
    get_bytes(r, address, length);
    /* Terminated by its last byte and by no earlier one. */
    if (text_length(address, length) != (int)length - 1)
        r->bad = true;
}

static void put_settled(struct writer *w, const struct wire_settled *settled) {
    put_uint(w, settled->base, 8);
    for (size_t i = 0; i < WIRE_WINDOW_SIZE / 64; i++)
        put_uint(w, settled->bits[i], 8);
    put_uint(w, settled->broke, 8);
    put_uint(w, (uint32_t)settled->reason, 4);
}

static void get_settled(struct reader *r, struct wire_settled *settled) {
    settled->base = get_uint(r, 8);
    for (size_t i = 0; i < WIRE_WINDOW_SIZE / 64; i++)
        settled->bits[i] = get_uint(r, 8);
    settled->broke = get_uint(r, 8);
    settled->reason = (int32_t)(uint32_t)get_uint(r, 4);
}

static void put_state(struct writer *w, const struct wire_state *state) {
    put_uint(w, state->away_ns, 8);
    put_uint(w, state->session, 8);
    put_uint(w, state->notifications, 4);
    put_uint(w, state->thread ? STATE_FLAG_THREAD : 0, 1);
    put_uint(w, state->inbox_count, 1);
    put_uint(w, 0, 2);
    for (uint32_t i = 0; i < state->inbox_count; i++) {
        put_uint(w, state->inboxes[i].number, 4);
        put_uint(w, state->inboxes[i].ready, 4);
        put_uint(w, state->inboxes[i].held, 4);
    }
}

static void get_state(struct reader *r, struct wire_state *state) {
    memset(state, 0, sizeof(*state));
    state->away_ns = get_uint(r, 8);
    state->session = get_uint(r, 8);
    state->notifications = (uint32_t)get_uint(r, 4);
    uint64_t flags = get_uint(r, 1);
    state->thread = flags == STATE_FLAG_THREAD;
    state->inbox_count = (uint32_t)get_uint(r, 1);
    if (flags > STATE_FLAG_THREAD || state->inbox_count > WIRE_STATE_INBOXES ||
        get_uint(r, 2) != 0) {
        r->bad = true;
        return;
    }
    for (uint32_t i = 0; i < state->inbox_count; i++) {
        state->inboxes[i].number = (uint32_t)get_uint(r, 4);
        state->inboxes[i].ready = (uint32_t)get_uint(r, 4);
        state->inboxes[i].held = (uint32_t)get_uint(r, 4);
    }
}

static void put_hello(struct writer *w, const struct wire_message *m) {
    put_uint(w, m->qps.pass, 8);
    put_uint(w, m->qps.life, 8);
    put_devices(w, &m->devices, &m->qps);
}

static void get_hello(struct reader *r, const struct wire_device *own, struct wire_message *m) {
    memset(&m->qps, 0, sizeof(m->qps));
    m->qps.pass = get_uint(r, 8);
    m->qps.life = get_uint(r, 8);
    get_devices(r, own, &m->devices, &m->qps);
}

static void put_refuse(struct writer *w, const struct wire_message *m) {
    put_uint(w, (uint32_t)m->reason, 4);
    put_devices(w, &m->devices, NULL);
}

static void get_refuse(struct reader *r, struct wire_message *m) {
    m->reason = (int32_t)(uint32_t)get_uint(r, 4);
    get_devices(r, NULL, &m->devices, NULL);
}

/* ---- messages ---------------------------------------------------------- */

int wire_encode(const struct wire_message *message, uint8_t *out, size_t size,
                uint32_t *length_out) {
    struct writer w = {.out = out, .size = size};

    if (!message_valid(message) || lacks_set(message))
        return WEIR_EINVAL;
    put_bytes(&w, MESSAGE_MAGIC, sizeof(MESSAGE_MAGIC));
    put_uint(&w, WIRE_VERSION, 2);
    put_uint(&w, (uint64_t)message->type, 2);
    put_uint(&w, 0, 4);
    put_bytes(&w, message->from, WIRE_INSTANCE_SIZE);
    put_bytes(&w, message->to, WIRE_INSTANCE_SIZE);
    if (has_epoch(message->type))
        put_uint(&w, message->epoch, 8);
    if (has_echo(message->type))
        put_uint(&w, message->echo, 8);
    if (message->type == WIRE_WHO || message->type == WIRE_IAM)
        put_address(&w, message->address);
    if (message->type == WIRE_IAM)
        put_uint(&w, message->pass, 8);
    else if (message->type == WIRE_HELLO || message->type == WIRE_HELLO_ACK)
        put_hello(&w, message);
    else if (message->type == WIRE_REFUSE)
        put_refuse(&w, message);
    else if (message->type == WIRE_SETTLED)
        put_settled(&w, &message->settled);
    else if (message->type == WIRE_STATE)
        put_state(&w, &message->state);
    if (w.full)
        return WEIR_ETOOBIG;
    *length_out = (uint32_t)w.used;
    w.used = LENGTH_OFFSET;
    put_uint(&w, *length_out, 4);
    return WEIR_OK;
}

uint32_t wire_version_of(const uint8_t *in, size_t length) {
    struct reader r = {.in = in, .left = length};
    uint32_t version;

    if (length < HEAD_FIXED)
        return 0;
    expect_bytes(&r, MESSAGE_MAGIC, sizeof(MESSAGE_MAGIC));
    version = (uint32_t)get_uint(&r, 2);
    get_uint(&r, 2);
    return get_uint(&r, 4) == length && !r.bad ? version : 0;
}

int wire_decode_for(const uint8_t *in, size_t length, const struct wire_device *own,
                    struct wire_message *message_out) {
    struct reader r = {.in = in, .left = length};
    struct wire_message *m = message_out;
    uint64_t version, type;

    expect_bytes(&r, MESSAGE_MAGIC, sizeof(MESSAGE_MAGIC));
    version = get_uint(&r, 2);
    type = get_uint(&r, 2);
    if (r.bad || version != WIRE_VERSION || type < WIRE_WHO || type >= WIRE_TYPE_END ||
        get_uint(&r, 4) != length)
        return WEIR_EINVAL;
    m->type = (enum wire_type)type;
    get_bytes(&r, m->from, WIRE_INSTANCE_SIZE);
    get_bytes(&r, m->to, WIRE_INSTANCE_SIZE);
    if (has_epoch(m->type))
        m->epoch = get_uint(&r, 8);
    if (has_echo(m->type))
        m->echo = get_uint(&r, 8);
    if (m->type == WIRE_WHO || m->type == WIRE_IAM)
        get_address(&r, m->address);
    if (m->type == WIRE_IAM)
        m->pass = get_uint(&r, 8);
    else if (m->type == WIRE_HELLO || m->type == WIRE_HELLO_ACK)
        get_hello(&r, own, m);
    else if (m->type == WIRE_REFUSE)
        get_refuse(&r, m);
    else if (m->type == WIRE_SETTLED)
        get_settled(&r, &m->settled);
    else if (m->type == WIRE_STATE)
        get_state(&r, &m->state);
    if (r.bad || r.left != 0 || !message_valid(m))
        return WEIR_EINVAL;
    return WEIR_OK;
}

uint64_t wire_epoch_of(const struct wire_message *message) {
    if (has_epoch(message->type))
        return message->epoch;
    return has_echo(message->type) ? message->echo & ~WIRE_ECHO_LATER : 0;
}

enum wire_type wire_peek(const uint8_t *in, size_t length, uint64_t *epoch_out) {
    struct reader r = {.in = in, .left = length};
    uint8_t skipped[2 * WIRE_INSTANCE_SIZE];

    get_bytes(&r, skipped, sizeof(MESSAGE_MAGIC) + 2);
    enum wire_type type = (enum wire_type)get_uint(&r, 2);
    get_uint(&r, 4);
    get_bytes(&r, skipped, 2 * WIRE_INSTANCE_SIZE);
    *epoch_out = has_epoch(type) || has_echo(type) ? get_uint(&r, 8) & ~WIRE_ECHO_LATER : 0;
    return type;
}

const char *wire_type_name(enum wire_type type) {
    static const char *const NAMES[WIRE_TYPE_END] = {
        [WIRE_WHO] = "WHO",       [WIRE_IAM] = "IAM",
        [WIRE_HELLO] = "HELLO",   [WIRE_HELLO_ACK] = "HELLO_ACK",
        [WIRE_READY] = "READY",   [WIRE_REFUSE] = "REFUSE",
        [WIRE_SETTLE] = "SETTLE", [WIRE_SETTLED] = "SETTLED",
        [WIRE_BYE] = "BYE",       [WIRE_ASK] = "ASK",
        [WIRE_STATE] = "STATE",
    };

    return type >= WIRE_WHO && type < WIRE_TYPE_END ? NAMES[type] : "?";
}

/* ---- negotiation ------------------------------------------------------- */

/* Zero means that a side does not care. */
static uint32_t smaller(uint32_t a, uint32_t b) {
    if (a == 0 || b == 0)
        return a | b;
    return a < b ? a : b;
}

int wire_qp_set_negotiate(const struct wire_qp_set *local, const struct wire_qp_set *remote,
                          struct wire_agreed *agreed_out) {
    if (remote->qp_count == 0 ||
        strncmp(local->device, remote->device, sizeof(local->device)) != 0 ||
        memcmp(local->fabric, remote->fabric, sizeof(local->fabric)) != 0 ||
        remote->recv_bytes_max < WIRE_DATA_SIZE + WEIR_NOTIFY_MAX) /* one SEND, never split */
        return WEIR_EREFUSED;
    agreed_out->qp_count = smaller(local->qp_count, remote->qp_count);
    agreed_out->mtu = smaller(local->mtu, remote->mtu);
    agreed_out->rd_atomic = smaller(local->rd_atomic, remote->rd_atomic);
    agreed_out->ordered = local->ordered && remote->ordered;
    return WEIR_OK;
}

static bool device_fits(const struct wire_device *a, const struct wire_device *b) {
    return strncmp(a->name, b->name, sizeof(a->name)) == 0 &&
           (a->untried || b->untried || memcmp(a->fabric, b->fabric, sizeof(a->fabric)) == 0);
}

const struct wire_device *wire_devices_common(const struct wire_devices *local,
                                              const struct wire_devices *remote,
                                              const struct wire_device **remote_out) {
    const struct wire_device *ours = NULL;

    for (uint32_t i = 0; i < local->count; i++) {
        for (uint32_t j = 0; j < remote->count; j++) {
            const struct wire_device *a = &local->entries[i], *b = &remote->entries[j];
            const bool sure = !a->untried && !b->untried;
            if (!device_fits(a, b) || (ours != NULL && !sure))
                continue;
            ours = a;
            *remote_out = b;
            if (sure)
                return ours;
        }
    }
    return ours;
}

const struct wire_device *wire_devices_used(const struct wire_devices *devices) {
    for (uint32_t i = 0; i < devices->count; i++) {
        if (devices->entries[i].used)
            return &devices->entries[i];
    }
    return NULL;
}

/* ---- memory descriptors ------------------------------------------------ */

static bool descriptor_valid(const struct wire_descriptor *d) {
    return !is_zero(d->instance, sizeof(d->instance)) && d->length != 0 && d->access != 0 &&
           (d->access & ~(uint32_t)WEIR_ACCESS_ALL) == 0 && name_valid(d->device) &&
           d->blob_length <= WEIR_MR_BLOB_MAX;
}

int wire_descriptor_encode(const struct wire_descriptor *descriptor, uint8_t *out, size_t size,
                           uint32_t *length_out) {
    const struct wire_descriptor *d = descriptor;
    struct writer w = {.out = out, .size = size};
    size_t name_length;

    if (!descriptor_valid(d))
        return WEIR_EINVAL;
    name_length = strlen(d->device);
    if (size < DESCRIPTOR_HEAD_SIZE + name_length + d->blob_length + CHECKSUM_SIZE)
        return WEIR_ETOOBIG; /* of a buffer that is too small no byte is written */
    put_bytes(&w, DESCRIPTOR_MAGIC, sizeof(DESCRIPTOR_MAGIC));
    put_uint(&w, WIRE_VERSION, 1);
    put_uint(&w, d->access, 1);
    put_uint(&w, name_length, 1);
    put_uint(&w, d->blob_length, 1);
    put_bytes(&w, d->instance, sizeof(d->instance));
    put_uint(&w, d->memory_id, 8);
    put_uint(&w, d->length, 8);
    put_bytes(&w, d->fabric, sizeof(d->fabric));
    put_bytes(&w, d->device, name_length);
    put_bytes(&w, d->blob, d->blob_length);
    put_uint(&w, XXH3_64bits(out, w.used), CHECKSUM_SIZE);
    assert(!w.full);
    *length_out = (uint32_t)w.used;
    return WEIR_OK;
}

int wire_descriptor_decode(const uint8_t *in, size_t length,
                           struct wire_descriptor *descriptor_out) {
    struct wire_descriptor *d = descriptor_out;
    struct reader r = {.in = in, .left = length};
    size_t name_length;

    memset(d, 0, sizeof(*d));
    expect_bytes(&r, DESCRIPTOR_MAGIC, sizeof(DESCRIPTOR_MAGIC));
    if (get_uint(&r, 1) != WIRE_VERSION)
        return WEIR_EINVAL;
    d->access = (uint32_t)get_uint(&r, 1);
    name_length = get_uint(&r, 1);
    d->blob_length = (uint32_t)get_uint(&r, 1);
    if (r.bad || name_length >= sizeof(d->device) || d->blob_length > WEIR_MR_BLOB_MAX ||
        length != DESCRIPTOR_HEAD_SIZE + name_length + d->blob_length + CHECKSUM_SIZE)
        return WEIR_EINVAL;
    get_bytes(&r, d->instance, sizeof(d->instance));
    d->memory_id = get_uint(&r, 8);
    d->length = get_uint(&r, 8);
    get_bytes(&r, d->fabric, sizeof(d->fabric));
    get_bytes(&r, d->device, name_length);
    get_bytes(&r, d->blob, d->blob_length);
    if (get_uint(&r, CHECKSUM_SIZE) != XXH3_64bits(in, length - CHECKSUM_SIZE) || r.bad ||
        strlen(d->device) != name_length || !descriptor_valid(d))
        return WEIR_EINVAL;
    return WEIR_OK;
}
