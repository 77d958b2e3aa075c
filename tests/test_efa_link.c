/* SPDX-License-Identifier: Apache-2.0 */
/* test_efa_link.c: a campaign against what two efa devices tell each other (device/efa/link.h): two
 * links over a network that delays and reorders, delivers and says that it did not, is cut, and
 * knows nothing of QPs; between processes that stand still for longer than any lease, die, and
 * forget.
 *
 * In every run: a message that was told to be sent was taken. A QP that is over is so within its
 * time. And where no process stood still, and the network was never cut, no write lands at a QP
 * that is over.
 *
 * WEIR_TEST_SEED=n runs that one seed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "link.h"
#include "seeds.h"

#define MS    UINT64_C(1000000)
#define NEVER UINT64_MAX

enum { SEEDS = 2000, PACKETS = 2048, STEPS = 40000 };
enum kind { WRITE, MESSAGE, PING, PONG, STOP };

/* A packet of one side's. */
struct packet {
    uint64_t lands_ns; /* NEVER: it does not */
    uint64_t ends_ns;  /* when its sender is told */
    uint64_t since_ns; /* HELD: when it was acknowledged */
    uint32_t from, kind, number;
    bool is_well, is_gone, is_open; /* what its sender is told */
    bool for_none;                  /* an answer in the name of a QP that is not there */
    bool landed, ended, taken, held, told;
};

struct side {
    struct efa_link link;
    uint64_t still_until_ns, over_ns, stopped_ns, stop_at_ns;
    uint32_t sent; /* that are not at their ends */
    uint32_t messages;
    uint64_t opens_ns, held_ns; /* held_ns: since when messages are held; 0: none is */
    bool exists, dead, heard_early;
};

/* The whole world of one run. */
static struct {
    uint64_t seed, random, now;
    uint64_t delay_ns, stand_ns, cut_from_ns, cut_to_ns, dies_at_ns;
    uint32_t fails_percent, dies;
    struct side sides[2];
    struct packet packets[PACKETS];
    uint32_t count;
    bool stood_still;
} world;

/* The counts of the whole campaign: one that never meets the hard cases proves nothing. */
static struct { uint64_t taken, refused, held, silent, heard, gone, dropped, late_writes; } seen;

static uint64_t below(uint64_t bound) {
    world.random += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t z = world.random;
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (z ^ z >> 31) % bound;
}

static bool is_cut(uint64_t at) {
    return at >= world.cut_from_ns && at < world.cut_to_ns;
}

/* ---- the network ---- */

static struct packet *send_packet(uint32_t from, enum kind kind, uint32_t number) {
    if (world.count == PACKETS)
        return NULL;
    struct packet *packet = &world.packets[world.count++];
    uint64_t lands = world.now + 5000 + below(world.delay_ns);
    *packet = (struct packet){.from = from, .kind = kind, .number = number, .lands_ns = lands};
    packet->ends_ns = lands + 1000 + below(world.delay_ns);
    packet->is_well = true;
    if (is_cut(world.now) || is_cut(lands)) {
        bool waits = below(2) == 0; /* and is sent again until it is through */
        packet->lands_ns = waits ? world.cut_to_ns + below(world.delay_ns) : NEVER;
        packet->ends_ns = waits ? packet->lands_ns + 1000 : world.now + 2000 * MS;
        packet->is_well = waits;
        packet->is_open = !waits;
    } else if (below(100) < world.fails_percent) {
        if (below(2) == 0)
            packet->lands_ns = NEVER;
        packet->is_well = false;
        packet->is_open = true;
        packet->ends_ns += LINK_LEASE_NS; /* the quarantine */
    }
    return packet;
}

/* The network card of a process that is no more answers nothing, and says so. */
static void meet_the_dead(struct packet *packet) {
    if (!world.sides[!packet->from].dead || packet->landed || packet->ended)
        return;
    packet->lands_ns = NEVER;
    packet->is_well = false;
    packet->is_gone = true;
    if (packet->ends_ns > world.now + MS)
        packet->ends_ns = world.now + MS;
}

