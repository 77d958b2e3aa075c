/* SPDX-License-Identifier: Apache-2.0 */
/* choice.c: which provider, domain, fabric and address a device over libfabric has.
 *
 * Owns the way from the settings to one fi_info, and to what a probe answers. Left to the backends:
 * what to ask libfabric for, which of its answers is the best, and the words of the notes. */
#include <rdma/fi_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fabric.h"

/* ---- what there is instead ---- */

static bool is_named_before(const struct fi_info *list, const struct fi_info *end,
                            fabric_name_of *name_of, const struct fabric_names *beside,
                            const char *name) {
    char other[FABRIC_NAME_MAX];
    for (const struct fi_info *at = list; at != end; at = at->next) {
        name_of(at, beside, other);
        if (strcmp(other, name) == 0)
            return true;
    }
    return false;
}

void fabric_note_offers(const struct fi_info *list, fabric_name_of *name_of,
                        const struct fabric_names *beside, char note[FABRIC_NOTE_MAX]) {
    static const char begin[] = " (there are: ", rest[] = ", ...", end[] = ")";
    char name[FABRIC_NAME_MAX];
    size_t used = strlen(note);
    const char *before = begin;
    for (const struct fi_info *at = list; at != NULL; at = at->next) {
        name_of(at, beside, name);
        if (name[0] == '\0' || is_named_before(list, at, name_of, beside, name))
            continue;
        bool fits =
            used + strlen(before) + strlen(name) + sizeof rest + sizeof end <= FABRIC_NOTE_MAX;
        if (!fits && before == begin)
            return;
        used += (size_t)snprintf(note + used, FABRIC_NOTE_MAX - used, "%s%s", fits ? before : rest,
                                 fits ? name : "");
        before = ", ";
        if (!fits)
            break;
    }
    if (before != begin)
        snprintf(note + used, FABRIC_NOTE_MAX - used, "%s", end);
}

/* ---- the choice ---- */

/* Of what libfabric answered, the best; the choice has a copy. */
static int take(const struct fabric_backend *backend, const struct fabric_library *library,
                const struct fabric_names *names, struct fabric_choice *choice_out) {
    struct fi_info *list = NULL;
    int rc = backend->ask(library, names, &list);
    if (rc == -FI_ENOMEM)
        return WEIR_ENOMEM;
    const struct fi_info *found = rc == 0 ? backend->best(list, names) : NULL;
    choice_out->info = found != NULL ? library->dupinfo(found) : NULL;
    if (found == NULL)
        backend->note_missing(library, names, rc == 0 ? list : NULL, choice_out->note);
    else
        backend->note_taken(found, library->version(), choice_out->note);
    fabric_note_clean(choice_out->note);
    if (rc == 0)
        library->freeinfo(list);
    if (found == NULL)
        return WEIR_ENODEVICE;
    return choice_out->info != NULL ? WEIR_OK : WEIR_ENOMEM;
}

int fabric_choose(const struct fabric_backend *backend, const struct weir_device_wishes *wishes,
                  const struct fabric_library **library_out, struct fabric_choice *choice_out) {
    struct setting_source source = {.get = getenv, .nic = wishes != NULL ? &wishes->nic : NULL};
    struct fabric_names names;
    const char *why;
    *choice_out = (struct fabric_choice){.info = NULL};
    int rc = fabric_names_read(backend, &source, &names, choice_out->note);
    if (rc != WEIR_OK)
        return rc;
    snprintf(names.host, sizeof names.host, "%s", wishes != NULL ? wishes->host : "");
    *library_out = fabric_load(&why);
    if (*library_out == NULL) {
        snprintf(choice_out->note, sizeof choice_out->note, "%s", why);
        return WEIR_ENODEVICE;
    }
    return take(backend, *library_out, &names, choice_out);
}

int fabric_probe(const struct fabric_backend *backend, const struct weir_device_wishes *wishes,
                 struct weir_device_caps *caps_out) {
    const struct fabric_library *library;
    struct fabric_choice choice;
    int rc = fabric_choose(backend, wishes, &library, &choice);
    if (rc != WEIR_OK) {
        snprintf(caps_out->note, sizeof caps_out->note, "%s", choice.note);
        return rc;
    }
    backend->fill_caps(&choice, caps_out);
    if (backend->cannot_open != NULL && backend->cannot_open(choice.info, caps_out->note))
        rc = WEIR_EDEVICE;
    library->freeinfo(choice.info);
    return rc;
}
