/* SPDX-License-Identifier: Apache-2.0 */
/* device.c: the tables of backends and of their variables, and which one a name means. */
#include "device.h"

#include <string.h>

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
        if (device_table[i]->probe(&caps) == WEIR_OK)
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

typedef bool setting_reader(size_t index, char *(*get)(const char *name),
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

bool device_setting(size_t index, char *(*get)(const char *name), struct weir_device_setting *out) {
    for (size_t i = 0, first = 0; i < READERS; i++) {
        size_t own = 0;
        for (; readers[i](own, get, out); own++) {
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
    return device_setting(index, nothing, &setting) ? setting.variable : NULL;
}
