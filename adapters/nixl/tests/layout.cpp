/* SPDX-License-Identifier: Apache-2.0 */
/* layout.cpp: prints what has to be the same for a plug-in and an agent that were compiled with
 * different declarations of NIXL's interface: sizes, places of members and of virtual functions,
 * values. It is compiled without access control (-fno-access-control). */
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "backend/backend_plugin.h"

#define SIZE(type) std::printf("size %s %zu\n", #type, sizeof(type))
#define MEMBER(type, member)                                                                       \
    std::printf("member %s::%s %zu of %zu\n", #type, #member, place(&type::member),                \
                sizeof(type::member))
#define VIRTUAL(name) std::printf("virtual %s %zu\n", #name, slot(&nixlBackendEngine::name))
#define VALUE(name)   std::printf("value %s %lld\n", #name, static_cast<long long>(name))

namespace {

/* A pointer to a member is its offset, one to a virtual function that in the table, in C++'s usual
 * ABI; where it is marked by a bit, that is below the division. */
template <class Pointer> size_t word(Pointer pointer) {
    size_t value;
    static_assert(sizeof(pointer) >= sizeof(value));
    std::memcpy(&value, &pointer, sizeof(value));
    return value;
}
template <class Pointer> size_t place(Pointer pointer) {
    return word(pointer);
}
template <class Pointer> size_t slot(Pointer pointer) {
    return word(pointer) / sizeof(void *);
}

void members() {
    SIZE(nixlBasicDesc);
    MEMBER(nixlBasicDesc, addr);
    MEMBER(nixlBasicDesc, len);
    MEMBER(nixlBasicDesc, devId);
    SIZE(nixlBlobDesc);
    MEMBER(nixlBlobDesc, metaInfo);
    SIZE(nixlMetaDesc);
    MEMBER(nixlMetaDesc, metadataP);
    SIZE(nixlRemoteMetaDesc);
    SIZE(nixlBackendMD);
    MEMBER(nixlBackendMD, isPrivateMD);
    SIZE(nixlBackendReqH);
    SIZE(nixl_meta_dlist_t);
    MEMBER(nixl_meta_dlist_t, type);
    MEMBER(nixl_meta_dlist_t, descs);
    SIZE(nixlBackendOptionalArgs);
    MEMBER(nixlBackendOptionalArgs, notifMsg);
    MEMBER(nixlBackendOptionalArgs, hasNotif);
    MEMBER(nixlBackendOptionalArgs, customParam);
    SIZE(nixlBackendInitParams);
    MEMBER(nixlBackendInitParams, localAgent);
    MEMBER(nixlBackendInitParams, type);
    MEMBER(nixlBackendInitParams, customParams);
    MEMBER(nixlBackendInitParams, enableProgTh);
    MEMBER(nixlBackendInitParams, pthrDelay);
    MEMBER(nixlBackendInitParams, syncMode);
    MEMBER(nixlBackendInitParams, enableTelemetry_);
    SIZE(nixlBackendEngine);
    MEMBER(nixlBackendEngine, backendType);
    MEMBER(nixlBackendEngine, customParams);
    MEMBER(nixlBackendEngine, telemetryEvents_);
    MEMBER(nixlBackendEngine, telemetryEventsMutex_);
    MEMBER(nixlBackendEngine, initErr);
    MEMBER(nixlBackendEngine, localAgent);
    MEMBER(nixlBackendEngine, enableTelemetry_);
    SIZE(nixlTelemetryEvent);
    SIZE(nixlBackendPlugin);
    MEMBER(nixlBackendPlugin, api_version);
    MEMBER(nixlBackendPlugin, create_engine);
    MEMBER(nixlBackendPlugin, destroy_engine);
    MEMBER(nixlBackendPlugin, get_plugin_name);
    MEMBER(nixlBackendPlugin, get_plugin_version);
    MEMBER(nixlBackendPlugin, get_backend_options);
    MEMBER(nixlBackendPlugin, get_backend_mems);
}

template <class List>
using View = nixl_status_t (nixlBackendEngine::*)(const List &, nixlMemViewH &,
                                                  const nixl_opt_b_args_t *) const;

void virtuals() {
    VIRTUAL(supportsRemote);
    VIRTUAL(supportsLocal);
    VIRTUAL(supportsNotif);
    VIRTUAL(getSupportedMems);
    VIRTUAL(registerMem);
    VIRTUAL(deregisterMem);
    VIRTUAL(connect);
    VIRTUAL(disconnect);
    VIRTUAL(unloadMD);
    VIRTUAL(prepXfer);
    VIRTUAL(postXfer);
    VIRTUAL(checkXfer);
    VIRTUAL(releaseReqH);
    View<nixl_remote_meta_dlist_t> remote = &nixlBackendEngine::prepMemView;
    View<nixl_meta_dlist_t> local = &nixlBackendEngine::prepMemView;
    std::printf("virtual prepMemView(remote) %zu\n", slot(remote));
    std::printf("virtual prepMemView(local) %zu\n", slot(local));
    VIRTUAL(releaseMemView);
    VIRTUAL(getPublicData);
    VIRTUAL(getConnInfo);
    VIRTUAL(loadRemoteConnInfo);
    VIRTUAL(loadRemoteMD);
    VIRTUAL(loadLocalMD);
    VIRTUAL(getNotifs);
    VIRTUAL(genNotif);
    VIRTUAL(queryMem);
    VIRTUAL(estimateXferCost);
}

void values() {
    VALUE(NIXL_PLUGIN_API_VERSION);
    VALUE(DRAM_SEG);
    VALUE(VRAM_SEG);
    VALUE(BLK_SEG);
    VALUE(OBJ_SEG);
    VALUE(FILE_SEG);
    VALUE(NIXL_READ);
    VALUE(NIXL_WRITE);
    VALUE(NIXL_IN_PROG);
    VALUE(NIXL_SUCCESS);
    VALUE(NIXL_ERR_NOT_POSTED);
    VALUE(NIXL_ERR_INVALID_PARAM);
    VALUE(NIXL_ERR_BACKEND);
    VALUE(NIXL_ERR_NOT_FOUND);
    VALUE(NIXL_ERR_MISMATCH);
    VALUE(NIXL_ERR_NOT_ALLOWED);
    VALUE(NIXL_ERR_REPOST_ACTIVE);
    VALUE(NIXL_ERR_UNKNOWN);
    VALUE(NIXL_ERR_NOT_SUPPORTED);
    VALUE(NIXL_ERR_REMOTE_DISCONNECT);
    VALUE(NIXL_ERR_CANCELED);
    VALUE(NIXL_ERR_NO_TELEMETRY);
    VALUE(nixl_thread_sync_t::NIXL_THREAD_SYNC_RW);
}

} // namespace

int main() {
    members();
    virtuals();
    values();
    return 0;
}
