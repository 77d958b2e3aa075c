/* SPDX-License-Identifier: Apache-2.0 */
/* oracle.c: records, ranges and the properties they must keep; see oracle.h. */
#include "oracle.h"

#include <stdlib.h>
#include <string.h>

/* ---- content ----------------------------------------------------------- */

/* Byte i of a segment's content: a function of the record, the segment and i. */
static uint64_t content_word(uint32_t number, uint32_t segment, uint64_t word) {
    uint64_t state = ((uint64_t)number << 32 | segment) + word * UINT64_C(0x2545f4914f6cdd1d);

    return sim_splitmix(&state);
}

static void content_fill(uint32_t number, uint32_t segment, uint64_t offset, uint8_t *out,
                         uint64_t length, uint8_t flip) {
    uint64_t word = 0;

    for (uint64_t i = 0; i < length; i++) {
        uint64_t at = offset + i;

        if (i == 0 || (at & 7) == 0) {
            word = content_word(number, segment, at >> 3);
        }
        out[i] = (uint8_t)((word >> ((at & 7) * 8)) ^ flip);
    }
}

static bool content_is(uint32_t number, uint32_t segment, uint64_t offset, const uint8_t *bytes,
                       uint64_t length) {
    uint64_t word = 0;

    for (uint64_t i = 0; i < length; i++) {
        uint64_t at = offset + i;

        if (i == 0 || (at & 7) == 0) {
            word = content_word(number, segment, at >> 3);
        }
        if (bytes[i] != (uint8_t)(word >> ((at & 7) * 8))) {
            return false;
        }
    }
    return true;
}

uint32_t oracle_payload(const struct sim_transfer *transfer, uint8_t *out) {
    uint32_t length = transfer->number * 37 % (WEIR_NOTIFY_MAX + 1);

    content_fill(transfer->number, UINT32_MAX, 0, out, length, 0);
    return length;
}

/* ---- ranges ------------------------------------------------------------ */

static uint32_t granules_of(uint32_t offset, uint32_t length) {
    uint32_t last = length == 0 ? offset : offset + length - 1;

    return last / SIM_GRANULE - offset / SIM_GRANULE + 1;
}

static void range_own(struct sim_region *region, uint32_t offset, uint32_t length, uint32_t owner,
                      uint32_t segment) {
    uint32_t first = offset / SIM_GRANULE;
    uint32_t count = granules_of(offset, length);

    for (uint32_t i = first; i < first + count; i++) {
        region->owner[i] = owner;
        region->owner_segment[i] = segment;
    }
}

/* Next fit. UINT32_MAX: no room. */
static uint32_t range_find(struct sim_region *region, uint32_t granules) {
    uint32_t run = 0;
    uint32_t at = region->cursor;

    for (uint32_t seen = 0; seen < 2 * SIM_GRANULES; seen++) {
        if (at == SIM_GRANULES) {
            at = 0;
            run = 0;
        }
        run = region->owner[at] == 0 ? run + 1 : 0;
        at++;
        if (run == granules) {
            region->cursor = at;
            return (at - granules) * SIM_GRANULE;
        }
    }
    return UINT32_MAX;
}

static uint32_t range_take(struct sim_oracle *oracle, struct sim_region *region, uint32_t length,
                           uint32_t owner, uint32_t segment) {
    uint32_t skew = (uint32_t)sim_below(&oracle->world->prng, SIM_GRANULE);
    uint32_t offset = range_find(region, granules_of(skew, length));

    if (offset == UINT32_MAX) {
        return UINT32_MAX;
    }
    range_own(region, offset + skew, length, owner, segment);
    return offset + skew;
}

