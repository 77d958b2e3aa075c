/* SPDX-License-Identifier: Apache-2.0 */
/* test_endpoint_random.c: a campaign against the handshake: random schedules of loss, repetition,
 * delay and reordering, of crossing opens, breaks, failures and restarts; then the faults stop and
 * the two sides must agree. endpoint_pair.c checks after every step what must hold all the time.
 *
 * WEIR_TEST_SEED=n runs that one seed, WEIR_TEST_SEEDS=n another number of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "endpoint_pair.h"

enum { SEEDS = 20000, FAR = 5 /* times the usual time to connect */ };
#define NOTHING UINT64_MAX

static struct pair pair;
static uint64_t running = NOTHING; /* seed */

/* The counts of the whole campaign: one that never meets the hard cases proves nothing. */
static struct { uint64_t ups, fails, gones, stale, far; } seen;

static void mischief(struct pair *p) {
    const uint32_t node = (uint32_t)pair_random(p, 2);
    static const int ERRORS[] = {WEIR_EDEVICE, WEIR_EPEER, WEIR_EINVAL, WEIR_EAGAIN};

    switch (pair_random(p, 17)) {
    case 0:
    case 1:
    case 2:
    case 3:
    case 4:
        pair_event(p, node, EP_EV_WANT);
        break;
    case 5:
    case 6:
    case 7: /* crossing */
        pair_event(p, node, EP_EV_WANT);
        pair_event(p, !node, EP_EV_WANT);
        break;
    case 8:
    case 9:
        pair_break(p, node);
        break;
    case 10:
        pair_break(p, node);
        pair_break(p, !node);
        break;
    case 11:
        pair_break_next(p, node);
        break;
    case 12:
        p->nodes[node].connect_error = ERRORS[pair_random(p, 4)];
        break;
    case 13:
        p->nodes[node].create_error = ERRORS[pair_random(p, 4)];
        break;
    case 14: /* a silence as long as a connect time-out */
        pair_run(p, p->now_ns + PAIR_TIMEOUT_NS);
        break;
    case 15:
        pair_forget(p, node);
        pair_event(p, !node, EP_EV_PROBE);
        break;
    default:
        if (pair_random(p, 4) == 0)
            pair_restart(p, node);
        break;
    }
}

static void agree(struct pair *p) {
    p->loss_percent = p->repeat_percent = 0;
    p->delay_ns_max = PAIR_MS;
    p->drain_ns_max = PAIR_MS;
    for (uint32_t node = 0; node < 2; node++)
        p->nodes[node].connect_error = p->nodes[node].create_error = 0;
    /* A probe is repeated for so long only; by now the next connection is new. */
    pair_event(p, 0, EP_EV_PROBE);
    pair_event(p, 1, EP_EV_PROBE);
    /* Old messages and old waits run out; what either side still wants, it gets. */
    pair_run(p, p->now_ns + 3 * PAIR_TIMEOUT_NS);
    pair_event(p, 0, EP_EV_WANT);
    pair_run(p, p->now_ns + PAIR_TIMEOUT_NS);
    assert_true(pair_matched(p));
    for (uint32_t node = 0; node < 2; node++) {
        const struct pair_node *n = &p->nodes[node];

        assert_int_equal(n->ep.settle_done, n->ep.settle_asked);
        assert_int_equal(endpoint_deadline(&n->ep), UINT64_MAX);
        for (uint32_t i = 0; i < EP_SESSIONS; i++)
            assert_true(n->ep.sessions[i].state ==
                        (i == n->ep.live ? EP_SESSION_LIVE : EP_SESSION_FREE));
    }
}

