/* SPDX-License-Identifier: Apache-2.0 */
/* test_efa_kept.c: what efa keeps of receives and of WRs that flush, by itself: random posts,
 * arrivals, takes, QPs that go, against plain lists (S1). Buffers stand in rows as the engine's
 * do, in other rows, and in none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "efa.h"

enum { QPS = 4, STEPS = 200000, LATE = 32, DEPTHS = 5 };

static const uint32_t depths[DEPTHS] = {1, 2, 7, 64, 300};

/* ---- numbers that a seed gives ---- */

static uint64_t state_of;

static uint64_t draw(uint64_t below) {
    state_of ^= state_of << 13;
    state_of ^= state_of >> 7;
    state_of ^= state_of << 17;
    return state_of % below;
}

/* ---- the device's environment ---- */

static void *env_alloc(void *self, size_t bytes) {
    (void)self;
    return calloc(1, bytes);
}

static void env_free(void *self, void *memory, size_t bytes) {
    (void)self;
    (void)bytes;
    free(memory);
}

static const struct weir_env_ops env_ops = {.alloc = env_alloc, .free = env_free};

/* ---- the model: all that was posted, in order ---- */

struct posted {
    uint64_t wr_id, buffer;
    uint32_t byte_length;
};

struct model {
    struct weir_qp *qp; /* NULL: there is none */
    uint32_t depth, count, seen, late_count;
    struct posted posted[512];
    uint64_t late[LATE];
    uint64_t next; /* number of the next buffer in its row */
    uint64_t base, distance;
};

static void open_qp(struct weir_device *device, struct model *model) {
    struct weir_qp wanted = {.device = device};
    *model = (struct model){.depth = depths[draw(DEPTHS)],
                            .next = draw(1u << 20),
                            .base = draw(UINT64_MAX),
                            .distance = draw(2) == 0 ? 320 : draw(UINT64_MAX)};
    kept_start(&wanted, model->depth);
    model->qp = calloc(1, kept_bytes(&wanted));
    assert_non_null(model->qp);
    *model->qp = wanted;
}

static void close_qp(struct model *model) {
    kept_forget(model->qp);
    free(model->qp);
    model->qp = NULL;
}

/* The next in the row, one of the row anew, one far away, one that lies elsewhere. */
static struct posted next_of(struct model *model) {
    struct posted one = {.wr_id = model->next};
    switch (draw(16)) {
    case 0:
        one.wr_id = draw(UINT64_MAX);
        break;
    case 1:
        one.wr_id = model->next - draw(1u << 16);
        break;
    case 2:
        one.wr_id = model->next + draw(1u << 16);
        break;
    default:
        model->next++;
        break;
    }
    one.buffer = model->base + one.wr_id * model->distance;
    if (draw(16) == 0)
        one.buffer = draw(UINT64_MAX);
    return one;
}

static void post(struct model *model) {
    if (model->count == model->depth)
        return;
    struct posted *one = &model->posted[model->count++];
    *one = next_of(model);
    kept_post(model->qp, one->wr_id, (void *)(uintptr_t)one->buffer);
}

static void arrive(struct model *model) {
    if (model->seen == model->count)
        return;
    struct posted *one = &model->posted[model->seen++];
    one->byte_length = (uint32_t)draw(EFA_PAYLOAD_MAX + 1);
    assert_true(kept_place(model->qp, one->byte_length) == (void *)(uintptr_t)one->buffer);
}

/* The oldest: with its message, or flushed. */
static void take(struct model *model, bool flushes) {
    struct weir_cqe cqe;
    if (model->count == 0 || (model->seen == 0 && !flushes))
        return;
    kept_take(model->qp, &cqe);
    assert_int_equal(cqe.wr_id, model->posted[0].wr_id);
    assert_int_equal(cqe.status, model->seen > 0 ? WEIR_CQE_OK : WEIR_CQE_FLUSHED);
    assert_true(cqe.recv);
    assert_int_equal(cqe.byte_length, model->seen > 0 ? model->posted[0].byte_length : 0);
    memmove(&model->posted[0], &model->posted[1], --model->count * sizeof model->posted[0]);
    model->seen -= model->seen > 0;
}

static void flush_one(struct model *model) {
    if (model->late_count == LATE || draw(2) == 0) {
        for (uint32_t i = 0; i < model->late_count; i++)
            assert_int_equal(kept_take_late(model->qp), model->late[i]);
        model->late_count = 0;
        return;
    }
    model->late[model->late_count] = draw(UINT64_MAX);
    kept_late(model->qp, model->late[model->late_count++]);
}

static void step(struct weir_device *device, struct model *model) {
    if (model->qp == NULL) {
        open_qp(device, model);
        return;
    }
    uint64_t what = draw(1000);
    if (what < 400)
        post(model);
    else if (what < 700)
        arrive(model);
    else if (what < 950)
        take(model, false);
    else if (what < 990)
        flush_one(model);
    else if (what < 998)
        take(model, true);
    else
        close_qp(model);
}

static void test_S1_what_is_kept_is_what_was_posted(void **state) {
    static struct weir_device device;
    static struct model models[QPS];
    (void)state;
    device = (struct weir_device){.env = {.ops = &env_ops}};
    for (uint64_t seed = 1; seed <= 5; seed++) {
        state_of = seed * UINT64_C(0x9e3779b97f4a7c15);
        memset(models, 0, sizeof models);
        assert_int_equal(kept_reserve(&device, QPS * (300 + LATE)), WEIR_OK);
        for (int i = 0; i < STEPS; i++)
            step(&device, &models[draw(QPS)]);
        for (int i = 0; i < QPS; i++) {
            if (models[i].qp != NULL)
                close_qp(&models[i]);
        }
        assert_true(device.notes.used <= QPS * (300 + LATE));
    }
    kept_close(&device);
}

/* All notes that were taken are free again, so that as many can be taken once more. */
static void test_S1_notes_come_back(void **state) {
    static struct weir_device device;
    struct model model;
    (void)state;
    device = (struct weir_device){.env = {.ops = &env_ops}};
    state_of = 1;
    assert_int_equal(kept_reserve(&device, LATE), WEIR_OK);
    open_qp(&device, &model);
    for (int round = 0; round < 100; round++) {
        for (uint64_t i = 0; i < LATE; i++)
            kept_late(model.qp, i);
        for (uint64_t i = 0; i < LATE / 2; i++)
            assert_int_equal(kept_take_late(model.qp), i);
        kept_forget(model.qp);
        assert_int_equal(device.notes.used, LATE);
    }
    free(model.qp);
    kept_close(&device);
}

static void test_S1_so_many_notes_at_most(void **state) {
    static struct weir_device device;
    (void)state;
    device = (struct weir_device){.env = {.ops = &env_ops}};
    uint64_t all = (uint64_t)EFA_NOTES_BLOCKS * EFA_NOTES_BLOCK;
    device.notes.block_count = EFA_NOTES_BLOCKS;
    assert_int_equal(kept_reserve(&device, all), WEIR_OK);
    assert_int_equal(kept_reserve(&device, all + 1), WEIR_EFULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_S1_what_is_kept_is_what_was_posted),
        cmocka_unit_test(test_S1_notes_come_back),
        cmocka_unit_test(test_S1_so_many_notes_at_most),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
