/* SPDX-License-Identifier: Apache-2.0 */
/* tracer.h: the processes that may reach into this one, where Yama asks.
 *
 * With Yama's ptrace_scope 1 only an ancestor may use process_vm_writev(2) on a process, unless
 * the process names another one with prctl(PR_SET_PTRACER)
 * (Documentation/admin-guide/LSM/Yama.rst). That is a thing of the process, not of a device: there
 * is one name, which the last call sets. So this is the one thing here that devices share: a
 * process that asked for registered memory is named; when a second one does while the first lives,
 * all are; and nobody any more when the last device that named one is closed. */
#ifndef SHM_TRACER_H
#define SHM_TRACER_H

#include <stdbool.h>
#include <stdint.h>

/* Yama's ptrace_scope; 0 without Yama; -1: not known, for want of a descriptor. */
int tracer_scope(void);

/* Lets the process with this pid (0: it has none here) reach into this one. *is_user_io says
 * whether the device counts already. 0, also where Yama's scope is neither 1 nor unknown: then no
 * name is needed, or none helps. EDENIED: prctl(2) refused. */
int tracer_allow(bool *is_user_io, int32_t pid);
/* The device is closed. */
void tracer_forget(bool *is_user_io);

#endif