/* far: at the target, too. */
static void ranges_release(struct sim_oracle *oracle, struct sim_transfer *transfer, bool far) {
    const struct sim_world *world = oracle->world;
    bool from_same = world->nodes[transfer->from].life == transfer->from_life;
    bool to_same = world->nodes[transfer->to].life == transfer->to_life;

    for (uint32_t i = 0; i < transfer->segment_count; i++) {
        const struct sim_segment *segment = &transfer->segments[i];
        struct sim_region *local = &oracle->regions[transfer->from][segment->local_region];
        struct sim_region *remote = &oracle->regions[transfer->to][segment->remote_region];

        if (from_same && local->owner[segment->local_offset / SIM_GRANULE] == transfer->number) {
            range_own(local, segment->local_offset, segment->length, 0, 0);
        }
        if (far && to_same &&
            remote->owner[segment->remote_offset / SIM_GRANULE] == transfer->number) {
            range_own(remote, segment->remote_offset, segment->length, 0, 0);
        }
    }
}

/* ---- records ----------------------------------------------------------- */

static struct sim_transfer *record_add(struct sim_oracle *oracle) {
    if (oracle->count + 1 >= oracle->capacity) {
        uint32_t capacity = oracle->capacity == 0 ? 256 : oracle->capacity * 2;
        struct sim_transfer *transfers = realloc(oracle->transfers, capacity * sizeof(*transfers));

        if (transfers == NULL) {
            fputs("weir-sim: out of memory\n", stderr);
            exit(2);
        }
        oracle->transfers = transfers;
        oracle->capacity = capacity;
    }
    oracle->count++;
    oracle->transfers[oracle->count] = (struct sim_transfer){.number = oracle->count};
    return &oracle->transfers[oracle->count];
}

static uint32_t draft_length(struct sim_prng *prng, uint32_t bytes_max) {
    if (sim_below(prng, 16) == 0) {
        return 0;
    }
    return (uint32_t)sim_between(prng, 1, sim_below(prng, 4) == 0 ? bytes_max : 64);
}

struct sim_transfer *oracle_draft(struct sim_oracle *oracle, uint32_t from, uint32_t to, bool read,
                                  uint32_t want, uint32_t bytes_max) {
    struct sim_prng *prng = &oracle->world->prng;
    struct sim_transfer *transfer = record_add(oracle);

    transfer->from = from;
    transfer->to = to;
    transfer->from_life = oracle->world->nodes[from].life;
    transfer->to_life = oracle->world->nodes[to].life;
    transfer->read = read;
    transfer->began_ns = oracle->world->now_ns;
    transfer->away_before_ns = oracle->world->nodes[from].away_ns;
    transfer->segments = calloc(want == 0 ? 1 : want, sizeof(*transfer->segments));
    if (transfer->segments == NULL) {
        return transfer;
    }
    for (uint32_t i = 0; i < want; i++) {
        struct sim_segment *s = &transfer->segments[i];
        struct sim_region *local, *remote;

        s->local_region = (uint32_t)sim_below(prng, SIM_REGIONS);
        s->remote_region = (uint32_t)sim_below(prng, SIM_REGIONS);
        s->length = draft_length(prng, bytes_max);
        local = &oracle->regions[from][s->local_region];
        remote = &oracle->regions[to][s->remote_region];
        if (!local->registered || !remote->registered) {
            break;
        }
        s->remote_version = remote->version;
        s->local_offset = range_take(oracle, local, s->length, transfer->number, i);
        if (s->local_offset == UINT32_MAX) {
            break;
        }
        s->remote_offset = range_take(oracle, remote, s->length, transfer->number, i);
        if (s->remote_offset == UINT32_MAX) {
            range_own(local, s->local_offset, s->length, 0, 0);
            break;
        }
        content_fill(transfer->number, i, 0, local->base + s->local_offset, s->length,
                     read ? 0xff : 0);
        content_fill(transfer->number, i, 0, remote->base + s->remote_offset, s->length,
                     read ? 0 : 0xff);
        transfer->segment_count++;
        transfer->bytes += s->length;
    }
    return transfer;
}

void oracle_withdraw(struct sim_oracle *oracle, struct sim_transfer *transfer) {
    ranges_release(oracle, transfer, true);
    transfer->segment_count = 0;
    transfer->terminal = true;
    transfer->orphan = true;
    transfer->number = 0; /* whatever carries this number from now on is wrong */
}

/* ---- judging ----------------------------------------------------------- */

