/* SPDX-License-Identifier: Apache-2.0 */
/* source.h: where a device's settings come from: the name of the NIC that the application gave, and
 * the environment.
 *
 * Owns which of the two goes before the other. What may be named is in the device's table
 * (weir_device_ops.nic), and device.c takes names apart. */
#ifndef BASE_SOURCE_H
#define BASE_SOURCE_H

#include "ports.h"

struct setting_source {
    char *(*get)(const char *name);    /* getenv(3) */
    const struct weir_device_nic *nic; /* NULL: nothing is named */
};

/* The text of the setting that has this variable; NULL: it is not set. Where a NIC is named, the
 * variables that the name stands for are not looked at, also those of parts that it leaves out:
 * what they say is about another NIC. */
const char *source_text(const struct setting_source *source, const char *variable);
/* The name of that text in a note: the variable, or the word for that part of the name. */
const char *source_name(const struct setting_source *source, const char *variable);
/* Whether the text is of the name. */
bool source_is_named(const struct setting_source *source, const char *variable);

#endif
