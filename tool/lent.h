/* SPDX-License-Identifier: Apache-2.0 */
/* lent.h: a page of this process that a peer writes to, and that refuses it when told to. */
#ifndef LENT_H
#define LENT_H

#include "weir.h"

enum { LENT_BYTES = 4096 };

struct lent {
    weir_memory memory; /* id 0: none */
    void *map;          /* our own mapping; NULL: weir's */
};

/* device: of the engine, by name; NULL: the default. 0, or a WEIR_E*, and then there is no page. */
int lent_open(weir_engine *engine, const char *device, struct lent *lent_out);
/* From here on a write to it is refused, and breaks the session of the writer, where failures break
 * any. 0 or a WEIR_E*. */
int lent_refuse(weir_engine *engine, struct lent *lent);
/* 0; EBUSY: a peer is still inside an access, so it is to be called again. */
int lent_close(weir_engine *engine, struct lent *lent);

#endif
