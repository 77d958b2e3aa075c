/* SPDX-License-Identifier: Apache-2.0 */
/* content.h: bytes that can be made and checked anywhere from a key alone.
 *
 * Word i (64 bits) of a block with key k is w ^ (w >> 32) with w = k + i * ODD. For one i that
 * is a bijection of k, and for one k a bijection of i: two blocks with different keys differ
 * in every word, and a word at a wrong place of the right block differs too. One add, one
 * shift and one xor a word, so that making and checking run at the speed of memory. */
#ifndef TOOL_CONTENT_H
#define TOOL_CONTENT_H

#include <stdint.h>

/* The key of item `index` of stream `seed`. */
uint64_t content_key(uint64_t seed, uint64_t index);
void content_fill(void *out, uint64_t length, uint64_t key);
/* How many bytes are not as content_fill made them; every byte is compared. */
uint64_t content_wrong(const void *bytes, uint64_t length, uint64_t key);

#endif
