/* SPDX-License-Identifier: Apache-2.0 */
/* says.c: well-formed messages of a stranger. Every one is encoded by the library's own encoder,
 * so that nothing but its meaning is wrong. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lore.h"
#include "shm.h"

struct lore lore;

enum { NEAR = 4 };

static uint32_t pick(uint32_t limit) {
    return below(&lore.prng, limit);
}
static bool chance(uint32_t count) {
    return one_in(&lore.prng, count);
}

static void random_bytes(uint8_t *out, size_t length) {
    for (size_t i = 0; i < length; i++)
        out[i] = (uint8_t)draw(&lore.prng);
}

/* ---- what is known ------------------------------------------------------ */

static void keep_set(const struct wire_qp_set *set) {
    lore.sets[lore.set_next++ % SETS] = *set;
    if (lore.set_count < SETS)
        lore.set_count++;
}

static void keep_pass(uint64_t pass) {
    if (pass != 0)
        lore.passes[lore.pass_count++ % PASSES] = pass;
}

void lore_begin(void) {
    lore.prng.state = mix(board->seed + 1);
    for (int i = 0; i < SELVES; i++)
        random_bytes(lore.selves[i], WIRE_INSTANCE_SIZE);
    for (int i = 0; i < 2; i++) {
        struct wire_descriptor descriptor;
        const struct side_board *side = &board->sides[i];
        struct shm_blob blob;
        memcpy(lore.addresses[i], side->address, WEIR_ADDRESS_MAX);
        if (wire_descriptor_decode(side->descriptors[0], side->descriptor_lengths[0],
                                   &descriptor) != WEIR_OK ||
            descriptor.blob_length != sizeof(blob))
            give_up("a descriptor cannot be read", 0);
        memcpy(&blob, descriptor.blob, sizeof(blob));
        memcpy(lore.fabric, descriptor.fabric, sizeof(lore.fabric));
        lore.nonces[i] = blob.nonce;
        lore.pids[i] = blob.pid;
    }
    lore.pids[2] = getpid();
}

void lore_hear(int target, const struct wire_message *message) {
    board->deeds.heard[message->type]++;
    if (message->type == WIRE_WHO || message->type == WIRE_IAM) {
        lore.known[target] = true;
        memcpy(lore.instances[target], message->from, WIRE_INSTANCE_SIZE);
    }
    if (message->type == WIRE_IAM)
        keep_pass(message->pass);
    if (message->type == WIRE_HELLO || message->type == WIRE_HELLO_ACK) {
        keep_set(&message->qps);
        keep_pass(message->qps.pass);
    }
    if ((message->type == WIRE_HELLO || message->type == WIRE_HELLO_ACK ||
         message->type == WIRE_READY || message->type == WIRE_SETTLE) &&
        message->epoch > lore.epochs[target])
        lore.epochs[target] = message->epoch;
}

/* ---- pieces ------------------------------------------------------------- */

/* Right, nearly right, or neither. The pair's own are among the low ones. */
static uint64_t some_epoch(int of) {
    uint64_t last = lore.epochs[of] + 1, epoch = 1;
    switch (pick(8)) {
    case 0:
    case 1:
    case 2:
        epoch = 1 + draw(&lore.prng) % (last + 2 * NEAR);
        break;
    case 3:
    case 4:
        epoch = last + pick(2 * NEAR) > NEAR ? last + pick(2 * NEAR) - NEAR : 1;
        break;
    case 5:
        epoch = last + (UINT64_C(1) << pick(63));
        break;
    case 6:
        epoch = UINT64_MAX - pick(NEAR);
        break;
    default:
        epoch = draw(&lore.prng);
        break;
    }
    epoch &= ~(chance(4) ? 0 : WIRE_ECHO_LATER);
    return epoch != 0 ? epoch : 1;
}

static void some_address(char *out) {
    static const char *const others[] = {
        "",        "0.0.0.0:7000", "[::]:7000",   "127.0.0.1:1", "127.0.0.2:9",
        "[::1]:9", "240.0.0.1:9",  "localhost:1", "nonsense",    "127.0.0.1",
        ":0",
    };
    memset(out, 0, WEIR_ADDRESS_MAX);
    if (!chance(4))
        memcpy(out, lore.addresses[chance(3) ? 2 : pick(3)], WEIR_ADDRESS_MAX);
    else
        snprintf(out, WEIR_ADDRESS_MAX, "%s", others[pick(sizeof(others) / sizeof(others[0]))]);
}

