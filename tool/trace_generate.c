/* SPDX-License-Identifier: Apache-2.0 */
/* trace_generate.c: traces that look like one that was recorded.
 *
 * The model, with figures from a recorded hour of conversations (docs/trace.md has
 * them beside what comes out):
 *   - arrivals come in batches, one every 3 s, of some ten requests;
 *   - all requests begin with the same block (a system prompt);
 *   - 61 % begin a conversation: input length from a table of quantiles, all other blocks new;
 *   - 39 % go on from an earlier request, found by its age: they share its blocks but for the
 *     last (which was not full) and sometimes more, and add new ones.
 * Integer arithmetic only, so that a seed gives the same bytes everywhere. */
#include <stdlib.h>

#include "host.h"
#include "trace.h"

#define TICK_MS            3000
#define CONTINUES_PER_1000 387
#define BLOCKS_MAX         247
#define MIX_SEED           0x7765697200000003u

/* Values at the cumulative shares below, in 1/1000; between two of them, linear. */
static const uint32_t shares[] = {0,   50,  100, 200, 300, 400, 500, 600,
                                  700, 800, 900, 950, 980, 990, 999, 1000};
#define SHARES (sizeof(shares) / sizeof(shares[0]))

static const uint32_t batch_sizes[SHARES] = {2,  5,  6,  7,  8,  9,  10, 11,
                                             12, 13, 15, 16, 17, 18, 23, 28};
static const uint32_t new_lengths[SHARES] = {891,   897,   905,    1092,  1757,  3914,
                                             5264,  7417,  10768,  15871, 25561, 38464,
                                             67212, 89867, 121471, 126195};
static const uint32_t output_lengths[SHARES] = {1,   10,  24,  100, 213, 291,  350,  399,
                                                447, 504, 597, 698, 891, 1120, 2000, 2000};
/* Of a request that goes on: ticks since the one before, and blocks that it adds. */
static const uint32_t ages[SHARES] = {0,  10,  14,  20,  25,  32,  41,  54,
                                      74, 106, 161, 205, 344, 491, 875, 1010};
static const uint32_t added_blocks[SHARES] = {0, 1,  1,  1,  2,  2,  2,  2,
                                              4, 10, 20, 29, 41, 53, 95, 186};
/* Blocks of the one before that are not shared: the last, or a longer tail. */
static const uint32_t lost_blocks[SHARES] = {0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 17, 27, 37, 48, 88, 198};

struct generator {
    struct trace *trace;
    uint64_t random;
    uint64_t next_id;
    uint64_t *tick_first; /* index of each tick's first request */
    uint64_t tick_count;
};

static uint64_t draw(struct generator *generator, const uint32_t *values) {
    /* In 1/1,000,000, so that the steps of the interpolation do not show. */
    uint64_t at = random_below(&generator->random, 1000000);
    size_t i = 1;
    uint64_t width;

    while (at >= (uint64_t)shares[i] * 1000)
        i++;
    /* Rounded to the nearest: cutting off would lower every mean by a half. */
    width = (shares[i] - shares[i - 1]) * 1000ull;
    return values[i - 1] +
           ((values[i] - values[i - 1]) * (at - shares[i - 1] * 1000ull) + width / 2) / width;
}

/* An earlier request of about that age; any of its batch. */
static uint64_t find_parent(struct generator *generator) {
    uint64_t age = draw(generator, ages), tick, first, last;

    /* A young trace has no old requests: take one of all there are. */
    if (age >= generator->tick_count)
        age = random_below(&generator->random, generator->tick_count);
    tick = generator->tick_count - 1 - age;
    first = generator->tick_first[tick];
    last = age == 0 ? generator->trace->request_count : generator->tick_first[tick + 1];
    /* The first of its batch has none of the same batch before it. */
    return last > first ? first + random_below(&generator->random, last - first) : first - 1;
}

static int add_request(struct generator *generator, uint64_t arrival_ms) {
    struct trace *trace = generator->trace;
    struct trace_request request = {.arrival_ms = arrival_ms};
    uint64_t shared = trace->request_count > 0, parent = 0, blocks, *ids;
    int goes_on =
        trace->request_count > 0 && random_below(&generator->random, 1000) < CONTINUES_PER_1000;

    request.input_length = draw(generator, new_lengths);
    blocks = (request.input_length + TRACE_BLOCK_TOKENS - 1) / TRACE_BLOCK_TOKENS;
    if (goes_on) {
        uint64_t lost = draw(generator, lost_blocks), of_parent = 0;
        /* One with two blocks leaves nothing to go on from; any will do if eight are so short. */
        for (unsigned i = 0; i < 8 && of_parent < 3; i++) {
            parent = find_parent(generator);
            of_parent = trace->requests[parent].block_count;
        }
        shared = lost < of_parent ? of_parent - lost : 1;
        blocks = shared + draw(generator, added_blocks);
        blocks = blocks < 2 ? 2 : blocks > BLOCKS_MAX ? BLOCKS_MAX : blocks;
        shared = shared < blocks ? shared : blocks;
        request.input_length = (blocks - 1) * TRACE_BLOCK_TOKENS + 1 +
                               random_below(&generator->random, TRACE_BLOCK_TOKENS);
    }
    request.output_length = draw(generator, output_lengths);
    request.block_count = (uint32_t)blocks;
    ids = trace_append(trace, &request);
    if (ids == NULL)
        return -1;
    for (uint64_t i = 0; i < blocks; i++)
        ids[i] =
            i < shared ? trace->ids[trace->requests[parent].first_id + i] : generator->next_id++;
    return 0;
}

int trace_generate(uint64_t requests, uint64_t seed, struct trace *trace_out) {
    struct trace trace = {.requests = NULL};
    struct generator generator = {.trace = &trace, .random = mix64(seed) ^ MIX_SEED};
    int rc = 0;

    generator.tick_first = calloc(requests, sizeof(*generator.tick_first));
    if (generator.tick_first == NULL)
        return complain("out of memory");
    while (rc == 0 && trace.request_count < requests) {
        uint64_t batch = draw(&generator, batch_sizes), tick = generator.tick_count++;
        /* Recorded clocks are off by a millisecond now and then. */
        uint64_t jitter = tick == 0 ? 0 : random_below(&generator.random, 2);
        generator.tick_first[tick] = trace.request_count;
        for (; rc == 0 && batch > 0 && trace.request_count < requests; batch--)
            rc = add_request(&generator, tick * TICK_MS - jitter);
    }
    free(generator.tick_first);
    if (rc != 0) {
        trace_free(&trace);
        return complain("out of memory");
    }
    *trace_out = trace;
    return 0;
}