static void campaign(uint64_t seed) {
    struct pair *p = &pair;

    pair_init(p, seed * UINT64_C(0x9e3779b97f4a7c15) + 1);
    p->loss_percent = (uint32_t)pair_random(p, 2) * (uint32_t)pair_random(p, 60);
    p->repeat_percent = (uint32_t)pair_random(p, 2) * (uint32_t)pair_random(p, 60);
    p->delay_ns_max = 1 + pair_random(p, 2) * pair_random(p, 300 * PAIR_MS);
    p->drain_ns_max = 1 + pair_random(p, 2) * pair_random(p, 500 * PAIR_MS);
    for (uint64_t count = 1 + pair_random(p, 24); count > 0; count--) {
        mischief(p);
        pair_run(p, p->now_ns + pair_random(p, 40 * PAIR_MS));
    }
    agree(p);
    for (uint32_t node = 0; node < 2; node++) {
        seen.ups += p->nodes[node].ups;
        seen.fails += p->nodes[node].fails;
        seen.gones += p->nodes[node].gones;
        seen.stale += p->nodes[node].ep.stale;
    }
}

static uint64_t number(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);

    return text == NULL ? otherwise : strtoull(text, NULL, 0);
}

static void test_H2_H3_H4_H14_any_schedule_converges(void **state) {
    const uint64_t only = number("WEIR_TEST_SEED", NOTHING);
    const uint64_t seeds = only != NOTHING ? only + 1 : number("WEIR_TEST_SEEDS", SEEDS);

    (void)state;
    for (running = only != NOTHING ? only : 0; running < seeds; running++) {
        campaign(running);
        if (only != NOTHING)
            print_message("%s\n", pair_trace(&pair));
    }
    print_message("%llu sessions up, %llu attempts failed, %llu remotes gone, %llu stale\n",
                  (unsigned long long)seen.ups, (unsigned long long)seen.fails,
                  (unsigned long long)seen.gones, (unsigned long long)seen.stale);
    running = NOTHING;
}

/* Ways as long as the pauses, or longer, and nodes that look seldom: what one side says is old when
 * the other hears it. Sessions break while both want one; then nothing does any more. */
static void far_apart(uint64_t seed) {
    static const uint64_t WAYS[] = {1, 3, 7, 10, 20, 40, 50}, LOOKS[] = {0, 0, 25, 50, 100};
    struct pair *p = &pair;

    pair_init(p, seed * UINT64_C(0x9e3779b97f4a7c15) + 1);
    p->delay_ns_max = 1 + pair_random(p, 2) * pair_random(p, PAIR_MS);
    p->drain_ns_max = 1 + pair_random(p, 10 * PAIR_MS);
    p->way_ns[0] = WAYS[pair_random(p, 7)] * PAIR_MS;
    p->way_ns[1] = pair_random(p, 2) == 0 ? p->way_ns[0] : WAYS[pair_random(p, 7)] * PAIR_MS;
    for (uint32_t node = 0; node < 2; node++) {
        p->nodes[node].ep.options.connect_timeout_ns = FAR * PAIR_TIMEOUT_NS;
        p->look_ns[node] = LOOKS[pair_random(p, 5)] * PAIR_MS;
    }
    pair_event(p, 0, EP_EV_WANT);
    pair_run(p, p->now_ns + pair_random(p, 3 * p->way_ns[0]));
    if (pair_random(p, 4) != 0)
        pair_event(p, 1, EP_EV_WANT);
    for (uint64_t count = pair_random(p, 8); count > 0; count--) {
        uint32_t node = (uint32_t)pair_random(p, 2);
        pair_run(p, p->now_ns + pair_random(p, 2 * p->way_ns[0]));
        if (pair_random(p, 2) == 0)
            pair_break_next(p, node);
        else
            pair_break(p, node);
    }
    pair_run(p, p->now_ns + 2 * FAR * PAIR_TIMEOUT_NS);
    seen.far += p->nodes[0].ups;
    if (p->nodes[0].fails + p->nodes[1].fails > 0)
        fail_msg("an attempt failed between two that live");
    assert_true(p->nodes[0].ups == 0 || pair_matched(p));
}