static void own_blob(struct wire_qp *qp, int whose) {
    struct shm_blob blob = {.what = BLOB_QP,
                            .pid = lore.pids[whose],
                            .map_fd = (int32_t)pick(40),
                            .index = pick(OWN_QPS),
                            .nonce = lore.nonces[whose],
                            .key = lore.nonces[2] | 1}; /* our own QPs have that key */
    if (whose < 2)
        blob.key = draw(&lore.prng) | 1;
    if (chance(16))
        blob.index = pick(UINT32_MAX);
    if (chance(16))
        blob.pid = (int32_t)pick(INT32_MAX);
    if (chance(16))
        blob.nonce ^= UINT64_C(1) << pick(64);
    if (chance(32))
        blob.what = BLOB_MR;
    qp->psn = pick(1 << 24);
    qp->blob_length = sizeof(blob);
    memcpy(qp->blob, &blob, sizeof(blob));
}

/* As an engine with default settings has it, with blobs of whom it may be. */
static void plain_set(struct wire_qp_set *out) {
    memset(out, 0, sizeof(*out));
    memcpy(out->device, "shm", 4);
    memcpy(out->fabric, lore.fabric, sizeof(out->fabric));
    out->recv_credits = 64;
    out->recv_bytes_max = 512;
    out->pass = draw(&lore.prng) | 1;
    out->life = draw(&lore.prng) | 1;
    out->ordered = true;
    out->qp_count = 1;
    own_blob(&out->qps[0], chance(2) ? 2 : (int)pick(3));
}

static void twist_set(struct wire_qp_set *set) {
    switch (pick(10)) {
    case 0:
        random_bytes(set->fabric, sizeof(set->fabric));
        break;
    case 1:
        snprintf(set->device, sizeof(set->device), "%s", chance(2) ? "verbs" : "nothing");
        break;
    case 2:
        set->recv_credits = chance(2) ? 1 : WIRE_CREDITS_MAX;
        break;
    case 3:
        set->recv_bytes_max = chance(2) ? pick(300) : UINT32_MAX;
        break;
    case 4:
        set->qp_count = 1 + pick(WEIR_QPS_MAX);
        for (uint32_t i = 0; i < set->qp_count; i++)
            own_blob(&set->qps[i], (int)pick(3));
        break;
    case 5:
        memset(&set->qps[0], 0, sizeof(set->qps[0]));
        set->qps[0].blob_length = pick(WEIR_QP_BLOB_MAX + 1);
        random_bytes(set->qps[0].blob, set->qps[0].blob_length);
        break;
    case 6:
        set->mtu = (uint32_t)draw(&lore.prng);
        set->rd_atomic = (uint32_t)draw(&lore.prng);
        break;
    case 7:
        set->ordered = !set->ordered;
        break;
    case 8:
        set->life = draw(&lore.prng) | 1;
        break;
    default:
        set->pass =
            lore.pass_count > 0 && chance(2) ? lore.passes[pick(PASSES)] | 1 : draw(&lore.prng) | 1;
        break;
    }
}

static void some_set(struct wire_qp_set *out) {
    if (lore.set_count > 0 && chance(3))
        *out = lore.sets[pick(lore.set_count)];
    else
        plain_set(out);
    for (uint32_t twists = pick(8); twists > 5; twists--)
        twist_set(out);
}

static void some_devices(struct wire_devices *out) {
    static const char *const names[] = {"shm", "verbs", "efa", "ofi", "nothing"};
    memset(out, 0, sizeof(*out));
    out->count = pick(WIRE_DEVICES_MAX);
    for (uint32_t i = 0; i < out->count; i++) {
        struct wire_device *entry = &out->entries[i];
        snprintf(entry->name, sizeof(entry->name), "%s", names[pick(5)]);
        entry->used = chance(3);
        entry->untried = chance(3);
        if (chance(2))
            memcpy(entry->fabric, lore.fabric, sizeof(entry->fabric));
    }
}

static uint64_t some_pass(void) {
    uint32_t known = lore.pass_count < PASSES ? lore.pass_count : PASSES;
    switch (pick(4)) {
    case 0:
        return 0;
    case 1:
        return draw(&lore.prng);
    default:
        return known > 0 ? lore.passes[pick(known)] : 0;
    }
}

static void some_window(struct wire_settled *out) {
    memset(out, chance(2) ? 0xff : 0, sizeof(*out));
    if (chance(2))
        random_bytes((uint8_t *)out->bits, sizeof(out->bits));
    if (chance(2))
        out->base = pick(100000);
    else if (chance(2))
        out->base = 0;
    out->broke = chance(2) ? 1 + pick(1000) : 0;
    out->reason = out->broke == 0 ? 0 : chance(2) ? WEIR_EREMOTE : WEIR_ETIMEDOUT;
}

static void some_state(struct wire_state *out) {
    random_bytes((uint8_t *)out, sizeof(*out));
    out->thread = chance(2);
    out->inbox_count = pick(WIRE_STATE_INBOXES + 1);
}

/* ---- messages ----------------------------------------------------------- */

