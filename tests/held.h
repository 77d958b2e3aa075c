/* SPDX-License-Identifier: Apache-2.0 */
/* held.h: counts what this process holds of the system's, for tests that it is all given
 * back. Each call reads /proc/self. */
#ifndef HELD_H
#define HELD_H

/* Open descriptors. */
int held_fds(void);

/* Mappings of memory that the shared-memory device made (memfd_create(2)). */
int held_shared_maps(void);

/* Mappings of every kind: the allocator's come and go a little by themselves. -1 where a
 * sanitizer keeps mappings of its own for each thread that there ever was. */
int held_maps(void);

#endif