static bool side_complete(struct sim_oracle *oracle, const struct sim_transfer *transfer) {
    uint32_t node = transfer->read ? transfer->from : transfer->to;

    for (uint32_t i = 0; i < transfer->segment_count; i++) {
        const struct sim_segment *s = &transfer->segments[i];
        uint32_t region = transfer->read ? s->local_region : s->remote_region;
        uint32_t offset = transfer->read ? s->local_offset : s->remote_offset;

        if (!content_is(transfer->number, i, 0, oracle->regions[node][region].base + offset,
                        s->length)) {
            return false;
        }
    }
    return true;
}

static bool same_life(const struct sim_oracle *oracle, uint32_t node, uint32_t life) {
    return oracle->world->nodes[node].alive && oracle->world->nodes[node].life == life;
}

/* Whether the target may be told of the transfer now, as far as anybody can say. */
static bool data_there(struct sim_oracle *oracle, const struct sim_transfer *transfer) {
    if (transfer->memory_released || !same_life(oracle, transfer->to, transfer->to_life)) {
        return true;
    }
    return transfer->read ? transfer->fetched >= transfer->bytes : side_complete(oracle, transfer);
}

/* Whether the node looks, or once looked, at its engine so late that its peers may have given it
 * up. */
static bool is_absent(const struct sim_world *world, uint32_t node) {
    const struct sim_node *target = &world->nodes[node];

    return target->absent ||
           sim_node_unlooked_ns(target) > world->config.engine.connect_timeout_ns / 4;
}

/* A node that does not look is no excuse for itself: time away is not counted. But its peer may
 * have given up what both had begun, and the rest of the time-out may be too short to begin again.
 * The time-out is the peer's, and begins with the first transfer that waits. */
static bool came_back_late(const struct sim_oracle *oracle, const struct sim_transfer *transfer) {
    const struct sim_world *world = oracle->world;
    const struct sim_node *node = &world->nodes[transfer->from];
    uint64_t timeout_ns = world->config.engine.connect_timeout_ns;

    for (uint32_t i = 1; i <= oracle->count; i++) {
        const struct sim_transfer *first = &oracle->transfers[i];
        uint64_t away_ns = node->away_ns - first->away_before_ns;

        if (first->from == transfer->from && first->to == transfer->to &&
            first->from_life == node->life &&
            (!first->terminal || first->ended_ns == world->now_ns) && away_ns > timeout_ns / 4 &&
            world->now_ns - first->began_ns - away_ns >= timeout_ns) {
            return true;
        }
    }
    return false;
}

/* Whether a transfer the other way was refused, or may have been. */
static bool refused_back(const struct sim_oracle *oracle, const struct sim_transfer *transfer) {
    for (uint32_t i = 1; i <= oracle->count; i++) {
        const struct sim_transfer *other = &oracle->transfers[i];

        if (other->from == transfer->to && other->to == transfer->from && other->memory_released) {
            return true;
        }
    }
    return false;
}

/* Whether one of the two may have given the other up for what it claims; or another claims to be
 * the target, and was taken for it until the target answered. */
static bool claimed(const struct sim_oracle *oracle, const struct sim_transfer *transfer) {
    const struct sim_node *nodes = oracle->world->nodes;
    uint32_t count = oracle->world->config.nodes;

    return sim_node_claims(&nodes[transfer->from]) || sim_node_claims(&nodes[transfer->to]) ||
           sim_node_claims(&nodes[(transfer->to + count - 1) % count]);
}

/* Where a refusal takes longer than a word on the control channel, the session is over on both
 * sides before it is there, time after time, and nobody learns which transfer was refused. */
static bool refusals_late(const struct sim_oracle *oracle, const struct sim_transfer *transfer) {
    const struct sim_config *config = &oracle->world->config;

    return config->nic[transfer->from].latency_max_ns > config->net.latency_max_ns ||
           config->nic[transfer->to].latency_max_ns > config->net.latency_max_ns;
}

