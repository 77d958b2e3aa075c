/* SPDX-License-Identifier: Apache-2.0 */
/* settings.c: see settings.h. */
#include "settings.h"

#include <inttypes.h>
#include <stdio.h>

#define STRAYS_MAX 1024 /* an environment of more is not read to its end */

const char *settings_number_text(uint64_t value, const char *unit, char out[32]) {
    if (value == WEIR_SETTING_AUTO)
        snprintf(out, 32, "auto");
    else
        snprintf(out, 32, "%" PRIu64 "%s%s", value, unit[0] != '\0' ? " " : "", unit);
    return out;
}

const char *settings_source_text(uint32_t source) {
    return source == WEIR_SETTING_DEFAULT       ? "default"
           : source == WEIR_SETTING_ENVIRONMENT ? "environment"
                                                : "option";
}

static json_t *number_json(uint64_t value) {
    return value == WEIR_SETTING_AUTO ? json_null() : json_integer((json_int_t)value);
}

/* The environment's text is not always UTF-8; what the note shows of it is. */
json_t *settings_describe(const weir_setting_info *s) {
    json_t *value = s->text[0] != '\0' ? json_string(s->text) : number_json(s->value);

    return json_pack("{s:s, s:s, s:o, s:o, s:s, s:s, s:o, s:I, s:I, s:s, s:b, s:s}", "name",
                     s->name, "variable", s->variable, "value", value, "in_force",
                     s->text[0] != '\0' ? json_string(s->text) : number_json(s->in_force), "unit",
                     s->unit, "source", settings_source_text(s->source), "default",
                     number_json(s->fallback), "least", (json_int_t)s->least, "most",
                     (json_int_t)s->most, "what", s->what, "refused", s->status != 0, "note",
                     s->note);
}

json_t *settings_in_force(const weir_engine_options *options) {
    weir_setting_info s = WEIR_SETTING_INFO_INIT;
    json_t *settings = json_array();

    for (size_t i = 0; i < SETTINGS_MAX && weir_setting_query(options, i, &s) == 0; i++)
        json_array_append_new(settings,
                              json_pack("{s:s, s:o, s:o, s:s, s:s}", "name", s.name, "value",
                                        number_json(s.value), "in_force", number_json(s.in_force),
                                        "unit", s.unit, "source", settings_source_text(s.source)));
    return settings;
}

void settings_warn(void) {
    weir_stray_info stray = WEIR_STRAY_INFO_INIT;

    for (size_t i = 0; i < STRAYS_MAX && weir_stray_query(i, &stray) == 0; i++)
        fprintf(stderr, "weir: %s\n", stray.note);
}

json_t *settings_strays(void) {
    weir_stray_info stray = WEIR_STRAY_INFO_INIT;
    json_t *strays = json_array();

    for (size_t i = 0; i < STRAYS_MAX && weir_stray_query(i, &stray) == 0; i++)
        json_array_append_new(strays, json_pack("{s:s, s:s?, s:s}", "variable", stray.name,
                                                "nearest", stray.nearest, "note", stray.note));
    return strays;
}