/* ---- a device ---- */

static bool drained(const struct side *side) {
    return side->sent == 0;
}

static void answer_for_none(uint32_t at, const struct packet *packet) {
    bool wants =
        packet->kind == PING || (packet->kind == STOP && (packet->number & LINK_WANTS) != 0);
    struct packet *answer = wants ? send_packet(at, STOP, LINK_DRAINED) : NULL;
    if (answer != NULL)
        answer->for_none = true;
}

/* Between two that live and talk no message waits for longer than some leases, however often words
 * between them are lost. */
static void check_held(uint32_t at) {
    struct side *side = &world.sides[at];
    bool any = false;
    for (uint32_t i = 0; i < world.count && !any; i++)
        any = world.packets[i].from == at && world.packets[i].held;
    if (!any)
        side->held_ns = 0;
    bool talk = !world.stood_still && world.cut_from_ns == NEVER && world.dies_at_ns == NEVER;
    if (any && talk && world.now - side->held_ns > 20 * LINK_LEASE_NS)
        fail_msg("seed %llu: a message of side %u is held for ever", (unsigned long long)world.seed,
                 at);
}

static void vouch(uint32_t at, bool is_final) {
    struct side *side = &world.sides[at];
    for (uint32_t i = 0; i < world.count; i++) {
        struct packet *packet = &world.packets[i];
        if (packet->from != at || !packet->held)
            continue;
        packet->told = link_is_taken(&side->link, packet->since_ns);
        packet->held = !packet->told && !is_final;
    }
    check_held(at);
}

static void arrives(uint32_t at, struct packet *packet) {
    struct side *side = &world.sides[at];
    if (!side->exists) {
        seen.dropped += packet->kind == MESSAGE;
        answer_for_none(at, packet);
        return;
    }
    if (!side->link.opened) { /* as control.c has it */
        side->heard_early = side->heard_early || packet->kind == STOP;
        if (packet->kind == STOP)
            answer_for_none(at, packet);
        return;
    }
    switch ((enum kind)packet->kind) {
    case WRITE:
        break;
    case MESSAGE:
        packet->taken = true;
        break;
    case PING:
        link_heard_ping(&side->link, packet->number);
        break;
    case PONG:
        if (link_heard_pong(&side->link, packet->number))
            vouch(at, false);
        break;
    case STOP:
        link_heard_stop(&side->link, packet->number);
        break;
    }
}

static const uint32_t says[] = {
    [PING] = LINK_SAYS_PING, [PONG] = LINK_SAYS_PONG, [STOP] = LINK_SAYS_STOP};

static void ends(uint32_t at, struct packet *packet) {
    struct side *side = &world.sides[at];
    packet->ended = true;
    if (packet->kind == WRITE || packet->kind == MESSAGE)
        side->sent--;
    if (!side->exists)
        return;
    if (packet->is_gone)
        link_peer_gone(&side->link, world.now);
    if (packet->kind == MESSAGE && packet->is_well) {
        packet->since_ns = world.now;
        packet->told = link_is_taken(&side->link, world.now);
        packet->held = !packet->told && !link_is_shut(&side->link);
        seen.held += packet->held;
        side->held_ns = packet->held && side->held_ns == 0 ? world.now : side->held_ns;
    } else if (packet->kind >= PING && !packet->for_none) {
        link_over(&side->link, says[packet->kind], packet->number, packet->is_well, world.now);
    }
}

/* In the order in which things happened. */
static void poll_side(uint32_t at) {
    for (;;) {
        struct packet *first = NULL;
        uint64_t when = NEVER;
        for (uint32_t i = 0; i < world.count; i++) {
            struct packet *packet = &world.packets[i];
            bool mine = packet->from == at;
            uint64_t its = mine ? packet->ends_ns : packet->lands_ns;
            bool was = mine ? packet->ended : packet->landed;
            if (!was && its <= world.now && its < when) {
                first = packet;
                when = its;
            }
        }
        if (first == NULL)
            return;
        if (first->from == at) {
            ends(at, first);
        } else {
            first->landed = true;
            arrives(at, first);
        }
    }
}

