/* SPDX-License-Identifier: Apache-2.0 */
/* prng.h: the one source of chance in a simulated world.
 *
 * xoshiro256** seeded by splitmix64 (Blackman and Vigna, prng.di.unimi.it). Owns
 * nothing but its state; a value of it is copied to fork a stream. Every draw is
 * deterministic, so a run is a function of its seed (E2). */
#ifndef WEIR_SIM_PRNG_H
#define WEIR_SIM_PRNG_H

#include <stdbool.h>
#include <stdint.h>

struct sim_prng {
    uint64_t s[4];
};

static inline uint64_t sim_splitmix(uint64_t *state) {
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static inline void sim_prng_seed(struct sim_prng *prng, uint64_t seed) {
    for (int i = 0; i < 4; i++) {
        prng->s[i] = sim_splitmix(&seed);
    }
}

static inline uint64_t sim_rotl(uint64_t x, int k) {
    return (x << k) | (x >> (64 - k));
}

static inline uint64_t sim_next(struct sim_prng *prng) {
    uint64_t *s = prng->s;
    uint64_t result = sim_rotl(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = sim_rotl(s[3], 45);
    return result;
}

/* [0, n), n >= 1. The bias of the multiply-shift is below 2^-32 for n < 2^32. */
static inline uint64_t sim_below(struct sim_prng *prng, uint64_t n) {
    return (uint64_t)(((unsigned __int128)sim_next(prng) * n) >> 64);
}

/* [low, high], both included. */
static inline uint64_t sim_between(struct sim_prng *prng, uint64_t low, uint64_t high) {
    return low + sim_below(prng, high - low + 1);
}

/* True with probability rate / SIM_ALWAYS. Draws nothing at rate 0, so that a
 * fault that is switched off costs nothing on the hot path. */
#define SIM_ALWAYS 65536u

static inline bool sim_chance(struct sim_prng *prng, uint32_t rate) {
    return rate != 0 && (sim_next(prng) >> 48) < rate;
}

#endif