/* Whether sessions may break here though nets, devices and absences are well. */
static bool may_break(const struct sim_oracle *oracle, const struct sim_transfer *transfer) {
    const struct sim_config *config = &oracle->world->config;
    const struct sim_nic_config *nic = &config->nic[transfer->from];
    const struct sim_nic_config *there = &config->nic[transfer->to];
    /* A wish that ends over it takes its session along. */
    bool lack = nic->lack != 0 || there->lack != 0;

    return lack || oracle->lives_ended || nic->packet_loss != 0 || there->packet_loss != 0 ||
           config->work.memory_release != 0 || config->work.cancel != 0 || oracle->cancels ||
           config->work.deadline != 0 || nic->post_einval != 0 || there->post_einval != 0 ||
           config->work.peer_close != 0 || claimed(oracle, transfer);
}

/* May a transfer end like this, in this run? */
static bool status_allowed(const struct sim_oracle *oracle, const struct sim_transfer *transfer,
                           int status) {
    const struct sim_config *config = &oracle->world->config;
    const struct sim_nic_config *nic = &config->nic[transfer->from];
    const struct sim_nic_config *there = &config->nic[transfer->to];
    bool net = config->net.loss != 0 || config->net.break_on_send != 0 || config->net.refuse != 0 ||
               config->work.cut_control != 0 || config->work.cut_data != 0 ||
               config->net.full != 0 || config->work.reset != 0 || config->work.long_cut != 0;
    bool cut = oracle->world->data_cut[transfer->from][transfer->to] ||
               oracle->world->data_cut[transfer->to][transfer->from]; /* for good */
    bool device = nic->post_edevice != 0 || nic->create_fail != 0 || nic->connect_fail != 0 ||
                  nic->mr_fail != 0 || there->create_fail != 0 || there->connect_fail != 0 ||
                  there->post_edevice != 0 || nic->qp_fail != 0 || there->qp_fail != 0 ||
                  nic->qps_max != 0 || there->qps_max != 0 || nic->recv_refuse != 0 ||
                  there->recv_refuse != 0 || nic->still != 0 || there->still != 0 ||
                  nic->device_fail != 0 || there->device_fail != 0;
    bool absent = is_absent(oracle->world, transfer->to);
    /* Of the three or four questions that there is time for, each or its answer may be lost, or
     * lose its connection. */
    bool deaf = config->net.loss > UINT16_MAX / 32 || config->net.break_on_send > UINT16_MAX / 32 ||
                config->net.full != 0;
    /* The other side gives up a session that its peer was too long away to confirm. */
    bool away = absent || oracle->world->nodes[transfer->from].absent;
    /* A lost connection comes back for neither: both lack what a dial takes. */
    bool lack = net && nic->lack != 0 && there->lack != 0;
    bool breaks = net || device || cut || away || may_break(oracle, transfer);

    switch (status) {
    case WEIR_OK:
        return true;
    case WEIR_ECANCELED:
        return transfer->cancelled;
    case WEIR_ETIMEDOUT:
        return transfer->deadline_ns != 0 && oracle->world->now_ns >= transfer->deadline_ns;
    case WEIR_ECLOSED:
        return transfer->peer_closed;
    case WEIR_EPEER:
        return oracle->lives_ended || config->work.peer_close != 0 ||
               (config->work.doors
                    ? oracle->world->nodes[transfer->to].full || claimed(oracle, transfer)
                    : net);
    case WEIR_EUNKNOWN:
        /* Cut off for the connect time-out, the target could not say what had arrived. */
        return (transfer->once && breaks) || oracle->lives_ended || config->work.peer_close != 0 ||
               config->work.cut_control != 0 || absent || deaf || lack || claimed(oracle, transfer);
    case WEIR_ESTALE: /* it waited for a peer that turned out to be another life, or was seen */
        return oracle->lives_ended || (nic->sees_release && transfer->memory_released);
    case WEIR_ECONNECT:
    case WEIR_EUNREACH:
        return net || device || cut || oracle->lives_ended || absent || claimed(oracle, transfer) ||
               came_back_late(oracle, transfer) ||
               transfer->memory_released || /* the target said that it broke, not why */
               ((nic->no_blame || there->mute_errors) && refused_back(oracle, transfer));
    case WEIR_EREMOTE:
        return !nic->no_blame && (transfer->memory_released || config->work.memory_release != 0);
    case WEIR_EDEVICE:
        /* Loss beyond the retries breaks session after session; replays are bounded. Refusals of
         * the target break them, too, and who did it may never be said, or not in time. */
        return device || net || nic->packet_loss != 0 || there->packet_loss != 0 ||
               transfer->memory_released ||
               ((nic->no_blame || there->mute_errors || refusals_late(oracle, transfer)) &&
                refused_back(oracle, transfer));
    case WEIR_ENOMEM: /* what the other side lacks is EREFUSED here */
        return nic->create_fail != 0 || nic->mr_fail != 0 || (nic->lack != 0 && nic->lacks_memory);
    case WEIR_EMFILE:
        return nic->lack != 0 && !nic->lacks_memory;
    case WEIR_EFULL:
        return nic->qps_max != 0;
    case WEIR_EREFUSED:
        return there->create_fail != 0 || there->qps_max != 0 || there->connect_fail != 0 ||
               there->device_fail != 0 || there->lack != 0 || claimed(oracle, transfer);
    case WEIR_EINVAL:
        return nic->post_einval != 0;
    default:
        return false;
    }
}

