/* SPDX-License-Identifier: Apache-2.0 */
/* status.h: weir's codes as NIXL's, and lines for people on standard error. */
#ifndef WEIR_NIXL_STATUS_H
#define WEIR_NIXL_STATUS_H

#include "backend/backend_engine.h"

#include "weir.h"

namespace weir_nixl {

/* A code or status of weir's: a peer that is gone, was restarted or cannot be reached, and what is
 * of one, is NIXL_ERR_REMOTE_DISCONNECT, upon which an agent forgets the metadata of that peer. */
nixl_status_t status_of(int code);

/* A line "weir: ..." on standard error, 20 of each format: NIXL's interface carries no text. A byte
 * that is no text becomes a '?': names are the peers' own. Takes no memory and no lock. */
void tell(const char *format, ...) noexcept __attribute__((format(printf, 1, 2)));

} // namespace weir_nixl

#endif
