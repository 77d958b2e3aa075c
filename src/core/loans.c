/* SPDX-License-Identifier: Apache-2.0 */
/* loans.c: see loans.h. */
#include "loans.h"

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

/* ---- the words, which both sides see ---- */

_Static_assert(LOANS_BELL % ROOM_LINE == 0, "the bell has a line of its own");

static _Atomic uint64_t *word_at(uint8_t *memory, uint32_t offset) {
    return (_Atomic uint64_t *)(void *)(memory + offset);
}

static _Atomic uint64_t *round_of(uint8_t *memory, uint32_t index) {
    return word_at(memory, index * (uint32_t)sizeof(uint64_t));
}

bool loans_give_back(uint8_t *memory, const struct room_loan *loan, bool ordered) {
    /* First written, then looked, against the sender's: first the bell, then the rounds. */
    if (ordered) {
        atomic_store_explicit(round_of(memory, loan->index), wire_data_le64(loan->round),
                              memory_order_release);
        atomic_signal_fence(memory_order_seq_cst);
    } else {
        atomic_exchange(round_of(memory, loan->index), wire_data_le64(loan->round));
    }
    return atomic_load(word_at(memory, LOANS_BELL)) != 0;
}

void loans_wait(struct loans *loans, bool waits) {
    atomic_exchange(word_at(loans->memory, LOANS_BELL), waits);
}

bool loans_look(struct loans *loans) {
    uint32_t before = loans->used;
    for (uint32_t at = before; at-- > 0;) {
        uint32_t i = loans->order[at];
        if (loans->at[i].state == LOAN_LENT &&
            wire_data_le64(atomic_load(round_of(loans->memory, i))) == loans->at[i].round)
            loans_give(loans, i);
    }
    return loans->used < before;
}

/* ---- pieces ---- */

void loans_init(struct loans *loans, uint8_t *memory, uint64_t bytes) {
    *loans = (struct loans){.memory = memory, .bytes = bytes};
}

static uint64_t lines_of(uint32_t length) {
    return length == 0 ? ROOM_LINE : ((uint64_t)length + ROOM_LINE - 1) / ROOM_LINE * ROOM_LINE;
}

static uint64_t end_of(const struct loan *loan) {
    return loan->offset + lines_of(loan->length);
}

uint32_t loans_take(struct loans *loans, uint32_t length, uint64_t round) {
    uint64_t from = LOANS_HEAD, need = lines_of(length);
    uint32_t at = 0, index = 0;
    if (loans->used == LOANS_MAX)
        return LOANS_NONE;
    for (; at < loans->used && loans->at[loans->order[at]].offset - from < need; at++)
        from = end_of(&loans->at[loans->order[at]]);
    if (loans->bytes < from || loans->bytes - from < need)
        return LOANS_NONE;
    while (loans->at[index].state != LOAN_FREE)
        index++;
    memmove(&loans->order[at + 1], &loans->order[at], loans->used - at);
    loans->order[at] = (uint8_t)index;
    loans->used++;
    loans->at[index] =
        (struct loan){.offset = from, .round = round, .length = length, .state = LOAN_HELD};
    return index;
}

void loans_give(struct loans *loans, uint32_t index) {
    uint32_t at = 0;
    assert(loans->at[index].state != LOAN_FREE);
    while (loans->order[at] != index)
        at++;
    loans->used--;
    memmove(&loans->order[at], &loans->order[at + 1], loans->used - at);
    loans->at[index].state = LOAN_FREE;
}

/* ---- invariants ---- */

const char *loans_verify(const struct loans *loans) {
    uint64_t from = LOANS_HEAD;
    uint32_t used = 0;
    for (uint32_t i = 0; i < LOANS_MAX; i++)
        used += loans->at[i].state != LOAN_FREE;
    if (used != loans->used)
        return "loans are not counted";
    for (uint32_t i = 0; i < used; i++) {
        const struct loan *loan = &loans->at[loans->order[i]];
        if (loan->state == LOAN_FREE || loan->round == 0)
            return "a loan is in order that is free";
        if (loan->offset < from || end_of(loan) > loans->bytes)
            return "loans lie over each other";
        from = end_of(loan);
    }
    return NULL;
}
