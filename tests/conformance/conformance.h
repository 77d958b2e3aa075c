/* SPDX-License-Identifier: Apache-2.0 */
/* conformance.h: one suite that every device passes unchanged (E4).
 *
 * A device under test is a set of hooks. The suite owns what it makes through the
 * device's operations (QPs, regions); the hooks own the devices themselves. */
#ifndef WEIR_CONFORMANCE_H
#define WEIR_CONFORMANCE_H

#include "ports.h"

struct conformance_world {
    const char *name;
    const struct weir_device_ops *ops;
    /* Two open devices that reach each other. 0 or a WEIR_E* code. */
    int (*open)(struct conformance_world *world, struct weir_device **a_out,
                struct weir_device **b_out);
    /* Both devices; nothing of theirs is left. */
    void (*close)(struct conformance_world *world);
    /* Lets some time pass: what is under way gets further. Called a bounded number
     * of times between polls. */
    void (*advance)(struct conformance_world *world);
    /* The driver under test lets peers read what they have no right to read: its fault, which
     * the suite sees and does not hold against the device. */
    bool reads_unchecked;
    /* A message that finds no receive is waited with, as TCP waits with what nobody reads: it fails
     * when its engine thinks that it has been long enough. */
    bool sends_wait;
    /* That the other side of a QP is in the error state is told by its device, and takes a while.
     */
    bool devices_talk;
    void *self; /* the hooks' own */
};

/* Runs the suite with cmocka; the number of failed tests. */
int conformance_run(struct conformance_world *world);

#endif
