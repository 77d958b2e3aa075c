/* SPDX-License-Identifier: Apache-2.0 */
/* device.c: the tables of backends and of their variables. Owns nothing else; looking one up by
 * name is the engine's. */
#include "device.h"

const struct weir_device_ops *const device_table[] = {
    &shm_device_ops,
#ifdef WEIR_HAVE_VERBS
    &verbs_device_ops,
#endif
};

const size_t device_table_count = sizeof device_table / sizeof device_table[0];

bool device_setting(size_t index, char *(*get)(const char *name), struct weir_device_setting *out) {
    size_t others = 0;
    while (shm_setting(others, get, out)) {
        if (others++ == index)
            return true;
    }
#ifdef WEIR_HAVE_VERBS
    return verbs_setting(index - others, get, out);
#else
    return false;
#endif
}

static char *nothing(const char *name) {
    (void)name;
    return NULL;
}

const char *device_variable(size_t index) {
    struct weir_device_setting setting;
    return device_setting(index, nothing, &setting) ? setting.variable : NULL;
}
