/* SPDX-License-Identifier: Apache-2.0 */
/* source.c: see source.h. */
#include "source.h"

#include <string.h>

/* The part of the name that stands for the variable; NULL: none does, or nothing is named. */
static const struct weir_nic_part *part_of(const struct setting_source *source,
                                           const char *variable) {
    const struct weir_device_nic *nic = source->nic;
    for (uint32_t i = 0; nic != NULL && i < nic->count; i++) {
        if (strcmp(nic->parts[i].form.variable, variable) == 0)
            return &nic->parts[i];
    }
    return NULL;
}

const char *source_text(const struct setting_source *source, const char *variable) {
    const struct weir_nic_part *part = part_of(source, variable);
    if (part == NULL)
        return source->get(variable);
    return part->text[0] != '\0' ? part->text : NULL;
}

const char *source_name(const struct setting_source *source, const char *variable) {
    const struct weir_nic_part *part = part_of(source, variable);
    return part != NULL ? part->form.word : variable;
}

bool source_is_named(const struct setting_source *source, const char *variable) {
    const struct weir_nic_part *part = part_of(source, variable);
    return part != NULL && part->text[0] != '\0';
}