/* EUNKNOWN, EPEER, and ECLOSED of an engine that closes, say nothing of what is still under way.
 * Any other status promises that nothing of the transfer will touch memory or tell the target, and
 * any but success that the target was not told. */
bool oracle_promises(int status) {
    return status != WEIR_EUNKNOWN && status != WEIR_EPEER && status != WEIR_ECLOSED;
}

/* Whether packets may be under way behind the end, which does not promise otherwise: to a target
 * that is given up for what it claims, and lives on; or in its host, while it is stopped. */
static bool may_land(const struct sim_oracle *oracle, const struct sim_transfer *transfer) {
    bool given_up = transfer->status == WEIR_EPEER || transfer->status == WEIR_EUNKNOWN;
    bool kept = oracle->world->config.nic[transfer->to].buffers;

    return !oracle_promises(transfer->status) && (kept || (given_up && claimed(oracle, transfer)));
}

static void judge_told(struct sim_oracle *oracle, const struct sim_transfer *transfer) {
    if (transfer->terminal && transfer->notified != 0 && transfer->status != WEIR_OK &&
        oracle_promises(transfer->status)) {
        sim_violation(oracle->world, "S11 transfer %u (n%u to n%u) ended with %s, and is notified",
                      transfer->number, transfer->from, transfer->to,
                      weir_error_name(transfer->status));
    }
}

void oracle_status(struct sim_oracle *oracle, struct sim_transfer *transfer, int status) {
    struct sim_world *world = oracle->world;

    if (transfer->terminal) {
        if (transfer->status != status) {
            sim_violation(world, "S11 transfer %u was %s, now %s", transfer->number,
                          weir_error_name(transfer->status), weir_error_name(status));
        }
        return;
    }
    transfer->terminal = true;
    transfer->status = status;
    transfer->ended_ns = world->now_ns;
    transfer->unfinished_ns = oracle->stalls[transfer->from].stepped_ns;
    oracle_stalls_ended(oracle, transfer);
    sim_trace(world, "transfer %u ends: %s", transfer->number,
              status == 0 ? "ok" : weir_error_name(status));
    if (!status_allowed(oracle, transfer, status)) {
        sim_violation(world,
                      "S11 transfer %u (n%u to n%u) ends with %s, for which there is no cause",
                      transfer->number, transfer->from, transfer->to, weir_error_name(status));
    }
    if (status == 0) {
        oracle->ok++;
        if ((transfer->read || same_life(oracle, transfer->to, transfer->to_life)) &&
            !transfer->memory_released && !side_complete(oracle, transfer)) {
            sim_violation(world, "S11 transfer %u (n%u to n%u) succeeded, but its bytes are wrong",
                          transfer->number, transfer->from, transfer->to);
        }
        if (transfer->refused) {
            sim_violation(world, "S11 transfer %u (n%u to n%u) succeeded on memory that was gone",
                          transfer->number, transfer->from, transfer->to);
        }
        transfer->had_data = true;
    } else {
        oracle->failed++;
        transfer->had_data = transfer->notify && data_there(oracle, transfer);
    }
    judge_told(oracle, transfer);
    ranges_release(oracle, transfer, !may_land(oracle, transfer));
}

