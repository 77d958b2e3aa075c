/* SPDX-License-Identifier: Apache-2.0 */
/* file_size.h: whether a file may be so long. Making one longer than RLIMIT_FSIZE allows is
 * answered with SIGXFSZ (setrlimit(2)), which ends a process that knows nothing of it: memory that
 * is shared is a file. */
#ifndef PORTS_FILE_SIZE_H
#define PORTS_FILE_SIZE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

static inline bool file_may_have(uint64_t bytes) {
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
           bytes <= limit.rlim_cur;
}

#endif
