/* SPDX-License-Identifier: Apache-2.0 */
/* ready.h: waits for descriptors, in a process that may open none. */
#ifndef PORTS_READY_H
#define PORTS_READY_H

#include <poll.h>
#include <stdint.h>

/* ppoll(2) for POLLIN, also where RLIMIT_NOFILE is less than count: ppoll(2) refuses that with
 * EINVAL, at once. Descriptors of -1 are left out, as there. A descriptor that is ready has revents
 * that are not 0: data, an end, or an error, that it is not open (POLLNVAL) among them. Returns how
 * many are ready; 0 may come before the time is over, of a signal or a lack of memory. UINT64_MAX:
 * no time-out. */
int ready_wait(struct pollfd *polled, nfds_t count, uint64_t timeout_ns);

#endif
