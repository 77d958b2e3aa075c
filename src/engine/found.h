/* SPDX-License-Identifier: Apache-2.0 */
/* found.h: the look-ups: what is found under what. */
#ifndef WEIR_ENGINE_FOUND_H
#define WEIR_ENGINE_FOUND_H

#include "state.h"

size_t found_bytes(const weir_engine_options *options);
/* memory: found_bytes, zeroed. */
void found_start(weir_engine *engine, void *memory);
void found_instance(weir_engine *engine, const struct peer *peer);
struct peer *peer_by_instance(weir_engine *engine, const uint8_t *instance);
void found_address(weir_engine *engine, const struct peer *peer);
struct peer *found_at(weir_engine *engine, const char *address, bool opened,
                      const struct peer *after);
void found_alias_set(weir_engine *engine, struct peer *peer, uint32_t known);
void found_closed(weir_engine *engine, struct peer *peer, bool closed);
void found_conn_set(weir_engine *engine, struct peer *peer, uint64_t *conn, uint64_t number);
struct peer *found_by_conn(weir_engine *engine, uint64_t number, uint32_t *at);
void found_remote(weir_engine *engine, struct region_remote *remote, uint64_t party);
struct past *found_past(const weir_engine *engine, const uint8_t *instance);
void found_past_set(weir_engine *engine, struct past *past, const uint8_t *instance);
struct visitor *found_visitor(weir_engine *engine, uint64_t conn);
void found_visitor_set(weir_engine *engine, struct visitor *visitor, uint64_t conn);
const char *found_verify(const weir_engine *engine);

#endif
