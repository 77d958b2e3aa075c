/* SPDX-License-Identifier: Apache-2.0 */
/* lent.c: see lent.h.
 *
 * Owns how a page comes to refuse its writers. A device of a NIC learns of a release by the NIC's
 * refusal. Device shm sees the release beforehand, so that no session breaks over it: there the
 * page is registered memory that becomes inaccessible, which the kernel says when it is written to.
 */
#include "lent.h"

#include <sys/mman.h>

#include "host.h"
#include "options.h"

int lent_open(weir_engine *engine, const char *device, struct lent *lent_out) {
    void *base;
    int rc;

    *lent_out = (struct lent){.map = NULL};
    if (!options_device_is(device, "shm"))
        return weir_memory_allocate(engine, LENT_BYTES, WEIR_ACCESS_ALL, &lent_out->memory, &base);
    base = host_map(LENT_BYTES);
    if (base == NULL)
        return WEIR_ENOMEM;
    rc = weir_memory_register(engine, base, LENT_BYTES, WEIR_ACCESS_ALL, &lent_out->memory);
    if (rc != 0) {
        host_unmap(base, LENT_BYTES);
        lent_out->memory.id = 0;
        return rc;
    }
    lent_out->map = base;
    return 0;
}

static int release(weir_engine *engine, struct lent *lent) {
    int rc = lent->memory.id == 0 ? 0 : weir_memory_release(engine, lent->memory);

    if (rc == 0)
        lent->memory.id = 0;
    return rc;
}

int lent_refuse(weir_engine *engine, struct lent *lent) {
    int rc;

    if (lent->map != NULL)
        return mprotect(lent->map, LENT_BYTES, PROT_NONE) == 0 ? 0 : WEIR_EDEVICE;
    do
        rc = release(engine, lent);
    while (rc == WEIR_EINPROGRESS); /* a writer that is still inside */
    return rc;
}

int lent_close(weir_engine *engine, struct lent *lent) {
    int rc = release(engine, lent);

    if (rc == WEIR_EBUSY || rc == WEIR_EINPROGRESS)
        return WEIR_EBUSY;
    host_unmap(lent->map, LENT_BYTES);
    *lent = (struct lent){.map = NULL};
    return 0;
}