/* The node claims to be where the transfer was sent, and nobody could be asked there in time. */
static bool stands_in(const struct sim_oracle *oracle, const struct sim_transfer *transfer,
                      uint32_t node) {
    const struct sim_world *world = oracle->world;

    return transfer->bytes == 0 && sim_node_claims(&world->nodes[node]) &&
           transfer->to == (node + 1) % world->config.nodes && !sim_ways_open(world);
}

/* A transfer names memory of one life. One that moves nothing names only an address,
 * and may reach whoever lives there when it is connected. */
static bool life_right(const struct sim_oracle *oracle, const struct sim_transfer *transfer) {
    return transfer->bytes == 0 || oracle->world->nodes[transfer->to].life == transfer->to_life;
}

uint64_t oracle_letter(struct sim_oracle *oracle, uint32_t to) {
    return SIM_LETTER | (uint64_t)oracle->letters++ << 8 | to;
}

static void letter_judge(struct sim_oracle *oracle, uint32_t node, uint64_t tag) {
    uint32_t to = (uint8_t)tag, number = (uint32_t)(tag >> 8) % SIM_LETTERS;
    uint64_t bit = UINT64_C(1) << number % 64;

    if (to != node) {
        sim_violation(oracle->world, "H1 n%u gets a letter for n%u", node, to);
    } else if ((oracle->letters_taken[number / 64] & bit) != 0 && oracle->letters <= SIM_LETTERS) {
        sim_violation(oracle->world, "S9 n%u gets a letter twice", node);
    }
    oracle->letters_taken[number / 64] |= bit;
}

void oracle_notification(struct sim_oracle *oracle, uint32_t node,
                         const weir_notification *notification) {
    struct sim_world *world = oracle->world;
    uint8_t payload[WEIR_NOTIFY_MAX];
    struct sim_transfer *transfer;
    uint32_t length;

    oracle->notifications++;
    if ((notification->tag & SIM_LETTER) != 0) {
        letter_judge(oracle, node, notification->tag);
        return;
    }
    if (notification->tag == 0 || notification->tag > oracle->count ||
        oracle->transfers[notification->tag].number == 0) {
        sim_violation(world, "S9 n%u takes a notification that nobody sent: tag %llu", node,
                      (unsigned long long)notification->tag);
        return;
    }
    transfer = &oracle->transfers[notification->tag];
    sim_trace(world, "n%u takes notification of transfer %u", node, transfer->number);
    length = oracle_payload(transfer, payload);
    if (!transfer->notify || (transfer->to != node && !stands_in(oracle, transfer, node)) ||
        !life_right(oracle, transfer) || notification->length != length ||
        memcmp(notification->payload, payload, length) != 0) {
        sim_violation(world, "S9 n%u takes a wrong notification of transfer %u", node,
                      transfer->number);
        return;
    }
    if (transfer->notified++ != 0) {
        sim_violation(world, "S9 notification of transfer %u comes twice", transfer->number);
        return;
    }
    if (!transfer->terminal) {
        oracle_stalls_ended(oracle, transfer); /* its end may be seen by nobody */
    }
    judge_told(oracle, transfer);
    if (transfer->terminal && !may_land(oracle, transfer) ? !transfer->had_data
                                                          : !data_there(oracle, transfer)) {
        sim_violation(world, "S9 notification of %s %u comes before its data%s",
                      transfer->read ? "read" : "transfer", transfer->number,
                      transfer->terminal ? ", which never came" : "");
    }
}

/* ---- what the NIC reports ---------------------------------------------- */