static void talk(uint32_t at) {
    struct side *side = &world.sides[at];
    check_held(at);
    static const enum kind order[] = {STOP, PONG, PING};
    uint32_t due = link_due(&side->link, world.now, drained(side));
    for (int i = 0; i < 3; i++) {
        uint32_t what = says[order[i]];
        if ((due & what) == 0)
            continue;
        uint32_t number = what == LINK_SAYS_STOP ? link_flags(&side->link, drained(side))
                                                 : link_number(&side->link, what);
        if (send_packet(at, order[i], number) != NULL)
            link_said(&side->link, what, world.now, drained(side));
    }
    if (link_is_shut(&side->link))
        vouch(at, true);
    if (link_is_over(&side->link, world.now, drained(side))) {
        seen.gone += side->link.peer_gone;
        seen.heard += side->link.peer_drained;
        seen.silent += !side->link.peer_gone && !side->link.peer_drained;
        side->exists = false;
        side->over_ns = world.now;
    }
}

static void act(uint32_t at) {
    struct side *side = &world.sides[at];
    if (!side->link.opened && !side->link.stopped && world.now >= side->opens_ns) {
        link_open(&side->link, world.now);
        if (side->heard_early)
            link_heard_stop(&side->link, 0);
    }
    /* The handshake: nothing is posted before both know each other. */
    bool both = world.sides[0].link.opened && world.sides[1].link.opened;
    if (both && !link_is_shut(&side->link) && below(8) == 0 && side->messages < 200) {
        enum kind kind = below(2) == 0 ? WRITE : MESSAGE;
        if (send_packet(at, kind, 0) != NULL) {
            side->sent++;
            side->messages++;
            if (kind == MESSAGE)
                link_renew(&side->link, world.now);
        }
    }
    if (world.now >= side->stop_at_ns && !side->link.stopped) {
        link_stop(&side->link, world.now);
        side->stopped_ns = world.now;
        vouch(at, true);
    }
    if (world.stand_ns != 0 && below(2000) == 0) {
        side->still_until_ns = world.now + below(world.stand_ns);
        world.stood_still = true;
    }
}

/* ---- a run ---- */

#define PICK(...)                                                                                  \
    ((const uint64_t[]){__VA_ARGS__})[below(sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))]

static void begin(uint64_t seed) {
    memset(&world, 0, sizeof world);
    world.seed = world.random = seed;
    world.now = 1000 * MS;
    world.delay_ns = PICK(50 * 1000, MS, 20 * MS, 150 * MS);
    world.stand_ns = PICK(0, 0, 300 * MS, 5000 * MS);
    world.fails_percent = (uint32_t)PICK(0, 0, 5, 30);
    world.cut_from_ns = PICK(NEVER, NEVER, 1500 * MS, 2500 * MS);
    world.cut_to_ns = world.cut_from_ns == NEVER
                          ? NEVER
                          : world.cut_from_ns + PICK(300 * MS, 1500 * MS, 5000 * MS);
    world.dies_at_ns = PICK(NEVER, NEVER, 2000 * MS);
    world.dies = (uint32_t)below(2);
    for (uint32_t i = 0; i < 2; i++) {
        struct side *side = &world.sides[i];
        side->exists = true;
        side->stop_at_ns = world.now + 200 * MS + below(4000) * MS;
        side->opens_ns = world.now + below(PICK(1, 300 * MS));
    }
    if (below(2) == 0) /* one only finds out */
        world.sides[below(2)].stop_at_ns = 8000 * MS;
}

/* Nothing is lost, and nobody stands still; one may die. */
static bool is_calm(void) {
    return !world.stood_still && world.cut_from_ns == NEVER && world.fails_percent == 0;
}

