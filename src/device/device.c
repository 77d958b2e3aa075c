/* device.c: the table of backends. Owns nothing else; looking one up by name is
 * the engine's. */
#include "device.h"

const struct weir_device_ops *const device_table[] = {
    &shm_device_ops,
#ifdef WEIR_HAVE_VERBS
    &verbs_device_ops,
#endif
};

const size_t device_table_count = sizeof device_table / sizeof device_table[0];
