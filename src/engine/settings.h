/* SPDX-License-Identifier: Apache-2.0 */
/* settings.h: the settings of an engine: the numbers of weir_engine_options, each with its
 * environment variable, range and default. */
#ifndef WEIR_ENGINE_SETTINGS_H
#define WEIR_ENGINE_SETTINGS_H

#include <stdbool.h>

#include "weir_settings.h"

/* Rows of the table, and of a report. */
extern const size_t settings_count;
enum { SETTINGS_MAX = 32 };
enum { OPTIONS_SIZE_MAX = 4096 }; /* of weir_engine_options, as any caller has it */

/* Whether options (NULL: none) have a size that some weir.h gave them. */
bool settings_size_fits(const weir_engine_options *options);

/* The outcome of one setting; numbers in the setting's unit. */
struct setting_report {
    uint64_t value;    /* WEIR_SETTING_AUTO: chosen later */
    uint64_t in_force; /* what of it has an effect */
    uint64_t fallback;
    uint64_t least;
    uint64_t most;
    uint32_t source; /* enum weir_setting_source */
    int status;
    char note[WEIR_SETTING_NOTE_MAX];
};

/* Completes the options: an option of 0 is taken from the environment, where get finds its variable
 * (getenv(3); NULL: there is none), or is the default, which stays 0 where the engine or the device
 * chooses. Again on what it wrote, it changes nothing. reports: room for settings_count, all of
 * which are written, or NULL. EINVAL: a size, a flag or a number is wrong; *out is written all the
 * same, unless it is the size. */
int settings_resolve(const weir_engine_options *in, char *(*get)(const char *name),
                     weir_engine_options *out, struct setting_report *reports);

/* The index-th entry of the environment (environ(7), or NULL) that weir_stray_query describes. */
int settings_stray(char *const *environment, size_t index, weir_stray_info *info);

#endif
