/* SPDX-License-Identifier: Apache-2.0 */
/* order.h: barriers that one process makes for the threads of others, membarrier(2).
 *
 * Two processes that each write a word, and then read the word of the other, need a full barrier
 * between the two on both sides, or both may read what was there before. Where one side does so for
 * each message of 8 bytes, and the other before it goes to sleep, the second can make the barrier
 * for both: order_others returns when each running thread of all processes that have called
 * order_open has passed one. Those need no more than the order of their program then. */
#ifndef SHM_ORDER_H
#define SHM_ORDER_H

#include <stdbool.h>

/* From here on other processes make barriers for the threads of this one. False: the kernel does
 * not know of that, or a filter keeps it away, and each side has to make its own. */
bool order_open(void);

/* able: order_open's answer. Blocks for some microseconds. */
void order_others(bool able);

#endif