/* Writes are their network card's, whatever the process does. */
static void check_writes(uint64_t seed) {
    for (uint32_t i = 0; i < world.count; i++) {
        const struct packet *packet = &world.packets[i];
        const struct side *target = &world.sides[!packet->from];
        bool late = packet->kind == WRITE && packet->lands_ns != NEVER && !target->exists &&
                    !target->dead && packet->lands_ns > target->over_ns;
        seen.late_writes += late;
        if (late && is_calm())
            fail_msg("seed %llu: a write landed %llu us behind the end of its QP",
                     (unsigned long long)seed,
                     (unsigned long long)(packet->lands_ns - target->over_ns) / 1000);
    }
}

static void check_messages(uint64_t seed) {
    for (uint32_t i = 0; i < world.count; i++) {
        const struct packet *packet = &world.packets[i];
        if (packet->kind != MESSAGE)
            continue;
        seen.taken += packet->told;
        seen.refused += !packet->told;
        bool lost = packet->told && !packet->taken && !world.sides[!packet->from].dead;
        if (lost)
            fail_msg("seed %llu: a message of side %u was told to be sent, and is lost",
                     (unsigned long long)seed, packet->from);
    }
}

/* Time for all that may be missing, one behind the other. */
static void check_over(uint64_t seed) {
    for (uint32_t i = 0; i < 2; i++) {
        const struct side *side = &world.sides[i];
        if (side->dead || !side->link.stopped)
            continue;
        if (side->exists)
            fail_msg("seed %llu: side %u was never over", (unsigned long long)seed, i);
        uint64_t took_ms = (side->over_ns - side->stopped_ns) / MS;
        if (is_calm() && world.dies_at_ns == NEVER && world.delay_ns <= 20 * MS && took_ms > 300)
            fail_msg("seed %llu: side %u took %llu ms to be over", (unsigned long long)seed, i,
                     (unsigned long long)took_ms);
    }
}

static void run(uint64_t seed) {
    begin(seed);
    const uint64_t end = 25000 * MS;
    for (uint32_t step = 0; step < STEPS && world.now < end; step++) {
        bool busy = world.now < 9000 * MS;
        world.now += busy ? 20 * 1000 + below(2 * MS) : 5 * MS + below(20 * MS);
        if (world.now >= world.dies_at_ns)
            world.sides[world.dies].dead = true;
        for (uint32_t i = 0; i < world.count; i++)
            meet_the_dead(&world.packets[i]);
        for (uint32_t at = 0; at < 2; at++) {
            struct side *side = &world.sides[at];
            if (side->dead || world.now < side->still_until_ns)
                continue;
            poll_side(at);
            if (side->exists)
                talk(at);
            if (side->exists)
                act(at);
        }
        if (!world.sides[0].exists && !world.sides[1].exists)
            break;
    }
    for (uint32_t at = 0; at < 2; at++) { /* what lies in the queues of those that stood still */
        world.now = 60000 * MS;
        if (!world.sides[at].dead)
            poll_side(at);
    }
    check_messages(seed);
    check_writes(seed);
    check_over(seed);
}

static void test_T1_links_end_and_lose_nothing(void **state) {
    (void)state;
    const char *one = getenv("WEIR_TEST_SEED");
    if (one != NULL) {
        run(strtoull(one, NULL, 0));
        return;
    }
    const uint64_t count = seeds_asked(SEEDS);
    for (uint64_t seed = 1; seed <= count; seed++)
        run(seed);
    print_message(
        "# taken %llu, refused %llu, held %llu; over: heard %llu, silent %llu, gone %llu; "
        "dropped %llu, late writes %llu\n",
        (unsigned long long)seen.taken, (unsigned long long)seen.refused,
        (unsigned long long)seen.held, (unsigned long long)seen.heard,
        (unsigned long long)seen.silent, (unsigned long long)seen.gone,
        (unsigned long long)seen.dropped, (unsigned long long)seen.late_writes);
    assert_true(seen.taken > count && seen.refused > count && seen.held > count / 10);
    assert_true(seen.heard > count / 2 && seen.silent > count / 100 && seen.gone > count / 100);
    assert_true(seen.dropped > count / 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_T1_links_end_and_lose_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