void choose_self(int target, uint8_t *as_out) {
    if (chance(6) && lore.known[1 - target])
        memcpy(as_out, lore.instances[1 - target], WIRE_INSTANCE_SIZE);
    else
        memcpy(as_out, lore.selves[pick(SELVES)], WIRE_INSTANCE_SIZE);
}

static void some_sender(int target, uint8_t *out) {
    uint32_t who = pick(16);
    if (who < 10 && lore.known[1 - target]) {
        board->deeds.as_peer++;
        memcpy(out, lore.instances[1 - target], WIRE_INSTANCE_SIZE);
    } else if (who < 13) {
        board->deeds.as_self++;
        memcpy(out, lore.selves[pick(SELVES)], WIRE_INSTANCE_SIZE);
    } else {
        board->deeds.as_others++;
        if (who == 13 && lore.known[target])
            memcpy(out, lore.instances[target], WIRE_INSTANCE_SIZE);
        else
            random_bytes(out, WIRE_INSTANCE_SIZE);
    }
}

static void some_body(int target, struct wire_message *message) {
    message->epoch = some_epoch(1 - target);
    message->echo = some_epoch(target);
    static const int reasons[] = {WEIR_ESTALE,  WEIR_EREFUSED, WEIR_EFULL,
                                  WEIR_EDEVICE, WEIR_EAGAIN,   WEIR_EMFILE};
    message->reason = chance(3) ? WIRE_REASON_MIN + (int32_t)pick(-WIRE_REASON_MIN)
                                : reasons[pick(sizeof(reasons) / sizeof(reasons[0]))];
    message->pass = some_pass();
    if (message->type == WIRE_WHO || message->type == WIRE_IAM)
        some_address(message->address);
    else if (message->type == WIRE_HELLO || message->type == WIRE_HELLO_ACK)
        some_set(&message->qps);
    else if (message->type == WIRE_SETTLED)
        some_window(&message->settled);
    else if (message->type == WIRE_STATE)
        some_state(&message->state);
    if (message->type == WIRE_HELLO || message->type == WIRE_HELLO_ACK ||
        message->type == WIRE_REFUSE)
        some_devices(&message->devices);
}

static void address_to(int target, struct wire_message *message) {
    if (message->type == WIRE_WHO)
        memset(message->to, 0, WIRE_INSTANCE_SIZE);
    else
        memcpy(message->to, lore.instances[target], WIRE_INSTANCE_SIZE);
}

void say_any(int target, struct wire_message *out) {
    memset(out, 0, sizeof(*out));
    out->type = (enum wire_type)(WIRE_WHO + pick(WIRE_TYPE_END - WIRE_WHO));
    if (!lore.known[target])
        out->type = WIRE_WHO;
    some_sender(target, out->from);
    some_body(target, out);
    address_to(target, out);
    if (chance(16) && out->type != WIRE_WHO && lore.known[1 - target])
        memcpy(out->to, lore.instances[1 - target], WIRE_INSTANCE_SIZE);
}

void say_hello(int target, const uint8_t *as, struct wire_message *out) {
    static uint64_t epoch;
    memset(out, 0, sizeof(*out));
    out->type = WIRE_HELLO;
    memcpy(out->from, as, WIRE_INSTANCE_SIZE);
    out->epoch = ++epoch;
    if (chance(4))
        some_set(&out->qps);
    else
        plain_set(&out->qps);
    address_to(target, out);
}

bool say_answer(int target, const uint8_t *as, const struct wire_message *heard,
                struct wire_message *out) {
    static const enum wire_type answers[WIRE_TYPE_END] = {
        [WIRE_WHO] = WIRE_IAM,        [WIRE_HELLO] = WIRE_HELLO_ACK, [WIRE_HELLO_ACK] = WIRE_READY,
        [WIRE_SETTLE] = WIRE_SETTLED, [WIRE_REFUSE] = WIRE_HELLO,    [WIRE_READY] = WIRE_SETTLE,
        [WIRE_ASK] = WIRE_STATE,
    };
    memset(out, 0, sizeof(*out));
    out->type = answers[heard->type];
    if (out->type == 0 || chance(8))
        return false;
    if (chance(16) && lore.known[target])
        out->type = (enum wire_type)(WIRE_WHO + pick(WIRE_TYPE_END - WIRE_WHO));
    memcpy(out->from, as, WIRE_INSTANCE_SIZE);
    some_body(target, out);
    if (!chance(8)) {
        bool tells = heard->type == WIRE_HELLO || heard->type == WIRE_HELLO_ACK ||
                     heard->type == WIRE_SETTLE || heard->type == WIRE_READY;
        if (tells)
            out->echo = heard->epoch;
        if (heard->type == WIRE_HELLO_ACK)
            out->epoch = heard->echo; /* that of our HELLO */
    }
    address_to(target, out);
    return lore.known[target] || out->type == WIRE_WHO;
}
