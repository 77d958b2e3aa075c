/* SPDX-License-Identifier: Apache-2.0 */
/* plugin.cpp: what NIXL's plug-in manager finds in libplugin_WEIR.so. */
#include <exception>
#include <memory>

#include "backend/backend_plugin.h"

#include "engine.h"
#include "settings.h"
#include "status.h"
#include "weir.h"

namespace {

nixlBackendEngine *create(const nixlBackendInitParams *parameters) {
    if (parameters == nullptr || parameters->customParams == nullptr)
        return nullptr;
    try {
        return new weir_nixl::Engine(parameters);
    } catch (const std::exception &error) {
        weir_nixl::tell("%s", error.what());
        return nullptr;
    }
}

void destroy(nixlBackendEngine *engine) {
    delete engine;
}

const char *name() {
    return "WEIR";
}

} // namespace

extern "C" NIXL_PLUGIN_EXPORT nixlBackendPlugin *nixl_plugin_init() {
    static nixlBackendPlugin plugin;
    plugin.api_version = NIXL_PLUGIN_API_VERSION;
    plugin.create_engine = create;
    plugin.destroy_engine = destroy;
    plugin.get_plugin_name = name;
    plugin.get_plugin_version = weir_version;
    plugin.get_backend_options = weir_nixl::settings_names;
    plugin.get_backend_mems = [] { return nixl_mem_list_t{DRAM_SEG, VRAM_SEG}; };
    return &plugin;
}

extern "C" NIXL_PLUGIN_EXPORT void nixl_plugin_fini() {
}
