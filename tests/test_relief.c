/* SPDX-License-Identifier: Apache-2.0 */
/* test_relief.c: a call that finds itself serving the submits of others is relieved of
 * it after some steps, however many more keep coming (own.h); by submits, for a cancel waits
 * for nobody. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device.h"
#include "engine.h"
#include "os.h"
#include "state.h"

enum {
    BYTES = 4096,
    KEPT_CALLS = 20,
    TRIES_MAX = 20 * 1000 * 1000,
    STEPS_MAX = 200,
    SPINS_MAX = 1 << 20,
    PATIENCE_MS = 20000
};

struct one {
    struct weir_ports ports;
    weir_engine *engine;
    weir_memory memory;
};

static const struct weir_device_ops *real_ops;
static struct weir_device_ops slow_ops;
static const struct weir_env_ops *real_env;
static struct weir_env_ops counting_env;
static weir_engine *served;
static _Thread_local uint32_t steps; /* of this thread's present call; counted in the server */
static _Thread_local bool is_server;
static _Atomic bool stop;

/* While the server is in a step, it always turns out that somebody has submitted. */
static int slow_poll(struct weir_device *device, struct weir_cqe *cqes_out, int max) {
    if (is_server && steps < STEPS_MAX) {
        for (uint32_t spins = 0; spins < SPINS_MAX && !atomic_load(&stop); spins++) {
            if (atomic_load(&served->submitted) != 0)
                break;
            if (spins % 64 == 63)
                sched_yield();
        }
    }
    return real_ops->poll(device, cqes_out, max);
}

/* Asked for once in each step, which may poll more than once. */
static uint64_t counting_coarse(void *self) {
    steps += is_server;
    return real_env->coarse(self);
}

static void one_open(struct one *one, bool slow) {
    weir_engine_options options = WEIR_ENGINE_OPTIONS_INIT;
    void *base;
    real_ops = device_table[0];
    slow_ops = *real_ops;
    slow_ops.poll = slow_poll;
    memset(one, 0, sizeof(*one));
    one->ports.device_ops = slow ? &slow_ops : real_ops;
    assert_int_equal(os_env_init(&one->ports.env), WEIR_OK);
    if (slow) {
        real_env = one->ports.env.ops;
        counting_env = *real_env;
        counting_env.coarse = counting_coarse;
        one->ports.env.ops = &counting_env;
    }
    assert_int_equal(real_ops->open(&one->ports.env, &one->ports.device), WEIR_OK);
    assert_int_equal(tcp_open(&one->ports.env, 0, &one->ports.control), WEIR_OK);
    assert_int_equal(wait_open(&one->ports.env, &one->ports.wait), WEIR_OK);
    options.transfers_max = 64;
    options.segments_max = 8192;
    options.peers_max = 4;
    assert_int_equal(engine_create(&options, &one->ports, &one->engine), WEIR_OK);
    assert_int_equal(weir_memory_allocate(one->engine, BYTES, WEIR_ACCESS_ALL, &one->memory, &base),
                     WEIR_OK);
}

static void one_close(struct one *one) {
    weir_engine_close(one->engine);
    wait_close(&one->ports.wait);
    tcp_close(&one->ports.control);
    real_ops->close(one->ports.device);
}

static weir_peer peer;
static weir_segment segment;

static void join(struct one *a, struct one *b) {
    uint8_t descriptor[WEIR_DESCRIPTOR_MAX];
    char address[WEIR_ADDRESS_MAX];
    size_t length = sizeof(descriptor);
    assert_int_equal(weir_engine_address(b->engine, address, sizeof(address)), WEIR_OK);
    assert_int_equal(weir_peer_open(a->engine, address, &peer), WEIR_OK);
    assert_int_equal(weir_memory_export(b->engine, b->memory, descriptor, &length), WEIR_OK);
    segment = (weir_segment){.local = a->memory, .length = 8};
    assert_int_equal(weir_memory_import(a->engine, peer, descriptor, length, &segment.remote),
                     WEIR_OK);
    while (weir_peer_connect(a->engine, peer) == WEIR_ENOTREADY) {
        weir_engine_progress(a->engine);
        weir_engine_progress(b->engine);
    }
}

static void *submitter(void *argument) {
    struct one *one = argument;
    uint64_t *count = calloc(1, sizeof(*count));
    while (count != NULL && !atomic_load(&stop)) {
        weir_transfer transfer;
        /* One at a time, or the pool would be empty for most of it. */
        if (atomic_load(&served->submitted) != 0) {
            sched_yield();
            continue;
        }
        int rc = weir_write(one->engine, peer, &segment, 1, NULL, &transfer);
        if (rc == WEIR_OK && weir_transfer_release(one->engine, transfer) == WEIR_OK)
            ++*count;
    }
    return count;
}

