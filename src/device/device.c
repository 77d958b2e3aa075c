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

const char *device_variable(size_t index) {
#ifdef WEIR_HAVE_VERBS
    return verbs_variable(index);
#else
    (void)index;
    return NULL;
#endif
}