/* The region and offset of an address, or NULL: not an application's memory. */
static struct sim_region *region_of(struct sim_oracle *oracle, uint32_t node, const void *at,
                                    uint32_t *offset_out) {
    for (uint32_t i = 0; i < SIM_REGIONS; i++) {
        struct sim_region *region = &oracle->regions[node][i];
        uintptr_t offset = (uintptr_t)at - (uintptr_t)region->base;

        if (offset < SIM_REGION_BYTES) {
            *offset_out = (uint32_t)offset;
            return region;
        }
    }
    return NULL;
}

struct touch {
    struct sim_transfer *transfer;
    uint32_t segment;
    uint32_t offset; /* in the segment */
};

/* Finds the transfer and the segment that these bytes are of. False: they are of no transfer or
 * pass the end of their segment (violations), or are not in an application's memory. */
static bool touch_find(struct sim_oracle *oracle, const struct sim_node *node, const void *at,
                       uint64_t length, const char *what, struct touch *touch) {
    struct sim_world *world = oracle->world;
    uint32_t offset;
    const struct sim_region *region = region_of(oracle, node->index, at, &offset);
    const struct sim_segment *s;
    uint32_t owner, start;

    if (region == NULL) {
        return false;
    }
    owner = region->owner[offset / SIM_GRANULE];
    if (owner == 0) {
        sim_violation(world, "S13 a device %s %llu bytes at n%u %u of no unfinished transfer", what,
                      (unsigned long long)length, node->index, offset);
        return false;
    }
    touch->transfer = &oracle->transfers[owner];
    touch->segment = region->owner_segment[offset / SIM_GRANULE];
    s = &touch->transfer->segments[touch->segment];
    start = touch->transfer->from == node->index ? s->local_offset : s->remote_offset;
    touch->offset = offset - start;
    if (offset < start || length > s->length || touch->offset > s->length - length) {
        sim_violation(world, "S15 a device %s outside segment %u of transfer %u", what,
                      touch->segment, owner);
        return false;
    }
    return true;
}

static void watch_landing(void *self, struct sim_node *node, const void *at, const void *bytes,
                          uint64_t length) {
    struct sim_oracle *oracle = self;
    struct touch touch;
    uint32_t side;

    if (!touch_find(oracle, node, at, length, "writes", &touch)) {
        return;
    }
    oracle_stalls_moved(oracle, touch.transfer);
    side = touch.transfer->read ? touch.transfer->from : touch.transfer->to;
    if (side != node->index) {
        sim_violation(oracle->world, "S13 the source of transfer %u is written to",
                      touch.transfer->number);
    } else if (!touch.transfer->read && touch.transfer->notified != 0) {
        sim_violation(oracle->world, "S9 data of transfer %u lands after its notification",
                      touch.transfer->number);
    } else if (!content_is(touch.transfer->number, touch.segment, touch.offset, bytes, length)) {
        sim_violation(oracle->world, "S13 stale bytes land in segment %u of transfer %u",
                      touch.segment, touch.transfer->number);
    }
}

static void watch_fetch(void *self, struct sim_node *node, const void *at, uint64_t length) {
    struct sim_oracle *oracle = self;
    struct touch touch;

    if (!touch_find(oracle, node, at, length, "reads", &touch)) {
        return;
    }
    oracle_stalls_moved(oracle, touch.transfer);
    if (touch.transfer->read) {
        touch.transfer->fetched += length;
        if (touch.transfer->notified != 0) {
            sim_violation(oracle->world, "S9 data of read %u is read after its notification",
                          touch.transfer->number);
        }
    }
}

/* ---- ends -------------------------------------------------------------- */

static void region_disown(struct sim_oracle *oracle, uint32_t node, uint32_t region) {
    struct sim_region *r = &oracle->regions[node][region];

    memset(r->owner, 0, sizeof(r->owner));
    r->registered = false;
    r->base = r->own;
}

void oracle_region_released(struct sim_oracle *oracle, uint32_t node, uint32_t region) {
    for (uint32_t i = 1; i <= oracle->count; i++) {
        struct sim_transfer *transfer = &oracle->transfers[i];

        for (uint32_t s = 0; !transfer->terminal && s < transfer->segment_count; s++) {
            transfer->memory_released |=
                (transfer->to == node && transfer->segments[s].remote_region == region) ||
                (transfer->from == node && transfer->segments[s].local_region == region);
        }
    }
    region_disown(oracle, node, region);
}

