/* SPDX-License-Identifier: Apache-2.0 */
/* device.c: the tables of backends and of their variables, and which one, and which NIC of it, a
 * name means. */
#include "device.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "source.h"

const struct weir_device_ops *const device_table[] = {
    &shm_device_ops,
#ifdef WEIR_HAVE_VERBS
    &verbs_device_ops,
#endif
#ifdef WEIR_HAVE_OFI
    &efa_device_ops,
    &ofi_device_ops,
#endif
};

const size_t device_table_count = sizeof device_table / sizeof device_table[0];

/* Behind the first, they are in the order in which one would want them between hosts. */
static const struct weir_device_ops *best(void) {
    struct weir_device_caps caps;
    for (size_t i = 1; i < device_table_count; i++) {
        if (device_table[i]->probe(NULL, &caps) == WEIR_OK)
            return device_table[i];
    }
    return device_table[0];
}

const struct weir_device_ops *device_find(const char *name) {
    if (name == NULL)
        return device_table[0];
    if (strcmp(name, "auto") == 0)
        return best();
    for (size_t i = 0; i < device_table_count; i++) {
        if (strcmp(device_table[i]->name, name) == 0)
            return device_table[i];
    }
    return NULL;
}

/* ---- NICs ---- */

__attribute__((format(printf, 2, 3))) static int refuse(char note_out[WEIR_DEVICE_NOTE_MAX],
                                                        const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(note_out, WEIR_DEVICE_NOTE_MAX, format, arguments);
    va_end(arguments);
    return WEIR_EINVAL;
}

/* Parts behind the colon, in the order of the device's table. */
static int take_apart(const struct weir_device_ops *ops, const char *text,
                      struct weir_device_nic *nic_out, char note_out[WEIR_DEVICE_NOTE_MAX]) {
    bool ended = false;
    for (uint32_t i = 0; i < WEIR_NIC_PARTS && ops->nic[i].variable != NULL; i++) {
        struct weir_nic_part *part = &nic_out->parts[nic_out->count++];
        bool last = i + 1 == WEIR_NIC_PARTS || ops->nic[i + 1].variable == NULL;
        size_t length = last ? strlen(text) : strcspn(text, "/");
        part->form = ops->nic[i];
        if (ended)
            continue;
        if (length == 0)
            return refuse(note_out, "no %s is named behind the %s", part->form.word,
                          i == 0 ? "colon" : "slash");
        if (length >= sizeof part->text)
            return refuse(note_out, "the %s is longer than %zu characters", part->form.word,
                          sizeof part->text - 1);
        memcpy(part->text, text, length);
        ended = text[length] == '\0';
        text += length + !ended;
    }
    return nic_out->count > 0 ? WEIR_OK : refuse(note_out, "it has nothing that could be named");
}

int device_choose(const char *name, const struct weir_device_ops **ops_out,
                  struct weir_device_nic *nic_out, char note_out[WEIR_DEVICE_NOTE_MAX]) {
    const char *colon = name != NULL ? strchr(name, ':') : NULL;
    char device[WEIR_DEVICE_NAME_MAX] = "";
    *nic_out = (struct weir_device_nic){.count = 0};
    note_out[0] = '\0';
    if (colon == NULL) {
        *ops_out = device_find(name);
        return *ops_out != NULL ? WEIR_OK : WEIR_ENODEVICE;
    }
    if ((size_t)(colon - name) < sizeof device)
        memcpy(device, name, (size_t)(colon - name));
    if (strcmp(device, "auto") == 0)
        return refuse(note_out, "what it takes cannot be named beforehand");
    *ops_out = device_find(device);
    return *ops_out != NULL ? take_apart(*ops_out, colon + 1, nic_out, note_out) : WEIR_ENODEVICE;
}

/* ---- settings ---- */

typedef bool setting_reader(size_t index, const struct setting_source *source,
                            struct weir_device_setting *out);
static setting_reader *const readers[] = {
    shm_setting,
#ifdef WEIR_HAVE_VERBS
    verbs_setting,
#endif
#ifdef WEIR_HAVE_OFI
    efa_setting,
    ofi_setting,
#endif
};
enum { READERS = sizeof readers / sizeof readers[0] };

bool device_setting(size_t index, char *(*get)(const char *name), const struct weir_device_nic *nic,
                    struct weir_device_setting *out) {
    struct setting_source source = {.get = get, .nic = nic};
    for (size_t i = 0, first = 0; i < READERS; i++) {
        size_t own = 0;
        for (; readers[i](own, &source, out); own++) {
            if (first + own == index)
                return true;
        }
        first += own;
    }
    return false;
}

static char *nothing(const char *name) {
    (void)name;
    return NULL;
}

const char *device_variable(size_t index) {
    struct weir_device_setting setting;
    return device_setting(index, nothing, NULL, &setting) ? setting.variable : NULL;
}