static void test_H2_ways_as_long_as_pauses(void **state) {
    static const uint64_t CHASES[] = {68466, 69457};
    const uint64_t only = number("WEIR_TEST_SEED", NOTHING);
    const uint64_t seeds = only != NOTHING ? only + 1 : number("WEIR_TEST_SEEDS", SEEDS);

    (void)state;
    /* Two that chased each other until the wish failed, with pauses that did not grow. */
    for (uint32_t i = 0; only == NOTHING && i < sizeof(CHASES) / sizeof(CHASES[0]); i++) {
        running = CHASES[i];
        far_apart(running);
    }
    for (running = only != NOTHING ? only : 0; running < seeds; running++)
        far_apart(running);
    print_message("%llu sessions up\n", (unsigned long long)seen.far);
    assert_true(seen.far > 0);
    running = NOTHING;
}

static int name_seed(void **state) {
    (void)state;
    if (running != NOTHING)
        print_error("it was WEIR_TEST_SEED=%llu: %s\n", (unsigned long long)running,
                    pair_trace(&pair));
    return 0;
}

/* Well-formed messages that nobody would send, at an endpoint that also lives its
 * own life. Its answers go nowhere; sessions and effects stay bounded, nothing
 * asserts, and it can still be closed. */
static void test_H13_hostile_messages_in_every_state(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 3000; seed++) {
        struct pair *p = &pair;

        pair_init(p, seed);
        for (uint32_t i = 0; i < 60; i++) {
            struct wire_message m = {.type = (enum wire_type)(1 + pair_random(p, WIRE_BYE)),
                                     .epoch = 1 + pair_random(p, 6),
                                     .echo = 1 + pair_random(p, 6),
                                     .reason = pair_random(p, 2) == 0 ? WEIR_ESTALE : -1};
            struct ep_event event = {.type = EP_EV_MESSAGE, .message = &m};
            struct ep_effect effects[EP_EFFECTS_MAX];

            if (m.type == WIRE_BYE && pair_random(p, 20) != 0)
                continue;
            if (pair_random(p, 30) == 0)
                m.epoch = UINT64_MAX;
            memcpy(m.from, p->nodes[1].instance, sizeof(m.from));
            memcpy(m.to, p->nodes[0].instance, sizeof(m.to));
            if (m.type == WIRE_HELLO || m.type == WIRE_HELLO_ACK)
                m.qps = p->nodes[1].set;
            if (pair_random(p, 3) == 0) {
                static const enum ep_event_type OWN[] = {EP_EV_WANT,  EP_EV_TIMER,   EP_EV_BROKEN,
                                                         EP_EV_PROBE, EP_EV_DRAINED, EP_EV_HEARD};

                event.type = OWN[pair_random(p, 6)];
                event.session = (uint32_t)pair_random(p, EP_SESSIONS);
                p->now_ns += PAIR_RETRANSMIT_NS;
                if (event.type == EP_EV_DRAINED &&
                    p->nodes[0].ep.sessions[event.session].state != EP_SESSION_RETIRED)
                    continue;
            }
            uint32_t count = endpoint_step(&p->nodes[0].ep, &event, p->now_ns, effects);
            while (count > 0 && (effects[count - 1].type == EP_DO_CREATE ||
                                 effects[count - 1].type == EP_DO_CONNECT)) {
                const struct ep_event answer = {.type = effects[count - 1].type == EP_DO_CREATE
                                                            ? EP_EV_QPS_READY
                                                            : EP_EV_CONNECTED,
                                                .session = effects[count - 1].session,
                                                .local = &p->nodes[0].set};

                count = endpoint_step(&p->nodes[0].ep, &answer, p->now_ns, effects);
            }
            if (endpoint_verify(&p->nodes[0].ep) != NULL)
                fail_msg("seed %u: %s", (unsigned)seed, endpoint_verify(&p->nodes[0].ep));
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_H2_H3_H4_H14_any_schedule_converges, name_seed),
        cmocka_unit_test_teardown(test_H2_ways_as_long_as_pauses, name_seed),
        cmocka_unit_test(test_H13_hostile_messages_in_every_state),
    };

    return cmocka_run_group_tests_name("endpoint campaign", tests, NULL, NULL);
}
