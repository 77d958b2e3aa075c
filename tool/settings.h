/* SPDX-License-Identifier: Apache-2.0 */
/* settings.h: the tool's account of the engine's settings: as JSON, in words, and of variables that
 * look like one and are none. */
#ifndef TOOL_SETTINGS_H
#define TOOL_SETTINGS_H

#include <stdint.h>

#include <jansson.h>

#include "weir_settings.h"

#define SETTINGS_MAX 256 /* a library says that it has no more long before */

/* "4096", "10000 ms", "auto". */
const char *settings_number_text(uint64_t value, const char *unit, char out[32]);
/* "default", "environment" or "option". */
const char *settings_source_text(uint32_t source);

/* All that there is to know of one, as `weir info --json` has it. */
json_t *settings_describe(const weir_setting_info *setting);
/* The settings that an engine of these options has: name, value, in_force, unit, source. */
json_t *settings_in_force(const weir_engine_options *options);

/* Says on stderr, a line each, which variables of the environment begin with WEIR_ and are
 * nobody's. */
void settings_warn(void);
/* The same as JSON: variable, nearest, note. */
json_t *settings_strays(void);

#endif