static void test_S5_a_call_is_not_kept_by_others(void **state) {
    struct one a, b;
    pthread_t threads[2];
    uint32_t most = 0;
    struct weir_device_caps caps;
    (void)state;
    if (device_table[0]->probe(NULL, &caps) != WEIR_OK)
        skip();
    one_open(&a, true);
    one_open(&b, false);
    join(&a, &b);
    served = a.engine;
    atomic_store(&stop, false);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, submitter, &a), 0);
    is_server = true;
    for (uint32_t kept = 0, i = 0; kept < KEPT_CALLS && i < TRIES_MAX && most < STEPS_MAX; i++) {
        steps = 0;
        weir_engine_progress(a.engine); /* or not: one of the others has it */
        kept += steps > 1;
        most = steps > most ? steps : most;
    }
    is_server = false;
    atomic_store(&stop, true);
    uint64_t sum = 0;
    for (int i = 0; i < 2; i++) {
        void *count;
        pthread_join(threads[i], &count);
        sum += *(uint64_t *)count;
        free(count);
    }
    /* The submits that had begun when it asked, one that comes, and steps of its own. */
    assert_in_range(most, 2, SERVE_ROUNDS + 4);
    assert_true(sum > 0);
    /* Nothing is left behind. */
    while (weir_engine_progress(a.engine) > 0)
        continue;
    assert_int_equal(atomic_load(&a.engine->submitted), 0);
    weir_engine_info stats = WEIR_ENGINE_INFO_INIT;
    assert_int_equal(weir_engine_query(a.engine, &stats), WEIR_OK);
    assert_true(stats.transfers_ok >= sum && stats.transfers_failed == 0);
    one_close(&a);
    one_close(&b);
}

/* ---- a cancel while the device has the engine's owner ------------------- */

/* The request of the owner, in its device's poll, to the other thread, which does it once. The
 * owner stays in its poll until that call has returned: so the other thread never finds the engine
 * free, and finds relief wanted only where it is asked to cancel. */
enum { ASK_NOTHING, ASK_SUBMIT, ASK_CANCEL, ASK_END };
static _Atomic int asked;
static bool canceled_meanwhile;

static void pause_ms(void) {
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Whether the other thread's call has returned, in a time that nobody waits for in earnest. */
static bool ask(int what) {
    atomic_store(&asked, what);
    for (int ms = 0; ms < PATIENCE_MS && atomic_load(&asked) == what; ms++)
        pause_ms();
    return atomic_load(&asked) != what;
}

/* Submits come until the owner wants to be relieved, then a cancel. */
static int holding_poll(struct weir_device *device, struct weir_cqe *cqes_out, int max) {
    if (is_server && atomic_load(&served->relief) != RELIEF_WANTED) {
        if (atomic_load(&served->submitted) == 0)
            is_server = ask(ASK_SUBMIT);
    } else if (is_server) {
        canceled_meanwhile = ask(ASK_CANCEL);
        is_server = false;
    }
    return real_ops->poll(device, cqes_out, max);
}

static void *does_as_asked(void *argument) {
    struct one *one = argument;
    weir_transfer last = {0};
    for (;;) {
        int what = atomic_load(&asked);
        if (what == ASK_SUBMIT) {
            weir_transfer_release(one->engine, last);
            if (weir_write(one->engine, peer, &segment, 1, NULL, &last) != WEIR_OK)
                return "a write failed";
            atomic_store(&asked, ASK_NOTHING);
        } else if (what == ASK_CANCEL) {
            if (last.id == 0 || weir_transfer_cancel(one->engine, last) != WEIR_OK)
                return "a cancel failed";
            atomic_store(&asked, ASK_NOTHING);
            return NULL;
        } else if (what == ASK_END) {
            return "there was nothing to cancel";
        }
        pause_ms();
    }
}

static void test_W5_a_cancel_does_not_wait_for_who_has_the_engine(void **state) {
    struct one a, b;
    pthread_t thread;
    void *error;
    struct weir_device_caps caps;
    (void)state;
    if (device_table[0]->probe(NULL, &caps) != WEIR_OK)
        skip();
    one_open(&a, true);
    one_open(&b, false);
    join(&a, &b);
    served = a.engine;
    slow_ops.poll = holding_poll;
    assert_int_equal(pthread_create(&thread, NULL, does_as_asked, &a), 0);
    is_server = true;
    weir_engine_progress(a.engine);
    is_server = false;
    if (!canceled_meanwhile)
        atomic_store(&asked, ASK_END);
    pthread_join(thread, &error);
    if (error != NULL)
        fail_msg("%s", (const char *)error);
    assert_true(canceled_meanwhile);
    /* The work that it left is taken up all the same. */
    weir_engine_progress(a.engine);
    assert_int_equal(atomic_load(&a.engine->submitted), 0);
    one_close(&a);
    one_close(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_S5_a_call_is_not_kept_by_others),
        cmocka_unit_test(test_W5_a_cancel_does_not_wait_for_who_has_the_engine),
    };
    return cmocka_run_group_tests_name("relief", tests, NULL, NULL);
}
