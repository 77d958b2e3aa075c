/* SPDX-License-Identifier: Apache-2.0 */
/* faults_plan.c: see faults_plan.h. */
#define _GNU_SOURCE
#include "faults_plan.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TEXT_MAX = 512, CHAIN_MAX = 512, DELAY_MS_MAX = 1000 };

static const char *const names[FAULT_COUNT] = {
#define FAULTS_X(name, text) #name,
    FAULTS(FAULTS_X)
#undef FAULTS_X
};

static struct {
    bool read, stopped;
    uint64_t limits[FAULT_COUNT]; /* a draw below it is a fault */
    uint64_t states[FAULT_COUNT]; /* a generator each: one fault more changes no other */
    uint64_t counts[FAULT_COUNT];
    uint64_t most, picking;
    uint64_t lost_ms, late_ms;
    uint32_t next_split[CHAIN_MAX + 1]; /* of chains so long */
    bool split_at[CHAIN_MAX];
} plan;

/* splitmix64, by Sebastiano Vigna, public domain */
static uint64_t random_next(uint64_t *state) {
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static _Noreturn void refuse(const char *word) {
    fprintf(stderr, "faulty: FAULTS: cannot make sense of \"%s\"\n", word);
    fflush(stderr);
    _exit(2);
}

static uint64_t read_number(const char *word, const char *text, uint64_t max) {
    char *end;

    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno != 0 || text[0] < '0' || text[0] > '9' || *end != '\0' || value > max)
        refuse(word);
    return value;
}

static uint64_t read_rate(const char *word, const char *text) {
    char *end;

    errno = 0;
    double rate = strtod(text, &end);
    if (errno != 0 || text[0] < '0' || text[0] > '9' || *end != '\0' || !(rate >= 0 && rate <= 1))
        refuse(word);
    return rate >= 1 ? UINT64_MAX : (uint64_t)(rate * 0x1p64);
}

static void read_word(const char *word, uint64_t *seed) {
    const char *value = strchr(word, '=');
    size_t length = value != NULL ? (size_t)(value++ - word) : 0;

    if (length == 0)
        refuse(word);
    for (size_t i = 0; i < FAULT_COUNT; i++) {
        if (strlen(names[i]) == length && memcmp(word, names[i], length) == 0) {
            plan.limits[i] = read_rate(word, value);
            return;
        }
    }
    if (strncmp(word, "seed=", 5) == 0)
        *seed = read_number(word, value, UINT64_MAX);
    else if (strncmp(word, "most=", 5) == 0)
        plan.most = read_number(word, value, UINT64_MAX);
    else if (strncmp(word, "lost_ms=", 8) == 0)
        plan.lost_ms = read_number(word, value, DELAY_MS_MAX);
    else if (strncmp(word, "late_ms=", 8) == 0)
        plan.late_ms = read_number(word, value, DELAY_MS_MAX);
    else
        refuse(word);
}

void faults_read(void) {
    const char *text = getenv("FAULTS");
    char words[TEXT_MAX], *rest = words, *word;
    uint64_t seed = 1;

    if (plan.read)
        return;
    plan.read = true;
    plan.most = UINT64_MAX;
    plan.lost_ms = plan.late_ms = 3;
    if (text == NULL)
        text = "";
    if (strlen(text) >= sizeof(words))
        refuse(text);
    strcpy(words, text);
    while ((word = strsep(&rest, " ")) != NULL) {
        if (*word != '\0')
            read_word(word, &seed);
    }
    for (size_t i = 0; i < FAULT_COUNT; i++) {
        plan.states[i] = seed ^ (i + 1) << 56;
        random_next(&plan.states[i]);
    }
    plan.picking = ~seed;
}

bool faults_draw(enum fault fault) {
    if (plan.limits[fault] == 0 || plan.stopped || plan.counts[fault] >= plan.most ||
        random_next(&plan.states[fault]) >= plan.limits[fault])
        return false;
    plan.counts[fault]++;
    return true;
}

uint32_t faults_split(uint32_t count) {
    uint32_t length = count <= CHAIN_MAX ? count : CHAIN_MAX;
    uint32_t at = plan.next_split[length]++ % length;

    plan.split_at[at] = true;
    return at;
}

uint32_t faults_pick(uint32_t count) {
    return (uint32_t)(random_next(&plan.picking) % count);
}

uint64_t faults_delay_ns(enum fault fault) {
    uint64_t most = (fault == FAULT_lost ? plan.lost_ms : plan.late_ms) * 1000000 + 1;

    return random_next(&plan.picking) % most;
}

void faults_stop_drawing(void) {
    plan.stopped = true;
}

uint64_t faults_counted(const char *name) {
    for (size_t i = 0; i < FAULT_COUNT; i++) {
        if (strcmp(names[i], name) == 0)
            return plan.counts[i];
    }
    return 0;
}

void faults_report(void) {
    const char *name = getenv("FAULTS_REPORT");
    FILE *file = name != NULL ? fopen(name, "a") : stderr;
    unsigned splits = 0;

    if (file == NULL || !plan.read) /* no device was opened */
        return;
    for (size_t i = 0; i < CHAIN_MAX; i++)
        splits += plan.split_at[i];
    fputs("faults:", file);
    for (size_t i = 0; i < FAULT_COUNT; i++)
        fprintf(file, " %s=%" PRIu64, names[i], plan.counts[i]);
    fprintf(file, " splits=%u\n", splits);
    if (file != stderr)
        fclose(file);
}