void oracle_life_ended(struct sim_oracle *oracle, uint32_t node) {
    uint32_t life = oracle->world->nodes[node].life;

    oracle->lives_ended = true;
    for (uint32_t i = 1; i <= oracle->count; i++) {
        struct sim_transfer *transfer = &oracle->transfers[i];

        if (!transfer->terminal && transfer->from == node && transfer->from_life == life) {
            transfer->orphan = true; /* its remote ranges stay owned: packets may be under way */
        }
    }
    for (uint32_t r = 0; r < SIM_REGIONS; r++) {
        region_disown(oracle, node, r);
    }
}

/* ---- peers that leave -------------------------------------------------- */

void oracle_leavers(struct sim_oracle *oracle, uint32_t node, uint32_t leavers) {
    oracle->leavers[node] |= leavers;
}

/* A peer that leaves in order broke nothing, whatever is found of it first; but this node's own
 * device may have failed (EDEVICE). */
void oracle_event(struct sim_oracle *oracle, uint32_t node, uint32_t to, const weir_event *event) {
    if (to >= SIM_RUN_NODES_MAX) {
        return;
    }
    uint32_t bit = 1u << to;

    if (event->type == WEIR_EVENT_GONE && event->error == WEIR_EPEER &&
        (oracle->leavers[node] & oracle->degraded[node] & bit) != 0) {
        sim_violation(oracle->world, "S9 n%u: n%u left in order, and is told to be degraded first",
                      node, to);
    }
    if (event->type == WEIR_EVENT_DEGRADED) {
        oracle->degraded[node] |= bit;
    } else if (event->type != WEIR_EVENT_STALLED && event->type != WEIR_EVENT_RESUMED) {
        oracle->degraded[node] &= ~bit;
    }
}

void oracle_events_taken(struct sim_oracle *oracle, uint32_t node) {
    oracle->leavers[node] = oracle->degraded[node] = 0;
}

void oracle_final(struct sim_oracle *oracle) {
    for (uint32_t i = 1; i <= oracle->count; i++) {
        const struct sim_transfer *transfer = &oracle->transfers[i];

        if (transfer->terminal && !transfer->orphan && transfer->notify && transfer->status == 0 &&
            transfer->notified != 1 && (transfer->bytes != 0 || !oracle->lives_ended) &&
            same_life(oracle, transfer->to, transfer->to_life)) {
            sim_violation(oracle->world, "S9 transfer %u succeeded without its notification",
                          transfer->number);
        }
    }
}

struct sim_oracle *oracle_open(struct sim_world *world) {
    struct sim_oracle *oracle = calloc(1, sizeof(*oracle));
    uint8_t *memory = malloc((size_t)SIM_RUN_NODES_MAX * SIM_REGIONS * SIM_REGION_BYTES);

    if (oracle == NULL || memory == NULL) {
        free(oracle);
        free(memory);
        return NULL;
    }
    oracle->world = world;
    for (uint32_t n = 0; n < SIM_RUN_NODES_MAX; n++) {
        for (uint32_t r = 0; r < SIM_REGIONS; r++) {
            struct sim_region *region = &oracle->regions[n][r];

            region->own = memory + (size_t)(n * SIM_REGIONS + r) * SIM_REGION_BYTES;
            region->base = region->own;
        }
    }
    world->watch = (struct sim_watch){watch_landing, watch_fetch, oracle};
    oracle->watchdog_ns = world->config.engine.connect_timeout_ns / 8;
    return oracle;
}

void oracle_close(struct sim_oracle *oracle) {
    for (uint32_t i = 1; i <= oracle->count; i++) {
        free(oracle->transfers[i].segments);
    }
    free(oracle->transfers);
    free(oracle->regions[0][0].own);
    oracle->world->watch = (struct sim_watch){0};
    free(oracle);
}
