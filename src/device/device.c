/* SPDX-License-Identifier: Apache-2.0 */
/* device.c: the tables of backends and of their variables. Owns nothing else; looking one up by
 * name is the engine's. */
#include "device.h"

const struct weir_device_ops *const device_table[] = {
    &shm_device_ops,
#ifdef WEIR_HAVE_VERBS
    &verbs_device_ops,
#endif
#ifdef WEIR_HAVE_OFI
    &ofi_device_ops,
#endif
};

const size_t device_table_count = sizeof device_table / sizeof device_table[0];

typedef bool setting_reader(size_t index, char *(*get)(const char *name),
                            struct weir_device_setting *out);
static setting_reader *const readers[] = {
    shm_setting,
#ifdef WEIR_HAVE_VERBS
    verbs_setting,
#endif
#ifdef WEIR_HAVE_OFI
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
