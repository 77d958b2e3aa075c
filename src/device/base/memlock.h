/* SPDX-License-Identifier: Apache-2.0 */
/* memlock.h: how much memory a device may pin for this process. Any thread. */
#ifndef BASE_MEMLOCK_H
#define BASE_MEMLOCK_H

#include <stdint.h>

/* Bytes that may be pinned still; UINT64_MAX: any. */
uint64_t memlock_left(void);
/* The same of a limit, and the text of /proc/PID/status and uid_map. */
uint64_t memlock_left_of(uint64_t limit, const char *status, const char *uid_map);

#endif
